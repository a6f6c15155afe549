#!/usr/bin/env python3
"""usage: framework_steps.py [--bench PROGRAM] [--turns N] [--seconds S]

One worker's step in passel beside the same step in PyTorch (eager, torch.compile) and JAX (jit): MLP 784-100-10,
batch 100, Adam, one thread, pinned to one core, random images in memory. All take turns; shown are the medians of the
turns' steps/s and of their ratios. What is not installed, or fails, is named. passel is BM_Compute of PROGRAM
(build/release/bin/passel_bench). To be run by a Python that has the frameworks.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parents[1]
BATCH = 100
WAYS = ("eager", "compile", "jax")
NAMES = {"eager": "PyTorch, eager", "compile": "PyTorch, torch.compile", "jax": "JAX, jit"}


def torch_step(compiled):
    import torch
    torch.set_num_threads(1)
    torch.manual_seed(1)
    images = torch.randint(0, 256, (60000, 784), dtype=torch.uint8)
    labels = torch.randint(0, 10, (60000,))
    model = torch.nn.Sequential(torch.nn.Linear(784, 100), torch.nn.ReLU(), torch.nn.Linear(100, 10))
    adam = torch.optim.Adam(model.parameters(), lr=1e-3)

    def loss_of(batch, wanted):
        return torch.nn.functional.cross_entropy(model(batch.float() * (1 / 255)), wanted)
    if compiled:
        loss_of = torch.compile(loss_of)

    def step():
        rows = torch.randint(0, 60000, (BATCH,))
        loss = loss_of(images[rows], labels[rows])
        adam.zero_grad()
        loss.backward()
        adam.step()
    return step, torch.__version__


def jax_step():
    import jax
    import jax.numpy as jnp
    import numpy
    random = numpy.random.default_rng(1)
    images = random.integers(0, 256, (60000, 784), dtype=numpy.uint8)
    labels = random.integers(0, 10, 60000)
    shapes = ((784, 100), (100,), (100, 10), (10,))
    values = [jnp.asarray(0.05 * random.standard_normal(s), jnp.float32) for s in shapes]
    state = (values, [jnp.zeros(s) for s in shapes], [jnp.zeros(s) for s in shapes], jnp.float32(0))

    def loss_of(values, batch, wanted):
        hidden = jax.nn.relu(batch.astype(jnp.float32) * (1 / 255) @ values[0] + values[1])
        logits = jax.nn.log_softmax(hidden @ values[2] + values[3])
        return -jnp.mean(jnp.take_along_axis(logits, wanted[:, None], 1))

    @jax.jit
    def update(state, batch, wanted):
        values, first, second, count = state
        count += 1
        gradients = jax.grad(loss_of)(values, batch, wanted)
        first = [0.9 * m + 0.1 * g for m, g in zip(first, gradients)]
        second = [0.999 * v + 0.001 * g * g for v, g in zip(second, gradients)]
        rate = 1e-3 * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
        values = [w - rate * m / (jnp.sqrt(v) + 1e-8) for w, m, v in zip(values, first, second)]
        return values, first, second, count

    def step():
        nonlocal state
        rows = random.integers(0, 60000, BATCH)
        state = update(state, images[rows], labels[rows])
        state[3].block_until_ready()
    return step, jax.__version__


def child(way, seconds):
    """For each line of standard input: as many steps as fit into the time; prints steps/s."""
    step, version = jax_step() if way == "jax" else torch_step(way == "compile")
    for _ in range(200):
        step()
    print(version, flush=True)
    for _ in sys.stdin:
        begin, steps = time.perf_counter(), 0
        while time.perf_counter() - begin < seconds:
            step()
            steps += 1
        print(steps / (time.perf_counter() - begin), flush=True)


def start(way, seconds, log):
    environment = dict(os.environ, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", JAX_PLATFORMS="cpu",
                       XLA_FLAGS="--xla_cpu_multi_thread_eigen=false", CUDA_VISIBLE_DEVICES="")
    process = subprocess.Popen([sys.executable, __file__, "--child", way, "--seconds", str(seconds)],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                               env=environment)
    version = process.stdout.readline().strip()
    return (process, version) if version else (None, None)


def passel(program, core):
    with tempfile.TemporaryDirectory() as folder:
        results = pathlib.Path(folder, "results.json")
        subprocess.run(["taskset", "-c", str(core), program, "--filter", "BM_Compute.*flush:1$", "--json", results],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120)
        return json.loads(results.read_text())["rows"][0]["measured"]


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--bench", default=SOURCE / "build/release/bin/passel_bench")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--child", choices=WAYS)
    flags = parser.parse_args()
    if flags.child:
        return child(flags.child, flags.seconds)
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    with tempfile.TemporaryFile("w+") as log:
        running, found = {}, {"passel": []}
        for way in WAYS:
            process, version = start(way, flags.seconds, log)
            if process is None:
                log.seek(0)
                last = log.read().strip().splitlines()[-1:]
                print(f"{NAMES[way]:<24} not measured: {last[0] if last else 'it ended'}")
                continue
            running[f"{NAMES[way]} {version}"] = process
        for _ in range(flags.turns):
            found["passel"].append(passel(flags.bench, core))
            for name, process in running.items():
                process.stdin.write("go\n")
                process.stdin.flush()
                found.setdefault(name, []).append(float(process.stdout.readline()))
        for process in running.values():
            process.stdin.close()
            process.wait(timeout=60)
    for name, speeds in found.items():
        ratios = [ours / other for ours, other in zip(found["passel"], speeds)]
        target = ", target >= 4" if "eager" in name else ""
        print(f"{name:<32} {statistics.median(speeds):7.0f} steps/s; passel is "
              f"{statistics.median(ratios):.2f} x as fast ({min(ratios):.2f} to {max(ratios):.2f}{target})")
    return 0


if __name__ == "__main__":
    sys.exit(main())

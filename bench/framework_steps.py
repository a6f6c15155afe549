#!/usr/bin/env python3
"""One worker's step in passel beside the same step in PyTorch (eager, torch.compile) and JAX (jit).

The step: MLP 784-100-10, batch 100, Adam, one thread, random images in memory, of which each step draws its
rows. Each is a process that lives on; all are pinned to one core and take turns. Every step is timed, and a turn's
figure is its median step: what other programs take from the core now and then is in none. Shown are the medians of
the turns' steps/s and of their ratios. A framework that is not installed, or fails, is named.

Run it by a Python that has the frameworks. Exit codes: 0 done; 1 passel's own step failed; 2 wrong usage.
"""

import argparse
import os
import pathlib
import random
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parents[1]
ME = "framework_steps"
BATCH = 100
EXAMPLES = 60000
WARM_UP = 200  # steps; without them JAX compiles, and PyTorch allocates
PER_REQUEST = 50  # steps of passel_model_training, of 255 at most
ALONE = 0.97  # of the core: with less a turn was disturbed
ANSWER_LIMIT = 300  # seconds; torch.compile may take some
WAYS = ("eager", "compile", "jax")
NAMES = {"eager": "PyTorch, eager", "compile": "PyTorch, torch.compile", "jax": "JAX, jit"}


def torch_step(compiled):
    import torch
    torch.set_num_threads(1)
    torch.manual_seed(1)
    images = torch.randint(0, 256, (EXAMPLES, 784), dtype=torch.uint8)
    labels = torch.randint(0, 10, (EXAMPLES,))
    model = torch.nn.Sequential(torch.nn.Linear(784, 100), torch.nn.ReLU(), torch.nn.Linear(100, 10))
    adam = torch.optim.Adam(model.parameters(), lr=1e-3)

    def loss_of(batch, wanted):
        return torch.nn.functional.cross_entropy(model(batch.float() * (1 / 255)), wanted)
    if compiled:
        loss_of = torch.compile(loss_of)

    def step():
        rows = torch.randint(0, EXAMPLES, (BATCH,))
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
    images = random.integers(0, 256, (EXAMPLES, 784), dtype=numpy.uint8)
    labels = random.integers(0, 10, EXAMPLES)
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
        rows = random.integers(0, EXAMPLES, BATCH)
        state = update(state, images[rows], labels[rows])
        state[3].block_until_ready()
    return step, jax.__version__


def child(way, seconds):
    """For each line of standard input: as many steps as fit into the time; prints the seconds of the median."""
    step, version = jax_step() if way == "jax" else torch_step(way == "compile")
    for _ in range(WARM_UP):
        step()
    print(version, flush=True)
    for _ in sys.stdin:
        times, begin = [], time.perf_counter()
        while not times or time.perf_counter() - begin < seconds:
            before = time.perf_counter()
            step()
            times.append(time.perf_counter() - before)
        print(statistics.median(times), flush=True)


class Failed(Exception):
    """One sentence: why there is no step to be timed."""


class Contestant:
    """A process that makes steps when it is asked to. Its standard error goes to a file."""

    def __init__(self, name, arguments, environment=None):
        self.name = name
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
                                        env=environment)
        self.speeds, self.alone = [], 1.0

    def failed(self, why=None):
        if why:
            self.process.kill()
        self.close()
        self.log.seek(0)
        last = self.log.read().strip().splitlines()[-1:]
        if not why:
            why = last[0] if last else f"it ended with {self.process.returncode} and wrote no error"
        return Failed(why)

    def ask(self, request):
        try:
            self.process.stdin.write(request)
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self.failed() from None

    def receive(self, complete):
        """Bytes until complete(them). Errors: Failed."""
        answer, end = b"", time.monotonic() + ANSWER_LIMIT
        while not complete(answer):
            there, _, _ = select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))
            if not there:
                raise self.failed(f"it has not answered within {ANSWER_LIMIT} s")
            piece = os.read(self.process.stdout.fileno(), 65536)
            if not piece:
                raise self.failed()
            answer += piece
        return answer

    def cpu(self):
        """Seconds of a core that all its threads have had."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def turn(self):
        before, begin = self.cpu(), time.perf_counter()
        self.speeds.append(1 / self.median_step())
        used, wall = self.cpu() - before, time.perf_counter() - begin
        if wall > 0.5:  # the first counts hundredths of a second
            self.alone = min(self.alone, used / wall)

    def close(self):
        """Its input ends, and so does it; what does not is killed."""
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Framework(Contestant):
    def __init__(self, way, seconds):
        environment = dict(os.environ, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", JAX_PLATFORMS="cpu",
                           XLA_FLAGS="--xla_cpu_multi_thread_eigen=false", CUDA_VISIBLE_DEVICES="")
        super().__init__(NAMES[way], [sys.executable, __file__, "--child", way, "--seconds", str(seconds)], environment)
        self.name += " " + self.answer()

    def answer(self):
        return self.receive(lambda answer: answer.endswith(b"\n")).decode().strip()

    def median_step(self):
        self.ask(b"\n")
        return float(self.answer())


class Passel(Contestant):
    def __init__(self, program, images, seconds):
        super().__init__("passel", [program, images])
        self.seconds = seconds
        for _ in range(WARM_UP // PER_REQUEST):
            self.steps()

    def steps(self):
        """Microseconds of some steps."""
        self.ask(bytes([PER_REQUEST]))
        size = struct.calcsize(f"{PER_REQUEST}d")
        return struct.unpack(f"{PER_REQUEST}d", self.receive(lambda answer: len(answer) >= size))

    def median_step(self):
        times, begin = [], time.perf_counter()
        while not times or time.perf_counter() - begin < self.seconds:
            times += self.steps()
        return 1e-6 * statistics.median(times)


def write_images(folder):
    """Random ones as four IDX files."""
    for name, count in ("train", EXAMPLES), ("t10k", BATCH):
        pathlib.Path(folder, f"{name}-images-idx3-ubyte").write_bytes(
            struct.pack(">4I", 0x803, count, 28, 28) + os.urandom(count * 784))
        pathlib.Path(folder, f"{name}-labels-idx1-ubyte").write_bytes(
            struct.pack(">2I", 0x801, count) + bytes(random.choices(range(10), k=count)))


def start_all(flags, images):
    """Passel first; frameworks that do not start are named."""
    running = [Passel(flags.program, images, flags.seconds)]
    for way in WAYS:
        try:
            running.append(Framework(way, flags.seconds))
        except Failed as why:
            print(f"{NAMES[way]:<32} not measured: {why}", flush=True)
    return running


def take_turns(running, turns):
    """Who fails on the way is left out and named."""
    for turn in range(turns):
        for one in running[::1 if turn % 2 == 0 else -1]:
            try:
                one.turn()
            except Failed as why:
                if one.name == "passel":
                    raise
                print(f"{one.name:<32} not measured: {why}", flush=True)
                running.remove(one)


def show(running):
    ours = running[0].speeds
    for one in running:
        line = f"{one.name:<32} {statistics.median(one.speeds):7.0f} steps/s"
        if one.speeds is not ours:
            ratios = [our / other for our, other in zip(ours, one.speeds)]
            target = ", target >= 4" if one.name.startswith(NAMES["eager"]) else ""
            line += f"; passel is {statistics.median(ratios):.2f} x as fast ({min(ratios):.2f} to {max(ratios):.2f}{target})"
        if one.alone < ALONE:
            line += f" !{one.alone:.2f}"
        print(line)
    if any(one.alone < ALONE for one in running):
        print("!: other programs disturbed a turn, which had no more than this of the core: do not rely on it")


def parse(arguments):
    parser = argparse.ArgumentParser(prog=ME, allow_abbrev=False, description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", metavar="DIR", type=pathlib.Path, default=SOURCE / "build/release",
                        help="where passel was built with -DPASSEL_BUILD_BENCH=ON (default: build/release)")
    parser.add_argument("--turns", metavar="N", type=int, default=5, help="of each, 1 to 1000 (default: 5)")
    parser.add_argument("--seconds", metavar="S", type=float, default=1,
                        help="length of a turn, 0.01 to 60 (default: 1)")
    parser.add_argument("--child", choices=WAYS, help=argparse.SUPPRESS)
    flags = parser.parse_args(arguments)
    if not 1 <= flags.turns <= 1000:
        parser.error(f"--turns is {flags.turns}, but it must be a whole number from 1 to 1000")
    if not 0.01 <= flags.seconds <= 60:
        parser.error(f"--seconds is {flags.seconds:g}, but it must be from 0.01 to 60")
    flags.program = flags.build / "bin/passel_model_training"
    if not flags.child and not os.access(flags.program, os.X_OK):
        parser.error(f"--build {flags.build} has no bin/passel_model_training: build it with -DPASSEL_BUILD_BENCH=ON")
    return flags


def main(arguments):
    flags = parse(arguments)
    if flags.child:
        child(flags.child, flags.seconds)
        return 0
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # the children inherit it
    with tempfile.TemporaryDirectory() as images:
        write_images(images)
        running = []
        try:
            running = start_all(flags, images)
            take_turns(running, flags.turns)
        except Failed as why:
            print(f"{ME}: passel's step: {why}", file=sys.stderr)
            return 1
        finally:
            for one in running:
                one.close()
    show(running)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)

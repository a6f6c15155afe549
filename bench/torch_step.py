#!/usr/bin/env python3
"""usage: torch_step.py [--build BUILD] [--turns N] [--steps N] [--workers N] [--device cpu|cuda] [--hidden N]
                     [--data FOLDER] [PART...]

What PyTorch costs with passel.torch, beside PyTorch's own ways. PARTs (all of them without one):

  overhead  zero_grad() and step() of 1, 10 and 100 parameters of 16 floats (sgd, hogwild, a view, no computing), beside
            the same push, wait and pull in C (bench/capi_step.c). Limit: 5 us and 1 us per parameter.
  hogwild   MNIST (or generated digits), MLP 784-100-10, batch 100, a thread and a core each: steps/s of all
            processes together, in turns: forward and backward alone, passel with Adam and SGD,
            torch.multiprocessing's shared parameters with Adam (as it is by default, and fused=True) and SGD; and
            the accuracy of each seed. With --device cuda all processes compute on one GPU, and the limits, which
            are of the CPU, do not count.
  rounds    the same model with Adam: DistributedDataParallel over gloo beside passel in barrier. Local steps/s.
  where     where the time of a step of hogwild goes, in microseconds: forward and backward alone, steps with passel and
            with an optimizer of torch.optim (fused=True) that nobody shares, in turns of 0.2 s in each process.

To be run by the Python of tools/setup --with torch. Ratios are of each turn; shown are all turns and the medians.
"""

import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parents[1]
BATCH = 100


def model_of(torch, flags):
    torch.manual_seed(flags.seed)
    return torch.nn.Sequential(torch.nn.Linear(784, flags.hidden), torch.nn.ReLU(),
                               torch.nn.Linear(flags.hidden, 10)).to(flags.device)


def gate(folder, rank, world):
    """All begin together."""
    pathlib.Path(folder, f"ready-{rank}").touch()
    while len(list(pathlib.Path(folder).glob("ready-*"))) < world:
        time.sleep(0.001)


def optimizer_of(torch, kind, model, folder):
    """What makes the update, the model to call, and what shares the first values."""
    import contextlib
    way, _, name = kind.partition("-")
    if way == "private":
        return None, model, contextlib.nullcontext()
    if way == "passel":
        import passel.torch
        mode = "barrier" if name == "rounds" else "hogwild"
        opt = passel.torch.share(model, "sgd" if name == "sgd" else "adam", lr=0.1 if name == "sgd" else 1e-3, mode=mode)
        return opt, model, opt
    if way == "ddp":
        import torch.distributed
        torch.distributed.init_process_group("gloo", f"file://{folder}/meet", rank=int(os.environ["RANK"]),
                                             world_size=int(os.environ["WORLD_SIZE"]))
        wrapped = torch.nn.parallel.DistributedDataParallel(model)
        return torch.optim.Adam(model.parameters(), lr=1e-3, fused=True), wrapped, contextlib.nullcontext()
    if name == "sgd":
        return torch.optim.SGD(model.parameters(), lr=0.1), model, contextlib.nullcontext()
    return torch.optim.Adam(model.parameters(), lr=1e-3, fused=name == "fused"), model, contextlib.nullcontext()


def work(rank, model, flags, folder):
    """One process: says its steps/s, and the first its accuracy."""
    import torch

    import passel.digits
    torch.set_num_threads(1)
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    x, labels = (torch.tensor(each, device=flags.device) for each in passel.digits.load("train", flags.data))
    labels = labels.long()
    optimizer, called, scope = optimizer_of(torch, flags.kind, model, folder)
    torch.manual_seed(1000 * flags.seed + rank)

    def step():
        rows = torch.randint(len(x), (BATCH,), device=flags.device)
        if optimizer is None:
            model.zero_grad()
        else:
            optimizer.zero_grad()
        torch.nn.functional.cross_entropy(called(x[rows]), labels[rows]).backward()
        if optimizer is not None:
            optimizer.step()

    with scope:
        for _ in range(20):
            step()
        gate(folder, rank, flags.workers)
        begin = time.perf_counter()
        for _ in range(flags.steps):
            step()
        if flags.device == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
        test_x, test_labels = (torch.tensor(each, device=flags.device) for each in passel.digits.load("t10k", flags.data))
        with torch.no_grad():
            right = (model(test_x).argmax(dim=1) == test_labels).double().mean().item()
        print("\n" + json.dumps({"rate": flags.steps / seconds, "accuracy": right}), flush=True)


def where_in(flags):
    """One process of where(): medians in microseconds."""
    import torch

    import passel.digits
    import passel.torch
    torch.set_num_threads(1)
    rank, name = int(os.environ["RANK"]), flags.kind.partition("-")[2]
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    x, labels = (torch.tensor(each) for each in passel.digits.load("train", flags.data))
    labels, clock = labels.long(), time.perf_counter_ns
    private, shared, fused = (model_of(torch, flags) for _ in range(3))
    kind, rate = (torch.optim.SGD, 0.1) if name == "sgd" else (torch.optim.Adam, 1e-3)
    theirs = kind(fused.parameters(), lr=rate, fused=True)
    with passel.torch.share(shared, name, lr=rate, mode="hogwild") as opt:
        core, timeout = opt._core, 60.0
        # What step() does, in its parts.
        calls = {"take": opt._collect, "push": lambda: core.push(timeout), "wait": lambda: core.wait(timeout),
                 "pull": lambda: core.pull(opt._how),
                 "tensors": lambda: (core.gradients(), opt._show(core.moves()), opt._watch.drop_gradients())}
        turns = [("private", private, private.zero_grad, {}), ("passel", shared, opt.zero_grad, calls),
                 ("fused", fused, theirs.zero_grad, {"step": theirs.step})]
        found, last, done = {}, None, 0
        while done < flags.steps:
            turn = int(time.time() / 0.2) % len(turns)  # the same one in all processes
            label, model, zero_grad, parts = turns[turn]
            times, begin = {}, clock()
            rows = torch.randint(len(x), (BATCH,))
            zero_grad()
            times["before"], before = clock() - begin, clock()
            torch.nn.functional.cross_entropy(model(x[rows]), labels[rows]).backward()
            times["passes"] = clock() - before
            for part, call in parts.items():
                before = clock()
                call()
                times[part] = clock() - before
            times["all"] = clock() - begin
            number = number + 1 if turn == last else 0
            last = turn
            if number > 5:  # caches have forgotten the turn before
                done += 1
                for part, ns in times.items():
                    found.setdefault(f"{label} {part}", []).append(ns / 1e3)
        print("\n" + json.dumps({"rate": 0, **{part: statistics.median(each) for part, each in found.items()}}), flush=True)


def process(flags):
    """A process of launch()."""
    if flags.kind.startswith("where-"):
        where_in(flags)
        return
    import torch
    model = model_of(torch, flags)
    if flags.kind.startswith("torch-"):
        model.share_memory()
        torch.multiprocessing.spawn(work, (model, flags, flags.folder), flags.workers)
    else:
        work(int(os.environ["RANK"]), model, flags, flags.folder)


def launch(kind, flags, seed):
    """What each process has found."""
    import passel
    with tempfile.TemporaryDirectory() as folder:
        me = [sys.executable, __file__, f"--build={flags.build}", f"--kind={kind}", f"--folder={folder}",
              f"--workers={flags.workers}", f"--steps={flags.steps}", f"--seed={seed}", f"--data={flags.data}",
              f"--device={flags.device}", f"--hidden={flags.hidden}"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        if kind.startswith(("passel", "where")):
            me = [passel.program(), "run", f"--workers={flags.workers}", "--max_restarts=0", "--bind=none", "--", *me]
        alone = kind.startswith(("passel", "torch", "where"))
        running = [subprocess.Popen(me, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                    start_new_session=True,
                                    env={**environment, "RANK": str(rank), "WORLD_SIZE": str(flags.workers)})
                   for rank in range(1 if alone else flags.workers)]
        try:
            ended = [each.communicate(timeout=600) for each in running]
        finally:
            for each in running:
                if each.poll() is None:
                    os.killpg(each.pid, signal.SIGKILL)
                    each.wait()
    text = "".join(out for out, _ in ended)
    found = [json.loads(line[line.index("{"):]) for line in text.splitlines() if '{"rate"' in line]
    if len(found) != flags.workers or any(each.returncode for each in running):
        sys.exit(f"{kind} failed:\n{text}\n" + "".join(errors for _, errors in ended))
    return found


def together(kind, flags, seed):
    """(steps/s of all processes, accuracy)"""
    found = launch(kind, flags, seed)
    return sum(each["rate"] for each in found), statistics.mean(each["accuracy"] for each in found)


def compare(kinds, ratios, flags):
    rates, right = {kind: [] for kind in kinds}, {kind: [] for kind in kinds}
    print("steps/s    " + "".join(f"{kind:>16}" for kind in kinds))
    for turn in range(flags.turns):
        for kind in kinds if turn % 2 == 0 else reversed(kinds):
            rate, accuracy = together(kind, flags, turn + 1)
            rates[kind].append(rate)
            right[kind].append(accuracy)
        print(f"turn {turn + 1:<5} " + "".join(f"{rates[kind][-1]:16.0f}" for kind in kinds), flush=True)
    print("accuracy   " + "".join(f"{statistics.mean(right[kind]):16.4f}" for kind in kinds))
    for ours, theirs, limit in ratios:
        each = [a / b for a, b in zip(rates[ours], rates[theirs])]
        print(f"{ours} / {theirs}: median {statistics.median(each):.3f} (limit {limit}), "
              f"{min(each):.3f} to {max(each):.3f}")


def hogwild(flags):
    compare(["private", "passel-adam", "passel-sgd", "torch-adam", "torch-fused", "torch-sgd"],
            [("passel-adam", "private", 0.93), ("passel-sgd", "private", 0.93), ("passel-adam", "torch-adam", 1.9),
             ("passel-adam", "torch-fused", 1.0), ("passel-sgd", "torch-sgd", 1.0)], flags)


def rounds(flags):
    compare(["passel-rounds", "ddp"], [("passel-rounds", "ddp", 3)], flags)


def where(flags):
    for name in "sgd", "adam":
        found = [each for turn in range(flags.turns) for each in launch(f"where-{name}", flags, turn + 1)]
        medians = {part: statistics.median(each[part] for each in found) for part in found[0] if part != "rate"}
        for label in "private", "passel", "fused":
            parts = {part.partition(" ")[2]: us for part, us in medians.items() if part.startswith(label)}
            ratio = statistics.median(each["private all"] / each[f"{label} all"] for each in found)
            print(f"{name:5} {label:8} " + ", ".join(f"{part} {us:.1f}" for part, us in parts.items()) +
                  f" us; {ratio:.3f} of private", flush=True)


def step_us(torch, count, steps):
    import passel.torch
    model = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(16)) for _ in range(count)])
    with passel.torch.share(model, "sgd", lr=0.1, pull="view") as opt:
        for number in range(-steps // 10, steps):
            if number == 0:
                begin = time.perf_counter_ns()
            opt.zero_grad()
            opt.step()
        return (time.perf_counter_ns() - begin) / steps / 1e3


def overhead(flags):
    import torch
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/capi_step"
        subprocess.run(["cc", "-O2", "-std=gnu11", f"-I{SOURCE}/src", str(SOURCE / "bench/capi_step.c"),
                        f"-L{flags.build}/lib", "-lpassel", f"-Wl,-rpath,{flags.build}/lib", "-o", program], check=True)
        print("parameters  C us/step  passel.torch us/step  overhead us  limit us")
        for count in 1, 10, 100:
            steps, c, ours = 20000 if count < 100 else 4000, [], []
            for _ in range(flags.turns):
                done = subprocess.run([program, str(count), "16", str(steps)], check=True, text=True, capture_output=True)
                c.append(float(done.stdout) / 1e3)
                ours.append(step_us(torch, count, steps))
            print(f"{count:10}  {statistics.median(c):9.2f}  {statistics.median(ours):20.2f}  "
                  f"{statistics.median(ours) - statistics.median(c):11.2f}  {5 + count:8}", flush=True)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n", 1)[0].removeprefix("usage: "))
    parser.add_argument("parts", nargs="*", metavar="PART", help="overhead, hogwild, rounds, where")
    parser.add_argument("--build", default=str(SOURCE / "build/release"))
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2000, help="of each process")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="for hogwild")
    parser.add_argument("--hidden", type=int, default=100)
    parser.add_argument("--data", default="")
    for internal in "kind", "folder":
        parser.add_argument(f"--{internal}", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    flags.build = str(pathlib.Path(flags.build).resolve())
    sys.path.insert(0, f"{flags.build}/python")
    os.environ["PYTHONPATH"] = f"{flags.build}/python"
    if flags.kind:
        process(flags)
        return
    if not flags.data:  # found once, and generated where there is none
        import passel
        done = subprocess.run([passel.program(), "data", "locate"], check=True, text=True, capture_output=True)
        flags.data = done.stdout.strip()
    parts = {"overhead": overhead, "hogwild": hogwild, "rounds": rounds, "where": where}
    unknown = [part for part in flags.parts if part not in parts]
    if unknown:
        parser.error(f"the parts are {', '.join(parts)}, and {unknown[0]} is none of them")
    for part in flags.parts or parts:
        parts[part](flags)


if __name__ == "__main__":
    main()

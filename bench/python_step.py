#!/usr/bin/env python3
"""usage: python_step.py [BUILD [ROW...]]: what a step costs through the package for Python. ROW: step, large,
example, start; without one all of them.

step: over the C interface: one process alone, mode hogwild, sgd, 16 floats in each variable, no computing in
   between: pull("view"), gradients, step(), five times in turn with bench/capi_step.c. The median of each.
large: 25,000,000 floats, as ResNet-50 has them, in 160 variables whose gradients were filled by hand before:
   push + pull, by a view and by a copy ("auto" in mode hogwild), in turn with bench/capi_step.c, a process each.
example: softmax.py (MNIST, or generated digits) under `passel run --workers 2`, and as two processes
   that compute the same and have no job: values and gradients are arrays of their own, and nobody updates.
   In many short turns; the steps/s of both processes together, the ratio of each turn, and that of the
   quietest turn of each. Each is bound to its core.
start: from the begin of `passel run --workers 4` to the first line of the last of four scripts that import
   nothing but `time`, in turn with four times Python alone.

To be run by the Python that the package was built for (tools/setup --with python).
"""

import os
import pathlib
import runpy
import statistics
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else SOURCE / "build/release").resolve()
sys.path.insert(0, str(BUILD / "python"))
import numpy as np  # noqa: E402

import passel  # noqa: E402

FLOATS = 16
TURNS = 5
WORKERS = 2
EXAMPLE_TURNS = 12
STEPS = 6000  # of each process, in the example
LARGE_VARIABLES, LARGE_FLOATS, LARGE_STEPS = 160, 156_250, 30
SCRIPTS, STARTS = 4, 15


def python_ns(count, steps, floats=FLOATS, how="view"):
    with passel.join({f"v{i}": (floats,) for i in range(count)}, optimizer="sgd") as job:
        job.pull(how)
        for gradient in job.gradients.values():
            gradient[...] = 0
        for number in range(-steps // 10, steps):
            if number == 0:
                begin = time.perf_counter_ns()
            values = job.pull(how)
            gradients = job.gradients
            job.step()
        assert len(values) == len(gradients) == count
        return (time.perf_counter_ns() - begin) / steps


class Private:
    """A job of nobody: no update."""

    stopped = False
    global_step = 0

    def __init__(self, shapes):
        self.rank = int(os.environ["RANK"])
        self.gradients, self.values = ({name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
                                       for _ in range(2))

    def pull(self, how="auto"):
        return self.values

    def step(self):
        self.global_step += 1


class Timed:
    """What the example has for a job: it takes STEPS steps, and says how many there were in a second."""

    def __init__(self, job):
        self.job, self.steps = job, 0
        self.pull, self.rank, self.stopped = job.pull, job.rank, False

    def __enter__(self):
        self.begin = time.perf_counter()
        return self

    def __exit__(self, kind, error, trace):
        print(f"rate {self.steps / (time.perf_counter() - self.begin)}", flush=True)
        if hasattr(self.job, "leave"):
            self.job.leave()

    @property
    def gradients(self):
        return self.job.gradients

    @property
    def global_step(self):  # the example ends at 2000
        return 0 if self.steps < STEPS else 2000

    def step(self):
        self.steps += 1
        return self.job.step()


def example(kind):
    """One process of the example."""
    join = passel.join
    passel.join = lambda shapes, **settings: Timed(join(shapes, **settings) if kind == "passel" else Private(shapes))
    if kind == "private":
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[int(os.environ["RANK"]) % len(cores)]})
    runpy.run_path(str(SOURCE / "src/python/examples/softmax.py"))


def rates(text):
    found = [float(line.split()[-1]) for line in text.splitlines() if " rate " in f" {line}"]
    assert len(found) == WORKERS, text
    return sum(found)


def together(kind):
    me = [sys.executable, __file__, str(BUILD), kind]
    if kind == "passel":
        return rates(subprocess.run([passel.program(), "run", f"--workers={WORKERS}", "--", *me], check=True,
                                    text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)
    private = [subprocess.Popen(me, text=True, stdout=subprocess.PIPE,
                                env={**os.environ, "RANK": str(k), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})
               for k in range(WORKERS)]
    return rates("".join(process.communicate()[0] for process in private))


def compare_example():
    print("example, 2 workers: steps/s  two private processes  ratio (limit 0.93)")
    turns = []
    for turn in range(EXAMPLE_TURNS + 1):
        ours, theirs = (together("passel"), together("private")) if turn % 2 else \
            reversed((together("private"), together("passel")))
        if turn == 0:  # digits are generated, files read
            continue
        turns.append((ours, theirs))
        print(f"{ours:28.0f}  {theirs:21.0f}  {ours / theirs:5.3f}", flush=True)
    print(f"median of the ratios: {statistics.median(ours / theirs for ours, theirs in turns):.3f}")
    ours, theirs = (max(rates) for rates in zip(*turns))
    print(f"the quietest of each: {ours:.0f} of {theirs:.0f}, {ours / theirs:.3f}")


def main():
    if sys.argv[2:3] == ["large-turn"]:
        print(python_ns(LARGE_VARIABLES, LARGE_STEPS, LARGE_FLOATS, sys.argv[3]))
        return
    if sys.argv[2:3] in (["passel"], ["private"]):
        example(sys.argv[2])
        return
    rows = {"step": compare_c, "large": compare_large, "example": compare_example, "start": compare_start}
    for row in sys.argv[2:] or rows:
        rows[row]()


def build_capi_step(folder):
    program = f"{folder}/capi_step"
    subprocess.run(["cc", "-O2", "-std=gnu11", f"-I{SOURCE}/src", str(SOURCE / "bench/capi_step.c"),
                    f"-L{BUILD}/lib", "-lpassel", f"-Wl,-rpath,{BUILD}/lib", "-o", program], check=True)
    return program


def number(command):
    return float(subprocess.run([str(word) for word in command], check=True, text=True, capture_output=True).stdout)


def compare_large():
    print(f"{LARGE_VARIABLES * LARGE_FLOATS} floats in {LARGE_VARIABLES} variables: C ms/step  Python ms/step  ratio "
          "(limit 1.15)")
    with tempfile.TemporaryDirectory() as folder:
        program = build_capi_step(folder)
        for how in "view", "auto":
            turns = []
            for turn in range(2 * TURNS):
                kinds = [[program, LARGE_VARIABLES, LARGE_FLOATS, LARGE_STEPS, *(["auto"] if how == "auto" else [])],
                         [sys.executable, __file__, BUILD, "large-turn", how]]
                one = {kind: number(kinds[kind]) / 1e6 for kind in ((0, 1), (1, 0))[turn % 2]}
                turns.append((one[0], one[1]))
            c, python = (statistics.median(times) for times in zip(*turns))
            print(f"{how:>10}  {c:10.2f}  {python:10.2f}  {python / c:5.3f}; of the turns "
                  f"{statistics.median(python / c for c, python in turns):.3f}", flush=True)


def started(command, processes):
    """Seconds to the first line of the last script."""
    script = "import time; print('first', time.monotonic(), flush=True)"
    begin = time.monotonic()
    running = [subprocess.Popen([*command, sys.executable, "-c", script], text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL) for _ in range(processes)]
    lines = "".join(process.communicate()[0] for process in running).splitlines()
    times = [float(line.split()[-1]) for line in lines if "first " in line]
    assert len(times) == SCRIPTS, lines
    return max(times) - begin


def compare_start():
    turns = [(started([passel.program(), "run", f"--workers={SCRIPTS}", "--"], 1), started([], SCRIPTS))
             for _ in range(STARTS + 1)][1:]
    ours, alone = (statistics.median(times) for times in zip(*turns))
    print(f"first line of the last of {SCRIPTS}: passel run {ours:.3f} s, python alone {alone:.3f} s, "
          f"{ours - alone:.3f} s more (limit 0.1)")


def compare_c():
    with tempfile.TemporaryDirectory() as folder:
        program = build_capi_step(folder)
        print("variables  C us/step  Python us/step  overhead us  limit us")
        for count in 1, 10, 100:
            steps = 20000 if count < 100 else 5000
            c, python = [], []
            for _ in range(TURNS):
                done = subprocess.run([program, str(count), str(FLOATS), str(steps)], check=True, text=True,
                                      capture_output=True)
                c.append(float(done.stdout))
                python.append(python_ns(count, steps))
            c_us, python_us = statistics.median(c) / 1e3, statistics.median(python) / 1e3
            print(f"{count:9}  {c_us:9.2f}  {python_us:14.2f}  {python_us - c_us:11.2f}  {5 + 0.2 * count:8.1f}")


if __name__ == "__main__":
    main()

"""kill -9 of any worker or the ps of the example at 50 random instants: it learns as well as without."""

import os
import random
import re
import signal
import statistics
import subprocess
import time

import passel
from test_run import is_ps, pids

KILLS = 50

# The example, which says who it is, and is slow enough to be hit.
SCRIPT = """
    import os, pathlib, runpy, time
    import passel
    join = passel.join
    def told(*variables, **settings):
        job = join(*variables, **settings)
        step = job.step
        def slowly():
            time.sleep(0.002)
            return step()
        job.step = slowly
        print("pid", os.getpid(), "rank", job.rank, flush=True)
        return job
    passel.join = told
    runpy.run_path(EXAMPLE)
    """


def accuracy(running):
    return float(re.search(r"accuracy ([\d.]+)", running.out)[1])


def test_random_kills_cost_no_accuracy(start, tmp_path, examples):
    digits = tmp_path / "digits"  # so many that runs differ by less than the limit
    subprocess.run([passel.program(), "data", "generate", str(digits), "--train=5000", "--test=10000"], check=True,
                   stdout=subprocess.DEVNULL, timeout=60)
    seed = int.from_bytes(os.urandom(4))
    print("seed", seed)
    chance = random.Random(seed)
    script = SCRIPT.replace("EXAMPLE", repr(str(examples / "softmax.py")))

    def begin():
        return start(script, run=["--workers=2", f"--max_restarts={KILLS}"], env={"PASSEL_DATA_DIR": str(digits)})

    undisturbed = [accuracy(begin().end()) for _ in range(3)]
    killed, disturbed = 0, []
    while killed < KILLS:
        running = begin()
        running.await_text("pid ", 2)
        while running.process.poll() is None:
            time.sleep(chance.uniform(0, 0.6))
            targets = [*pids(running.out).values(),
                       *(int(p) for p in os.listdir("/proc") if p.isdigit() and is_ps(p, running.process.pid))]
            if killed < KILLS and running.process.poll() is None:
                try:
                    os.kill(chance.choice(targets), signal.SIGKILL)
                    killed += 1
                except ProcessLookupError:  # started again just now
                    pass
        disturbed.append(accuracy(running.end()))
    print(f"{killed} kills in {len(disturbed)} runs: accuracy {disturbed}, undisturbed {undisturbed}")
    assert statistics.mean(disturbed) > statistics.mean(undisturbed) - 0.005

"""The end of a job of passel run: whose lines come last."""

import json
import os
import re
import signal

# Worker 0 is killed by the test and comes back; worker 1 then fails in a deep call.
FAILS_LATER = """
    import os, pathlib, sys, time
    import passel
    go = pathlib.Path(sys.argv[1])
    life = int(os.environ["PASSEL_RESTARTS"])
    job = passel.join({"w": 2}, optimizer="sgd", learning_rate=1)
    print("pid", os.getpid(), "rank", job.rank, "life", life, flush=True)
    def fail(depth):
        if depth == 0:
            raise ValueError("the fatal one")
        fail(depth - 1) if depth % 2 else fail_too(depth - 1)
    def fail_too(depth):
        fail(depth)
    if job.rank == 0 and life == 0:
        print("words of the survived death", file=sys.stderr, flush=True)
    while not go.exists() and not job.stopped:
        time.sleep(0.01)
    if job.rank == 1 and len(sys.argv) > 2:
        sys.exit(3) if sys.argv[2] == "exits" else fail(8)
    """


def kill(running, rank, lives):
    pid = re.search(rf"pid (\d+) rank {rank} life {lives - 1}", running.out)[1]
    os.kill(int(pid), signal.SIGKILL)


def test_the_death_that_ended_the_job_has_the_last_lines(start, tmp_path):
    go = tmp_path / "go"
    running = start(FAILS_LATER, go, "raises", run=["--workers=2", "--grace=5", f"--report={tmp_path}/report"])
    running.await_text("pid ", 2)
    kill(running, 0, 1)
    running.await_text("rank 0 life 1")
    go.touch()
    running.end(1)
    summary = running.err[running.err.index("died first"):]
    assert summary.rstrip().endswith("ValueError: the fatal one") and "words of the survived" not in summary, running.err
    end = running.err[running.err.index("worker/1 died and ended the job, after "):]
    assert "  Traceback (most recent call last):" in end and end.count("File ") > 10
    assert re.search(r"worker/0 died first, after [\d.]+ s: it was killed by SIGKILL \(9\); it was started again\n",
                     running.err)
    first = json.loads((tmp_path / "report").read_text())["deaths"][0]
    assert first["task"] == "worker/0" and "words of the survived death" in first["last_lines"]


def test_it_has_them_when_restarts_are_used_up(start, tmp_path):
    running = start(FAILS_LATER, tmp_path / "go", run=["--workers=2", "--grace=5", "--max_restarts=1"])
    running.await_text("pid ", 2)
    kill(running, 0, 1)
    running.await_text("rank 0 life 1")
    kill(running, 0, 2)
    running.end(1)
    assert "--max_restarts 1 is used up" in running.err
    end = running.err.rstrip().splitlines()
    assert re.match(r"worker/0 died and ended the job, after .*; its last lines:", end[-2]), running.err
    assert re.match(r"  pid \d+ rank 0 life 1$", end[-1]), running.err


def test_a_job_that_ends_well_does_not_end_with_words_of_a_death(start, tmp_path):
    go = tmp_path / "go"
    running = start(FAILS_LATER, go, run=["--workers=2"])
    running.await_text("pid ", 2)
    kill(running, 0, 1)
    running.await_text("rank 0 life 1")
    go.touch()
    running.end()
    assert re.search(r"worker/0 died first, after [\d.]+ s: it was killed by SIGKILL \(9\); it was started again\n$",
                     running.err), running.err
    assert "its last lines" not in running.err

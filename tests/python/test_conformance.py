"""Modes, stragglers and several ps as a script sees them: real processes, beside the same in NumPy.

Where the order counts the scripts take turns by files, and all numbers are exact in float32.
"""

import json
import os
import signal
import subprocess

import numpy as np

import passel

TURNS = """
    import os, pathlib, sys, time
    import numpy as np
    import passel

    folder = pathlib.Path(sys.argv[1])

    def say(name):
        (folder / name).touch()

    def hear(*names):
        while not all((folder / name).exists() for name in names):
            time.sleep(0.005)

    def step(w=None):
        job.pull()
        job.gradients["w"][...] = job.rank + 1 if w is None else w
        return job.step()
    """


def test_the_mode_changes_in_the_middle_and_no_update_is_lost_on_two_ps(start, job_id, tmp_path):
    text = TURNS + """
    made = []  # global step of each gradient
    with passel.join({"w": (3, 5), "b": 7}, optimizer="sgd", learning_rate=2.0**-12) as job:
        while not (folder / "end").exists():
            job.pull()
            job.gradients["w"][...] = job.rank + 1
            job.gradients["b"][...] = -3 * job.rank
            outcome = job.step()
            assert outcome.applied and outcome.gradients == 1
            made.append(outcome.global_step)
            time.sleep(0.001)
        say(f"done{job.rank}")
        hear("done0", "done1")
        v = job.pull("copy")
        np.savez(folder / f"{job.rank}.npz", made=made, w=v["w"], b=v["b"], global_step=job.global_step)
    """
    running = start(text, tmp_path, run=["--workers=2", "--ps=2", "--mode=locked", f"--job_id={job_id}", "--bind=none",
                                         f"--report={tmp_path}/report"])
    with passel.attach(job_id, timeout=60) as reader:
        seen = reader.wait_version(5)
        for mode in "barrier", "locked", "replicas", "locked":
            subprocess.run([passel.program(), "ctl", "set-mode", job_id, mode], check=True, timeout=60)
            seen = reader.wait_version(seen + 20)
    (tmp_path / "end").touch()
    running.end()
    report = json.loads((tmp_path / "report").read_text())
    assert [mode["mode"].split("=")[0] for mode in report["modes"]] == ["locked", "barrier", "locked", "replicas", "locked"]
    saved = [np.load(tmp_path / f"{rank}.npz") for rank in range(2)]
    last = report["global_step"]
    w = b = 0.0
    for mode, after in zip(report["modes"], [*report["modes"][1:], {"since": last}], strict=True):
        mine = [s["made"][(s["made"] > mode["since"]) & (s["made"] <= after["since"])] for s in saved]
        updates = after["since"] - mode["since"]
        if mode["mode"] == "locked":  # each gradient is an update of its own
            assert len(mine[0]) + len(mine[1]) == updates
            w, b = w + len(mine[0]) + 2 * len(mine[1]), b - 3 * len(mine[1])
        else:  # each update is the mean of both
            assert updates > 0 and list(mine[0]) == list(mine[1]) == list(range(mode["since"] + 1, after["since"] + 1))
            w, b = w + 1.5 * updates, b - 1.5 * updates
    for s in saved:
        assert s["global_step"] == last
        assert (s["w"] == -w / 4096).all() and (s["b"] == -b / 4096).all() and s["w"].shape == (3, 5)


def test_a_late_gradient_is_dropped_in_replicas_and_its_worker_is_told(start, tmp_path):
    text = TURNS + """
    with passel.join({"w": 4}, mode="replicas", replicas_to_aggregate=2, optimizer="sgd", learning_rate=1) as job:
        if job.rank == 2:
            job.pull()
            job.gradients["w"][...] = 1000
            say("pulled")
            hear("first0", "first1")
            late = job.step()
            print("late", late.applied, late.gradients, flush=True)
            say("late")
            print("in time", *step(100)[:3], flush=True)
            say("second")
        else:
            hear("pulled")
            print("first", *step()[:3], flush=True)
            say(f"first{job.rank}")
            hear("late")
            if job.rank == 0:
                print("second", *step()[:3], flush=True)
            hear("second")
        print("values", *job.pull("copy")["w"], flush=True)
        say(f"seen{job.rank}")
        hear("seen0", "seen1", "seen2")
    """
    running = start(text, tmp_path, run=["--workers=3", "--bind=none", f"--report={tmp_path}/report"]).end()
    for line in ("0: first True 1 1", "1: first True 1 1", "2: late False 1", "2: in time True 1 2", "0: second True 1 2"):
        assert f"worker/{line}\n" in running.out, running.out
    value = -np.mean([1, 2]) - np.mean([1, 100])
    for rank in range(3):
        assert f"worker/{rank}: values{f' {value}' * 4}\n" in running.out, running.out
    report = json.loads((tmp_path / "report").read_text())
    assert [worker["dropped"] for worker in report["workers"]] == [0, 0, 1] and report["global_step"] == 2


def test_in_ssp_a_fast_worker_waits_and_staleness_is_what_came_between(start, tmp_path):
    text = TURNS + """
    with passel.join({"w": 4}, mode="ssp", staleness_bound=2, optimizer="sgd", learning_rate=1) as job:
        if job.rank == 1:
            job.pull()
            say("pulled")
            hear("waits")
            job.gradients["w"][...] = 10
            print("slow", *job.step(), flush=True)
            say("slow")
            hear("went on")
        else:
            hear("pulled")
            for _ in range(2):
                print("fast", *step(), flush=True)
            job.pull()
            job.gradients["w"][...] = 1
            job.push()
            try:
                job.wait(timeout=0.3)
                print("ahead", flush=True)
            except passel.DeadlineExceeded as error:
                print("held:", error, flush=True)
            say("waits")
            print("fast", *job.wait(), flush=True)
            hear("slow")
            print("values", *job.pull("copy")["w"], job.global_step, flush=True)
            say("went on")
    """
    running = start(text, tmp_path, run=["--workers=2", "--bind=none", f"--report={tmp_path}/report"]).end()
    for line in ("0: fast True 1 1 0", "0: fast True 1 2 0", "0: fast True 1 3 0", "1: slow True 1 4 3",
                 f"0: values{' -13.0' * 4} 4"):
        assert f"worker/{line}\n" in running.out, running.out
    assert "worker/0: held: " in running.out and "worker/1" in running.out.split("held: ")[1].splitlines()[0], running.out
    report = json.loads((tmp_path / "report").read_text())
    assert report["workers"][0]["max_clock_lead"] == 2 and report["staleness"]["max"] == 3


def test_a_stopped_worker_is_evicted_and_its_next_life_joins_the_rounds(start, job_id, tmp_path):
    text = TURNS + """
    with passel.join({"w": 4}, mode="barrier", optimizer="sgd", learning_rate=2.0**-12) as job:
        life = os.environ["PASSEL_RESTARTS"]
        print("pid", os.getpid(), "rank", job.rank, "life", life, flush=True)
        while not (folder / "end").exists():
            step(3)
            time.sleep(0.001)
        say(f"done{job.rank}")
        hear("done0", "done1")
        print("values", job.global_step, *(job.pull("copy")["w"] * 4096), flush=True)
        say(f"seen{job.rank}")
        hear("seen0", "seen1")
    """
    running = start(text, tmp_path, run=["--workers=2", "--stall_limit=6", f"--job_id={job_id}", "--bind=none"])
    running.await_text("rank 1 life 0")
    running.await_text("rank 0 life 0")
    with passel.attach(job_id, timeout=60) as reader:
        seen = reader.wait_version(10)
        os.kill(int(running.out.split(" rank 1 life 0")[0].rsplit("pid ", 1)[1]), signal.SIGSTOP)
        running.await_text("rank 1 life 1")
        reader.wait_version(reader.wait_version(seen) + 20)
    (tmp_path / "end").touch()
    running.end()
    assert "worker/1 was evicted: it did not answer for 6 s (--stall_limit) and was killed" in running.err
    for rank in range(2):
        words = running.out.split(f"worker/{rank}: values ")[1].splitlines()[0].split()
        assert [float(w) for w in words[1:]] == [-3.0 * int(words[0])] * 4, running.out

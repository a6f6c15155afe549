"""Metrics, checkpoints and readers of a job."""

import json
import os
import pathlib
import re
import signal
import subprocess
import threading
import time

import numpy as np
import pytest

import passel


def train(job, steps, value=1):
    for _ in range(steps):
        job.pull()
        for gradient in job.gradients.values():
            gradient[...] = value
        job.step()


def test_metrics_are_what_passel_ctl_shows(job_id):
    with passel.join({"w": 2}, job_id=job_id) as job:
        train(job, 3)
        job.metric(loss=0.25, reward=17)
        job.metric(reward=18.5)
        shown = subprocess.run([passel.program(), "ctl", "status", job_id, "--json"], check=True,
                               capture_output=True, text=True, timeout=30).stdout
        assert json.loads(shown)["arena"]["workers"][0]["metrics"] == {"loss": 0.25, "reward": 18.5}
        with pytest.raises(passel.InvalidArgument):
            job.metric(**{"two words": 1})


def test_a_job_goes_on_from_its_checkpoint(tmp_path):
    settings = {"checkpoint_dir": str(tmp_path / "ckpt"), "optimizer": "sgd", "learning_rate": 0.5}
    with passel.join({"w": 2}, **settings) as job:
        train(job, 4)
        assert job.save() == 4
        with pytest.raises(passel.FailedPrecondition):
            job.step()  # what was pulled is void
        train(job, 2)
    with passel.join({"w": 2}, **settings) as job:
        assert job.global_step == 6
        np.testing.assert_array_equal(job.pull()["w"], -3)


def test_readers_follow_a_job_that_they_do_not_disturb(job_id):
    with pytest.raises(passel.Error, match=f"{job_id}-none"):
        passel.attach(f"{job_id}-none", timeout=0.2)
    with passel.join({"w": (3, 2), "s": ()}, job_id=job_id, optimizer="sgd", learning_rate=1) as job:
        reader = passel.attach(job_id)
        assert reader.variables == {"w": (3, 2), "s": ()}
        thread = threading.Thread(target=train, args=(job, 5))
        thread.start()
        assert reader.wait_version(5) >= 5
        thread.join()
        before = reader.values["w"]
        assert reader.read() == (5, 5, reader.read().is_exact)
        assert reader.values["w"] is before and before.ctypes.data % 64 == 0
        np.testing.assert_array_equal(before, -5)
        assert float(reader.values["s"]) == -5
        before[...] = 7  # its own
        np.testing.assert_array_equal(job.pull()["w"], -5)
        with pytest.raises(passel.DeadlineExceeded):
            reader.wait_version(6, timeout=0.2)
        with pytest.raises(passel.InvalidArgument, match="'later'"):
            reader.read("later")
        reader.detach()
        with pytest.raises(passel.FailedPrecondition, match="detached"):
            reader.read()
        np.testing.assert_array_equal(before, 7)
        train(job, 1)


def test_reads_of_one_step_cost_a_tenth_of_a_second_at_most(job_id):
    with passel.join({"w": 2}, job_id=job_id, mode="hogwild") as job:
        train(job, 1)
        over = threading.Event()

        def work():
            while not over.is_set():
                train(job, 1)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            with passel.attach(job_id) as reader:
                times, steps = [], []
                for _ in range(10):
                    began = time.monotonic()
                    reading = reader.read("one step")
                    times.append(time.monotonic() - began)
                    steps.append(reading.global_step)
                    assert reading.is_exact and reading.last_global_step == reading.global_step
        finally:
            over.set()
            thread.join()
        assert steps == sorted(set(steps))
        assert min(times[1:]) < 0.2, times  # the next look of a ps that has nothing to do is at 0.25


def test_actors_and_a_learner_balance_poles(start, examples):
    running = start((examples / "cartpole.py").read_text())
    actors, end = [], time.monotonic() + 30
    while not actors and running.process.poll() is None and time.monotonic() < end:
        actors = [pid for pid in children(running.process.pid) if b"spawn_main" in command_of(pid)]
        time.sleep(0.01)
    os.kill(actors[0], signal.SIGKILL)  # disturbs nobody
    found = re.fullmatch(r"mean return ([\d.]+) of the last 100 episodes, (\d+) updates\n", running.end().out)
    assert float(found[1]) > 150 and running.err == ""


def children(pid):
    try:
        return list(map(int, pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    except FileNotFoundError:
        return []


def command_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""

"""An epoch that workers share: which examples came, and how often."""

import json
import os
import pathlib
import random
import re
import signal
import subprocess
import time

import numpy as np
import pytest

import passel

JOB = f"py-epoch-{os.getpid()}"  # of this copy of the tests

# Each update counts the examples of its batch in the values themselves: what is there was applied.
# At its end each worker says what it was given, and what the values are.
TAKE = """
    import json, os, sys, time
    import numpy as np
    import passel
    n, size, epochs, pause = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    settings = json.loads(sys.argv[5]) if len(sys.argv) > 5 else {}
    with passel.join({"seen": n}, optimizer="sgd", learning_rate=1, **settings) as job:
        given = np.zeros(n, int)
        print("pid", os.getpid(), "rank", job.rank, flush=True)
        for rows in job.sampler(n, size, seed=3, epochs=epochs):
            given[rows] += 1
            job.pull()
            gradient = job.gradients["seen"]
            gradient[...] = 0
            gradient[rows] = -1
            time.sleep(pause)
            job.step()
        print("given", json.dumps(given.tolist()), flush=True)
        print("seen", json.dumps(job.pull()["seen"].tolist()), flush=True)
    """


def lists(what, text):
    return np.array([json.loads(found) for found in re.findall(what + r" (\[.*?\])", text)])


def given(text):
    return lists("given", text).sum(axis=0)


def seen(text):
    """What was applied: the values of whoever was the last."""
    return lists("seen", text).max(axis=0)


def pids(text):
    return {int(rank): int(pid) for pid, rank in re.findall(r"pid (\d+) rank (\d+)", text)}


def test_an_epoch_alone_is_a_new_order_each_time():
    with passel.join({"w": 2}) as job:
        sampler = job.sampler(103, batch_size=10, seed=7, epochs=2)
        batches = [(sampler.epoch, rows) for rows in sampler]
        assert [len(rows) for _, rows in batches] == ([10] * 10 + [3]) * 2
        assert [epoch for epoch, _ in batches] == [0] * 11 + [1] * 11
        assert all(rows.dtype == np.int64 for _, rows in batches)
        epochs = [np.concatenate([rows for _, rows in batches[k:k + 11]]) for k in (0, 11)]
        for order in epochs:
            np.testing.assert_array_equal(np.sort(order), np.arange(103))
            assert (order != np.arange(103)).any()
        assert (epochs[0] != epochs[1]).any()
        assert next(sampler, None) is None
        assert len(list(job.sampler(103, 10, seed=7, epochs=3))) == 11  # one more
        for examples, size, more, sentence in ((104, 10, {"seed": 7}, "shares 104 .* and the job 103"),
                                               (103, 10, {"seed": 7, "shuffle": False}, "in order, and the job"),
                                               (0, 10, {}, "examples of a sampler is 1 or more"),
                                               (103, 2.5, {}, "batch_size of a sampler is a whole number"),
                                               (103, 2**40, {}, "not 1099511627776"),
                                               (103, 10, {"epochs": 0}, "epochs"), (103, 10, {"seed": -1}, "seed")):
            with pytest.raises(passel.InvalidArgument, match=sentence):
                job.sampler(examples, size, **more)
        job.stop()
        assert list(job.sampler(103, 10, seed=7, epochs=9)) == []
    with pytest.raises(passel.FailedPrecondition, match="left the job"):
        next(sampler)
    with passel.join({"w": 2}) as job:
        order = np.concatenate(list(job.sampler(25, 10, shuffle=False, epochs=1)))
        np.testing.assert_array_equal(order, np.arange(25))


def test_in_every_mode_workers_get_each_example_once(start):
    for mode in "hogwild", "locked", "ssp", "barrier", "replicas":
        running = start(TAKE, 500, 3, 2, 0, run=["--workers=3", f"--mode={mode}", "--bind=none"]).end()
        assert given(running.out).tolist() == [2] * 500, mode
    text = """
        import os
        import passel
        with passel.join({"w": 2}) as job:
            next(job.sampler(10, 1 + job.rank))
        """
    running = start(text, run=["--workers=2", "--grace=5"]).end(1)
    assert re.search(r"worker/[01] shares 10 examples in batches of [12], .*, and the job 10 examples in batches of "
                     "[12]", running.err)


def kill_one(running, victim):
    """That worker, if it has not ended. Waits for its next life."""
    lives = running.out.count("pid ")
    pid = pids(running.out)[victim]
    try:
        if b"script.py" not in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
            return
        os.kill(pid, signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
        return
    end = time.monotonic() + 60
    while running.out.count("pid ") == lives and running.process.poll() is None:
        assert time.monotonic() < end, running.err
        time.sleep(0.02)


def test_who_is_killed_takes_no_example_along(start):
    # In rounds an update is the mean: one epoch, of which nothing may be missing.
    for mode, n, epochs, every in ("locked", 400, 3, 40), ("barrier", 1200, 1, 15):
        running = start(TAKE, n, 2, epochs, 0.006,
                        run=["--workers=3", f"--mode={mode}", f"--job_id={JOB}", "--max_restarts=50"])
        running.await_text("pid ", 3)
        victims = random.Random(5)
        try:
            with passel.attach(JOB) as reader:
                for kill in range(1, 5):
                    reader.wait_version(kill * every)
                    kill_one(running, victims.randrange(3))
        except passel.Error:  # a slow machine: it has ended
            assert running.process.wait(30) == 0
        running.end()
        assert "was killed by SIGKILL" in running.err
        least = seen(running.out).min()
        assert least >= epochs if mode == "locked" else least > 0


@pytest.mark.parametrize("instant", ["held", "given"])
def test_who_dies_at_the_worst_instant_takes_no_example_along(start, tmp_path, instant):
    running = start(TAKE, 300, 2, 1, 0.001, run=["--workers=2", "--mode=locked"],
                    env={"PASSEL_FAILPOINT": f"batches.{instant}:20:kill:{tmp_path}/marker"}).end()
    assert "was killed by SIGKILL" in running.err
    assert seen(running.out).min() >= 1


def test_a_job_of_another_size_goes_on_with_what_is_left(start, tmp_path):
    folder, marker = tmp_path / "train", tmp_path / "marker"
    settings = {"checkpoint_dir": str(folder), "save_steps": 20, "mode": "locked"}
    # One of which everything is killed.
    running = start(TAKE, 600, 2, 2, 0.005, json.dumps(settings), run=["--workers=3", f"--job_id={JOB}"])
    running.await_text("pid ", 3)
    await_true(lambda: newest(folder) >= 20, running)
    running.kill()
    for pid in pids(running.out).values():
        await_true(lambda: not pathlib.Path(f"/proc/{pid}/exe").exists())
    first = newest(folder)
    # One that is asked to end, after a death while it took what was open.
    running = start(TAKE, 600, 2, 2, 0.005, json.dumps(settings), run=["--workers=2", f"--job_id={JOB}"],
                    env={"PASSEL_FAILPOINT": f"batches.moved:1:kill:{marker}"})
    running.await_text("pid ", 2)
    with passel.attach(JOB) as reader:
        reader.wait_version(first + 100)
    await_true(lambda: running.out.count("pid ") == 2 + marker.exists(), running)
    running.process.send_signal(signal.SIGTERM)
    running.end(143)
    assert newest(folder) >= first + 100
    last = start(TAKE, 600, 2, 2, 0, json.dumps(settings)).end()
    assert given(last.out).sum() <= (600 - 100) * 2
    counted = seen(last.out)
    assert counted.min() >= 2, f"{(counted < 2).sum()} examples were lost"
    assert counted.max() <= 2 + 3, "with each break once more"


def newest(folder):
    steps = [int(step) for step in re.findall(r'^model_checkpoint_path: "model.ckpt-(\d+)"',
                                              (folder / "checkpoint").read_text() if (folder / "checkpoint").exists()
                                              else "", re.MULTILINE)]
    return steps[0] if steps else -1


def await_true(condition, running=None):
    end = time.monotonic() + 60
    while not condition():
        assert running is None or running.process.poll() is None, running.err
        assert time.monotonic() < end
        time.sleep(0.02)


# Worker 1 keeps its first batch until there is a file, and worker 0 waits with its own until it does.
KEEP = TAKE.replace("time.sleep(pause)", """\
if given.sum() == size:
                if job.rank == 1:
                    open(sys.argv[7], "w").close()
                while not os.path.exists(sys.argv[6 if job.rank == 1 else 7]):
                    time.sleep(0.01)""")


@pytest.mark.parametrize("dies", [True, False])
def test_the_last_batch_of_one_who_dies_is_given_to_who_is_there(start, job_id, tmp_path, dies):
    hosts = {"ps_hosts": "localhost:2222", "worker_hosts": "localhost:3222,localhost:3223", "job_id": job_id}
    ps = subprocess.Popen([passel.program(), "task", "--job_name=ps", "--task_index=0",
                           *[f"--{name}={value}" for name, value in hosts.items()]], stderr=subprocess.DEVNULL)
    try:
        workers = [start(KEEP, 60, 2, 1, 0, json.dumps({**hosts, "mode": "locked", "task_index": rank}),
                         tmp_path / "go", tmp_path / "keeps") for rank in range(2)]
        for worker in workers:
            worker.await_text("pid ")
        with passel.attach(job_id) as reader:
            reader.wait_version(29)  # of all the others
            time.sleep(0.5)
            assert workers[0].process.poll() is None, workers[0].out + workers[0].err
        if dies:
            workers[1].kill()
        else:
            (tmp_path / "go").touch()
            workers[1].end()
        workers[0].end()
        assert seen(workers[0].out).tolist() == [1] * 60
        assert given(workers[0].out).sum() == (60 if dies else 58)
        assert ps.wait(60) == 0
    finally:
        ps.kill()
        ps.wait()

"""Ctrl-C in waits of all kinds: KeyboardInterrupt soon, and a job that goes on."""

import os
import signal
import time

import passel

# A Ctrl-C comes half a second from now; what it ends says how long that took, of a wait of a minute.
INTERRUPTED = """
    import os, pathlib, signal, sys, threading, time
    if os.environ.get("RANK") == "1" and len(sys.argv) > 2:
        os.environ["PASSEL_FAILPOINT"] = sys.argv[2]
    import passel

    def interrupted(what, call):
        began = time.monotonic()
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            call()
            print(what, "was not interrupted", flush=True)
        except KeyboardInterrupt:
            print(what, "interrupted", "soon" if time.monotonic() - began < 20 else "late", flush=True)

    def fill(value=1):
        job.pull()
        job.gradients["w"][...] = value

    def await_file(name):
        path = pathlib.Path(sys.argv[1]) / name
        while not path.exists():
            time.sleep(0.01)
    """

def test_in_a_push_that_another_worker_holds_up(start, tmp_path):
    text = INTERRUPTED + """
    job = passel.join({"w": 5}, mode="locked", optimizer="sgd", learning_rate=1)
    if job.rank == 1:
        await_file("one")
        print("pid", os.getpid(), flush=True)
        for _ in range(5):
            fill()
            job.step()
    else:
        fill()
        job.step()
        (pathlib.Path(sys.argv[1]) / "one").touch()
        await_file("stopped")
        fill(100)
        interrupted("push", job.step)
        fill(100)
        interrupted("another push", lambda: job.push(timeout=1000))
        fill(100)
        try:
            job.step(timeout=0.2)
        except passel.DeadlineExceeded as error:
            print("too late:", error, flush=True)
        (pathlib.Path(sys.argv[1]) / "ended").touch()
        fill()  # what was given up is not applied
        job.step()
    print("values", job.rank, job.pull("copy")["w"].tolist(), flush=True)
    await_file("all")
    print("last", job.pull("copy")["w"].tolist(), job.global_step, flush=True)
    """
    # Worker 1 stops while it holds a block.
    running = start(text, tmp_path, "push.claimed:4:stop", run=["--workers=2"])
    running.await_text("pid ")
    pid = int(running.out.split("pid ")[1].split()[0])
    await_true(lambda: " T " in f" {state(pid)} ", running)
    (tmp_path / "stopped").touch()
    await_true(lambda: (tmp_path / "ended").exists(), running)
    os.kill(pid, signal.SIGCONT)
    running.await_text("values ", 2)
    (tmp_path / "all").touch()
    running.end()
    for what in "push", "another push":
        assert f"worker/0: {what} interrupted soon" in running.out, running.out
    assert "too late: worker/1 holds a block of the variables" in running.out, running.out
    assert running.out.count("last [-7.0, -7.0, -7.0, -7.0, -7.0] 7") == 2, running.out


def test_in_a_round(start, tmp_path):
    text = INTERRUPTED + """
    job = passel.join({"w": 2}, mode="barrier", optimizer="sgd", learning_rate=1)
    if job.rank == 1:
        fill()
        await_file("go")
        job.step()
    else:
        fill()
        job.push()
        interrupted("wait", job.wait)
        interrupted("pull", job.pull)  # waits for the push that stands
        (pathlib.Path(sys.argv[1]) / "go").touch()
    print("values", job.pull()["w"].tolist(), job.global_step, flush=True)
    """
    running = start(text, tmp_path, run=["--workers=2"]).end()
    for what in "wait", "pull":
        assert f"worker/0: {what} interrupted soon" in running.out, running.out
    assert running.out.count("values [-1.0, -1.0] 1") == 2, running.out


def test_in_a_reading_of_one_step(start, tmp_path, job_id):
    trains = """
        import os, time
        import passel
        with passel.join({"w": 2}, optimizer="sgd", learning_rate=1) as job:
            print("pid", os.getpid(), flush=True)
            for _ in job.steps():
                job.pull()
                job.gradients["w"][...] = 1
                job.step()
        """
    reads = INTERRUPTED + """
    reader = passel.attach(sys.argv[2])
    interrupted("reading", lambda: reader.read("one step", timeout=1000))
    (pathlib.Path(sys.argv[1]) / "interrupted").touch()
    await_file("goes")
    print(reader.read("one step").is_exact, flush=True)
    """
    training = start(trains, run=["--workers=1", f"--job_id={job_id}"])
    training.await_text("pid ")
    pid = int(training.out.split("pid ")[1].split()[0])
    with passel.attach(job_id) as reader:
        reader.wait_version(10)
        os.kill(pid, signal.SIGSTOP)
        running = start(reads, tmp_path, job_id)
        try:
            await_true(lambda: (tmp_path / "interrupted").exists(), running)
        finally:
            os.kill(pid, signal.SIGCONT)
        reader.wait_version(reader.read().global_step + 10)
    (tmp_path / "goes").touch()
    running.end()
    assert "reading interrupted soon" in running.out and "True" in running.out, running.out
    training.process.send_signal(signal.SIGINT)
    training.end(130)


def test_in_a_save_that_waits_for_another_worker(start, tmp_path):
    text = INTERRUPTED + """
    settings = {"checkpoint_dir": sys.argv[1] + "/train", "checkpoint_consistent": True, "save_secs": 1000}
    job = passel.join({"w": 2}, optimizer="sgd", learning_rate=1, **settings)
    if job.rank == 1:
        print("pid", os.getpid(), flush=True)
        with job:
            for _ in job.steps():
                fill()
                job.step()
    else:
        while not (pathlib.Path(sys.argv[1]) / "stopped").exists():
            fill()
            job.step()
        interrupted("save", lambda: job.save(timeout=1000))
        (pathlib.Path(sys.argv[1]) / "interrupted").touch()
        await_file("goes")
        for _ in range(3):
            fill()
            job.step()
        print("saved", job.save() >= 4, flush=True)
        job.stop()
    """
    running = start(text, tmp_path, run=["--workers=2"])
    running.await_text("pid ")
    pid = int(running.out.split("pid ")[1].split()[0])
    await_true(lambda: (tmp_path / "train" / "checkpoint").exists(), running)  # that of the begin
    os.kill(pid, signal.SIGSTOP)
    try:
        (tmp_path / "stopped").touch()
        await_true(lambda: (tmp_path / "interrupted").exists(), running)
    finally:
        os.kill(pid, signal.SIGCONT)
    (tmp_path / "goes").touch()
    running.end()
    assert "save interrupted soon" in running.out and "saved True" in running.out, running.out


def state(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return file.read().rsplit(")", 1)[1].split()[0]


def await_true(condition, running):
    end = time.monotonic() + 60
    while not condition():
        assert running.process.poll() is None, running.out + running.err
        assert time.monotonic() < end, running.out + running.err
        time.sleep(0.02)

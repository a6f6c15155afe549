"""Children of workers, by fork(): they read arrays, and hold up nobody."""

import os
import re
import signal
import subprocess
import time

import numpy as np
import pytest

import passel

LIMIT = 60

# Each worker has two children, which load its data, as long as there is a file.
WITH_LOADERS = """
    import multiprocessing, os, sys, time
    import numpy as np
    import passel
    def load(path, pipe):
        while os.path.exists(path):
            pipe.send(np.ones(2, np.float32))
            time.sleep(0.01)
    path = sys.argv[1]
    settings = dict(argument.split("=", 1) for argument in sys.argv[2:])
    with passel.join({"w": 2}, mode="barrier", optimizer="sgd", learning_rate=1, **settings) as job:
        context = multiprocessing.get_context("fork")
        pipe, other = context.Pipe()
        loader = context.Process(target=load, args=(path, other), daemon=True)
        loader.start()
        if os.fork() == 0:
            while os.path.exists(path):
                time.sleep(0.01)
            os._exit(0)
        print("pid", os.getpid(), "rank", job.rank, "loader", loader.pid, flush=True)
        for _ in job.steps():
            job.pull()
            job.gradients["w"][...] = -pipe.recv()
            job.step()
    """


def await_true(condition, what):
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, what()
        time.sleep(0.02)


def test_a_worker_with_loaders_is_killed_by_hand_and_its_next_life_joins(start, job_id, tmp_path):
    path = tmp_path / "loads"
    path.touch()
    hosts = ["ps_hosts=localhost:2222", "worker_hosts=localhost:3222,localhost:3223", f"job_id={job_id}"]
    ps = subprocess.Popen([passel.program(), "task", "--job_name=ps", "--task_index=0",
                           *["--" + host for host in hosts]], stderr=subprocess.PIPE, text=True)
    try:
        workers = [start(WITH_LOADERS, path, *hosts, f"task_index={rank}") for rank in range(2)]
        for worker in workers:
            worker.await_text("pid ")
        with passel.attach(job_id) as reader:
            step = reader.wait_version(5)
            pid = int(re.search(r"pid (\d+)", workers[1].out)[1])
            loader = int(re.search(r"loader (\d+)", workers[1].out)[1])
            os.kill(pid, signal.SIGKILL)
            workers[1].process.wait()
            os.kill(loader, 0)  # it lives
            reader.wait_version(step + 20)  # without it
            again = start(WITH_LOADERS, path, *hosts, "task_index=1")
            again.await_text("pid ")
            os.kill(loader, 0)
            reader.wait_version(reader.read().global_step + 20)
        subprocess.run([passel.program(), "ctl", "stop", job_id], check=True, timeout=LIMIT)
        workers[0].end()
        again.end()
        assert ps.wait(LIMIT) == 130
    finally:
        path.unlink()
        ps.kill()
        ps.communicate()


def test_a_worker_with_loaders_is_killed_under_passel_run(start, tmp_path):
    path = tmp_path / "loads"
    path.touch()
    try:
        running = start(WITH_LOADERS, path, run=["--workers=2"])
        running.await_text("pid ", 2)
        pid = int(re.search(r"pid (\d+) rank 1", running.out)[1])
        os.kill(pid, signal.SIGKILL)
        running.await_text("rank 1", 2)
        running.process.send_signal(signal.SIGTERM)
        running.end(143)
    finally:
        path.unlink()


def test_children_of_a_worker_end_when_they_are_told_to(start):
    text = """
        import multiprocessing, os, signal, time
        import passel
        context = multiprocessing.get_context("fork")
        with passel.join({"w": 2}) as job:
            with context.Pool(2) as pool:
                for number in pool.imap(abs, range(100)):
                    break
            print("pool", job.rank, flush=True)
        daemon = context.Process(target=time.sleep, args=(600,), daemon=True)
        daemon.start()
        early = context.Process(target=time.sleep, args=(600,))
        early.start()
        early.terminate()  # most often before it has begun
        early.join()
        heard = signal.getsignal(signal.SIGTERM)
        assert heard is not signal.SIG_DFL and signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
        print("early", early.exitcode, flush=True)
        """
    running = start(text, run=["--workers=2"]).end()
    assert running.out.count("pool ") == 2 and running.out.count(f"early -{signal.SIGTERM:d}\n") == 2


def test_a_script_that_hears_sigterm_itself_has_children_that_do(start):
    text = """
        import os, signal, sys, time
        import passel
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(7))
        begun, begins = os.pipe()
        with passel.join({"w": 2}):
            child = os.fork()
            if child == 0:
                try:
                    os.write(begins, b"x")
                    time.sleep(600)
                except SystemExit as end:
                    os._exit(end.code)
            os.read(begun, 1)
            os.kill(child, signal.SIGTERM)
            print("code", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        """
    assert "code 7\n" in start(text, run=["--workers=1"]).end().out


def test_a_worker_that_is_told_to_go_still_has_its_children(start):
    text = """
        import multiprocessing, time
        import passel
        def late(number):
            time.sleep(0.01)
            return number
        with passel.join({"w": 2}) as job:
            with multiprocessing.get_context("fork").Pool(2) as pool:
                print("begin", flush=True)
                while not job.stopped:
                    assert pool.map(late, range(20)) == list(range(20))
                print("end", pool.map(late, range(5)), flush=True)
        """
    running = start(text, run=["--workers=2"])
    running.await_text("begin", 2)
    running.process.send_signal(signal.SIGTERM)
    running.end(143)
    assert running.out.count("end [0, 1, 2, 3, 4]") == 2 and "were killed" not in running.err


def test_no_child_is_left_of_a_command_that_was_killed(start):
    text = """
        import multiprocessing, os, time
        import passel
        with passel.join({"w": 2}):
            pool = multiprocessing.get_context("fork").Pool(2)
            for _ in range(2):  # one that waits for work hears of the end by itself
                pool.apply_async(time.sleep, (600,))
            print("pids", os.getpid(), *[child.pid for child in multiprocessing.active_children()], flush=True)
            time.sleep(600)
        """
    running = start(text, run=["--workers=1"])
    running.await_text("pids ")
    pids = [int(pid) for pid in re.search(r"pids ([\d ]+)", running.out)[1].split()]
    assert all(alive(pid) for pid in pids) and len(pids) == 3
    os.kill(running.process.pid, signal.SIGKILL)
    await_true(lambda: not any(alive(pid) for pid in pids), lambda: str(pids))


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_reader_is_of_the_process_that_attached_it():
    with passel.join({"w": 2}) as job:
        reader = passel.attach(job.id)
        reader.read()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with pytest.raises(passel.FailedPrecondition, match="by fork"):
                    reader.read()
                np.testing.assert_array_equal(reader.values["w"], [0, 0])
                with passel.attach(job.id) as own:
                    own.read()
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        reader.read()
        job.pull()

"""Several workers under passel run, in processes of their own."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np

import passel
import passel.digits

LOOP = """
    import os, sys, time
    import numpy as np
    import passel
    job = passel.join({"w": (2, 3)}, optimizer="sgd", learning_rate=0.01)
    print("pid", os.getpid(), "rank", job.rank, "life", os.environ.get("PASSEL_RESTARTS"), flush=True)
    last = int(sys.argv[1])
    while job.global_step < last and not job.stopped:
        job.pull()
        job.gradients["w"][...] = job.rank + 1
        job.step()
        time.sleep(0.002)
    print("end", job.rank, job.mode, job.world_size, job.stopped, flush=True)
    """


def pids(text):
    return {int(rank): int(pid) for pid, rank in re.findall(r"pid (\d+) rank (\d+)", text)}


def test_the_script_alone_is_a_worker_of_its_own(start):
    running = start(LOOP, 20).end()
    assert "end 0 hogwild 1 False" in running.out and running.err == ""


def test_workers_know_their_place_and_rounds_are_the_mean(start, job_id):
    text = """
        import os, subprocess, sys
        if len(sys.argv) == 1:  # a program in between that closes what it does not know
            sys.exit(subprocess.run([sys.executable, __file__, "inner"], close_fds=True).returncode)
        import numpy as np
        import passel
        names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE OMP_NUM_THREADS PASSEL_JOB_ID PASSEL_RESTARTS"
        print(*(os.environ[name] for name in names.split()), flush=True)
        with passel.join({"w": 3}, learning_rate=1) as job:
            for _ in range(10):
                job.pull()
                job.gradients["w"][...] = job.rank
                job.step()
            print("values", job.pull()["w"], job.mode, job.rank, job.world_size, job.is_chief, job.is_alone)
        """
    running = start(text, run=["--workers=3", "--mode=barrier", "--optimizer=sgd", "--learning_rate=5",
                               f"--job_id={job_id}", "--bind=none"], env={"OMP_NUM_THREADS": "2"}).end()
    for rank in range(3):
        assert f"worker/{rank}: {rank} {rank} 3 3 2 {job_id} 0\n" in running.out
        assert f"worker/{rank}: values [-10. -10. -10.] barrier {rank} 3 {rank == 0} False\n" in running.out
    assert "10 global steps" in running.err and "mode barrier" in running.err


def test_workers_that_differ_are_told_how(start):
    text = """
        import os
        import passel
        same = {"optimizer": "sgd", "learning_rate": 0.5, "mode": "barrier"}
        if os.environ["RANK"] == "1":
            right = {"first": 2, "w": (4, 2)}
            for variables, others in (({"first": 2, "w": (4, 3)}, {}), ({"first": 2, "v": (4, 2)}, {}),
                                      ({"first": 2}, {}), (right, {"learning_rate": 0.25}), (right, {"optimizer": "adam"}),
                                      (right, {"mode": "locked"})):
                try:
                    passel.join(variables, timeout=30, **{**same, **others})
                except passel.InvalidArgument as error:
                    print("refused:", error, flush=True)
        with passel.join({"first": 2, "w": (4, 2)}, timeout=30, **same) as job:
            print("in", flush=True)
        """
    running = start(text, run=["--workers=2", "--grace=5"]).end()
    refused = [line for line in running.out.splitlines() if "refused: " in line]
    for line, what in zip(refused, ('variable "w" has the shape [4, 3] here and [4, 2] there',
                                    'variable 1 is "v" here and "w" there', 'variable 1 is absent here and "w" there',
                                    "learning_rate is 0.25 here and 0.5 there", "adam", "locked"), strict=True):
        assert what in line and "worker/1 was started with other settings than the chief, worker/0" in line, running.out
        assert "--" not in line and "flag" not in line
    assert running.out.count(": in\n") == 2


def test_workers_come_and_go_and_each_has_its_file(start, tmp_path):
    running = start(LOOP, 10**9, run=["--workers=1", "--max_workers=3", "--job_id=py-scale", "--bind=none",
                                      f"--output_dir={tmp_path}/logs"])
    running.await_text("rank 0")

    def scale(workers):
        done = subprocess.run([passel.program(), "ctl", "scale", "py-scale", f"--workers={workers}"], text=True,
                              capture_output=True, check=False, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr + running.err

    scale(3)
    running.await_text("rank 2")
    running.await_text("rank 1")
    scale(1)
    assert running.out.count("end ") == 2 and "worker/2 left" in running.err
    scale(2)
    running.await_text("rank 1", 2)
    subprocess.run([passel.program(), "ctl", "stop", "py-scale"], check=True, timeout=60)
    running.end()
    assert running.out.count("worker/1: end 1 hogwild 3 True") == 2 and "failed" not in running.err
    logs = {path.name: path.read_text() for path in (tmp_path / "logs").iterdir()}
    assert sorted(logs) == ["ps_0.log", "worker_0.log", "worker_1.log", "worker_2.log"]
    assert re.fullmatch(r"(pid \d+ rank 1 life \d\nend 1 hogwild 3 True\n){2}", logs["worker_1.log"])


def test_a_worker_0_that_does_not_join_is_not_waited_for(start):
    text = """
        import os, passel
        if os.environ["RANK"] == "1":
            print("joins", flush=True)
            passel.join({"w": 2})
        """
    running = start(text, run=["--workers=2", "--grace=5"]).end(1)  # start_wait is 300 s
    assert "worker/0 has ended and has not joined, and worker/1 waits" in running.err


def test_a_metric_that_is_no_number_is_so_everywhere(start, tmp_path):
    text = """
        import passel
        with passel.join({"w": 2}, optimizer="momentum") as job:
            for _ in range(3):
                job.pull()
                job.gradients["w"][...] = 0
                job.step()
            job.metric(a=float("nan"), b=float("-inf"), c=-float("nan"), d=0.5)
        """
    running = start(text, run=["--workers=1", f"--report={tmp_path}/report"]).end()
    assert ", a nan, b -inf, c nan, d 0.5," in running.err
    report = json.loads((tmp_path / "report").read_text())
    assert report["metrics"] == report["workers"][0]["metrics"] == {"a": "nan", "b": "-inf", "c": "nan", "d": 0.5}
    assert (report["model"], report["optimizer"]) == ("", "momentum")


def test_who_dies_is_started_again_and_the_ps_too(start, job_id):
    running = start(LOOP, 1500, run=["--workers=2", f"--job_id={job_id}"])
    running.await_text("pid ", 2)
    first = pids(running.out)
    os.kill(first[1], signal.SIGKILL)
    running.await_text("rank 1 life 1")
    ps = [int(p) for p in os.listdir("/proc") if p.isdigit() and is_ps(p, running.process.pid)]
    assert len(ps) == 1
    os.kill(ps[0], signal.SIGKILL)
    os.kill(first[0], signal.SIGKILL)
    running.await_text("rank 0 life 1")
    running.end()
    assert running.out.count("end ") == 2
    for what in "worker/1 was killed by SIGKILL", "ps/0 was killed by SIGKILL", "worker/0 was killed by SIGKILL":
        assert what in running.err


def is_ps(pid, parent):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().split(b"\0")
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return b"--job_name=ps" in words and int(file.read().rsplit(")", 1)[1].split()[1]) == parent
    except (OSError, IndexError):
        return False


def test_one_that_fails_for_good_ends_all_and_has_the_last_word(start, tmp_path):
    text = """
        import passel
        job = passel.join({"w": 2}, mode="barrier")
        for number in job.steps():
            job.pull()
            job.gradients["w"][...] = 0
            if job.rank == 1 and number == 5:
                1 / 0
            job.step()
        """
    running = start(text, run=["--workers=2", "--grace=10", f"--output_dir={tmp_path}/logs"]).end(1)
    assert (tmp_path / "logs/worker_1.log").read_text().endswith("ZeroDivisionError: division by zero\n")
    assert running.err.rstrip().splitlines()[-1].strip() == "ZeroDivisionError: division by zero"
    assert "worker/1 exited with 1" in running.err


def test_a_program_that_stops_its_job_is_done(start, tmp_path):
    text = """
        import sys
        import numpy as np
        import passel
        with passel.join({"w": 2}, mode="barrier", optimizer="sgd", learning_rate=1) as job:
            for number in job.steps():
                job.pull()
                job.gradients["w"][...] = -1
                job.step()
                if job.rank == 0 and number == 20:
                    job.stop()
            np.save(sys.argv[1] + str(job.rank), job.pull("copy")["w"])
        """
    running = start(text, tmp_path / "w", run=["--workers=2"]).end()
    assert running.err.count("exited with 0") == 2, running.err
    assert all(np.load(tmp_path / f"w{rank}.npy")[0] > 0 for rank in range(2))


def test_a_program_that_stops_its_job_does_not_miss_who_has_made_no_step(start):
    text = """
        import os, signal, sys, time
        import passel
        if os.environ["RANK"] == sys.argv[1]:
            print("late", flush=True)
            time.sleep(60)
        with passel.join({"w": 2}, mode=sys.argv[2], optimizer="sgd", learning_rate=1) as job:
            job.pull()
            job.gradients["w"][...] = -1
            job.step()
            print("made", job.global_step, flush=True)
            while not os.path.exists(sys.argv[3]) and not job.stopped:
                time.sleep(0.01)
            if len(sys.argv) > 4:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
            job.stop()
            time.sleep(60 if len(sys.argv) > 4 else 0)
        """
    running = start(text, 1, "hogwild", "/", run=["--workers=2"]).end()
    assert "worker/1: 0 local steps, was ended before its first step" in running.err, running.err
    assert "note: the job was stopped on request" in running.err

    # One that has made a step and does not end well is missed. The other one may be about to join.
    running = start(text, 2, "hogwild", "/", "dies", run=["--workers=2"]).end(130)
    assert "was killed by SIGTERM (15)" in running.err, running.err


def test_a_program_that_stops_its_job_and_fails_has_failed(start):
    text = """
        import passel
        with passel.join({"w": 2}, mode="barrier", optimizer="sgd", learning_rate=1) as job:
            for number in job.steps():
                job.pull()
                job.gradients["w"][...] = -1
                job.step()
                if job.rank == 1 and number == 20:
                    job.stop()
                    raise ValueError("last words")
        """
    running = start(text, run=["--workers=2"]).end(1)
    assert re.search("worker/1 exited with 1", running.err)
    assert running.err.rstrip().endswith("ValueError: last words"), running.err


def test_a_wish_to_end_lets_scripts_finish_and_grace_is_the_limit(start):
    running = start(LOOP, 10**9, run=["--workers=2"])
    running.await_text("pid ", 2)
    running.process.send_signal(signal.SIGTERM)
    running.end(143)
    assert running.out.count("end ") == 2 and running.out.count("True") == 2

    deaf = """
        import time
        import passel
        job = passel.join({"w": 2})
        print("joined", flush=True)
        time.sleep(600)
        """
    running = start(deaf, run=["--workers=1", "--grace=1"])
    running.await_text("joined")
    running.process.send_signal(signal.SIGINT)
    began = time.monotonic()
    running.end(130)
    assert time.monotonic() - began < 30 and "were killed" in running.err


def test_ctrl_c_ends_a_wait_for_a_ps_that_is_not_there(start):
    absent = """
        import passel
        print("begin", flush=True)
        try:
            passel.join({"w": 2}, ps_hosts="localhost:2222", worker_hosts="localhost:2223", task_index=0,
                        job_id="py-absent")
        except KeyboardInterrupt:
            passel.join({"w": 2}).leave()  # nothing is left of it
            raise
        """
    running = start(absent)
    running.await_text("begin")
    time.sleep(0.5)
    running.process.send_signal(signal.SIGINT)
    running.end(-signal.SIGINT)
    assert "KeyboardInterrupt" in running.err


def test_in_a_wait_ctrl_c_is_answered_and_another_thread_is_told(start, tmp_path):
    text = """
        import os, pathlib, signal, sys, threading, time
        import passel
        go = [pathlib.Path(sys.argv[1]) / name for name in ("first", "second")]
        job = passel.join({"w": 2}, mode="barrier", optimizer="sgd", learning_rate=1)
        def fill():
            job.pull()
            job.gradients["w"][...] = 1
        def await_file(path):
            while not path.exists():
                time.sleep(0.01)
        if job.rank == 1:
            for path in go:
                fill()
                await_file(path)
                job.step()
        else:
            fill()
            thread = threading.Thread(target=job.step)
            thread.start()
            time.sleep(0.3)
            try:
                job.pull()
            except passel.FailedPrecondition as error:
                print("busy:", error, job.global_step, job.mode, job.stopped, flush=True)
            go[0].touch()
            thread.join()
            fill()
            job.push()
            threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            try:
                job.wait()
            except KeyboardInterrupt:
                print("interrupted", flush=True)
            try:
                job.wait(timeout=0.2)
            except passel.DeadlineExceeded as error:
                print("not yet:", error, flush=True)
            go[1].touch()
        print("values", job.pull()["w"])
        """
    running = start(text, tmp_path, run=["--workers=2"]).end()
    assert "busy: another thread is in a call" in running.out and "0 barrier False" in running.out
    assert "interrupted" in running.out and re.search("not yet: .*waiting for worker/1", running.out)
    assert running.out.count("values [-2. -2.]") == 2


def test_the_example_learns_alone_and_with_others(start, digits, examples):
    text = (examples / "softmax.py").read_text()
    for run in None, ["--workers=2"]:
        running = start(text, run=run, env={"PASSEL_DATA_DIR": str(digits)}).end()
        assert float(re.search(r"accuracy ([\d.]+)", running.out)[1]) > 0.8


def test_what_the_readme_shows_learns_alone_and_with_others(start, digits, examples, tmp_path):
    page, other_page = ((examples.parents[2] / name).read_text() for name in ("README.md", "docs/python.md"))
    text = other_page.split("```python\n")[1].split("```")[0]
    assert f"```python\n{text}```" in page
    x, labels = passel.digits.load("t10k", digits)
    for workers, run in (1, None), (2, ["--workers=2"]):
        folder = tmp_path / f"of{workers}"
        if run is None:
            env = {"PASSEL_SETTINGS": f"checkpoint_dir={folder}"}
        else:
            run, env = [*run, f"--checkpoint_dir={folder}"], {}
        start(text, run=run, env={"PASSEL_DATA_DIR": str(digits), **env}).end()
        values = tmp_path / f"{workers}.npz"
        done = subprocess.run([passel.program(), "ckpt", "export", folder, values], check=True, timeout=60,
                              text=True, capture_output=True)
        # Each worker makes the step that it is in.
        assert 2000 <= int(re.search(r"model\.ckpt-(\d+)", done.stdout)[1]) < 2000 + workers
        v = np.load(values)
        assert (np.argmax(x @ v["w"] + v["b"], axis=1) == labels).mean() > 0.8


def test_the_last_checkpoint_has_what_came_after_the_chief(start, tmp_path):
    text = """
        import time
        import passel
        with passel.join({"w": 3}, optimizer="sgd", learning_rate=1) as job:
            for _ in range(20 if job.rank == 0 else 40 + 20 * job.rank):
                job.pull()
                job.gradients["w"][...] = 1
                job.step()
                time.sleep(0.002)
        """
    # In rounds one goes on for as long as somebody trains.
    for mode, steps in ("hogwild", 20 + 60 + 80), ("locked", 20 + 60 + 80), ("barrier", 80):
        folder, logs = tmp_path / mode, tmp_path / f"logs-{mode}"
        start(text, run=["--workers=3", "--ps=2", f"--mode={mode}", f"--checkpoint_dir={folder}",
                         f"--logs_dir={logs}"]).end()
        values = tmp_path / f"{mode}.npz"
        done = subprocess.run([passel.program(), "ckpt", "export", folder, values], check=True, timeout=60,
                              text=True, capture_output=True)
        assert f"model.ckpt-{steps}" in done.stdout, (folder / "checkpoint").read_text()
        assert list(np.load(values)["w"]) == [-steps] * 3
        told = b"".join(file.read_bytes() for file in logs.iterdir())
        assert told.count(f"{folder}/model.ckpt-{steps}".encode()) == 1


def test_each_worker_has_its_share_of_the_processors(start, monkeypatch):
    text = """
        import os
        print("share", *sorted(os.sched_getaffinity(0)), "threads", os.environ["OMP_NUM_THREADS"],
              os.environ["OPENBLAS_NUM_THREADS"], flush=True)
        print("core", os.environ.get("OPENBLAS_CORETYPE"), os.environ.get("PASSEL_BLAS_CORE"), flush=True)
        """
    for name in "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OPENBLAS_CORETYPE":
        monkeypatch.delenv(name, raising=False)
    quota = re.search(r"a CPU quota pays for (\d+)", subprocess.run([passel.program(), "topology"], text=True, check=True,
                                                                    capture_output=True, timeout=60).stdout)
    everywhere = os.sched_getaffinity(0)
    some = set(sorted(everywhere)[:4])
    try:
        for processors, flags in (some, []), (some, ["--bind=none"]), ({min(some)}, []):
            os.sched_setaffinity(0, processors)  # the command has it from us
            own = max(1, len(processors) // 2)
            bound = 2 * own <= min(len(processors), int(quota[1]) if quota else len(processors)) and not flags
            running = start(text, run=["--workers=2", *flags]).end()
            shares = [set(map(int, share.split())) for share in re.findall(r"share ([\d ]+) threads", running.out)]
            assert len(shares) == 2 and running.out.count(f" threads {own} {own}\n") == 2, running.out
            assert running.out.count("core None None\n") == 2, running.out  # passel's own choice is not theirs
            if bound:
                assert all(len(share) == own and share <= processors for share in shares) and not shares[0] & shares[1]
            else:
                assert shares == [processors] * 2
    finally:
        os.sched_setaffinity(0, everywhere)


def test_passel_run_says_what_is_wrong_and_its_code_is_that_of_the_program():
    shell = ["--workers=1", "--max_restarts=1", "--", "sh", "-c"]
    for command, code, sentence in (
            ([], 2, "there is no program to run"),
            (["--"], 2, "there is no program to run"),
            (["--workers=2", "true"], 2, "behind a lone --, as in  passel run -- true"),
            (["--", "no-such-program"], 2, "no program \"no-such-program\" in PATH"),
            (["--", "./no-such-program"], 2, "no program that can be run"),
            (["--workers=0", "--", "true"], 2, "1 to 256 workers"),
            (["--ps=0", "--", "true"], 2, "starts 1 to 16 ps, not 0"),
            (["--output_dir=/dev/null/x", "--", "true"], 2, "--output_dir \"/dev/null/x\" is no folder"),
            (["--max_workers=1", "--", "true"], 2, "--max_workers is 2 to"),
            (["--mode=wild", "--", "true"], 2, "wild"),
            (["--data_dir=x", "--", "true"], 2, "--data_dir is not known"),
            (["--", "true", "--workers=0"], 0, ""),
            (["--workers=2", *shell[1:], "[ $RANK = 0 ] || exit 129; sleep 30"], 1,
             "--max_restarts 1 is used up: giving up"),
            ([*shell, "exit 2"], 2, "worker/0 exited with 2"),
            ([*shell, "echo last words; exit 7"], 1, "last words"),
            ([*shell, "kill -9 $$"], 1, "worker/0 was killed by SIGKILL (9)")):
        done = subprocess.run([passel.program(), "run", *command], capture_output=True, text=True, check=False,
                              timeout=60)
        assert (done.returncode, sentence in done.stderr) == (code, True), (command, done)


def test_the_help_has_the_program_behind_the_flags():
    page = subprocess.run([passel.program(), "run", "--help=all"], capture_output=True, text=True, check=True,
                          env={**os.environ, "COLUMNS": "200"}).stdout
    assert "Usage: passel run [FLAGS] -- PROGRAM [ARGUMENTS]\n" in page
    assert "one process without a ps" not in page

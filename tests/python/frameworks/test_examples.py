"""The examples for PyTorch and JAX, as people run them."""

import difflib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time

import pytest

import passel

LIMIT = 240  # seconds


def run(examples, name, *arguments, digits, workers=2):
    return subprocess.run([passel.program(), "run", f"--workers={workers}", "--", sys.executable, str(examples / name),
                           *map(str, arguments)], env={**os.environ, "PASSEL_DATA_DIR": str(digits)}, text=True,
                          capture_output=True, check=True, timeout=LIMIT)


def accuracies(text):
    return [float(found) for found in re.findall(r"accuracy ([\d.]+)", text)]


def test_hogwild_with_passel_differs_from_plain_pytorch_by_ten_lines(examples, digits):
    plain, ours = ((examples / name).read_text().splitlines() for name in ("mnist_hogwild_plain.py", "mnist_hogwild.py"))
    lines = [line for line in difflib.unified_diff(plain, ours, lineterm="", n=0)
             if line[0] in "+-" and line[:3] not in ("+++", "---")]
    assert len(lines) <= 10, "\n".join(lines)
    done = subprocess.run([sys.executable, str(examples / "mnist_hogwild_plain.py"), "600", "1"], text=True, timeout=LIMIT,
                          env={**os.environ, "PASSEL_DATA_DIR": str(digits)}, capture_output=True, check=True)
    assert accuracies(done.stdout)[0] > 0.85, done.stdout
    done = run(examples, "mnist_hogwild.py", 600, digits=digits)
    assert min(accuracies(done.stdout)) > 0.85 and len(accuracies(done.stdout)) == 2, done.stdout


def test_a_small_gpt_learns_sums(examples, digits):
    done = run(examples, "tiny_gpt.py", "--steps", 120, digits=digits)
    loss = float(re.search(r"loss ([\d.]+)", done.stdout)[1])
    assert loss < 1.6, done.stdout
    assert re.search(r"2\+3=\d", done.stdout)


def test_the_first_program_of_the_documentation(start, digits):
    pages = [open(os.path.dirname(__file__) + "/../../../" + page).read() for page in ("docs/torch.md", "README.md")]
    text = re.search(r"```python\n(.*?)```", pages[0], re.S)[1]
    assert f"```python\n{text}```" in pages[1]
    running = start(text, run=["--workers=2"], env={"PASSEL_DATA_DIR": str(digits)}).end()
    assert "2000 global steps" in running.err or "2001 global steps" in running.err, running.err


class Cnn:
    """The convolutional example as a job that is disturbed."""

    def __init__(self, examples, digits, folder, job_id, steps):
        self.job_id = job_id
        self.log = open(folder / f"{job_id}.log", "w+")
        self.process = subprocess.Popen(
            [passel.program(), "run", "--workers=2", f"--job_id={job_id}", "--max_restarts=1000", "--", sys.executable,
             str(examples / "fashion_cnn.py"), "--steps", str(steps), "--data", str(digits)],
            stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True)

    def text(self):
        self.log.seek(0)
        return self.log.read()

    def tasks(self):
        """Processes of the job by their names."""
        found = {}
        for entry in os.scandir("/proc"):
            try:
                with open(f"{entry.path}/stat") as stat, open(f"{entry.path}/environ") as environ:
                    parent = int(stat.read().rpartition(")")[2].split()[1])
                    rank = re.search("(?:^|\0)RANK=(\\d+)\0", environ.read())
            except (OSError, ValueError):
                continue
            if parent == self.process.pid:
                found["ps/0" if rank is None else f"worker/{rank[1]}"] = int(entry.name)
        return found

    def step(self):
        done = subprocess.run([passel.program(), "ctl", "status", self.job_id, "--json"], text=True, capture_output=True,
                              check=False, timeout=60)
        arena = json.loads(done.stdout).get("arena", {}) if done.returncode == 0 else {}
        return arena.get("global_step", 0)

    def end(self):
        code = self.process.wait(LIMIT)
        assert code == 0, self.text()
        return accuracies(self.text())[-1]

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.log.close()


def disturbed(cnn, kills, seed):
    """Kills that many tasks, each after the job has got on since the last one."""
    chance, done, step = random.Random(seed), [], 0
    while len(done) < kills and cnn.process.poll() is None:
        now = cnn.step()
        if now > step:
            time.sleep(chance.uniform(0, 1))
            tasks = cnn.tasks()
            name = ("worker/0", "worker/1", "ps/0")[len(done) % 3] if kills <= 3 else chance.choice(sorted(tasks))
            try:
                os.kill(tasks[name], signal.SIGKILL)
            except (KeyError, ProcessLookupError):
                continue
            done.append(name)
            step = now
        time.sleep(0.1)
    return done


def test_the_convolutional_example_survives_kills(examples, digits, tmp_path, job_id):
    cnn = Cnn(examples, digits, tmp_path, job_id, 1200)
    try:
        done = disturbed(cnn, 3, seed=1)
        accuracy = cnn.end()
    finally:
        cnn.kill()
    assert done == ["worker/0", "worker/1", "ps/0"] and accuracy > 0.9


@pytest.mark.skipif("PASSEL_SLOW_KILLS" not in os.environ, reason="slow: Frameworks.SlowKills runs it")
def test_fifty_kills_cost_less_than_half_a_point(examples, digits, tmp_path, job_id):
    folder = os.path.dirname(__file__) + "/../../../../shared/data/fashion-mnist"
    data = folder if os.path.isdir(folder) else digits
    means = []
    for kills in (0, 50):
        found = []
        for seed in range(3):
            cnn = Cnn(examples, data, tmp_path, f"{job_id}-{kills}-{seed}", 20000)
            try:
                done = disturbed(cnn, kills if seed == 0 else kills // 3, seed)
                assert len(done) == (kills if seed == 0 else kills // 3), cnn.text()
                found.append(cnn.end())
            finally:
                cnn.kill()
            print(kills, "kills wanted,", len(done), "made, accuracy", found[-1], flush=True)
        means.append(sum(found) / len(found))
    assert means[1] > means[0] - 0.005, means

"""What the tests share: scripts in processes of their own, alone or under passel run."""

import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time

import pytest

import passel

LIMIT = int(os.environ.get("TEST_LIMIT", "60"))  # seconds, for whatever a test waits for


@pytest.fixture(autouse=True)
def runtime(tmp_path, monkeypatch):
    """Token files of its own, and settings of nobody else."""
    for name in [name for name in os.environ if name.startswith("PASSEL_") or name == "TF_CONFIG"]:
        monkeypatch.delenv(name)
    folder = tmp_path / "runtime"
    folder.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))


@pytest.fixture
def job_id():
    """A name that no job of another run of these tests has."""
    return f"py-{os.urandom(4).hex()}"


class Running:
    """A process with its output in files."""

    def __init__(self, command, folder, environment):
        self.out_path, self.err_path = folder / "out", folder / "err"
        with open(self.out_path, "wb") as out, open(self.err_path, "wb") as err:
            self.process = subprocess.Popen(command, stdout=out, stderr=err, stdin=subprocess.DEVNULL,
                                            env={**os.environ, **environment}, start_new_session=True)

    @property
    def out(self):
        return self.out_path.read_text()

    @property
    def err(self):
        return self.err_path.read_text()

    def await_text(self, text, times=1):
        end = time.monotonic() + LIMIT
        while self.out.count(text) < times:
            assert self.process.poll() is None, self.out + self.err
            assert time.monotonic() < end, f"no {text!r} in: {self.out}{self.err}"
            time.sleep(0.02)

    def end(self, code=0):
        """Waits for the end; the exit code must be that."""
        try:
            got = self.process.wait(LIMIT)
        finally:
            self.kill()
        assert got == code, f"exit code {got}\n{self.out}{self.err}"
        return self

    def kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


@pytest.fixture
def start(tmp_path):
    """start(text, *flags, run=[...], env={...}): Python with that script; with `run` under passel run
    with these flags."""
    started = []

    def begin(text, *arguments, run=None, env=None):
        folder = tmp_path / str(len(started))
        folder.mkdir()
        script = folder / "script.py"
        script.write_text(textwrap.dedent(text))
        command = [sys.executable, str(script), *map(str, arguments)]
        if run is not None:
            command = [passel.program(), "run", *run, "--", *command]
        started.append(Running(command, folder, env or {}))
        return started[-1]

    yield begin
    for running in started:
        running.kill()


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    """A folder of few generated digits."""
    folder = tmp_path_factory.mktemp("digits")
    subprocess.run([passel.program(), "data", "generate", str(folder), "--train=2000", "--test=500"],
                   check=True, stdout=subprocess.DEVNULL, timeout=LIMIT)
    return folder


@pytest.fixture(scope="session")
def examples():
    return pathlib.Path(__file__).parents[2] / "src/python/examples"

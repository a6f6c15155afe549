"""running - runs a program to its end, however we are ended ourselves."""

import ctypes
import os
import signal
import subprocess
import time

END_LIMIT = 90  # seconds from Ctrl-C to the end of a program


class Failure(Exception):
    """One sentence: a program did not run, or not to its end."""


class Stopped:
    """Which signal asked us to stop, 0 if none; it is handed to the program that runs."""

    def __init__(self):
        self.signal = 0
        self.at = None
        self.process = None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # nohup, say: what is ignored stays ignored.
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self.note)

    def note(self, number, _):
        self.signal = number
        self.at = self.at or time.monotonic()
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)


def die_with_parent():
    """In the child: nothing runs on when we are killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG


def run(arguments, limit, stopped, **options):
    """The exit code of a program, which `options` of Popen are for. It is in a session of its own,
    so that Ctrl-C reaches it once, through us, and what it started ends with it. Errors: Failure."""
    try:
        process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, start_new_session=True,
                                   preexec_fn=die_with_parent, **options)
    except OSError as error:
        raise Failure(f"{arguments[0]} cannot be started: {error.strerror}") from error
    stopped.process = process
    if stopped.signal:
        process.send_signal(stopped.signal)
    end = time.monotonic() + limit
    try:
        while True:
            try:
                return process.wait(timeout=0.5)
            except subprocess.TimeoutExpired:
                now = time.monotonic()
                if now > end or (stopped.at is not None and now > stopped.at + END_LIMIT):
                    raise Failure(f"{os.path.basename(arguments[0])} did not end within "
                                  f"{limit if now > end else END_LIMIT} s and was killed") from None
    finally:
        stopped.process = None
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()

"""What a worker of `passel run` does on SIGTERM, and what its children do."""

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from ._library import _core

_PR_SET_PDEATHSIG = 1
_SIGTERM_COMES = 1.0  # seconds after the stop

_heard: Callable[[int, Any], None] | None = None  # on SIGTERM
_command = 0  # of `passel run`; 0: unknown
_process = os.getpid()
_forking = threading.local()  # of this thread: .mask of before, .parent
_prctl = ctypes.CDLL(None).prctl


def _of_run() -> bool:
    return "PASSEL_SETTINGS" in os.environ


def hear(told: Callable[[], None]) -> None:
    """Under `passel run` SIGTERM calls told() from now on, unless the script hears it itself."""
    global _heard, _command
    if not _of_run() or threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return

    def heard(number: int, frame: Any) -> None:
        told()

    signal.signal(signal.SIGTERM, heard)
    _heard = heard
    _command = _parent_of(os.getpgrp())


def await_end() -> None:
    """`passel run` ends by SIGTERM whoever has not joined when the job is stopped: that comes at any moment."""
    if _of_run() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        time.sleep(_SIGTERM_COMES)


def _parent_of(process: int) -> int:
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0


def end() -> None:
    """What the interpreter would put back ends the process, which is about to end by itself."""
    if _heard is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


# A child ends by SIGTERM, as multiprocessing expects of its own, but for that of the command to the whole
# group, after which its worker may still need it. Meanwhile the signal waits: the
# interpreter forgets what a child has heard before it is told that it is one.
def _before_fork() -> None:
    _forking.mask = _forking.parent = None
    # One that a thread forks would end with that thread.
    if _of_run() and os.getpid() == _process and threading.get_ident() == threading.main_thread().ident:
        _forking.parent = _process
    if _heard is not None:
        _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _after_fork() -> None:
    mask = getattr(_forking, "mask", None)
    if mask is not None:
        _forking.mask = None
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _in_child() -> None:
    global _heard
    if _heard is not None and signal.getsignal(signal.SIGTERM) is _heard:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if _command != 0:
            _core.end_by_term_of_others_than(_command)
    _heard = None
    # A worker that is killed cannot end its children.
    parent = getattr(_forking, "parent", None)
    if parent is not None and _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM) == 0 and os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)
    _after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)

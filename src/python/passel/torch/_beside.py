"""A file beside each checkpoint of a job: model.ckpt-500.torch, what PyTorch needs to go on."""

import io
import os
import pathlib
import re
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch

from .._arguments import in_force
from .._errors import InvalidArgument

_LOOKS = 0.2  # seconds between looks at the index
_SET = re.compile(r"model\.ckpt-(\d+)(-\d+-of-\d+)?\.safetensors")
_HAS = {"tracked", "groups", "epochs", "buffers", "random"}
_BESIDE = re.compile(r"model\.ckpt-(\d+)\.torch")


class Beside:
    """The chief's writes them, and everybody's reads them.

    Invariant: a file is whole, or it is not there; it goes when its checkpoint has gone.
    """

    def __init__(self, folder: str, writes: bool) -> None:
        self.folder = pathlib.Path(folder)
        self._writes = writes
        self._next_look = 0.0
        self._index: tuple[int, int] | None = None

    def is_due(self) -> bool:
        """Whether a checkpoint may have been made."""
        if not self._writes or time.monotonic() < self._next_look:
            return False
        self._next_look = time.monotonic() + _LOOKS
        return self._index != self._stamp()

    def commit_newest(self, state: Callable[[int], dict[str, Any]], before: int | None = None) -> None:
        """Writes that of the newest checkpoint, if it is not there: state(its step). One that is not of a step
        before `before` is for a later call."""
        if not self._writes:
            return
        stamp = self._stamp()
        steps = self._of(_SET)
        if steps and max(steps) not in self._of(_BESIDE):
            if before is not None and max(steps) >= before:
                return
            self.commit(max(steps), state(max(steps)))
        self._index = stamp

    def commit(self, step: int, state: dict[str, Any]) -> None:
        temporary = self.folder / ".beside.torch"
        with open(temporary, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, self.folder / f"model.ckpt-{step}.torch")
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        for gone in self._of(_BESIDE) - self._of(_SET) - {step}:
            (self.folder / f"model.ckpt-{gone}.torch").unlink(missing_ok=True)

    def newest(self, step: int) -> tuple[int, dict[str, Any] | None]:
        """That of the checkpoint of `step`, else of the last one before it; its step."""
        for found in sorted((each for each in self._of(_BESIDE) if each <= step), reverse=True):
            try:
                state = torch.load(self.folder / f"model.ckpt-{found}.torch", weights_only=True)
                if lacking := _HAS - set(state):
                    raise InvalidArgument(f"it has no {sorted(lacking)[0]!r}")
                return found, state
            except FileNotFoundError:  # the chief has just deleted it
                continue
            except Exception as error:  # whatever PyTorch raises for what was not written here
                warnings.warn(f"{self.folder}/model.ckpt-{found}.torch cannot be read, and what is beside an earlier checkpoint "
                              f"is taken, or nothing: {_reason(error)}", stacklevel=7)
        return 0, None

    def _of(self, names: "re.Pattern[str]") -> set[int]:
        try:
            return {int(found[1]) for name in os.listdir(self.folder) if (found := names.fullmatch(name))}
        except FileNotFoundError:
            return set()

    def _stamp(self) -> tuple[int, int] | None:
        try:
            about = os.stat(self.folder / "checkpoint")
        except FileNotFoundError:
            return None
        return about.st_mtime_ns, about.st_ino


def check_readable(name: str, state: Any) -> None:
    """Raises where torch.load() would not give back what a file beside a checkpoint has."""
    file = io.BytesIO()
    try:
        torch.save(state, file)
        file.seek(0)
        torch.load(file, weights_only=True)
    except Exception as error:  # of pickle, and of the classes of what is in it
        raise InvalidArgument(f"track() was given {name}=, whose state_dict() has what torch.load(weights_only=True) does not "
                              "read back, as numbers of NumPy are: make them tensors, or plain by float() or item() "
                              f"({_reason(error)})") from None


def _reason(error: Exception) -> str:
    named = re.search(r"GLOBAL (\S+)", str(error))
    return f"it has {named[1]}" if named else (str(error).splitlines() or [type(error).__name__])[0]


def folder_of(settings: Mapping[str, Any]) -> str | None:
    """The folder of checkpoints that join() will find: that of `settings`, or of passel run."""
    given = in_force("checkpoint_dir", settings)
    return str(given) if given else None

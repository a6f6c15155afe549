"""A file beside each checkpoint of a job: model.ckpt-500.torch, what PyTorch needs to go on."""

import io
import os
import pathlib
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from .._arguments import in_force
from .._errors import InvalidArgument
from .._warn import warn

_LOOKS = 0.2  # seconds between looks at the index
_SET = re.compile(r"model\.ckpt-(\d+)(-\d+-of-\d+)?\.safetensors")
_HAS = {"tracked": dict, "groups": list, "epochs": dict, "buffers": dict, "random": dict}
_BESIDE = re.compile(r"model\.ckpt-(\d+)\.torch")


class Beside:
    """The chief's writes them, and everybody's reads them.

    Invariant: a file is whole, or it is not there; it goes when its checkpoint has gone.
    """

    def __init__(self, folder: str | None, begins_with: str | None, writes: bool) -> None:
        """folder: where the job saves. begins_with: another checkpoint, or its folder."""
        self._saves = None if folder is None else pathlib.Path(folder)
        begins = None if begins_with is None else pathlib.Path(begins_with)
        self._begins = begins if begins is None or begins.is_dir() else begins.parent
        self._first = _first_of(begins)
        self._writes = writes and folder is not None
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
        steps = _numbers(self._folder, _SET)
        if steps and max(steps) not in _numbers(self._folder, _BESIDE):
            if before is not None and max(steps) >= before:
                return
            self.commit(max(steps), state(max(steps)))
        self._index = stamp

    def commit(self, step: int, state: dict[str, Any]) -> None:
        temporary = self._folder / ".beside.torch"
        with open(temporary, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, self._folder / f"model.ckpt-{step}.torch")
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        for gone in _numbers(self._folder, _BESIDE) - _numbers(self._folder, _SET) - {step}:
            (self._folder / f"model.ckpt-{gone}.torch").unlink(missing_ok=True)

    def newest(self, step: int) -> tuple[int, dict[str, Any] | None]:
        """That of the checkpoint of `step`, else of the last one before it; its step. Those of the setting
        resume are up to its checkpoint, and what the job has saved since is of later steps."""
        there = {(found, False, self._begins) for found in _numbers(self._begins, _BESIDE) if found <= self._first}
        there |= {(found, True, self._saves) for found in _numbers(self._saves, _BESIDE)
                  if self._begins in (None, self._saves) or found > self._first}
        for found, _, folder in sorted((each for each in there if each[0] <= step), key=lambda each: each[:2], reverse=True):
            path = f"{folder}/model.ckpt-{found}.torch"
            try:
                state = torch.load(path, weights_only=True)
                for name, kind in _HAS.items():
                    if not isinstance(state.get(name), kind):
                        raise InvalidArgument(f"it has no {name!r}")
                return found, state
            except FileNotFoundError:  # the chief has just deleted it
                continue
            except Exception as error:  # whatever PyTorch raises for what was not written here
                warn(f"{path} cannot be read, and what is beside an earlier checkpoint is taken, or nothing: {_reason(error)}")
        return 0, None

    def where(self) -> str:
        """For sentences."""
        return " and ".join(sorted({str(each) for each in (self._saves, self._begins) if each is not None}))

    @property
    def _folder(self) -> pathlib.Path:
        assert self._saves is not None, "it writes"
        return self._saves

    def _stamp(self) -> tuple[int, int] | None:
        try:
            about = os.stat(self._folder / "checkpoint")
        except FileNotFoundError:
            return None
        return about.st_mtime_ns, about.st_ino


def _first_of(begins: pathlib.Path | None) -> int:
    """The step of a checkpoint that is named by its path, or by a folder that has it."""
    if begins is None:
        return 0
    if named := re.match(r"model\.ckpt-(\d+)", begins.name):
        return int(named[1])
    return max(_numbers(begins, _SET), default=0) if begins.is_dir() else 0


def _numbers(folder: pathlib.Path | None, names: "re.Pattern[str]") -> set[int]:
    try:
        return set() if folder is None else {int(found[1]) for name in os.listdir(folder) if (found := names.fullmatch(name))}
    except FileNotFoundError:
        return set()


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


def beside_of(settings: Mapping[str, Any], is_chief: bool) -> Beside | None:
    """Beside the checkpoints of join(): those of `settings`, or of passel run."""
    folder, resume = (in_force(name, settings) or None for name in ("checkpoint_dir", "resume"))
    other = None if resume in (None, "auto", "never") else str(resume)
    return None if folder is other is None else Beside(None if folder is None else str(folder), other, is_chief)

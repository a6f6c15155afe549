"""The buffers of a module, as running means of batch norm, in a file that the workers of a host share.

The file has a slot for each worker, with a word (the global step after its last update, 0: none; below
0: it has left) and the buffers. A worker's buffers are in its slot, so that its next life goes on with them. Running means
may be read half written: each float of them is whole.

The file is of one beginning of the job's values, whose number is in its name: a job that begins, or goes on from a
checkpoint, has another one than any of its name before. Those of before are deleted then.

Whoever maps the file holds a shared lock on it. Who leaves turns its word's sign, and who leaves last deletes
the file, unless a word is above 0: of a worker that was killed, or has failed, and may come again.
"""

import fcntl
import mmap
import os
import pathlib
import re
import time
import zlib
from typing import Any

import torch

from .._errors import InvalidArgument
from .._job import Job

_POLICIES = ("own", "chief")
_LINE = 64
_OLD = 86400.0  # seconds: so old is the file of a job of which everything was killed, and none of its name came


def check_policy(policy: Any, module: torch.nn.Module) -> None:
    if policy not in _POLICIES:
        raise InvalidArgument(f'buffers= takes "own" (each worker has its own) or "chief" (all have the chief\'s), not '
                              f"{policy!r}: use one of them")
    for name, buffer in module.named_buffers():
        if policy == "chief" and not _has_floats_here(buffer):
            where = f"on the device {buffer.device}" if buffer.device.type != "cpu" else f"of the layout {buffer.layout}"
            raise InvalidArgument(f'buffers="chief" takes the chief\'s through memory of the host, and the buffer {name!r} is '
                                  f'{where}: use buffers="own", or a dense one on the CPU')


def _has_floats_here(buffer: torch.Tensor) -> bool:
    """Whether it can lie in a file that others map."""
    return buffer.device.type == "cpu" and buffer.layout is torch.strided


class Buffers:
    """Those of one worker. policy: "own", or "chief": after each update it takes the chief's."""

    def __init__(self, module: torch.nn.Module, job: Job, policy: str) -> None:
        self._buffers = {name: buffer for name, buffer in module.named_buffers() if buffer.numel() > 0}
        self._words: Any = None
        self._ranks = job.world_size
        self._follows = policy == "chief" and not job.is_chief
        self._shared = {name: buffer for name, buffer in self._buffers.items() if _has_floats_here(buffer)}
        self._has_newer = False  # than any checkpoint: of this worker's life before, or of the chief
        if not self._shared or job.is_alone:
            return
        self._open(self._shared, job)

    def stepped(self, global_step: int) -> None:
        """After an update of this worker."""
        if self._words is None:
            return
        if self._follows and self._words[0] != 0:
            self._mine.copy_(self._chiefs)
        self._words[self._word] = global_step

    def state(self) -> dict[str, torch.Tensor]:
        return {name: buffer.detach().to("cpu", copy=True) for name, buffer in self._buffers.items()}

    def restore(self, state: dict[str, torch.Tensor]) -> None:
        """What state() has given, where nothing newer is in the file of the host."""
        with torch.no_grad():
            for name, values in state.items():
                if self._has_newer and name in self._shared:
                    continue
                if name in self._buffers and self._buffers[name].shape == values.shape:
                    self._buffers[name].copy_(values)

    def close(self, comes_again: bool = False) -> None:
        """The buffers stay as they are, and are this process's own. comes_again: its next life goes on with them."""
        if self._words is None:
            return
        if not comes_again:
            self._words[self._word] = -abs(self._words[self._word])
        words, self._words = self._words, None
        for buffer in self._shared.values():
            buffer.data = buffer.detach().clone()
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if all(words[rank * len(words) // self._ranks] <= 0 for rank in range(self._ranks)):
                self._path.unlink(missing_ok=True)
        except BlockingIOError:  # others are there
            pass
        fcntl.flock(self._file, fcntl.LOCK_UN)  # the mapping has the file open, too
        os.close(self._file)

    def _open(self, buffers: dict[str, torch.Tensor], job: Job) -> None:
        offsets, end = {}, _LINE
        for name, buffer in buffers.items():
            offsets[name] = end
            end += (buffer.numel() * buffer.element_size() + _LINE - 1) // _LINE * _LINE
        layout = repr([(name, tuple(b.shape), str(b.dtype)) for name, b in buffers.items()] + [job.world_size])
        folder = _runtime_folder()
        beginning = f"torch-{job.id}-{job._core.beginning()[0]:016x}-"
        _delete_old(folder, job.id, beginning)
        self._path = folder / f"{beginning}{zlib.crc32(layout.encode()):08x}"
        self._file = _opened(self._path, end * job.world_size)
        memory = mmap.mmap(self._file, end * job.world_size)
        self._words = memoryview(memory).cast("q")
        self._word = job.rank * end // 8
        step = job.global_step
        bytes_of = torch.frombuffer(memory, dtype=torch.uint8)
        self._chiefs = bytes_of[_LINE:end]
        self._mine = bytes_of[job.rank * end + _LINE:(job.rank + 1) * end]
        lived = 0 < self._words[self._word] <= step
        late = not lived and 0 < self._words[0] <= step
        self._has_newer = lived or late
        if not lived:
            self._words[self._word] = 0
        for name, buffer in buffers.items():
            begin = job.rank * end + offsets[name]
            own = torch.frombuffer(memory, dtype=buffer.dtype, count=buffer.numel(), offset=begin).view(buffer.shape)
            if not lived and not late:
                own.copy_(buffer.detach())
            buffer.data = own
        if late:
            self._mine.copy_(self._chiefs)


def _runtime_folder() -> pathlib.Path:
    base = os.environ.get("XDG_RUNTIME_DIR")
    folder = pathlib.Path(base) / "passel" if base else pathlib.Path(f"/tmp/passel-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise InvalidArgument(f"{folder} is of another user, and the buffers of the workers go there: set XDG_RUNTIME_DIR "
                              "to a folder of yours")
    return folder


def _opened(path: pathlib.Path, size: int) -> int:
    """Locked, and of that size. Whoever leaves last may delete it in between: then again."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_SH)
            os.ftruncate(file, size)
            if os.path.samestat(os.fstat(file), os.stat(path)):
                return file
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(file)
            raise
        os.close(file)


def _delete_old(folder: pathlib.Path, job_id: str, beginning: str) -> None:
    """What nobody will go on with: of that job but not of that beginning, and of jobs that are long gone."""
    former = re.compile(rf"torch-{re.escape(job_id)}-[0-9a-f]{{16}}-[0-9a-f]{{8}}")
    for path in folder.glob("torch-*"):
        try:
            is_former = former.fullmatch(path.name) is not None and not path.name.startswith(beginning)
            if not is_former and time.time() - path.stat().st_mtime < _OLD:
                continue
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
        except OSError:  # it is in use
            pass
        os.close(file)

"""The sampler that job.sampler() returns."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _arguments
from ._errors import InvalidArgument

if TYPE_CHECKING:
    from ._job import Job

Rows = np.ndarray[Any, np.dtype[np.int64]]


def whole(what: str, number: Any, least: int = 1) -> int:
    """That number, if it is a whole one from `least` on."""
    value = _arguments.whole(number, f"{what} of a sampler")
    if least <= value:
        return value
    raise InvalidArgument(f"{what} of a sampler is {least} or more, not {value}: give that")


class Sampler(Iterator[Rows]):
    """Batches of this worker, as arrays of numbers of examples; of Job.sampler()."""

    def __init__(self, job: "Job") -> None:
        self._job = job
        self._epoch = 0

    def __next__(self) -> Rows:
        """Ends when all epochs are given out, or the job is stopped: leave the job soon then, since rounds
        wait for this worker. Waits for a push whose outcome nobody has waited for."""
        if self._job._core.pushed():
            self._job.wait()
        if self._job.stopped:
            raise StopIteration
        numbers, epoch = self._job._core.next_batch()
        if not numbers:
            raise StopIteration
        self._epoch = epoch
        return np.frombuffer(numbers, np.int64)

    @property
    def epoch(self) -> int:
        """That of the last batch, from 0."""
        return self._epoch

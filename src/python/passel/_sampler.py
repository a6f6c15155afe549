"""The sampler that job.sampler() returns."""

import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ._errors import InvalidArgument

if TYPE_CHECKING:
    from ._job import Job

Rows = np.ndarray[Any, np.dtype[np.int64]]


def whole(what: str, number: Any, least: int = 1) -> int:
    """That number, if it is a whole one from `least` on."""
    try:
        value = operator.index(number)
    except TypeError:
        raise InvalidArgument(f"{what} of a sampler is a whole number, not {number!r}: give one") from None
    if least <= value < 2**63:
        return value
    raise InvalidArgument(f"{what} of a sampler is {least} or more, and below 2^63, not {value}: give that")


class Sampler(Iterator[Rows]):
    """Batches of this worker, as arrays of numbers of examples; of Job.sampler()."""

    def __init__(self, job: "Job") -> None:
        self._job = job
        self._epoch = 0

    def __next__(self) -> Rows:
        """Ends when all epochs are given out, or the job is stopped: leave the job soon then, since rounds
        wait for this worker. Waits for a push whose outcome nobody has waited for."""
        if self._job._pushed:
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

"""attach() and the reader that it returns."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from . import _arguments
from ._errors import InvalidArgument
from ._gradients import Array
from ._library import _core

Read = Literal["now", "one step"]

_READS = {"now": 0, "one step": 1}


class Reading(NamedTuple):
    """Of which step values are that were read."""

    global_step: int
    """They have every update up to this one."""
    last_global_step: int
    """And some up to this one."""
    is_exact: bool
    """Whether they are exactly those of global_step."""


class Reader:
    """Follows the values of a job without being a worker of it; of attach().

    Nobody waits for it, and its end disturbs nobody. One thread at a time.
    """

    def __init__(self, core: "_core.Reader", timeout: float) -> None:
        self._core = core
        self._timeout = timeout
        self._values: Mapping[str, Array] = MappingProxyType(core.values())
        self._detached = False

    @property
    def variables(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of the variables by their names."""
        return {name: tuple(shape) for name, shape in self._core.variables()}

    @property
    def values(self) -> Mapping[str, Array]:
        """What read() has copied: always the same arrays, and this process's own. Zeros before the first read()."""
        return self._values

    def read(self, how: Read = "now", timeout: float | None = None) -> Reading:
        """Copies the values of now into `values`.

        how: "now": in the modes with rounds the values of one step, as a rule; in the others updates
        under way may be half there. "one step": the workers wait between two steps meanwhile.
        """
        number = _READS.get(how) if isinstance(how, str) else None
        if number is None:
            raise InvalidArgument(f'read() takes "now" or "one step", not {how!r}: use one of them')
        return Reading(*self._core.read(number, self._timeout if timeout is None else _arguments.seconds(timeout)))

    def wait_version(self, global_step: int, timeout: float | None = None) -> int:
        """Waits until the job has made so many updates; returns how many it has made."""
        step = _arguments.whole(global_step, "a global step")
        return self._core.wait_version(step, self._timeout if timeout is None else _arguments.seconds(timeout))

    def detach(self) -> None:
        """Nothing is read from here on; `values` stay. A second call does nothing."""
        if not self._detached:
            self._detached = True
            self._core.detach()

    def __repr__(self) -> str:
        return f"<passel.Reader of {', '.join(self._values)}{', detached' if self._detached else ''}>"

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.detach()


def attach(job: str | None = None, *, timeout: float = 60.0) -> Reader:
    """Attaches to a running job of this user on this host, passel train's too.

    job: its name; None: the only one there is. timeout: seconds until it is there and has values, and
    for each wait without one of its own.
    """
    timeout = _arguments.seconds(timeout)
    return Reader(_core.Reader(None if job is None else _arguments.text(job, "the name of a job"), timeout), timeout)

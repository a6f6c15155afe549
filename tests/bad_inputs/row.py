"""One row of the table: what is given to the program, and what it must answer."""

import dataclasses
import shlex
from typing import Callable, Union

# A file of the row: its bytes or text, or a function that makes it, given its path.
Content = Union[bytes, str, Callable[[str], None]]


@dataclasses.dataclass(frozen=True)
class Row:
    """A bad input.

    In `command`, `env`, `shell`, `beside` and `says` these stand for places of the row's own:
    {work} the folder it runs in, {job} a fresh job id, {run} $XDG_RUNTIME_DIR, {home} $HOME;
    and {digits} stands for a small data set that all rows share, {model} for a model of it.
    """

    name: str
    command: Union[str, list]  # after `passel`; a text is split as a shell does
    says: tuple  # what the sentence must hold, in this order
    code: int = 2
    files: dict = dataclasses.field(default_factory=dict)  # name below {work}: Content
    env: dict = dataclasses.field(default_factory=dict)
    shell: str = ""  # run by sh before the program takes its place, e.g. "ulimit -n 9"
    info: bool = False  # lines of information may come before the sentence
    warns: str = ""  # what a warning before the sentence must hold; none may come without it
    out: str = ""  # what standard output must hold; it must be empty without it
    stdin: bytes = b""
    beside: Union[str, list] = ""  # another command of passel that runs meanwhile, and
    beside_says: str = ""  # is known to be ready by this text on standard error or output
    beside_code: int = 130  # what it ends with when it is interrupted afterwards
    nobody: bool = False  # run as a user without rights; as we are where we are not root
    root: bool = False  # only root can make this input
    plain_memory: bool = False  # not for a program that a sanitizer was built into
    reference: bool = False  # the words are those of the reference programs, in their sentences
    stays: tuple = ()  # files below {work} that the program may leave: what it was asked for


def words(command):
    """A command as a list."""
    return shlex.split(command) if isinstance(command, str) else list(command)


def table(theme, *rows):
    """The rows of one theme."""
    return theme, rows

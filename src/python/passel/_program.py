"""The program passel that the package brings."""

import os
import pathlib
import sys


def program() -> str:
    """The path of the program."""
    return str(pathlib.Path(__file__).with_name("bin") / "passel")


def main() -> None:
    """The command `passel` of the environment: becomes the program."""
    os.execv(program(), ["passel", *sys.argv[1:]])

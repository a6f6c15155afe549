"""Warnings that name the line of the script, however deep in the package they are given."""

import pathlib
import sys
import warnings

_PACKAGE = str(pathlib.Path(__file__).parent)


def warn(sentence: str) -> None:
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(sentence, stacklevel=level)

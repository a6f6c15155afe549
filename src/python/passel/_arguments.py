"""What programs give, checked before the library has it: one sentence for what is of another type."""

import operator
from collections.abc import Mapping
from typing import Any

import numpy as np

from ._errors import InvalidArgument
from ._gradients import Array

_MOST = 2**63 - 1  # of a dimension, of a step


def seconds(timeout: Any) -> float:
    if type(timeout) is float:
        return timeout
    try:
        return float(timeout.__float__())  # which a text has not
    except (TypeError, AttributeError, OverflowError):
        raise InvalidArgument(f"a timeout is a number of seconds, not {timeout!r}: use, for example, 60") from None


def number(value: Any, name: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgument(f"the metric {name!r} is a number, not {value!r}: give one") from None


def whole(value: Any, what: str) -> int:
    try:
        given = operator.index(value)
    except TypeError:
        raise InvalidArgument(f"{what} is a whole number, not {value!r}: give one") from None
    if not -_MOST <= given <= _MOST:
        raise InvalidArgument(f"{what} is at most {_MOST}, not {given}: make it smaller")
    return given


def text(value: Any, what: str) -> str:
    """What the library can be given as a text."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{what} is a text, not {value!r}: use one")
    if "\0" in value:
        raise InvalidArgument(f"{what} is {value!r}, which has a NUL: leave it out")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(f"{what} is {value!r}, which is not in Unicode: use a text that is") from None
    return value


def settings(given: Mapping[str, Any]) -> list[str]:
    """As passel_open() takes them; what is None is as if it was not there."""
    return [text(f"{name}={_spelled(value)}", "a setting") for name, value in given.items() if value is not None]


def variables(given: Any) -> tuple[dict[str, tuple[int, ...]], list[Array | None]]:
    """Their shapes by name, and for each the first values, or None for zeros."""
    if not isinstance(given, Mapping):
        raise InvalidArgument("join() takes a dict of the variables by their names, not a "
                              f"{type(given).__name__}: give, for example, {{\"w\": (784, 10)}}")
    shapes: dict[str, tuple[int, ...]] = {}
    values: list[Array | None] = []
    for name, description in given.items():
        shape, value = _described(text(name, "the name of a variable"), description)
        for dimension in shape:
            if abs(dimension) > _MOST:
                raise InvalidArgument(f"variable {name!r} has the shape {shape}, and a dimension is at most {_MOST}: "
                                      "make it smaller")
        shapes[name] = shape
        values.append(value)
    return shapes, values


def _spelled(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(map(_spelled, value))
    return str(value)


def _described(name: str, given: Any) -> tuple[tuple[int, ...], Array | None]:
    if isinstance(given, (int, np.integer)) and not isinstance(given, bool):
        return (int(given),), None
    if isinstance(given, tuple) and all(isinstance(d, (int, np.integer)) for d in given):
        return tuple(int(d) for d in given), None
    try:
        array = given if isinstance(given, np.ndarray) else _viewed(given)
    except (TypeError, ValueError, BufferError, AttributeError):
        raise InvalidArgument(f"variable {name!r} is described by a {type(given).__name__}: give a shape "
                              "as a tuple, or an array of float32") from None
    if array.dtype != np.float32:
        raise InvalidArgument(f"variable {name!r} is of {array.dtype}, and passel trains float32 alone: "
                              "give it .astype(numpy.float32)")
    if not array.flags.c_contiguous:
        raise InvalidArgument(f"variable {name!r} is not contiguous in C order: give it "
                              "numpy.ascontiguousarray() of it")
    return array.shape, array


def _viewed(given: Any) -> "np.ndarray[Any, Any]":
    """What has the buffer protocol or DLPack, without a copy."""
    if hasattr(given, "__dlpack__"):
        return np.from_dlpack(given)
    return np.asarray(memoryview(given))

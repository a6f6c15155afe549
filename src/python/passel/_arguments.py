"""What programs give, checked before the library has it: one sentence for what is of another type."""

import operator
import os
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


def in_force(name: str, given: Mapping[str, Any]) -> Any:
    """The setting of the script, else of `passel run`; None: of neither."""
    value = given.get(name)
    if value is None:
        for line in os.environ.get("PASSEL_SETTINGS", "").splitlines():
            if line.startswith(f"{name}="):
                value = line.partition("=")[2]
    return value


def number_in_force(name: str, given: Mapping[str, Any], default: float) -> float:
    """What is no number the library refuses."""
    value = in_force(name, given)
    try:
        return default if value is None else float(value)
    except (TypeError, ValueError):
        return default


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


def groups(given: Any, shapes: Mapping[str, Any]) -> list[int]:
    """That of each variable."""
    if given is None:
        return [0] * len(shapes)
    if not isinstance(given, Mapping):
        raise InvalidArgument("groups is a dict of whole numbers by the names of variables, not a "
                              f"{type(given).__name__}: give, for example, {{\"b\": 1}}")
    for name, group in given.items():
        if name not in shapes:
            raise InvalidArgument(f"groups names {name!r}, and there is no such variable: give exactly some of "
                                  f"{', '.join(map(repr, shapes))}")
        if not 0 <= whole(group, f"the group of {name!r}") <= 15:
            raise InvalidArgument(f"the group of {name!r} is 0 to 15, not {group}: join some groups")
    return [operator.index(given.get(name, 0)) for name in shapes]


def state(given: Any, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int | None, list[str], list[Array | None]]:
    """Its step, the names of slots, and of each variable all of these; None and none without one."""
    if given is None:
        return None, [], []
    try:
        step, slots = given
        named = {name: {slot.removeprefix(f"{name}/"): array for slot, array in own.items()}
                 for name, own in slots.items()}
    except (TypeError, ValueError, AttributeError):
        raise InvalidArgument("optimizer_state is an OptimizerState, of a step and the slot variables of each variable, "
                              f"not {given!r:.200}: give what Job.optimizer_state() returned") from None
    if set(named) != set(shapes):
        odd = next(iter(set(named) ^ set(shapes)))
        what = "there is no such variable" if odd in named else "its slot variables are missing"
        raise InvalidArgument(f"optimizer_state has slots of each variable, and of {odd!r} {what}: give exactly "
                              f"{', '.join(map(repr, shapes))}")
    names = sorted(next(iter(named.values()), {}))  # the order of the slots is that of their names
    arrays: list[Array | None] = []
    for name, shape in shapes.items():
        if sorted(named[name]) != names:
            raise InvalidArgument(f"optimizer_state has the slots {names} of one variable and {sorted(named[name])} of "
                                  f"{name!r}: give the same of each")
        for slot in names:
            own_shape, array = _described(f"{name}/{slot}", named[name][slot])
            if own_shape != shape or array is None:
                raise InvalidArgument(f"the slot variable '{name}/{slot}' has the shape {own_shape}, and {name!r} "
                                      f"{shape}: give an array of that")
            arrays.append(array)
    return whole(step, "the step of the optimizer"), names, arrays


def rates(pairs: Any, learning_rates: Any, weight_decays: Any) -> list[tuple[float, float]]:
    """Learning rate and weight decay of each group."""
    if (pairs is None) == (learning_rates is None) or (pairs is not None and weight_decays is not None):
        raise InvalidArgument("set_rates() takes pairs of a learning rate and a weight decay, or learning_rates and "
                              "weight_decays: give one of both")
    if pairs is None:
        first = _numbers(learning_rates, "learning_rates")
        second = [0.0] * len(first) if weight_decays is None else _numbers(weight_decays, "weight_decays")
        if len(first) != len(second):
            raise InvalidArgument(f"there are {len(first)} learning_rates and {len(second)} weight_decays: give one of "
                                  "each for each group")
        return list(zip(first, second))
    made = []
    for group, pair in enumerate(_listed(pairs, "set_rates()")):
        both = _numbers(pair, f"group {group}")
        if len(both) != 2:
            raise InvalidArgument(f"the rates of group {group} are a learning rate and a weight decay, not {pair!r}: "
                                  "give both")
        made.append((both[0], both[1]))
    return made


def _listed(given: Any, what: str) -> list[Any]:
    try:
        return list(given)
    except TypeError:
        raise InvalidArgument(f"{what} takes one for each group, not {given!r}: give a list") from None


def _numbers(given: Any, what: str) -> list[float]:
    numbers = _listed(given, what)
    try:
        return [float(each) for each in numbers]
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgument(f"rates are numbers, and {what} has {given!r}: give some") from None


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
    except (TypeError, ValueError, BufferError, AttributeError, RuntimeError) as error:
        raise InvalidArgument(f"variable {name!r} is described by a {type(given).__name__} ({error}): give a shape "
                              "as a tuple, or an array of float32 in memory of the host") from None
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

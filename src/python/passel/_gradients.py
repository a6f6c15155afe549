"""Where a job takes its gradients."""

import reprlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ._errors import InvalidArgument

Array = np.ndarray[Any, np.dtype[np.float32]]


class Gradients(Mapping[str, Array]):
    """Memory for the next gradient of each variable, by the names of the variables.

    `gradients["w"][...] = g` and `gradients["w"] = g` both write into it.
    """

    __slots__ = ("_arrays",)

    def __init__(self, arrays: dict[str, Array]) -> None:
        self._arrays = arrays

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def __setitem__(self, name: str, gradient: Any) -> None:
        own = self._arrays.get(name)
        if own is None:
            raise InvalidArgument(f"there is no variable {name!r}: the job has {', '.join(map(repr, self._arrays))}")
        if gradient is own:  # of gradients[name] += g
            return
        try:
            array = np.asarray(gradient)
        except (TypeError, ValueError):
            array = np.asarray(None)
        except RuntimeError as error:  # of a tensor
            raise InvalidArgument(f"the gradient of variable {name!r} is a {type(gradient).__name__} ({error}): give an "
                                  "array") from None
        if not np.can_cast(array.dtype, np.float32, "same_kind"):
            raise InvalidArgument(f"the gradient of variable {name!r} is {reprlib.repr(gradient)}, and that is no "
                                  f"array of real numbers: give one of the shape {own.shape}")
        if array.shape != own.shape:
            raise InvalidArgument(f"the gradient of variable {name!r} has the shape {array.shape}, and the "
                                  f"variable {own.shape}: give that one")
        np.copyto(own, array, casting="same_kind")

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        return f"Gradients({self._arrays!r})"

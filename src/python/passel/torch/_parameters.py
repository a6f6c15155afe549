"""The parameters of a module: which of them are shared, and how their memory is the job's."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

from .._errors import InvalidArgument

_HALVES = (torch.float16, torch.bfloat16)
_EMBEDDINGS = (torch.nn.Embedding, torch.nn.EmbeddingBag)


class _Writable:
    """Shows an array of the library, which is read-only for NumPy, as one that is not."""

    def __init__(self, array: "np.ndarray[Any, Any]") -> None:
        self._array = array  # its memory
        shown = dict(array.__array_interface__)
        shown["data"] = (shown["data"][0], False)
        self.__array_interface__ = shown


def tensor_of(array: "np.ndarray[Any, Any]") -> torch.Tensor:
    """The same memory as a tensor."""
    return torch.from_numpy(array if array.flags.writeable else np.asarray(_Writable(array)))


def grouped(module: torch.nn.Module, params: Any) -> tuple[list[dict[str, Any]], dict[str, torch.nn.Parameter]]:
    """param_groups as torch.optim takes them, and the parameters that are shared by their names, tied ones
    once. Those that need no gradient stay each process's own; empty ones are in the groups alone."""
    names: dict[torch.nn.Parameter, str] = {}
    for name, parameter in module.named_parameters():
        names[parameter] = name
    for name, submodule in module.named_modules():
        if getattr(submodule, "sparse", False) and isinstance(submodule, _EMBEDDINGS):
            raise InvalidArgument(f"the embedding {name!r} has sparse gradients, and the arena dense ones: make it with "
                                  "sparse=False")
    groups = _groups([parameter for parameter in names if parameter.requires_grad] if params is None else params)
    shared: dict[str, torch.nn.Parameter] = {}
    for group in groups:
        for parameter in group["params"]:
            if parameter not in names:
                raise InvalidArgument("a group of params= has a tensor that is no parameter of the model: give parameters "
                                      "of the model alone")
            if parameter.requires_grad:
                if names[parameter] in shared:
                    raise InvalidArgument(f"the parameter {names[parameter]!r} is twice in params=: give it once")
                shared[names[parameter]] = parameter
        group["params"] = [parameter for parameter in group["params"] if parameter.requires_grad]
    shared = {name: parameter for name, parameter in shared.items() if has_place(parameter)}
    if not shared:
        raise InvalidArgument("the model has no parameter that needs a gradient and has values: share() has nothing to train")
    return groups, shared


def check_forward(module: torch.nn.Module, shared: Mapping[str, torch.nn.Parameter]) -> None:
    """Raises where a forward pass would write to values that are the job's."""
    for name, submodule in module.named_modules():
        norm = getattr(submodule, "max_norm", None)
        if norm is not None and isinstance(submodule, _EMBEDDINGS) and any(submodule.weight is each for each in shared.values()):
            raise InvalidArgument(f"the embedding {name!r} has max_norm={norm}, with which a forward pass writes to its values, "
                                  'and these are the job\'s: make it without max_norm, or use optimizer="delta"')


def has_place(parameter: torch.Tensor) -> bool:
    """Whether it has values, which are in the arena. A lazy one will have."""
    return isinstance(parameter, torch.nn.parameter.UninitializedParameter) or parameter.numel() > 0


def check(shared: Mapping[str, torch.nn.Parameter], masters: bool) -> None:
    """Raises for what cannot be shared."""
    for name, parameter in shared.items():
        what = None
        if isinstance(parameter, torch.nn.parameter.UninitializedParameter):
            what = "is not there yet (a lazy module): run the model once before"
        elif parameter.is_meta:
            what = "is on the device meta and has no values: make the model on a real one, as by to_empty()"
        elif parameter.is_inference():
            what = "was made in inference_mode(), in which PyTorch does not count writes: make the model outside"
        elif parameter.is_complex():
            what = f"is of {parameter.dtype}, and passel trains float32: give torch.view_as_real() of it"
        elif parameter.layout is not torch.strided:
            what = f"has the layout {parameter.layout}, and the arena dense values: make it dense"
        elif parameter.dtype in _HALVES:
            if not masters:
                what = (f"is of {parameter.dtype}, and its updates would be lost in rounding: give share() masters=True, "
                        "which keeps float32 ones in the arena")
        elif parameter.dtype is not torch.float32:
            what = f"is of {parameter.dtype}, and passel trains float32: call model.float() before"
        elif parameter.device.type not in ("cpu", "cuda"):
            what = f"is on the device {parameter.device}, and passel knows cpu and cuda: move the model"
        if what is not None:
            raise InvalidArgument(f"the parameter {name!r} {what}")


def check_memory(shared: Mapping[str, torch.nn.Parameter]) -> None:
    """Raises where two lie in the same memory: each will have its own."""
    before: list[tuple[str, torch.nn.Parameter]] = []  # those that reach to where we are
    for name, parameter in sorted(shared.items(), key=lambda each: (str(each[1].device), each[1].data_ptr())):
        before = [each for each in before if each[1].device == parameter.device and _end(each[1]) > parameter.data_ptr()]
        for other, one in before:
            if _overlap(one, parameter):
                raise InvalidArgument(f"the parameters {other!r} and {name!r} are in the same memory, and would come apart: make "
                                      "them one parameter, as by b.weight = a.weight")
        before.append((name, parameter))


def _end(parameter: torch.Tensor) -> int:
    """The address behind it."""
    last = sum((size - 1) * stride for size, stride in zip(parameter.shape, parameter.stride()))
    return parameter.data_ptr() + (last + 1) * parameter.element_size()


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Of two whose ranges of addresses do: views may lie between each other."""
    return bool(np.intersect1d(_addresses(one), _addresses(other)).size)


def _addresses(parameter: torch.Tensor) -> "np.ndarray[Any, Any]":
    found = np.array([parameter.data_ptr()])
    for size, stride in zip(parameter.shape, parameter.stride()):
        found = np.unique(np.add.outer(found, np.arange(size) * stride * parameter.element_size()))
    return found


def first_values(shared: Mapping[str, torch.nn.Parameter]) -> dict[str, "np.ndarray[Any, Any]"]:
    """What join() takes."""
    with torch.no_grad():
        return {name: np.ascontiguousarray(parameter.detach().float().cpu().numpy()).reshape(tuple(parameter.shape))
                for name, parameter in shared.items()}


def is_plain(parameter: torch.Tensor) -> bool:
    """Whether memory of the job can be its values and its gradient."""
    return parameter.dtype is torch.float32 and parameter.device.type == "cpu"


def _groups(params: Any) -> list[dict[str, Any]]:
    given: list[Any] = list(params) if isinstance(params, Iterable) else [None]
    if all(isinstance(group, dict) and "params" in group for group in given) and given:
        made = [dict(group) for group in given]
        for group in made:
            own = group["params"]
            group["params"] = [own] if isinstance(own, torch.Tensor) else list(own)
    else:
        made = [{"params": given}]
    for group in made:
        group["params"] = [each[1] if isinstance(each, tuple) and len(each) == 2 else each for each in group["params"]]
        if not all(isinstance(each, torch.nn.Parameter) for each in group["params"]):
            raise InvalidArgument("params= takes parameters, or groups {\"params\": [...], \"lr\": ...} as torch.optim does: "
                                  "give these")
    return made

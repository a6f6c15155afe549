"""The slots of a job as state_dict() of torch.optim has them, and back."""

from collections.abc import Mapping
from typing import Any

import torch

from .._errors import InvalidArgument
from .._job import Job, OptimizerState
from ._formulas import Formula


def to_torch(job: Job, formula: Formula, groups: list[dict[str, Any]], names: dict[torch.Tensor, str]) -> dict[int, Any]:
    """`state` of state_dict(): by the number of the parameter, in the order of the groups."""
    if not formula.slots or job.global_step == 0:  # PyTorch has no state before the first step
        return {}
    step, slots = job.optimizer_state()
    state: dict[int, Any] = {}
    for number, parameter in enumerate(parameter for group in groups for parameter in group["params"]):
        name = names.get(parameter)  # None: it is empty
        state[number] = {theirs: torch.zeros(parameter.shape) if name is None else torch.tensor(slots[name][f"{name}/{ours}"])
                         for ours, theirs in formula.slots}
        if formula.counts:
            state[number]["step"] = torch.tensor(float(step))
    return state


def from_torch(state_dict: Any, formula: Formula, groups: list[dict[str, Any]],
               names: Mapping[torch.nn.Parameter, str]) -> OptimizerState | None:
    """What join() takes; `groups` get the rates. None: it is that of an optimizer before its first step."""
    try:
        state, saved = state_dict["state"], state_dict["param_groups"]
        counts = [len(group["params"]) for group in saved]
    except (TypeError, KeyError):
        raise InvalidArgument("share(state_dict=) takes what state_dict() of an optimizer has given: give that") from None
    if counts != [len(group["params"]) for group in groups]:
        raise InvalidArgument(f"share(state_dict=) has groups of {counts} parameters, and the model shares groups of "
                              f"{[len(group['params']) for group in groups]}: give that of the same model and params=")
    for group, given in zip(groups, saved):
        for name in ("betas", "eps", "momentum", "nesterov"):
            if name in group and name in given and given[name] != group[name]:
                raise InvalidArgument(f"share(state_dict=) has {name}={given[name]!r}, and share() {group[name]!r}: give share() "
                                      "the same")
        group.update({name: given[name] for name in ("lr", "weight_decay", "initial_lr") if name in given})
    step = 0
    slots: dict[str, dict[str, Any]] = {}
    numbers = [number for group in saved for number in group["params"]]
    parameters = [parameter for group in groups for parameter in group["params"]]
    least = formula.settings.get("initial_accumulator_value", None)
    for number, parameter in zip(numbers, parameters):
        if parameter not in names:  # it is empty
            continue
        own, name = state.get(number, {}), names[parameter]
        missing = [theirs for _, theirs in formula.slots if own and theirs not in own]
        if missing:
            raise InvalidArgument(f"share(state_dict=) has no {missing[0]!r} of {name!r}: give that of the same optimizer")
        # A parameter that never had a gradient has no state.
        slots[name] = {}
        for ours, theirs in formula.slots:
            given = own.get(theirs)
            values = torch.zeros(parameter.shape) if given is None else given.detach().float().cpu()
            slots[name][ours] = (values if least is None else values.clamp(min=least)).contiguous().numpy()
        step = max(step, int(own.get("step", 0)))
    return OptimizerState(step, slots) if state and formula.slots else None

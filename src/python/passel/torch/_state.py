"""The slots of a job as state_dict() of torch.optim has them, and back."""

from typing import Any

import torch

from .._errors import InvalidArgument
from .._job import Job
from ._formulas import Formula


def to_torch(job: Job, formula: Formula, groups: list[dict[str, Any]], names: dict[torch.Tensor, str]) -> dict[int, Any]:
    """`state` of state_dict(): by the number of the parameter, in the order of the groups."""
    if not formula.slots:
        return {}
    read = getattr(job, "optimizer_state", None)
    if read is None:
        return {}
    step, slots = read()
    if step == 0:  # PyTorch has no state before the first step
        return {}
    state: dict[int, Any] = {}
    for number, parameter in enumerate(parameter for group in groups for parameter in group["params"]):
        own = slots[names[parameter]]
        state[number] = {theirs: torch.tensor(own[ours]) for ours, theirs in formula.slots}
        if formula.counts:
            state[number]["step"] = torch.tensor(float(step))
    return state


def from_torch(state_dict: dict[str, Any], formula: Formula, groups: list[dict[str, Any]],
               names: dict[torch.Tensor, str]) -> tuple[int, dict[str, dict[str, Any]]]:
    """What join() takes: the step, and the slots of each variable."""
    state = state_dict.get("state")
    if not isinstance(state, dict):
        raise InvalidArgument("share(state_dict=) takes what state_dict() of an optimizer has given: give that")
    step, slots = 0, {}
    parameters = [parameter for group in groups for parameter in group["params"]]
    if state and len(state) != len(parameters):
        raise InvalidArgument(f"share(state_dict=) has the state of {len(state)} parameters, and the model shares "
                              f"{len(parameters)}: give that of the same model and groups")
    for number, parameter in enumerate(parameters if state else []):
        own, name = state.get(number, {}), names[parameter]
        missing = [theirs for _, theirs in formula.slots if theirs not in own]
        if missing:
            raise InvalidArgument(f"share(state_dict=) has no {missing[0]!r} of {name!r}: give that of the same optimizer")
        slots[name] = {ours: own[theirs].detach().float().cpu().contiguous().numpy() for ours, theirs in formula.slots}
        step = max(step, int(own.get("step", 0)))
    return step, slots

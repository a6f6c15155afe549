"""Which optimizer of passel computes what a class of torch.optim does, and with which settings."""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from .._errors import InvalidArgument
from ._base import add_param_group


class Formula(NamedTuple):
    """The arithmetic of one optimizer, and what PyTorch calls its parts."""

    name: str
    """passel's own name, for the setting optimizer."""
    settings: dict[str, Any]
    defaults: dict[str, Any]
    """Of param_groups; those of the class of torch.optim where there is one."""
    decouples: bool = False
    """The weight decay is made where the update is made; else it is added to the gradient."""
    slots: tuple[tuple[str, str], ...] = ()
    """Pairs of a slot variable of passel and its name in state_dict() of PyTorch."""
    counts: bool = False
    """PyTorch keeps a step for each parameter."""

    def check_groups(self, groups: list[dict[str, Any]]) -> None:
        """Raises where a group has other settings than the job: rate and decay alone are of a group."""
        for number, group in enumerate(groups):
            for name, value in self.defaults.items():
                if name not in OF_GROUPS and group.get(name, value) != value:
                    raise InvalidArgument(f"group {number} has {name}={group[name]!r}, and the job {value!r} for all, since "
                                          "lr and weight_decay alone are of a group or change: give share() the others, "
                                          "and OneCycleLR and CyclicLR cycle_momentum=False")


def _sgd(given: dict[str, Any]) -> Formula:
    _none_of(given, "SGD", dampening=0)
    if given["momentum"] == 0:
        return Formula("sgd", {}, given)
    return Formula("momentum", {"momentum": given["momentum"], "use_nesterov": given["nesterov"]}, given,
                   slots=(("Momentum", "momentum_buffer"),))


def _adam(given: dict[str, Any]) -> Formula:
    decouples = given["decoupled_weight_decay"]
    _none_of(given, "AdamW" if decouples else "Adam", amsgrad=False)
    settings = {"beta1": given["betas"][0], "beta2": given["betas"][1], "epsilon": given["eps"], "weight_decay": 0.0}
    return Formula("adamw", settings, given, decouples, (("AdamW", "exp_avg"), ("AdamW_1", "exp_avg_sq")), True)


def _adagrad(given: dict[str, Any]) -> Formula:
    _none_of(given, "Adagrad", lr_decay=0)
    # The sum begins with eps^2, in place of an eps that is added to its root.
    first = max(given["initial_accumulator_value"], given["eps"] ** 2)
    return Formula("adagrad", {"initial_accumulator_value": first}, given, slots=(("Adagrad", "sum"),), counts=True)


_CLASSES: dict[str, tuple[type[Any], Callable[[dict[str, Any]], Formula], dict[str, Any]]] = {
    "sgd": (torch.optim.SGD, _sgd, {}),
    "momentum": (torch.optim.SGD, _sgd, {"momentum": 0.9}),
    "nesterov": (torch.optim.SGD, _sgd, {"momentum": 0.9, "nesterov": True}),
    "adam": (torch.optim.Adam, _adam, {}),
    "adamw": (torch.optim.AdamW, _adam, {}),
    "adagrad": (torch.optim.Adagrad, _adagrad, {}),
}
OF_GROUPS = ("lr", "weight_decay", "foreach", "fused")
_TENSORFLOW = ("adam", "rmsprop", "adagrad", "ftrl", "momentum", "sgd")


def formula(optimizer: Any, settings: dict[str, Any]) -> tuple[Formula, dict[str, Any]]:
    """The formula of that name or class, with its own arguments taken out of `settings`, and the others."""
    name = optimizer.__name__.lower() if isinstance(optimizer, type) else optimizer
    if isinstance(name, str) and name.startswith("tf.") and name[3:] in _TENSORFLOW:
        return _tensorflow(name[3:], dict(settings))
    if isinstance(optimizer, torch.optim.Optimizer):
        raise InvalidArgument(f"share() makes the optimizer itself, and was given one: give its class, torch.optim."
                              f"{type(optimizer).__name__}, with its arguments, or optimizer=\"delta\" with inner=, that one")
    rate = settings.get("lr")
    if rate is not None and (isinstance(rate, bool) or not isinstance(rate, (int, float, torch.Tensor))):
        raise InvalidArgument(f"lr= is a number, not {rate!r}: give, for example, 0.001")
    if not isinstance(name, str) or name not in _CLASSES:
        known = ", ".join([*_CLASSES, *(f"tf.{each}" for each in _TENSORFLOW)])
        why = " (PyTorch's RMSprop is none of passel's formulas)" if name == "rmsprop" else ""
        raise InvalidArgument(f"share() knows the optimizers {known} and delta, but not {optimizer!r}{why}: use one of "
                              "them, or optimizer=\"delta\" with inner=, your own of torch.optim")
    made_by, of, preset = _CLASSES[name]
    own = [each for each in inspect.signature(made_by).parameters if each != "params"]
    given = {**preset, **{each: settings[each] for each in own if each in settings}}
    try:
        alike: Any = type(made_by.__name__, (made_by,), {"add_param_group": add_param_group})
        defaults = alike([torch.zeros(1)], **given).defaults
    except (IndexError, TypeError, ValueError) as error:
        raise InvalidArgument(f"torch.optim.{made_by.__name__} refuses these arguments of share(): {error}") from None
    _none_of(defaults, made_by.__name__, maximize=False, capturable=False, differentiable=False)
    return of(defaults), {each: value for each, value in settings.items() if each not in own}


def _tensorflow(name: str, settings: dict[str, Any]) -> tuple[Formula, dict[str, Any]]:
    if settings.get("lr") is None:
        raise InvalidArgument(f"the optimizer tf.{name} has no rate: give share() lr=, for example 0.001")
    defaults = {"lr": settings.pop("lr"), "weight_decay": settings.pop("weight_decay", 0.0)}
    return Formula(name, {}, defaults), settings


def _none_of(given: dict[str, Any], name: str, **refused: Any) -> None:
    for argument, only in refused.items():
        if given.get(argument, only) != only:
            raise InvalidArgument(f"passel's {name} has {argument}={only} alone, not {given[argument]!r}: leave it out, or "
                                  "use optimizer=\"delta\" with inner=, your own of torch.optim")

"""share()."""

from typing import Any

import torch

from .. import _arguments
from .._errors import InvalidArgument
from .._job import join
from ._base import JobOptimizer
from ._beside import beside_of
from ._buffers import Buffers, check_policy
from ._delta import DeltaOptimizer
from ._formulas import formula
from ._optimizer import SharedOptimizer
from ._parameters import check, check_forward, check_memory, first_values, grouped, has_place
from ._state import from_torch


def share(model: torch.nn.Module, optimizer: Any = "adam", *, params: Any = None, pull: str = "auto",
          push_every: int = 1, buffers: str = "own", masters: bool = False, state_dict: dict[str, Any] | None = None,
          timeout: float | None = None, **settings: Any) -> JobOptimizer:
    """Joins a job whose variables are the parameters of `model`, and returns its optimizer.

    optimizer: "sgd", "momentum", "nesterov", "adam", "adamw", "adagrad" or such a class: what torch.optim computes
        under that name, with its arguments (lr, betas, eps, weight_decay, ...). "tf.adam", "tf.rmsprop", ...:
        TensorFlow's. "delta": `inner`, an optimizer of your own, trains here, and the job takes the mean, or a
        share (`elastic`), of what it has changed in `push_every` steps.
    params: groups as torch.optim takes them; None: all parameters. Who is in none is not trained.
    pull: "copy": nobody changes the parameters between two steps. "view": they are the shared ones. "auto": a view in
        the modes with rounds, a copy in the others.
    push_every: so many steps make one update, by the mean of their gradients.
    buffers: "own", "chief".
    masters: parameters of float16 and bfloat16 have float32 values in the arena.
    state_dict: slots to begin with, of state_dict() here or of torch.optim. The chief's count.
    settings: those of passel.join(): mode, checkpoint_dir, logs_dir, ...

    Raises an Error of passel whose text names the limit, the value and the fix.
    """
    if pull not in ("auto", "view", "copy"):
        raise InvalidArgument(f'pull= takes "auto", "view" or "copy", not {pull!r}: use one of them')
    if _arguments.whole(push_every, "push_every") < 1:
        raise InvalidArgument(f"push_every is steps for one update, 1 or more, not {push_every}: give that")
    if not isinstance(model, torch.nn.Module):
        raise InvalidArgument(f"share() takes a torch.nn.Module, not a {type(model).__name__}: give your model")
    check_policy(buffers, model)
    if "learning_rate" in settings:
        raise InvalidArgument("share() calls the learning rate lr, as torch.optim does: give that")
    if optimizer == "delta":
        for name, given, default in (("params", params, None), ("pull", pull, "auto"), ("masters", masters, False)):
            if given != default:
                raise InvalidArgument(f'with optimizer="delta" the parameters are those of inner=, and this process\'s own: omit '
                                      f"{name}=")
        return _delta(model, push_every, buffers, timeout, state_dict, settings)
    return _shared(model, optimizer, params, pull, push_every, buffers, masters, state_dict, timeout, settings)


def _shared(model: torch.nn.Module, optimizer: Any, params: Any, pull: str, push_every: int, buffers: str, masters: bool,
            state_dict: dict[str, Any] | None, timeout: float | None, settings: dict[str, Any]) -> SharedOptimizer:
    rule, others = formula(optimizer, settings)
    groups, shared = grouped(model, params)
    check(shared, masters)
    check_forward(model, shared)
    check_memory(shared)
    opt = SharedOptimizer(groups, rule)
    rule.check_groups(opt.param_groups)
    names = {parameter: name for name, parameter in shared.items()}
    with_place = [list(filter(has_place, group["params"])) for group in opt.param_groups]
    filled = [parameters for parameters in with_place if parameters]
    if len(filled) > 16:
        raise InvalidArgument(f"params= has {len(filled)} groups, and a job at most 16: merge some")
    state = None if state_dict is None else from_torch(state_dict, rule, opt.param_groups, names)
    opt.is_decayed = any(group.get("initial_lr", group["lr"]) != group["lr"] for group in opt.param_groups)
    numbers = {names[parameter]: number for number, group in enumerate(filled) for parameter in group}
    rate, decay = opt._rates_now()[0]
    own = {**rule.settings, "learning_rate": rate, **({"weight_decay": decay} if rule.decouples else {})}
    job = join(first_values(shared), groups=numbers, optimizer_state=state, timeout=timeout, optimizer=rule.name,
               **own, **others)
    opt.begins_with = None if state is None else state.step
    try:
        opt.begin(job, model, shared, pull, push_every, Buffers(model, job, buffers), beside_of(others, job.is_chief))
    except BaseException:
        job.leave()
        raise
    return opt


def _delta(model: torch.nn.Module, push_every: int, buffers: str, timeout: float | None, state_dict: Any,
           settings: dict[str, Any]) -> DeltaOptimizer:
    inner = settings.pop("inner", None)
    elastic = settings.pop("elastic", None)
    if not isinstance(inner, torch.optim.Optimizer):
        raise InvalidArgument('optimizer="delta" needs inner=, the optimizer that trains here: give, for example, '
                              "torch.optim.SGD(model.parameters(), lr=0.1)")
    if "lr" in settings or state_dict is not None:
        raise InvalidArgument('with optimizer="delta" the rates and the state are those of inner=: give them to it')
    if elastic is not None and (isinstance(elastic, bool) or not isinstance(elastic, (int, float)) or not 0 < elastic <= 1):
        raise InvalidArgument(f"elastic= is the share of the difference that is taken, above 0 and up to 1, not {elastic!r}: "
                              "give, for example, 0.1")
    _, shared = grouped(model, inner.param_groups)
    check(shared, masters=True)
    opt = DeltaOptimizer(inner, None if elastic is None else float(elastic))
    job = join(first_values(shared), timeout=timeout, optimizer="sgd", learning_rate=float(elastic or 1), **settings)
    try:
        opt.begin(job, shared, push_every, Buffers(model, job, buffers), beside_of(settings, job.is_chief))
    except BaseException:
        job.leave()
        raise
    return opt

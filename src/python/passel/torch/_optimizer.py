"""The optimizer of share() whose update passel makes."""

import weakref
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

import torch
from torch.autograd.graph import increment_version

from .._errors import DeadlineExceeded, FailedPrecondition, InvalidArgument
from .._job import PULLS, Job
from .._library import _core
from ._base import JobOptimizer, in_words_of_steps
from ._beside import Beside
from ._buffers import Buffers
from ._formulas import OF_GROUPS, Formula
from ._parameters import has_place, is_plain, tensor_of
from ._pinned import Pinned
from ._state import to_torch


class Guard:
    """A hook of a module that asks its optimizer. In a copy of the module, or a file, it asks nobody."""

    def __init__(self, optimizer: "SharedOptimizer | None", method: str) -> None:
        self._optimizer = None if optimizer is None else weakref.ref(optimizer)
        self._method = method

    def __call__(self, *arguments: Any) -> None:
        optimizer = None if self._optimizer is None else self._optimizer()
        if optimizer is not None:
            getattr(optimizer, self._method)(*arguments)

    def __reduce__(self) -> Any:
        return Guard, (None, self._method)


class SharedOptimizer(JobOptimizer):
    """Used as one of torch.optim; of share().

    Invariant, between two calls: the values of each shared parameter of float32 on the CPU are the copy of
    the last pull, or in view the shared ones. Gradients are PyTorch's own: an addition into memory of the
    job would cost more than a copy, which only those who share them need. With push_every those of the steps
    before are in a sum of this process's own. What is computed here is on tensors without a history, so
    that no_grad() has nothing to do.
    """

    def __init__(self, groups: list[dict[str, Any]], formula: Formula) -> None:
        super().__init__(groups, formula.defaults)
        self._hooks: list[Any] = []
        self._pinned: Pinned | None = None
        self._formula = formula
        self._settings_of = itemgetter("lr", "weight_decay", *(name for name in formula.defaults if name not in OF_GROUPS))
        self._settings: Any = None  # of each group; None: not known
        self._rates_due = False  # others may be in force
        self._decays: list[tuple[list[int], float]] = []  # of parameters, to be added to gradients

    def begin(self, job: Job, module: torch.nn.Module, shared: Mapping[str, torch.nn.Parameter], pull: Any,
              push_every: int, buffers: Buffers, beside: Beside | None) -> None:
        """Takes the first values."""
        self._pull: Any = pull
        self._parameters = list(shared.values())
        self._names = list(shared)
        self._plain = [is_plain(parameter) for parameter in self._parameters]
        self._watch = _core.Watch(self._parameters, self._plain, torch.float32)
        self._staged = [(i, parameter.data) for i, parameter in enumerate(self._parameters) if not self._plain[i]]
        devices = {parameter.device for parameter in self._parameters if parameter.device.type == "cuda"}
        if devices:
            self._pinned = Pinned(devices)
        self._frozen = [(name, parameter) for name, parameter in module.named_parameters()
                        if has_place(parameter) and all(parameter is not each for each in self._parameters)]
        numbers = {parameter: number for number, parameter in enumerate(self._parameters)}
        self._of_group = [[numbers[parameter] for parameter in group["params"] if parameter in numbers]
                          for group in self.param_groups]
        self._sums = [torch.zeros(parameter.shape, dtype=torch.float32, device="cpu")
                      for parameter in self._parameters] if push_every > 1 else []
        self._tensors: dict[int, torch.Tensor] = {}  # by the id of the array, which it keeps
        self._moves = -1
        self._values: list[torch.Tensor] = []
        self._gradients: list[torch.Tensor] = []  # in the memory of the job: of no meaning between two calls
        # Those of join() are of all groups, and others may be in force in a job that goes on.
        rates = self._rates_now()
        self._rates = rates if len(rates) == 1 and job.global_step == 0 else []
        self._how = PULLS[pull]
        self._begin(job, buffers, beside, push_every)
        self._renew()
        hooks: Any = module  # they have no hints
        self._hooks = [hooks.register_load_state_dict_pre_hook(Guard(self, "_before_load")),
                       hooks.register_load_state_dict_post_hook(Guard(self, "_after_load"))]

    # --- As torch.optim has it -------------------------------------------------------------------

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Hands in the gradients, waits for the update, and takes the values of then. There are no gradients after
        it: each p.grad is None.

        Returns what `closure` has returned. Raises passel.Cancelled once the job is stopped and a step has
        shown it, passel.Diverged for a gradient with NaN or infinity, which is not handed in, and
        passel.DeadlineExceeded where the update takes too long. Then zero_grad() before another backward()
        waits for it again; so does step() in its place, and without a closure this is all that it does.
        """
        if self._stands:
            self._settle()
            if closure is None:
                return None
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._optimizer_step_pre_hooks:
            self._hooked(self._optimizer_step_pre_hooks, (closure,))
        self._check()
        self._collect()
        if self.pushes_next:
            self._hand_in(self._push_every)
        else:
            torch._foreach_add_(self._sums, self._gradients)
            self._waiting += 1
        self._watch.drop_gradients()
        if self._optimizer_step_post_hooks:
            self._hooked(self._optimizer_step_post_hooks, (closure,))
        return loss

    step.hooked = True  # type: ignore[attr-defined]  # the hooks are called here

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As of any optimizer. What step() has summed up with push_every stays."""
        if self._stands:
            self._settle()
        if set_to_none:
            self._watch.drop_gradients()
            return
        for parameter in self._parameters:
            gradient = parameter.grad
            if gradient is None:
                continue
            if gradient.grad_fn is not None:
                gradient.detach_()
            else:
                gradient.requires_grad_(False)
            gradient.zero_()

    def state_dict(self) -> dict[str, Any]:
        """As the optimizer of torch.optim of that name has it, with its slots: a copy of those of now."""
        if self.job._left:
            raise FailedPrecondition("the slots were the job's, and this process has left it: call state_dict() before the end of "
                                     "the with block, or leave()")
        layout = super().state_dict()
        layout["state"] = to_torch(self.job, self._formula, self.param_groups, dict(zip(self._parameters, self._names)))
        layout["passel"] = {"job": self.job.id, "beginning": self._core.beginning()[0], "global_step": self.job.global_step}
        return layout

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes the settings of the groups, as rates. Slots are in the arena: those of state_dict() of this very
        job stay as they are now, and those of others are given to share(state_dict=)."""
        origin = state_dict.get("passel", {})
        own = origin.get("job") == self.job.id and origin.get("beginning") == self._core.beginning()[0]
        if state_dict.get("state") and not own:
            raise FailedPrecondition("load_state_dict() was given the slots of another optimizer, and those of this job are "
                                     "in its arena: give them to share(state_dict=...)")
        self._formula.check_groups(state_dict["param_groups"])
        groups = [{**own, **given} for own, given in zip(self.param_groups, state_dict["param_groups"])]
        super().load_state_dict({"state": {}, "param_groups": groups + state_dict["param_groups"][len(groups):]})

    # --- A step ----------------------------------------------------------------------------------

    def _check(self) -> None:
        if self.job._left:
            raise FailedPrecondition("step() of an optimizer that has left its job: the model is this process's own again, so "
                                     "make another optimizer for it, or share() it anew")
        if (changed := self._watch.changed()) is not None:
            self._complain(*changed)
        for name, parameter in self._frozen:
            if parameter.grad is not None:
                raise FailedPrecondition(f"the parameter {name!r} has a gradient, and was not shared, since it needed none, or was "
                                         "in no group of params=, at share(): call requires_grad_(False) of it and set its grad "
                                         "to None, or have it in params= and with requires_grad before share()")
        if list(map(self._settings_of, self.param_groups)) != self._settings:
            self._take_settings()

    def _collect(self) -> None:
        """The next push is of the gradients, of 0 where there is none. Where something is done with them before, they are
        in the memory of the job."""
        others = self._core.take_gradients(self._watch, self._push_every == 1 and not self._decays)
        for i in others:
            given: Any = self._parameters[i].grad
            if given.layout is not torch.strided:
                raise InvalidArgument(f"the gradient of {self._names[i]!r} has the layout {given.layout}, and the arena dense ones: "
                                      "make it dense, as by sparse=False of what gives it")
            self._gradients[i].copy_(given.detach(), non_blocking=True)
        if others and self._pinned is not None:
            self._pinned.wait()

    def _hand_in_rest(self) -> None:
        self._check()
        self._core.zero_gradients()  # of a backward() without a step()
        self._hand_in(self._waiting)

    def _hand_in(self, steps: int) -> None:
        """The mean of so many."""
        if self._push_every > 1:
            torch._foreach_add_(self._gradients, self._sums)
            torch._foreach_mul_(self._gradients, 1 / steps)
            torch._foreach_zero_(self._sums)
            self._waiting = 0
        for places, decay in self._decays:
            torch._foreach_add_([self._gradients[i] for i in places], [self._values[i] for i in places], alpha=decay)
        if self._rates_due:
            self._set_rates()
        if self._pinned is not None:
            self._pinned.wait()  # for copies of the values that the pull writes over
        try:
            done = self.job._exchange(self._how)
        except BaseException as error:
            self._stands = self._core.handed_in()
            if isinstance(error, DeadlineExceeded) and not self._stands:  # it is given up
                self._take()
            in_words_of_steps(error)
            raise
        if done is None:
            self.job.push()
            self._stands = True
            self._settle()
            return
        if done[4] < 0:
            self._renew()
        else:
            self._show(done[4])
        self._stepped(done)

    def _take(self) -> None:
        self._renew()
        self._watch.drop_gradients()

    def _after_leave(self) -> None:
        try:
            super()._after_leave()
        finally:
            for hook in self._hooks:
                hook.remove()
            if self._pinned is not None:
                self._pinned.clear()

    def _renew(self) -> None:
        """The values of now."""
        if self._pinned is not None:
            self._pinned.wait()
        self.job.pull(self._pull)
        if self.job._over:
            return
        self._core.gradients()
        self._show(self._core.moves())

    def _show(self, moves: int) -> None:
        """The tensors are of what was pulled, and of where the next gradients go. PyTorch counts that as a write, so
        that backward() through what was computed of the values before says so."""
        if moves != self._moves:
            self._point(moves)
        for i, values in self._staged:
            values.copy_(self._values[i], non_blocking=True)
        increment_version(self._parameters)
        self._watch.note_values()

    def _point(self, moves: int) -> None:
        """The values of the parameters are where the arrays of the job are now."""
        self._moves = moves
        values, arrays = self.job._values, self._core.gradients()
        if len(self._tensors) > 32 * len(self._names):
            if self._pinned is not None:
                self._pinned.clear()
            self._tensors.clear()
        self._values = [self._tensor(values[name]) for name in self._names]
        self._gradients = [self._tensor(arrays[name]) for name in self._names]
        if self._pinned is not None:
            of_devices = [i for i, parameter in enumerate(self._parameters) if parameter.device.type == "cuda"]
            self._pinned.add(self._values[i] for i in of_devices)
            self._pinned.add(self._gradients[i] for i in of_devices)
        for i, parameter in enumerate(self._parameters):
            if self._plain[i]:
                parameter.data = self._values[i]
        self._watch.point()

    def _tensor(self, array: Any) -> torch.Tensor:
        known = self._tensors.get(id(array))
        if known is None:
            known = self._tensors[id(array)] = tensor_of(array)
            known._array = array  # type: ignore[attr-defined]  # so that no other has its id
        return known

    # --- Settings of groups ----------------------------------------------------------------------

    def _take_settings(self) -> None:
        self._formula.check_groups(self.param_groups)
        now = list(map(self._settings_of, self.param_groups))
        # What can be another without being another object is looked at in each step.
        self._settings = None if any(isinstance(each, (torch.Tensor, list)) for group in now for each in group) else now
        self._rates_due = self.job._is_chief
        # Decay that is not made with the update is a part of the gradient.
        self._decays = [] if self._formula.decouples else [
            (places, group["weight_decay"]) for group, places in zip(self.param_groups, self._of_group)
            if places and group["weight_decay"]]

    def _set_rates(self) -> None:
        rates = self._rates_now()
        if rates != self._rates:
            self.job.set_rates(rates)
            self._rates = rates
        self._rates_due = False

    def _rates_now(self) -> list[tuple[float, float]]:
        decouples = self._formula.decouples
        return [(float(group["lr"]), float(group["weight_decay"]) if decouples else 0.0)
                for group in self.param_groups if any(map(has_place, group["params"]))]

    # --- What would be lost ----------------------------------------------------------------------

    def _complain(self, number: int, moved: bool) -> None:
        if moved:
            raise FailedPrecondition(f"the parameter {self._names[number]!r} has got other memory than the job's, or another shape, "
                                     "as by model.to(), model.half(), pruning, share_memory(), or a queue of torch.multiprocessing "
                                     "that it was put in: do that before share(), and put copies (clone()) in queues")
        raise FailedPrecondition(f"the parameter {self._names[number]!r} was written to since the last step, and the job's "
                                 "values are others: load or change values before share(), or after opt.leave()")

    def _after_load(self, module: torch.nn.Module, keys: Any) -> None:
        self._watch.note_values()

    def _before_load(self, module: torch.nn.Module, state_dict: Mapping[str, Any], prefix: str, metadata: Any,
                     *_: Any) -> None:
        if self.job._left:
            return
        if (changed := self._watch.changed()) is not None:
            self._complain(*changed)
        if metadata.get("assign_to_params_buffers"):
            raise FailedPrecondition("load_state_dict(assign=True) gives the model other parameters than the job's: do it "
                                     "before share(), or after opt.leave()")
        own = module.state_dict(prefix=prefix)
        for name, parameter in own.items():
            given = state_dict.get(name)
            if isinstance(given, torch.Tensor) and given.shape == parameter.shape and not torch.equal(
                    given.to(parameter), parameter) and any(parameter.data_ptr() == each.data_ptr() for each in self._parameters):
                raise FailedPrecondition(f"load_state_dict() has other values of {name!r} than the job: load them before "
                                         "share(), or after opt.leave()")

"""The optimizer of share(optimizer="delta"): one of torch.optim trains here, the job takes what it has changed."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from .._errors import DeadlineExceeded, Diverged, FailedPrecondition
from .._job import Job
from ._base import JobOptimizer
from ._beside import Beside
from ._buffers import Buffers
from ._parameters import tensor_of


class DeltaOptimizer(JobOptimizer):
    """Used as `inner`; of share(). Parameters and gradients are this process's own.

    Each push_every steps, with w the values here, and c those of the job:
      without elastic  hands in what w has changed since it was c, and goes on with the new c. In rounds c is the
                       mean of all w (local SGD); without rounds the changes of all add up.
      with elastic a   c += a (w - c), and w -= a (w - c), by the c of before (elastic averaging).
    """

    def __init__(self, inner: torch.optim.Optimizer, elastic: float | None) -> None:
        super().__init__([{"params": group["params"]} for group in inner.param_groups], {})
        self._inner = inner
        self._elastic = elastic
        self.defaults = inner.defaults
        self._link()

    def begin(self, job: Job, shared: Mapping[str, torch.nn.Parameter], push_every: int, buffers: Buffers,
              beside: Beside | None) -> None:
        self._shared = shared
        self._shapes = [parameter.shape for parameter in shared.values()]
        self._begin(job, buffers, beside, push_every)
        self.track(inner=self._inner)
        self._link()
        self._start = [torch.empty(shape, dtype=torch.float32, device="cpu") for shape in self._shapes]
        self._centre()
        torch._foreach_copy_(self._own(), self._start)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """A step of `inner`, and each push_every of them one of the job.

        After passel.DeadlineExceeded zero_grad() waits for the exchange again; so does step() in its place,
        and without a closure this is all that it does, since the gradients are of values before.
        """
        if self._stands:
            self._settle()
            if closure is None:
                return None
        if self._optimizer_step_pre_hooks:
            self._hooked(self._optimizer_step_pre_hooks, (closure,))
        loss = self._inner.step(closure)
        self._waiting += 1
        if self._waiting >= self._push_every:
            self._hand_in_rest()
        if self._optimizer_step_post_hooks:
            self._hooked(self._optimizer_step_post_hooks, (closure,))
        return loss

    step.hooked = True  # type: ignore[attr-defined]  # the hooks are called here

    def zero_grad(self, set_to_none: bool = True) -> None:
        if self._stands:
            self._settle()
        self._inner.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """That of inner."""
        return self._inner.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._inner.load_state_dict(state_dict)
        self._link()

    def _link(self) -> None:
        """Groups and state are those of inner, for schedulers; its load_state_dict() makes new ones."""
        self.param_groups, self.state = self._inner.param_groups, self._inner.state

    @torch.no_grad()
    def _hand_in_rest(self) -> None:
        self._waiting = 0
        self._exchange()

    def _own(self) -> list[torch.Tensor]:
        """The values here, in whatever memory the parameters have by now."""
        own = [parameter.data for parameter in self._shared.values()]
        for name, values, shape in zip(self._shared, own, self._shapes):
            if values.shape != shape:
                raise FailedPrecondition(f"the parameter {name!r} is of the shape {tuple(values.shape)} by now, and the job's of "
                                         f"{tuple(shape)}: change the model before share(), or after opt.leave()")
        return own

    def _exchange(self) -> None:
        here = self._own()
        if self._elastic is not None:
            self._centre()
        arrays = self.job.gradients
        for name, own, start in zip(self._shared, here, self._start):
            change = tensor_of(arrays[name])
            torch.sub(start, own.float().cpu(), out=change)
        try:
            self.job.push()
        except DeadlineExceeded:  # it is given up, and the next exchange has all that has changed
            self._renew()
            raise
        except Diverged as error:
            raise Diverged(str(error).replace(" the gradient of variable ", " what has changed of the parameter ").replace(
                "overwrite it and push again, or lower the learning rate",
                "give the parameters here finite values, and lower the learning rate of inner")) from None
        self._stands = True
        if self._elastic is not None:
            for own, start in zip(here, self._start):
                own.add_((start - own.float().cpu()).to(own), alpha=self._elastic)
        self._settle()

    def _take(self) -> None:
        if self._elastic is None:
            self._centre()
            torch._foreach_copy_(self._own(), self._start)

    def _centre(self) -> None:
        """The job's values of now."""
        values = self.job.pull("view")
        torch._foreach_copy_(self._start, [tensor_of(values[name]) for name in self._shared])

    def _renew(self) -> None:
        """After save(), which wants a pull: the changes are still those since the last exchange."""
        self.job.pull("view")

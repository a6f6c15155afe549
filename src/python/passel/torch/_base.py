"""What both optimizers of share() have: the job, buffers, schedules, what is saved beside checkpoints."""

import collections
import inspect
import time
from collections.abc import Callable
from typing import Any

import torch

from .._errors import Cancelled, DeadlineExceeded, Diverged, FailedPrecondition, InvalidArgument
from .._job import Job, Outcome
from .._warn import warn
from ._beside import Beside, check_readable
from ._buffers import Buffers


_REMEMBERED = 1 << 14  # updates of which it is known how far tracked schedulers were
_SIGNAL_IS_HEARD = 1.0  # seconds

# What torch.optim.Optimizer has these in imports torch.compile's compiler at the first call, which takes seconds of
# each process, to keep it out of them. It is not there.
add_param_group, _state_dict, _load_state_dict = (
    inspect.unwrap(each) for each in (torch.optim.Optimizer.add_param_group, torch.optim.Optimizer.state_dict,
                                      torch.optim.Optimizer.load_state_dict))


class JobOptimizer(torch.optim.Optimizer):
    """An optimizer whose update is made in a job. One thread at a time, as its job."""

    job: Job
    """The job that share() has joined."""
    begins_with: int | None = None
    """The step of share(state_dict=)."""
    is_decayed = False
    """share(state_dict=) had rates that a scheduler had changed."""
    def __init__(self, groups: list[dict[str, Any]], defaults: dict[str, Any]) -> None:
        self._complete = False
        self._stands = False  # a push whose outcome is not known
        super().__init__(groups, defaults)
        self._complete = True

    def _begin(self, job: Job, buffers: Buffers, beside: Beside | None, push_every: int) -> None:
        self.job = job
        self._core = job._core
        self._buffers = buffers
        self._beside = beside
        self._push_every = push_every
        self._waiting = 0  # steps since the last push
        self._fails = False
        self._outcome: tuple[Any, ...] | None = None
        self._followers: list[tuple[Any, int]] = []
        self._tracked: dict[str, Any] = {}
        self._resumed: dict[str, Any] = {}
        self._saved_groups: list[dict[str, Any]] = []
        self._schedulers: dict[str, Any] = {}  # of those that are tracked
        self._epochs: collections.deque[tuple[int, tuple[int, ...]]] = collections.deque(maxlen=_REMEMBERED)
        self._resumed_epochs: dict[str, int] = {}
        self._lacks = ""  # why what track() finds is of other steps than this worker
        job._before_leave.append(self._push_rest)
        job._at_leave.append(self._after_leave)
        job._after_save.append(self._renew)
        if beside is not None and job.global_step > 0:
            self._resume(beside)

    # --- For the script --------------------------------------------------------------------------

    @property
    def pushes_next(self) -> bool:
        """Whether the next step() hands in a gradient: with push_every not each of them does."""
        return self._waiting + 1 >= self._push_every

    @property
    def outcome(self) -> Outcome | None:
        """What became of the last gradient that was handed in."""
        return None if self._outcome is None else Outcome(*self._outcome[:4])

    def metric(self, **values: float) -> None:
        """As Job.metric(): shows numbers in progress, report, TensorBoard."""
        self.job.metric(**values)

    def follow(self, scheduler: Any, every: int = 1) -> None:
        """Steps that scheduler from now on, so that it has been stepped global_step // every times: the same
        in all workers, after a restart, and when the job goes on from a checkpoint. One with a last step, as
        OneCycleLR, stays there."""
        if not isinstance(scheduler, torch.optim.lr_scheduler.LRScheduler) or not _counts(scheduler):
            raise InvalidArgument(f"follow() takes a scheduler of torch.optim.lr_scheduler that counts its steps in last_epoch and "
                                  f"needs nothing else, not {type(scheduler).__name__}: step that yourself, and track() it")
        if not isinstance(every, int) or every < 1:
            raise InvalidArgument(f"follow() takes updates per step of the scheduler, 1 or more, not {every!r}: give that")
        if self.is_decayed and scheduler.last_epoch == 0 and self.job.global_step >= every:
            raise FailedPrecondition("share(state_dict=) has rates that a scheduler has made, and follow() would make them "
                                     "again from its first step: give the scheduler its own state before, by load_state_dict()")
        self._followers.append((scheduler, every))
        self._opt_called = True  # the scheduler may go on without a step() before it
        self._advance(self.job.global_step)

    def track(self, **objects: Any) -> None:
        """Saves the state of these (a scheduler, a scaler, ...: what has state_dict() and load_state_dict())
        beside each checkpoint of the chief; in a job that goes on from one it is loaded here."""
        for name, what in objects.items():
            if not hasattr(what, "state_dict") or not hasattr(what, "load_state_dict"):
                raise InvalidArgument(f"track() was given {name}={what!r}, which has no state_dict() and "
                                      "load_state_dict(): give what has both")
            if self._beside is not None:
                check_readable(name, what.state_dict())
            self._tracked[name] = what
            if self._schedules(what) and _counts(what):
                self._schedulers[name] = what
                self._epochs.clear()
            if self._lacks:
                warn(f"{self._lacks}: what is tracked goes on from there")
                self._lacks = ""
            if name in self._resumed:
                self._take_up(name, what)

    def _take_up(self, name: str, what: Any) -> None:
        saved, epochs = self._resumed.pop(name), self._resumed_epochs.pop(name, None)
        counts = self._schedules(what) and _counts(what)
        if not counts or epochs is None or epochs == saved.get("last_epoch") or what.last_epoch > epochs:
            what.load_state_dict(saved)
            if self._schedules(what):  # which does not set them
                for group, rates in zip(self.param_groups, self._saved_groups):
                    group.update(rates)
            return
        # What was saved is of some steps after the checkpoint.
        self._opt_called = True  # it may go on without a step() before it
        while what.last_epoch < epochs:
            what.step()

    def save(self, timeout: float | None = None) -> int:
        """As Job.save(), and what is tracked beside it. Returns the global step."""
        self._settle()
        step = self.job.save(timeout)
        if self._beside is not None:
            self._beside.commit(step, self._state_beside(None))
        return step

    def leave(self) -> None:
        """As Job.leave(): parameters and gradients keep what is in them, and are this process's own. Steps that
        push_every has not handed in make one more update before, unless the job was stopped."""
        self.job.leave()

    def __enter__(self) -> "JobOptimizer":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> bool:
        if isinstance(error, Exception) and _of_loader(trace) and self._is_told_to_go():
            # The signal of the command has also ended the processes of torch.utils.data.DataLoader.
            kind, error = Cancelled, Cancelled("the job was stopped, and the loader's processes have ended")
        self._fails = isinstance(error, Exception) and not isinstance(error, Cancelled)
        return self.job.__exit__(kind, error, trace)

    def _is_told_to_go(self) -> bool:
        deadline = time.monotonic() + _SIGNAL_IS_HEARD
        while not self.job._left and not self.job.stopped and time.monotonic() < deadline:
            time.sleep(0.01)
        return not self.job._left and self.job.stopped

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise FailedPrecondition("an optimizer of share() is this worker's place in its job and cannot be copied or saved: give "
                                 "copy.deepcopy(), torch.save() or pickle its state_dict()")

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        if getattr(self, "_complete", False):
            raise InvalidArgument("the job's variables are those of share(), and a parameter cannot be added later: make "
                                  "the model whole before share()")
        add_param_group(self, param_group)

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = _state_dict(self)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        _load_state_dict(self, state_dict)

    # --- After each push -------------------------------------------------------------------------

    def _renew(self) -> None:
        """After save(): arrays may be others."""
        raise NotImplementedError

    def _take(self) -> None:
        """After an update."""
        raise NotImplementedError

    def _hand_in_rest(self) -> None:
        """The update of the steps that wait."""
        raise NotImplementedError

    def _push_rest(self) -> None:
        """Before it leaves. No step waits where a push stands."""
        try:
            if self._waiting > 0 and not self.job.stopped:
                self._hand_in_rest()
        except Cancelled:  # nobody's gradients count any more
            pass

    def _settle(self) -> None:
        """Waits for the outcome of a push that stands, whose gradients are not to be touched before."""
        if not self._stands:
            return
        try:
            outcome = self.job.wait() if self._core.pushed() or self.job._skips else None
        except DeadlineExceeded as error:
            in_words_of_steps(error)
            raise
        self._stands = False
        self._take()
        if outcome is not None:
            self._stepped(outcome)

    def _stepped(self, outcome: tuple[Any, ...]) -> None:
        """outcome: what an Outcome has, and more."""
        self._outcome, global_step = outcome, outcome[2]
        self._buffers.stepped(global_step)
        if self._followers:
            self._advance(global_step)
        if self._beside is None:
            return
        if self._schedulers:
            self._epochs.append((global_step, tuple(each.last_epoch for each in self._schedulers.values())))
        if self._beside.is_due():
            self._beside.commit_newest(self._state_beside, before=global_step)

    def _advance(self, global_step: int) -> None:
        for scheduler, every in self._followers:
            last = min(global_step // every, getattr(scheduler, "total_steps", global_step))
            while scheduler.last_epoch < last:
                scheduler.step()

    def _hooked(self, hooks: dict[int, Callable[..., Any]], arguments: tuple[Any, ...]) -> None:
        for hook in list(hooks.values()):
            hook(self, arguments, {})

    # --- Beside checkpoints ----------------------------------------------------------------------

    def _state_beside(self, step: int | None) -> dict[str, Any]:
        """step: that of the checkpoint, if it may have been some steps ago."""
        return {"epochs": self._epochs_at(step), "global_step": self.job.global_step if not self.job._left else None,
                "tracked": {**self._resumed, **{name: what.state_dict() for name, what in self._tracked.items()}},
                "groups": [{name: float(group[name]) for name in ("lr", "weight_decay") if name in group}
                           for group in self.param_groups],
                "buffers": self._buffers.state(), "random": random_state()}

    def _epochs_at(self, step: int | None) -> dict[str, int]:
        """How far the schedulers that are tracked were then: a script steps them after step(), so the first look
        after it tells."""
        later = next((epochs for at, epochs in self._epochs if step is not None and at > step), None)
        known = self._epochs and (step is None or self._epochs[0][0] <= step)
        if later is not None and known:
            return dict(zip(self._schedulers, later))
        return {name: each.last_epoch for name, each in self._schedulers.items()}

    def _resume(self, beside: Beside) -> None:
        _, began, is_own, is_of_checkpoint = self._core.beginning()
        if is_own and not is_of_checkpoint:
            return
        # A chief that comes again, into values that have gone on, takes what it has tracked last.
        comes_again = self.job.is_chief and not is_own
        step = began if is_own else self.job.global_step
        found, state = beside.newest(step)
        is_late = found != step if self.job.is_chief else found < began
        if state is None or is_late:
            there = f"the newest file beside its checkpoints in {beside.where()} is of step {found}" if state else (
                f"nothing is beside its checkpoints in {beside.where()}")
            if comes_again:
                self._lacks = f"the chief comes again at global step {step}, and {there}"
            elif began > 0 and (is_own or began != self.begins_with):
                warn(f"the job goes on from global step {began}, and {there}: buffers and what is tracked " + (
                    "are of then, and random state begins anew" if state else "begin anew"))
        if state is None:
            return
        self._resumed, self._saved_groups = state["tracked"], state["groups"]
        self._resumed_epochs = state["epochs"]
        self._buffers.restore(state["buffers"])
        if found == step and self.job.is_chief:
            set_random_state(state["random"])

    def _schedules(self, what: Any) -> bool:
        """Whether it changes the rates here."""
        return isinstance(what, torch.optim.lr_scheduler.LRScheduler) and what.optimizer.param_groups is self.param_groups

    def _after_leave(self) -> None:
        try:
            if self._beside is not None and self.job.is_chief:
                self._beside.commit_newest(self._state_beside)
        finally:
            self._buffers.close(comes_again=self._fails)


def in_words_of_steps(error: BaseException) -> None:
    """What a sentence says of push() and wait(), said of this optimizer."""
    if isinstance(error, DeadlineExceeded | Diverged):
        said = str(error).replace("call wait() again", "go on with zero_grad() and step(), which wait for it again")
        error.args = (said.replace("overwrite it and push again", "call zero_grad() and go on with another batch"),)


def _counts(scheduler: Any) -> bool:
    """Whether so many calls of step() make its state: not for one that looks at a metric, or counts elsewhere."""
    return (isinstance(getattr(scheduler, "last_epoch", None), int) and
            not isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau))


def _of_loader(trace: Any) -> bool:
    """Whether an error came out of a DataLoader."""
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__") == "torch.utils.data.dataloader":
            return True
        trace = trace.tb_next
    return False


def random_state() -> dict[str, Any]:
    """Of PyTorch, its CUDA devices if this process uses any, NumPy and Python, as tensors and plain values."""
    import random

    import numpy as np
    kind, keys, place, has, gauss = np.random.get_state()
    devices: Any = torch.cuda  # parts of it have no hints
    cuda = devices.get_rng_state_all() if devices.is_initialized() else []
    return {"torch": torch.get_rng_state(), "cuda": cuda, "python": list(random.getstate()),
            "numpy": [kind, torch.from_numpy(np.asarray(keys).astype(np.int64)), place, has, gauss]}


def set_random_state(state: dict[str, Any]) -> None:
    import random

    import numpy as np
    torch.set_rng_state(state["torch"])
    for device, own in enumerate(state.get("cuda", [])[:torch.cuda.device_count()]):
        torch.cuda.set_rng_state(own, device)
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    kind, keys, place, has, last = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), place, has, last))

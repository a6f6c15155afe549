"""join() and the job that it returns."""

import atexit
import multiprocessing
import os
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from . import _arguments, _signals
from ._errors import AlreadyExists, Cancelled, FailedPrecondition, InvalidArgument
from ._gradients import Array, Gradients
from ._library import _core
from ._sampler import Sampler, whole
from ._warn import warn

Pull = Literal["auto", "view", "copy"]

PULLS = {"auto": 0, "view": 1, "copy": 2}
_open: "Job | None" = None  # until it leaves: no collector of garbage ends a job whose memory somebody has


class Outcome(NamedTuple):
    """What became of one gradient."""

    applied: bool
    """False: it came too late for its round."""
    gradients: int
    """So many of this worker share this fate; mode replicas alone: not always 1."""
    global_step: int
    """The number of this update, from 1."""
    staleness: int
    """Updates between its pull and its apply."""


class OptimizerState(NamedTuple):
    """What the optimizer keeps beside the values."""

    step: int
    """Updates that it counts, as Adam's powers do."""
    slots: dict[str, dict[str, Array]]
    """Of each variable its slot variables by TensorFlow's names: slots["w"]["w/Adam"]."""


class Job:
    """A job that this process has joined as one worker; of join().

    One thread at a time, but stop(), stopped, global_step and mode are for any thread. A child of
    fork() may use arrays that it has, of which the gradients are its own from then on, and zero; it
    gets FailedPrecondition from everything else.
    """

    def __init__(self, core: "_core.Job", shapes: dict[str, tuple[int, ...]], timeout: float,
                 wait_timeout: float) -> None:
        self._core = core
        self._shapes = shapes
        self._timeout = timeout
        self._wait_timeout = wait_timeout
        self._told_to_go = False
        self._over = False  # the next push raises Cancelled
        self._knows = False  # the script has been shown the stop
        self._pull_failed = self._skips = False  # by the stop; its push has no outcome yet
        self._gradients = Gradients({})
        self._values: dict[str, Array] = {}
        self._shown_values: Mapping[str, Array] = MappingProxyType(self._values)
        self._left = False
        self._before_leave: list[Callable[[], None]] = []  # unless an error is why it leaves
        self._at_leave: list[Callable[[], None]] = []
        self._after_save: list[Callable[[], None]] = []
        self._rank, self._world_size, self._is_chief, self._is_alone, self._id = core.describe()
        self._pid = os.getpid()

    @property
    def rank(self) -> int:
        """Which of the workers this is, from 0."""
        return self._rank

    @property
    def world_size(self) -> int:
        """Places for workers in the job."""
        return self._world_size

    @property
    def is_chief(self) -> bool:
        """Whether it gives the first values."""
        return self._is_chief

    @property
    def is_alone(self) -> bool:
        """Whether the job is this process."""
        return self._is_alone

    @property
    def id(self) -> str:
        """The name of the job, for `passel ctl`."""
        return self._id

    @property
    def variables(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of the variables by their names."""
        return dict(self._shapes)

    @property
    def global_step(self) -> int:
        """Updates applied to the job: one per gradient, or one per round."""
        return self._core.global_step()

    @property
    def mode(self) -> str:
        """The mode in force, as "hogwild"."""
        return self._core.mode()

    @property
    def stopped(self) -> bool:
        """Whether somebody wants the workers to leave: stop() of anyone, `passel ctl stop`, or
        SIGTERM of `passel run` to this one."""
        stopped = self._told_to_go or self._core.stopped()
        self._knows = self._knows or stopped
        return stopped

    @property
    def gradients(self) -> Gradients:
        """Memory for the next gradient of each variable: overwrite all of it, then push().

        What is in it is anything. Ask for it before each push: the arrays may be others each time.
        """
        arrays = self._core.gradients()
        if arrays is not self._gradients._arrays:
            self._gradients = Gradients(arrays)
        return self._gradients

    def pull(self, how: Pull = "auto") -> Mapping[str, Array]:
        """Takes the values of now; the arrays are read-only and of float32.

        how: "copy": nobody changes them until the next pull. "view": the shared values, which
        others change meanwhile in the modes without rounds. "auto": a view in the modes with rounds
        (barrier, replicas), a copy in the others. The mapping, and most often its arrays, are the
        same at each call. Waits for a push whose outcome nobody has waited for. Once the job is
        stopped it gives what it gave last: an update or more may be missing there.
        """
        number = PULLS.get(how) if isinstance(how, str) else None
        if number is None:
            raise InvalidArgument(f'pull() takes "auto", "view" or "copy", not {how!r}: use one of them')
        if self._core.pushed() or self._skips:
            self.wait()
        try:
            values = self._core.pull(number)
        except Cancelled:
            # A loop that has just asked `stopped` is in the middle of a step.
            self._over, self._pull_failed, self._knows = self._knows, not self._knows, True
            if not self._values:
                raise
            return self._shown_values
        if values is not self._values:
            self._values, self._shown_values = values, MappingProxyType(values)
        return self._shown_values

    def push(self, timeout: float | None = None) -> None:
        """Hands in the gradients of all variables, of the values of the last pull. wait() follows.

        timeout: seconds, where it waits: in mode locked for a block that another worker holds, between
        hosts for a ps. What was not applied by then, or by Ctrl-C, is given up: pull() again. Raises
        Cancelled once the job is stopped and `stopped`, wait() or a pull before has shown it.
        """
        if self._over and not self._left:
            raise Cancelled("the job was stopped, or SIGTERM has told this worker to end: leave the job")
        if self._pull_failed and not self._left:  # wait() says that it was not applied
            self._pull_failed, self._skips = False, True
            return
        self._over = self._told_to_go  # one more, for a loop that asks `stopped` at its begin
        self._core.push(self._timeout if timeout is None else _arguments.seconds(timeout))

    def wait(self, timeout: float | None = None) -> Outcome:
        """Waits until the push has its outcome. After DeadlineExceeded the push stands: call it again.

        If the job is stopped meanwhile the gradient is not applied, and the next push() raises
        Cancelled: a loop that asks `stopped` ends by itself.
        """
        if self._skips and not self._left:
            self._skips, self._over = False, True
            return Outcome(False, 1, self.global_step, 0)
        try:
            outcome = self._core.wait(self._wait_timeout if timeout is None else _arguments.seconds(timeout))
        except Cancelled:
            outcome = (False, 1, self.global_step, 0)
            self._over = True
        return Outcome(*outcome)

    def _exchange(self, how: int) -> tuple[bool, int, int, int, int] | None:
        """push(), wait(), pull(), and gradients of 0, in one call.

        Returns what an Outcome has, and moves() of the core: -1: pull() is to be called. None: nothing was
        done, since the job was stopped, and push() knows what follows. What it raises is of the wait if
        handed_in() of the core says so, else of the push.
        """
        if self._over or self._pull_failed:
            return None
        self._over = self._told_to_go
        try:
            return self._core.step(how, self._timeout, self._wait_timeout)
        except Cancelled:
            if not self._core.handed_in():
                raise
            self._over = True
            return False, 1, self.global_step, 0, -1

    def step(self, gradients: Mapping[str, Any] | None = None, timeout: float | None = None) -> Outcome:
        """push() and wait(). With `gradients` copies these first, one for each variable."""
        if gradients is not None:
            self._fill(gradients)
        self.push(timeout)
        return self.wait(timeout)

    def steps(self, most: int | None = None) -> Iterator[int]:
        """0, 1, ... `most` - 1, without an end if it is None, until the job is stopped."""
        most = None if most is None else _arguments.whole(most, "most steps")
        number = 0
        while (most is None or number < most) and not self.stopped:
            yield number
            number += 1

    def set_rates(self, rates: Sequence[tuple[float, float]] | None = None, *,
                  learning_rates: Sequence[float] | None = None,
                  weight_decays: Sequence[float] | None = None) -> None:
        """From now on each group of variables has its own learning rate and weight decay; the chief alone.

            job.set_rates([(0.01, 0.1), (0.001, 0.0)])
            job.set_rates(learning_rates=[0.01, 0.001], weight_decays=[0.1, 0.0])

        Without weight_decays they are 0. Between two steps; the next step() of the chief has them, and
        other workers' from then on. They stay, also in checkpoints, until the next call.
        """
        self._core.set_rates(_arguments.rates(rates, learning_rates, weight_decays))

    def optimizer_state(self) -> OptimizerState:
        """A copy of what the optimizer keeps at this moment, for join(optimizer_state=...) or others.

        Between two steps, on any worker whose ps are all on this host. In mode barrier it is that of the
        last round; in the others, where workers go on meanwhile, each number is of some time during the copy.
        """
        step, names, arrays = self._core.read_state()
        slots: dict[str, dict[str, Array]] = {}
        for number, variable in enumerate(self._shapes):
            own = arrays[number * len(names):(number + 1) * len(names)]
            slots[variable] = {f"{variable}/{name}": array for name, array in zip(names, own)}
        return OptimizerState(step, slots)

    def sampler(self, examples: int, batch_size: int, *, shuffle: bool = True, seed: int = 0,
                epochs: int | None = None) -> Sampler:
        """Batches of the numbers 0 to examples - 1, shared with the other workers: each number once per
        epoch, unless somebody dies. All workers give the same.

            for rows in job.sampler(len(x), batch_size=100, epochs=5):
                ...
                job.step()

        A batch is done with the step after it; what a worker that died was at is given again. With
        checkpoints the job goes on where it was.
        epochs: of the whole job; None: without an end. seed: of the order of each epoch.
        """
        self._core.sample(whole("examples", examples), whole("batch_size", batch_size),
                          0 if epochs is None else whole("epochs", epochs, least=1), whole("seed", seed, least=0),
                          not shuffle)
        return Sampler(self)

    def metric(self, **values: float) -> None:
        """Shows numbers of this worker under their names: in `passel ctl status`, the progress line and
        the report of `passel run`, and TensorBoard. The last value of each counts."""
        for name, value in values.items():
            self._core.metric(_arguments.text(name, "the name of a metric"), _arguments.number(value, name))

    def save(self, timeout: float | None = None) -> int:
        """Saves a checkpoint now (setting checkpoint_dir; the chief alone) and returns its global step.

        Between two steps: what was pulled and what the gradients held is void.
        """
        step = self._core.save(self._timeout if timeout is None else _arguments.seconds(timeout))
        for renew in self._after_save:
            renew()
        return step

    def say_alive(self) -> None:
        """For a step without a push that takes minutes.

        In rounds a worker that is silent for stall_limit (ten minutes) is killed.
        """
        self._core.say_alive()

    def stop(self) -> None:
        """Asks every worker to leave after its step. Never undone."""
        self._core.stop()

    def leave(self) -> None:
        """This worker is done. Arrays keep what is in them; everything else raises from here on.

        A second call does nothing.
        """
        if self._left or self._core.has_left():
            return
        if os.getpid() != self._pid:
            self._core.global_step()  # which says that this is a child of fork()
            return
        self._core.check_turn()
        try:
            self._finish()
        finally:
            self._leave_now()

    def _finish(self) -> None:
        while self._before_leave:
            self._before_leave[-1]()
            self._before_leave.pop()

    def _leave_now(self) -> None:
        """Unless another call of this job is under way: then nothing is changed."""
        global _open
        try:
            self._core.leave()
        finally:
            if self._core.has_left():
                self._left = True
                self._before_leave.clear()
                if _open is self:
                    _open = None
                self._run_at_leave()

    def _run_at_leave(self) -> None:
        """All of them; what the first of them that fails raises."""
        while self._at_leave:
            try:
                self._at_leave.pop()()
            except BaseException:
                self._run_at_leave()
                raise

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> bool:
        if error is not None:
            self._before_leave.clear()
        try:
            self.leave()
        except Exception:  # that of the block says more
            if error is None:
                raise
        return isinstance(error, Cancelled)

    def __repr__(self) -> str:
        state = ", left" if self._left else ""
        return f"<passel.Job {self._id}: worker {self._rank} of {self._world_size}{state}>"

    def _fill(self, gradients: Mapping[str, Any]) -> None:
        if not isinstance(gradients, Mapping):
            raise InvalidArgument("step() takes a dict of gradients by the names of the variables, not a "
                                  f"{type(gradients).__name__}: give exactly {', '.join(map(repr, self._shapes))}")
        missing = [name for name in self._shapes if name not in gradients]
        unknown = [name for name in gradients if name not in self._shapes]
        if missing or unknown:
            what = f"there is none of {missing[0]!r}" if missing else f"there is no variable {unknown[0]!r}"
            raise InvalidArgument(f"step() takes a gradient of each variable, and {what}: give exactly "
                                  f"{', '.join(map(repr, self._shapes))}")
        own = self.gradients
        for name, gradient in gradients.items():
            own[name] = gradient

    def _leave_quietly(self) -> None:
        if self._left or os.getpid() != self._pid:
            return
        try:
            if getattr(sys, "last_value", None) is None:  # that of a traceback
                self._finish()
        except Exception as error:
            warn(f"what was left to be handed in at the end of the process was not: {error}")
        self._before_leave.clear()
        try:
            self.leave()
        except Exception:  # the process ends
            pass

    # `passel run` ends its workers by SIGTERM. A loop that asks `stopped`, or pulls, then ends as it
    # does by itself, and what is behind it (saving, say) still runs.
    def _listen(self) -> None:
        job = weakref.ref(self)

        def told() -> None:
            this = job()
            if this is not None:
                this._told_to_go = True

        # It stays: whoever is told to go while it saves after leave() may finish that.
        _signals.hear(told)


def join(variables: Mapping[str, Any], *, groups: Mapping[str, int] | None = None,
         optimizer_state: OptimizerState | None = None, timeout: float | None = None, **settings: Any) -> Job:
    """Joins the job, as the worker that `passel run` or the settings name, or alone.

    variables: for each name a shape (a tuple, or a whole number), or the first values as an array of
        float32 in C order. Shapes begin with zeros. Every worker describes the same ones; the chief's
        first values count. A job that has values already keeps them.
    groups: the number, 0 to 15, of the group that a variable is in, where that is not 0: those of one
        group have the rates that set_rates() gives it.
    optimizer_state: with what the optimizer begins, as Job.optimizer_state() gives it: the job begins at
        the global step optimizer_state.step. The chief's counts, unless the job has values already or
        goes on from a checkpoint.
    timeout: seconds for first values, and for each push and wait without a timeout of its own. None: as long
        as others may take: start_wait (300) for first values, stall_limit (600) and a minute for the outcome
        of a push, else 60.
    settings: those of `passel task` by their names, as mode="barrier", optimizer="adam",
        learning_rate=0.001. They beat those of `passel run`.

    Raises an Error of this package whose text names the limit, the value and the fix.
    """
    global _open
    before = _open
    if before is not None:
        if before._pid != os.getpid():
            raise FailedPrecondition(
                "this process is a child of one that has a job open, by fork(), and has its "
                "memory: join in a process that is started anew")
        raise AlreadyExists(f"this process is in job {before.id} already, and has one at a time: call "
                            "leave() of that job first, which passel.joined() gives")
    first, each, outcome = _timeouts(timeout, settings)
    shapes, values = _arguments.variables(variables)
    step, names, slots = _arguments.state(optimizer_state, shapes)
    try:
        core = _core.Job(_arguments.settings(settings), list(shapes), [list(shape) for shape in shapes.values()],
                         _arguments.groups(groups, shapes))
    except AlreadyExists as error:
        if _launcher() is None:
            raise
        raise AlreadyExists(f"{error}; or, if {_launcher()} has started this process in a worker of passel run: passel run "
                            "starts the workers itself, so call here what that would start") from None
    job = Job(core, shapes, each, outcome)
    try:
        if job._is_alone and (launcher := _launcher()) is not None:
            warn(f"this process trains alone, though {launcher} has started it, perhaps beside others: if these are to train "
                 "together, start them by passel run --workers N -- python ..., which tells them of each other; if not, "
                 'warnings.filterwarnings("ignore", "this process trains alone") is for this line')
        core.initialize(values, step, names, slots, first)
    except BaseException as error:
        job.leave()
        if isinstance(error, Cancelled):
            _signals.await_end()
        raise
    job._listen()
    _open = job
    return job


def joined() -> Job | None:
    """The job that this process has joined and not left; None: there is none."""
    return None if _open is None or _open._pid != os.getpid() else _open


def _launcher() -> str | None:
    """What starts processes that belong together, if it has started this one."""
    world = os.environ.get("WORLD_SIZE", "1")
    if "TORCHELASTIC_RUN_ID" in os.environ and world != "1":
        return f"torchrun (WORLD_SIZE={world})"
    return None if multiprocessing.parent_process() is None else "multiprocessing"


def _timeouts(timeout: float | None, settings: Mapping[str, Any]) -> tuple[float, float, float]:
    """For first values, for what has a timeout, and for the outcome of a push."""
    if timeout is not None:
        seconds = _arguments.seconds(timeout)
        return seconds, seconds, seconds
    # A worker that is late, or long at a step, is in the right as long as these say.
    start_wait = _arguments.number_in_force("start_wait", settings, 300.0)
    return start_wait, 60.0, _arguments.number_in_force("stall_limit", settings, 600.0) + 60


def _in_child() -> None:
    if _open is not None:
        _open._core.keep_gradients()


os.register_at_fork(after_in_child=_in_child)


@atexit.register
def _leave_open() -> None:
    if _open is not None:
        _open._leave_quietly()
    _signals.end()

"""A job of one process: what its arrays are, and what becomes of them."""

import gc
import os
import threading

import numpy as np
import pytest

import passel


@pytest.fixture
def job():
    with passel.join({"w": (3, 5), "b": 7, "s": ()}, optimizer="sgd", learning_rate=0.5) as joined:
        yield joined


def shared_mappings():
    """Memory files that this process shares: an arena is one."""
    with open("/proc/self/maps", encoding="utf-8") as file:
        return [line for line in file if line.split()[1].endswith("s") and "/memfd:" in line]


def fill(job, value):
    for gradient in job.gradients.values():
        gradient[...] = value


@pytest.mark.parametrize("mode", ["hogwild", "locked", "barrier", "replicas", "ssp"])
def test_steps_are_gradient_descent_in_every_mode(mode):
    first = np.arange(12, dtype=np.float32).reshape(3, 4)
    with passel.join({"w": first, "b": (4,)}, mode=mode, optimizer="sgd", learning_rate=0.25) as job:
        assert (job.mode, job.rank, job.world_size, job.is_chief, job.is_alone) == (mode, 0, 1, True, True)
        assert job.variables == {"w": (3, 4), "b": (4,)}
        w, b = first.astype(np.float64), np.zeros(4)
        for number in job.steps(20):
            v = job.pull()
            np.testing.assert_allclose(v["w"], w, rtol=1e-5)
            np.testing.assert_allclose(v["b"], b, rtol=1e-5)
            outcome = job.step({"w": v["w"] - 1, "b": v["b"] + 1})
            assert outcome == (True, 1, number + 1, 0)
            w, b = w - 0.25 * (w - 1), b - 0.25 * (b + 1)
        assert job.global_step == 20


def test_an_assigned_gradient_is_written_into_the_arena(job):
    job.pull()
    gradients = job.gradients
    gradients["w"], gradients["b"], gradients["s"] = np.ones((3, 5)), np.full(7, 2.0), 3
    gradients["w"] += 1
    job.step()
    values = job.pull()
    assert (values["w"] == -1).all() and (values["b"] == -1).all() and values["s"] == -1.5
    with pytest.raises(passel.InvalidArgument, match=r"shape \(2,\).*\(7,\)"):
        job.gradients["b"] = np.ones(2)
    with pytest.raises(passel.InvalidArgument, match="no variable 'x'"):
        job.gradients["x"] = 1
    for mapping in values, job.gradients:
        with pytest.raises((TypeError, AttributeError)):
            mapping.pop("w")


def test_after_a_stop_what_was_pulled_last_is_there(job):
    for number in job.steps():
        job.pull()
        fill(job, number)
        job.step()
        if number == 1:
            before = job.pull()["w"].copy()
            job.stop()
    np.testing.assert_array_equal(job.pull("copy")["w"], before)
    with pytest.raises(passel.Cancelled):
        job.step()


def test_arrays_are_the_library_s_memory(job):
    values, gradients = job.pull(), job.gradients
    assert {name: a.shape for name, a in values.items()} == {"w": (3, 5), "b": (7,), "s": ()}
    for arrays in values, gradients:
        for array in arrays.values():
            assert array.dtype == np.float32 and array.flags.c_contiguous and array.ctypes.data % 64 == 0
    assert not values["w"].flags.writeable and gradients["w"].flags.writeable
    with pytest.raises(ValueError):
        values["w"][0, 0] = 1
    shared = np.from_dlpack(gradients["w"])
    assert shared.ctypes.data == gradients["w"].ctypes.data
    assert memoryview(gradients["b"]).nbytes == 28
    # No array is made anew in a step.
    before = [id(a) for a in (*values.values(), *gradients.values())]
    for _ in range(20):
        fill(job, 1)
        job.step()
        job.pull()
    assert [id(a) for a in (*job.pull().values(), *job.gradients.values())] == before


def test_auto_is_a_copy_without_rounds_and_a_view_with_them():
    for mode, own in ("hogwild", True), ("ssp", True), ("barrier", False):
        with passel.join({"w": 4}, mode=mode, optimizer="sgd", learning_rate=1) as job:
            auto, view = job.pull()["w"], job.pull("view")["w"]
            assert (auto.ctypes.data != view.ctypes.data) == own
            job.pull()
            fill(job, 1)
            job.step()
            np.testing.assert_array_equal(view, -1)  # the shared values
            np.testing.assert_array_equal(auto, 0 if own else -1)
            np.testing.assert_array_equal(job.pull("copy")["w"], -1)


def test_arrays_outlive_the_job_and_nothing_else_does(job):
    fill(job, 2)
    with pytest.raises(passel.FailedPrecondition, match="nothing was pulled"):
        job.step()
    values, view = job.pull()["w"], job.pull("view")["w"]
    job.step()
    gradients = job.gradients
    assert shared_mappings()
    job.leave()
    job.leave()
    assert not shared_mappings()
    gradients["b"][...] = 3  # private by now
    np.testing.assert_array_equal(view, -1)
    np.testing.assert_array_equal(values, 0)
    for call in (job.pull, lambda: job.gradients, job.push, job.wait, job.step, job.say_alive, job.stop,
                 lambda: job.stopped, lambda: job.global_step, lambda: job.mode, lambda: next(job.steps())):
        with pytest.raises(passel.FailedPrecondition, match="has left the job"):
            call()
    assert "left" in repr(job)
    del view, gradients
    gc.collect()
    with passel.join({"w": 2}) as again:
        assert again.pull()["w"].shape == (2,)


def test_a_job_ends_by_leave_and_not_because_nobody_has_it():
    assert passel.joined() is None
    values = passel.join({"w": 2}).pull("view")["w"]
    gc.collect()
    with pytest.raises(passel.AlreadyExists, match=r"leave\(\) of that job first, which passel.joined\(\) gives"):
        passel.join({"w": 2})
    assert passel.joined().global_step == 0 and shared_mappings()
    passel.joined().leave()
    assert passel.joined() is None and not shared_mappings()
    np.testing.assert_array_equal(values, 0)


BAD_VARIABLES = [
    ({}, "1 to"),
    ({"w": np.zeros(3)}, "'w' is of float64, and passel trains float32 alone"),
    ({"b": 1, "w": np.zeros((4, 6), np.float32)[:, ::2]}, "'w' is not contiguous"),
    ({"b": 1, "w": np.zeros((4, 6), np.float32).T}, "'w' is not contiguous"),
    ({"w": [1, 2]}, "'w' is described by a list"),
    ({"w": "text"}, "'w' is described by a str"),
    ({"w": None}, "'w' is described by a NoneType"),
    ({"w": (2, 0)}, "every dimension is 1 or more"),
    ({"w": -1}, "every dimension is 1 or more"),
    ({3: (2,)}, "the name of a variable is a text, not 3"),
    ({"a\0b": 2}, "has a NUL"),
    ({"": (2,)}, "has 1 to 127 bytes"),
]


@pytest.mark.parametrize("variables, sentence", BAD_VARIABLES)
def test_bad_variables_have_a_sentence(variables, sentence):
    with pytest.raises(passel.InvalidArgument, match=sentence):
        passel.join(variables)


def test_bad_values_settings_and_calls_have_a_sentence(job):
    with pytest.raises(passel.AlreadyExists, match=f"in job {job.id} already"):
        passel.join({"w": 2})
    with pytest.raises(passel.InvalidArgument, match='not \'all\''):
        job.pull("all")
    with pytest.raises(passel.InvalidArgument, match="no variable 'x'"):
        job.step({"w": 0, "b": 0, "s": 0, "x": 0})
    with pytest.raises(passel.InvalidArgument, match="there is none of 'b'"):
        job.step({"w": 0})
    job.pull()
    with pytest.raises(passel.InvalidArgument, match=r"'w' has the shape \(5, 3\)"):
        job.step({"w": np.zeros((5, 3)), "b": np.zeros(7), "s": 0})
    fill(job, 1)
    job.gradients["b"][2] = np.nan
    with pytest.raises(passel.Diverged, match='"b" has a NaN'):
        job.step()
    with pytest.raises(passel.FailedPrecondition, match="nothing was pushed"):
        job.wait()
    with pytest.raises(passel.InvalidArgument, match="timeout_seconds"):
        job.push(timeout=-1)
    fill(job, 1)
    assert job.step().applied  # nothing of this has harmed the job
    job.leave()
    for settings, sentence in (({"mode": "wild"}, "wild"), ({"no_such": 1}, "no_such is not known"),
                               ({"train_steps": 5}, "means nothing"),
                               ({"learning_rate": "fast"}, "learning_rate=fast")):
        with pytest.raises(passel.InvalidArgument, match=sentence):
            passel.join({"w": 2}, **settings)
    with pytest.raises(passel.Diverged, match='of variable "w" is'):
        passel.join({"w": np.full(2, np.inf, np.float32)})
    passel.join({"w": 2}).leave()  # who was refused is in no job


def test_an_exception_in_the_middle_of_a_step_leaves_a_job_that_goes_on(job):
    for _ in range(2):
        job.pull()
        job.gradients["w"][...] = 5
        with pytest.raises(ZeroDivisionError):
            1 / 0
    job.pull()
    fill(job, 1)
    job.push()  # and nobody waits for it
    np.testing.assert_array_equal(job.pull()["w"], -0.5)
    with pytest.raises(KeyError), job:
        raise KeyError("of the program")


def test_a_stop_ends_loops_and_the_block():
    with passel.join({"w": 2}) as job:
        thread = threading.Thread(target=job.stop)
        for number in job.steps():
            job.pull()
            fill(job, 0)
            job.step()
            if number == 3:
                thread.start()
                thread.join()
        assert number == 3 and job.stopped
        job.pull()
        job.step()
        raise AssertionError("a step after the stop returned")


def test_a_stop_between_the_question_and_the_pull_lets_the_loop_end():
    with passel.join({"w": 2}) as job:
        for number in job.steps():
            if number == 3:
                threading.Thread(target=job.stop).start()
                while not job._core.stopped():  # as another process would do it
                    pass
            job.pull()
            fill(job, 0)
            outcome = job.step()
        assert number == 3 and not outcome.applied and outcome.global_step == 3
        return
    raise AssertionError("the loop did not end")


def test_a_stop_ends_a_loop_that_does_not_ask():
    applied = []
    with passel.join({"w": 2}) as job:
        while True:
            if len(applied) == 3:
                job.stop()
            job.pull()
            fill(job, 0)
            applied.append(job.step().applied)
    assert applied == [True] * 3 + [False]


def test_others_may_be_late_as_long_as_settings_say(monkeypatch):
    monkeypatch.setenv("PASSEL_SETTINGS", "mode=barrier\nstall_limit=7\n")
    for given, settings, seconds in ((None, {}, (300, 60, 67)), (None, {"stall_limit": 900, "start_wait": 5}, (5, 60, 960)),
                                     (2, {"stall_limit": 900}, (2, 2, 2)), (None, {"stall_limit": "soon"}, (300, 60, 660))):
        assert passel._job._timeouts(given, settings) == seconds


class Odd:
    def __dlpack__(self, **_):
        raise RuntimeError("its memory is elsewhere")

    def __dlpack_device__(self):
        return 1, 0


def test_what_cannot_be_seen_as_an_array_is_named(job):
    with pytest.raises(passel.InvalidArgument, match=r"'w' is described by a Odd \(its memory is elsewhere\)"):
        job.leave()
        passel.join({"w": Odd()})


def test_a_child_of_fork_reads_arrays_and_may_not_step(job):
    fill(job, 1)
    job.pull()
    job.step()
    view = job.pull("view")["w"]
    child = os.fork()
    if child == 0:
        refused = 0
        for call in (job.pull, job.push, job.leave, lambda: job.gradients, lambda: job.stopped,
                     lambda: passel.join({"w": 1})):
            try:
                call()
            except passel.FailedPrecondition as error:
                refused += "fork()" in str(error)
        os._exit(0 if refused == 6 and float(view[0, 0]) == -0.5 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    fill(job, 1)
    assert job.step().global_step == 2

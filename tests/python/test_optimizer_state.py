"""What the optimizer keeps: read as a copy, and given to join()."""

import json

import numpy as np
import pytest

import passel

SHAPES = {"w": (33, 7), "b": (7,), "s": ()}
MODES = ["hogwild", "locked", "barrier", "replicas", "ssp"]
NAMES = {"sgd": [], "momentum": ["Momentum"], "adagrad": ["Adagrad"], "rmsprop": ["RMSProp", "RMSProp_1"],
         "adam": ["Adam", "Adam_1"], "ftrl": ["Ftrl", "Ftrl_1"], "adamw": ["AdamW", "AdamW_1"]}


def gradients_of(step):
    random = np.random.default_rng(step)
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}


def train(job, first, steps):
    for step in range(first, first + steps):
        job.pull()
        job.step(gradients_of(step))


def values_of(job):
    return {name: value.copy() for name, value in job.pull().items()}


def same(one, other):
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


@pytest.mark.parametrize("mode", MODES)
def test_slots_are_the_moments_of_adam(mode):
    with passel.join(SHAPES, optimizer="adam", mode=mode) as job:
        fresh = job.optimizer_state()
        assert fresh.step == 0 and list(fresh.slots) == list(SHAPES)
        assert all((slot == 0).all() for own in fresh.slots.values() for slot in own.values())
        train(job, 0, 12)
        step, slots = job.optimizer_state()
        assert step == 12
        for name, shape in SHAPES.items():
            m, v = np.zeros(shape), np.zeros(shape)  # double precision
            for number in range(12):
                g = gradients_of(number)[name].astype(np.float64)
                m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            assert list(slots[name]) == [f"{name}/Adam", f"{name}/Adam_1"]
            np.testing.assert_allclose(slots[name][f"{name}/Adam"], m, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(slots[name][f"{name}/Adam_1"], v, rtol=1e-5, atol=1e-7)
        slots["w"]["w/Adam"][...] = 1e9  # the caller's own
        assert np.abs(job.optimizer_state().slots["w"]["w/Adam"]).max() < 10
    assert slots["w"]["w/Adam"].max() == 1e9


# Bit for bit.
@pytest.mark.parametrize("optimizer", NAMES)
@pytest.mark.parametrize("mode", MODES)
def test_who_begins_with_a_state_goes_on_as_if_it_had_never_ended(mode, optimizer):
    settings = {"optimizer": optimizer, "mode": mode, "learning_rate": 0.01}
    with passel.join(SHAPES, **settings) as job:
        train(job, 0, 7)
        values, state = values_of(job), job.optimizer_state()
        assert [slot.removeprefix("w/") for slot in state.slots["w"]] == NAMES[optimizer]
        train(job, 7, 9)
        whole, end = values_of(job), job.optimizer_state()
    with passel.join(values, optimizer_state=state, **settings) as job:
        assert job.global_step == 7
        same(values_of(job), values)
        train(job, 7, 9)
        assert job.global_step == 16
        same(values_of(job), whole)
        again = job.optimizer_state()
        assert again.step == end.step == 16
        for name in SHAPES:
            same(again.slots[name], end.slots[name])


def test_names_may_do_without_that_of_the_variable():
    slots = {name: {"Adam": np.full(shape, 0.5, np.float32), "Adam_1": np.full(shape, 4, np.float32)}
             for name, shape in SHAPES.items()}
    state = passel.OptimizerState(1000, slots)
    with passel.join(SHAPES, optimizer="adam", learning_rate=0.1, optimizer_state=state) as job:
        read = job.optimizer_state()
        assert read.step == 1000 and (read.slots["b"]["b/Adam_1"] == 4).all()
        job.pull()
        job.step({name: np.zeros(shape) for name, shape in SHAPES.items()})
        t = 1001
        rate = 0.1 * np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
        np.testing.assert_allclose(job.pull()["w"], -rate * 0.45 / np.sqrt(4 * 0.999), rtol=1e-5)


def test_two_ps_and_two_workers_begin_with_the_chief_s(start, tmp_path):
    text = """
        import sys
        import numpy as np, passel
        shapes = {"w": (40, 3), "b": (3,), "v": (200,)}
        slots = {name: {"Momentum": np.full(shape, 2.0, np.float32)} for name, shape in shapes.items()}
        mine = passel.OptimizerState(5, slots)
        first = {name: np.full(shape, 1.0, np.float32) for name, shape in shapes.items()}
        with passel.join(first, optimizer="momentum", momentum=0.5, learning_rate=0.25,
                         optimizer_state=mine) as job:
            assert job.global_step == 5
            for name, shape in shapes.items():
                assert (job.optimizer_state().slots[name][name + "/Momentum"] == 2).all()
            job.pull()
            job.step({name: np.ones(shape) for name, shape in shapes.items()})
            for name in shapes:
                assert (job.pull()[name] == 0.5).all(), job.pull()[name]
                assert (job.optimizer_state().slots[name][name + "/Momentum"] == 2).all()
            assert job.optimizer_state().step == job.global_step == 6
    """
    start(text, run=["--workers=2", "--ps=2", "--mode=barrier"]).end()


def test_a_job_that_has_values_or_a_checkpoint_keeps_its_state(start, tmp_path):
    ones = {name: np.ones(shape, np.float32) for name, shape in SHAPES.items()}
    other = passel.OptimizerState(77, {name: {"Momentum": array} for name, array in ones.items()})
    settings = {"optimizer": "momentum", "checkpoint_dir": str(tmp_path / "train")}
    with passel.join(SHAPES, **settings) as job:
        train(job, 0, 3)
        state = job.optimizer_state()
    with passel.join(SHAPES, optimizer_state=other, **settings) as job:
        assert job.global_step == 3
        for name in SHAPES:
            same(job.optimizer_state().slots[name], state.slots[name])
    start("""
        import os, signal
        import numpy as np, passel
        life = int(os.environ["PASSEL_RESTARTS"])
        given = passel.OptimizerState(10 * life, {"w": {"w/Momentum": np.full(3, life, np.float32)}})
        with passel.join({"w": 3}, optimizer="momentum", momentum=0.5, optimizer_state=given) as job:
            if life == 0:
                job.pull()
                job.step({"w": np.full(3, 8.0)})
                os.kill(os.getpid(), signal.SIGKILL)
            assert job.global_step == 1
            state = job.optimizer_state()
            assert state.step == 1 and (state.slots["w"]["w/Momentum"] == 8).all(), state
    """, run=["--workers=1"]).end()


def test_what_cannot_be_is_refused_in_a_sentence():
    def begin(step=1, **slots):
        return passel.join({"w": 3}, optimizer="adam", optimizer_state=passel.OptimizerState(step, slots))

    good = {"w/Adam": np.zeros(3, np.float32), "w/Adam_1": np.zeros(3, np.float32)}
    for step, slots, match in (
            (1, {}, "of 'w' its slot variables are missing"), (1, {"w": good, "x": good}, "'x' there is no such variable"),
            (1, {"w": {"w/Adam": good["w/Adam"]}}, r"has 1 slot variables of each variable, and adam keeps 2 \(Adam, Adam_1\)"),
            (1, {"w": {"AdamW": good["w/Adam"], "AdamW_1": good["w/Adam"]}}, 'is "AdamW", and of adam it is "Adam"'),
            (1, {"w": {**good, "w/Adam": np.zeros(4, np.float32)}}, r"'w/Adam' has the shape \(4,\), and 'w' \(3,\)"),
            (1, {"w": {**good, "w/Adam": np.zeros(3)}}, "float64"), (1, {"w": {**good, "w/Adam": 3}}, "give an array"),
            (-1, {"w": good}, "is 0 to 1099511627775, not -1"), (2**40, {"w": good}, "1099511627776"),
            (0.5, {"w": good}, "whole number, not 0.5")):
        with pytest.raises(passel.InvalidArgument, match=match):
            begin(step, **slots)
    with pytest.raises(passel.InvalidArgument, match="is an OptimizerState"):
        passel.join({"w": 3}, optimizer_state={"w": good})
    with pytest.raises(passel.Diverged, match='value 2 of slot variable "w/Adam_1" is inf'):
        begin(w={**good, "w/Adam_1": np.array([0, 0, np.inf], np.float32)})
    with begin(w=good) as job:
        job.pull()
        job.gradients["w"][...] = 1
        job.push()
        with pytest.raises(passel.FailedPrecondition, match=r"call wait\(\) before"):
            job.optimizer_state()
        job.wait()
        assert job.optimizer_state().step == 2
    with pytest.raises(passel.FailedPrecondition, match="has left"):
        job.optimizer_state()


def test_it_travels_as_json_would(tmp_path):
    """As a script keeps it that writes its own checkpoints."""
    with passel.join({"w": 3}, optimizer="adagrad") as job:
        job.pull()
        job.step({"w": np.ones(3)})
        step, slots = job.optimizer_state()
        text = json.dumps([step, {name: {slot: a.tolist() for slot, a in own.items()} for name, own in slots.items()}])
    step, read = json.loads(text)
    state = passel.OptimizerState(step, {name: {slot: np.array(a, np.float32) for slot, a in own.items()}
                                         for name, own in read.items()})
    with passel.join({"w": 3}, optimizer="adagrad", optimizer_state=state) as job:
        same(job.optimizer_state().slots["w"], slots["w"])

"""Where parameters and gradients of the examples lie, by the kernel's list of this process's memory."""

import runpy
import sys

import pytest
import torch

import passel
import passel.torch

STEPS = 100


class Done(Exception):
    """So many steps were enough."""


def shared_memory():
    """Addresses of mappings that other processes may map, too: [(begin, end)]."""
    found = []
    with open("/proc/self/maps") as maps:
        for line in maps:
            place, access, *_ = line.split()
            if access[3] == "s":
                begin, end = (int(each, 16) for each in place.split("-"))
                found.append((begin, end))
    return found


def is_shared(tensor, mappings):
    begin, end = tensor.data_ptr(), tensor.data_ptr() + 4 * tensor.numel()
    return any(low <= begin and end <= high for low, high in mappings)


class Watch:
    """In place of the method step() of the optimizer of one model: looks before and after it."""

    def __init__(self, model, values_are_shared, step):
        self.model, self.values_are_shared, self.made_step = model, values_are_shared, step
        self.scheduler, self.steps = None, 0

    def look(self, has_gradients=False):
        mappings = shared_memory()
        for name, parameter in self.model.named_parameters():
            assert is_shared(parameter.data, mappings) == self.values_are_shared, (name, self.steps)
            assert (parameter.grad is not None) == has_gradients, (name, self.steps)
            assert not has_gradients or not is_shared(parameter.grad, mappings), (name, self.steps)
        tensors = [tensor for p in self.model.parameters() for tensor in ((p, p.grad) if has_gradients else (p,))]
        assert len({tensor.data_ptr() for tensor in tensors}) == len(tensors)

    def step(self, opt, closure):
        self.look(has_gradients=True)
        before = opt.job.global_step
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
        self.made_step(opt, closure)
        self.steps += 1
        self.look()
        assert opt.job.global_step == before + 1
        self.scheduler.step()
        if self.steps % 5 == 0:
            self.model.load_state_dict(self.model.state_dict())
            opt.load_state_dict(opt.state_dict())
            self.scheduler.load_state_dict(self.scheduler.state_dict())
            self.look()
        self.model.zero_grad(set_to_none=self.steps % 2 == 0)
        opt.zero_grad(set_to_none=self.steps % 3 == 0)
        self.look()
        if self.steps == STEPS:
            raise Done


@pytest.mark.parametrize("name, rounds", [("mnist_hogwild.py", False), ("fashion_cnn.py", False), ("tiny_gpt.py", True)])
def test_where_each_example_has_them_for_a_hundred_steps(name, rounds, examples, digits, monkeypatch):
    share, kind, watches, opened = passel.torch.share, passel.torch.SharedOptimizer, [], []

    def share_and_watch(model, *arguments, **settings):
        watches.append(Watch(model, rounds, kind.step))

        def step(self, closure=None):
            return watches[0].step(self, closure)

        step.hooked = True
        monkeypatch.setattr(kind, "step", step)
        opened.append(share(model, *arguments, **settings))
        watches[0].scheduler = torch.optim.lr_scheduler.ExponentialLR(opened[0], 0.999)
        watches[0].look()
        return opened[0]

    monkeypatch.setattr(passel.torch, "share", share_and_watch)
    monkeypatch.setenv("PASSEL_DATA_DIR", str(digits))
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setattr(sys, "argv", [name])
    try:
        with pytest.raises(Done):
            runpy.run_path(str(examples / name), run_name="__main__")
    finally:
        if opened:
            opened[0].leave()
    assert watches[0].steps == STEPS

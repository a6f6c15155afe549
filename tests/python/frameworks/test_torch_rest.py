"""passel.torch in a job of one process: parameters without values, and steps that push_every has not handed in."""

import numpy as np
import pytest
import torch

import passel
import passel.torch
from models import OPTIMIZERS, difference, loss_of, make, train


class Empty(torch.nn.Module):
    """Parameters without values among others, as pruning and options leave them."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.none = torch.nn.Parameter(torch.empty(0, 5))
        self.net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
        self.last = torch.nn.Parameter(torch.empty(3, 0))

    def forward(self, x):
        return self.net(x) + self.none.sum() + self.last.sum()

    def groups(self):
        return [{"params": [self.none], "lr": 7.0}, {"params": self.net.parameters(), "lr": 0.03},
                {"params": [self.last]}]


@pytest.mark.parametrize("name", ["sgd", "momentum", "adamw", "adagrad"])
def test_parameters_without_values_are_trained_beside_others(name):
    kind, settings = OPTIMIZERS[name]
    for grouped in (False, True):
        model, other = Empty(), Empty()
        with passel.torch.share(model, name, params=model.groups() if grouped else None, **settings) as opt:
            assert list(opt.job.variables) == ["net.0.weight", "net.0.bias", "net.2.weight", "net.2.bias"]
            train(model, opt, 6, clip=1.0, scheduler=torch.optim.lr_scheduler.ExponentialLR(opt, 0.9))
            model.load_state_dict(model.state_dict())
            ours = opt.state_dict()
        plain = kind(other.groups() if grouped else other.parameters(), **settings)
        train(other, plain, 6, clip=1.0, scheduler=torch.optim.lr_scheduler.ExponentialLR(plain, 0.9))
        assert model.none.shape == (0, 5) and model.last.shape == (3, 0)
        assert all(torch.allclose(p, q, atol=1e-6) for p, q in zip(model.net.parameters(), other.net.parameters()))

        # From here to plain PyTorch, and from there to here.
        theirs = plain.state_dict()
        assert [group["params"] for group in ours["param_groups"]] == [group["params"] for group in theirs["param_groups"]]
        assert {n: {slot: tuple(v.shape) for slot, v in own.items()} for n, own in ours["state"].items()} == {
            n: {slot: tuple(v.shape) for slot, v in own.items()} for n, own in theirs["state"].items()}
        goes_on = kind(model.groups() if grouped else model.parameters(), **settings)
        goes_on.load_state_dict(ours)
        train(model, goes_on, 3)
        with passel.torch.share(other, name, params=other.groups() if grouped else None, state_dict=theirs, **settings) as opt:
            train(other, opt, 3)
        assert all(torch.allclose(p, q, atol=1e-6) for p, q in zip(model.net.parameters(), other.net.parameters()))


def test_a_model_of_parameters_without_values_alone_has_nothing_to_train():
    model = torch.nn.Module()
    model.none = torch.nn.Parameter(torch.empty(0))
    with pytest.raises(passel.InvalidArgument, match="no parameter that needs a gradient and has values"):
        passel.torch.share(model)


def test_one_without_values_and_an_optimizer_of_your_own():
    model, other = Empty(), Empty()
    inner = torch.optim.AdamW(model.parameters(), lr=0.01)
    with passel.torch.share(model, "delta", inner=inner, push_every=2) as opt:
        train(model, opt, 4)
    train(other, torch.optim.AdamW(other.parameters(), lr=0.01), 4)
    assert all(torch.allclose(p, q, atol=1e-6) for p, q in zip(model.net.parameters(), other.net.parameters()))


def scaled(model, optimizer, scales):
    for scale in scales:
        optimizer.zero_grad()
        (loss_of(model) * scale).backward()
        optimizer.step()


LEAVES = {"with": lambda opt: opt.__exit__(None, None, None), "leave": lambda opt: opt.leave(),
          "job": lambda opt: opt.job.leave()}


@pytest.mark.parametrize("mode", ["hogwild", "locked", "ssp", "barrier", "replicas"])
@pytest.mark.parametrize("how", LEAVES)
def test_steps_that_were_not_handed_in_are_when_it_leaves(how, mode, tmp_path):
    model, other = make(), make()
    opt = passel.torch.share(model, "momentum", lr=0.05, push_every=4, mode=mode, checkpoint_dir=tmp_path / "train")
    scaled(model, opt, (1, 2, 3, 4, 5, 6))
    assert opt.job.global_step == 1
    loss_of(model).backward()  # of no step
    LEAVES[how](opt)
    assert opt.outcome.applied and opt.outcome.global_step == 2
    scaled(other, torch.optim.SGD(other.parameters(), lr=0.05, momentum=0.9), ((1 + 2 + 3 + 4) / 4, (5 + 6) / 2))
    assert difference(model, other) < 1e-6
    # The last checkpoint has it.
    again = make(seed=3)
    with passel.torch.share(again, "momentum", lr=0.05, mode=mode, checkpoint_dir=tmp_path / "train") as opt:
        assert opt.job.global_step == 2
    assert difference(again, other) < 1e-6


def test_an_exchange_that_was_not_made_is_when_it_leaves():
    for steps in (5, 6):
        model = make()
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        with passel.torch.share(model, "delta", inner=inner, push_every=3, mode="barrier") as opt:
            train(model, opt, steps)
            assert opt.job.global_step == steps // 3
        assert opt.outcome.global_step == 2


def test_of_a_job_that_was_stopped_or_a_block_that_fails_no_step_is_handed_in():
    model = make()
    with passel.torch.share(model, "sgd", lr=0.1, push_every=4) as opt:
        scaled(model, opt, (1, 2))
        opt.job.stop()
    assert opt.outcome is None
    with pytest.raises(ZeroDivisionError):
        with passel.torch.share(model, "sgd", lr=0.1, push_every=4) as opt:
            scaled(model, opt, (1, 2))
            raise ZeroDivisionError
    assert opt.outcome is None


def test_what_would_be_lost_is_said_when_it_leaves():
    model = make()
    opt = passel.torch.share(model, "sgd", lr=0.1, push_every=4)
    scaled(model, opt, (1, float("nan")))
    with pytest.raises(passel.Diverged):
        opt.leave()
    assert opt.job._left and not np.isnan(model[0].weight.detach().numpy()).any()

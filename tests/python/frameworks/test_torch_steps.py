"""passel.torch in a job of one process: sums of gradients, settings of groups, a step that is not answered in time."""

import numpy as np
import pytest
import torch

import passel
import passel.torch
from models import OPTIMIZERS, difference, loss_of, make, train


def in_sums(model, optimizer, scaler, steps, every, bad=()):
    """As a script does it: each step is unscaled and clipped. Plain PyTorch gets the mean of the same gradients."""
    sums, good = [torch.zeros_like(p) for p in model.parameters()], 0
    for k in range(steps):
        optimizer.zero_grad()
        scaler.scale(loss_of(model) * (float("inf") if k in bad else k + 1)).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        if isinstance(optimizer, passel.torch.SharedOptimizer):
            scaler.step(optimizer)
        elif k not in bad:
            good += 1
            for total, p in zip(sums, model.parameters()):
                total += p.grad
            if good % every == 0:
                for total, p in zip(sums, model.parameters()):
                    p.grad.copy_(total / every)
                    total.zero_()
                optimizer.step()
        scaler.update()
    if good % every:  # passel makes that update when it leaves
        for total, p in zip(sums, model.parameters()):
            p.grad.copy_(total / (good % every))
        optimizer.step()


@pytest.mark.parametrize("bad", [(), (0,), (1, 2), (3, 7)])
def test_a_scaler_and_clipping_act_on_the_gradient_of_each_step_of_a_sum(bad):
    model, other = make(), make()
    with passel.torch.share(model, "sgd", lr=0.1, weight_decay=0.2, push_every=3) as opt:
        in_sums(model, opt, torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2), 12, 3, bad)
        assert opt.job.global_step == (12 - len(bad)) // 3
    plain = torch.optim.SGD(other.parameters(), lr=0.1, weight_decay=0.2)
    in_sums(other, plain, torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2), 12, 3, bad)
    assert difference(model, other) < 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_checkpoint_in_the_middle_of_a_sum_costs_nothing(tmp_path, dtype):
    model, other = make().to(dtype), make().to(dtype)
    with passel.torch.share(model, "sgd", lr=0.1, push_every=3, masters=True, checkpoint_dir=tmp_path / "train") as opt:
        for k in range(6):
            train(model, opt, 1, dtype=dtype)
            assert opt.save() == (k + 1) // 3
    with passel.torch.share(other, "sgd", lr=0.1, push_every=3, masters=True) as opt:
        train(other, opt, 6, dtype=dtype)
    assert difference(model, other) == 0


def test_a_sum_with_what_is_no_number_is_dropped():
    model, other = make(), make()
    with passel.torch.share(model, "sgd", lr=0.1, push_every=2) as opt:
        (loss_of(model) * float("nan")).backward()
        opt.step()
        loss_of(model).backward()
        with pytest.raises(passel.Diverged):
            opt.step()
        train(model, opt, 4)
        assert opt.job.global_step == 2
    train(other, torch.optim.SGD(other.parameters(), lr=0.1), 2)
    assert difference(model, other) < 1e-6


class Late:
    """The core of a job whose updates have no outcome yet."""

    def __init__(self, core):
        self._core = core

    def __getattr__(self, name):
        return getattr(self._core, name)

    def step(self, how, push_timeout, wait_timeout):
        self._core.push(push_timeout)
        self.wait(wait_timeout)

    def wait(self, timeout):
        raise passel.DeadlineExceeded("no outcome yet")


@pytest.mark.parametrize("mode", ["hogwild", "barrier"])
@pytest.mark.parametrize("then", ["step", "zero_grad", "save", "closure"])
def test_after_an_update_that_took_too_long_it_is_waited_for_again(mode, then, monkeypatch, tmp_path):
    model, other = make(), make()

    def closure():
        opt.zero_grad()
        loss_of(model).backward()

    with passel.torch.share(model, "sgd", lr=0.1, mode=mode, checkpoint_dir=tmp_path / "train") as opt:
        train(model, opt, 1)
        with monkeypatch.context() as patched:
            patched.setattr(opt.job, "_core", Late(opt._core))
            for _ in range(2):
                with pytest.raises(passel.DeadlineExceeded):
                    if opt.job.global_step < 2:
                        train(model, opt, 1)
                    opt.step()
        {"step": opt.step, "zero_grad": opt.zero_grad, "save": opt.save, "closure": lambda: opt.step(closure)}[then]()
        assert opt.outcome.global_step == opt.job.global_step == (3 if then == "closure" else 2)
        assert all(p.grad is None for p in model.parameters())
        train(model, opt, 1)
    train(other, torch.optim.SGD(other.parameters(), lr=0.1), 4 if then == "closure" else 3)
    assert difference(model, other) < 1e-6


@pytest.mark.parametrize("name", ["adamw", "adam"])
def test_one_group_with_its_own_settings(name):
    kind, _ = OPTIMIZERS[name]
    model, other = make(), make()
    with passel.torch.share(model, name, params=[{"params": list(model.parameters()), "weight_decay": 0.3, "lr": 0.02}],
                            lr=0.5) as opt:
        train(model, opt, 10)
    train(other, kind(other.parameters(), lr=0.02, weight_decay=0.3), 10)
    assert difference(model, other) < 1e-5
    theirs = kind(make().parameters(), lr=0.02, weight_decay=0.3).state_dict()
    model = make()
    with passel.torch.share(model, name, state_dict=theirs) as opt:
        train(model, opt, 10)
    assert difference(model, other) < 1e-5


@pytest.mark.parametrize("empty", [0, 1, 2])
@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_a_group_without_a_parameter_that_is_trained(name, empty):
    def groups(net):
        net[0].requires_grad_(False)
        made = [{"params": [net[2].weight], "lr": 0.05, "weight_decay": 0.1}, {"params": [net[2].bias], "lr": 0.02}]
        return made[:empty] + [{"params": list(net[0].parameters()), "lr": 7.0, "weight_decay": 0.5}] + made[empty:]

    model, other = make(), make()
    kind, _ = OPTIMIZERS[name]
    with passel.torch.share(model, name, params=groups(model), lr=0.1) as opt:
        train(model, opt, 5, scheduler=torch.optim.lr_scheduler.ExponentialLR(opt, 0.9))
        assert opt.job.global_step == 5 and len(opt.param_groups) == 3
    plain = kind(groups(other), lr=0.1)
    train(other, plain, 5, scheduler=torch.optim.lr_scheduler.ExponentialLR(plain, 0.9))
    assert difference(model, other) < 1e-6


def test_what_is_of_all_groups_is_not_of_one_and_does_not_change():
    model, bad = make(), passel.InvalidArgument
    for name, setting in (("adam", {"betas": (0.5, 0.9)}), ("adamw", {"eps": 1e-3}), ("adam", {"amsgrad": True}),
                          ("momentum", {"momentum": 0.5}), ("sgd", {"nesterov": True}), ("sgd", {"maximize": True})):
        with pytest.raises(bad, match=f"group 0 has {next(iter(setting))}=.*, and the job .* for all"):
            passel.torch.share(model, name, params=[{"params": list(model.parameters()), **setting}])
    for name in ("adam", "momentum"):
        with passel.torch.share(make(), name, lr=0.1) as opt:
            torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.1, total_steps=10)
            with pytest.raises(bad, match="cycle_momentum=False"):
                opt.step()
    with passel.torch.share(model, "adam", lr=0.1) as opt:
        train(model, opt, 5, scheduler=torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.1, total_steps=10,
                                                                         cycle_momentum=False))
        state = torch.optim.Adam(model.parameters(), betas=(0.5, 0.9)).state_dict()
        with pytest.raises(bad, match=r"group 0 has betas=\(0.5, 0.9\)"):
            opt.load_state_dict(state)
        opt.load_state_dict({"param_groups": [{"params": [0, 1, 2, 3], "lr": 0.3}]})
        train(model, opt, 1)
        assert np.isclose(opt.param_groups[0]["lr"], 0.3) and opt.job.global_step == 6


@pytest.mark.parametrize("elastic", [None, 0.25])
@pytest.mark.parametrize("what", ["push", "wait"])
def test_an_exchange_that_took_too_long_loses_nothing_and_counts_once(what, elastic, monkeypatch):
    def run(late):
        model = make()
        inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        with passel.torch.share(model, "delta", inner=inner, elastic=elastic, mode="barrier") as opt:
            for k in range(4):
                with monkeypatch.context() as patched:
                    if late and k == 1:
                        patched.setattr(opt.job, what, give_up)
                        with pytest.raises(passel.DeadlineExceeded):
                            train(model, opt, 1)
                    else:
                        train(model, opt, 1)
            centre = {name: values.copy() for name, values in opt.job.pull("copy").items()}
            return model, centre, opt.job.global_step

    def give_up(timeout=None):
        raise passel.DeadlineExceeded("no outcome yet")

    (model, centre, steps), (other, plain, _) = run(True), run(False)
    assert steps == (3 if what == "push" else 4)
    if elastic is None or what == "wait":  # else one exchange of four is missing
        assert difference(model, other) < 1e-6
        for name, values in centre.items():
            np.testing.assert_allclose(values, plain[name], atol=1e-6)

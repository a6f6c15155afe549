"""passel.torch in a job of one process: schedulers of every kind, tracked, followed, and taken up from a checkpoint."""

import shutil

import numpy as np
import pytest
import torch

import passel
import passel.torch
from models import OPTIMIZERS, difference, loss_of, make, train

L = torch.optim.lr_scheduler
KINDS = {
    "step": lambda opt: L.StepLR(opt, 7, 0.5),
    "sequential": lambda opt: L.SequentialLR(opt, [L.LinearLR(opt, 0.1, total_iters=4), L.ExponentialLR(opt, 0.9)], [4]),
    "restarts": lambda opt: L.CosineAnnealingWarmRestarts(opt, 6),
    "chained": lambda opt: L.ChainedScheduler([L.LinearLR(opt, 0.1, total_iters=8), L.ExponentialLR(opt, 0.9)], optimizer=opt),
    "plateau": lambda opt: L.ReduceLROnPlateau(opt, factor=0.5, patience=3),
}


def go_on(kind, model, opt, scheduler, steps):
    for _ in range(steps):
        train(model, opt, 1)
        scheduler.step(*([1.0] if kind == "plateau" else []))  # no progress: the rate falls


@pytest.mark.parametrize("kind", KINDS)
def test_each_is_taken_up_from_a_checkpoint_after_a_kill(kind, tmp_path):
    folder, model = tmp_path / "train", make()
    with passel.torch.share(model, "sgd", lr=0.1, checkpoint_dir=folder) as opt:
        scheduler = KINDS[kind](opt)
        opt.track(scheduler=scheduler)
        go_on(kind, model, opt, scheduler, 10)
        rates = [opt.param_groups[0]["lr"]]
        opt.job.save()  # as by time or steps: what is beside it is written some steps after it
        opt._renew()
        opt._beside._next_look = float("inf")
        go_on(kind, model, opt, scheduler, 5)
        rates.append(opt.param_groups[0]["lr"])
        opt._beside._next_look = 0
        train(model, opt, 1)
        shutil.copytree(folder, tmp_path / "left")  # a kill now would leave these
    assert rates[0] != rates[1]
    again = make(1)
    with passel.torch.share(again, "sgd", lr=0.1, checkpoint_dir=tmp_path / "left") as opt:
        scheduler = KINDS[kind](opt)
        opt.track(scheduler=scheduler)
        assert opt.job.global_step == 10
        # What counts its steps is where it was; what looks at numbers, or counts elsewhere, is as it was saved.
        assert np.isclose(opt.param_groups[0]["lr"], rates[kind in ("chained", "plateau")])
        go_on(kind, again, opt, scheduler, 5)
        if kind not in ("chained", "plateau"):
            assert np.isclose(opt.param_groups[0]["lr"], rates[1])


def test_a_file_that_is_older_than_the_checkpoint_is_said(tmp_path):
    folder = tmp_path / "train"
    with passel.torch.share(make(), "sgd", lr=0.1, checkpoint_dir=folder) as opt:
        scheduler = L.StepLR(opt, 2, 0.5)
        opt.track(scheduler=scheduler)
        for _ in range(2):
            opt.zero_grad()
            opt.step()
            scheduler.step()
            opt.save()
    (folder / "model.ckpt-2.torch").unlink()
    with pytest.warns(UserWarning, match="goes on from global step 2, and the newest file beside .* is of step 1: .* are of then"):
        with passel.torch.share(make(), "sgd", lr=0.1, checkpoint_dir=folder) as opt:
            scheduler = L.StepLR(opt, 2, 0.5)
            opt.track(scheduler=scheduler)
            assert opt.job.global_step == 2 and scheduler.last_epoch == 1


def test_follow_takes_what_counts_and_stays_at_its_end():
    model, other = make(), make()
    with passel.torch.share(model, "sgd", lr=0.1) as opt:
        for made in (KINDS["plateau"](opt), 3):
            with pytest.raises(passel.InvalidArgument, match=f"follow.. takes a scheduler .* not {type(made).__name__}: step that"):
                opt.follow(made)
    with passel.torch.share(other, "sgd", lr=0.1) as opt:
        scheduler = L.OneCycleLR(opt, max_lr=0.2, total_steps=6, cycle_momentum=False)
        opt.follow(scheduler)
        train(other, opt, 9)  # others may have made the last steps, too
        assert scheduler.last_epoch == 6 and opt.job.global_step == 9


def test_hooks_of_steps_are_called_with_an_optimizer_of_ones_own():
    model, seen = make(), []
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    with passel.torch.share(model, "delta", inner=inner, push_every=2) as opt:
        opt.register_step_pre_hook(lambda optimizer, arguments, names: seen.append("before"))
        opt.register_step_post_hook(lambda optimizer, arguments, names: seen.append("after"))
        train(model, opt, 3)
    assert seen == ["before", "after"] * 3


def test_arguments_that_torch_optim_trips_over_are_refused():
    with pytest.raises(passel.InvalidArgument, match=r"torch.optim.Adam refuses these arguments of share\(\): "):
        passel.torch.share(make(), "adam", betas=(0.9,))


@pytest.mark.parametrize("odd", ["strides", "negated", "zeros", "kept"])
def test_gradients_of_every_kind_are_taken(odd):
    """What PyTorch leaves in p.grad may lie in another order, be a negated view, or be somebody's who keeps it."""
    model, other = make(), make()
    kind, settings = OPTIMIZERS["adam"]
    kept = []
    with passel.torch.share(model, "adam", **settings) as opt:
        for _ in range(5):
            opt.zero_grad(set_to_none=odd != "zeros")
            loss_of(model).backward()
            for p in model.parameters():
                if odd == "strides" and p.dim() == 2:
                    p.grad = p.grad.t().contiguous().t()
                elif odd == "negated":
                    p.grad = torch._neg_view(-p.grad)
                    assert p.grad.is_neg() and p.grad.is_contiguous()
                kept.append((p.grad, p.grad.clone()))
            opt.step()
            assert all(p.grad is None for p in model.parameters())
    assert all(torch.equal(gradient, before) for gradient, before in kept)
    train(other, kind(other.parameters(), **settings), 5)
    assert difference(model, other) < 1e-6


def test_gradients_without_memory_are_zeros():
    model, other = make(), make()
    plain = torch.optim.SGD(other.parameters(), lr=0.1)
    with passel.torch.share(model, "sgd", lr=0.1) as opt:
        for net, optimizer in ((model, opt), (other, plain)):
            loss_of(net).backward()
            net[0].bias.grad = torch._efficientzerotensor(net[0].bias.shape)
            optimizer.step()
    assert difference(model, other) < 1e-6

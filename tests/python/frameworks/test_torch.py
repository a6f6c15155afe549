"""passel.torch in a job of one process: numbers of torch.optim, and memory."""

import copy

import numpy as np
import pytest
import torch

import passel
import passel.torch
from models import OPTIMIZERS, X, Y, Odd, difference, in_arena, loss_of, make, train


@pytest.mark.parametrize("mode", ["hogwild", "locked", "barrier"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_numbers_are_those_of_torch_optim_in_double(name, mode):
    kind, arguments = OPTIMIZERS[name]
    model, double = make(), make().double()
    with passel.torch.share(model, name, mode=mode, **arguments) as opt:
        train(model, opt, 50)
        train(double, kind(double.parameters(), **arguments), 50, dtype=torch.float64)
        assert difference(model, double) < 1e-5
        assert opt.outcome.global_step == opt.job.global_step == 50


@pytest.mark.parametrize("name", ["sgd", "adam", "adagrad"])
def test_weight_decay_is_added_to_the_gradient_as_torch_does(name):
    kind, arguments = OPTIMIZERS[name]
    model, double = make(), make().double()
    with passel.torch.share(model, name, weight_decay=0.2, **arguments) as opt:
        train(model, opt, 50, clip=0.5)
        train(double, kind(double.parameters(), weight_decay=0.2, **arguments), 50, clip=0.5, dtype=torch.float64)
        assert difference(model, double) < 1e-5


def test_a_class_of_torch_optim_names_its_formula():
    model = make()
    with passel.torch.share(model, torch.optim.AdamW, lr=0.01) as opt:
        assert isinstance(opt, torch.optim.Optimizer)
        assert opt.param_groups[0]["weight_decay"] == 0.01 and opt.defaults["decoupled_weight_decay"]


def test_tensorflows_adam_is_another_one():
    model, other = make(), make()
    with passel.torch.share(model, "tf.adam", lr=0.01, epsilon=1e-3) as opt:
        train(model, opt, 5)
    with passel.torch.share(other, "adam", lr=0.01, eps=1e-3) as opt:
        train(other, opt, 5)
    assert difference(model, other) > 1e-5


@pytest.mark.parametrize("pull", ["auto", "view", "copy"])
@pytest.mark.parametrize("mode", ["hogwild", "barrier"])
def test_parameters_and_gradients_lie_where_the_documentation_says(mode, pull):
    model = make()
    with passel.torch.share(model, "adam", lr=0.01, mode=mode, pull=pull) as opt:
        scheduler = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: 1.0)
        assert in_arena(opt, model)
        for turn in range(10):
            train(model, opt, 10, scheduler=scheduler, clip=0.1)
            assert in_arena(opt, model)
            model.load_state_dict(model.state_dict())
            opt.load_state_dict(opt.state_dict())
            model.zero_grad(set_to_none=True)
            opt.zero_grad(set_to_none=turn % 2 == 0)
            assert in_arena(opt, model)
        shared = opt.job.pull("view")
        is_view = pull == "view" or (pull == "auto" and mode == "barrier")
        lies = [p.data_ptr() == shared[name].__array_interface__["data"][0] for name, p in model.named_parameters()]
        assert lies == [is_view] * 4
    after = [p.detach().clone() for p in model.parameters()]  # left: they are this process's own
    with torch.no_grad():
        for p in model.parameters():
            p.add_(1)
    assert all(torch.equal(p, q + 1) for p, q in zip(model.parameters(), after))


def test_where_arrays_move_parameters_and_gradients_follow():
    model, double = make(), make().double()
    with passel.torch.share(model, "sgd", lr=0.1, mode="hogwild", mode_schedule="10:barrier,20:locked") as opt:
        train(model, opt, 30)
        assert opt.job.mode == "locked" and in_arena(opt, model)
        train(double, torch.optim.SGD(double.parameters(), lr=0.1), 30, dtype=torch.float64)
        assert difference(model, double) < 1e-5


def test_push_every_makes_one_update_of_the_mean():
    model, other = make(), make()
    with passel.torch.share(model, "sgd", lr=0.1, push_every=3, weight_decay=0.1) as opt:
        for k in range(7):
            assert opt.pushes_next == (k % 3 == 2)
            opt.zero_grad()
            (loss_of(model) * (k + 1)).backward()
            opt.step()
            if k == 3:
                model.zero_grad()  # drops the sum: of nobody's use
        assert opt.job.global_step == 2
    plain = torch.optim.SGD(other.parameters(), lr=0.1, weight_decay=0.1)
    for scale in (2, (4 + 5 + 6) / 3, 7):  # the last one when it leaves
        plain.zero_grad()
        (loss_of(other) * scale).backward()
        plain.step()
    assert difference(model, other) < 1e-6


def test_the_same_without_zero_grad_and_with_that_of_the_model():
    model, other = make(), make()
    with passel.torch.share(model, "sgd", lr=0.1) as opt:
        for k in range(6):
            if k % 3 == 0:
                model.zero_grad()
            elif k % 3 == 1:
                for p in model.parameters():
                    p.grad = None
            loss_of(model).backward()
            opt.step()
    train(other, torch.optim.SGD(other.parameters(), lr=0.1), 6)
    assert difference(model, other) < 1e-6


def test_what_was_left_in_gradients_is_dropped_by_zero_grad():
    model, other = make(), make()
    with passel.torch.share(model, "sgd", lr=0.1) as opt:
        (loss_of(model) * 100).backward()
        opt.zero_grad()
        assert all(p.grad is None for p in model.parameters())
        (loss_of(model) * 100).backward()
        opt.zero_grad(set_to_none=False)
        assert all(p.grad.abs().max() == 0 for p in model.parameters())
        train(model, opt, 1)
    train(other, torch.optim.SGD(other.parameters(), lr=0.1), 1)
    assert difference(model, other) < 1e-6


def test_tied_frozen_unused_and_scalar_parameters():
    torch.manual_seed(0)
    model = Odd()
    other = copy.deepcopy(model)
    x = torch.tensor([0, 1, 2, 3, 4, 0])
    with passel.torch.share(model, "adam", lr=0.01) as opt:
        assert set(opt.job.variables) == {"embed.weight", "unused", "scale", "norm.weight", "norm.bias"}
        assert model.out.weight is model.embed.weight
        plain = torch.optim.Adam(other.parameters(), lr=0.01)
        for net, optimizer in ((model, opt), (other, plain)):
            for _ in range(20):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(net(x), x).backward()
                optimizer.step()
        assert difference(model, other) < 1e-5
        assert torch.equal(model.unused, torch.ones(3)) and model.norm.num_batches_tracked == 20
        model.frozen.requires_grad_()
        torch.nn.functional.cross_entropy(model(x), x).backward()
        with pytest.raises(passel.FailedPrecondition, match=r"'frozen' has a gradient, and was not shared.*requires_grad_\(False\)"):
            opt.step()
        model.frozen.requires_grad_(False)
        model.frozen.grad = None
        opt.step()


def test_autocast_and_a_scaler():
    model, other = make(), make()
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    with passel.torch.share(model, "sgd", lr=0.1) as opt:
        for _ in range(5):
            opt.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = loss_of(model)
            scaler.scale(loss).backward()
            scaler.unscale_(opt)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(opt)
            scaler.update()
        assert opt.job.global_step == 5 and in_arena(opt, model)
    train(other, torch.optim.SGD(other.parameters(), lr=0.1), 5, clip=1.0)
    assert difference(model, other) < 5e-3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_have_float32_masters(dtype):
    model = make().to(dtype)
    rate = 1e-4  # of which a half alone would lose most updates
    first = [p.detach().float() for p in model.parameters()]
    with passel.torch.share(model, "sgd", lr=rate, masters=True, weight_decay=0.0) as opt:
        total = [torch.zeros_like(p) for p in first]
        for _ in range(20):
            opt.zero_grad()
            loss_of(model, dtype).backward()
            for sum_, p in zip(total, model.parameters()):
                sum_ += p.grad.float()
            opt.step()
        masters = opt.job.pull("copy")
        for (name, p), begin, sum_ in zip(model.named_parameters(), first, total):
            assert p.dtype is dtype
            np.testing.assert_allclose(masters[name], (begin - rate * sum_).numpy(), atol=1e-6)
            assert torch.equal(p, torch.tensor(masters[name]).to(dtype))


def test_a_compiled_model_and_a_closure():
    model, other = make(), make()
    with passel.torch.share(model, "sgd", lr=0.1) as opt:
        compiled = torch.compile(model, backend="eager")

        def closure():
            opt.zero_grad()
            loss = loss_of(compiled)
            loss.backward()
            return loss

        losses = [opt.step(closure).item() for _ in range(5)]
        assert losses == sorted(losses, reverse=True)
    train(other, torch.optim.SGD(other.parameters(), lr=0.1), 5)
    assert difference(model, other) < 1e-6


def test_hooks_of_steps_run():
    model, seen = make(), []
    with passel.torch.share(model, "sgd", lr=0.1) as opt:
        opt.register_step_pre_hook(lambda optimizer, arguments, names: seen.append("before"))
        opt.register_step_post_hook(lambda optimizer, arguments, names: seen.append("after"))
        train(model, opt, 2)
    assert seen == ["before", "after"] * 2


def test_processes_that_load_data_come_after_share():
    data = torch.utils.data.TensorDataset(X, Y)
    model = make()
    with passel.torch.share(model, "sgd", lr=0.1) as opt:
        for x, y in torch.utils.data.DataLoader(data, batch_size=8, num_workers=2):
            opt.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            opt.step()
        assert opt.job.global_step == 4


def test_it_stops_early_and_shows_numbers():
    model = make()
    with passel.torch.share(model, "sgd", lr=0.1) as opt:
        for _ in opt.job.steps():
            train(model, opt, 1)
            opt.metric(loss=loss_of(model).detach(), norm=1)
            if opt.job.global_step == 7:
                opt.job.stop()
        assert opt.job.stopped and opt.job.global_step == 7
        train(model, opt, 3)  # Cancelled ends the block
        raise AssertionError("the job goes on")


def test_groups_have_rates_and_decays_of_their_own():
    model, double = make(), make().double()

    def groups(net):
        return [{"params": [net[0].weight, net[2].weight], "weight_decay": 0.1}, {"params": net[0].bias, "lr": 0.02},
                {"params": [net[2].bias], "lr": 0.0}]

    for name, kind in (("sgd", torch.optim.SGD), ("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)):
        plain = kind(groups(double), lr=0.01)
        double.load_state_dict(model.state_dict())
        with passel.torch.share(model, name, params=groups(model), lr=0.01) as opt:
            for optimizer, net in ((opt, model), (plain, double)):
                scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
                train(net, optimizer, 20, scheduler=scheduler, dtype=net[0].weight.dtype)
        assert difference(model, double) < 1e-5

"""passel.torch in a job of one process: numbers of torch.optim, memory, what is refused."""

import copy
import io

import numpy as np
import pytest
import torch

import passel
import passel.torch

X = torch.randn(32, 6, generator=torch.Generator().manual_seed(1))
Y = torch.randn(32, 3, generator=torch.Generator().manual_seed(2))


def make(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))


def loss_of(model, dtype=torch.float32):
    return torch.nn.functional.mse_loss(model(X.to(dtype)), Y.to(dtype))


def train(model, optimizer, steps, *, scheduler=None, clip=None, dtype=torch.float32):
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(model, dtype).backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        if scheduler is not None:
            scheduler.step()


def difference(model, other):
    return max((a.detach().double() - b.detach().double()).abs().max().item()
               for a, b in zip(model.parameters(), other.parameters()))


def in_arena(opt, model):
    """Addresses: values and gradients of all parameters are arrays of the job."""
    values = {array.__array_interface__["data"][0] for array in opt.job._values.values()}
    gradients = {array.__array_interface__["data"][0] for array in opt.job.gradients.values()}
    return (all(p.data_ptr() in values for p in model.parameters()) and
            all(p.grad is not None and p.grad.data_ptr() in gradients for p in model.parameters()))


OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "momentum": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9}),
    "nesterov": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True}),
    "adam": (torch.optim.Adam, {"lr": 0.01, "betas": (0.8, 0.99), "eps": 1e-3}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.3}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.1}),
}


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
    for scale in (2, (4 + 5 + 6) / 3):
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
        assert all(p.grad.abs().max() == 0 for p in model.parameters())
        train(model, opt, 1)
    train(other, torch.optim.SGD(other.parameters(), lr=0.1), 1)
    assert difference(model, other) < 1e-6


class Odd(torch.nn.Module):
    """Tied, frozen and unused parameters, a scalar, and a buffer."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(5, 4)
        self.out = torch.nn.Linear(4, 5, bias=False)
        self.out.weight = self.embed.weight
        self.frozen = torch.nn.Parameter(torch.ones(4), requires_grad=False)
        self.unused = torch.nn.Parameter(torch.ones(3))
        self.scale = torch.nn.Parameter(torch.tensor(2.0))
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, x):
        return self.out(self.norm(self.embed(x)) * self.scale * self.frozen)


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
        with pytest.raises(passel.FailedPrecondition, match="'frozen' has a gradient, and was not shared"):
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


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_goes_back_and_forth_between_passel_and_plain_pytorch(name):
    kind, arguments = OPTIMIZERS[name]
    model, other, plain = make(), make(1), make()
    theirs = kind(plain.parameters(), **arguments)
    train(plain, theirs, 5)
    model.load_state_dict(plain.state_dict())
    with passel.torch.share(model, name, state_dict=theirs.state_dict(), **arguments) as opt:  # there
        assert opt.job.global_step == (5 if "adam" in name or name == "adagrad" else 0)
        train(model, opt, 5)
        file = io.BytesIO()
        torch.save({"model": model.state_dict(), "optimizer": opt.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)  # and back
    other.load_state_dict(saved["model"])
    back = kind(other.parameters(), **{**arguments, "lr": 7.0})
    back.load_state_dict(saved["optimizer"])
    assert back.param_groups[0]["lr"] == arguments["lr"]
    train(other, back, 5)
    train(plain, theirs, 10)
    assert difference(other, plain) < 1e-5
    assert set(saved["optimizer"]["param_groups"][0]) == set(theirs.param_groups[0])


def refused(kind, sentence, *arguments, **settings):
    with pytest.raises(kind, match=sentence) as caught:
        passel.torch.share(*arguments, **settings).leave()
    assert "\n" not in str(caught.value)


def test_what_cannot_be_is_said_in_one_sentence():
    bad = passel.InvalidArgument
    refused(bad, "takes a torch.nn.Module, not a list", [])
    refused(bad, "knows the optimizers sgd, .*, but not 'adan'", make(), "adan")
    refused(bad, "not 'rmsprop' .PyTorch's RMSprop is none", make(), "rmsprop")
    refused(bad, "amsgrad=False alone, not True", make(), "adam", amsgrad=True)
    refused(bad, "maximize=False alone", make(), "sgd", maximize=True)
    refused(bad, "dampening=0 alone, not 0.5", make(), "sgd", momentum=0.9, dampening=0.5)
    refused(bad, "torch.optim.Adam refuses .* Invalid learning rate: -1", make(), "adam", lr=-1.0)
    refused(bad, "calls the learning rate lr", make(), "adam", learning_rate=0.1)
    refused(bad, "tf.adam has no rate", make(), "tf.adam")
    refused(bad, r"pull= takes \"auto\", \"view\" or \"copy\", not 'fast'", make(), pull="fast")
    refused(bad, "push_every is steps for one update, 1 or more, not 0", make(), push_every=0)
    refused(bad, "buffers= takes", make(), buffers="all")
    refused(bad, "'0.weight' is of torch.bfloat16.* masters=True", make().bfloat16())
    refused(bad, "'0.weight' is of torch.float64.*model.float()", make().double())
    refused(bad, "'0.weight' is on the device meta", torch.nn.Sequential(torch.nn.Linear(2, 2, device="meta")))
    refused(bad, "is of torch.complex64", torch.nn.Linear(2, 2, dtype=torch.complex64))
    refused(bad, "'0.weight' is not there yet", torch.nn.Sequential(torch.nn.LazyLinear(2)))
    refused(bad, "embedding '0' has sparse gradients", torch.nn.Sequential(torch.nn.Embedding(3, 2, sparse=True)))
    refused(bad, "no parameter that needs a gradient", torch.nn.ReLU())
    refused(bad, "no parameter of the model", make(), params=make().parameters())
    refused(bad, "setting colour is not known", make(), "adam", colour="red")
    state = torch.optim.Adam(make().parameters(), betas=(0.5, 0.9)).state_dict()
    refused(bad, "has betas=.0.5, 0.9., and share", make(), "adam", state_dict=state)
    refused(bad, "takes what state_dict.. of an optimizer has given", make(), "adam", state_dict={"a": 1})
    refused(bad, r"has groups of \[4\] parameters, and the model shares groups of \[2\]", torch.nn.Linear(2, 2), "adam",
            state_dict=state)
    refused(bad, 'optimizer="delta" needs inner=', make(), "delta")
    with passel.torch.share(make(), "adam") as opt:
        with pytest.raises(bad, match="a parameter cannot be added later"):
            opt.add_param_group({"params": [torch.nn.Parameter(torch.ones(2))]})
        with pytest.raises(bad, match="has no state_dict"):
            opt.track(epoch=3)


def test_what_would_be_lost_is_refused():
    model, other = make(), make(1)
    late = passel.FailedPrecondition
    with passel.torch.share(model, "adam") as opt:
        train(model, opt, 2)
        with pytest.raises(late, match="has other values of '0.weight' than the job: load them before share"):
            model.load_state_dict(other.state_dict())
        with pytest.raises(late, match="load_state_dict.assign=True. gives the model other parameters"):
            model.load_state_dict(model.state_dict(), assign=True)
        plain = torch.optim.Adam(other.parameters())
        train(other, plain, 1)
        with pytest.raises(late, match=r"give them to share\(state_dict=...\)"):
            opt.load_state_dict(plain.state_dict())
        train(model, opt, 1)
        with torch.no_grad():
            model[0].weight.clamp_(-0.1, 0.1)
        loss_of(model).backward()
        with pytest.raises(late, match="'0.weight' was written to since the last step"):
            opt.step()
        opt.leave()
        model.load_state_dict(other.state_dict())
        assert difference(model, other) == 0
    model = make()
    with passel.torch.share(model, "sgd") as opt:
        model.half()
        with pytest.raises(late, match="'0.weight' has got other memory than the job's"):
            opt.step()


def test_a_gradient_that_is_no_number_is_not_handed_in():
    model = make()
    with passel.torch.share(model, "sgd", lr=0.1) as opt:
        train(model, opt, 1)
        before = [p.detach().clone() for p in model.parameters()]
        (loss_of(model) * float("nan")).backward()
        with pytest.raises(passel.Diverged, match="0.weight"):
            opt.step()
        assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before))
        train(model, opt, 2)
        assert opt.job.global_step == 3


def test_delta_alone_is_the_inner_optimizer():
    model, other = make(), make()
    inner = torch.optim.Adam(model.parameters(), lr=0.01)
    with passel.torch.share(model, "delta", inner=inner, push_every=4, mode="barrier") as opt:
        scheduler = torch.optim.lr_scheduler.StepLR(opt, 5)
        train(model, opt, 12, scheduler=scheduler)
        assert opt.job.global_step == 3 and opt.param_groups is inner.param_groups
        centre = opt.job.pull("copy")
        assert all(np.allclose(centre[name], p.detach(), atol=1e-6) for name, p in model.named_parameters())
    plain = torch.optim.Adam(other.parameters(), lr=0.01)
    train(other, plain, 12, scheduler=torch.optim.lr_scheduler.StepLR(plain, 5))
    assert difference(model, other) < 1e-5


def test_elastic_averaging_moves_both_towards_each_other():
    model = make()
    inner = torch.optim.SGD(model.parameters(), lr=0.5)
    with passel.torch.share(model, "delta", inner=inner, elastic=0.25) as opt:
        centre = {name: values.copy() for name, values in opt.job.pull("copy").items()}
        for _ in range(5):
            own = {name: p.detach().numpy().copy() for name, p in model.named_parameters()}
            inner.zero_grad()
            loss_of(model).backward()
            own = {name: own[name] - np.float32(0.5) * p.grad.numpy() for name, p in model.named_parameters()}
            opt.step()
            for name, p in model.named_parameters():
                difference = own[name] - centre[name]
                np.testing.assert_allclose(p.detach().numpy(), own[name] - 0.25 * difference, atol=1e-6)
                centre[name] += 0.25 * difference
        now = opt.job.pull("copy")
        for name in now:
            np.testing.assert_allclose(now[name], centre[name], atol=1e-6)


def test_a_checkpoint_and_what_is_beside_it(tmp_path):
    torch.manual_seed(0)
    model = Odd()
    x = torch.tensor([0, 1, 2, 3, 4, 0])

    def step(net, opt):
        opt.zero_grad()
        torch.nn.functional.cross_entropy(net(x), x).backward()
        opt.step()

    settings = {"lr": 0.01, "checkpoint_dir": tmp_path / "train", "keep_checkpoints": 2}
    with passel.torch.share(model, "adam", **settings) as opt:
        scheduler = torch.optim.lr_scheduler.StepLR(opt, 3)
        opt.track(scheduler=scheduler)
        for _ in range(5):
            step(model, opt)
            scheduler.step()
        assert opt.save() == 5
        random = torch.rand(3)
        beside = sorted(path.name for path in (tmp_path / "train").glob("*.torch"))
        assert beside[-1] == "model.ckpt-5.torch"
    buffers = {name: b.clone() for name, b in model.named_buffers()}
    torch.manual_seed(7)
    again = Odd()
    with passel.torch.share(again, "adam", **settings) as opt:
        assert opt.job.global_step == 5 and difference(again, model) == 0
        assert torch.equal(torch.rand(3), random)
        for name, b in again.named_buffers():
            assert torch.equal(b, buffers[name])
        new = torch.optim.lr_scheduler.StepLR(opt, 3)
        opt.track(scheduler=new)
        assert new.state_dict() == scheduler.state_dict()
        for _ in range(3):
            step(again, opt)
            opt.save()
    sets = {path.name.split(".safetensors")[0] for path in (tmp_path / "train").glob("*.safetensors")}
    beside = {path.name.split(".torch")[0] for path in (tmp_path / "train").glob("model*.torch")}
    assert sets == beside == {"model.ckpt-7", "model.ckpt-8"}


def test_a_scheduler_that_follows_the_job(tmp_path):
    model, other = make(), make()
    for begin in (0, 10):
        with passel.torch.share(model, "sgd", lr=0.1, checkpoint_dir=tmp_path / "train") as opt:
            assert opt.job.global_step == begin
            scheduler = torch.optim.lr_scheduler.LambdaLR(opt, lambda epoch: 1 / (1 + epoch))
            opt.follow(scheduler, every=5)
            assert scheduler.last_epoch == begin // 5
            train(model, opt, 10)
            assert scheduler.last_epoch == begin // 5 + 2
    for step in range(20):
        train(other, torch.optim.SGD(other.parameters(), lr=0.1 / (1 + step // 5)), 1)
    assert difference(model, other) < 1e-6


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

"""passel.torch in a job of one process: what is saved, what is refused, and optimizers of one's own."""

import copy as copy_module
import fcntl
import io
import os
import pathlib
import types
import warnings

import numpy as np
import pytest
import torch

import passel
import passel.torch
from models import OPTIMIZERS, Odd, difference, loss_of, make, train
from passel.torch._buffers import Buffers


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
    refused(bad, "lr= is a number, not '0.1'", make(), "adam", lr="0.1")
    model = make()
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    refused(bad, "was given one: give its class, torch.optim.SGD", model, inner)
    refused(bad, "are those of inner=, .*: omit params=", model, "delta", inner=inner, params=[model[0].weight])
    refused(bad, "omit pull=", model, "delta", inner=inner, pull="view")
    refused(bad, "omit masters=", model, "delta", inner=inner, masters=True)
    refused(bad, "above 0 and up to 1, not 1.5", model, "delta", inner=inner, elastic=1.5)
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
    far = make()
    far.register_buffer("far", torch.zeros(2, device="meta"))
    refused(bad, "the buffer 'far' is on the device meta", far, buffers="chief")
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
        assert opt.param_groups[0]["lr"] == 0.01
        opt.track(scheduler=new)
        assert new.state_dict() == scheduler.state_dict()
        assert opt.param_groups[0]["lr"] == 0.001
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


def test_a_tracked_scheduler_goes_on_with_the_rates_of_then(tmp_path):
    def run(steps, folder, restarts, own):
        model = make()
        for _ in range(1 + restarts):
            kind, inner = "sgd", {"lr": 0.2}
            if own:
                kind, inner = "delta", {"inner": torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.5)}
            with passel.torch.share(model, kind, checkpoint_dir=folder, **inner) as opt:
                scheduler = torch.optim.lr_scheduler.ExponentialLR(opt, 0.9)
                opt.track(scheduler=scheduler)
                if own:
                    assert opt.param_groups is inner["inner"].param_groups and opt.state is inner["inner"].state
                train(model, opt, steps // (1 + restarts), scheduler=scheduler)
                opt.save()
        assert opt.job.id and np.isclose(opt.param_groups[0]["lr"], 0.2 * 0.9**steps)
        return model

    for own in (False, True):
        assert difference(run(12, tmp_path / f"a{own}", 0, own), run(12, tmp_path / f"b{own}", 2, own)) < 1e-6


def test_a_tracked_scheduler_is_taken_up_where_it_was_at_the_checkpoint(tmp_path):
    """What is beside a checkpoint is written some steps after it."""
    folder, model, at = tmp_path / "train", make(), []
    with passel.torch.share(model, "sgd", lr=0.1, checkpoint_dir=folder) as opt:
        scheduler = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.2, total_steps=60, cycle_momentum=False)
        opt.track(scheduler=scheduler)
        train(model, opt, 10, scheduler=scheduler)
        at.append(opt.job.save())  # not opt.save(): as one by time or steps
        opt._renew()
        opt._beside._next_look = float("inf")
        train(model, opt, 15, scheduler=scheduler)
        opt._beside._next_look = 0
        train(model, opt, 1, scheduler=scheduler)
        beside = torch.load(folder / f"model.ckpt-{at[0]}.torch")
        assert beside["tracked"]["scheduler"]["last_epoch"] == 25 and beside["epochs"] == {"scheduler": 10}
        rate = scheduler.optimizer.param_groups[0]["lr"]
        for path in folder.iterdir():  # a kill now would leave these
            (tmp_path / "left").mkdir(exist_ok=True)
            (tmp_path / "left" / path.name).write_bytes(path.read_bytes())
    again = make(1)
    with passel.torch.share(again, "sgd", lr=0.1, checkpoint_dir=tmp_path / "left") as opt:
        scheduler = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.2, total_steps=60, cycle_momentum=False)
        opt.track(scheduler=scheduler)
        assert opt.job.global_step == at[0] == scheduler.last_epoch == 10
        train(again, opt, 16, scheduler=scheduler)
        assert np.isclose(opt.param_groups[0]["lr"], rate)
        train(again, opt, 60 - 26 - 1, scheduler=scheduler)  # OneCycleLR refuses one step more than it was made for


def test_a_model_is_saved_and_copied_whole_while_it_is_shared_and_afterwards(tmp_path):
    model, other = make(), make(5)
    with passel.torch.share(model, "sgd", lr=0.1) as opt:
        train(model, opt, 3)
        for _ in range(2):
            torch.save(model, tmp_path / "model")
            read, copy = torch.load(tmp_path / "model", weights_only=False), copy_module.deepcopy(model)
            assert difference(read, model) == 0 and difference(copy, model) == 0
            copy.load_state_dict(other.state_dict())
            read.load_state_dict(other.state_dict())
            assert difference(read, other) == 0 and difference(copy, other) == 0 and difference(model, other) > 0
            if not opt.job._left:
                train(model, opt, 2)
                opt.leave()
        model.load_state_dict(other.state_dict())
        with pytest.raises(passel.FailedPrecondition, match="has left its job: .* make another optimizer"):
            opt.step()


def test_rates_that_a_scheduler_has_made_are_not_made_again():
    model, other = make(), make()
    plain = torch.optim.Adam(other.parameters(), lr=0.1)
    theirs = torch.optim.lr_scheduler.ExponentialLR(plain, 0.9)
    train(other, plain, 5, scheduler=theirs)
    model.load_state_dict(other.state_dict())
    with passel.torch.share(model, "adam", lr=0.1, state_dict=plain.state_dict()) as opt:
        scheduler = torch.optim.lr_scheduler.ExponentialLR(opt, 0.9)
        with pytest.raises(passel.FailedPrecondition, match="give the scheduler its own state before"):
            opt.follow(scheduler)
        scheduler.load_state_dict(theirs.state_dict())
        opt.follow(scheduler)
        train(model, opt, 5)
        assert scheduler.last_epoch == 10
    train(other, plain, 5, scheduler=theirs)
    assert difference(model, other) < 1e-5


def test_what_could_not_be_read_back_is_refused_and_what_cannot_be_read_is_said(tmp_path):
    model = make()
    settings = {"lr": 0.1, "checkpoint_dir": tmp_path / "train"}
    with passel.torch.share(model, "sgd", **settings) as opt:
        with pytest.raises(passel.InvalidArgument, match="track.. was given bad=.*numbers of NumPy.*scalar") as caught:
            opt.track(bad=torch.optim.lr_scheduler.LambdaLR(opt, lambda step: np.float64(0.5)))
        assert "\n" not in str(caught.value)
        opt.track(good=torch.optim.lr_scheduler.LambdaLR(opt, lambda step: 0.5))
        train(model, opt, 2)
        opt.save()
        train(model, opt, 2)
        opt.save()
    for junk in (b"", b"abc", b"PK"):
        (tmp_path / "train/model.ckpt-4.torch").write_bytes(junk)
        with pytest.warns(UserWarning, match="model.ckpt-4.torch cannot be read") as seen:
            with passel.torch.share(make(), "sgd", **settings) as opt:
                assert opt.job.global_step == 4
                scheduler = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: 0.5)
                opt.track(good=scheduler)
        assert all("\n" not in str(each.message) for each in seen)


class Worker:
    """What the buffers of a worker want of its job."""

    def __init__(self, rank, step, beginning=1):
        self.rank, self.global_step, self.is_chief = rank, step, rank == 0
        self.world_size, self.is_alone, self.id = 2, False, "made-up"
        self._core = types.SimpleNamespace(beginning=lambda: (beginning, 0, False, False))


@pytest.mark.parametrize("fails", [False, True])
def test_a_worker_that_leaves_keeps_the_buffers_of_one_that_was_killed(fails):
    def begin(rank, step):
        module = torch.nn.BatchNorm1d(3)
        return module, Buffers(module, Worker(rank, step), "own")

    folder = pathlib.Path(os.environ["XDG_RUNTIME_DIR"]) / "passel"
    (_, chief), (module, worker) = begin(0, 0), begin(1, 0)
    module.running_mean.fill_(7)
    chief.stepped(3)
    worker.stepped(4)
    if fails:
        worker.close(comes_again=True)
    else:
        fcntl.flock(worker._file, fcntl.LOCK_UN)  # killed: its lock is gone, and its word is there
    chief.close()
    module, again = begin(1, 5)
    assert module.running_mean.tolist() == [7, 7, 7]
    again.restore({"running_mean": torch.zeros(3)})  # of a checkpoint, which is older
    assert module.running_mean.tolist() == [7, 7, 7]
    again.stepped(6)
    again.close()
    assert list(folder.glob("torch-*")) == [] and module.running_mean.tolist() == [7, 7, 7]


@pytest.mark.parametrize("rank", [0, 1])
def test_values_that_begin_anew_have_none_of_the_buffers_of_before(rank):
    def begin(rank, step, beginning):
        module = torch.nn.BatchNorm1d(3)
        return module, Buffers(module, Worker(rank, step, beginning), "own")

    folder = pathlib.Path(os.environ["XDG_RUNTIME_DIR"]) / "passel"
    killed = [begin(rank, 0, 1) for rank in (0, 1)]
    for module, buffers in killed:
        module.running_mean.fill_(7)
        buffers.stepped(4)
    begin(0, 0, 2)[1].close()  # one of the former is there
    assert len(list(folder.glob("torch-*"))) == 1
    for _, buffers in killed:
        fcntl.flock(buffers._file, fcntl.LOCK_UN)
    module, buffers = begin(rank, 9, 2)
    assert module.running_mean.tolist() == [0, 0, 0]
    assert [path.name.split("-")[3] for path in folder.glob("torch-*")] == [f"{2:016x}"]
    buffers.restore({"running_mean": torch.full((3,), 5.0)})
    assert module.running_mean.tolist() == [5, 5, 5]
    buffers.close()
    assert list(folder.glob("torch-*")) == []


def test_buffers_that_no_file_has_are_those_of_the_checkpoint():
    def begin(rank, step):
        module = torch.nn.BatchNorm1d(3)
        module.register_buffer("graph", torch.zeros(2, 2).to_sparse())
        return module, Buffers(module, Worker(rank, step), "own")

    module, buffers = begin(0, 0)
    buffers.stepped(1)
    saved = {"num_batches_tracked": torch.tensor(7), "graph": torch.eye(2).to_sparse()}
    late, of_late = begin(1, 1)
    of_late.restore(saved)
    assert late.num_batches_tracked == 0 and late.graph.to_dense().sum() == 2
    fresh, of_fresh = begin(1, 0)
    of_fresh.restore(saved)
    assert fresh.num_batches_tracked == 7 and fresh.graph.to_dense().sum() == 2
    for each in (of_late, of_fresh, buffers):
        each.close()


def trained(steps, **settings):
    """Of a job: the step that it begins at, batches that the running mean has seen, epochs of the schedule."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 3))
    with passel.torch.share(model, "adam", lr=0.1, **settings) as opt:
        scheduler = torch.optim.lr_scheduler.ExponentialLR(opt, 0.9)
        opt.track(scheduler=scheduler)
        began = opt.job.global_step, model[1].num_batches_tracked.item(), scheduler.last_epoch
        train(model, opt, steps, scheduler=scheduler)
        return began, opt.state_dict()


def test_the_checkpoint_of_another_folder_is_taken_with_what_is_beside_it(tmp_path):
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert trained(5, checkpoint_dir=one)[0] == (0, 0, 0)
        assert trained(4, checkpoint_dir=one)[0] == (5, 5, 5)
        for resume in (one, one + "/model.ckpt-9"):
            assert trained(1, resume=resume)[0] == (9, 9, 9)
        assert trained(3, resume=one + "/model.ckpt-5", checkpoint_dir=two)[0] == (5, 5, 5)
        assert trained(1, resume=one + "/model.ckpt-5", checkpoint_dir=two)[0] == (8, 8, 8)
    # Of another training, and of another branch of the same, nothing is taken.
    (tmp_path / "one" / "model.ckpt-5.torch").unlink()
    with pytest.warns(UserWarning, match="nothing is beside its checkpoints"):
        assert trained(0, resume=one + "/model.ckpt-5", checkpoint_dir=str(tmp_path / "three"))[0] == (5, 0, 0)
    (tmp_path / "two" / "model.ckpt-9.torch").unlink()
    with pytest.warns(UserWarning, match="is of step 8"):
        assert trained(0, resume=one + "/model.ckpt-5", checkpoint_dir=two)[0][1:] == (8, 8)
    for file in (tmp_path / "one").glob("*.torch"):
        file.unlink()
    with pytest.warns(UserWarning, match="the job goes on from global step 9, and nothing is beside its checkpoints in .*one"):
        assert trained(0, resume=one)[0] == (9, 0, 0)


def test_a_checkpoint_of_the_step_of_a_given_state_is_gone_on_from_with_what_is_beside_it(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        settings = {"checkpoint_dir": str(tmp_path / "train")}
        _, saved = trained(5, **settings)
        assert trained(0, state_dict=saved)[0] == (5, 0, 0)
        assert trained(0, state_dict=saved, **settings)[0] == (5, 5, 5)
        assert trained(2, state_dict=saved, checkpoint_dir=str(tmp_path / "other"))[0] == (5, 0, 0)
        assert trained(0, state_dict=saved, checkpoint_dir=str(tmp_path / "other"))[0] == (7, 2, 2)

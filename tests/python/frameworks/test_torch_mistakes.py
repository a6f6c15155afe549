"""passel.torch and what scripts do by mistake: each of them is said, or does no harm."""

import copy
import gc
import io
import multiprocessing.reduction

import numpy as np
import pytest
import torch

import passel
import passel.torch
from models import MODES, difference, loss_of, make, train


def pulled(opt):
    return {name: np.array(values) for name, values in opt.job.pull("copy").items()}


@pytest.mark.parametrize("masters", [False, True])
@pytest.mark.parametrize("given", [torch.ones(1), torch.ones(6, 8), torch.ones(8, 5), torch.ones(8, 6, 1)])
def test_a_gradient_whose_shape_was_changed_is_refused(given, masters):
    dtype = torch.bfloat16 if masters else torch.float32
    model = make().to(dtype)
    with passel.torch.share(model, "sgd", lr=0.1, masters=masters) as opt:
        before = pulled(opt)
        loss_of(model, dtype).backward()
        model[0].weight.grad.data = given.to(dtype)
        with pytest.raises(passel.InvalidArgument, match='gradient of "0.weight" has another shape than the parameter'):
            opt.step()
        assert all(np.array_equal(now, before[name]) for name, now in pulled(opt).items()) and opt.job.global_step == 0
        train(model, opt, 2) if not masters else None
        assert opt.job.global_step == (0 if masters else 2)


@pytest.mark.parametrize("mode", MODES)
def test_a_parameter_that_was_cut_or_turned_is_refused(mode):
    for change in (lambda p: p[:4], lambda p: p.flatten(), lambda p: p.clone()):
        model = make()
        with passel.torch.share(model, "sgd", lr=0.1, mode=mode) as opt:
            train(model, opt, 1)
            model[0].weight.data = change(model[0].weight.data)
            with pytest.raises(passel.FailedPrecondition, match="'0.weight' has got other memory than the job's, or another shape"):
                opt.step()
    square = torch.nn.Linear(3, 3)
    with passel.torch.share(square, "sgd", lr=0.1, mode=mode) as opt:
        square.weight.data = square.weight.data.t()
        with pytest.raises(passel.FailedPrecondition, match="other memory than the job's, or another shape"):
            opt.step()


def in_arena_of_none(model):
    """Whether no process shares the memory of the parameters."""
    spans = []
    with open("/proc/self/maps") as maps:
        for line in maps:
            place, access, *_ = line.split()
            if access[3] == "s":
                spans.append([int(each, 16) for each in place.split("-")])
    return not any(begin <= p.data_ptr() < end for begin, end in spans for p in model.parameters())


@pytest.mark.parametrize("mode", MODES)
def test_an_optimizer_that_nobody_has_any_more_is_still_in_its_job(mode):
    model = make()

    def train_it():
        opt = passel.torch.share(model, "sgd", lr=0.1, mode=mode)
        train(model, opt, 3)
        return opt.job

    job = train_it()
    gc.collect()
    assert job.global_step == 3
    with pytest.raises(passel.AlreadyExists, match="call leave"):
        passel.join({"w": 1})
    job.leave()
    assert in_arena_of_none(model)
    del job
    with passel.join({"w": 1}):
        pass


def test_what_is_left_of_an_optimizer_that_nobody_has_is_handed_in(start, tmp_path):
    start(f"""
    import gc
    import torch
    import passel.torch
    model = torch.nn.Linear(3, 1)
    def train():
        opt = passel.torch.share(model, "sgd", lr=0.1, push_every=4, checkpoint_dir={str(tmp_path / "train")!r})
        for _ in range(6):
            opt.zero_grad()
            model(torch.ones(1, 3)).sum().backward()
            opt.step()
    train()
    gc.collect()
    """).end()
    files = sorted(each.name for each in (tmp_path / "train").iterdir())
    assert "model.ckpt-2.safetensors" in files and "model.ckpt-2.torch" in files, files


@pytest.mark.parametrize("masters", [False, True])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("pull", ["auto", "view", "copy"])
def test_backward_through_a_graph_of_before_the_step_says_so(mode, pull, masters):
    dtype = torch.bfloat16 if masters else torch.float32
    model = make().to(dtype)
    with passel.torch.share(model, "sgd", lr=0.1, mode=mode, pull=pull, masters=masters) as opt:
        for turn in range(2):
            opt.zero_grad()
            loss = loss_of(model, dtype)
            other = model(torch.ones(2, 6, dtype=dtype)).square().sum()
            loss.backward()
            opt.step()
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                other.backward()
            assert opt.job.global_step == turn + 1
        opt.zero_grad()
        loss_of(model, dtype).backward()
        opt.step()


def test_slots_of_a_former_job_of_that_name_are_refused(tmp_path):
    def begin():
        model = make()
        return model, passel.torch.share(model, "adam", lr=0.01, job_id="same")

    model, opt = begin()
    with opt:
        train(model, opt, 3)
        saved = opt.state_dict()
        opt.load_state_dict(saved)
    model, opt = begin()
    with opt:
        with pytest.raises(passel.FailedPrecondition, match=r"give them to share\(state_dict="):
            opt.load_state_dict(saved)


def moved_to_double(model):
    model.double()


def moved_by_vector(model):
    with torch.no_grad():
        torch.nn.utils.vector_to_parameters(torch.nn.utils.parameters_to_vector(model.parameters()).clone(), model.parameters())


def moved_by_data(model):
    for p in model.parameters():
        p.data = p.data.clone()


@pytest.mark.parametrize("move", [moved_to_double, moved_by_vector, moved_by_data])
@pytest.mark.parametrize("elastic", [None, 0.5])
def test_an_optimizer_of_your_own_follows_parameters_to_other_memory(move, elastic):
    model = make()
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    with passel.torch.share(model, "delta", inner=inner, elastic=elastic) as opt:
        train(model, opt, 2)
        move(model)
        before = pulled(opt)
        train(model, opt, 3, dtype=model[0].weight.dtype)
        after = pulled(opt)
        assert all(np.abs(after[name] - before[name]).max() > 1e-4 for name in before)
        if elastic is None:
            assert all(np.abs(after[name] - p.detach().numpy()).max() < 1e-6 for name, p in model.named_parameters())
        model[0].weight.data = model[0].weight.data[:4]
        with pytest.raises(passel.FailedPrecondition, match=r"'0.weight' is of the shape \(4, 6\) by now, and the job's of \(8, 6\)"):
            opt._exchange()
        model[0].weight.data = torch.ones(8, 6)


def test_parameters_in_the_same_memory_are_refused():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    model[1].weight.data = model[0].weight.data
    with pytest.raises(passel.InvalidArgument, match="'0.weight' and '1.weight' are in the same memory"):
        passel.torch.share(model)
    flat = torch.zeros(20)
    model[0].weight.data, model[1].weight.data = flat[:16].view(4, 4), flat[4:].view(4, 4)
    with pytest.raises(passel.InvalidArgument, match="are in the same memory"):
        passel.torch.share(model)
    flat = torch.zeros(32)
    model[0].weight.data, model[1].weight.data = flat[:16].view(4, 4), flat[16:].view(4, 4)
    model[1].bias = model[0].bias
    with passel.torch.share(model) as opt:
        assert len(opt.job.variables) == 3


def overlaps(first, second):
    model = torch.nn.Module()
    model.a, model.b = torch.nn.Parameter(first), torch.nn.Parameter(second)
    try:
        passel.torch.share(model).leave()
    except passel.InvalidArgument as error:
        assert "'a' and 'b' are in the same memory" in str(error) or "'b' and 'a' are in the same memory" in str(error)
        return True
    return False


def test_parameters_that_are_views_of_the_same_memory_are_refused():
    matrix, image = torch.zeros(6, 6), torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last)
    assert overlaps(matrix.t(), matrix) and overlaps(matrix, matrix.t()) and overlaps(matrix.t(), matrix.t())
    assert overlaps(image, image) and overlaps(image.permute(0, 2, 3, 1), image)
    assert overlaps(matrix, matrix[:, 2]) and overlaps(matrix[:, 2], matrix[1:3]) and overlaps(matrix[::2], matrix[2:4])
    assert overlaps(matrix[0].expand(3, 6), matrix[0, 5:]) and overlaps(matrix[0], matrix[0, 5:].expand(4))
    assert not overlaps(matrix[:, 2], matrix[:, 3]) and not overlaps(matrix[::2], matrix[1::2])
    assert not overlaps(matrix[:3], matrix[3:]) and not overlaps(matrix[:, :3], matrix[:, 3:]) and not overlaps(image[0], image[1])


def test_parameters_in_the_same_memory_stay_so_with_an_optimizer_of_your_own():
    def tied():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Linear(6, 6), torch.nn.Linear(6, 3))
        model[1].weight.data = model[0].weight.data
        return model

    model, other = tied(), tied()
    with passel.torch.share(model, "delta", inner=torch.optim.SGD(model.parameters(), lr=0.1)) as opt:
        train(model, opt, 4)
    train(other, torch.optim.SGD(other.parameters(), lr=0.1), 4)
    assert difference(model, other) < 1e-6 and torch.equal(model[0].weight, model[1].weight)


@pytest.mark.parametrize("optimizer", ["adam", "delta"])
def test_a_checkpoint_of_the_job_alone_does_not_end_the_training(optimizer, tmp_path):
    model = make()
    more = {"inner": torch.optim.SGD(model.parameters(), lr=0.1)} if optimizer == "delta" else {}
    with passel.torch.share(model, optimizer, checkpoint_dir=str(tmp_path / "train"), **more) as opt:
        for step in range(1, 4):
            train(model, opt, 1)
            assert opt.job.save() == step
        assert opt.save() == 3
        train(model, opt, 1)


@pytest.mark.parametrize("lacks", ["tracked", "groups", "epochs", "buffers", "random"])
def test_a_file_beside_a_checkpoint_that_lacks_something_is_said(lacks, tmp_path):
    settings = {"lr": 0.1, "checkpoint_dir": str(tmp_path / "train")}
    model = make()
    with passel.torch.share(model, "sgd", **settings) as opt:
        train(model, opt, 2)
    path = tmp_path / "train" / "model.ckpt-2.torch"
    for nonsense in (None, 7):
        state = torch.load(path)
        state[lacks] = nonsense
        if nonsense is None:
            del state[lacks]
        torch.save(state, path)
        with pytest.warns(UserWarning, match=f"model.ckpt-2.torch cannot be read.*it has no '{lacks}'"):
            with passel.torch.share(make(), "sgd", **settings) as opt:
                assert opt.job.global_step == 2
        torch.save({**state, lacks: [] if lacks == "groups" else {}}, path)


def test_a_failure_in_share_is_the_one_that_is_shown(monkeypatch):
    class Odd(Exception):
        pass

    def fails(*_):
        raise Odd

    monkeypatch.setattr(passel.torch._optimizer._core, "Watch", fails)
    with pytest.raises(Odd):
        passel.torch.share(make())
    monkeypatch.undo()
    with passel.torch.share(make()):
        pass


def test_what_cannot_be_trained_is_said_before():
    with torch.inference_mode():
        model = torch.nn.Linear(3, 1)
    with pytest.raises(passel.InvalidArgument, match="was made in inference_mode"):
        passel.torch.share(model)
    model = torch.nn.Sequential(torch.nn.Embedding(5, 4, max_norm=1.0), torch.nn.Linear(4, 1))
    with pytest.raises(passel.InvalidArgument, match="the embedding '0' has max_norm=1.0"):
        passel.torch.share(model)
    model[0].requires_grad_(False)
    with passel.torch.share(model):
        pass
    model = make()
    model.register_buffer("graph", torch.eye(4).to_sparse())
    with pytest.raises(passel.InvalidArgument, match="the buffer 'graph' is of the layout torch.sparse_coo"):
        passel.torch.share(model, buffers="chief")
    with passel.torch.share(model) as opt:
        train(model, opt, 2)


def test_a_sparse_buffer_among_several_workers(start, tmp_path):
    start(f"""
    import torch
    import passel.torch
    model = torch.nn.BatchNorm1d(3)
    model.register_buffer("graph", torch.eye(4).to_sparse())
    with passel.torch.share(model, "sgd", lr=0.1, checkpoint_dir={str(tmp_path / "train")!r}) as opt:
        for _ in range(3):
            opt.zero_grad()
            model(torch.randn(8, 3)).sum().backward()
            opt.step()
    assert model.graph.layout is torch.sparse_coo and model.num_batches_tracked >= 3
    """, run=["--workers=2"]).end()


@pytest.mark.parametrize("moves", ["queue", "share_memory"])
def test_tensors_that_were_given_to_other_processes_are_named(moves):
    model = make()
    with passel.torch.share(model, "sgd", lr=0.1) as opt:
        if moves == "queue":
            pipe = io.BytesIO()
            multiprocessing.reduction.ForkingPickler(pipe).dump(model.state_dict())
        else:
            model.share_memory()
        with pytest.raises(passel.FailedPrecondition, match="a queue of torch.multiprocessing.*put copies"):
            train(model, opt, 1)


def test_zero_grad_to_zeros_is_as_pytorchs():
    for prepare in (lambda p: torch.ones(4, 8, 6)[1], lambda p: torch.ones(8, 6).requires_grad_(),
                    lambda p: torch.ones(8, 6).requires_grad_() * 2):
        model = make()
        with passel.torch.share(model, "sgd", lr=0.1) as opt:
            given = model[0].weight.grad = prepare(model[0].weight)
            opt.zero_grad(set_to_none=False)
            assert model[0].weight.grad is given and not given.any() and not given.requires_grad
            train(model, opt, 1)


@pytest.mark.parametrize("push_every", [1, 3])
def test_gradients_with_a_history_leave_none_in_the_job(push_every):
    model = make().to(torch.bfloat16)
    with passel.torch.share(model, "sgd", lr=0.1, masters=True, push_every=push_every) as opt:
        for _ in range(4):
            opt.zero_grad()
            loss_of(model, torch.bfloat16).backward(create_graph=True)
            opt.step()
            for tensor in opt._gradients + opt._sums:
                assert not tensor.requires_grad and tensor.grad_fn is None


def test_a_gradient_that_became_sparse_is_named():
    model = torch.nn.Embedding(5, 4)
    with passel.torch.share(model, "sgd", lr=0.1) as opt:
        model.sparse = True
        model(torch.tensor([1, 2])).sum().backward()
        with pytest.raises(passel.InvalidArgument, match="the gradient of 'weight' has the layout torch.sparse_coo"):
            opt.step()


@pytest.mark.parametrize("optimizer", ["adam", "delta"])
def test_a_default_device_of_the_script_is_not_where_sums_are(optimizer):
    model = make()
    more = {"inner": torch.optim.SGD(model.parameters(), lr=0.1)} if optimizer == "delta" else {}
    torch.set_default_device("meta")
    torch.set_default_dtype(torch.float64)
    try:
        with passel.torch.share(model, optimizer, push_every=2, **more) as opt:
            for _ in range(4):
                opt.zero_grad()
                for p in model.parameters():
                    p.grad = torch.ones(p.shape, dtype=torch.float32, device="cpu")
                opt.step()
            assert opt.job.global_step == 2
            assert all(each.dtype is torch.float32 and each.device.type == "cpu" and each.isfinite().all()
                       for each in [*model.parameters(), *getattr(opt, "_sums", []), *getattr(opt, "_start", [])])
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("optimizer", ["adam", "delta"])
def test_an_optimizer_is_not_copied(optimizer):
    model = make()
    more = {"inner": torch.optim.SGD(model.parameters(), lr=0.1)} if optimizer == "delta" else {}
    with passel.torch.share(model, optimizer, **more) as opt:
        for call in (lambda: copy.deepcopy(opt), lambda: torch.save(opt, io.BytesIO())):
            with pytest.raises(passel.FailedPrecondition, match=r"cannot be copied or saved.*state_dict\(\)"):
                call()
        torch.save(opt.state_dict(), io.BytesIO())
        other = copy.deepcopy(model)
        train(model, opt, 1)
        assert difference(model, other) > 0


def test_a_gradient_that_is_no_number_says_what_to_do_here():
    model = make()
    with passel.torch.share(model, "sgd", lr=0.1) as opt:
        (loss_of(model) * float("nan")).backward()
        with pytest.raises(passel.Diverged, match=r"not pushed: call zero_grad\(\) and go on with another batch"):
            opt.step()
        train(model, opt, 1)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(passel.Diverged, match="what has changed of the parameter .*: give the parameters here finite values"):
        with passel.torch.share(model, "delta", inner=inner) as opt:
            with torch.no_grad():
                model[0].weight[0, 0] = float("nan")
            train(model, opt, 1)


def test_a_write_is_not_hidden_by_loading_the_same():
    model = make()
    with passel.torch.share(model, "sgd", lr=0.1) as opt:
        with torch.no_grad():
            model[0].weight.zero_()
        with pytest.raises(passel.FailedPrecondition, match="'0.weight' was written to since the last step"):
            model.load_state_dict(model.state_dict())

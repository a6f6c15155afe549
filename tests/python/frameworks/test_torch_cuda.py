"""passel.torch with a model on a CUDA device; what needs no device runs everywhere."""

import sys
import time

import pytest
import torch

import passel
import passel.torch
from models import OPTIMIZERS, X, Y, difference, make
from passel.torch._pinned import Pinned

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is here")


def loss_of(model, rows=slice(None)):
    first = next(model.parameters())
    return torch.nn.functional.mse_loss(model(X[rows].to(first.device, first.dtype)).float(), Y[rows].to(first.device))


def train(model, optimizer, steps, backwards=1):
    for k in range(steps):
        optimizer.zero_grad()
        for part in range(backwards):
            loss_of(model, slice(8 * ((k + part) % 4), None)).backward()
        optimizer.step()


class Runtime:
    """In place of CUDA's, for who registers memory."""

    def __init__(self, code=0):
        self.code, self.registered, self.waits = code, {}, 0

    def cudaHostRegister(self, address, size, flags):
        assert flags == 0 and address not in self.registered
        if self.code == 0:
            self.registered[address] = size
        return self.code

    def cudaHostUnregister(self, address):
        assert self.waits > 0, "copies may still go on"
        del self.registered[address]
        return 0

    def wait(self, device):
        self.waits += 1


@pytest.fixture
def runtime(monkeypatch, request):
    runtime = Runtime(getattr(request, "param", 0))
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    monkeypatch.setattr(torch.cuda, "synchronize", runtime.wait)
    return runtime


def test_memory_is_registered_once_and_given_back_after_its_copies(runtime):
    tensors = [torch.zeros(1000), torch.zeros(0), torch.zeros(3, 5)]
    pinned = Pinned([torch.device("cuda", 0), torch.device("cuda", 0)])
    pinned.add(tensors)
    pinned.add(tensors)
    assert runtime.registered == {tensors[0].data_ptr(): 4000, tensors[2].data_ptr(): 60} and runtime.waits == 0
    pinned.clear()
    assert not runtime.registered and runtime.waits == 1
    pinned.clear()
    assert runtime.waits == 1


@pytest.mark.parametrize("runtime", [2], indirect=True)
def test_memory_that_is_refused_is_one_warning(runtime):
    pinned = Pinned([torch.device("cuda", 0)])
    with pytest.warns(UserWarning, match=r"CUDA does not register the job's memory \(cudaHostRegister: error 2\)") as seen:
        pinned.add([torch.zeros(10), torch.zeros(20)])
    assert len(seen) == 1
    pinned.clear()


@on_gpu
@pytest.mark.parametrize("mode", ["hogwild", "barrier"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_those_of_plain_pytorch(name, mode):
    kind, settings = OPTIMIZERS[name]
    model, other = make().cuda(), make().double()
    with passel.torch.share(model, name, mode=mode, **settings) as opt:
        train(model, opt, 20, backwards=2)
        assert opt.job.global_step == 20
        assert all(p.is_cuda and p.grad is None for p in model.parameters())
    plain = kind(other.parameters(), **settings)
    for k in range(20):
        plain.zero_grad()
        for part in range(2):
            rows = slice(8 * ((k + part) % 4), None)
            torch.nn.functional.mse_loss(other(X[rows].double()), Y[rows].double()).backward()
        plain.step()
    assert difference(model.cpu(), other) < 1e-4


@on_gpu
@pytest.mark.parametrize("pull", ["copy", "view"])
def test_copies_are_of_registered_memory_until_the_end(pull):
    model = make().cuda()
    with passel.torch.share(model, "adam", lr=0.01, pull=pull) as opt:
        train(model, opt, 3)
        places = {tensor.data_ptr() for tensor in opt._values + opt._gradients}
        assert len(places) == 8 and places <= set(opt._pinned._registered)
    assert not opt._pinned._registered
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), 3)  # it is the process's own again


@on_gpu
def test_the_driver_may_refuse_and_training_goes_on(monkeypatch):
    refuses = Runtime(2)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: refuses)
    model, other = make().cuda(), make().cuda()
    with pytest.warns(UserWarning, match="several times slower"):
        opt = passel.torch.share(model, "adam", lr=0.01)
    with opt:
        train(model, opt, 10)
    monkeypatch.undo()
    with passel.torch.share(other, "adam", lr=0.01) as opt:
        train(other, opt, 10)
    assert difference(model, other) == 0


@on_gpu
def test_halves_have_masters_of_float32():
    model = make().to("cuda", torch.bfloat16)
    before = loss_of(model).item()
    with passel.torch.share(model, "adam", lr=0.01, masters=True) as opt:
        train(model, opt, 50)
        for name, parameter in model.named_parameters():
            master = torch.tensor(opt.job.pull("copy")[name])
            assert parameter.dtype is torch.bfloat16 and torch.equal(master.to(torch.bfloat16), parameter.detach().cpu())
    assert loss_of(model).item() < 0.8 * before


@on_gpu
def test_a_model_may_be_on_both():
    model, other = make(), make()
    model[2].cuda()
    place = torch.nn.Sequential(model[0], model[1])

    def loss():
        return torch.nn.functional.mse_loss(model[2](place(X).cuda()), Y.cuda())

    plain = torch.optim.SGD(other.parameters(), lr=0.1)
    with passel.torch.share(model, "sgd", lr=0.1) as opt:
        for _ in range(10):
            opt.zero_grad()
            loss().backward()
            opt.step()
            plain.zero_grad()
            torch.nn.functional.mse_loss(other(X), Y).backward()
            plain.step()
    assert difference(model.cpu(), other) < 1e-5


@on_gpu
def test_amp_with_a_scaler_and_accumulation():
    model = make().cuda()
    before = loss_of(model).item()
    scaler = torch.amp.GradScaler("cuda")
    with passel.torch.share(model, "adam", lr=0.01, push_every=2) as opt:
        for _ in range(100):
            opt.zero_grad()
            with torch.autocast("cuda", torch.float16):
                loss = torch.nn.functional.mse_loss(model(X.cuda()), Y.cuda())
            scaler.scale(loss).backward()
            scaler.unscale_(opt)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(opt)
            scaler.update()
        assert 45 <= opt.job.global_step <= 50
    assert loss_of(model).item() < 0.9 * before


@on_gpu
def test_delta_trains_there():
    model = make().cuda()
    before = loss_of(model).item()
    inner = torch.optim.Adam(model.parameters(), lr=0.01)
    with passel.torch.share(model, "delta", inner=inner, push_every=5) as opt:
        train(model, opt, 50)
        assert opt.job.global_step == 10
    assert loss_of(model).item() < 0.8 * before


@on_gpu
def test_a_checkpoint_has_its_random_state(tmp_path):
    def drawn(steps):
        model = make().cuda()
        with passel.torch.share(model, "sgd", lr=0.1, checkpoint_dir=tmp_path / "train") as opt:
            train(model, opt, steps)
            opt.save()
            return torch.rand(4, device="cuda")

    first = drawn(3)
    torch.cuda.manual_seed(99)
    model = make().cuda()
    with passel.torch.share(model, "sgd", lr=0.1, checkpoint_dir=tmp_path / "train") as opt:
        assert opt.job.global_step == 3
        assert torch.equal(torch.rand(4, device="cuda"), first)


SCRIPT = """
    import os, sys, torch, passel.torch
    sys.path.insert(0, {here!r})
    from test_torch_cuda import loss_of, make
    model = make().cuda()
    with passel.torch.share(model, "adam", lr=0.01, mode={mode!r}) as opt:
        print("in", opt.job.rank, os.getpid(), flush=True)
        while opt.job.global_step < {steps} and not opt.job.stopped:
            opt.zero_grad()
            loss_of(model).backward()
            opt.step()
    print("loss", loss_of(model).item(), flush=True)
"""


@on_gpu
@pytest.mark.parametrize("mode", ["hogwild", "barrier"])
def test_workers_share_a_device_and_one_is_killed(mode, tmp_path):
    import os
    import pathlib
    import signal
    import subprocess
    import textwrap
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT).format(here=str(pathlib.Path(__file__).parent), mode=mode, steps=3000))
    running = subprocess.Popen([passel.program(), "run", "--workers", "2", "--max_restarts", "2", "--", sys.executable,
                                str(script)], stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        seen, killed = [], False
        end = time.monotonic() + 200
        for line in running.stdout:
            assert time.monotonic() < end
            seen.append(line)
            if "in 1" in line and not killed:
                killed = True
                time.sleep(0.5)
                os.kill(int(line.split()[-1]), signal.SIGKILL)
        assert running.wait(60) == 0 and killed, "".join(seen)
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
    losses = [float(line.split()[-1]) for line in seen if "loss" in line]
    assert len(losses) == 2 and max(losses) < 0.6, "".join(seen)

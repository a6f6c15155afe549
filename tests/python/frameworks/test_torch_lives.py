"""passel.torch and how a process comes to its job, leaves it, and is interrupted in a step."""

import os
import subprocess
import sys
import textwrap
import warnings

import pytest
import torch

import passel
import passel.torch
from models import MODES, difference, loss_of, make, train


def run_plain(text, **environment):
    return subprocess.run([sys.executable, "-c", textwrap.dedent(text)], env={**os.environ, **environment}, text=True,
                          capture_output=True, timeout=120)


ALONE = """
    import torch
    import passel.torch
    with passel.torch.share(torch.nn.Linear(2, 1)) as opt:
        print("alone", opt.job.is_alone)
    """


def test_a_process_that_another_launcher_has_started_is_told_that_it_is_alone():
    done = run_plain(ALONE, RANK="1", WORLD_SIZE="2", TORCHELASTIC_RUN_ID="none")
    assert done.stdout == "alone True\n" and done.returncode == 0
    assert "this process trains alone, though torchrun (WORLD_SIZE=2) has started it" in done.stderr
    assert "passel run --workers N" in done.stderr
    assert "<string>:4: UserWarning" in done.stderr  # the line of the script
    for more in ({"RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "none"}, {"RANK": "0", "WORLD_SIZE": "8"}, {}):
        assert run_plain(ALONE, **more).stderr == ""


def test_a_spawned_process_is_told_so_alone_and_under_passel_run(start, tmp_path):
    script = """
    import sys
    import torch
    import passel.torch

    def go(rank):
        with passel.torch.share(torch.nn.Linear(2, 1)) as opt:
            print("rank", rank, "alone", opt.job.is_alone, flush=True)

    if __name__ == "__main__":
        {first}
        torch.multiprocessing.spawn(go, (), 1)
    """
    path = tmp_path / "alone.py"
    path.write_text(textwrap.dedent(script.replace("{first}", "pass")))
    done = subprocess.run([sys.executable, str(path)], text=True, capture_output=True, timeout=120)
    assert done.returncode == 0 and "rank 0 alone True" in done.stdout
    assert "trains alone, though multiprocessing has started it" in done.stderr
    done = start(script.replace("{first}", "opt = passel.torch.share(torch.nn.Linear(2, 1))"),
                 run=["--workers=1", "--max_restarts=0"]).end(1)
    assert "multiprocessing has started this process in a worker of passel run: passel run starts the workers itself" in done.err


def test_none_of_that_is_said_of_a_plain_script():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = make()
        with passel.torch.share(model, "adam", push_every=2) as opt:
            train(model, opt, 4)


def test_a_warning_that_is_an_error_leaves_no_job(monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="trains alone"):
            passel.torch.share(make())
        assert passel.joined() is None
        warnings.filterwarnings("ignore", "this process trains alone")
        with passel.torch.share(make()):
            pass


def test_the_job_of_a_parent_is_not_the_childs():
    with passel.torch.share(make()) as opt:
        assert passel.joined() is opt.job
        child = os.fork()
        if child == 0:
            os._exit(0 if passel.joined() is None else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_slots_are_asked_for_before_the_end():
    model = make()
    with passel.torch.share(model, "adam") as opt:
        train(model, opt, 1)
    with pytest.raises(passel.FailedPrecondition, match=r"call state_dict\(\) before the end of the with block"):
        opt.state_dict()


LEAVES = """
    import os, signal, sys, threading, time
    import torch
    import passel
    import passel.torch

    model = torch.nn.Linear(3, 1, bias=False)
    opt = passel.torch.share(model, "sgd", lr=1.0, mode="barrier")
    refused = []

    def leave(*_):
        try:
            opt.leave()
        except passel.FailedPrecondition as error:
            refused.append(str(error))

    def step():
        opt.zero_grad()
        model(torch.ones(1, 3)).sum().backward()
        opt.step()

    step()
    if opt.job.rank == 0:
        if sys.argv[1] == "signal":
            signal.signal(signal.SIGALRM, leave)
            signal.setitimer(signal.ITIMER_REAL, 0.5)
        else:
            threading.Timer(0.5, leave).start()
    else:
        time.sleep(1.5)
    step()
    if opt.job.rank == 0:
        assert len(refused) == 1 and "in a call of this job" in refused[0] and passel.joined() is opt.job, refused
        opt.leave()
        assert passel.joined() is None
        with torch.no_grad():
            model.weight.fill_(-200)
    else:
        time.sleep(1)
        assert (opt.job.pull("copy")["weight"] > -100).all()
    print("went on", flush=True)
    """


@pytest.mark.parametrize("way", ["signal", "thread"])
def test_who_leaves_in_the_middle_of_a_step_is_refused_and_may_leave_later(way, start):
    assert start(LEAVES, way, run=["--workers=2"]).end().out.count("went on") == 2


def test_what_cannot_be_saved_at_the_end_keeps_nobody_in_the_job(start, tmp_path):
    (tmp_path / "train" / ".beside.torch").mkdir(parents=True)
    start(f"""
    import torch
    import passel.torch
    model = torch.nn.BatchNorm1d(3)
    opt = passel.torch.share(model, "sgd", lr=0.1, checkpoint_dir={str(tmp_path / "train")!r})
    failed = None
    try:
        for _ in range(3):
            opt.zero_grad()
            model(torch.randn(8, 3)).sum().backward()
            opt.step()
        opt.leave()
    except IsADirectoryError as error:
        failed = error
    opt.leave()
    assert failed is not None or not opt.job.is_chief
    spans = [line.split()[:2] for line in open("/proc/self/maps")]
    shared = [[int(each, 16) for each in place.split("-")] for place, access in spans if access[3] == "s"]
    for tensor in [*model.parameters(), *model.buffers()]:
        assert not any(begin <= tensor.data_ptr() < end for begin, end in shared)
    model.load_state_dict({{name: tensor + 1 for name, tensor in model.state_dict().items()}})  # no hook is left
    """, run=["--workers=2"]).end()


LATE = """
    import sys, time
    import torch
    import passel
    import passel.torch

    model = torch.nn.Linear(3, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    more = {"inner": torch.optim.SGD(model.parameters(), lr=1.0)} if sys.argv[1] == "delta" else {"lr": 1.0}
    with passel.torch.share(model, sys.argv[1], mode="barrier", timeout=30, **more) as opt:
        for number in range(4):
            opt.zero_grad()
            assert opt.job.global_step == number and (model.weight == -number).all(), (number, model.weight)
            model(torch.ones(1, 3)).sum().backward()
            if opt.job.rank == 1:
                time.sleep(1.5 if number in (1, 2) else 0)
            if opt.job.rank == 1 or number not in (1, 2):
                opt.step()
                continue
            opt.job._wait_timeout = 0.3
            try:
                opt.step()
                raise AssertionError("there was no deadline")
            except passel.DeadlineExceeded as error:
                assert "go on with zero_grad() and step(), which wait for it again" in str(error), error
            opt.job._wait_timeout = 30.0
            if number == 2:
                assert opt.step() is None and opt.job.global_step == 3  # it waits, and does no more
                assert (model.weight == -3).all()
    print("is done", flush=True)
    """


@pytest.mark.parametrize("optimizer", ["sgd", "delta"])
def test_an_update_that_is_late_is_waited_for_by_what_the_sentence_says(optimizer, start):
    assert start(LATE, optimizer, run=["--workers=2"]).end().out.count("is done") == 2


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("call", ["save", "gradients"])
def test_a_call_in_the_middle_of_a_step_loses_no_gradient_in_silence(call, mode, tmp_path):
    model, other = make(), make()
    with passel.torch.share(model, "momentum", lr=0.1, mode=mode, checkpoint_dir=str(tmp_path / "train")) as opt:
        core = opt.job._core

        class Interrupted:
            """As a handler of a signal does, just before the push."""

            def __getattr__(self, name):
                return getattr(core, name)

            def step(self, *arguments):
                opt.job._core = core
                opt.save() if call == "save" else opt.job.gradients
                return core.step(*arguments)

        train(model, opt, 2)
        opt.zero_grad()
        loss_of(model).backward()
        opt.job._core = Interrupted()
        with pytest.raises(passel.FailedPrecondition, match=r"was not handed in: call step\(\) again"):
            opt.step()
        assert opt.job.global_step == 2
        opt.step()
        assert opt.job.global_step == 3
        train(model, opt, 1)
    train(other, torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9), 4)
    assert difference(model, other) < 1e-6


def test_a_step_that_was_refused_is_made_when_it_is_called_again():
    model, other = make(), make()
    with passel.torch.share(model, "sgd", lr=0.1) as opt:
        train(model, opt, 2)
        exchange = opt.job._exchange

        def refused(*_):
            raise KeyboardInterrupt

        opt.zero_grad()
        loss_of(model).backward()
        opt.job._exchange = refused
        with pytest.raises(KeyboardInterrupt):
            opt.step()
        opt.job._exchange = exchange
        opt.step()
        assert opt.job.global_step == 3
    train(other, torch.optim.SGD(other.parameters(), lr=0.1), 3)
    assert difference(model, other) < 1e-6


@pytest.mark.parametrize("mode", ["hogwild", "locked", "ssp", "barrier", "replicas"])
def test_gradients_are_pushed_from_their_own_memory_where_nobody_else_reads_them(mode):
    more = {"staleness_bound": 3} if mode == "ssp" else {}
    model, other = make(), make()
    groups = [{"params": [model[0].weight, model[2].bias], "lr": 0.05}, {"params": [model[2].weight, model[0].bias]}]
    with passel.torch.share(model, "momentum", lr=0.1, params=groups, mode=mode, **more) as opt:
        plain = torch.optim.SGD([{"params": [other[0].weight, other[2].bias], "lr": 0.05},
                                 {"params": [other[2].weight, other[0].bias]}], lr=0.1, momentum=0.9)
        for number in range(6):
            for each, optimizer in ((model, opt), (other, plain)):
                optimizer.zero_grad(set_to_none=each is model)
                loss_of(each).backward()
                if number % 3 == 1:  # one is not there
                    each[2].weight.grad = None if each is model else torch.zeros(3, 8)
                if number % 3 == 2:  # and one is not as it is
                    each[0].weight.grad = each[0].weight.grad.t().contiguous().t()
            for array in opt.job.gradients.values():
                array[...] = 7
            slots = opt._gradients
            opt.step()
            plain.step()
            is_own = number % 3 == 0 and mode not in ("barrier", "replicas")
            assert all((slot == 7).all() for slot in slots) == is_own
        assert difference(model, other) < 1e-6

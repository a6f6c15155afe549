"""The buffers of a job whose processes were all killed, and of the next one of its name."""

import os
import re
import signal
import time

import pytest

SCRIPT = """
    import os, sys, time
    import torch
    import passel.torch

    class Keeps(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(3))
            self.register_buffer("seen", torch.zeros(5))

    model = Keeps()
    value, most, saves_at = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    with passel.torch.share(model, "sgd", lr=0.1) as opt:
        print("pid", os.getpid(), "rank", opt.job.rank, "begins at", opt.job.global_step, "with", model.seen[0].item(),
              flush=True)
        for number in opt.job.steps(most):
            opt.zero_grad()
            model.weight.sum().backward()
            model.seen[:] = value if number < saves_at else value + 1
            opt.step()
            if opt.job.is_chief and number + 1 == saves_at:
                opt.save()
            if number == saves_at:
                print("goes on", flush=True)
            time.sleep(0.005)
    """


def descendants(pid):
    found = [pid]
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children") as children:
            for child in children.read().split():
                found += descendants(int(child))
    return found


def kill_all(running):
    """By SIGKILL, everything of one command; none of it is there afterwards."""
    pids = descendants(running.process.pid)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    running.process.wait()
    end = time.monotonic() + 60
    while any(os.path.exists(f"/proc/{pid}") for pid in pids):
        assert time.monotonic() < end, pids
        time.sleep(0.01)


def beginnings(running):
    """Of each rank the step that it begins at, and what is in its buffer."""
    return {int(rank): (int(step), float(seen)) for rank, step, seen in
            re.findall(r"rank (\d) begins at (\d+) with ([\d.]+)", running.out)}


def test_a_job_has_no_buffers_of_another_one_of_its_name_that_was_killed(start, job_id, tmp_path):
    def begin(folder, value, most=1 << 30, saves_at=10):
        return start(SCRIPT, value, most, saves_at, run=["--workers=2", f"--job_id={job_id}",
                                                         f"--checkpoint_dir={tmp_path / folder}"])

    begin("former", 70, most=300).end()
    killed = begin("killed", 20)
    killed.await_text("goes on", 2)
    kill_all(killed)

    # Its checkpoint is of a later step than any of the job that was killed.
    former = begin("former", 71, most=1).end()
    assert {seen for _, seen in beginnings(former).values()} == {71.0}
    assert min(step for step, _ in beginnings(former).values()) > 200

    again = begin("killed", 30, most=1).end()
    step, seen = beginnings(again)[0]
    assert 10 <= step <= 21 and seen == 20.0  # of 20 at most, and one of the other worker
    assert beginnings(again)[1][1] in (20.0, 30.0)  # if it joins late, of what the chief has by then

    anew = begin("third", 40, most=1).end()
    assert beginnings(anew)[0] == (0, 0.0) and beginnings(anew)[1][1] in (0.0, 40.0)

    left = [entry.name for entry in os.scandir(os.environ["XDG_RUNTIME_DIR"] + "/passel") if entry.name.startswith("torch-")]
    assert left == []


JOINS = """
    import os, pathlib, signal, sys, time
    import torch
    import passel.torch

    folder = pathlib.Path(sys.argv[1])
    rank, is_again = int(os.environ.get("RANK", "0")), (folder / "again").exists()
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))

    def await_file(name):
        end = time.monotonic() + 60
        while not (folder / name).exists():
            assert time.monotonic() < end, name
            time.sleep(0.01)

    def step(opt):
        opt.zero_grad()
        model(torch.randn(8, 3)).square().sum().backward()
        opt.step()
    """


@pytest.mark.parametrize("resumed", [False, True])
def test_who_comes_late_has_the_chiefs_buffers_and_no_warning(resumed, start, tmp_path):
    before = 20 if resumed else 0
    if resumed:
        start(JOINS + """
    with passel.torch.share(model, "sgd", lr=0.01, checkpoint_dir=str(folder / "train")) as opt:
        for _ in range(20):
            step(opt)
        """, tmp_path).end()
    done = start(JOINS + """
    if rank == 1:
        await_file("go")
    with passel.torch.share(model, "sgd", lr=0.01, checkpoint_dir=str(folder / "train")) as opt:
        print("rank", rank, "has", model[1].num_batches_tracked.item(), flush=True)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(opt, 0.99)
        opt.track(scheduler=scheduler)
        for number in range(30):
            step(opt)
            if rank == 0 and number == 4:
                opt.save()
            if rank == 0 and number == 9:
                (folder / "go").touch()
                await_file("there")
        (folder / "there").touch()
    """, tmp_path, run=["--workers=2"])
    # The other one joins while the chief waits.
    done.await_text(f"rank 1 has {before + 10}")
    (tmp_path / "there").touch()
    assert "Warning" not in done.end().err, done.err


def test_a_chief_that_comes_again_says_of_when_its_schedule_is(start, tmp_path):
    done = start(JOINS + """
    with passel.torch.share(model, "sgd", lr=0.01, checkpoint_dir=str(folder / "train")) as opt:
        scheduler = torch.optim.lr_scheduler.ExponentialLR(opt, 0.5)
        print("rank", rank, "has", model[1].num_batches_tracked.item(), flush=True)
        if rank == 0 and is_again:
            opt.track(scheduler=scheduler)
            opt.track(model=torch.nn.Linear(1, 1))
            print("epochs", scheduler.last_epoch, flush=True)
        elif rank == 0:
            opt.track(scheduler=scheduler)
            for number in range(8):
                step(opt)
                if number < 4:
                    scheduler.step()
                if number == 3:
                    opt.save()
            (folder / "again").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            step(opt)
            await_file("again")
            time.sleep(0.5)
    """, tmp_path, run=["--workers=2"]).end()
    assert "rank 0 has 8" in done.out and "epochs 4" in done.out, done.out
    assert done.err.count("UserWarning") == 1, done.err
    assert re.search(r"the chief comes again at global step \d+, and the newest file beside its checkpoints in .* is of step "
                     r"\d: what is tracked goes on from there", done.err), done.err


def test_a_chief_goes_on_exactly_though_others_are_faster(start, tmp_path):
    def run(text):
        return start(JOINS + text, tmp_path, run=["--workers=2"]).end()

    run("""
    with passel.torch.share(model, "sgd", lr=0.01, checkpoint_dir=str(folder / "train")) as opt:
        torch.manual_seed(7)
        for _ in range(5 if rank == 0 else 0):
            step(opt)
        if rank == 0:
            opt.save()
            print("next", torch.rand(1).item(), flush=True)
    """)
    done = run("""
    import passel.torch._share as share
    make_buffers = share.Buffers

    def slowly(*arguments):
        if rank == 0:
            await_file("faster")
        return make_buffers(*arguments)

    share.Buffers = slowly
    with passel.torch.share(model, "sgd", lr=0.01, checkpoint_dir=str(folder / "train")) as opt:
        print("rank", rank, "next", torch.rand(1).item(), "at", opt.job.global_step, flush=True)
        for _ in range(3):
            step(opt)
        (folder / "faster").touch()
    """)
    assert "Warning" not in done.err, done.err
    torch_says = re.search(r"rank 0 next ([\d.]+) at (\d+)", done.out)
    assert int(torch_says[2]) == 8
    former = (tmp_path / "0" / "out").read_text()
    assert f"next {torch_says[1]}" in former, (former, done.out)

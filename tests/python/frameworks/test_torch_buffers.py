"""The buffers of a job whose processes were all killed, and of the next one of its name."""

import os
import re
import signal
import time

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
    assert 10 <= step <= 20 and seen == 20.0
    assert beginnings(again)[1][1] in (20.0, 30.0)  # if it joins late, of what the chief has by then

    anew = begin("third", 40, most=1).end()
    assert beginnings(anew)[0] == (0, 0.0) and beginnings(anew)[1][1] in (0.0, 40.0)

    left = [entry.name for entry in os.scandir(os.environ["XDG_RUNTIME_DIR"] + "/passel") if entry.name.startswith("torch-")]
    assert left == []

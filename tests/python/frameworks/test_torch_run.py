"""passel.torch in several processes under passel run."""

import os
import re
import signal
import subprocess
import time

import numpy as np
import torch

import passel

SCRIPT = """
    import os, sys
    import torch
    import passel.torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    X, Y = torch.randn(32, 6), torch.randn(32, 3)
    torch.manual_seed(int(os.environ["RANK"]) + 1)  # first values that differ: the chief's count

    def make():
        return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    def loss_of(model, rank, world):
        own = slice(rank * 32 // world, (rank + 1) * 32 // world)
        return torch.nn.functional.mse_loss(model(X.to(model[0].weight.dtype)[own]), Y.to(model[0].weight.dtype)[own])
    """


def same(values, model):
    return max(np.abs(values[name].numpy() - p.detach().numpy()).max() for name, p in model.named_parameters())


def recompute():
    names = {"__name__": "again"}
    text = "\n".join(line[4:] for line in SCRIPT.splitlines())
    os.environ["RANK"] = "0"
    exec(text, names)
    del os.environ["RANK"]
    return names


def test_rounds_are_the_mean_with_the_chiefs_rates(start, tmp_path):
    running = start(SCRIPT + f"""
    model = make()
    groups = [{{"params": [model[0].weight, model[2].weight], "weight_decay": 0.1}},
              {{"params": [model[0].bias, model[2].bias], "lr": 0.02, "weight_decay": 0.0}}]
    with passel.torch.share(model, "adamw", params=groups, lr=0.01, mode="barrier") as opt:
        scheduler = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: 1 / (1 + step))
        for _ in range(30):
            opt.zero_grad()
            loss_of(model, opt.job.rank, opt.job.world_size).backward()
            opt.step()
            if opt.job.is_chief:
                scheduler.step()
        assert opt.job.global_step == 30, opt.job.global_step
        places = [p.data_ptr() == opt.job.pull("view")[n].__array_interface__["data"][0] for n, p in model.named_parameters()]
        assert all(places), places  # a view, in rounds
        if opt.job.is_chief:
            torch.save(model.state_dict(), {str(tmp_path / "values")!r})
            state = opt.state_dict()["state"]
            assert len(state) == 4 and all(float(each["step"]) == 30 for each in state.values()), state
            torch.save(opt.state_dict(), {str(tmp_path / "state")!r})
    """, run=["--workers=2"]).end()
    assert running.out == ""
    names = recompute()
    model = names["make"]().double()
    groups = [{"params": [model[0].weight, model[2].weight], "weight_decay": 0.1},
              {"params": [model[0].bias, model[2].bias], "lr": 0.02, "weight_decay": 0.0}]
    plain = torch.optim.AdamW(groups, lr=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(plain, lambda step: 1 / (1 + step))
    for _ in range(30):
        plain.zero_grad()
        names["loss_of"](model, 0, 1).backward()
        plain.step()
        scheduler.step()
    assert same(torch.load(tmp_path / "values"), model) < 1e-5
    theirs, ours = plain.state_dict()["state"], torch.load(tmp_path / "state")["state"]
    for number in range(4):
        for slot in ("exp_avg", "exp_avg_sq"):
            np.testing.assert_allclose(ours[number][slot], theirs[number][slot], atol=1e-6)


def test_local_sgd_is_the_mean_of_what_the_workers_have(start, tmp_path):
    start(SCRIPT + f"""
    model = make()
    inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with passel.torch.share(model, "delta", inner=inner, push_every=3, mode="barrier") as opt:
        for _ in range(12):
            opt.zero_grad()
            loss_of(model, opt.job.rank, 2).backward()
            opt.step()
        if opt.job.is_chief:
            torch.save(model.state_dict(), {str(tmp_path / "values")!r})
    """, run=["--workers=2"]).end()
    names = recompute()
    models = [names["make"]().double() for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    inners = [torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9) for model in models]
    for k in range(12):
        for rank in range(2):
            inners[rank].zero_grad()
            names["loss_of"](models[rank], rank, 2).backward()
            inners[rank].step()
        if k % 3 == 2:
            with torch.no_grad():
                for p, q in zip(models[0].parameters(), models[1].parameters()):
                    mean = (p + q) / 2
                    p.copy_(mean)
                    q.copy_(mean)
    assert same(torch.load(tmp_path / "values"), models[0]) < 1e-5


LATE = """
    import os, pathlib, signal, sys, threading, time
    import numpy as np
    import passel

    FOLDER = pathlib.Path(sys.argv[1])
    if os.environ["RANK"] == "1":
        with passel.join({"weight": (3,)}, optimizer="sgd", learning_rate=0.1, mode="barrier") as job:
            for number in range(6):
                job.pull()
                while number in (2, 4) and not (FOLDER / f"go-{number}").exists():
                    time.sleep(0.01)
                job.gradients["weight"][...] = 3 * number
                job.step()
        raise SystemExit

    import torch
    import passel.torch

    class Alarm(Exception):
        pass

    def on_alarm(number, frame):
        raise Alarm

    def ticks():
        while True:
            time.sleep(0.001)
            counted.append(1)

    counted, late, alarms = [], 0, 0
    threading.Thread(target=ticks, daemon=True).start()
    signal.signal(signal.SIGALRM, on_alarm)
    model = torch.nn.Module()
    model.weight = torch.nn.Parameter(torch.zeros(3))
    with passel.torch.share(model, "sgd", lr=0.1, mode="barrier", timeout=0.5) as opt:
        for number in range(6):
            opt.zero_grad()
            (number * model.weight.sum()).backward()
            before, lates, call = len(counted), 0, opt.step
            while call is not None:
                try:
                    if number == 4 and not alarms:
                        opt.job._wait_timeout = 60.0
                        signal.setitimer(signal.ITIMER_REAL, 0.5)
                    call()
                    call = None
                except passel.DeadlineExceeded:
                    lates += 1
                    if number == 2 and lates >= 2 and len(counted) - before > 5:  # other threads ran in the waits
                        (FOLDER / "go-2").touch()
                    call = opt.zero_grad if lates % 2 else opt.step  # both wait for the same update
                except Alarm:
                    alarms += 1
                    (FOLDER / "go-4").touch()
            assert number != 2 or lates >= 2
            assert opt.outcome == (True, 1, number + 1, 0) and opt.job.global_step == number + 1, opt.outcome
        values = model.weight.tolist()
        assert len(opt.state_dict()["param_groups"]) == 1
    assert alarms == 1
    assert "torch._dynamo" not in sys.modules  # which takes seconds to load
    assert np.allclose(values, -0.1 * sum(2 * number for number in range(6)), atol=1e-6), values
    """


def test_an_update_that_others_hold_up_is_waited_for_again_and_counts_once(start, tmp_path):
    running = start(LATE, tmp_path, run=["--workers=2"]).end()
    assert running.out == ""


BUFFERS = """
    import os, sys, time
    import torch
    import passel.torch

    class Counts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(3))
            self.register_buffer("seen", torch.zeros(5))
            self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    model = Counts()
    policy = sys.argv[1 + int(os.environ["RANK"])]
    with passel.torch.share(model, "sgd", lr=0.1, buffers=policy) as opt:
        print("pid", os.getpid(), "rank", opt.job.rank, "begins with", model.seen[0].item(), model.steps.item(), flush=True)
        for number in opt.job.steps():
            opt.zero_grad()
            model.weight.sum().backward()
            model.seen[:] = opt.job.rank + 10
            model.steps += 1
            opt.step()
            if number == 20:
                print("at 20:", model.seen.tolist(), "of", opt.job.rank, flush=True)
            time.sleep(0.005)
    """


LAST = """
    import os
    import torch
    import passel.torch

    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    generator = torch.Generator().manual_seed(int(os.environ["RANK"]))
    with passel.torch.share(model, "sgd", lr=0.1, buffers="chief", mode="barrier") as opt:
        for _ in range(30):
            opt.zero_grad()
            model(torch.randn(8, 4, generator=generator)).square().mean().backward()
            opt.step()
    print("mean:", model[1].running_mean.tolist(), flush=True)
    """


def test_the_chiefs_buffers_are_those_of_all_after_the_last_update(start):
    for _ in range(3):
        running = start(LAST, run=["--workers=2"]).end()
        means = re.findall(r"mean: (.*)", running.out)
        assert len(means) == 2 and means[0] == means[1]


LOADS = """
    import torch
    import passel.torch

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 64
        def __getitem__(self, i):
            return torch.full((4,), float(i))

    model = torch.nn.Linear(4, 1)
    with passel.torch.share(model, "sgd", lr=1e-6, mode="hogwild") as opt:
        loader = torch.utils.data.DataLoader(Rows(), batch_size=8, num_workers=2, persistent_workers=True)
        print("begins", flush=True)
        while not opt.job.stopped:
            for x in loader:
                opt.zero_grad()
                model(x).mean().backward()
                opt.step()
    print("ends", flush=True)
    """


def test_a_command_that_is_stopped_ends_the_processes_of_a_loader_without_a_word(start):
    running = start(LOADS, run=["--workers=1"])
    running.await_text("begins")
    time.sleep(1)
    os.killpg(running.process.pid, signal.SIGTERM)
    running.end(143)
    assert "Traceback" not in running.err and "ends" in running.out


def test_buffers_outlive_their_worker(start, job_id):
    running = start(BUFFERS, "own", "own", "chief", run=["--workers=3", f"--job_id={job_id}"])
    running.await_text("at 20:", 3)
    for ranks in ((0,), (1, 2)):
        for rank in ranks:
            (pid,) = re.findall(rf"pid (\d+) rank {rank} ", running.out)
            os.kill(int(pid), signal.SIGKILL)
        for rank in ranks:
            running.await_text(f"rank {rank} begins", 2)
    subprocess.run([passel.program(), "ctl", "stop", job_id], check=True, timeout=60)
    running.end()
    for rank in range(3):
        seen, steps = re.findall(rf"rank {rank} begins with ([\d.]+) (\d+)", running.out)[1]
        assert int(steps) >= 20 and float(seen) in ((10,), (11,), (10, 12))[rank]
    for rank, values in enumerate((10.0, 11.0)):
        assert f"at 20: {[values] * 5} of {rank}" in running.out
    assert "of 2" in running.out and "[12.0, 12.0, 12.0, 12.0, 12.0] of 2" not in running.out
    left = [path for path in (os.scandir(os.environ["XDG_RUNTIME_DIR"] + "/passel")) if path.name.startswith("torch-")]
    assert left == []


RESTS = """
    mode, ends, counts = sys.argv[1], sys.argv[2], (10, int(sys.argv[3]))
    model = make()
    opt = passel.torch.share(model, "sgd", lr=0.1, push_every=4, mode=mode)
    rank = opt.job.rank
    for _ in range(counts[rank]):
        opt.zero_grad()
        loss_of(model, rank, 2).backward()
        opt.step()
    if ends == "leave":
        opt.leave()
        print("outcome", rank, tuple(opt.outcome), flush=True)
        if rank == 0:
            torch.save(model.state_dict(), sys.argv[4])
    """


def test_rounds_take_what_push_every_has_not_handed_in(start, tmp_path):
    values = tmp_path / "values"
    running = start(SCRIPT + RESTS, "barrier", "leave", 10, values, run=["--workers=2"]).end()
    assert "3 global steps in" in running.err, running.err
    names = recompute()
    model = names["make"]().double()
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):  # of the mean of what is the same each time
        plain.zero_grad()
        names["loss_of"](model, 0, 1).backward()
        plain.step()
    assert same(torch.load(values), model) < 1e-5


def test_who_leaves_with_a_rest_waits_for_nobody_who_has_none(start):
    for mode, rest, steps in (("hogwild", 8, 5), ("barrier", 8, 3), ("replicas", 9, None)):
        running = start(SCRIPT + RESTS, mode, "leave", rest, os.devnull, run=["--workers=2"]).end()
        assert sorted(re.findall(r"outcome (\d) ", running.out)) == ["0", "1"], running.out
        assert steps is None or f"{steps} global steps in" in running.err, running.err


def test_a_script_that_ends_without_leaving_hands_in_its_rest(start):
    running = start(SCRIPT + RESTS, "hogwild", "end", 10, run=["--workers=2"]).end()
    assert "6 global steps in" in running.err, running.err

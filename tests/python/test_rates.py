"""Learning rates and weight decays that change, of groups of variables."""

import json
import subprocess

import numpy as np
import pytest

import passel

SHAPES = {"w": (33, 7), "b": (7,), "v": (50, 50), "s": ()}
GROUPS = {"b": 1, "s": 1, "v": 2}
MODES = ["hogwild", "locked", "barrier", "replicas", "ssp"]


class Double:
    """One variable in double precision, by the formulas in the documentation of torch.optim (adamw) and
    tf.train (the others)."""

    def __init__(self, value, optimizer):
        self.value, self.optimizer = np.array(value, np.float64), optimizer
        self.a, self.b, self.t = np.zeros_like(self.value), np.zeros_like(self.value), 0

    def step(self, gradient, rate, decay):
        g, self.t = np.asarray(gradient, np.float64), self.t + 1
        if self.optimizer == "sgd":
            self.value -= rate * g
        elif self.optimizer == "momentum":
            self.a = 0.9 * self.a + g
            self.value -= rate * self.a
        else:
            self.a = 0.9 * self.a + 0.1 * g
            self.b = 0.999 * self.b + 0.001 * g * g
            if self.optimizer == "adam":
                corrected = rate * np.sqrt(1 - 0.999**self.t) / (1 - 0.9**self.t)
                self.value -= corrected * self.a / (np.sqrt(self.b) + 1e-8)
            else:
                self.value *= 1 - rate * decay
                unbiased = np.sqrt(self.b / (1 - 0.999**self.t)) + 1e-8
                self.value -= rate * (self.a / (1 - 0.9**self.t)) / unbiased


def schedule(step, decays):
    """A warm-up from 0, then a cosine, of three groups that differ."""
    share = step / 5 if step < 5 else 0.5 + 0.5 * np.cos(step / 10)
    return [(rate * share, decay if decays else 0.0) for rate, decay in ((0.1, 0.1), (0.02, 0.0), (0.005, 0.5))]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam", "adamw"])
def test_a_schedule_of_groups_is_that_of_plain_mathematics(mode, optimizer):
    random = np.random.default_rng(7)
    first = {name: random.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}
    golden = {name: Double(value, optimizer) for name, value in first.items()}
    with passel.join(first, groups=GROUPS, mode=mode, optimizer=optimizer, learning_rate=0.3) as job:
        for step in job.steps(40):
            rates = schedule(step, optimizer == "adamw")
            job.set_rates(rates)
            job.pull()
            gradients = {name: random.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}
            job.step(gradients)
            for name, variable in golden.items():
                variable.step(gradients[name], *rates[GROUPS.get(name, 0)])
        for name, variable in golden.items():
            np.testing.assert_allclose(job.pull()[name], variable.value, rtol=2e-5, atol=2e-6)


def test_keywords_say_the_same():
    with passel.join({"w": 3, "b": 3}, groups={"b": 1}, optimizer="adamw") as job:
        one = {"w": np.ones(3), "b": np.ones(3)}
        job.set_rates(learning_rates=[0.5, 0.25], weight_decays=[0.1, 0])
        job.pull()
        job.step(one)
        v = job.pull()
        np.testing.assert_allclose(v["w"], -0.5, rtol=1e-5)
        np.testing.assert_allclose(v["b"], -0.25, rtol=1e-5)
        job.set_rates(learning_rates=np.array([1.0, 0.0]))
        job.step(one)
        v = job.pull()
        np.testing.assert_allclose(v["w"], -1.5, rtol=1e-5)
        np.testing.assert_allclose(v["b"], -0.25, rtol=1e-5)


def test_they_stay_when_the_mode_changes():
    with passel.join({"w": 600, "b": 3}, groups={"b": 1}, optimizer="sgd",
                     mode_schedule="0:hogwild,3:barrier,6:locked,9:replicas=1,12:ssp=2,15:barrier") as job:
        job.set_rates([(0.25, 0), (0.5, 0)])
        modes, w, b = [], 0.0, 0.0
        for step in job.steps(18):
            if step == 7:
                job.set_rates([(1, 0), (2, 0)])
            modes.append(job.mode)
            job.pull()
            job.step({"w": np.ones(600), "b": np.ones(3)})
            w, b = (w - 0.25, b - 0.5) if step < 7 else (w - 1, b - 2)
            assert (job.pull()["w"] == w).all() and (job.pull()["b"] == b).all(), step
    assert list(dict.fromkeys(modes)) == ["hogwild", "barrier", "locked", "replicas", "ssp"]


def test_what_cannot_be_is_refused_in_a_sentence():
    for groups, match in (({"x": 1}, "names 'x', and there is no such variable"), ({"w": 16}, "0 to 15, not 16"),
                          ({"w": -1}, "0 to 15, not -1"), ({"w": 0.5}, "whole number, not 0.5"), ([1], "a dict")):
        with pytest.raises(passel.InvalidArgument, match=match):
            passel.join({"w": 3}, groups=groups, optimizer="sgd")
    with passel.join({"w": 3, "b": 2}, groups={"b": 1}, optimizer="ftrl") as job:
        for bad, match in (([(0.1, 0)], "have 2 groups, and rates of 1"), ([(0.1, 0), (0, 0)], "group 1 must be above 0"),
                           ([(0.1, 0), (0.1, 0.5)], "decay of group 1 is 0.5, and ftrl has none"),
                           ([(float("nan"), 0), (1, 0)], "group 0 must be"), ([(1, 0), (float("inf"), 0)], "group 1"),
                           ([0.1, 0.2], "one for each group, not 0.1"), ([(1, 2, 3), (1, 0)], "give both"),
                           ([("a", 0), (1, 0)], "are numbers"), (None, "give one of both")):
            with pytest.raises(passel.InvalidArgument, match=match):
                job.set_rates(bad)
        with pytest.raises(passel.InvalidArgument, match="2 learning_rates and 1 weight_decays"):
            job.set_rates(learning_rates=[1, 1], weight_decays=[0])
        job.pull()
        job.gradients["w"][...], job.gradients["b"][...] = 1, 1
        job.push()
        with pytest.raises(passel.FailedPrecondition, match=r"call wait\(\) before set_rates\(\)"):
            job.set_rates([(0.1, 0), (0.1, 0)])
        job.wait()
        job.set_rates([(0.1, 0), (0.1, 0)])


def test_the_chief_alone_sets_them(start):
    start("""
        import numpy as np, passel
        with passel.join({"w": 4}, optimizer="sgd", learning_rate=8.0, mode="barrier") as job:
            for step in job.steps(3):
                if job.is_chief:
                    job.set_rates([(2.0**-step, 0)])
                else:
                    try:
                        job.set_rates([(100.0, 0)])
                        raise SystemExit("it was not refused")
                    except passel.FailedPrecondition as error:
                        assert "only worker 0" in str(error), error
                job.pull()
                job.step({"w": np.full(4, 1 + job.rank)})  # their mean is 1.5
                np.testing.assert_array_equal(job.pull()["w"], -1.5 * (2 - 2.0**-step))
    """, run=["--workers=2"]).end()


def test_status_and_report_show_them(start, tmp_path, job_id):
    def status(*flags):
        return subprocess.run([passel.program(), "ctl", "status", job_id, *flags], text=True, check=True,
                              capture_output=True, timeout=60).stdout

    report = tmp_path / "report.json"
    running = start(f"""
        import sys, passel
        with passel.join({SHAPES}, groups={GROUPS}, optimizer="adamw", learning_rate=0.1) as job:
            job.pull()
            for gradient in job.gradients.values():
                gradient[...] = 0
            job.step()
            print("none", flush=True)
            while not job.stopped:
                job.pull()
                for gradient in job.gradients.values():
                    gradient[...] = 0
                if job.is_chief:
                    job.set_rates([(0.01, 0.5), (0.002, 0), (1e-5, 0.25)])
                job.step()
                print("set", flush=True)
        """, run=["--workers=1", f"--job_id={job_id}", f"--report={report}"])
    running.await_text("set")
    shown = [{"learning_rate": 0.01, "weight_decay": 0.5}, {"learning_rate": 0.002, "weight_decay": 0},
             {"learning_rate": 1e-5, "weight_decay": 0.25}]
    assert json.loads(status("--json"))["arena"]["rates"] == shown
    assert ("learning rates 0.01 (weight decay 0.5), 0.002, 1e-05 (weight decay 0.25), of the groups in turn\n"
            in status())
    subprocess.run([passel.program(), "ctl", "stop", job_id], check=True, timeout=60)
    running.end()
    assert json.loads(report.read_text())["rates"] == shown


def test_another_grouping_is_refused_with_the_difference(start):
    running = start("""
        import passel, os
        with passel.join({"w": 4, "b": 1}, groups={"b": int(os.environ["RANK"])}, optimizer="sgd") as job:
            pass
    """, run=["--workers=2"])
    running.end(1)
    assert "group" in running.out + running.err


# The first life of the chief sets rates, the ps is killed, and the chief itself; the next life has them.
@pytest.mark.parametrize("mode", ["locked", "barrier"])
def test_they_stay_when_chief_and_ps_are_killed(start, mode):
    running = start("""
        import os, signal, time
        import numpy as np, passel
        with passel.join({"w": 4, "b": 4}, groups={"b": 1}, optimizer="sgd", learning_rate=1.0) as job:
            first = os.environ["PASSEL_RESTARTS"] == "0"
            if first:
                job.set_rates([(0.25, 0), (0.5, 0)])
            for step in range(2):
                before = job.pull("copy")
                before = {name: value.copy() for name, value in before.items()}
                job.step({"w": np.ones(4), "b": np.ones(4)})
                after = job.pull("copy")
                np.testing.assert_array_equal(after["w"], before["w"] - 0.25)
                np.testing.assert_array_equal(after["b"], before["b"] - 0.5)
                if first and step == 0:
                    for pid in filter(str.isdigit, os.listdir("/proc")):
                        try:
                            words = open(f"/proc/{pid}/cmdline", "rb").read().split(b"\\0")
                            parent = int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1])
                        except OSError:
                            continue
                        if b"--job_name=ps" in words and parent == os.getppid():
                            os.kill(int(pid), signal.SIGKILL)
            if first:
                os.kill(os.getpid(), signal.SIGKILL)
            assert job.global_step == 4, job.global_step
    """, run=["--workers=1", "--ps=2", f"--mode={mode}"])
    running.end()
    for name in "ps/0", "ps/1", "worker/0":
        assert f"{name} was killed by SIGKILL" in running.err, running.err


# Its calls to the two ps: which set is free, written on ps/1, written and in force on ps/0, in force on ps/1.
@pytest.mark.parametrize("call", [1, 2, 3, 4])
def test_a_chief_that_is_killed_within_leaves_all_of_a_round_one_or_the_other(start, tmp_path, call):
    running = start("""
        import os
        import numpy as np, passel
        with passel.join({"w": 500, "b": 500}, groups={"b": 1}, optimizer="sgd", learning_rate=1.0) as job:
            if os.environ["PASSEL_RESTARTS"] == "0":
                job.set_rates([(0.25, 0), (0.5, 0)])
                raise SystemExit("the failpoint was not reached")
            before = {name: value.copy() for name, value in job.pull().items()}
            job.step({"w": np.ones(500), "b": np.ones(500)})
            after = job.pull()
            deltas = {(float(before["w"][i] - after["w"][i]), float(before["b"][i] - after["b"][i]))
                      for i in range(500)}
            print("deltas", deltas, flush=True)
            job.set_rates([(2, 0), (4, 0)])
            job.step({"w": np.ones(500), "b": np.ones(500)})
            assert (job.pull()["w"] == before["w"] - 2 - [d[0] for d in deltas]).all()
            assert (job.pull()["b"] == before["b"] - 4 - [d[1] for d in deltas]).all()
    """, run=["--workers=1", "--ps=2", "--mode=barrier"],
                    env={"PASSEL_FAILPOINT": f"rates.written:{call}:kill:{tmp_path}/marker"}).end()
    assert f"deltas {{({'0.25, 0.5' if call == 4 else '1.0, 1.0'})}}" in running.out, running.out


def words_of(folder):
    shown = subprocess.run([passel.program(), "ckpt", "show", str(folder), "--json=-"], capture_output=True, text=True,
                           check=True, timeout=60)
    return json.loads(shown.stdout)["words"]


def test_checkpoints_have_them_and_others_say_nothing(tmp_path):
    settings = {"checkpoint_dir": str(tmp_path / "some"), "optimizer": "sgd", "learning_rate": 1.0}
    groups = {"b": 1}

    def step(job):
        before = {name: value.copy() for name, value in job.pull().items()}
        job.step({"w": np.ones(4), "b": np.ones(4)})
        return [float(before[name][0] - job.pull()[name][0]) for name in ("w", "b")]

    with passel.join({"w": 4, "b": 4}, groups=groups, **settings) as job:
        assert step(job) == [1, 1]
    assert "rates" not in words_of(tmp_path / "some")
    with passel.join({"w": 4, "b": 4}, groups=groups, **settings) as job:
        assert step(job) == [1, 1]
        job.set_rates([(0.25, 0), (0.5, 0)])
        assert step(job) == [0.25, 0.5]
    assert words_of(tmp_path / "some")["rates"] == {"groups": [{"learning_rate": 0.25, "weight_decay": 0.0},
                                                               {"learning_rate": 0.5, "weight_decay": 0.0}]}
    with passel.join({"w": 4, "b": 4}, groups=groups, **settings) as job:
        assert job.global_step == 3
        assert step(job) == [0.25, 0.5]
        job.set_rates([(0.125, 0), (2, 0)])
        assert step(job) == [0.125, 2]
    with pytest.raises(passel.InvalidArgument, match="has the rates of 2 groups of variables, the job has 1"):
        passel.join({"w": 4, "b": 4}, **settings)


def test_a_checkpoint_of_three_ps_goes_on_with_them_on_two_and_alone(start, tmp_path):
    script = """
        import sys
        import numpy as np, passel
        names, learned = ["a", "b", "c", "d"], [0.5, 0.25, 0.125, 2.0]
        groups = {name: number for number, name in enumerate(names)}
        with passel.join({name: 100 for name in names}, groups=groups, optimizer="sgd", learning_rate=1.0,
                         checkpoint_dir=sys.argv[1]) as job:
            if job.global_step == 0 and job.is_chief:
                job.set_rates(learning_rates=learned)
            if job.is_chief:
                before = {name: value.copy() for name, value in job.pull().items()}
                job.step({name: np.ones(100) for name in names})
                for name, rate in zip(names, learned):
                    np.testing.assert_array_equal(before[name] - job.pull()[name], rate)
                print("step", job.global_step, flush=True)
    """
    for number, run in enumerate((["--workers=2", "--ps=3", "--mode=locked"], ["--workers=1", "--ps=2"], None)):
        running = start(script, tmp_path / "train", run=run)
        running.end()
        assert f"step {number + 1}" in running.out

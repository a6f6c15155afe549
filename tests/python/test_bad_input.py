"""What a program does wrong: an exception with a sentence, and the other workers go on."""

import os

import numpy as np
import pytest

import passel

ODD = [
    (lambda job: passel.join(3), "takes a dict of the variables by their names, not a int"),
    (lambda job: passel.join([("w", 2)]), "not a list"),
    (lambda job: passel.join({"w": 2}, timeout="soon"), "a timeout is a number of seconds, not 'soon'"),
    (lambda job: passel.join({"w": 2**70}), r"'w' has the shape \(11805.*,\).* at most 9223372036854775807"),
    (lambda job: passel.join({"w": (2, -2**70)}), "at most 9223372036854775807"),
    (lambda job: passel.join({"w": (2**31, 2**31)}), "has more than 9223372036854775807 bytes"),
    (lambda job: passel.join({"w": 2**40}), r"1.1e\+12 values.* the most is 16777214 blocks"),
    (lambda job: passel.join({"w": (1,) * 9}), "at most 8 dimensions"),
    (lambda job: passel.join({"w": True}), "described by a bool"),
    (lambda job: passel.join({"\ud800": 2}), "not in Unicode"),
    (lambda job: passel.join({"w": 2}, mode="barrier\0"), "has a NUL"),
    (lambda job: job.push("soon"), "not 'soon'"),
    (lambda job: job.wait([1]), r"not \[1\]"),
    (lambda job: job.wait(float("nan")), "0 to 1e.08, not nan"),
    (lambda job: job.step(timeout=10**400), "a number of seconds"),
    (lambda job: job.step(3), "takes a dict of gradients .* not a int"),
    (lambda job: job.step([1]), "not a list"),
    (lambda job: job.step({"w": "text"}), "no array of real numbers"),
    (lambda job: job.step({"w": [1, [2]]}), "no array of real numbers"),
    (lambda job: job.step({"w": 1j}), "no array of real numbers"),
    (lambda job: job.pull([1]), r'"auto", "view" or "copy", not \[1\]'),
    (lambda job: next(job.steps("many")), "a whole number, not 'many'"),
    (lambda job: job.metric(loss="small"), "'loss' is a number, not 'small'"),
    (lambda job: job.metric(loss=None), "not None"),
    (lambda job: job.metric(**{"a\0b": 1}), "has a NUL"),
    (lambda job: job.save("now"), "not 'now'"),
    (lambda job: passel.attach(3), "the name of a job is a text, not 3"),
    (lambda job: passel.attach("a\0b"), "has a NUL"),
    (lambda job: passel.attach(timeout="soon"), "not 'soon'"),
]


def test_what_is_of_another_type_has_a_sentence(job_id):
    with passel.join({"w": 2}, job_id=job_id, optimizer="sgd", learning_rate=1) as job:
        def train():
            job.pull()
            job.gradients["w"][...] = 1
            job.step()

        for call, sentence in ODD[11:]:
            with pytest.raises(passel.InvalidArgument, match=sentence):
                call(job)
        train()
        with passel.attach(job_id, timeout=np.float32(60)) as reader:
            for call, sentence in ((lambda: reader.wait_version("next"), "a whole number, not 'next'"),
                                   (lambda: reader.wait_version(2**70), "at most 9223372036854775807"),
                                   (lambda: reader.wait_version(1, "soon"), "not 'soon'"),
                                   (lambda: reader.read("now", "soon"), "not 'soon'"),
                                   (lambda: reader.read([]), r"not \[\]")):
                with pytest.raises(passel.InvalidArgument, match=sentence):
                    call()
            assert reader.wait_version(np.int64(1)) == 1
        np.testing.assert_array_equal(job.pull()["w"], -1)
    for call, sentence in ODD[:11]:
        with pytest.raises(passel.InvalidArgument, match=sentence):
            call(None)


def test_what_a_child_of_fork_writes_into_gradients_is_its_own():
    with passel.join({"w": 3}, optimizer="sgd", learning_rate=1) as job:
        job.pull()
        gradient = job.gradients["w"]
        gradient[...] = 1
        child = os.fork()
        if child == 0:
            code = 1
            try:
                gradient += 5
                with pytest.raises(passel.FailedPrecondition, match="by fork"):
                    job.step()
                code = 0 if (gradient == 5).all() else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        job.step()
        np.testing.assert_array_equal(job.pull()["w"], -1)


SCRIPT = """
    import os
    import numpy as np
    import passel

    def refused(what, kind, call):
        try:
            call()
            print(what, "was not refused", flush=True)
        except kind as error:
            print(what, "->", error, flush=True)

    def step():
        job.pull()
        job.gradients["w"][...] = 1
        job.step()

    one = os.environ["RANK"] == "1"
    if one:
        refused("float64", passel.InvalidArgument, lambda: passel.join({"w": np.zeros((2, 3))}))
        refused("strided", passel.InvalidArgument, lambda: passel.join({"w": np.zeros((2, 6), "f4")[:, ::2]}))
        refused("shape", passel.InvalidArgument, lambda: passel.join({"w": (2, 4)}))
        refused("setting", passel.InvalidArgument, lambda: passel.join({"w": (2, 3)}, mode="hogwild"))
    job = passel.join({"w": (2, 3)})
    step()
    if one:
        refused("second job", passel.AlreadyExists, lambda: passel.join({"w": (2, 3)}))
        job.pull()
        refused("shape of a gradient", passel.InvalidArgument, lambda: job.step({"w": np.ones((3, 2))}))
        refused("NaN", passel.Diverged, lambda: job.step({"w": np.full((2, 3), np.nan)}))
        try:
            job.gradients["w"][...] = 7
            1 / 0
        except ZeroDivisionError:
            job.pull()
        gradient = job.gradients["w"]
        np.copyto(gradient.T, np.ones((3, 2)))  # not contiguous
        child = os.fork()
        if child == 0:
            gradient[...] = 99
            refused("child", passel.FailedPrecondition, job.step)
            os._exit(0)
        os.waitpid(child, 0)
        job.step()
    else:
        step()
    print("both at", job.pull("copy")["w"], flush=True)
    if one:
        job.leave()
        refused("after leave", passel.FailedPrecondition, job.pull)
        os._exit(0)  # nothing is tidied up
    for _ in range(3):
        step()
    print("alone at", job.pull("copy")["w"], flush=True)
    """


def test_what_one_worker_does_wrong_costs_the_other_nothing(start):
    running = start(SCRIPT, run=["--workers=2", "--mode=barrier", "--optimizer=sgd", "--learning_rate=1"]).end()
    for what, sentence in (("float64", "'w' is of float64, and passel trains float32 alone"),
                           ("strided", "'w' is not contiguous"),
                           ("shape", 'variable "w" has the shape [2, 4] here and [2, 3] there'),
                           ("setting", "mode"),
                           ("second job", "one at a time"),
                           ("shape of a gradient", "'w' has the shape (3, 2)"),
                           ("NaN", '"w" has a NaN'),
                           ("child", "by fork()"),
                           ("after leave", "has left the job")):
        told = [line for line in running.out.splitlines() if f"worker/1: {what} ->" in line]
        assert len(told) == 1 and sentence in told[0], (what, running.out, running.err)
    assert running.out.count("both at [[-2. -2. -2.]") == 2, running.out
    assert "worker/0: alone at [[-5. -5. -5.]" in running.out

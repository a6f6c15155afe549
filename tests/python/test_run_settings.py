"""What the script says beats what the command says, but it stays in the job of the command."""

import re

JOINS = """
    import sys
    import passel
    settings = dict(argument.split("=", 1) for argument in sys.argv[1:])
    with passel.join({"w": 2}, timeout=30, **settings) as job:
        job.pull()
        job.gradients["w"][...] = 1
        job.step()
        print("in", job.id, "with", job.world_size, "mode", job.mode, "alone", job.is_alone, flush=True)
    """


def test_a_script_that_names_another_job_is_refused(start, job_id, tmp_path):
    for setting, there in (f"job_id=not-{job_id}", f"job_id={job_id}"), ("insecure_no_auth=true", "no insecure_no_auth"), (
            f"token_file={tmp_path}/token", "token_file=/proc/"):
        running = start(JOINS, setting, run=["--workers=2", "--grace=5", f"--job_id={job_id}"]).end(1)
        assert (f"the program has {setting}, and passel run, which started it, has {there}" in running.err
                and ": omit the program's, or give passel run the same" in running.err), running.err
        assert "InvalidArgument" in running.err and running.out == ""


def test_a_script_may_name_its_own_job(start, job_id):
    running = start(JOINS, f"job_id={job_id}", "insecure_no_auth=false",
                    run=["--workers=2", f"--job_id={job_id}", "--mode=barrier"]).end()
    assert running.out.count(f"in {job_id} with 2 mode barrier alone False") == 2


def test_a_script_with_a_cluster_of_its_own_has_that(start, job_id):
    text = """
        import passel
        try:
            passel.join({"w": 2}, ps_hosts="localhost:2222", worker_hosts="localhost:2223", task_index=0, start_wait=0.2,
                        job_id="JOB")
        except passel.Error as error:
            print("refused:", error, flush=True)
        """
    running = start(text.replace("JOB", f"own-{job_id}"), run=["--workers=1", f"--job_id={job_id}"]).end()
    assert "refused: " in running.out and "passel run" not in running.out


def test_flags_of_a_mode_or_an_optimizer_that_the_script_replaces_are_void(start):
    for flags, settings, mode in (
            (["--mode=ssp", "--staleness_bound=2"], ["mode=barrier"], "barrier"),
            (["--mode=ssp", "--staleness_bound=2"], ["mode=ssp"], "ssp"),
            (["--mode=ssp", "--staleness_bound=2"], ["mode_schedule=0:barrier,1000:hogwild"], "barrier"),
            (["--mode=replicas", "--replicas_to_aggregate=1"], ["mode=hogwild"], "hogwild"),
            (["--sync_replicas"], ["mode=locked"], "locked"),
            (["--optimizer=momentum", "--momentum=0.5"], ["optimizer=sgd"], "hogwild"),
            (["--optimizer=adamw", "--weight_decay=0.1"], ["optimizer=sgd", "mode=barrier"], "barrier"),
            (["--optimizer=momentum", "--momentum=0.5", "--use_nesterov"], ["optimizer=adam"], "hogwild")):
        running = start(JOINS, *settings, run=["--workers=2", "--grace=5", *flags]).end()
        assert re.findall(r"with 2 mode (\w+)", running.out) == [mode] * 2, (flags, settings, running.out)


def test_what_has_a_meaning_with_the_choice_of_the_script_stays(start):
    text = """
        import passel
        with passel.join({"w": 2}, optimizer="nesterov", mode="barrier") as job:
            for _ in range(2):
                job.pull()
                job.gradients["w"][...] = 1
                job.step()
            print("values", job.pull("copy")["w"], flush=True)
        """
    # 1 + 0.5, and each with a half of the next step: 1.5 + 1.75.
    running = start(text, run=["--workers=1", "--optimizer=momentum", "--momentum=0.5", "--learning_rate=1"]).end()
    assert "values [-3.25 -3.25]" in running.out, running.out


def test_the_command_does_not_know_what_the_script_will_choose(start):
    running = start(JOINS, "optimizer=momentum", run=["--workers=1", "--momentum=0.5"]).end(2)
    assert "--momentum has no meaning for --optimizer adam: omit it" in running.err

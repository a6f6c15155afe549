"""Tests of bench/peers/run and bench/peers/setup: bad input, and short runs of whatever is installed.

usage: peers_test.py BUILD_DIR [TEST...]    (a build of passel with bin/passel and bin/passel_peer)
A peer that is not installed is a skipped test that says so. Nothing is installed, and no network
is touched. Only raw TCP needs no installation, so that its row must always come out.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.realpath(__file__))
RUN = os.path.join(HERE, "run")
SETUP = os.path.join(HERE, "setup")
BUILD = ""
INSTALLED = os.environ.get("PASSEL_PEERS_DIR") or os.path.join(
    os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "passel", "peers")


def call(*arguments, limit=200, **environment):
    """(exit code, standard output, standard error); `environment` is added to this one's."""
    done = subprocess.run(arguments, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=limit, check=False, env=dict(os.environ, **environment))
    return done.returncode, done.stdout, done.stderr


def processes_of(folder):
    """Command lines of running programs below `folder`."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                line = file.read().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if line.startswith(folder):
            found.append(line)
    return found


class PeersCase(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)
        # Temporary files of the programs: what is left in there was left behind.
        self.tmp = os.path.join(self.scratch.name, "tmp")
        os.mkdir(self.tmp)

    def path(self, name):
        return os.path.join(self.scratch.name, name)

    def quick(self, names, folder):
        """The JSON of a quick run, after the checks that hold for all of them."""
        out = self.path("out.json")
        code, table, errors = call(RUN, "--quick", "--only", names, "--dir", folder, "--build",
                                   BUILD, "--json", out, TMPDIR=self.tmp)
        self.assertEqual(code, 0, errors + table)
        self.assertEqual(os.listdir(self.tmp), [], "temporary files were left behind")
        self.assertEqual(processes_of(os.path.join(folder, "bin")), [], "processes were left")
        with open(out, encoding="utf-8") as file:
            found = json.load(file)
        self.assertEqual((found["format"], found["interrupted"]), (1, False))
        return found, table


class WithoutInstallation(PeersCase):
    def refuse(self, program, pattern, *arguments):
        code, out, errors = call(program, *arguments, TMPDIR=self.tmp)
        self.assertEqual((code, out), (2, ""), errors)
        self.assertRegex(errors, pattern)
        self.assertEqual(len(errors.strip().splitlines()), 1, errors)

    def test_wrong_usage_of_run_is_one_sentence(self):
        build = ("--build", BUILD)
        self.refuse(RUN, "unrecognized arguments: --fast", "--fast", *build)
        self.refuse(RUN, "not 'reddis'", "--only", "tcp,reddis", *build)
        self.refuse(RUN, "not ''", "--only", "", *build)
        self.refuse(RUN, "expected one argument", *build, "--json")
        self.refuse(RUN, "cannot be written", *build, "--json", self.path("no/such/file"))
        self.refuse(RUN, "cannot be written", *build, "--json", self.scratch.name)
        self.refuse(RUN, "has no bin/passel", "--build", self.path("nothing"))
        self.refuse(RUN, "--data_dir .* is not a folder", *build, "--data_dir", self.path("nothing"))

    def test_wrong_usage_of_setup_is_one_sentence(self):
        self.refuse(SETUP, "'--all' is not an option", "--all")
        self.refuse(SETUP, "not 'reddis'", "--only", "redis,reddis", "--dir", self.path("d"))
        self.refuse(SETUP, "--dir needs a value", "--dir")
        with open(self.path("mine"), "w", encoding="utf-8") as file:
            file.write("precious")
        self.refuse(SETUP, "is not a folder", "--dir", self.path("mine"))
        self.refuse(SETUP, "holds other files", "--dir", self.scratch.name)
        self.refuse(SETUP, "holds other files", "--remove", "--dir", self.scratch.name)
        self.assertTrue(os.path.exists(self.path("mine")))

    def test_one_processor_is_refused(self):
        cpu = str(min(os.sched_getaffinity(0)))
        code, _, errors = call("taskset", "-c", cpu, RUN, "--build", BUILD)
        self.assertEqual(code, 2)
        self.assertRegex(errors, "needs two processors")

    def test_what_is_not_installed_is_named_and_not_guessed(self):
        found, table = self.quick("redis,torch", self.path("empty"))
        self.assertEqual(sorted(found["missing"]), ["redis", "torch"])
        self.assertRegex(table, r"Redis, TCP +missing: not installed: run bench/peers/setup --only redis")
        self.assertRegex(table, r"PyTorch Hogwild +missing: not installed")
        self.assertEqual(found["latency"] + found["training"] + found["verdicts"], [])

    def test_a_peer_that_does_not_start_is_named_with_the_reason(self):
        folder = self.path("broken")
        os.makedirs(os.path.join(folder, "torch", "bin"))
        for name, text in (("torch/.done", ""), ("torch/version", "torch 0\n"),
                           ("torch/bin/python", "#!/bin/sh\necho no such luck >&2\nexit 1\n")):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        os.chmod(os.path.join(folder, "torch", "bin", "python"), 0o755)
        found, table = self.quick("torch", folder)
        self.assertRegex(found["failed"]["PyTorch Hogwild, 1 workers"], "ended with 1: no such luck")
        self.assertIn("no such luck", table)

    def test_passel_and_raw_tcp_fill_their_rows(self):
        found, table = self.quick("passel,tcp", self.path("peers"))
        self.assertEqual((found["missing"], found["failed"]), ({}, {}))
        cells = {(one["row"], one["elements"], one["op"]) for one in found["latency"]}
        for elements in (79510, 1048576):
            for row in ("passel hogwild", "passel locked"):
                for op in ("view", "pull", "push", "push+pull", "push, 2 writers"):
                    self.assertIn((row, elements, op), cells)
            self.assertIn(("passel barrier", elements, "round of 2"), cells)
            for row in ("raw TCP, polling", "raw TCP, blocking"):
                for op in ("pull", "push", "push+pull"):
                    self.assertIn((row, elements, op), cells)
        for one in found["latency"]:
            for run in one["runs"]:
                self.assertGreater(run["p50_us"], 0)
                self.assertGreaterEqual(run["p99_us"], run["p50_us"])
        runs = {(one["row"], one["workers"]): one["runs"][0] for one in found["training"]}
        for mode in ("hogwild", "locked", "barrier"):
            for workers in (1, 2):
                self.assertGreaterEqual(runs[f"passel {mode}", workers]["steps"], 600)
                self.assertGreater(runs[f"passel {mode}", workers]["accuracy"], 0.8)
        self.assertEqual(len(found["verdicts"]), 12)  # 2 sizes x 2 variants x 3 operations
        self.assertRegex(table, r"passel is ahead in \d+ of 12 comparisons")

    def test_ctrl_c_leaves_the_table_of_what_was_complete(self):
        process = subprocess.Popen(
            [RUN, "--quick", "--only", "passel", "--dir", self.path("peers"), "--build", BUILD],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
        while "passel locked" not in process.stderr.readline():
            self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        table, _ = process.communicate(timeout=100)
        self.assertEqual(process.returncode, 130)
        self.assertRegex(table, r"passel hogwild +[0-9.]+ / [0-9.]+")
        self.assertIn("interrupted: what was not complete is missing above", table)

    def test_a_wrong_result_fails_the_run(self):
        # A tcp_peer that reports a wrong value, as the real one would; newer than its sources.
        folder = self.path("peers")
        os.makedirs(os.path.join(folder, "bin"))
        program = os.path.join(folder, "bin", "tcp_peer")
        with open(program, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\necho 'tcp_peer: WRONG: element 3 is 1, not 2' >&2\nexit 1\n")
        os.chmod(program, 0o755)
        code, table, errors = call(RUN, "--quick", "--only", "tcp", "--dir", folder, "--build",
                                   BUILD, TMPDIR=self.tmp)
        self.assertEqual(code, 1, errors)
        self.assertRegex(errors, "raw TCP, polling: ended with 1: tcp_peer: WRONG: element 3")
        self.assertRegex(table, r"raw TCP, polling +missing: ended with 1: tcp_peer: WRONG")


class Installed(PeersCase):
    def smoke(self, name, rows):
        if not os.path.exists(os.path.join(INSTALLED, name, ".done")):
            self.skipTest(f"{name} is not in {INSTALLED}: bench/peers/setup --only {name}")
        found, table = self.quick(name, INSTALLED)
        self.assertEqual((found["missing"], found["failed"]), ({}, {}), table)
        have = {one["row"] for one in found["latency"] + found["training"]}
        self.assertEqual(have, set(rows))
        for one in found["training"]:
            self.assertGreater(one["runs"][0]["accuracy"], 0.8)

    def test_redis(self):
        self.smoke("redis", ["Redis, TCP", "Redis, Unix socket"])

    def test_openmpi(self):
        self.smoke("openmpi", ["OpenMPI window, allreduce"])

    def test_grpc(self):
        self.smoke("grpc", ["gRPC, polling", "gRPC, blocking"])

    def test_torch(self):
        self.smoke("torch", ["PyTorch Hogwild"])

    def test_tensorflow(self):
        self.smoke("tensorflow", ["TensorFlow ps, async", "TensorFlow ps, SyncReplicas"])


if __name__ == "__main__":
    if len(sys.argv) < 2 or not os.path.isdir(sys.argv[1]):
        sys.exit("peers_test: usage: peers_test.py BUILD_DIR [TEST...]")
    BUILD = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)

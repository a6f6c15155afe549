#!/usr/bin/env python3
"""Tests of bench/measure.py, which tools/bench calls, with stand-ins for the programs it runs."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
MEASURE = os.path.join(ROOT, "bench", "measure.py")
sys.path.insert(0, os.path.join(ROOT, "bench", "page"))
sys.dont_write_bytecode = True
import results as files  # noqa: E402  (the path is set above)

# Says what it was called with, writes $RESULT to its --json FILE and ends with $CODE; with $WAIT it
# first waits for a signal, which makes that 130.
STAND_IN = """#!/usr/bin/env python3
import os, signal, sys, time
name = os.path.basename(sys.argv[0])
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, signal.default_int_handler)
print("table of", name, *sys.argv[3:], flush=True)
assert sys.argv[1] == "--json"
code = int(os.environ.get("CODE_" + name, "0"))
if os.environ.get("WAIT") == name:
    with open(os.path.join(os.path.dirname(sys.argv[0]), "pid"), "w") as file:
        file.write(str(os.getpid()))
    try:
        time.sleep(60)
        sys.exit(99)
    except KeyboardInterrupt:
        code = 130
if code != 2:
    with open(sys.argv[2] + ".new", "w") as file:
        file.write(os.environ["RESULT_" + name])
    os.replace(sys.argv[2] + ".new", sys.argv[2])
sys.exit(code)
"""
RESULT = {"format": files.RESULTS_FORMAT, "rows": [
    {"what": "a row", "unit": "us", "measured": 1.0, "verdict": "-"}]}
PEERS = {"format": files.PEERS_FORMAT, "latency": [],
         "missing": {"redis": "not installed: run bench/peers/setup --only redis"}}


class Measure(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        for name in ("bench", "peers"):
            path = self.path(name)
            with open(path, "w", encoding="utf-8") as file:
                file.write(STAND_IN)
            os.chmod(path, 0o755)
        # Nothing is drawn of these results, and the real one takes half a second to start.
        os.mkdir(self.path("without"))
        with open(self.path("without/matplotlib.py"), "w", encoding="utf-8") as file:
            file.write("raise ImportError('not in this test')\n")
        self.environment = dict(os.environ, RESULT_bench=json.dumps(RESULT),
                                RESULT_peers=json.dumps(PEERS), PYTHONDONTWRITEBYTECODE="1",
                                PYTHONPATH=self.path("without"))

    def path(self, name):
        return os.path.join(self.folder, name)

    def command(self, *more, peers=False):
        command = [sys.executable, "-B", MEASURE, "--bench", self.path("bench"), "--json",
                   self.path("results.json"), "--report", self.path("report.html"), *more]
        if peers:
            command += ["--peers", self.path("peers"), "--peers-json", self.path("peers.json"),
                        "--build", self.folder]
        return command

    def run_it(self, *more, peers=False, **environment):
        """(exit code, standard output, standard error)."""
        done = subprocess.run(self.command(*more, peers=peers), stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60, check=False,
                              env=dict(self.environment, **environment))
        return done.returncode, done.stdout, done.stderr

    def page(self):
        with open(self.path("report.html"), encoding="utf-8") as file:
            return file.read()

    def test_the_table_comes_first_and_the_name_of_the_page_last(self):
        code, out, errors = self.run_it("--filter", "BM_Push", "--full", "--data_dir", "/digits")
        self.assertEqual((code, errors), (0, ""))
        self.assertEqual(out.splitlines(),
                         ["table of bench --filter BM_Push --full --data_dir /digits", "",
                          f"report: {self.path('report.html')}"])
        self.assertIn("a row", self.page())
        self.assertIn("the other systems were not measured (tools/bench --peers", self.page())

    def test_the_other_systems_come_into_the_same_page(self):
        code, out, errors = self.run_it("--data_dir", "/digits", peers=True)
        self.assertEqual((code, errors), (0, ""))
        self.assertIn(f"\n\ntable of peers --build {self.folder} --data_dir /digits\n", out)
        self.assertIn("redis: not installed: run bench/peers/setup --only redis", self.page())

    def test_wrong_usage_of_the_program_makes_no_page(self):
        code, out, _ = self.run_it(CODE_bench="2")
        self.assertEqual(code, 2)
        self.assertNotIn("report:", out)
        self.assertFalse(os.path.exists(self.path("report.html")))

    def test_a_wrong_answer_is_in_the_page_and_in_the_exit_code(self):
        for peers in (False, True):
            code, out, _ = self.run_it(peers=peers, CODE_bench="1")
            self.assertEqual(code, 1)
            self.assertIn("report:", out)
            self.assertIn("a row", self.page())
        self.assertEqual(self.run_it(peers=True, CODE_peers="1")[0], 1)

    def test_results_of_an_earlier_run_are_not_shown(self):
        for name, content in (("results.json", RESULT), ("peers.json", PEERS)):
            with open(self.path(name), "w", encoding="utf-8") as file:
                json.dump(content, file)
        code, out, _ = self.run_it(CODE_bench="2")
        self.assertEqual((code, os.path.exists(self.path("report.html"))), (2, False))
        code, out, _ = self.run_it(peers=True, CODE_peers="2")
        self.assertEqual(code, 2)
        self.assertNotIn("not installed", self.page())

    def test_another_version_of_the_results_is_refused(self):
        code, out, errors = self.run_it(RESULT_bench='{"format": 77, "rows": []}')
        self.assertEqual(code, 2)
        self.assertRegex(errors, "results.json has format 77, this program reads")
        self.assertNotIn("report:", out)

    def interrupted(self, who, number, peers):
        """Sends a signal to measure.py while `who` runs: (exit code, standard output)."""
        process = subprocess.Popen(
            self.command(peers=peers), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
            env=dict(self.environment, WAIT=who,
                     RESULT_bench=json.dumps(dict(RESULT, interrupted=who == "bench"))),
            # Where the tests run in the background it is ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
        try:
            self.await_pid()
            process.send_signal(number)
            out, _ = process.communicate(timeout=30)
        finally:
            process.kill()
            process.wait()
        return process.returncode, out

    def await_pid(self):
        for _ in range(600):
            try:
                with open(self.path("pid"), encoding="utf-8") as file:
                    return int(file.read())
            except (OSError, ValueError):
                time.sleep(0.05)
        self.fail("the program was not started")

    def test_ctrl_c_while_modules_are_read_leaves_no_traceback(self):
        bench = os.path.join(ROOT, "bench")
        done = subprocess.run(
            [sys.executable, "-c", f"import sys; sys.path.insert(0, {bench!r})\n"
             "import interrupts\nimport os, signal; os.kill(os.getpid(), signal.SIGINT)"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        self.assertEqual((done.returncode, done.stderr), (-signal.SIGINT, ""))

    def test_ctrl_c_leaves_a_page_of_what_was_complete(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            code, out = self.interrupted("bench", number, peers=True)
            self.assertEqual(code, 130)
            self.assertIn("The run was interrupted", self.page())
            self.assertNotIn("table of peers", out)
            os.remove(self.path("pid"))
        code, out = self.interrupted("peers", signal.SIGINT, peers=True)
        self.assertEqual(code, 130)
        self.assertIn("redis: not installed", self.page())
        self.assertIn("report:", out)

    def test_nothing_runs_on_when_it_is_killed(self):
        process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL,
                                   env=dict(self.environment, WAIT="bench"))
        try:
            pid = self.await_pid()
        finally:
            process.kill()
            process.wait()
        for _ in range(600):
            try:
                with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                    if file.read().rsplit(")", 1)[1].split()[0] == "Z":
                        return
            except OSError:
                return
            time.sleep(0.05)
        self.fail(f"process {pid} still runs")

    def test_a_program_that_is_not_there_is_said(self):
        os.remove(self.path("bench"))
        code, _, errors = self.run_it()
        self.assertEqual(code, 1)
        self.assertRegex(errors, "measure: .*/bench cannot be started: No such file")


if __name__ == "__main__":
    unittest.main()

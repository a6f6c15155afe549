#!/usr/bin/env python3
"""Tests of bench/instructions.py with the real program and the real callgrind.

usage: instructions_guard_test.py PROGRAM   exit 77: nothing can be counted here, with the reason
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
SCRIPT = os.path.join(ROOT, "bench", "instructions.py")
PROGRAM = None


def guard(*arguments, slow=None):
    environment = dict(os.environ)
    environment.pop("PASSEL_BENCH_SLOW_PUSH", None)
    if slow is not None:
        environment["PASSEL_BENCH_SLOW_PUSH"] = slow
    return subprocess.run([sys.executable, SCRIPT, "--program", PROGRAM, *arguments],
                          capture_output=True, text=True, env=environment, timeout=300,
                          check=False)


class InstructionsGuard(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="passel-guard-test-")
        cls.baseline = os.path.join(cls.folder.name, "instructions.json")
        written = guard("--baseline", cls.baseline, "--write-baseline", "--reason", "of this test")
        if written.returncode != 0 and "skipped" in written.stderr:
            cls.folder.cleanup()
            print(written.stderr)
            os._exit(77)
        assert written.returncode == 0, written.stderr

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def changed(self, change):
        """The path of a baseline that `change` has altered."""
        with open(self.baseline, encoding="utf-8") as file:
            baseline = json.load(file)
        change(baseline)
        path = os.path.join(self.folder.name, "changed.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(baseline, file)
        return path

    # Each count takes a second, so what does not disturb each other is asked of one.
    def test_the_same_build_is_within_a_thousandth_and_an_improvement_asks_for_a_new_baseline(self):
        pull = "pull/copy/elems:79510"

        def raise_pull(baseline):
            baseline["cells"][pull] *= 1.05

        done = guard("--baseline", self.changed(raise_pull))
        self.assertEqual(done.returncode, 0, done.stderr)
        changes = {line.split()[0]: float(line.split("%")[0].split()[-1])
                   for line in done.stdout.splitlines() if re.search(r"[0-9] %", line)
                   and ": fewer by" not in line}
        self.assertLess(changes.pop(pull), -3)
        self.assertGreaterEqual(len(changes), 8)
        self.assertLess(max(abs(change) for change in changes.values()), 0.1)
        self.assertIn(f"{pull}: fewer by more than 3 %", done.stdout)
        self.assertIn("--write-baseline", done.stdout)

    def test_a_deliberate_slow_down_names_the_pushes_alone_and_a_cell_without_counterpart_fails(self):
        def forget(baseline):
            baseline["cells"]["push/gone"] = 1.0
            del baseline["cells"]["pull/view/elems:79510"]

        done = guard("--baseline", self.changed(forget), slow="10")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, "push/gone +is not in the program")
        self.assertRegex(done.stdout, "pull/view/elems:79510 +is not in the baseline")
        more = [line.split()[0] for line in done.stdout.splitlines() if line.endswith("MORE")]
        self.assertEqual(len(more), 5)
        self.assertTrue(all(cell.startswith("push/") for cell in more))
        self.assertIn("10 % more on purpose", done.stdout)
        self.assertIn("--write-baseline --reason", done.stderr)

    def test_a_slow_down_below_the_limit_passes_where_the_update_is_large(self):
        done = guard("--baseline", self.baseline, slow="2")
        more = [line.split()[0] for line in done.stdout.splitlines() if line.endswith("MORE")]
        self.assertEqual(more, ["push/mode:hogwild/opt:sgd/elems:16"])  # a call more is much there

    def test_another_compiler_is_skipped_and_named(self):
        def other(baseline):
            baseline["build"] = "Clang 14"

        done = guard("--baseline", self.changed(other))
        self.assertEqual(done.returncode, 0)
        self.assertIn("skipped: the baseline is of a build by 'Clang 14'", done.stderr)

    def test_the_history_keeps_every_reason(self):
        path = self.changed(lambda baseline: None)
        done = guard("--baseline", path, "--write-baseline", "--reason", "the second")
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(path, encoding="utf-8") as file:
            history = json.load(file)["history"]
        self.assertEqual([entry["reason"] for entry in history], ["of this test", "the second"])

    def test_no_baseline_is_written_of_a_slowed_program(self):
        done = guard("--baseline", os.path.join(self.folder.name, "none.json"), "--write-baseline",
                     "--reason", "x", slow="10")
        self.assertEqual(done.returncode, 2)
        self.assertFalse(os.path.exists(os.path.join(self.folder.name, "none.json")))

    def test_a_bad_slow_down_is_refused(self):
        done = guard("--baseline", self.baseline, slow="much")
        self.assertEqual(done.returncode, 2)
        self.assertIn("PASSEL_BENCH_SLOW_PUSH is 'much', but it must be a whole number", done.stderr)


if __name__ == "__main__":
    PROGRAM = os.path.realpath(sys.argv.pop(1))
    unittest.main()

#!/usr/bin/env python3
"""Tests of bench/framework_steps.py (argument: the build) with stand-ins for the frameworks, which need none
installed: every name of theirs does nothing."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

BUILD = sys.argv.pop(1)
PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "bench/framework_steps.py"

# Each step of torch is timed around randint(), and every tenth one is disturbed.
TORCH = """
import sys, time
from unittest.mock import MagicMock
calls = 0
def randint(*_, **__):
    global calls
    calls += 1
    time.sleep(0.2 if calls > 210 and calls % 10 == 0 else 0.002)
    return MagicMock()
sys.modules["torch"] = MagicMock(__version__="9.9", randint=randint)
"""
JAX = "raise ImportError('no jax in this test')\n"


class FrameworkSteps(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def module(self, name, text):
        (self.folder / f"{name}.py").write_text(text)

    def run_it(self, *arguments):
        return subprocess.run([sys.executable, PROGRAM, "--build", BUILD, *arguments], text=True, capture_output=True,
                              timeout=200, env=dict(os.environ, PYTHONPATH=str(self.folder)))

    def run_with_stand_ins(self, torch=TORCH):
        self.module("torch", torch)
        self.module("jax", JAX)
        return self.run_it("--turns", "2", "--seconds", "1")

    def test_all_are_medians_of_single_steps(self):
        done = self.run_with_stand_ins()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for name in ("passel", "PyTorch, eager 9.9", "PyTorch, torch.compile 9.9"):
            self.assertRegex(done.stdout, rf"(?m)^{name} +[0-9]+ steps/s")
        # Steps of 2 ms and a bit, of which a tenth takes 0.2 s: the mean would be less than 50 a second.
        speed = int(re.search(r"(?m)^PyTorch, eager 9.9 +([0-9]+) steps/s; passel is [0-9.]+ x as fast", done.stdout)[1])
        self.assertGreater(speed, 60)
        self.assertLess(speed, 500)

    def test_what_does_not_start_is_named_with_the_reason(self):
        done = self.run_with_stand_ins()
        self.assertRegex(done.stdout, r"(?m)^JAX, jit +not measured: ImportError: no jax in this test$")

    def test_what_fails_on_the_way_is_named_and_left_out(self):
        done = self.run_with_stand_ins(TORCH.replace("    time.sleep", "    if calls > 220: sys.exit('tired')\n    time.sleep"))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"(?m)^PyTorch, eager 9.9 +not measured: tired$")
        self.assertNotRegex(done.stdout, r"(?m)^PyTorch, eager.*steps/s")
        self.assertRegex(done.stdout, r"(?m)^passel +[0-9]+ steps/s$")

    def test_a_step_of_passel_that_fails_ends_it(self):
        program = self.folder / "bin/passel_model_training"
        program.parent.mkdir()
        program.write_text("#!/bin/sh\necho 'no memory' >&2\nexit 1\n")
        program.chmod(0o755)
        done = self.run_it("--build", self.folder)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertEqual(done.stderr, "framework_steps: passel's step: no memory\n")

    def test_the_help_describes_each_option(self):
        done = self.run_it("--help")
        self.assertEqual(done.returncode, 0)
        self.assertTrue(done.stdout.startswith("usage: framework_steps [-h]"), done.stdout)
        self.assertNotIn("--child", done.stdout)
        for option in ("--build DIR", "--turns N", "--seconds S"):
            self.assertRegex(done.stdout, rf"(?m)^  {option}\s+\w")

    def test_wrong_usage(self):
        for arguments, why in ((["--turns", "0"], "--turns is 0, but it must be a whole number from 1 to 1000"),
                               (["--turns", "1.5"], "argument --turns: invalid int value: '1.5'"),
                               (["--seconds", "0"], "--seconds is 0, but it must be from 0.01 to 60"),
                               (["--seconds", "nan"], "--seconds is nan, but it must be from 0.01 to 60"),
                               (["--build", "/no"], "--build /no has no bin/passel_model_training: build it with"),
                               (["--no_such_option"], "unrecognized arguments: --no_such_option")):
            done = self.run_it(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(why, done.stderr)
            self.assertNotIn("Traceback", done.stderr)


if __name__ == "__main__":
    unittest.main()

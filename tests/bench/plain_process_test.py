#!/usr/bin/env python3
"""A passel_bench (argument: the program) whose passel_plain_training does not do what it should."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop(1)


class PlainProcess(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.program = os.path.join(folder.name, "passel_bench")
        self.plain = os.path.join(folder.name, "passel_plain_training")
        shutil.copy(PROGRAM, self.program)

    def row(self):
        """What is said of the row that needs it: the program ends with 1."""
        done = subprocess.run([self.program, "--smoke", "--filter", "core:own"], text=True,
                              capture_output=True, timeout=60)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        return next(line for line in done.stdout.splitlines() if "WRONG: " in line)

    def stand_in(self, script):
        with open(self.plain, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n" + script)
        os.chmod(self.plain, 0o755)

    def test_one_that_is_not_there_is_named(self):
        self.assertIn("passel_plain_training exited with 127: cannot execute " + self.plain +
                      ": No such file or directory", self.row())

    def test_one_that_fails_is_quoted(self):
        self.stand_in("echo 'no images' >&2\necho 'in this folder' >&2\nexit 3\n")
        self.assertIn("passel_plain_training exited with 3: no images in this folder", self.row())

    def test_one_that_is_killed_says_by_what(self):
        self.stand_in("kill -ILL $$\n")
        self.assertIn("passel_plain_training was killed by SIGILL (4)", self.row())

    def test_an_answer_of_another_size_is_none(self):
        self.stand_in("printf 12345\nread -r _\n")
        self.assertIn("passel_plain_training has answered with 5 bytes instead of 80", self.row())

    def test_one_that_closes_its_answers_and_lives_on_does_not_hold_us_up(self):
        self.stand_in("exec sleep 1000 <&- >&-\n")
        self.assertIn("passel_plain_training does not answer any more", self.row())


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""Tests of the runner: a stand-in for the program misbehaves in each way that a row must notice."""

import os
import shutil
import sys
import tempfile
import unittest

import run
import samples
from row import Row

STAND_IN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "stand_in.py")


class Runner(unittest.TestCase):
    def setUp(self):
        self.top = tempfile.mkdtemp(prefix="passel-bad-inputs.")
        self.addCleanup(shutil.rmtree, self.top)
        self.program = os.path.join(self.top, "passel")
        with open(self.program, "w", encoding="ascii") as file:
            file.write(f"#!/bin/sh\nexec '{sys.executable}' -I -S -B '{STAND_IN}' \"$@\"\n")
        os.chmod(self.program, 0o755)
        self.shared = samples.shared_files(self.top)
        self.set(SETTLES_WITHIN=0.2, crowd=lambda: 1.0)

    def set(self, **values):
        """Of the runner, for one test."""
        for name, value in values.items():
            self.addCleanup(setattr, run, name, getattr(run, name))
            setattr(run, name, value)

    def complaints(self, behaviour, **more):
        row = Row(behaviour, [behaviour], ("--size is 1 to 9", "not 10"),
                  files={"input": "x"}, **more)
        results = list(run.run_rows([row], self.program, self.shared, 1))
        self.assertEqual(len(results), 1)
        shutil.rmtree(os.path.join(self.top, "row-1"))
        return results[0][1]["complaints"]

    def test_what_is_as_it_should_be_passes(self):
        for behaviour in ("well", "iso", "epoch", "task", "usage"):
            self.assertEqual(self.complaints(behaviour), [], behaviour)
        self.assertEqual(self.complaints("information", info=True), [])
        self.assertEqual(self.complaints("warning", warns="beware"), [])
        self.assertEqual(self.complaints("output", out="hello"), [])
        self.assertEqual(self.complaints("file", stays=("m.tmp.1",)), [])

    def test_each_misdeed_is_named(self):
        for behaviour, words in {
            "twice": "2 sentences", "silent": "0 sentences", "other": "does not say",
            "two_sentences": "two sentences", "internal": "std::", "bare": "no line of passel",
            "information": "more than the sentence", "warning": "does not ask for",
            "escape": "does not print", "unended": "does not end", "output": "standard output",
            "process": "process left", "socket": "process left", "shm": "file left: /dev/shm/",
            "file": "file left", "token": "file left", "temporary": "file left",
            "cache": "file left", "change": "file changed", "remove": "file gone",
            "code": "ended with 1 instead of 2", "signal": "ended with -11",
        }.items():
            complaints = self.complaints(behaviour)
            self.assertTrue(any(words in c for c in complaints), (behaviour, complaints))
        if os.path.exists("/dev/shm/passel-stand-in"):  # without a /dev/shm of the row's own
            os.unlink("/dev/shm/passel-stand-in")

    def test_who_does_not_end_is_ended(self):
        self.set(ENDS_WITHIN=1.0)
        self.assertTrue(any("did not end" in c for c in self.complaints("hang")))

    def test_order_and_absence_of_a_warning_are_noticed(self):
        self.assertTrue(self.complaints("well", warns="beware"))
        complaints, _ = run.judge_text(Row("x", "y", ("not 10", "size")),
                                        "12:34:56.789 E the size is 1 to 9, not 10\n")
        self.assertEqual(complaints, ["the sentence does not say 'size' where it should"])


if __name__ == "__main__":
    unittest.main()

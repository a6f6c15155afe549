#!/usr/bin/env python3
"""Tests of bench/fabric.py: what the table says of figures that are good, bad, or not there; and,
with the folder of a build, that it measures what can be measured here."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))
sys.dont_write_bytecode = True
import fabric  # noqa: E402  (the path is set above)

BULK = 4 * fabric.FLOATS


def row(figures, what):
    return next(one for one in fabric.rows(figures) if one[0].startswith(what))


class Table(unittest.TestCase):
    def test_verdicts_are_of_the_rounds_ratios(self):
        figures = fabric.Figures()
        # The machine was slower in the second round: for both.
        for bare, ours in ((10.0, 12.0), (20.0, 24.0), (10.0, 13.0)):
            figures.add(("bare", BULK), bare)
            figures.add(("libfabric", BULK), ours)
            figures.add(("sealed", BULK), 3 * ours)
        self.assertEqual(row(figures, "318 KB there and back, libfabric")[3:],
                         ["1.20x", "<= 1.25x", "8 % ", "met"])
        self.assertEqual(row(figures, "318 KB there and back, sealed")[3::3], ["3.60x", "missed"])

    def test_more_is_better_where_the_target_says_so(self):
        figures = fabric.Figures()
        for way, us in (("bare", 1000.0), ("libfabric", 1100.0), ("sealed", 1300.0)):
            figures.add((way, 4 << 20), us)
        self.assertEqual(row(figures, "4 MiB there and back, libfabric")[3::3], ["0.91x", "met"])
        self.assertEqual(row(figures, "4 MiB there and back, sealed")[3::3], ["0.77x", "missed"])
        figures.add(("step", "sealed"), 100.0)
        figures.add("gRPC, blocking", 149.0)
        self.assertEqual(row(figures, "push + pull of 318 KB, sealed TCP; gRPC, bl")[3::3],
                         ["1.49x", "missed"])

    def test_what_is_missing_is_named_and_not_guessed(self):
        figures = fabric.Figures()
        figures.miss("fi_pingpong", "fi_pingpong is not there: install libfabric-bin")
        figures.add(("libfabric", 8), 9.0)
        self.assertEqual(row(figures, "8 B round trip, libfabric")[1:],
                         ["not measured: fi_pingpong is not there: install libfabric-bin"])
        self.assertEqual(row(figures, "idle ps, libfabric")[1:], ["not measured: not measured"])
        for one in fabric.rows(figures):
            self.assertEqual(len(one), 2, one)

    def test_idle_and_accuracy(self):
        figures = fabric.Figures()
        figures.add(("idle", "sealed TCP"), 0.99)
        figures.add(("idle", "libfabric"), 1.0)
        for accuracy in (0.970, 0.980, 0.975):
            figures.add(("accuracy", "shared memory"), accuracy)
            figures.add(("accuracy", "sealed TCP"), accuracy - 0.002)
            figures.add(("accuracy", "libfabric"), accuracy + 0.004)
        self.assertEqual(row(figures, "idle ps, sealed")[-1], "met")
        self.assertEqual(row(figures, "idle ps, libfabric")[-1], "missed")
        self.assertEqual(row(figures, "accuracy, sealed")[-1], "met")
        self.assertEqual(row(figures, "accuracy, libfabric")[-1], "missed")


class Measured(unittest.TestCase):
    def test_a_quick_run_fills_what_needs_nothing_installed(self):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "out.json")
            done = subprocess.run(
                [os.path.join(ROOT, "bench", "fabric.py"), "--build", BUILD, "--peers", folder,
                 "--quick", "--json", out],
                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=500, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(out, encoding="utf-8") as file:
                rows = {one[0]: one[1:] for one in json.load(file)["rows"]}
        self.assertIn("steps/s", rows["MNIST, 2 remote workers, sealed TCP; shared memory"][0])
        self.assertIn("us", rows["push + pull of 318 KB, sealed TCP; raw TCP, blocking"][0])
        self.assertIn("bench/peers/setup --only grpc",
                      rows["push + pull of 318 KB, sealed TCP; gRPC, blocking"][0])


if __name__ == "__main__":
    if len(sys.argv) > 1 and os.path.isdir(sys.argv[1]):
        BUILD = os.path.abspath(sys.argv.pop(1))
    else:
        del Measured
    unittest.main(verbosity=2)

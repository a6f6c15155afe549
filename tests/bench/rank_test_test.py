#!/usr/bin/env python3
"""Tests of bench/rank_test.py against p values of SciPy (tests/data/rank_test/make_goldens.py)."""

import json
import os
import random
import sys
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))
import rank_test  # noqa: E402  (the path is set above)

with open(os.path.join(ROOT, "tests/data/rank_test/goldens.json"), encoding="utf-8") as golden_file:
    GOLDENS = json.load(golden_file)


class RankTest(unittest.TestCase):
    def test_p_values_are_those_of_scipy(self):
        self.assertGreater(len(GOLDENS["tests"]), 30)
        for golden in GOLDENS["tests"]:
            with self.subTest(kind=golden["kind"], n=len(golden["x"]), m=len(golden["y"])):
                p = rank_test.mann_whitney_p(golden["x"], golden["y"])
                self.assertAlmostEqual(p / golden["p"], 1, delta=1e-9)

    def test_the_order_of_the_samples_does_not_matter(self):
        for golden in GOLDENS["tests"]:
            self.assertAlmostEqual(rank_test.mann_whitney_p(golden["x"], golden["y"]),
                                   rank_test.mann_whitney_p(golden["y"], golden["x"]), places=12)

    def test_equal_values_and_empty_samples_tell_nothing(self):
        self.assertEqual(rank_test.mann_whitney_p([1, 1, 1], [1, 1, 1]), 1)
        self.assertEqual(rank_test.mann_whitney_p([], [1, 2]), 1)

    def test_holm_is_its_definition(self):
        for golden in GOLDENS["corrections"]:
            for got, want in zip(rank_test.holm(golden["p"]), golden["adjusted"], strict=True):
                self.assertAlmostEqual(got, want, places=12)
        self.assertEqual(rank_test.holm([]), [])

    def test_least_runs_is_the_first_that_can_be_rare_enough(self):
        for rows in (1, 9, 120):
            runs = rank_test.least_runs(rows, 0.05)
            apart = ([*range(runs)], [*range(runs, 2 * runs)])
            self.assertLess(rows * rank_test.mann_whitney_p(*apart), 0.05)
            apart = ([*range(runs - 1)], [*range(runs, 2 * runs - 1)])
            self.assertGreaterEqual(rows * rank_test.mann_whitney_p(*apart), 0.05)

    def test_one_distribution_is_told_apart_in_at_most_alpha_of_the_cases(self):
        source = random.Random(5)
        families, rows, alarms = 400, 9, 0
        for _ in range(families):
            p = [rank_test.mann_whitney_p([source.gauss(0, 1) for _ in range(10)],
                                          [source.gauss(0, 1) for _ in range(10)])
                 for _ in range(rows)]
            alarms += min(rank_test.holm(p)) < 0.05
        self.assertLess(alarms / families, 0.08)  # 0.05, and 2.75 standard deviations of this count
        self.assertGreater(alarms, 0)

    def test_a_verdict_needs_rarity_and_effect(self):
        base, more, much = [100, 101, 102], [102, 103, 104], [110, 111, 112]
        arguments = {"alpha": 0.05, "least_effect": 0.03}
        self.assertEqual(rank_test.verdict(base, more, 0.01, False, **arguments), "no difference")
        self.assertEqual(rank_test.verdict(base, much, 0.06, False, **arguments), "no difference")
        self.assertEqual(rank_test.verdict(base, much, 0.01, False, **arguments), "slower")
        self.assertEqual(rank_test.verdict(base, much, 0.01, True, **arguments), "faster")
        self.assertEqual(rank_test.verdict(much, base, 0.01, False, **arguments), "faster")
        self.assertEqual(rank_test.verdict(much, base, 0.01, True, **arguments), "slower")


if __name__ == "__main__":
    unittest.main()

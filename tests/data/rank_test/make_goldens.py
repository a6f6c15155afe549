#!/usr/bin/env python3
"""Writes goldens.json beside this file: p values of SciPy's Mann-Whitney test for drawn samples, and
of Holm's correction by its definition. Needs numpy and scipy:

    python3 -m venv /tmp/goldens && /tmp/goldens/bin/pip install numpy scipy
    /tmp/goldens/bin/python tests/data/rank_test/make_goldens.py
"""

import json
import os

import numpy
import scipy
from scipy.stats import mannwhitneyu


def main():
    random = numpy.random.default_rng(20261121)
    tests = []
    for n, m in [(1, 1), (2, 3), (3, 3), (5, 5), (6, 9), (8, 8), (10, 10), (10, 12), (30, 30)]:
        for shift in (0.0, 0.8, 5.0):
            x = random.lognormal(0, 1, n)
            y = random.lognormal(shift, 1, m)
            p = mannwhitneyu(x, y, alternative="two-sided", method="exact").pvalue
            tests.append({"kind": "exact", "x": x.tolist(), "y": y.tolist(), "p": float(p)})
    # Rounded, so that there are ties; or so many that the exact distribution is not used.
    for n, m, digits in [(4, 5, 0), (10, 10, 0), (12, 9, 1), (25, 30, 1), (31, 30, 15), (60, 50, 15)]:
        for shift in (0.0, 0.7):
            x = numpy.round(random.normal(0, 1, n), digits)
            y = numpy.round(random.normal(shift, 1, m), digits)
            p = mannwhitneyu(x, y, alternative="two-sided", method="asymptotic",
                             use_continuity=True).pvalue
            tests.append({"kind": "normal", "x": x.tolist(), "y": y.tolist(), "p": float(p)})
    corrections = []
    for count in (1, 2, 5, 20):
        p = random.uniform(0, 1, count) ** 4
        # H_i is rejected at alpha if every p_(j), j <= i, is at most alpha / (count - j + 1).
        adjusted = [max(min(1.0, (count - (p < q).sum()) * q) for q in p if q <= own) for own in p]
        corrections.append({"p": p.tolist(), "adjusted": [float(a) for a in adjusted]})
    out = os.path.join(os.path.dirname(os.path.realpath(__file__)), "goldens.json")
    with open(out, "w", encoding="utf-8") as file:
        json.dump({"scipy": scipy.__version__, "numpy": numpy.__version__, "tests": tests,
                   "corrections": corrections}, file)
        file.write("\n")


if __name__ == "__main__":
    main()

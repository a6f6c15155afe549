"""rank_test.py - do two samples differ? Mann-Whitney's test, and Holm's correction for many rows.

Two-sided. Nothing is assumed of the distribution: the test asks whether the runs of one build lie
above those of the other more often than chance would have it.
"""

import collections
import functools
import math
import statistics

# Above this many pairs of one from each sample the normal approximation is as good, and quicker.
_EXACT_PAIRS = 900


@functools.cache
def _ways(n, m, u):
    """So many of the orders of n and m values have the statistic `u`."""
    if n == 0 or m == 0:
        return int(u == 0)
    # The largest of all is one of the n, above all m, or it is one of the m.
    return (_ways(n - 1, m, u - m) if u >= m else 0) + _ways(n, m - 1, u)


def mann_whitney_p(x, y):
    """The p value of "x and y come from one distribution" against "one lies above the other".

    Exact without ties and up to 900 pairs, else by the normal approximation with corrections for
    ties and continuity. 1 if either is empty.
    """
    n, m = len(x), len(y)
    total = n + m
    ties = collections.Counter([*x, *y]).values()
    correction = sum(t**3 - t for t in ties) / (total * (total - 1)) if total > 1 else 0
    variance = n * m / 12 * (total + 1 - correction)
    if variance <= 0:
        return 1.0  # one is empty, or all values are the same
    u = sum((a > b) + (a == b) / 2 for a in x for b in y)
    u = max(u, n * m - u)
    if max(ties) == 1 and n * m <= _EXACT_PAIRS:
        tail = sum(_ways(n, m, above) for above in range(int(u), n * m + 1))
        return min(1.0, 2 * tail / math.comb(total, n))
    z = (u - n * m / 2 - 0.5) / math.sqrt(variance)
    return min(1.0, math.erfc(z / math.sqrt(2)))


def holm(p_values):
    """The p values, adjusted so that the chance of even one false alarm among them stays in bounds.
    In the order given."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for i, place in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - i) * p_values[place]))
        adjusted[place] = highest
    return adjusted


def least_runs(rows, alpha):
    """So many runs of each build it takes that one of `rows` rows can be told apart at all: with
    fewer even samples that do not overlap are not rare enough."""
    runs = 1
    while rows * 2 / math.comb(2 * runs, runs) >= alpha:
        runs += 1
    return runs


def verdict(base, new, adjusted_p, higher_is_better, alpha, least_effect):
    """"faster", "slower" or "no difference" of `new`: the test must say so, and the medians must
    differ by at least the share `least_effect` of the base's. REQUIRES: neither is empty."""
    before, after = statistics.median(base), statistics.median(new)
    if adjusted_p >= alpha or before == after or abs(after - before) < least_effect * abs(before):
        return "no difference"
    return "faster" if (after > before) == higher_is_better else "slower"

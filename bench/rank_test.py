"""rank_test.py - do two samples differ? Mann-Whitney's test, and Holm's correction for many rows.

Two-sided. Nothing is assumed of the distribution: the test asks whether the runs of one build lie
above those of the other more often than chance would have it.
"""

import math
import statistics

# Above this many pairs of one from each sample the normal approximation is as good, and quicker.
_EXACT_PAIRS = 900


def _ranks(values):
    """Returns (rank of each value, from 1, ties share their mean; sizes of the groups of ties)."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    ties = []
    begin = 0
    while begin < len(order):
        end = begin
        while end < len(order) and values[order[end]] == values[order[begin]]:
            end += 1
        for place in order[begin:end]:
            ranks[place] = (begin + end + 1) / 2
        ties.append(end - begin)
        begin = end
    return ranks, ties


def _exact_p(u, n, m):
    """P of a U at least as far from its mean as `u`, without ties. `n`, `m`: the sample sizes."""
    # ways[k][s]: ways to choose k of the ranks seen so far whose sum, above the least, is s.
    ways = [[0] * (n * m + 1) for _ in range(n + 1)]
    ways[0][0] = 1
    for rank in range(1, n + m + 1):
        for k in range(min(rank, n), 0, -1):
            # The chosen rank, as the k-th smallest, is so much above the least possible.
            above = rank - k
            row, below = ways[k], ways[k - 1]
            for s in range(n * m, above - 1, -1):
                row[s] += below[s - above]
    tail = sum(ways[n][max(0, math.ceil(max(u, n * m - u))):])
    return min(1.0, 2 * tail / math.comb(n + m, n))


def _normal_p(u, n, m, ties):
    total = n + m
    correction = sum(t**3 - t for t in ties) / (total * (total - 1))
    variance = n * m / 12 * (total + 1 - correction)
    if variance <= 0:
        return 1.0  # all values are the same
    z = (max(u, n * m - u) - n * m / 2 - 0.5) / math.sqrt(variance)
    return min(1.0, math.erfc(z / math.sqrt(2)))


def mann_whitney_p(x, y):
    """The p value of "x and y come from one distribution" against "one lies above the other".

    Exact without ties and up to 900 pairs, else by the normal approximation with corrections for
    ties and continuity. 1 if either is empty.
    """
    n, m = len(x), len(y)
    if n == 0 or m == 0:
        return 1.0
    ranks, ties = _ranks([*x, *y])
    u = sum(ranks[:n]) - n * (n + 1) / 2
    if max(ties) == 1 and n * m <= _EXACT_PAIRS:
        return _exact_p(u, n, m)
    return _normal_p(u, n, m, ties)


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

"""scale - from values to pixels, and the ticks of an axis."""

import math


class Linear:
    """Values from `low` to `high` onto pixels from `start` to `end`."""

    def __init__(self, low, high, start, end):
        if not high > low:
            high = low + 1
        self.low, self.high, self.start, self.end = low, high, start, end

    def __call__(self, value):
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, most):
        """At most `most` round values within, the same distance apart."""
        step = nice_step((self.high - self.low) / max(1, most - 1))
        while math.floor(self.high / step + 1e-9) - math.ceil(self.low / step - 1e-9) + 1 > most:
            step = nice_step(step * 1.01)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [clean(i * step) for i in range(first, last + 1)]


class Log:
    """The same by the logarithm. REQUIRES: 0 < low."""

    def __init__(self, low, high, start, end):
        if low <= 0:
            raise ValueError(f"a logarithmic axis cannot begin at {low}")
        if not high > low:
            high = low * 10
        self.low, self.high, self.start, self.end = low, high, start, end

    def __call__(self, value):
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self, most):
        """At most `most` values within: powers of ten, between them 2 and 5 if there is room."""
        first = math.floor(math.log10(self.low) + 1e-9)
        last = math.ceil(math.log10(self.high) - 1e-9)
        for parts in ((1, 2, 5), (1, 3), (1,)):
            found = self._inside(part * 10.0 ** power for power in range(first, last + 1)
                                 for part in parts)
            if len(found) <= most:
                return found
        step = 2
        while len(found) > most:
            found = self._inside(10.0 ** power for power in range(first, last + 1)
                                 if power % step == 0)
            step += 1
        return found

    def _inside(self, values):
        return [clean(value) for value in values
                if self.low * (1 - 1e-9) <= value <= self.high * (1 + 1e-9)]


def clean(value):
    """Without what binary fractions leave behind: 0.3, not 0.30000000000000004."""
    return float(f"{value:.12g}")


def nice_step(least):
    """The smallest of 1, 2, 5, 10, 20, ... (and 0.5, 0.2, ...) that is at least `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    for part in (1, 2, 5, 10):
        if part * power >= least * (1 - 1e-9):
            return clean(part * power)
    return clean(10 * power)


def nice_log_range(low, high):
    """`low` and `high` widened to 1, 2 or 5 times a power of ten, with a little room."""
    return _nice_log(low / 1.08, math.floor), _nice_log(high * 1.08, math.ceil)


def _nice_log(value, rounding):
    power = 10.0 ** math.floor(math.log10(value))
    parts = (1, 2, 5, 10)
    share = value / power
    if rounding is math.floor:
        return clean(max(part for part in parts if part <= share * (1 + 1e-9)) * power)
    return clean(min(part for part in parts if part >= share * (1 - 1e-9)) * power)


def spread_labels(wanted, gap, low, high):
    """Positions as near to `wanted` as can be, each at least `gap` from the next, within low..high
    if there is room for all (else they go beyond `high`). In the order of `wanted`."""
    order = sorted(range(len(wanted)), key=lambda i: (wanted[i], i))
    # Groups of labels that touch: [sum of wanted places less their offsets, number].
    groups = []
    for i in order:
        groups.append([wanted[i], 1])
        while len(groups) > 1:
            (total_a, n_a), (total_b, n_b) = groups[-2:]
            if total_a / n_a + gap * n_a <= total_b / n_b:
                break
            groups[-2:] = [[total_a + total_b - n_b * n_a * gap, n_a + n_b]]
    places = []
    for total, n in groups:
        places += [total / n + gap * k for k in range(n)]
    # Back inside: from the bottom up, then from the top down.
    for k in range(len(places) - 1, -1, -1):
        places[k] = min(places[k], high - gap * (len(places) - 1 - k))
    for k, place in enumerate(places):
        places[k] = max(place, low + gap * k)
    found = [0.0] * len(wanted)
    for k, i in enumerate(order):
        found[i] = places[k]
    return found

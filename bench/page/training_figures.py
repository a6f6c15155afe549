"""training_figures - pictures of whole training steps, and of the lines between cores that explain
them.
"""

from statistics import median

import plots
import words
from figures import Section, picture
from plots import Bar, Line
from results import PARTS


def scaling_section(results):
    section = Section(
        "scaling", "Speed-up against workers",
        "Local steps per second of all workers together, training an MLP 784-100-10 with Adam, as "
        "multiples of one worker's. *Private* is the reference: as many workers, each with "
        "parameters of its own, nothing shared. *Naive* is every worker sweeping from the first "
        "parameter to the last without claims.")
    found = {}  # each way to share was measured in turn with private runs of its own
    for s in results.scaling:
        if s.private_steps_per_second:
            found.setdefault(s.workers, []).append(s.private_steps_per_second)
    if not found:
        section.missing = "no training was measured (--filter BM_Train)"
        return section
    private = {workers: median(speeds) for workers, speeds in sorted(found.items())}
    section.pictures = [speed_up_picture(results.scaling, private), share_picture(results.scaling)]
    return section


def speed_up_lines(scaling, private):
    """As multiples of one private worker of the fewest."""
    least = min(private)
    alone = private[least] / least
    groups = {"private": {n: speed / alone for n, speed in private.items()}}
    for s in scaling:
        if s.ratio is not None and s.workers in private:
            # The ratio is to private runs in turn with these: what else ran meanwhile is not in it.
            groups.setdefault(s.sharing, {})[s.workers] = s.ratio * private[s.workers] / alone
    return [Line(sharing, f"{sharing} {words.short(max(speeds.items())[1])}×",
                 sorted(speeds.items()))
            for sharing, speeds in sorted(groups.items(), key=lambda g: words.order_of(g[0]))]


def speed_up_picture(scaling, private):
    least = min(private)
    return picture(("speed-up",), "Speed-up of training", plots.lines, "workers, one process each",
                   "times one private worker" if least == 1 else
                   f"times 1/{least} of {least} private workers", speed_up_lines(scaling, private),
                   x_ticks=list(private), y_write=words.short, x_log=False, y_log=False, y_from=0)


def share_picture(scaling):
    rows = sorted((s for s in scaling if s.ratio is not None),
                  key=lambda s: (s.workers, words.order_of(s.sharing)))
    return picture(("share-of-private",), "Share of private compute", plots.bars,
                   "steps/s over those of as many private workers, in pairs of runs",
                   [Bar(s.sharing, s.ratio, f"{s.ratio:.2f}"
                        + (f" (spread {words.percent(s.spread)})" if s.spread else ""),
                        s.sharing, group=words.plural(s.workers, "worker")) for s in rows],
                   reference=1.0)


def step_time(split):
    return sum(split[f"{part}_us"] for part in PARTS)


def split_section(results):
    section = Section(
        "split", "A training step",
        "Where a worker's time goes in one training step: the batch is gathered, forward and "
        "backward passes compute the gradient, the update puts it into the shared parameters, then "
        "comes waiting for others and whatever is left. The mean of all steps, in a run of its own "
        "with time stamps.")
    rows = sorted(results.time_split, key=lambda s: (s.workers, words.order_of(s.sharing)))
    if not rows:
        section.missing = "the parts of a step were not timed (--filter BM_Train)"
        return section
    section.pictures = [picture(
        ("time-split",), "Time of one training step", plots.stacks, "µs of one worker's step",
        PARTS, [(f"{words.plural(s.workers, 'worker')}: {s.sharing}",
                 [s[f"{part}_us"] for part in PARTS], words.duration(step_time(s)))
                for s in rows])]
    return section


def lines_section(results):
    section = Section(
        "lines", "Core to core",
        "What a cache line costs that another core has. First one line that two cores write in "
        "turn, there and back. Then the extra time of each line in a sweep over parameters and "
        "slot variables which the other core has just updated: the price of sharing, line by line. "
        "Where the shades form squares, cores share a cache or a socket: put the workers of one "
        "job there.")
    found = results.line_transfer or {}
    for name, key, title in (
            ("round-trip", "round_trip_ns", "Round trip of one line, ns"),
            ("line-update", "update_ns_per_line",
             "Update of a line from another core, ns more than of one's own")):
        values = found.get(key) or []
        if any(value is not None for row in values for value in row):
            section.pictures.append(picture((name,), title, plots.shades, found["cores"], values,
                                            "ns"))
    if not section.pictures:
        section.missing = ("line transfers were not measured: that takes two cores "
                           "(--filter BM_LineTransfer)")
    return section


def sections(results):
    return [scaling_section(results), split_section(results), lines_section(results)]

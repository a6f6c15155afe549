"""training_figures - whole training steps, and the lines between cores that explain them."""

import bars
import chart
import scale
import style
import words
from chart import NARROW
from figures import WIDE, Figure, Section, describe
from results import median


def scaling_section(results):
    text = ("Local steps per second of all workers together, training an MLP 784-100-10 with "
            "Adam, as multiples of one worker's. *Private* is the reference: as many workers, each "
            "with parameters of its own, nothing shared. *Naive* is every worker sweeping from "
            "the first parameter to the last without claims.")
    if not private_speeds(results.scaling):
        return Section("scaling", "Speed-up against workers", text, [],
                       missing="no training was measured (--filter BM_Train)")
    private = private_speeds(results.scaling)
    least = min(private)
    alone = private[least] / least
    groups = {"private": {n: speed / alone for n, speed in private.items()}}
    for s in results.scaling:
        if s.ratio is not None and s.workers in private:
            # The ratio is to private runs in turn with these: what else ran meanwhile is not in it.
            groups.setdefault(s.sharing, {})[s.workers] = s.ratio * private[s.workers] / alone
    lines = [chart.Line(sharing, f"{sharing} {words.short(max(speeds.items())[1])}×",
                        sorted(speeds.items()))
             for sharing, speeds in sorted(groups.items(), key=lambda g: style.order_of(g[0]))]
    workers = sorted({at for line in lines for at, _ in line.points})
    top = max(y for line in lines for _, y in line.points)
    step = scale.nice_step(top / 6)
    x = chart.Axis("workers, one process each", ticks=[(n, str(n)) for n in workers],
                   low=workers[0] - (0.5 if len(workers) == 1 else 0), high=workers[-1])
    y = chart.Axis("times one private worker" if least == 1 else
                   f"times 1/{least} of {least} private workers",
                   low=0, high=step * (int(top / step) + 1))
    speed_up = Figure("speed-up", lambda width: chart.line_chart(
        width, 320 if width >= NARROW else 300, "Speed-up of training",
        describe(lines, "workers", "×"), x, y, lines))
    return Section("scaling", "Speed-up against workers", text,
                   [speed_up, ratio_figure(results.scaling)])


def private_speeds(scaling):
    """{workers: steps per second of as many that share nothing}: medians, since each way to share
    was measured in turn with private runs of its own."""
    found = {}
    for s in scaling:
        if s.private:
            found.setdefault(s.workers, []).append(s.private)
    return {workers: median(speeds) for workers, speeds in sorted(found.items())}


def ratio_figure(scaling):
    rows = sorted((s for s in scaling if s.ratio is not None),
                  key=lambda s: (s.workers, style.order_of(s.sharing)))
    made = [bars.Bar(s.sharing, s.ratio,
                     f"{s.ratio:.2f}"
                     + (f" (spread {words.percent(s.spread)})" if s.spread else ""),
                     s.sharing, group=words.plural(s.workers, "worker")) for s in rows]
    return Figure("share-of-private", lambda width: bars.bar_chart(
        width, "Share of private compute",
        "; ".join(f"{b.name}, {b.group}: {b.text}" for b in made),
        "steps/s over those of as many private workers, in pairs of runs", made, reference=1.0))


def split_section(results):
    text = ("Where a worker's time goes in one training step: the batch is gathered, forward and "
            "backward passes compute the gradient, the update puts it into the shared "
            "parameters, then comes waiting for others and whatever is left. The mean of all "
            "steps, in a run of its own with time stamps.")
    if not results.splits:
        return Section("split", "A training step", text, [],
                       missing="the parts of a step were not timed (--filter BM_Train)")
    rows = sorted(results.splits, key=lambda s: (s.workers, style.order_of(s.sharing)))
    stacks = [bars.Stack(s.sharing, s.parts, words.duration(s.total),
                         words.plural(s.workers, "worker")) for s in rows]
    return Section("split", "A training step", text, [Figure(
        "time-split", lambda width: bars.stacked_bars(
            width, "Time of one training step",
            "; ".join(f"{s.sharing}, {s.workers} workers: " + ", ".join(
                f"{part} {words.short(us)} µs" for part, us in s.parts) for s in rows),
            "µs of one worker's step", stacks), WIDE)])




def lines_section(results):
    text = ("What a cache line costs that another core has. First one line that two cores write "
            "in turn, there and back. Then the extra time of each line in a sweep over "
            "parameters and slot variables which the other core has just updated: the price of "
            "sharing, line by line. Where the shades form squares, cores share a cache or a "
            "socket: put the workers of one job there.")
    if results.lines is None or not (results.lines.round_trip or results.lines.update):
        return Section("lines", "Core to core", text, [],
                       missing="line transfers were not measured: that takes two cores "
                               "(--filter BM_LineTransfer)")
    figures = []
    names = [f"core {core}" if len(results.lines.cores) <= 8 else core
             for core in results.lines.cores]
    for name, title, values in (
            ("round-trip", "Round trip of one line, ns", results.lines.round_trip),
            ("line-update", "Update of a line from another core, ns more than of one's own",
             results.lines.update)):
        if values and any(v is not None for row in values for v in row):
            figures.append(Figure(name, lambda width, title=title, values=values: bars.heat_map(
                width, title, "", names, values, "ns", "from \\ to")))
    if not figures:
        return Section("lines", "Core to core", text, [],
                       missing="line transfers were not measured: that takes two cores")
    return Section("lines", "Core to core", text, figures)

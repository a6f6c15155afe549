"""figures - which measurements a picture shows, and what is said about it.

A picture is drawn when it is asked for: Picture.draw() returns SVG.
"""

import math
from dataclasses import dataclass, field
from functools import partial
from statistics import median

import plots
import words
from plots import Bar, Line
from results import PARTS

USUAL_SIZE = 79510  # parameters of an MLP 784-100-10
MOST_PANELS = 8     # of one section; what is left out is said
OPS = {"push": "push", "push_pull": "push and pull", "round": "round"}
PLACES = {"own": "one core each", "one": "all on one core", "free": "placed by the kernel"}
PERCENTILES = {2: "p50", 10: "p90", 100: "p99", 1e3: "p99.9", 1e4: "p99.99", 1e5: "p99.999",
               1e6: "p99.9999"}
PEER_COLUMNS = {"view": "View: the address of current values, nothing copied",
                "pull": "Pull: all values, copied", "push": "Push: w −= g",
                "push+pull": "Push and pull",
                "push, 2 writers": "Push by two writers at once, each",
                "round of 2": "Round of two: both gradients in, both go on with the same values"}


@dataclass
class Picture:
    name: str  # of its file
    title: str
    draw: object


@dataclass
class Section:
    """`missing`: why there is nothing. `tables` are (summary or "", report.Table)."""
    anchor: str
    title: str
    text: str = ""
    pictures: list = field(default_factory=list)
    missing: str = ""
    note: str = ""
    tables: list = field(default_factory=list)


def picture(name, title, draw, *arguments, **options):
    name = "-".join(str(part) for part in name if part)
    return Picture(name.replace(", ", "-").replace("_", "-").replace("+", "-").replace(" ", "-"),
                   title, partial(draw, title, *arguments, **options))


# --- Cells ----------------------------------------------------------------------------------------


def capital(text):
    return text[:1].upper() + text[1:]


def op_name(op):
    return OPS.get(op, op)


def where(cell):
    """What else a title has to say: "one core each, huge pages"."""
    parts = [PLACES.get(cell.placement, cell.placement)]
    if cell.pages and cell.pages != "4k":
        parts.append(f"{cell.pages} pages")
    return ", ".join(part for part in parts if part)


def subject(cell):
    return f"{op_name(cell.op)}, {cell.optimizer}, {words.plural(cell.writers, 'writer')}"


def multiple(cell):
    """How many times its reference, measured in turn, an update takes."""
    return cell.ratio or (cell.p50 / cell.reference if cell.reference else None)


def key_of(cell, *without):
    """What was measured, but for the named parts; for grouping."""
    return tuple(cell[part] for part in ("op", "mode", "optimizer", "elements", "writers",
                                         "placement", "pages", "loop", "rate")
                 if part not in without)


def panels(cells, *without, least=lambda group: True):
    """Cells in groups that differ in the named parts alone, only groups of which least(group) is
    true: those with the most cells first, then those near the usual size, then by key."""
    groups = {}
    for cell in cells:
        groups.setdefault(key_of(cell, *without), []).append(cell)
    kept = [group for group in groups.values() if least(group)]
    return sorted(kept, key=lambda g: (-len(g), abs(math.log(g[0].elements / USUAL_SIZE)),
                                       [str(part) for part in key_of(g[0], *without)]))


def by_mode(cells):
    groups = {}
    for cell in cells:
        groups.setdefault(cell.mode, []).append(cell)
    return sorted(groups.items(), key=lambda item: words.order_of(item[0]))


def closed(results):
    return [cell for cell in results.measured if cell.loop == "closed"]


def cell_section(results, anchor, title, text, pictures, otherwise, left_out=0):
    missing = ""
    if not results.cells:
        missing = "no cell of the update matrix was measured (--filter BM_Cell, or --full for all)"
    elif not results.measured:
        missing = f"no cell could be measured: {results.cells[0].why_not}"
    elif not pictures:
        missing = f"{otherwise} (--full measures more)"
    note = (f"{words.plural(left_out, 'more panel')} of fewer cells: see the table of all cells."
            if left_out > 0 else "")
    return Section(anchor, title, text, pictures, missing, note)


def latency_section(results):
    found = panels(closed(results), "mode", "elements", "loop", "rate",
                   least=lambda group: len({cell.elements for cell in group}) > 1)
    kept = sorted(found[:MOST_PANELS], key=lambda g: (
        g[0].op, g[0].optimizer, g[0].placement, g[0].pages, g[0].writers))
    return cell_section(
        results, "latency", "Latency against size",
        "Median time of one update against the number of parameters, a line for each way to share. "
        "The broken line is the reference: the bare loop of the same optimizer over private "
        "memory, by as many processes on the same cores, in the same run. Beside it the same as "
        "multiples of the reference. What rises at the left end are the fixed costs of a call; "
        "what rises with the writers is sharing.",
        [one for group in kept for one in latency_pictures(group)],
        "no mode was measured at two sizes", len(found) - len(kept))


def mode_lines(group, x, y, reference=None):
    """A line for each mode, and one of the mean of reference(cell); where a mode has two cells at
    one x, the one on cores of its own."""
    drawn, references = [], {}
    for mode, cells in by_mode(group):
        points = {}
        for cell in sorted(cells, key=lambda c: c.placement == "own"):
            if y(cell):
                points[cell[x]] = y(cell)
            if reference and reference(cell):
                references.setdefault(cell[x], []).append(reference(cell))
        drawn += [Line(mode, mode, sorted(points.items()))] if points else []
    if references:
        drawn.append(Line("reference", "reference", sorted(
            (at, sum(values) / len(values)) for at, values in references.items())))
    return drawn


def latency_pictures(group):
    """The times of one group, and their multiples of the reference."""
    first = group[0]
    name = (first.op, first.optimizer, first.writers, first.placement, first.pages)
    title = capital(subject(first)) + (f" ({where(first)})" if where(first) else "")
    sizes = sorted({cell.elements for cell in group})
    yield picture(("latency", *name), title, plots.lines, "parameters (float32)",
                  f"time of one {op_name(first.op)}, median",
                  mode_lines(group, "elements", lambda c: c.p50, lambda c: c.reference),
                  x_ticks=sizes)
    drawn = mode_lines(group, "elements", multiple, lambda c: 1.0)
    if len(drawn) > 1:
        high = max(value for line in drawn for _, value in line.points)
        yield picture(("multiple", *name), f"{title}, against the reference", plots.lines,
                      "parameters (float32)", "times the reference", drawn, x_ticks=sizes,
                      y_write=lambda value: f"{words.short(value)}×", y_log=high > 4,
                      y_from=None if high > 4 else 0)


def writers_section(results):
    fast = [cell for cell in closed(results) if cell.updates_per_second]
    groups = panels([cell for cell in fast if cell.placement != "one"],
                    "mode", "writers", "placement", "loop", "rate",
                    least=lambda group: len({cell.writers for cell in group}) > 1)
    placed = [cell for group in panels([cell for cell in fast if cell.writers > 1],
                                       "placement", "pages", "loop", "rate",
                                       least=lambda group: len(group) > 1) for cell in group]
    placed = panels(placed, "mode", "placement", "pages", "loop", "rate")
    return cell_section(
        results, "writers", "Writers and placement",
        "Updates per second of all writers together against their number, in a closed loop with "
        "nothing computed between: the worst case of sharing. The broken line is the reference, as "
        "many bare loops on private memory. Then the same update by how the writers were placed, "
        "and on which pages.",
        [writers_picture(group) for group in groups[:MOST_PANELS // 2]]
        + [placement_picture(group) for group in placed[:MOST_PANELS // 2]],
        "no update was measured with two numbers of writers")


def writers_picture(group):
    first = group[0]
    title = (f"{capital(op_name(first.op))}, {first.optimizer}, "
             f"{words.count(first.elements)} parameters"
             + ("" if first.pages in (None, "4k") else f", {first.pages} pages"))
    return picture(("writers", first.op, first.optimizer, first.elements, first.pages), title,
                   plots.lines, "writers, one process each", "updates/s of all writers",
                   mode_lines(group, "writers", lambda c: c.updates_per_second,
                              lambda c: c.reference_updates),
                   x_ticks=sorted({cell.writers for cell in group}), y_write=words.count)


def placement_picture(group):
    """By updates a second: where writers take turns on one core each update is fast, but few are
    made."""
    first = group[0]
    made = [Bar(where(cell), cell.updates_per_second, words.count(cell.updates_per_second), mode,
                group=mode)
            for mode, cells in by_mode(group)
            for cell in sorted(cells, key=lambda c: (c.placement != "own", c.placement, c.pages))]
    return picture(("placement", first.op, first.optimizer, first.writers, first.elements),
                   f"{capital(subject(first))}, {words.count(first.elements)} parameters, by "
                   "placement", plots.bars, "updates/s of all writers", made, words.count)


def percentile_section(results):
    found = panels([cell for cell in closed(results) if len(cell.curve) > 1],
                   "mode", "loop", "rate")
    # One panel a number of writers is enough: of the size that most cells have.
    found = [group for group in found if len(group) > 1] or found
    kept = {}
    for group in found:
        kept.setdefault(key_of(group[0], "mode", "elements", "placement", "pages", "loop", "rate"),
                        group)
    kept = sorted(list(kept.values())[:MOST_PANELS], key=lambda g: (
        g[0].op, g[0].optimizer, g[0].elements, g[0].writers))
    return cell_section(
        results, "percentiles", "Percentiles",
        "Every sample is kept. The further right, the rarer: at p99.9 one update of a thousand "
        "takes longer than the line says. A flat line is a steady machine; a step up is what "
        "interrupts it: a neighbour, the kernel's clock, or a writer that had to wait.",
        [percentile_picture(
            ("percentiles", g[0].op, g[0].optimizer, g[0].writers, g[0].elements),
            f"{capital(subject(g[0]))}, {words.count(g[0].elements)} parameters",
            [Line(mode, mode, percentile_points(cells[0])) for mode, cells in by_mode(g)],
            f"time of one {op_name(g[0].op)}") for g in kept],
        "no cell kept a curve of percentiles")


def percentile_points(cell):
    """(1 / (1 - q), time) of the median and everything rarer; the maximum where the samples end."""
    points = []
    for q, us in cell.curve:
        at = 1 / (1 - q) if q < 1 else max(2.0, float(cell.samples))
        if at >= 1.99 and us > 0 and (not points or at > points[-1][0]):
            points.append((at, us))
    return points


def percentile_picture(name, title, drawn, y_title):
    drawn = [line for line in drawn if line.points]
    top = max(at for line in drawn for at, _ in line.points)
    return picture(name, title, plots.lines, "percentile of all samples", y_title, drawn,
                   x_ticks=[at for at in PERCENTILES if at <= top * 1.01],
                   x_write=lambda at: PERCENTILES.get(at, ""), marks=False)


def loop_section(results):
    groups = panels([cell for cell in results.measured if len(cell.curve) > 1], "loop", "rate",
                    least=lambda group: len({cell.loop for cell in group}) > 1)
    return cell_section(
        results, "loops", "Open against closed loop",
        "In a closed loop a writer starts its next update when the last one has ended, so that a "
        "stall hides the updates that should have started meanwhile. In the open loop updates are "
        "due at a fixed rate and each is timed from the moment at which it was due: what waited in "
        "line counts. The distance between the lines is what a closed loop does not tell.",
        [loop_picture(group) for group in groups[:MOST_PANELS]],
        "no cell was measured in both loops", len(groups) - MOST_PANELS)


def loop_picture(group):
    first = group[0]
    drawn = [Line(cell.mode if cell.loop == "closed" else f"open {at}",
                  "closed" if cell.loop == "closed" else f"open, {words.count(cell.rate)}/s",
                  percentile_points(cell))
             for at, cell in enumerate(sorted(group, key=lambda c: (c.loop != "closed", c.rate)))]
    return percentile_picture(
        ("loop", first.op, first.mode, first.optimizer, first.writers, first.elements,
         first.placement, first.pages),
        f"{capital(first.mode)}: {subject(first)}, {words.count(first.elements)} parameters", drawn,
        f"time of one {op_name(first.op)}; open: from when it was due")


# --- Training, and the lines between cores that explain it ----------------------------------------


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


# --- The same work by other systems ---------------------------------------------------------------


def peers_section(peers, why_missing):
    section = Section(
        "peers", "Beside other systems",
        "The same work by what one would have used instead, each in its own process, verified, in "
        "the same run. Bars are medians; a thin line goes on to p99, or ends in an arrow where "
        "that is beyond the drawing. A view is compared with a view, a pull that copies with a get "
        "that copies. Shorter is better, but for training, where longer is. ! marks runs that "
        "spread by more than 20 %.", missing=why_missing if peers is None else "")
    if peers is None:
        return section
    for elements in sorted({elements for _, elements, _ in peers.latencies}):
        size = {79510: "318 KB", 1048576: "4 MiB"}.get(elements, f"{words.count(elements)} floats")
        for op, title in PEER_COLUMNS.items():
            made = latency_bars(peers, elements, op)
            if any(bar.value is not None for bar in made):
                section.pictures.append(picture(
                    ("peers", op, elements), f"{title}, {size}", plots.bars, "median and p99", made,
                    words.duration))
    for workers in sorted({workers for _, workers in peers.speeds}):
        section.pictures.append(picture(
            ("peers-training", workers), f"Training MNIST, {words.plural(workers, 'worker')}",
            plots.bars, "steps/s of all workers (test accuracy)", training_bars(peers, workers),
            words.count))
    notes = ["A quick run: each was measured once, so no spread is known; not for quoting."
             ] * bool(peers.quick)
    notes += ["The run was interrupted: what was not complete is not here."] * bool(
        peers.interrupted)
    notes += [f"Missing: {name}: {reason}." for name, reason in sorted(peers.missing.items())]
    notes += [f"Failed: {row}: {reason}." for row, reason in sorted(peers.failed.items())]
    section.note = " ".join(notes)
    if not section.pictures:
        section.missing = f"no system could be measured. {section.note}"
    return section


def peer_key(row):
    """Our own bars stand out, each in the colour of its mode."""
    return row.removeprefix("passel ") if row.startswith("passel ") else "other"


def noisy(spread):
    return " !" if spread > 0.20 else ""


def latency_bars(peers, elements, op):
    made = []
    for r in peers.latency_rows:
        if (r.row, elements, op) in peers.latencies:
            p50, p99, spread = peers.latencies[r.row, elements, op]
            text = f"{words.duration(p50)} (p99 {words.duration(p99)}){noisy(spread)}"
            made.append(Bar(r.row, p50, text, peer_key(r.row), p99))
        elif op in r.ops and (r.peer in peers.missing or r.row in peers.failed):
            made.append(Bar(r.row, None, "not measured: see below"))
    return made


def training_bars(peers, workers):
    made = []
    for r in peers.training_rows:
        failed = any(what.startswith(f"{r.row}, {workers} ") for what in peers.failed)
        if (r.row, workers) in peers.speeds:
            steps, accuracy, spread = peers.speeds[r.row, workers]
            text = words.grouped(steps) + ("" if accuracy is None else f" ({accuracy:.3f})")
            made.append(Bar(r.row, steps, text + noisy(spread), peer_key(r.row)))
        elif r.peer in peers.missing or failed or "training" in peers.failed:
            made.append(Bar(r.row, None, "not measured: see below"))
    return made


def sections(results, peers, why_no_peers):
    """All with pictures, in their order."""
    return [latency_section(results), writers_section(results), percentile_section(results),
            loop_section(results), scaling_section(results), split_section(results),
            lines_section(results), peers_section(peers, why_no_peers)]

"""figures - which measurements a picture shows, and what is said about it: of single updates. Those
of training are in training_figures.py, those of other systems in peer_figures.py.

A picture is drawn when it is asked for: Picture.draw() returns SVG.
"""

import math
from dataclasses import dataclass, field
from functools import partial

import plots
import words
from plots import Bar, Line

USUAL_SIZE = 79510  # parameters of an MLP 784-100-10
MOST_PANELS = 8     # of one section; what is left out is said
OPS = {"push": "push", "push_pull": "push and pull", "round": "round"}
PLACES = {"own": "one core each", "one": "all on one core", "free": "placed by the kernel"}
PERCENTILES = {2: "p50", 10: "p90", 100: "p99", 1e3: "p99.9", 1e4: "p99.99", 1e5: "p99.999",
               1e6: "p99.9999"}


@dataclass
class Picture:
    name: str  # of its file
    title: str
    draw: object


@dataclass
class Section:
    """`missing`: why there is nothing. `tables` are (name, tables.Table); those without a name
    stand open."""
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


def sections(results):
    return [latency_section(results), writers_section(results), percentile_section(results),
            loop_section(results)]

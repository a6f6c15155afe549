"""figures - the drawings of the report, each made from the results, or the reason why it is not there.

A figure is drawn for a width, so that a phone gets a drawing of its own rather than a small one.
"""

import math
from dataclasses import dataclass

import bars
import chart
import scale
import style
import words
from chart import NARROW
from results import median

WIDE, HALF, PHONE = 1040, 510, 340   # widths in pixels
MOST_GROUPS = 8                      # of the latencies, two panels each
MOST_PANELS = 8                      # of one section; what is left out is said
USUAL_SIZE = 79510                   # parameters of an MLP 784-100-10
OPS = {"push": "push", "push_pull": "push and pull", "round": "round"}


@dataclass
class Figure:
    """`draw(width)` makes the drawing; `name` is that of its file."""
    name: str
    draw: object
    wide: int = HALF


@dataclass
class Section:
    """`figures`, or `missing`: why there are none. `note` follows them."""
    anchor: str
    title: str
    text: str
    figures: list
    missing: str = ""
    note: str = ""


def op_name(op):
    return OPS.get(op, op)


def where(cell):
    """What else a title has to say: "one core each, huge pages"."""
    said = {"own": "one core each", "one": "all on one core", "free": "placed by the kernel"}
    parts = [said.get(cell.placement, cell.placement)]
    if cell.pages and cell.pages != "4k":
        parts.append(f"{cell.pages} pages")
    return ", ".join(part for part in parts if part)


def subject(cell):
    return f"{op_name(cell.op)}, {cell.optimizer}, {words.plural(cell.writers, 'writer')}"


def panels(cells, key, least):
    """Cells in groups of the same key, only groups of which least(group) is true: those with the
    most cells first, then those near the usual size, then by key."""
    groups = {}
    for cell in cells:
        groups.setdefault(key(cell), []).append(cell)
    kept = [group for group in groups.values() if least(group)]
    return sorted(kept, key=lambda g: (-len(g), abs(math.log(g[0].elements / USUAL_SIZE)),
                                       [str(part) for part in key(g[0])]))


def by_mode(cells):
    groups = {}
    for cell in cells:
        groups.setdefault(cell.mode, []).append(cell)
    return sorted(groups.items(), key=lambda item: style.order_of(item[0]))


def left_out(all_panels, kept):
    missing = len(all_panels) - len(kept)
    return f"{words.plural(missing, 'more panel')} of fewer cells: see the table of all cells." \
        if missing > 0 else ""


# --- Latency against size ---------------------------------------------------------------------------


def latency_section(results):
    text = ("Median time of one update against the number of parameters, a line for each way to share. "
            "The broken line is the limit: the bare loop of the same optimizer over private memory, by as "
            "many processes on the same cores, in the same run. Beside it the same as multiples of "
            "the limit. What rises at the left end are the fixed costs of a call; what rises with the "
            "writers is sharing.")
    closed = [cell for cell in results.measured() if cell.loop == "closed"]
    found = panels(closed, lambda c: c.key("mode", "elements", "loop", "rate"),
                   lambda group: len({cell.elements for cell in group}) > 1)
    if not found:
        return Section("latency", "Latency against size", text, [], missing=no_cells(
            results, "no mode was measured at two sizes"))
    kept = sorted(found[:MOST_GROUPS], key=lambda g: (
        g[0].op, g[0].optimizer, g[0].placement, g[0].pages, g[0].writers))
    drawn = [figure for group in kept for figure in latency_figures(group)]
    return Section("latency", "Latency against size", text, drawn, note=left_out(found, kept))


def no_cells(results, otherwise):
    if not results.cells:
        return "no cell of the update matrix was measured (--filter BM_Cell, or --full for all)"
    if not results.measured():
        return f"no cell could be measured: {results.cells[0].why_not}"
    return otherwise + " (--full measures more)"


def latency_figures(group):
    """The times of one group, and their multiples of the limit."""
    first = group[0]
    name = "-".join([first.op, first.optimizer, str(first.writers), first.placement,
                     first.pages]).replace("_", "-").rstrip("-")
    title = capital(subject(first)) + (f" ({where(first)})" if where(first) else "")
    sizes = sorted({cell.elements for cell in group})
    times, multiples, limits = [], [], {}
    for mode, cells in by_mode(group):
        cells = sorted(cells, key=lambda cell: cell.elements)
        times.append(chart.Line(mode, mode, [(c.elements, c.p50) for c in cells]))
        above = [(c.elements, multiple(c)) for c in cells if multiple(c)]
        if above:
            multiples.append(chart.Line(mode, mode, above))
        for cell in cells:
            if cell.limit:
                limits.setdefault(cell.elements, []).append(cell.limit)
    if limits:
        times.append(chart.Line("limit", "limit", sorted(
            (size, sum(values) / len(values)) for size, values in limits.items())))
    x = chart.Axis("parameters (float32)", log=True,
                   ticks=[(size, words.count(size)) for size in sizes] if len(sizes) <= 8 else None,
                   write=words.count)
    y = chart.Axis(f"time of one {op_name(first.op)}, median", log=True, write=words.duration)
    found = [Figure(f"latency-{name}", lambda width: chart.line_chart(
        width, height_for(width), title, describe(times, "parameters", "µs"), x, y, times))]
    if multiples:
        high = max(value for line in multiples for _, value in line.points)
        low = min(1.0, *(value for line in multiples for _, value in line.points))
        multiples.append(chart.Line("limit", "limit", [(sizes[0], 1.0), (sizes[-1], 1.0)]))
        y_multiple = chart.Axis("times the limit", log=high > 4, low=low if high > 4 else 0,
                                write=lambda value: f"{words.short(value)}×",
                                high=None if high > 4 else high * 1.05)
        found.append(Figure(f"multiple-{name}", lambda width: chart.line_chart(
            width, height_for(width), f"{title}, against the limit",
            describe(multiples, "parameters", "×"), x, y_multiple, multiples)))
    return found


def height_for(width):
    return 300 if width >= NARROW else 280


def multiple(cell):
    """How many times the limit an update takes: the median over pairs measured in turn."""
    return cell.ratio or (cell.p50 / cell.limit if cell.limit else None)


def capital(text):
    return text[:1].upper() + text[1:]


def describe(lines, x, unit):
    """The figures of a chart in words, for who cannot see it."""
    return "; ".join(f"{line.label}: " + ", ".join(
        f"{words.short(value)} {unit} at {words.count(at)} {x}" for at, value in line.points)
        for line in lines if len(line.points) <= 12)


# --- Writers and placement ---------------------------------------------------------------------------


def writers_section(results):
    text = ("Updates per second of all writers together against their number, in a closed loop with nothing "
            "computed between: the worst case of sharing. The broken line is the limit, as many bare loops on "
            "private memory. Then the same update by how the writers were placed, and on which pages.")
    closed = [cell for cell in results.measured() if cell.loop == "closed"]
    groups = panels([cell for cell in closed if cell.updates_per_second and cell.placement != "one"],
                    lambda c: c.key("mode", "writers", "placement", "loop", "rate"),
                    lambda group: len({cell.writers for cell in group}) > 1)
    placed = panels([cell for cell in closed if cell.writers > 1],
                    lambda c: c.key("mode", "placement", "pages", "loop", "rate"),
                    lambda group: len({(cell.placement, cell.pages) for cell in group}) > 1)
    drawn = [writers_figure(group) for group in groups[:MOST_GROUPS // 2]]
    drawn += [placement_figure(group) for group in placed[:MOST_GROUPS // 2]]
    missing = "" if drawn else no_cells(results, "no update was measured with two numbers of writers")
    return Section("writers", "Writers and placement", text, drawn, missing)


def writers_figure(group):
    first = group[0]
    name = "-".join(["writers", first.op, first.optimizer, str(first.elements), first.pages])
    title = (f"{capital(op_name(first.op))}, {first.optimizer}, {words.count(first.elements)} parameters"
             + ("" if first.pages in ("", "4k") else f", {first.pages} pages"))
    lines, limits = [], {}
    for mode, cells in by_mode(group):
        speeds = {}
        # One core each where that was measured: sorted last, it stays.
        for cell in sorted(cells, key=lambda c: c.placement == "own"):
            speeds[cell.writers] = cell.updates_per_second
            if cell.limit_updates:
                limits[cell.writers] = cell.limit_updates
        lines.append(chart.Line(mode, mode, sorted(speeds.items())))
    if limits:
        lines.append(chart.Line("limit", "limit", sorted(limits.items())))
    counts = sorted({cell.writers for cell in group})
    x = chart.Axis("writers, one process each", log=True, ticks=[(n, str(n)) for n in counts])
    y = chart.Axis("updates per second, all writers", log=True, write=words.count)
    return Figure(name.replace("_", "-").rstrip("-"), lambda width: chart.line_chart(
        width, height_for(width), title, describe(lines, "writers", "a second"), x, y, lines))


def placement_figure(group):
    first = group[0]
    name = "-".join(["placement", first.op, first.optimizer, str(first.writers), str(first.elements)])
    made = [bars.Bar(where(cell), cell.p50, words.duration(cell.p50), mode, group=mode)
            for mode, cells in by_mode(group)
            for cell in sorted(cells, key=lambda c: (c.placement != "own", c.placement, c.pages))]
    factor, unit = unit_for(max(bar.value for bar in made))
    return Figure(name.replace("_", "-"), lambda width: bars.bar_chart(
        width, f"{capital(subject(first))}, {words.count(first.elements)} parameters, by placement",
        "; ".join(f"{b.group}, {b.name}: {b.text}" for b in made), f"{unit}, median", made,
        lambda value: words.short(value * factor)))


def unit_for(top):
    """(factor, unit) of an axis that ends at `top` microseconds."""
    return next((factor, unit) for limit, factor, unit in (
        (1, 1e3, "ns"), (1e3, 1, "µs"), (1e6, 1e-3, "ms"), (math.inf, 1e-6, "s")) if top < limit)


# --- Percentiles ------------------------------------------------------------------------------------


def percentile_section(results):
    text = ("Every sample is kept. The further right, the rarer: at p99.9 one update of a thousand takes "
            "longer than the line says. A flat line is a steady machine; a step up is what interrupts it: a "
            "neighbour, the kernel's clock, or a writer that had to wait.")
    closed = [cell for cell in results.measured() if cell.loop == "closed" and len(cell.curve) > 1]
    found = panels(closed, lambda c: c.key("mode", "loop", "rate"), lambda group: True)
    # One panel a number of writers is enough: of the size that most cells have.
    found = [group for group in found if len(group) > 1] or found
    kept, seen = [], set()
    for group in found:
        key = group[0].key("mode", "elements", "placement", "pages", "loop", "rate")
        if key not in seen and len(kept) < MOST_PANELS:
            kept.append(group)
            seen.add(key)
    if not kept:
        return Section("percentiles", "Percentiles", text, [],
                       missing=no_cells(results, "no cell kept a curve of percentiles"))
    kept.sort(key=lambda g: (g[0].op, g[0].optimizer, g[0].elements, g[0].writers))
    return Section("percentiles", "Percentiles", text, [percentile_figure(g) for g in kept])


def percentile_points(cell):
    """(1 / (1 - q), time) of the median and everything rarer; the maximum where the samples end."""
    points = []
    for q, us in cell.curve:
        at = 1 / (1 - q) if q < 1 else max(2.0, float(cell.samples))
        if at >= 1.99 and us > 0 and (not points or at > points[-1][0]):
            points.append((at, us))
    return points


def percentile_axis(points):
    top = max(at for at, _ in points)
    ticks = [(at, text) for at, text in ((2, "p50"), (10, "p90"), (100, "p99"), (1000, "p99.9"),
                                         (1e4, "p99.99"), (1e5, "p99.999"), (1e6, "p99.9999"))
             if at <= top * 1.01]
    return chart.Axis("percentile of all samples", log=True, ticks=ticks)


def percentile_figure(group):
    first = group[0]
    name = "-".join(["percentiles", first.op, first.optimizer, str(first.writers),
                     str(first.elements)]).replace("_", "-")
    title = f"{capital(subject(first))}, {words.count(first.elements)} parameters"
    lines = [chart.Line(mode, mode, percentile_points(cells[0]), markers=False)
             for mode, cells in by_mode(group)]
    lines = [line for line in lines if line.points]
    points = [point for line in lines for point in line.points]
    y = chart.Axis(f"time of one {op_name(first.op)}", log=True, write=words.duration)
    return Figure(name, lambda width: chart.line_chart(
        width, height_for(width), title, "", percentile_axis(points), y, lines))


# --- Open and closed loop ---------------------------------------------------------------------------


def loop_section(results):
    text = ("In a closed loop a writer starts its next update when the last one has ended, so that a "
            "stall hides the updates that should have started meanwhile. In the open loop updates are due at "
            "a fixed rate and each is timed from the moment at which it was due: what waited in line counts. "
            "The distance between the two lines is what a closed loop does not tell.")
    groups = panels([cell for cell in results.measured() if len(cell.curve) > 1],
                    lambda c: c.key("loop", "rate"),
                    lambda group: len({cell.loop for cell in group}) > 1)
    if not groups:
        return Section("loops", "Open against closed loop", text, [], missing=no_cells(
            results, "no cell was measured in both loops"))
    kept = groups[:MOST_PANELS]
    return Section("loops", "Open against closed loop", text, [loop_figure(g) for g in kept],
                   note=left_out(groups, kept))


def loop_figure(group):
    first = group[0]
    name = "-".join(["loop", first.op, first.mode, first.optimizer, str(first.writers),
                     str(first.elements), first.placement, first.pages]).replace("_", "-").rstrip("-")
    title = f"{capital(first.mode)}: {subject(first)}, {words.count(first.elements)} parameters"
    lines = []
    for cell in sorted(group, key=lambda c: (c.loop != "closed", c.rate)):
        closed = cell.loop == "closed"
        label = "closed" if closed else f"open, {words.count(cell.rate)}/s"
        line = chart.Line(cell.mode if closed else "limit", label, percentile_points(cell),
                          markers=False, kind="mode" if closed else "limit")
        if line.points:
            lines.append(line)
    points = [point for line in lines for point in line.points]
    y = chart.Axis(f"time of one {op_name(first.op)}, from its start; open: from when it was due",
                   log=True, write=words.duration)
    narrow = chart.Axis(f"time of one {op_name(first.op)}", log=True, write=words.duration)
    return Figure(name, lambda width: chart.line_chart(
        width, height_for(width), title, "", percentile_axis(points),
        y if width >= NARROW else narrow, lines))


# --- Training ---------------------------------------------------------------------------------------


def scaling_section(results):
    text = ("Local steps per second of all workers together, training an MLP 784-100-10 with Adam, as "
            "multiples of one worker's. *Private* is the limit: as many workers, each with parameters of "
            "its own, nothing shared. *Naive* is every worker sweeping from the first parameter to the last "
            "without claims.")
    if not private_speeds(results.scaling):
        return Section("scaling", "Speed-up against workers", text, [],
                       missing="no training was measured (--filter BM_Train)")
    private = private_speeds(results.scaling)
    least = min(private)
    alone = private[least] / least
    groups = {"private": {n: speed / alone for n, speed in private.items()}}
    for s in results.scaling:
        if s.ratio is not None and s.workers in private:
            # The ratio is of runs that followed each other: what else ran meanwhile is not in it.
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
    """{workers: steps per second of as many that share nothing}: medians, since each way to share was
    measured in turn with private runs of its own."""
    found = {}
    for s in scaling:
        if s.private:
            found.setdefault(s.workers, []).append(s.private)
    return {workers: median(speeds) for workers, speeds in sorted(found.items())}


def ratio_figure(scaling):
    rows = sorted((s for s in scaling if s.ratio is not None),
                  key=lambda s: (s.workers, style.order_of(s.sharing)))
    made = [bars.Bar(s.sharing, s.ratio,
                     f"{s.ratio:.2f}" + (f" (spread {words.percent(s.spread)})" if s.spread else ""),
                     s.sharing, group=words.plural(s.workers, "worker")) for s in rows]
    return Figure("share-of-private", lambda width: bars.bar_chart(
        width, "Share of private compute", "; ".join(f"{b.name}, {b.group}: {b.text}" for b in made),
        "steps/s over those of as many private workers, in pairs of runs", made, reference=1.0))


def split_section(results):
    text = ("Where a worker's time goes in one training step: the batch is gathered, forward and backward "
            "passes compute the gradient, the update puts it into the shared parameters, then comes "
            "waiting for others and whatever is left. The mean of all steps, in a run of its own with time stamps.")
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


# --- The machine ------------------------------------------------------------------------------------


def lines_section(results):
    text = ("What a cache line costs that another core has. First one line that two cores write in "
            "turn, there and back. Then the extra time of each line in a sweep over parameters and slot "
            "variables which the other core has just updated: the price of sharing, line by line. Where the "
            "shades form squares, cores share a cache or a socket: put the workers of one job there.")
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


# --- Peers ------------------------------------------------------------------------------------------

PEER_COLUMNS = (("view", "View: the address of current values, nothing copied"),
                ("pull", "Pull: all values, copied"),
                ("push", "Push: w −= g"),
                ("push+pull", "Push and pull"),
                ("push, 2 writers", "Push by two writers at once, each"),
                ("round of 2", "Round of two: both gradients in, both go on with the same values"))


def peers_section(peers, why_missing):
    text = ("The same work by what one would have used instead, each in its own process, verified, in the "
            "same run. Bars are medians, the thin line goes on to p99. A view is compared with a view, a pull "
            "that copies with a get that copies. Shorter is better, but for training, where longer is.")
    if peers is None:
        return Section("peers", "Beside other systems", text, [], missing=why_missing)
    figures = []
    for elements in sorted({elements for _, elements, _ in peers.latency}):
        for op, title in PEER_COLUMNS:
            made = latency_bars(peers, elements, op)
            if any(bar.value is not None for bar in made):
                figures.append(peer_figure(op, elements, title, made))
    for workers in sorted({workers for _, workers in peers.training}):
        made = training_bars(peers, workers)
        figures.append(Figure(f"peers-training-{workers}", lambda width, made=made, workers=workers:
                              bars.bar_chart(
                                  width, f"Training MNIST, {words.plural(workers, 'worker')}",
                                  "; ".join(f"{b.name}: {b.text}" for b in made),
                                  "steps/s of all workers (test accuracy)", made, words.count)))
    if not figures:
        return Section("peers", "Beside other systems", text, [],
                       missing="no system could be measured: " + "; ".join(
                           f"{name}: {reason}" for name, reason in
                           sorted({**peers.missing, **peers.failed}.items())))
    notes = []
    if peers.quick:
        notes.append("A quick run: each was measured once, so no spread is known; not for quoting.")
    if peers.interrupted:
        notes.append("The run was interrupted: what was not complete is not here.")
    notes += [f"Missing: {name}: {reason}." for name, reason in sorted(peers.missing.items())]
    notes += [f"Failed: {row}: {reason}." for row, reason in sorted(peers.failed.items())]
    return Section("peers", "Beside other systems", text, figures, note=" ".join(notes))


def peer_figure(op, elements, title, made):
    size = {79510: "318 KB", 1048576: "4 MiB"}.get(elements, f"{words.count(elements)} floats")
    name = f"peers-{op}-{elements}".replace(", ", "-").replace("+", "-").replace(" ", "-")
    top = max(max(bar.value, bar.end or 0) for bar in made if bar.value is not None)
    factor, unit = unit_for(top)
    return Figure(name, lambda width: bars.bar_chart(
        width, f"{title}, {size}", "; ".join(f"{b.name}: {b.text}" for b in made),
        f"{unit}, median; the thin line ends at p99", made,
        lambda value: words.short(value * factor)))


def peer_key(row):
    """Our own bars stand out, each in the colour of its mode."""
    return row.removeprefix("passel ") if row.startswith("passel ") else "other"


def latency_bars(peers, elements, op):
    made = []
    for row, peer, ops in peers.latency_rows:
        cell = peers.latency.get((row, elements, op))
        if cell:
            p50, p99, spread = cell
            made.append(bars.Bar(row, p50, words.duration(p50) + noisy(spread), peer_key(row), p99))
        elif op in ops and (peer in peers.missing or row in peers.failed):
            made.append(bars.Bar(row, None, "not measured: see below"))
    return made


def training_bars(peers, workers):
    made = []
    for row, peer in peers.training_rows:
        cell = peers.training.get((row, workers))
        failed = next((what for what in peers.failed if what.startswith(f"{row}, {workers} ")), None)
        if cell:
            steps, accuracy, spread = cell
            text = words.grouped(steps) + ("" if accuracy is None else f" ({accuracy:.3f})")
            made.append(bars.Bar(row, steps, text + noisy(spread), peer_key(row)))
        elif peer in peers.missing or failed or "training" in peers.failed:
            made.append(bars.Bar(row, None, "not measured: see below"))
    return made


def noisy(spread):
    return " !" if spread > 0.20 else ""

"""cell_figures - latencies of single updates: by size, by writers and placement, by percentile,
and in open and closed loops.
"""

import bars
import chart
import words
from chart import NARROW
from figures import (
    MOST_GROUPS, MOST_PANELS, Figure, Section, by_mode, capital, describe, height_for, left_out,
    multiple, no_cells, op_name, panels, subject, where,
)


# --- Latency against size -------------------------------------------------------------------------


def latency_section(results):
    text = ("Median time of one update against the number of parameters, a line for each way to "
            "share. The broken line is the reference: the bare loop of the same optimizer over "
            "private memory, by as many processes on the same cores, in the same run. Beside it "
            "the same as multiples of the reference. What rises at the left end are the fixed costs "
            "of a call; what rises with the writers is sharing.")
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


def latency_figures(group):
    """The times of one group, and their multiples of the reference."""
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
        times.append(chart.Line("limit", "reference", sorted(
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
        multiples.append(chart.Line("limit", "reference", [(sizes[0], 1.0), (sizes[-1], 1.0)]))
        y_multiple = chart.Axis("times the reference", log=high > 4, low=low if high > 4 else 0,
                                write=lambda value: f"{words.short(value)}×",
                                high=None if high > 4 else high * 1.05)
        found.append(Figure(f"multiple-{name}", lambda width: chart.line_chart(
            width, height_for(width), f"{title}, against the reference",
            describe(multiples, "parameters", "×"), x, y_multiple, multiples)))
    return found


# --- Writers and placement ------------------------------------------------------------------------


def writers_section(results):
    text = ("Updates per second of all writers together against their number, in a closed loop "
            "with nothing computed between: the worst case of sharing. The broken line is the "
            "reference, as many bare loops on private memory. Then the same update by how the "
            "writers were placed, and on which pages.")
    closed = [cell for cell in results.measured() if cell.loop == "closed"]
    groups = panels([c for c in closed if c.updates_per_second and c.placement != "one"],
                    lambda c: c.key("mode", "writers", "placement", "loop", "rate"),
                    lambda group: len({cell.writers for cell in group}) > 1)
    placed = panels(variants([cell for cell in closed if cell.writers > 1]),
                    lambda c: c.key("mode", "placement", "pages", "loop", "rate"), lambda group: True)
    drawn = [writers_figure(group) for group in groups[:MOST_GROUPS // 2]]
    drawn += [placement_figure(group) for group in placed[:MOST_GROUPS // 2]]
    missing = "" if drawn else no_cells(
        results, "no update was measured with two numbers of writers")
    return Section("writers", "Writers and placement", text, drawn, missing)


def writers_figure(group):
    first = group[0]
    name = "-".join(["writers", first.op, first.optimizer, str(first.elements), first.pages])
    title = (f"{capital(op_name(first.op))}, {first.optimizer}, "
             f"{words.count(first.elements)} parameters"
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
        lines.append(chart.Line("limit", "reference", sorted(limits.items())))
    counts = sorted({cell.writers for cell in group})
    x = chart.Axis("writers, one process each", log=True, ticks=[(n, str(n)) for n in counts])
    y = chart.Axis("updates per second, all writers", log=True, write=words.count)
    return Figure(name.replace("_", "-").rstrip("-"), lambda width: chart.line_chart(
        width, height_for(width), title, describe(lines, "writers", "a second"), x, y, lines))


def variants(cells):
    """Those that were measured on other cores or pages as well."""
    groups = {}
    for cell in cells:
        if cell.updates_per_second:
            groups.setdefault(cell.key("placement", "pages", "loop", "rate"), []).append(cell)
    return [cell for group in groups.values() if len(group) > 1 for cell in group]


def placement_figure(group):
    """By updates a second: where writers take turns on one core each update is fast, but few are
    made."""
    first = group[0]
    name = "-".join(["placement", first.op, first.optimizer, str(first.writers),
                     str(first.elements)])
    made = [bars.Bar(where(cell), cell.updates_per_second, words.count(cell.updates_per_second),
                     mode, group=mode)
            for mode, cells in by_mode(group)
            for cell in sorted(cells, key=lambda c: (c.placement != "own", c.placement, c.pages))]
    return Figure(name.replace("_", "-"), lambda width: bars.bar_chart(
        width, f"{capital(subject(first))}, {words.count(first.elements)} parameters, by placement",
        "; ".join(f"{b.group}, {b.name}: {b.text}" for b in made),
        "updates per second, all writers", made, words.count))


# --- Percentiles ----------------------------------------------------------------------------------


def percentile_section(results):
    text = ("Every sample is kept. The further right, the rarer: at p99.9 one update of a "
            "thousand takes longer than the line says. A flat line is a steady machine; a step "
            "up is what interrupts it: a neighbour, the kernel's clock, or a writer that had to "
            "wait.")
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


# --- Open and closed loop -------------------------------------------------------------------------


def loop_section(results):
    text = ("In a closed loop a writer starts its next update when the last one has ended, so "
            "that a stall hides the updates that should have started meanwhile. In the open loop "
            "updates are due at a fixed rate and each is timed from the moment at which it was "
            "due: what waited in line counts. The distance between the two lines is what a "
            "closed loop does not tell.")
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
                     str(first.elements), first.placement, first.pages])
    name = name.replace("_", "-").rstrip("-")
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

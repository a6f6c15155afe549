#!/usr/bin/python3
"""report - makes a page of what tools/bench and bench/peers/run have measured: one HTML file with
its drawings in it, which needs nothing else. The same files give the same page, byte for byte.
"""
# The first line names the system's Python, which has Debian's matplotlib.

import argparse
import json
import math
import os
import re
import sys
from functools import partial
from itertools import groupby
from statistics import median

import results as files  # first: it sets the path for the others
import document
import plots
from plots import Line, count, duration, grouped, number, scaled, short

NAME = "bench/page/report.py"
NO_PEERS = ("the other systems were not measured (tools/bench --peers; bench/peers/setup installs "
            "them)")
NO_DRAWINGS = "drawings need Python's matplotlib (tools/setup --with bench)"
DIGITS = 5          # of what --shrink keeps
MUCH_SPREAD = 0.20  # of the runs of one figure
USUAL_SIZE = 79510  # parameters of an MLP 784-100-10
MOST_PANELS = 8     # of one kind of picture
PLACES = {"own": "one core each", "one": "all on one core", "free": "placed by the kernel"}
PERCENTILES = {2: "p50", 10: "p90", 100: "p99", 1e3: "p99.9", 1e4: "p99.99", 1e5: "p99.999",
               1e6: "p99.9999"}
PARTS = ("gather", "forward", "backward", "update", "wait", "other")  # of a training step
# Sharing -> (colour, mark, line): eight colours that stay apart for the common kinds of colour
# blindness, and marks for where two come close. In the order in which they are listed: the
# product's modes, what one would write instead, and what they are compared with.
STYLES = {
    "hogwild": ("#0b67a8", "o", "-"), "locked": ("#cf5200", "s", "-"),
    "barrier": ("#00835f", "^", "-"), "replicas": ("#a3478a", "D", "-"),
    "ssp": ("#957000", "v", "-"), "naive": ("#6a6d72", "x", ":"),
    "atomic": ("#3d97cc", "+", ":"), "mutex": ("#7d5334", "*", ":"),
    "private": ("#44474c", "", "--"), "reference": ("#44474c", "", "--"),
}
OTHER = ("#9a9da2", ".", ":")


def order_of(sharing):
    """For sorting: as in STYLES, then what is not known, by name."""
    return [*STYLES, sharing].index(sharing), sharing


def line(sharing, label, points):
    return Line(label, points, *STYLES.get(sharing, OTHER))


# --- Pictures: {name of the file: (title, what draws it)} -----------------------------------------


def add(pictures, name, title, draw, *arguments, **options):
    name = "-".join(str(part) for part in name if part)
    name = re.sub(r", |[_+ ]", "-", name)
    pictures[name] = (title, partial(draw, title, *arguments, **options))


def panels(cells, along, *without):
    """Cells in groups that differ in `along`, the mode and the parts `without` alone, if in `along`
    they do: those with the most cells first, then those near the usual size."""
    parts = [part for part in ("op", "optimizer", "elements", "writers", "placement", "pages",
                               "loop", "rate") if part not in (along, *without)]

    def key(cell):
        return [str(cell[part]) for part in parts]

    cells = sorted(cells, key=lambda c: (order_of(c.mode), c.loop, c.rate))
    groups = [list(group) for _, group in groupby(sorted(cells, key=key), key)]
    groups = [group for group in groups if len({cell[along] for cell in group}) > 1]
    groups.sort(key=lambda g: (-len(g), abs(math.log(g[0].elements / USUAL_SIZE))))
    return groups[:MOST_PANELS]


def mode_lines(group, x, y, reference):
    """A line for each mode, and one of the mean of their references; where a mode has two cells at
    one x, the one on cores of its own."""
    found, references = {}, {}
    for cell in sorted(group, key=lambda c: c.placement == "own"):
        if cell[y]:
            found.setdefault(cell.mode, {})[cell[x]] = cell[y]
        if cell[reference]:
            references.setdefault(cell[x], []).append(cell[reference])
    if references:
        found["reference"] = {at: sum(us) / len(us) for at, us in references.items()}
    return [line(mode, mode, sorted(found[mode].items())) for mode in sorted(found, key=order_of)]


def where(cell):
    pages = "" if cell.pages in (None, "4k") else f"{cell.pages} pages"
    return ", ".join(filter(None, (PLACES.get(cell.placement, cell.placement), pages)))


def cell_pictures(cells, pictures):
    closed = [cell for cell in cells if cell.loop == "closed"]

    def subject(cell):
        return f"{cell.work[:1].upper()}{cell.work[1:]}, {cell.optimizer}"

    def writers(cell):
        return f"{cell.writers} writer{'s' * (cell.writers > 1)}"

    for group in panels(closed, "elements"):
        c = group[0]
        add(pictures, ("latency", c.op, c.optimizer, c.writers, c.placement, c.pages),
            f"{subject(c)}, {writers(c)} ({where(c)})", plots.lines, "parameters (float32)",
            f"time of one {c.work}, median", mode_lines(group, "elements", "p50", "reference"),
            sorted({cell.elements for cell in group}))
    for group in panels([c for c in closed if c.placement != "one"], "writers", "placement"):
        c = group[0]
        add(pictures, ("writers", c.op, c.optimizer, c.elements, c.pages),
            f"{subject(c)}, {count(c.elements)} parameters", plots.lines,
            "writers, one process each", "updates/s of all writers",
            mode_lines(group, "writers", "updates_per_second", "reference_updates"),
            sorted({cell.writers for cell in group}), y_write=count)
    for group in panels([c for c in cells if len(c.curve or []) > 1], "name", "loop", "rate"):
        c = group[0]
        drawn = [line("open" if cell.rate else cell.mode,
                      cell.mode + (f", due {count(cell.rate)}/s" if cell.rate else ""),
                      percentile_points(cell)) for cell in group]
        top = max(at for one in drawn for at, _ in one.points)
        add(pictures, ("percentiles", c.op, c.optimizer, c.writers, c.elements, c.placement,
                       c.pages),
            f"{subject(c)}, {writers(c)}, {count(c.elements)} parameters", plots.lines,
            "percentile of all samples; open loop: from when an update was due",
            f"time of one {c.work}", drawn, [at for at in PERCENTILES if at <= top],
            x_write=lambda at: PERCENTILES.get(at, ""), marks=False)


def percentile_points(cell):
    """(1 / (1 - q), time) of the median and everything rarer; the maximum where the samples end."""
    points = []
    for q, us in cell.curve:
        at = round(1 / (1 - q), 6) if q < 1 else max(2.0, float(cell.samples))
        if at >= 2 and us > 0 and (not points or at > points[-1][0]):
            points.append((at, us))
    return points


def speed_up_lines(scaling):
    """As multiples of one private worker of the fewest."""
    private = {}  # each way to share was measured in turn with private runs of its own
    for s in scaling:
        private.setdefault(s.workers, []).append(s.private_steps_per_second)
    private = {workers: median(speeds) for workers, speeds in sorted(private.items())}
    least = min(private)
    alone = private[least] / least
    groups = {"private": {n: speed / alone for n, speed in private.items()}}
    for s in scaling:
        # The ratio is to private runs in turn with these: what else ran meanwhile is not in it.
        groups.setdefault(s.sharing, {})[s.workers] = s.ratio * private[s.workers] / alone
    return [line(sharing, f"{sharing} {short(max(speeds.items())[1])}×", sorted(speeds.items()))
            for sharing, speeds in sorted(groups.items(), key=lambda g: order_of(g[0]))]


def machine_pictures(results, pictures):
    scaling = [s for s in results.scaling if s.ratio and s.private_steps_per_second]
    if scaling:
        least = min(s.workers for s in scaling)
        add(pictures, ("speed-up",), "Speed-up of training", plots.lines,
            "workers, one process each", "times one private worker" if least == 1 else
            f"times 1/{least} of {least} private workers", speed_up_lines(scaling),
            sorted({s.workers for s in scaling}), y_write=short, log=False)
    found = results.line_transfer or {}
    for name, key, title in (
            ("round-trip", "round_trip_ns", "Round trip of one line, ns"),
            ("line-update", "update_ns_per_line",
             "Update of a line from another core, ns more than of one's own")):
        if any(value is not None for row in found.get(key) or [] for value in row):
            add(pictures, (name,), title, plots.shades, found["cores"], found[key], "ns")


def peer_pictures(peers, pictures):
    def picture(name, title, x_title, entries, value, text):
        add(pictures, name, title, plots.bars, x_title,
            [(e.row, STYLES.get(e.row.removeprefix("passel "), OTHER)[0], e[value], text(e))
             for e in entries])

    for op, elements in sorted({(e.op, e.elements) for e in peers.latency}):
        picture(("peers", op, elements), f"{op}, {count(elements)} floats: passel and other systems",
                "µs, median; shorter is better",
                [e for e in peers.latency if (e.op, e.elements) == (op, elements)], "p50",
                lambda e: f"{duration(e.p50)} (p99 {duration(e.p99)})")
    for workers in sorted({e.workers for e in peers.training}):
        picture(("peers-training", workers), f"Training MNIST, {workers} workers",
                "steps/s of all workers; longer is better",
                [e for e in peers.training if e.workers == workers], "speed",
                lambda e: f"{e.speed:,.0f}")


def pictures_of(results, peers):
    pictures = {}
    cell_pictures(results.measured, pictures)
    machine_pictures(results, pictures)
    if peers:
        peer_pictures(peers, pictures)
    return pictures


# --- Tables: (title, heads, rows); heads that end in "|" are of columns of words ------------------


def percent(share):
    """0.153 as "15 %"; below one per cent one digit more. Much of it is marked."""
    if share is None:
        return ""
    digits = 0 if share == 0 or share >= 0.01 else 1
    return f"{100 * share:.{digits}f} %" + (" !" if share > MUCH_SPREAD else "")


def rows_table(title, rows):
    return (title, ["what|", "measured", "limit", "reference", "unit|", "ratio", "target", "spread",
                    "verdict|"],
            [[row.what, number(row.measured), number(row.limit), number(row.reference),
              row.unit or "", number(row.ratio), row.target, percent(row.spread),
              " ".join(filter(None, (row.verdict, row.reason or row.error)))] for row in rows])


def lost(cell):
    """Of all updates of elements; "" where they were not counted."""
    if cell.lost_updates is None or not cell.pushes:
        return ""
    share = 100 * cell.lost_updates / (cell.pushes * cell.elements)
    return f"{short(share, 2)} %" if share else "none"


def cells_table(cells):
    cells = sorted(cells, key=lambda c: (c.op, c.optimizer, order_of(c.mode), c.elements, c.writers,
                                         c.placement != "own", str(c.placement), str(c.pages),
                                         c.rate))
    return ("Updates",
            ["update|", "parameters", "writers", "p50", "p99", "p99.9", "max", "reference", "ratio",
             "spread", "updates/s", "share", "lost", "busy", "overlapped"],
            [[", ".join(filter(None, (
                c.work, c.mode, c.optimizer, where(c),
                f"open loop at {count(c.rate)}/s" if c.rate else ""))),
              grouped(c.elements), c.writers,
              *[us and duration(us) or "" for us in (c.p50, c.p99, c.p999, c.max, c.reference)],
              number(c.ratio), percent(c.spread), grouped(c.updates_per_second), number(c.share),
              lost(c), grouped(c.busy_blocks), grouped(c.overlapped_blocks)] for c in cells])


def machine_facts(results):
    facts = list((results.machine or {}).items())
    if results.load and results.load.other_cores is not None:
        facts.append(("load", f"{results.load.other_cores:.1f} cores busy with other programs, "
                              f"{100 * (results.load.steal or 0):.1f} % steal"))
    if results.seconds:
        facts.append(("length of the run", f"{results.seconds:.0f} s"))
    return facts + [("warning", text) for text in results.warnings or []]


def tables_of(results, peers):
    def by_workers(found):
        return sorted(found, key=lambda s: (s.workers, order_of(s.sharing)))

    notes = [one.note for one in results.rows + results.cells if one.note]
    return {
        "targets": rows_table("Targets", [row for row in results.rows if row.target]),
        "rows": rows_table("Rows without a target", [r for r in results.rows if not r.target]),
        "cells": cells_table(results.measured),
        "not-measured": ("Updates that could not be measured", ["cell|", "why|"],
                         [[c.name, c.why_not] for c in results.cells if c.why_not]),
        "sharing": ("Training",
                    ["workers", "sharing|", "steps/s", "private steps/s", "ratio", "spread"],
                    [[s.workers, s.sharing, grouped(s.steps_per_second),
                      grouped(s.private_steps_per_second), number(s.ratio), percent(s.spread)]
                     for s in by_workers(results.scaling)]),
        "steps": ("A training step", ["workers", "sharing|", *[f"{part}, µs" for part in PARTS]],
                  [[s.workers, s.sharing, *[number(s[f"{part}_us"]) for part in PARTS]]
                   for s in by_workers(results.time_split)]),
        "verdicts": ("Beside other systems", ["what|", "passel", "the other", "passel is|"],
                     [[v.what, short(v.passel), short(v.other), v.verdict]
                      for v in (peers.verdicts if peers else [])]),
        "limits": ("What this machine can do", ["what|", "size", "cores", "value", "unit|"],
                   [[limit.what,
                     scaled(limit.bytes, (" B", " KiB", " MiB", " GiB"), 1024) if limit.bytes else "",
                     grouped(limit.cores), f"{limit.value:#.4g}".rstrip("."), limit.unit]
                    for limit in results.limits]),
        "guarantees": ("What the modes guarantee", ["mode|", "guarantee|"],
                       list((results.guarantees or {}).items())),
        "machine": ("The machine", ["what|", "value|"], machine_facts(results)),
        "notes": ("Notes", ["note|"], [[note] for note in [*(results.notes or []), *notes]])}


def targets(results):
    """"27 targets: 24 met, 2 missed, 1 not applicable."""
    found = [row.verdict for row in results.rows if row.target]
    counts = [f"{found.count(verdict)} {verdict}"
              for verdict in ("met", "missed", "not applicable", "WRONG") if verdict in found]
    return f"{len(found)} targets: {', '.join(counts)}." if found else ""


# --- The page -------------------------------------------------------------------------------------


def render(results, peers):
    """The whole page. `peers` may be None."""
    said = ["The run was interrupted: what is here is complete, the rest was not measured"
            ] * bool(results.interrupted) + list(results.warnings or [])
    said += [NO_PEERS] if peers is None else peers.absent
    said += [NO_DRAWINGS] * (not plots.AVAILABLE)
    return document.page("What an update costs here", targets(results), said, [
        *[f"<h2>{title}</h2>\n{document.table(heads, rows)}"
          for title, heads, rows in tables_of(results, peers).values() if rows],
        *[f'<figure id="{document.text(name)}">\n{draw()}</figure>'
          for name, (_, draw) in pictures_of(results, peers).items() if plots.AVAILABLE],
        "<p>Every figure was measured in one run; docs/benchmarks.md says how.</p>"])


# --- The documents --------------------------------------------------------------------------------


def blocks_of(results, peers):
    """{name: Markdown} that docs/performance.md can have of one run, without its pictures."""
    tables = tables_of(results, peers)
    kinds = [row[-1] for row in tables["verdicts"][2]]
    before = {"targets": targets(results), "verdicts":
              f"Beside other systems passel is ahead in {kinds.count('ahead')} of {len(kinds)} "
              f"comparisons, within 5 % in {kinds.count('tie')}, behind in {kinds.count('behind')}."}
    tables["verdicts"][2][:] = [row for row in tables["verdicts"][2] if row[-1] != "ahead"]
    return {name: f"{before.get(name, '')}\n\n{document.markdown(*table[1:])}".strip()
            if table[2] or name == "verdicts" and kinds else
            "Not here: that was not measured in this run." for name, table in tables.items()}


def fill_documents(folder, results, peers):
    """Rewrites what stands between marks of `folder`/performance.md, as in <!-- begin NAME --> and
    <!-- end NAME -->, and keeps in `folder`/plots the pictures that it shows."""
    path = os.path.join(folder, "performance.md")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    blocks, pictures, shown = blocks_of(results, peers), pictures_of(results, peers), {}
    for name in re.findall(r"<!-- begin (\S+) -->", text):
        if name in pictures:
            title, shown[name] = pictures[name]
            blocks[name] = (f'<img src="plots/{name}.svg" width="70%" '
                            f'alt="{document.text(title)}">')
        if name not in blocks:
            raise files.BadFile(f"{path} has a mark for '{name}', but there are only "
                                f"{', '.join(sorted([*blocks, *pictures]))}")
        begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        parts = re.split(f"{begin}\n(?:.*\n)*?{end}", text)
        if len(parts) != 2 or text.count(begin) != 1:
            raise files.BadFile(f"{path} needs one '{begin}' and after it one '{end}'")
        text = f"{begin}\n{blocks[name]}\n{end}".join(parts)
    if shown and not plots.AVAILABLE:
        raise files.BadFile(f"{path} has pictures, and {NO_DRAWINGS}")
    folder = os.path.join(folder, "plots")
    os.makedirs(folder, exist_ok=True)
    for name in os.listdir(folder):
        if name.removesuffix(".svg") not in shown:
            os.remove(os.path.join(folder, name))
    for name, draw in shown.items():
        document.write(os.path.join(folder, f"{name}.svg"), draw())
    document.write(path, text)


# --- The command ----------------------------------------------------------------------------------


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog=NAME, allow_abbrev=False, description=__doc__,
        epilog="Exit codes: 0 done; 1 a file could not be written; 2 wrong usage, or a file that is "
               "no such result or one of another version.")
    parser.add_argument("--results", required=True, metavar="FILE",
                        help="JSON of tools/bench --json")
    parser.add_argument("--peers", metavar="FILE", help="JSON of bench/peers/run --json")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--out", metavar="FILE",
                        help="the page; default report.html beside --results")
    chosen.add_argument("--docs", nargs="?", metavar="DIR",
                        const=os.path.join(os.path.dirname(__file__), "../../docs"),
                        help="instead: fill tables and pictures into DIR/performance.md and "
                             "DIR/plots (default docs)")
    chosen.add_argument("--shrink", metavar="FILE",
                        help="instead: write --results to FILE with five digits a number and a "
                             "cell a line, to be kept in bench/results; with --peers those beside "
                             "it, as FILE without .json plus .peers.json")
    return parser.parse_args(arguments)


def shrunk(path):
    """The JSON of the file `path` with fewer digits: a line for each entry of a list."""
    def digits(text):
        value = float(text)
        # Of a percentile only the distance from 1 matters.
        rounded = float(f"{value:.12g}" if 0 <= value <= 1 else f"{value:.{DIGITS}g}")
        return int(rounded) if rounded.is_integer() else rounded

    with open(path, encoding="utf-8") as file:
        found = json.load(file, parse_float=digits)
    text = json.dumps(found, separators=(",", ":"), ensure_ascii=False)
    return text.replace("},{", "},\n{") + "\n"


def make(options):
    results = files.read_results(options.results)
    peers = files.read_peers(options.peers) if options.peers else None
    if options.shrink:
        document.write(options.shrink, shrunk(options.results))
        if peers:
            document.write(options.shrink.removesuffix(".json") + ".peers.json",
                           shrunk(options.peers))
    elif options.docs:
        fill_documents(options.docs, results, peers)
    else:
        beside = os.path.join(os.path.dirname(options.results), "report.html")
        document.write(options.out or beside, render(results, peers))


def run(arguments):
    return document.run(NAME, partial(make, parse(arguments)),
                        "make room or name another place with --out or --shrink")


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))

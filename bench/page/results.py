"""results - reads what passel_bench, `passel bench` and bench/peers/run have written, and refuses
anything else.

An object of a file is an Entry; a field that is not there is None. Numbers are never made up.
"""

import os
import sys
from statistics import median

# What the page of a run is made with, too.
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../tools/page"))
from document import BadFile, Entry, load  # noqa: E402  (the path is set above)

RESULTS_FORMAT = 1  # of --json of passel_bench and `passel bench` (src/lab/cell_json.h)
PEERS_FORMAT = 1    # of bench/peers/run --json
WORK = {"push_pull": "push and pull"}  # op of a cell, as people say it

# What each object of a list must have, beside which everything may be missing.
NEEDED = {
    "rows": "what",
    "cells": "name op mode optimizer elements writers",
    "scaling": "sharing workers steps_per_second",
    "time_split": "sharing workers",
    "limits": "what value",
    "latency": "row elements op runs",
    "training": "row workers runs",
    "verdicts": "what passel other verdict",
}


def _load(path, what, form, command):
    found = load(path, what, form, command)
    for name, fields in NEEDED.items():
        for i, entry in enumerate(found.setdefault(name, [])):
            measured = name == "cells" and not entry.error and not entry.not_applicable
            for field in (fields + " samples p50 p99" * measured).split():
                if entry.get(field) is None:
                    raise BadFile(f"{path}: {name}[{i}] has no '{field}': write the file again")
    return found


def read_results(path):
    """A file of passel_bench or `passel bench`. Times of cells are in microseconds."""
    found = _load(path, "rows", RESULTS_FORMAT, "tools/bench --json")
    for cell in found.cells:
        cell.work = WORK.get(cell.op, cell.op)
        cell.why_not = (cell.error or cell.not_applicable or "").removeprefix(f"{cell.name}: ")
        limit = cell.limit or Entry()
        cell.rate = cell.rate_per_second or 0
        cell.reference, cell.reference_updates = limit.p50, limit.updates_per_second
    for row in found.rows:
        target, row.target = row.target or {}, ""
        unit = row.unit if target.get("of") == "measured" else "×"
        for key, sign in (("at_least", "≥"), ("at_most", "≤")):
            if key in target:
                row.target = f"{sign} {target[key]:.4g} {unit}"
    for name in ("round_trip_ns", "update_ns_per_line"):
        for i, row in enumerate((found.line_transfer or {}).get(name) or []):
            row[i] = None  # a core meets itself
    found.measured = [cell for cell in found.cells if not cell.why_not]
    return found


def read_peers(path):
    """A file of bench/peers/run. Times are in microseconds."""
    found = _load(path, "latency", PEERS_FORMAT, "bench/peers/run --json")
    for one in found.latency:
        one.p50 = median(run.p50_us for run in one.runs)
        one.p99 = median(run.p99_us for run in one.runs)
    for one in found.training:
        one.speed = median(run.steps_per_second for run in one.runs)
    found.absent = [f"{name}: {reason}" for kind in (found.missing, found.failed)
                    for name, reason in sorted((kind or {}).items())]
    return found

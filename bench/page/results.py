"""results - reads what passel_bench, `passel bench` and bench/peers/run have written, and refuses
anything else.

An object of a file is an Entry; a field that is not there is None. Numbers are never made up.
"""

import json
from statistics import median

RESULTS_FORMAT = 1  # of --json of passel_bench and `passel bench` (src/lab/cell_json.h)
PEERS_FORMAT = 1    # of bench/peers/run --json

PARTS = ("gather", "forward", "backward", "update", "wait", "other")  # of a training step
# What each object of a list must have, beside which everything may be missing: numbers, but for
# TEXTS and LISTS.
NEEDED = {
    "rows": "what",
    "cells": "name op mode optimizer elements writers",
    "scaling": "sharing workers steps_per_second",
    "time_split": "sharing workers " + " ".join(f"{part}_us" for part in PARTS),
    "limits": "what value",
    "latency": "row elements op runs",
    "training": "row workers runs",
    "latency_rows": "row peer ops",
    "training_rows": "row peer",
    "verdicts": "what passel other verdict",
}
MEASURED = "samples p50 p99"  # of a cell with figures
TEXTS = "name what op mode optimizer sharing row peer verdict".split()
LISTS = "runs ops".split()


class BadFile(Exception):
    """One sentence: the file, what is wrong with it, what to do."""


class Entry(dict):
    """An object of a file; a field that is not there is None."""
    __getattr__ = dict.get
    __setattr__ = dict.__setitem__


def _refuse_constant(name):
    raise ValueError(name)  # NaN and the like are no JSON


def _load(path, what, form, command):
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file, object_hook=Entry, parse_constant=_refuse_constant)
    except OSError as error:
        raise BadFile(f"{path} cannot be read ({error.strerror}): name a file written by "
                      f"{command}") from error
    except (ValueError, RecursionError) as error:
        raise BadFile(f"{path} is not JSON: name a file written by {command}") from error
    if not isinstance(found, Entry) or not isinstance(found.get(what), list):
        raise BadFile(f"{path} has no list '{what}': name a file written by {command}")
    if found.format != form:
        has = f"format {found.format!r}" if "format" in found else "no format number"
        raise BadFile(f"{path} has {has}, this program reads {form}: write the file again with "
                      f"{command} of the same version")
    for name, fields in NEEDED.items():
        found.setdefault(name, [])
        for i, entry in enumerate(found[name]):
            _check(path, f"{name}[{i}]", entry, fields)
    return found


def _check(path, where, entry, fields):
    for name in fields.split():
        kind = str if name in TEXTS else list if name in LISTS else (int, float)
        value = entry.get(name)
        if value is None:
            raise BadFile(f"{path}: {where} has no '{name}': write the file again")
        if isinstance(value, bool) or not isinstance(value, kind):
            raise BadFile(f"{path}: '{name}' of {where} is {value!r}, which it cannot be: write "
                          "the file again")


def read_results(path):
    """A file of passel_bench or `passel bench`. Times of cells are in microseconds."""
    found = _load(path, "rows", RESULTS_FORMAT, "tools/bench --json")
    for i, cell in enumerate(found.cells):
        cell.why_not = (cell.error or cell.not_applicable or "").removeprefix(f"{cell.name}: ")
        if not cell.why_not:
            _check(path, f"cells[{i}]", cell, MEASURED)
        limit = cell.limit or Entry()
        cell.reference, cell.reference_updates = limit.p50, limit.updates_per_second
        cell.rate = cell.rate_per_second or 0
        cell.curve = cell.curve or []
    for row in found.rows:
        row.target = _target(row)
    cores = len((found.line_transfer or {}).get("cores", []))
    for name in ("round_trip_ns", "update_ns_per_line"):
        matrix = (found.line_transfer or {}).get(name) or []
        if matrix and [len(row) for row in matrix] != [cores] * cores:
            raise BadFile(f"{path}: {name} of line_transfer is not {cores} by {cores}: write the "
                          "file again")
        for i, row in enumerate(matrix):
            row[i] = None  # a core meets itself
    found.measured = [cell for cell in found.cells if not cell.why_not]
    return found


def _target(row):
    for key, sign in (("at_most", "≤"), ("at_least", "≥")):
        if row.target and key in row.target:
            unit = row.unit if row.target.of == "measured" else "×"
            return f"{sign} {row.target[key]:.4g} {unit}"
    return ""


def read_peers(path):
    """A file of bench/peers/run. Times are in microseconds."""
    found = _load(path, "latency", PEERS_FORMAT, "bench/peers/run --json")
    found.missing, found.failed = found.missing or {}, found.failed or {}
    found.latencies = {}  # (row, elements, op) -> (p50, p99, spread of the p50s)
    for one in found.latency:
        p50s = [run.p50_us for run in one.runs]
        if p50s:
            found.latencies[one.row, one.elements, one.op] = (
                median(p50s), median(run.p99_us for run in one.runs), spread(p50s))
    found.speeds = {}  # (row, workers) -> (steps/s, lowest accuracy, spread)
    for one in found.training:
        speeds = [run.steps_per_second for run in one.runs]
        accuracies = [run.accuracy for run in one.runs if run.accuracy is not None]
        if speeds:
            found.speeds[one.row, one.workers] = (
                median(speeds), min(accuracies, default=None), spread(speeds))
    return found


def spread(values):
    """(largest - smallest) / median."""
    middle = median(values)
    return (max(values) - min(values)) / middle if middle else 0.0

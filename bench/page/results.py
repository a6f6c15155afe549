"""results - reads what passel_bench and bench/peers/run have written, and refuses anything else.

A field that may be missing is None or empty afterwards; one that must be there and is not, or is of
another type, is a BadFile. Numbers are never made up.
"""

import json
import math

RESULTS_FORMAT = 1   # of passel_bench --json (bench/report.h)
PEERS_FORMAT = 1     # of bench/peers/run --json


class BadFile(Exception):
    """One sentence: the file, what is wrong with it, what to do."""


def _load(path, what, form, command):
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except OSError as error:
        raise BadFile(f"{path} cannot be read ({error.strerror}): name a file written by "
                      f"{command}") from error
    except (ValueError, RecursionError) as error:
        raise BadFile(f"{path} is not JSON: name a file written by {command}") from error
    if not isinstance(found, dict) or not isinstance(found.get(what), list):
        raise BadFile(f"{path} has no list '{what}': name a file written by {command}")
    if found.get("format") != form:
        has = f"format {found['format']!r}" if "format" in found else "no format number"
        raise BadFile(f"{path} has {has}, this program reads {form}: write the file again with "
                      f"{command} of the same version")
    return found


class _Fields:
    """One object of the file, read field by field."""

    def __init__(self, path, where, found):
        self.path, self.where, self.found = path, where, found
        if not isinstance(found, dict):
            raise BadFile(f"{path}: {where} is no object: write the file again")

    def get(self, name, kind, default=None, needed=False):
        value = self.found.get(name)
        if value is None:
            if needed:
                raise BadFile(f"{self.path}: {self.where} has no '{name}': write the file again")
            return default
        good = isinstance(value, (int, float) if kind is float else kind)
        if isinstance(value, bool) and kind is not bool:
            good = False
        if kind is float and good and not math.isfinite(value):
            good = False
        if not good:
            raise BadFile(f"{self.path}: '{name}' of {self.where} is {value!r}, which it cannot "
                          "be: write the file again")
        return value

    def text(self, name, default=""):
        return self.get(name, str, default)

    def number(self, name, needed=False):
        return self.get(name, float, needed=needed)


def _objects(path, found, name):
    values = found.get(name)
    if values is None:
        return []
    if not isinstance(values, list):
        raise BadFile(f"{path}: '{name}' is no list: write the file again")
    return [_Fields(path, f"{name}[{i}]", value) for i, value in enumerate(values)]


class Cell:
    """One kind of update, measured (bench/lab). Times in microseconds."""

    def __init__(self, fields):
        self.name = fields.get("name", str, needed=True)
        self.op = fields.get("op", str, needed=True)
        self.mode = fields.get("mode", str, needed=True)
        self.optimizer = fields.get("optimizer", str, needed=True)
        self.elements = int(fields.number("elements", needed=True))
        self.writers = int(fields.number("writers", needed=True))
        self.placement = fields.text("placement")
        self.pages = fields.text("pages")
        self.loop = fields.text("loop", "closed")
        self.rate = fields.number("rate_per_second") or 0
        self.why_not = (fields.text("error") or fields.text("not_applicable")).removeprefix(
            f"{self.name}: ")
        self.wrong = bool(fields.text("error"))
        self.note = fields.text("note")
        measured = not self.why_not
        self.samples = int(fields.number("samples", needed=measured) or 0)
        self.p50 = fields.number("p50", needed=measured)
        self.p90, self.p99 = fields.number("p90"), fields.number("p99", needed=measured)
        self.p999, self.max = fields.number("p999"), fields.number("max")
        self.ratio, self.spread = fields.number("ratio"), fields.number("spread")
        self.updates_per_second = fields.number("updates_per_second")
        self.lost, self.pushes = fields.number("lost_updates"), fields.number("pushes")
        self.busy = fields.number("busy_blocks")
        self.overlapped = fields.number("overlapped_blocks")
        limit = fields.get("limit", dict, {})
        limit_fields = _Fields(fields.path, f"{fields.where}.limit", limit)
        self.limit = limit_fields.number("p50")
        self.limit_updates = limit_fields.number("updates_per_second")
        self.share = fields.number("share")  # of the reference's updates a second, median of the pairs
        self.curve = _curve(fields)
        if measured and (self.p50 <= 0 or self.elements <= 0 or self.writers <= 0):
            raise BadFile(f"{fields.path}: {fields.where} has a p50, a size or writers that are "
                          "not above 0: write the file again")

    def key(self, *without):
        """What was measured, but for the named parts; for grouping."""
        parts = ("op", "mode", "optimizer", "elements", "writers", "placement", "pages", "loop",
                 "rate")
        return tuple(getattr(self, part) for part in parts if part not in without)


def _curve(fields):
    points = []
    for point in fields.get("curve", list, []):
        if not (isinstance(point, list) and len(point) == 2
                and all(isinstance(v, (int, float)) and math.isfinite(v) for v in point)
                and 0 <= point[0] <= 1 and point[1] >= 0):
            raise BadFile(f"{fields.path}: the curve of {fields.where} has the point {point!r}: "
                          "write the file again")
        points.append((float(point[0]), float(point[1])))
    return points


class Row:
    """One line of the terminal's table."""

    def __init__(self, fields):
        self.benchmark = fields.text("benchmark")
        self.what = fields.get("what", str, needed=True)
        self.unit = fields.text("unit")
        self.verdict = fields.text("verdict", "-")
        self.reason = fields.text("reason") or fields.text("error")
        self.measured, self.limit = fields.number("measured"), fields.number("limit")
        self.reference = fields.number("reference")  # files of before call it a limit
        self.ratio, self.spread = fields.number("ratio"), fields.number("spread")
        self.note = fields.text("note")
        target = fields.get("target", dict, {})
        self.target = ""
        for key, sign in (("at_most", "≤"), ("at_least", "≥")):
            if isinstance(target.get(key), (int, float)):
                of_ratio = target.get("of") != "measured"
                self.target = f"{sign} {target[key]:.4g}{' ×' if of_ratio else ' ' + self.unit}"


class Scaling:
    """Training by so many workers that share in one way, against workers that share nothing."""

    def __init__(self, fields):
        self.sharing = fields.get("sharing", str, needed=True)
        self.workers = int(fields.number("workers", needed=True))
        self.steps = fields.number("steps_per_second", needed=True)
        self.private = fields.number("private_steps_per_second")
        self.ratio, self.spread = fields.number("ratio"), fields.number("spread")


class Split:
    """Where the time of a training step goes, in microseconds."""

    def __init__(self, fields):
        self.sharing = fields.get("sharing", str, needed=True)
        self.workers = int(fields.number("workers", needed=True))
        self.parts = [(part, fields.number(f"{part}_us", needed=True))
                      for part in ("gather", "forward", "backward", "update", "wait", "other")]

    @property
    def total(self):
        return sum(value for _, value in self.parts)


class LineTransfer:
    """Between each pair of `cores`; matrices in nanoseconds, None where a core meets itself."""

    def __init__(self, fields):
        self.cores = [str(core) for core in fields.get("cores", list, [])]
        self.round_trip = self._matrix(fields, "round_trip_ns")
        self.update = self._matrix(fields, "update_ns_per_line")

    def _matrix(self, fields, name):
        rows = fields.get(name, list, [])
        if not rows:
            return []
        n = len(self.cores)
        if len(rows) != n or any(not isinstance(row, list) or len(row) != n for row in rows):
            raise BadFile(f"{fields.path}: {name} of {fields.where} is not {n} by {n}: write the "
                          "file again")
        found = []
        for i, row in enumerate(rows):
            for value in row:
                if value is not None and not (isinstance(value, (int, float))
                                              and math.isfinite(value)):
                    raise BadFile(f"{fields.path}: {name} of {fields.where} has the value "
                                  f"{value!r}: write the file again")
            found.append([None if i == j else value for j, value in enumerate(row)])
        return found


class Results:
    """A file of passel_bench --json."""

    def __init__(self, path):
        found = _load(path, "rows", RESULTS_FORMAT, "tools/bench --json")
        whole = _Fields(path, "the file", found)
        machine = whole.get("machine", dict, {})
        self.machine = [(str(name), str(value)) for name, value in machine.items()]
        load = _Fields(path, "load", whole.get("load", dict, {}))
        self.other_cores, self.steal = load.number("other_cores"), load.number("steal")
        self.seconds = whole.number("seconds")
        self.interrupted = whole.get("interrupted", bool, False)
        self.warnings = [str(text) for text in whole.get("warnings", list, [])]
        self.advice = whole.text("advice")  # of `passel bench`
        self.notes = [str(text) for text in whole.get("notes", list, [])]
        self.rows = [Row(fields) for fields in _objects(path, found, "rows")]
        self.cells = [Cell(fields) for fields in _objects(path, found, "cells")]
        self.scaling = [Scaling(fields) for fields in _objects(path, found, "scaling")]
        self.splits = [Split(fields) for fields in _objects(path, found, "time_split")]
        self.limits = [(f.get("what", str, needed=True), f.number("bytes"), f.number("cores"),
                        f.number("value", needed=True), f.text("unit"))
                       for f in _objects(path, found, "limits")]
        lines = whole.get("line_transfer", dict, None)
        self.lines = LineTransfer(_Fields(path, "line_transfer", lines)) if lines else None

    def measured(self):
        return [cell for cell in self.cells if not cell.why_not]


class Peers:
    """A file of bench/peers/run --json. Times in microseconds."""

    def __init__(self, path):
        found = _load(path, "latency", PEERS_FORMAT, "bench/peers/run --json")
        whole = _Fields(path, "the file", found)
        self.machine = whole.get("machine", dict, {})
        self.versions = whole.get("versions", dict, {})
        self.missing = whole.get("missing", dict, {})
        self.failed = whole.get("failed", dict, {})
        self.interrupted = whole.get("interrupted", bool, False)
        self.quick = whole.get("quick", bool, False)
        # As bench/peers/run lists them: [(row, peer, what it can do)] and [(row, peer)].
        self.latency_rows = [(f.text("row"), f.text("peer"), f.get("ops", list, []))
                             for f in _objects(path, found, "latency_rows")]
        self.training_rows = [(f.text("row"), f.text("peer"))
                              for f in _objects(path, found, "training_rows")]
        self.latency = {}   # (row, elements, op) -> (p50, p99, spread of the p50s)
        for one in _objects(path, found, "latency"):
            runs = [(run.number("p50_us", needed=True), run.number("p99_us", needed=True))
                    for run in _objects(path, one.found, "runs")]
            key = (one.text("row"), int(one.number("elements", needed=True)), one.text("op"))
            if runs:
                p50s = [p50 for p50, _ in runs]
                self.latency[key] = (median(p50s), median([p99 for _, p99 in runs]), spread(p50s))
        self.training = {}  # (row, workers) -> (steps/s, lowest accuracy, spread)
        for one in _objects(path, found, "training"):
            runs = [(run.number("steps_per_second", needed=True), run.number("accuracy"))
                    for run in _objects(path, one.found, "runs")]
            if runs:
                speeds = [speed for speed, _ in runs]
                accuracies = [accuracy for _, accuracy in runs if accuracy is not None]
                self.training[one.text("row"), int(one.number("workers", needed=True))] = (
                    median(speeds), min(accuracies) if accuracies else None, spread(speeds))
        self.verdicts = [(v.text("what"), v.number("passel", needed=True),
                          v.number("other", needed=True), v.text("verdict"))
                         for v in _objects(path, found, "verdicts")]


def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def spread(values):
    """(largest - smallest) / median."""
    middle = median(values)
    return (max(values) - min(values)) / middle if middle else 0.0

#!/usr/bin/env python3
"""compare.py - is one build of passel_bench faster than another, row by row?

Runs the two builds alternately, so that what slows the machine for a while slows both, and asks of
each row whether the runs of the one lie above those of the other: Mann-Whitney's test, Holm's
correction for the number of rows, and a least effect of 3 % in the medians (bench/rank_test.py).

PASSEL_BENCH_SLOW_PUSH goes to the new build alone: with it this comparison is tested.

Exit codes: 0 no row is slower; 1 a build gave a wrong answer or did not run; 2 wrong usage; 3 at
least one row is slower; 130 interrupted, with the table of what is complete.
"""

import interrupts  # isort: skip  (first: see there)

import argparse
import collections
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile

import rank_test
from running import Failure, Stopped, run

FORMAT = 1  # of the results of passel_bench: src/lab/cell_json.h
ROLES = ("base", "new")
ALPHA = 0.05
LEAST_EFFECT = 0.03
DEFAULT_RUNS = 10
MOST_RUNS = 1000
DEFAULT_FILTER = "^BM_(Push|Pull|Round)"
RUN_LIMIT = 3600  # seconds, of one run of a build
MUCH_LOAD = 0.10  # of the cores


class Misuse(Exception):
    """The command line is wrong."""


def program_of(folder, role):
    """The passel_bench of a build directory. `role`: "base" or "new", for messages."""
    program = os.path.join(folder, "bin", "passel_bench")
    if not os.path.isdir(folder):
        raise Misuse(f"the {role} build {folder} is not a directory")
    if not os.access(program, os.X_OK):
        raise Misuse(f"the {role} build {folder} has no bin/passel_bench: build it with "
                     "PASSEL_BUILD_BENCH=ON, the target is passel_bench")
    return program


def environment_of(role):
    environment = dict(os.environ)
    environment.pop("OPENBLAS_CORETYPE", None)
    if role == "base":
        environment.pop("PASSEL_BENCH_SLOW_PUSH", None)
    return environment


def last_line(text):
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no message"


def names_of(program, role, options):
    """The rows that the filter selects in this build, in their order. Empty where it has none."""
    done = subprocess.run([program, "--list", "--filter", options.filter], capture_output=True,
                          text=True, env=environment_of(role), timeout=60, check=False,
                          stdin=subprocess.DEVNULL)
    if done.returncode == 2 and "no benchmark matches" in done.stderr:
        return []
    if done.returncode == 2:
        raise Misuse(f"the {role} build: {last_line(done.stderr)}")
    if done.returncode != 0:
        raise Failure(f"the {role} build cannot list its rows (exit {done.returncode}): "
                      f"{last_line(done.stderr)}")
    return done.stdout.split("\n")[:-1]


def rows_of(report, role):
    """{name: row} of a results file, with its cells as rows of their medians."""
    form = report.get("format", FORMAT)  # builds from before it was numbered have these rows too
    if form != FORMAT:
        raise Misuse(f"the {role} build writes results of format {form}, but this program reads "
                     f"format {FORMAT}: compare with the bench/compare.py of that build")
    rows = {row["benchmark"]: row for row in report["rows"]}
    for cell in report.get("cells", []):
        row = {"benchmark": cell["name"], "unit": cell["unit"], "measured": cell.get("p50"),
               "reason": cell.get("not_applicable"), "error": cell.get("error")}
        rows[cell["name"]] = {key: value for key, value in row.items() if value is not None}
    return rows


def run_once(program, role, options, stopped):
    """One run of a build: {name: row of its JSON}, share of the cores that others kept busy."""
    with tempfile.TemporaryDirectory(prefix="passel-compare-") as folder:
        out = os.path.join(folder, "run.json")
        command = [program, "--filter", options.filter, "--json", out]
        if options.run_seconds is not None:
            command += ["--run_seconds", str(options.run_seconds)]
        if options.data_dir:
            command += ["--data_dir", options.data_dir]
        with open(os.path.join(folder, "errors"), "w+", encoding="utf-8", errors="replace") as file:
            code = run(command, RUN_LIMIT, stopped, stdout=subprocess.DEVNULL, stderr=file,
                       env=environment_of(role))
            file.seek(0)
            said = last_line(file.read())
        if stopped.signal or code in (130, -signal.SIGINT):
            raise KeyboardInterrupt
        if code == 2:
            raise Misuse(f"the {role} build: {said}")
        try:
            with open(out, encoding="utf-8") as file:
                found = json.load(file)
            rows = rows_of(found, role)
            load = float(found["load"]["other_cores"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Failure(f"a run of the {role} build ended with {code} and left no result: "
                          f"{said}") from error
    wrong = [f"{name} ({row['error']})" for name, row in rows.items() if row.get("error")]
    if wrong:
        raise Failure(f"the {role} build gave a wrong answer: {'; '.join(wrong)}")
    if code != 0:
        raise Failure(f"a run of the {role} build ended with {code}: {said}")
    return rows, load / (os.cpu_count() or 1)


def number(x):
    size = abs(x)
    digits = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 10 else 3
    return f"{x:.{digits}f}"


def judge(names, runs):
    """([{benchmark, unit, base, new, change, p, verdict, ...}] of the rows that can be compared,
    [why another cannot]). `runs`: what run_once() found, {"base": rows, "new": rows} of each."""
    values, units, notes = {}, {}, []
    for name in names:
        both = {role: [one[role].get(name, {}) for one in runs] for role in ROLES}
        found = {row.get("unit") for rows in both.values() for row in rows if "measured" in row}
        missing = [row.get("reason", f"the {role} build left no figure")
                   for role, rows in both.items() for row in rows if row.get("measured") is None]
        if missing:
            notes.append(f"{name}: not compared: {missing[-1]}")
        elif len(found) > 1:
            notes.append(f"{name}: not compared: the builds measure {' and '.join(sorted(found))}")
        elif found:
            units[name] = found.pop()
            values[name] = [[row["measured"] for row in both[role]] for role in ROLES]
    p_values = rank_test.holm([rank_test.mann_whitney_p(x, y) for x, y in values.values()])
    least, compared = rank_test.least_runs(max(1, len(values)), ALPHA), []
    for (name, (x, y)), p in zip(values.items(), p_values, strict=True):
        before, after = statistics.median(x), statistics.median(y)
        verdict = "too few runs" if len(x) < least else rank_test.verdict(
            x, y, p, units[name].endswith("/s"), ALPHA, LEAST_EFFECT)
        compared.append({"benchmark": name, "unit": units[name], "base": before, "new": after,
                         "change": after / before - 1 if before else 0.0, "p": p,
                         "verdict": verdict, "base_runs": x, "new_runs": y})
    return compared, notes


def table(found):
    lines = [("benchmark", "base", "new", "unit", "change", "p (Holm)", "verdict")]
    for row in found:
        lines.append((row["benchmark"], number(row["base"]), number(row["new"]), row["unit"],
                      f"{100 * row['change']:+.1f} %", f"{row['p']:.2g}", row["verdict"]))
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    text = []
    for line in lines:
        cells = [cell.ljust(width) if i in (0, 6) else cell.rjust(width)
                 for i, (cell, width) in enumerate(zip(line, widths, strict=True))]
        text.append("  ".join(cells).rstrip())
    text.insert(1, "-" * (sum(widths) + 2 * (len(widths) - 1)))
    return "\n".join(text)


def report(names, runs, loads, options, notes, interrupted):
    """Prints everything and writes the JSON. Returns the exit code."""
    found, more = judge(names, runs)
    named = {"base": options.base_name or options.base, "new": options.new_name or options.new}
    print(f"base  {named['base']}\nnew   {named['new']}\n"
          f"runs  {len(runs)} of each build, alternately; faster and slower: p < {ALPHA:g} "
          f"after Holm's correction, and at least {100 * LEAST_EFFECT:g} % in the medians\n")
    if found:
        print(table(found) + "\n")
    counts = collections.Counter(row["verdict"] for row in found)
    print(f"{len(found)} rows: " + ", ".join(
        f"{counts[verdict]} {verdict}"
        for verdict in ("faster", "slower", "no difference", "too few runs")
        if counts[verdict] or verdict != "too few runs"))
    notes = more + notes
    slow = os.environ.get("PASSEL_BENCH_SLOW_PUSH", "0")
    if slow not in ("", "0"):
        notes.append(f"PASSEL_BENCH_SLOW_PUSH: the pushes of the new build do {slow} % more on "
                     "purpose")
    if loads and statistics.mean(loads) > MUCH_LOAD:
        notes.append(f"warning: other programs kept {100 * statistics.mean(loads):.0f} % of the "
                     "cores busy: small differences are lost in that")
    if interrupted:
        notes.append("interrupted: what is above is of the runs that were complete")
    print("\n".join(notes), flush=True)
    if options.json:
        text = json.dumps({**named, "runs": len(runs), "alpha": ALPHA,
                           "least_effect": LEAST_EFFECT, "interrupted": interrupted,
                           "notes": notes, "rows": found}, indent=2) + "\n"
        try:
            with open(options.json, "w", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise Failure(f"{options.json} cannot be written: {error.strerror}") from error
    return 130 if interrupted else 3 if counts["slower"] else 0


def whole(text):
    if not text.isdigit() or not 1 <= int(text) <= MOST_RUNS:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a whole number from 1 to {MOST_RUNS}")
    return int(text)


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Misuse(message)


def parse(arguments):
    parser = Parser(prog="compare", allow_abbrev=False, description=__doc__,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", required=True, help="build directory")
    parser.add_argument("--new", required=True, help="build directory")
    parser.add_argument("--base-name", help="for the table")
    parser.add_argument("--new-name", help="for the table")
    parser.add_argument("--filter", default=DEFAULT_FILTER,
                        help=f"only rows that match (default {DEFAULT_FILTER})")
    parser.add_argument("--runs", type=whole, default=DEFAULT_RUNS,
                        help=f"of each build (default {DEFAULT_RUNS})")
    parser.add_argument("--run_seconds", help="length of one training run")
    parser.add_argument("--data_dir")
    parser.add_argument("--json", help="write everything to this file")
    return parser.parse_args(arguments)


def main(arguments):
    options = parse(arguments)
    programs = {role: program_of(getattr(options, role), role) for role in ROLES}
    if options.json and not os.path.isdir(os.path.dirname(os.path.abspath(options.json))):
        raise Misuse(f"--json {options.json}: its directory does not exist")
    lists = {role: names_of(program, role, options) for role, program in programs.items()}
    names = [name for name in lists["new"] if name in set(lists["base"])]
    if not names:
        raise Misuse(f"no benchmark that both builds have matches --filter {options.filter}: see "
                     "tools/bench --list")
    least = rank_test.least_runs(len(names), ALPHA)
    if options.runs < least:
        raise Misuse(f"--runs {options.runs} cannot tell {len(names)} rows apart, whatever comes "
                     f"out: give at least {least}, or select fewer rows with --filter")
    notes = [f"{name}: only in the {role} build" for role in ROLES for name in lists[role]
             if name not in names]
    stopped, runs, loads, interrupted = Stopped(), [], [], False
    try:
        for _ in range(options.runs):
            # ABBA: neither build always comes after the other.
            both = {role: run_once(programs[role], role, options, stopped)
                    for role in ROLES[::-1 if len(runs) % 2 else 1]}
            runs.append({role: rows for role, (rows, _) in both.items()})
            loads += [load for _, load in both.values()]
            print(f"compare: {len(runs)} of {options.runs} runs of each build", file=sys.stderr)
    except KeyboardInterrupt:
        interrupted = True
    return report(names, runs, loads, options, notes, interrupted)


def run_main(arguments):
    try:
        return main(arguments)
    except Misuse as misuse:
        print(f"compare: {misuse}", file=sys.stderr)
        return 2
    except Failure as failure:
        print(f"compare: {failure}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(run_main(sys.argv[1:]))

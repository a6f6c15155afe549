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
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile

import rank_test

FORMAT = 1  # of the results of passel_bench: src/lab/cell_json.h
ALPHA = 0.05
LEAST_EFFECT = 0.03
DEFAULT_RUNS = 10
MOST_RUNS = 1000
DEFAULT_FILTER = "^BM_(Push|Pull|Round)"
RUN_LIMIT = 3600  # seconds, of one run of a build
END_LIMIT = 30  # seconds, from Ctrl-C to the end of a build's program
MUCH_LOAD = 0.10  # of the cores


class Misuse(Exception):
    """The command line is wrong."""


class Failure(Exception):
    """A build gave a wrong answer or did not run."""


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


def run_once(program, role, options):
    """One run of a build: {name: row of its JSON}, share of the cores that others kept busy."""
    with tempfile.TemporaryDirectory(prefix="passel-compare-") as folder:
        out = os.path.join(folder, "run.json")
        command = [program, "--filter", options.filter, "--json", out]
        if options.run_seconds is not None:
            command += ["--run_seconds", str(options.run_seconds)]
        if options.data_dir:
            command += ["--data_dir", options.data_dir]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, errors="replace",
                              env=environment_of(role)) as child:
            try:
                _, errors = child.communicate(timeout=RUN_LIMIT)
            except subprocess.TimeoutExpired as error:
                end(child)
                raise Failure(f"a run of the {role} build has not ended within {RUN_LIMIT} s: "
                              "select fewer rows with --filter") from error
            except KeyboardInterrupt:
                end(child)
                raise
        if child.returncode == 130 or child.returncode == -signal.SIGINT:
            raise KeyboardInterrupt
        if child.returncode == 2:
            raise Misuse(f"the {role} build: {last_line(errors)}")
        try:
            with open(out, encoding="utf-8") as file:
                report = json.load(file)
            rows = rows_of(report, role)
            load = float(report["load"]["other_cores"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Failure(f"a run of the {role} build ended with {child.returncode} and left no "
                          f"result: {last_line(errors)}") from error
    wrong = [f"{name} ({row['error']})" for name, row in rows.items() if row.get("error")]
    if wrong:
        raise Failure(f"the {role} build gave a wrong answer: {'; '.join(wrong)}")
    if child.returncode != 0:
        raise Failure(f"a run of the {role} build ended with {child.returncode}: "
                      f"{last_line(errors)}")
    return rows, load / (os.cpu_count() or 1)


def end(child):
    """Ends a build's program, and with it the processes that it started."""
    try:
        child.send_signal(signal.SIGINT)
        child.wait(timeout=END_LIMIT)
    except subprocess.TimeoutExpired:
        child.kill()  # its children die with it
        child.wait(timeout=END_LIMIT)


def higher_is_better(unit):
    return unit.endswith("/s")


def number(x):
    size = abs(x)
    digits = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 10 else 3
    return f"{x:.{digits}f}"


class Samples:
    """What the runs found: one figure per run, row and build."""

    def __init__(self, names):
        self.names = names
        self.values = {role: {name: [] for name in names} for role in ("base", "new")}
        self.units = {}
        self.reasons = {}
        self.loads = []

    def add(self, role, rows, load):
        self.loads.append(load)
        for name in self.names:
            row = rows.get(name, {})
            if row.get("measured") is None:
                self.reasons[name] = row.get("reason", f"the {role} build left no figure")
                continue
            other = self.units.setdefault(name, row["unit"])
            if other != row["unit"]:
                self.reasons[name] = f"one build measures {other}, the other {row['unit']}"
            self.values[role][name].append(row["measured"])

    def runs(self):
        return len(self.loads) // 2

    def judge(self):
        """[{name, unit, base, new, change, p, verdict}] of the rows that can be compared."""
        names = [name for name in self.names if name not in self.reasons]
        base = [self.values["base"][name] for name in names]
        new = [self.values["new"][name] for name in names]
        p_values = rank_test.holm(
            [rank_test.mann_whitney_p(x, y) for x, y in zip(base, new, strict=True)])
        found = []
        for name, x, y, p in zip(names, base, new, p_values, strict=True):
            if not x or not y:
                continue
            before, after = statistics.median(x), statistics.median(y)
            if min(len(x), len(y)) < rank_test.least_runs(len(names), ALPHA):
                verdict = "too few runs"
            else:
                verdict = rank_test.verdict(x, y, p, higher_is_better(self.units[name]), ALPHA,
                                            LEAST_EFFECT)
            found.append({"benchmark": name, "unit": self.units[name], "base": before, "new": after,
                          "change": after / before - 1 if before else 0.0, "p": p,
                          "verdict": verdict, "base_runs": x, "new_runs": y})
        return found


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


def report(samples, options, unmatched, interrupted):
    """Prints everything and writes the JSON. Returns the exit code."""
    found = samples.judge()
    print(f"base  {options.base_name or options.base}")
    print(f"new   {options.new_name or options.new}")
    slow = os.environ.get("PASSEL_BENCH_SLOW_PUSH", "0")
    notes = []
    if slow not in ("", "0"):
        notes.append(f"PASSEL_BENCH_SLOW_PUSH: the pushes of the new build do {slow} % more on "
                     "purpose")
    print(f"runs  {samples.runs()} of each build, alternately; faster and slower: p < {ALPHA:g} "
          f"after Holm's correction, and at least {100 * LEAST_EFFECT:g} % in the medians\n")
    if found:
        print(table(found) + "\n")
    counts = {verdict: sum(row["verdict"] == verdict for row in found)
              for verdict in ("faster", "slower", "no difference", "too few runs")}
    print(f"{len(found)} rows: " + ", ".join(f"{count} {verdict}"
                                            for verdict, count in counts.items()
                                            if count or verdict != "too few runs"))
    notes += [f"{name}: not compared: {reason}" for name, reason in samples.reasons.items()]
    notes += [f"{name}: only in the {role} build" for role, name in unmatched]
    if samples.loads and statistics.mean(samples.loads) > MUCH_LOAD:
        notes.append(f"warning: other programs kept {100 * statistics.mean(samples.loads):.0f} % of "
                     "the cores busy: small differences are lost in that")
    if interrupted:
        notes.append("interrupted: what is above is of the runs that were complete")
    for note in notes:
        print(note)
    sys.stdout.flush()
    if options.json:
        text = json.dumps({"base": options.base_name or options.base,
                           "new": options.new_name or options.new, "runs": samples.runs(),
                           "alpha": ALPHA, "least_effect": LEAST_EFFECT, "interrupted": interrupted,
                           "notes": notes, "rows": found}, indent=2) + "\n"
        try:
            with open(options.json, "w", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise Failure(f"{options.json} cannot be written: {error.strerror}") from error
    if interrupted:
        return 130
    return 3 if counts["slower"] else 0


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
    programs = {"base": program_of(options.base, "base"), "new": program_of(options.new, "new")}
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
    unmatched = [(role, name) for role in ("base", "new") for name in lists[role]
                 if name not in names]

    samples = Samples(names)
    interrupted = False
    interrupts.raised()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for run in range(options.runs):
            # ABBA: neither build always comes after the other.
            both = {}
            for role in ("base", "new") if run % 2 == 0 else ("new", "base"):
                both[role] = run_once(programs[role], role, options)
            for role, (rows, load) in both.items():
                samples.add(role, rows, load)
            print(f"compare: {run + 1} of {options.runs} runs of each build", file=sys.stderr)
    except KeyboardInterrupt:
        interrupted = True
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the table comes out whole
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return report(samples, options, unmatched, interrupted)


def run(arguments):
    try:
        return main(arguments)
    except Misuse as misuse:
        print(f"compare: {misuse}", file=sys.stderr)
        return 2
    except Failure as failure:
        print(f"compare: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))

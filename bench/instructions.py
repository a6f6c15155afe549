#!/usr/bin/env python3
"""instructions.py - instructions per push, pull and round, against a committed baseline.

Runs passel_instructions under callgrind on the AVX2 path and compares with
bench/baselines/instructions.json. The counts do not depend on the machine: one task, a fixed
seed, the program's own code alone (neither libc nor the kernel), less what the requests to
callgrind cost. They do depend on the compiler and its flags, so the baseline names them, and
with others nothing is compared.

Exit codes: 0 nothing has grown by more than 3 %, or the counts were skipped, which is said with
the reason; 1 something has grown, or a count failed; 2 wrong usage.
"""

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile

from running import Failure

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
BASELINE = os.path.join(ROOT, "bench", "baselines", "instructions.json")
FORMAT = 1
TOLERANCE = 0.03
TIME_LIMIT = 300  # seconds; half a second is usual
WRITE = 'tools/bench --instructions --write-baseline --reason "..."'


class Skip(Exception):
    """The counts cannot be made here. The message says why and what would help."""


class Misuse(Exception):
    """The command line or a file that it names is wrong."""


def parse_dump(text, program):
    """Returns (name of the dump, instructions of the object `program` itself in it).

    The format is callgrind's: "ob=" names the object of the cost lines that follow; the line after
    "calls=" is the callee's cost and belongs to no one here.
    """
    name = None
    total = 0
    own = False
    callee = False
    for line in text.splitlines():
        if line.startswith("desc: Trigger: Client Request: "):
            name = line.removeprefix("desc: Trigger: Client Request: ")
        elif line.startswith("ob="):
            own = os.path.basename(line[3:]) == os.path.basename(program)
        elif line.startswith("calls="):
            callee = True
        elif line[:1].isdigit() or line[:1] in ("+", "-", "*"):
            if own and not callee:
                total += int(line.split()[1])
            callee = False
    return name, total


def count(program, valgrind):
    """Returns what the program said of itself and instructions per call by cell."""
    if shutil.which(valgrind) is None:
        raise Skip(f"{valgrind} is not installed: run tools/setup")
    if not os.access(program, os.X_OK):
        raise Skip(f"{program} is not there: it is built with PASSEL_BUILD_BENCH=ON, without "
                   "sanitizers, where valgrind/callgrind.h is installed (tools/setup)")
    with tempfile.TemporaryDirectory(prefix="passel-instructions-") as folder:
        command = [valgrind, "--tool=callgrind", "--collect-atstart=no", "--compress-strings=no",
                   "--compress-pos=no", "--quiet",
                   "--callgrind-out-file=" + os.path.join(folder, "out"), program]
        environment = dict(os.environ, PASSEL_ISA="avx2")
        environment.pop("VALGRIND_OPTS", None)
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  env=environment, timeout=TIME_LIMIT, check=False)
        except subprocess.TimeoutExpired as error:
            raise Failure(f"{valgrind} has not ended within {TIME_LIMIT} s") from error
        if done.returncode == 2:
            raise Misuse(done.stderr.strip().splitlines()[-1])
        if done.returncode != 0:
            raise Failure(f"{' '.join(command)} ended with {done.returncode}: "
                          f"{done.stderr.strip() or 'no message'}")
        try:
            about = json.loads(done.stdout)
        except ValueError as error:
            raise Failure(f"{program} printed no JSON but: {done.stdout.strip()[:200]}") from error
        if about["isa"] != "avx2":
            raise Skip(f"the program runs its {about['isa']} path: the counts are of the AVX2 path, "
                       "and this processor or this build has none")
        totals = {}
        for name in os.listdir(folder):
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as dump:
                cell, total = parse_dump(dump.read(), program)
            if cell is not None:
                totals[cell] = total
    calls = about["cells"]
    missing = [cell for cell in calls if cell not in totals]
    if missing:
        raise Failure(f"callgrind left no count of {', '.join(missing)}")
    empty = totals["empty"] / calls["empty"]
    return about, {cell: round(totals[cell] / calls[cell] - empty, 2)
                   for cell in calls if cell != "empty"}


def read_baseline(path):
    try:
        with open(path, encoding="utf-8") as file:
            baseline = json.load(file)
    except OSError as error:
        raise Misuse(f"the baseline {path} cannot be read ({error.strerror}): write one with "
                     f"{WRITE}") from error
    except ValueError as error:
        raise Misuse(f"the baseline {path} is not JSON ({error}): write one with {WRITE}") from error
    found = baseline.get("format") if isinstance(baseline, dict) else None
    if found != FORMAT:
        raise Misuse(f"the baseline {path} has format {found}, this program reads {FORMAT}: write "
                     f"one with {WRITE}")
    return baseline


def write_baseline(path, about, counts, reason):
    """Replaces the counts; what was written before stays in the history with its reason."""
    history = read_baseline(path)["history"] if os.path.exists(path) else []
    history.append({"date": datetime.date.today().isoformat(), "reason": reason, "cells": counts})
    with open(path + ".partial", "w", encoding="utf-8") as file:
        json.dump({"format": FORMAT, "build": about["build"], "isa": about["isa"], "cells": counts,
                   "history": history}, file, indent=2)
        file.write("\n")
    os.replace(file.name, path)


def compare(about, counts, baseline):
    """Returns the lines to print and the cells that fail."""
    if about["build"] != baseline["build"]:
        raise Skip(f"the baseline is of a build by '{baseline['build']}', this one is by "
                   f"'{about['build']}'")
    before = baseline["cells"]
    lines, failed, fewer = [], [], []
    width = max(len(cell) for cell in [*counts, *before])
    for cell in [*counts, *(cell for cell in before if cell not in counts)]:
        if cell not in counts or cell not in before:
            where = "program" if cell not in counts else "baseline"
            lines.append(f"{cell:<{width}}  is not in the {where}")
            failed.append(cell)
            continue
        change = counts[cell] / before[cell] - 1
        verdict = "ok"
        if change > TOLERANCE:
            verdict = "MORE"
            failed.append(cell)
        elif change < -TOLERANCE:
            verdict = "fewer"
            fewer.append(cell)
        lines.append(f"{cell:<{width}}  {counts[cell]:>11.1f}  baseline {before[cell]:>11.1f}  "
                     f"{100 * change:+7.2f} %  {verdict}")
    if fewer:
        lines.append(f"{', '.join(fewer)}: fewer by more than {100 * TOLERANCE:g} %. That the gain "
                     f"is kept, write a new baseline: {WRITE}")
    return lines, failed


def main(arguments):
    parser = argparse.ArgumentParser(
        prog="instructions", allow_abbrev=False,
        description="Instructions per push, pull and round against the committed baseline.")
    parser.add_argument("--program", default=os.path.join(ROOT, "build/release/bin",
                                                          "passel_instructions"))
    parser.add_argument("--baseline", default=BASELINE)
    parser.add_argument("--valgrind", default="valgrind")
    parser.add_argument("--write-baseline", action="store_true")
    parser.add_argument("--reason", help="of the new baseline; kept in the file")
    options = parser.parse_args(arguments)
    if options.write_baseline and not (options.reason or "").strip():
        raise Misuse('--write-baseline needs --reason "...": why the counts may change')
    if options.reason is not None and not options.write_baseline:
        raise Misuse("--reason belongs to --write-baseline, which was not given")

    if not options.write_baseline:
        baseline = read_baseline(options.baseline)
    about, counts = count(options.program, options.valgrind)
    if about["slow_push_percent"] > 0:
        print(f"PASSEL_BENCH_SLOW_PUSH: each push does {about['slow_push_percent']} % more on "
              "purpose")
        if options.write_baseline:
            raise Misuse("a baseline with PASSEL_BENCH_SLOW_PUSH set would hide slow-downs: unset it")
    if options.write_baseline:
        write_baseline(options.baseline, about, counts, options.reason.strip())
        print(f"wrote {options.baseline}: {len(counts)} cells")
        return 0
    lines, failed = compare(about, counts, baseline)
    print("\n".join(lines))
    if failed:
        raise Failure(f"{len(failed)} of {len(counts)} counts of instructions are more than "
                      f"{100 * TOLERANCE:g} % above the baseline or have no counterpart: "
                      f"{', '.join(failed)}. Make them fewer, or change the baseline with the "
                      f"reason: {WRITE}")
    return 0


def run(arguments):
    try:
        return main(arguments)
    except Skip as skip:
        print(f"instructions: skipped: {skip}", file=sys.stderr)
        return 1 if "--write-baseline" in arguments else 0
    except Misuse as misuse:
        print(f"instructions: {misuse}", file=sys.stderr)
        return 2
    except Failure as failure:
        print(f"instructions: {failure}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    try:
        sys.exit(run(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)

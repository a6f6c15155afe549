#!/usr/bin/env python3
"""Stands in for passel_bench where bench/compare.py is tested: figures drawn around a level.

It lies in BUILD/bin/passel_bench. The folder $STATE holds what it is to do: `fewer` (BM_B of the
build "new" is 10 % lower), `wrong` (an answer is), `interrupt` (the 11th run is interrupted),
`cell` (there is a cell, in "new" 10 % slower), `format` ("new" writes results of another one), and
gets `runs`, one letter for each run: the first of the build's name.
"""

import json
import os
import random
import signal
import sys
import time

LEVELS = {"BM_A": 100.0, "BM_B": 50.0, "BM_C": 7.0}


def main(arguments):
    build = os.path.basename(os.path.dirname(os.path.dirname(os.path.abspath(sys.argv[0]))))
    state = os.environ["STATE"]

    def told(what):
        return os.path.exists(os.path.join(state, what))

    rows = [*LEVELS, "BM_Only_" + build] + (["BM_Cell/op:push"] if told("cell") else [])
    if arguments[arguments.index("--filter") + 1] == "none":
        print("passel_bench: no benchmark matches --filter none: see --list", file=sys.stderr)
        return 2
    if "--list" in arguments:
        print("\n".join(rows))
        return 0
    with open(os.path.join(state, "runs"), "a", encoding="utf-8") as file:
        file.write(build[0])
        file.flush()
        count = file.tell()
    if told("interrupt") and count == 11:
        # Where the tests run in the background SIGINT is ignored, by us and by who started us.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.kill(os.getppid(), signal.SIGTERM)
        time.sleep(20)  # until it is passed on
    source = random.Random(count)
    report = {"load": {"other_cores": 0.0}, "rows": []}
    if told("format") and build == "new":
        report["format"] = 9
    for name in rows:
        if name.startswith("BM_Cell"):
            level = 11 if build == "new" else 10
            report["cells"] = [{"name": name, "unit": "us", "p50": level * source.uniform(0.99, 1.01)}]
            continue
        row = {"benchmark": name, "unit": "steps/s" if name == "BM_B" else "us",
               "measured": LEVELS.get(name, 1.0) * source.uniform(0.99, 1.01)}
        if name == "BM_A":
            row["measured"] *= 1 + float(os.environ.get("PASSEL_BENCH_SLOW_PUSH", "0")) / 100
        if name == "BM_B" and build == "new" and told("fewer"):
            row["measured"] *= 0.9
        if name == "BM_C" and told("wrong"):
            row = {"benchmark": name, "unit": "us", "error": "2 is not 3"}
        report["rows"].append(row)
    with open(arguments[arguments.index("--json") + 1], "w", encoding="utf-8") as file:
        json.dump(report, file)
    return 1 if told("wrong") else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)

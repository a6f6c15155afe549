#!/usr/bin/python3
"""measure - runs passel_bench, on request the other systems too, and makes the page of both.

tools/bench builds and then calls this. Ctrl-C reaches the program that runs; what it had completed
is in the page all the same.
"""
# The first line names the system's Python, which has Debian's matplotlib.

import interrupts  # isort: skip  (first: see there)

import argparse
import os
import signal
import sys

from running import Failure, Stopped, run

HERE = os.path.dirname(os.path.realpath(__file__))
NAME = "measure"
sys.path.insert(0, os.path.join(HERE, "page"))
import report  # noqa: E402  (the path is set above)

BENCH_LIMIT = 4 * 3600  # seconds; a run that takes longer hangs
PEERS_LIMIT = 3600


def mark(path):
    """Tells whether a file was replaced."""
    try:
        found = os.stat(path)
        return found.st_ino, found.st_mtime_ns
    except FileNotFoundError:
        return None


def measure(program, arguments, json_path, limit, stopped):
    """Runs it with --json. Returns (exit code, whether there are results)."""
    before = mark(json_path)
    code = run([*program, "--json", json_path, *arguments], limit, stopped)
    if code < 0:
        raise Failure(f"{os.path.basename(program[0])} was ended by "
                      f"{signal.Signals(-code).name}")
    after = mark(json_path)
    return code, after is not None and after != before


def parse(arguments):
    parser = argparse.ArgumentParser(prog=NAME, allow_abbrev=False, description=__doc__)
    parser.add_argument("--bench", required=True, help="passel_bench")
    parser.add_argument("--json", required=True, help="its results")
    parser.add_argument("--report", required=True, help="the page")
    parser.add_argument("--peers", metavar="PROGRAM", help="bench/peers/run, to be run as well")
    parser.add_argument("--peers-json", help="its results")
    parser.add_argument("--build", help="for --peers: where passel was built")
    parser.add_argument("--data_dir", help="for both")
    return parser.parse_known_args(arguments)


def main(arguments):
    options, rest = parse(arguments)
    data = ["--data_dir", options.data_dir] if options.data_dir else []
    stopped = Stopped()
    code, there = measure([options.bench], rest + data, options.json, BENCH_LIMIT, stopped)
    if not there:
        if code == 0:
            raise Failure(f"{options.bench} ended well but wrote no {options.json}")
        return code
    made = ["--results", options.json, "--out", options.report]
    if options.peers and not stopped.signal and code in (0, 1):
        print(flush=True)
        peers_code, there = measure([options.peers], ["--build", options.build, *data],
                                    options.peers_json, PEERS_LIMIT, stopped)
        if there:
            made += ["--peers", options.peers_json]
        code = peers_code if peers_code == 130 else max(code, peers_code)
    if stopped.signal:
        code = 130
    page_code = report.run(made)
    if page_code != 0:
        return max(code, page_code)
    print(f"\nreport: {options.report}")
    return code


def run_main(arguments):
    try:
        return main(arguments)
    except Failure as failure:
        print(f"{NAME}: {failure}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(run_main(sys.argv[1:]))

#!/usr/bin/python3
"""measure - runs passel_bench, on request the other systems too, and makes the page of both.

tools/bench builds and then calls this. Ctrl-C reaches the program that runs; what it had completed
is in the page all the same.
"""
# The first line names the system's Python, which has Debian's matplotlib.

import interrupts  # isort: skip  (first: see there)

import argparse
import ctypes
import os
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.realpath(__file__))
NAME = "measure"
sys.path.insert(0, os.path.join(HERE, "page"))
import report  # noqa: E402  (the path is set above)

BENCH_LIMIT = 4 * 3600  # seconds; a run that takes longer hangs
PEERS_LIMIT = 3600
END_LIMIT = 90          # from Ctrl-C to the end of a program


class Failure(Exception):
    pass


class Stopped:
    """Which signal asked us to stop, 0 if none; it is handed to the program that runs."""

    def __init__(self):
        self.signal = 0
        self.at = None
        self.process = None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # nohup, say: what is ignored stays ignored.
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self.note)

    def note(self, number, _):
        self.signal = number
        self.at = self.at or time.monotonic()
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)


def die_with_parent():
    """In the child: nothing runs on when we are killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG


def run(arguments, limit, stopped):
    """The exit code of a program. It is in a session of its own, so that Ctrl-C reaches it once,
    through us. Errors: Failure."""
    try:
        process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, start_new_session=True,
                                   preexec_fn=die_with_parent)
    except OSError as error:
        raise Failure(f"{arguments[0]} cannot be started: {error.strerror}") from error
    stopped.process = process
    if stopped.signal:
        process.send_signal(stopped.signal)
    end = time.monotonic() + limit
    try:
        while True:
            try:
                return process.wait(timeout=0.5)
            except subprocess.TimeoutExpired:
                now = time.monotonic()
                if now > end or (stopped.at is not None and now > stopped.at + END_LIMIT):
                    raise Failure(f"{os.path.basename(arguments[0])} did not end within "
                                  f"{limit if now > end else END_LIMIT} s and was killed") from None
    finally:
        stopped.process = None
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


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

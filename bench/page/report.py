#!/usr/bin/env python3
"""report - makes report.html from what tools/bench and bench/peers/run have measured.

Python's standard library alone. The same files give the same page, byte for byte.
"""

import argparse
import os
import sys

import docs
import page
import results as files
import shrink

NAME = "bench/page/report.py"
NO_PEERS = ("the other systems were not measured (tools/bench --peers; bench/peers/setup installs "
            "them)")


class Misuse(Exception):
    pass


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Misuse(message)


def parse(arguments):
    parser = Parser(prog=NAME, allow_abbrev=False, description=__doc__,
                    formatter_class=argparse.RawDescriptionHelpFormatter,
                    epilog="Exit codes: 0 done; 1 a file could not be written; 2 wrong usage, "
                           "or a file that is no such\nresult or one of another version.")
    parser.add_argument("--results", required=True, metavar="FILE",
                        help="JSON of tools/bench --json")
    parser.add_argument("--peers", metavar="FILE", help="JSON of bench/peers/run --json")
    parser.add_argument("--out", metavar="FILE",
                        help="the page; default report.html beside --results")
    parser.add_argument("--docs", action="store_true",
                        help="instead: draw docs/plots/*.svg and fill the figures and tables into "
                             "docs/performance.md")
    parser.add_argument("--shrink", metavar="FILE",
                        help="instead: write --results to FILE with five digits a number and a cell "
                             "a line, to be kept in bench/results; with --peers those beside it, as "
                             "FILE without .json plus .peers.json")
    parser.add_argument("--docs-dir", metavar="DIR", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    chosen = [flag for flag in ("docs", "out", "shrink") if getattr(options, flag)]
    if len(chosen) > 1:
        raise Misuse(f"--{chosen[0]} and --{chosen[1]} are two things: give one of them")
    if not options.out:
        options.out = os.path.join(os.path.dirname(options.results) or ".", "report.html")
    if not options.docs and os.path.isdir(options.out):
        raise Misuse(f"--out {options.out} is a folder: name a file")
    return options


def write(path, text):
    """Renamed into place: a reader never sees half of it."""
    partial = f"{path}.{os.getpid()}.partial"
    try:
        with open(partial, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(partial, path)
    except OSError:
        if os.path.exists(partial):
            os.remove(partial)
        raise


def main(arguments):
    options = parse(arguments)
    results = files.Results(options.results)
    peers = files.Peers(options.peers) if options.peers else None
    if options.shrink:
        write(options.shrink, shrink.text_of(options.results))
        if peers:
            write(options.shrink.removesuffix(".json") + ".peers.json",
                  shrink.text_of(options.peers))
        return 0
    if options.docs:
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
        docs.fill(options.docs_dir or os.path.join(root, "docs"), results, peers, write)
        return 0
    write(options.out, page.render(results, peers, NO_PEERS))
    return 0


def run(arguments):
    try:
        return main(arguments)
    except (Misuse, files.BadFile, docs.BadPage) as error:
        print(f"{NAME}: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{NAME}: {error.filename} cannot be written: {error.strerror}; "
              "make room or name another place with --out or --shrink", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))

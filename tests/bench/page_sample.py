"""page_sample - made-up results with everything that bench/page can show, and a folder to write them
to.

The numbers are round so that tests can know what must come of them; nothing was measured.
"""

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
REPORT = os.path.join(ROOT, "bench", "page", "report.py")
sys.path.insert(0, os.path.join(ROOT, "bench", "page"))
sys.dont_write_bytecode = True
import report  # noqa: E402  (the path is set above)
import results as files  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"
BARE = {"format": files.RESULTS_FORMAT, "rows": []}


def cell(mode, elements, writers, p50, **more):
    """As passel_bench writes one; the reference takes half the time."""
    found = {"name": f"BM_Cell/op:push/mode:{mode}/opt:adam/elems:{elements}/writers:{writers}",
             "op": "round" if mode in ("barrier", "replicas") else "push", "mode": mode,
             "optimizer": "adam", "elements": elements, "writers": writers, "placement": "own",
             "pages": "4k", "loop": "closed", "rate_per_second": 0, "unit": "us", "samples": 10000,
             "p50": p50, "p90": p50 * 1.1, "p99": p50 * 2, "p999": p50 * 30, "max": p50 * 200,
             "curve": [[0.25, p50 * 0.9], [0.5, p50], [0.9, p50 * 1.1], [0.99, p50 * 2],
                       [0.999, p50 * 30], [1.0, p50 * 200]],
             "limit": {"what": "the bare loop", "p50": p50 / 2, "updates_per_second": 2e6 / p50},
             "ratio": 2.0, "spread": 0.04,
             "updates_per_second": 1e6 / p50, "share": 0.5, "lost_updates": 3, "busy_blocks": 12,
             "overlapped_blocks": 1, "pushes": 10000, "note": "", "not_applicable": "", "error": ""}
    found.update(more)
    return found


def whole():
    """Everything that the page can show."""
    modes = ("hogwild", "locked", "barrier", "replicas", "ssp", "naive", "atomic", "mutex")
    cells = [cell(mode, elements, writers, elements / 2000 * (1 + 0.01 * i) + 0.2)
             for i, mode in enumerate(modes) for elements in (16, 1000, 79510, 1000000, 16000000)
             for writers in (1, 2, 4)]
    cells += [cell(mode, 79510, 2, 60.0, placement=placement) for mode in ("hogwild", "locked")
              for placement in ("free", "one")]
    for rate in (1000, 20000):
        cells.append(cell("hogwild", 79510, 2, 44.0, loop="open", rate_per_second=rate))
    cells.append(cell("locked", 16, 2, 1.0, pages="huge",
                      not_applicable="no huge pages here"))
    machine = {"processor": 'A <fast> & "wide" one', "cores": "4 usable of 4 online"}
    return {
        "format": files.RESULTS_FORMAT, "machine": machine, "seconds": 77.4, "interrupted": False,
        "load": {"other_cores": 0.3, "steal": 0.001}, "warnings": ["3 of 9 rows spread <a lot>"],
        "notes": ["a note"], "cells": cells,
        "guarantees": {"locked": "applies each gradient at once and loses nothing"},
        "rows": [{"benchmark": "BM_A", "what": "push & wait", "unit": "us", "measured": 9.48,
                  "limit": 9.05, "ratio": 1.047, "spread": 0.001, "verdict": "met",
                  "target": {"at_most": 1.1, "of": "ratio"}},
                 {"benchmark": "BM_B", "what": "training", "unit": "steps/s", "measured": 7444,
                  "limit": None, "reference": 9639, "ratio": 0.772, "spread": 0.31, "verdict": "missed",
                  "target": {"at_least": 0.85, "of": "ratio"}},
                 {"benchmark": "BM_C", "what": "rounds", "unit": "us", "verdict": "not applicable",
                  "reason": "takes two cores", "target": {"at_most": 5, "of": "measured"}},
                 {"benchmark": "BM_D", "what": "shown only", "unit": "GB/s", "measured": 60.0,
                  "verdict": "-", "spread": 0.0, "note": "how it was measured"}],
        "limits": [{"what": "triad", "bytes": 954120, "cores": 4, "value": 61.5, "unit": "GB/s"}],
        "scaling": [{"sharing": sharing, "workers": workers, "steps_per_second": 2500 * workers * r,
                     "private_steps_per_second": 2500 * workers, "ratio": r, "spread": 0.02}
                    for workers in (1, 2, 4)
                    for sharing, r in (("hogwild", 0.97), ("locked", 0.96), ("barrier", 0.8),
                                       ("naive", 0.7))],
        "time_split": [{"sharing": sharing, "workers": workers, "gather_us": 21.0, "forward_us": 130.5,
                        "backward_us": 160, "update_us": 55.5, "wait_us": 0.4,
                        "other_us": 9.0}
                       for workers in (1, 2, 4) for sharing in ("hogwild", "barrier")],
        "line_transfer": {"cores": [0, 1, 2, 3],
                          "round_trip_ns": [[0, 125, 133, 1400]] * 4,
                          "update_ns_per_line": [[None, 1.2, 1.1, 1.3]] * 4},
    }


def whole_peers():
    return {
        "format": files.PEERS_FORMAT, "machine": {"date": "2026-01-01"}, "versions": {"redis": "7"},
        "missing": {"grpc": "not installed: run bench/peers/setup --only grpc"},
        "failed": {"Redis, TCP": "ended with 1: <no> socket"}, "interrupted": False, "quick": False,
        "latency_rows": [{"row": "passel hogwild", "peer": "passel", "ops": ["view", "push"]},
                         {"row": "Redis, TCP", "peer": "redis", "ops": ["push"]},
                         {"row": "gRPC, unary", "peer": "grpc", "ops": ["push"]}],
        "training_rows": [{"row": "passel hogwild", "peer": "passel"},
                          {"row": "PyTorch Hogwild", "peer": "torch"}],
        "latency": [{"row": "passel hogwild", "elements": 79510, "op": op, "runs": [
            {"p50_us": us, "p99_us": 2 * us} for us in (base, 1.5 * base, 1.1 * base)]}
            for op, base in (("view", 0.01), ("push", 9.5))],
        "training": [{"row": row, "workers": n, "runs": [{"steps_per_second": 2000 * n,
                                                          "accuracy": 0.97}]}
                     for row in ("passel hogwild", "PyTorch Hogwild") for n in (1, 2)],
        "verdicts": [{"what": "push, 318 KB", "passel": 9.5, "other": 9.1, "verdict": "tie"},
                     {"what": "view, 318 KB", "passel": 0.01, "other": 0.02, "verdict": "ahead"}]}


class InAFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def write(self, name, content):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(content if isinstance(content, str) else json.dumps(content))
        return path

    def results(self, content):
        return files.read_results(self.write("results.json", content))

    def peers(self, content):
        return files.read_peers(self.write("peers.json", content))

    def report(self, *arguments):
        """(exit code, standard output, standard error) of the program, which is run in this process:
        matplotlib takes half a second to start."""
        out, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            code = report.run(arguments)
        return code, out.getvalue(), errors.getvalue()

    def program(self, *arguments):
        """The same in a process of its own."""
        done = subprocess.run([sys.executable, "-B", REPORT, *arguments], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout, done.stderr

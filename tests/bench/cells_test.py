#!/usr/bin/env python3
"""The cells of passel_bench as a user runs them: names, refusals, results file, Ctrl-C.

usage: cells_test.py PROGRAM
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

PROGRAM = sys.argv.pop(1)
REPORT = os.path.join(os.path.dirname(__file__), "../../bench/page/report.py")
LIMIT = 100  # seconds, of any run here
TINY = "BM_Cell/op:push/mode:{}/opt:sgd/elems:100/writers:1/place:own/pages:4k"


def run(*arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=LIMIT,
                          check=False, stdin=subprocess.DEVNULL)


class Cells(unittest.TestCase):
    def setUp(self):
        # pylint: disable=consider-using-with
        self.folder = tempfile.TemporaryDirectory(prefix="passel-cells-")
        self.addCleanup(self.folder.cleanup)
        self.json = os.path.join(self.folder.name, "results.json")

    def refused(self, words, *arguments):
        done = run(*arguments)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)

    def test_a_cell_that_is_named_in_full_is_measured_whatever_its_numbers(self):
        name = TINY.format("hogwild").replace("elems:100", "elems:1234")
        done = run("--smoke", "--filter", name, "--json", self.json)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("push hogwild sgd 1234 floats, 1 writer own", done.stdout)
        with open(self.json, encoding="utf-8") as file:
            results = json.load(file)
        self.assertEqual(results["format"], 1)
        self.assertEqual(results["rows"], [])
        self.assertEqual(list(results["guarantees"]),
                         ["hogwild", "locked", "barrier", "replicas", "ssp"])
        (cell,) = results["cells"]
        self.assertEqual(cell["name"], name)
        expected = {"op": "push", "mode": "hogwild", "optimizer": "sgd", "elements": 1234,
                    "writers": 1, "placement": "own", "pages": "4k", "loop": "closed",
                    "unit": "us", "lost_updates": 0, "overlapped_blocks": 0, "busy_blocks": 0}
        self.assertEqual({key: cell[key] for key in expected}, expected)
        self.assertGreaterEqual(cell["pushes"], cell["samples"])
        figures = [cell[key] for key in ("p50", "p90", "p99", "p999", "max")]
        self.assertEqual(figures, sorted(figures))
        self.assertGreater(cell["limit"]["p50"], 0)
        self.assertAlmostEqual(cell["ratio"], cell["p50"] / cell["limit"]["p50"])
        self.assertEqual(cell["curve"][0][0], 0)
        self.assertEqual(cell["curve"][-1], [1, cell["max"]])

    def test_every_ratio_is_measured_over_limit_or_reference_as_printed(self):
        done = run("--smoke", "--json", self.json, "--filter",
                   "BM_(Push|ArenaBytes|Compute|Cell/op:push/mode:(hogwild|locked))")
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.json, encoding="utf-8") as file:
            results = json.load(file)
        references = {row["what"]: "reference" in row for row in results["rows"]}
        for row in results["rows"]:
            self.assertNotEqual(row["limit"] is None, "reference" not in row, row["what"])
            against = row["reference"] if references[row["what"]] else row["limit"]
            self.assertAlmostEqual(row["ratio"], row["measured"] / against)
        # Bytes that are needed cannot be saved; plain loops may be beaten.
        self.assertEqual({what: known for what, known in references.items() if "push" not in what}, {
            what: "compute" in what for what in references if "push" not in what})

        # Rounded to three decimals or four digits, in columns that end where their heads do.
        tables = 0
        lines = done.stdout.splitlines()
        for at, head in enumerate(lines):
            if " ratio " not in head:
                continue
            tables += 1
            ends = {name: head.index(f" {name} ") + len(name) + 1
                    for name in ("measured", "p50", "limit", "reference", "ratio")
                    if f" {name} " in head}
            for line in lines[at + 2:]:
                if not line or line.startswith("warning: "):
                    break
                values = {name: line[:end].split(" ")[-1] for name, end in ends.items()}
                measured = values.get("measured") or values.get("p50")
                against = values.get("limit") or values["reference"]
                self.assertAlmostEqual(float(values["ratio"]) * float(against) / float(measured), 1,
                                       delta=0.03, msg=line)
        self.assertEqual(tables, 2)

    def test_the_page_is_made_of_what_the_program_writes(self):
        done = run("--smoke", "--json", self.json, "--filter",
                   "BM_(Limit|Push|Cell|LineTransfer|Train/mode:locked.*workers:2)")
        self.assertEqual(done.returncode, 0, done.stderr)
        page = os.path.join(self.folder.name, "report.html")
        made = subprocess.run([sys.executable, "-B", REPORT, "--results", self.json, "--out", page],
                              capture_output=True, text=True, timeout=LIMIT, check=False)
        self.assertEqual(made.returncode, 0, made.stderr)
        with open(page, encoding="utf-8") as file:
            text = file.read()
        self.assertIn("<svg", text)
        for mode in ("hogwild", "locked", "barrier", "naive"):
            self.assertIn(mode, text)

    def test_one_worker_alone_has_no_lines_from_other_cores(self):
        done = run("--smoke", "--full", "--json", self.json, "--filter",
                   "BM_Train/mode:(hogwild|barrier)/.*workers:1$")
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.json, encoding="utf-8") as file:
            notes = [row["note"] for row in json.load(file)["rows"]]
        self.assertEqual(len(notes), 2)
        for note in notes:
            self.assertIn("median step", note)
            self.assertNotIn("other cores", note)
            self.assertNotRegex(note, r"\b-?(nan|inf)")

    def test_an_open_loop_says_its_rate(self):
        name = TINY.format("locked") + "/loop:open/rate:2500"
        done = run("--smoke", "--filter", f"^{name}$", "--json", self.json)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.json, encoding="utf-8") as file:
            (cell,) = json.load(file)["cells"]
        self.assertEqual((cell["loop"], cell["rate_per_second"]), ("open", 2500))

    def test_a_filter_with_the_start_of_a_cell_chooses_from_all_cells(self):
        done = run("--list", "--filter",
                   "BM_Cell/op:push/mode:(naive|mutex)/opt:ftrl/elems:64000000/writers:1/")
        self.assertEqual(done.returncode, 0, done.stderr)
        names = done.stdout.splitlines()
        self.assertEqual(len(names), 2 * 3 * 2)  # modes, placements, pages
        self.assertEqual(len(set(names)), len(names))

    def test_the_usual_cells_have_no_size_that_only_a_request_gives(self):
        quick = run("--list", "--filter", "BM_Cell").stdout.splitlines()
        full = run("--list", "--full", "--filter", "BM_Cell").stdout.splitlines()
        self.assertLess(len(quick), 45)
        self.assertLessEqual(set(quick), set(full))
        self.assertLess(len(full), 160)
        self.assertFalse([name for name in full if "elems:64000000" in name])

    def test_cells_that_cannot_be_are_refused_in_one_sentence(self):
        name = TINY.format("hogwild")
        self.refused(["writers is 5000, but must be from 1 to"], "--filter",
                     name.replace("writers:1", "writers:5000"))
        self.refused(["mode barrier takes op:round"], "--filter", TINY.format("barrier"))
        self.refused(["of all cells, but at most 300 run at once"], "--filter", "BM_Cell/op:push")
        self.refused(["mode is 'hogwold', but must be one of hogwild, locked"], "--filter",
                     TINY.format("hogwold"))
        self.refused(["no benchmark matches"], "--filter", "BM_Cells")
        self.refused(["no regular expression"], "--filter", "BM_Cell/(")
        self.refused(["--filter is empty"], "--filter", "")
        self.refused(["rate is 0, but must be from 1 to 10000000"], "--filter",
                     name + "/loop:open/rate:0")
        self.refused(["spell it", "/rate:5000"], "--filter", name + "/loop:open/rate:5e3")

    def test_what_would_fail_at_the_end_is_refused_at_the_start(self):
        self.refused(["--run_seconds is not a number"], "--run_seconds", "nan")
        self.refused(["/nowhere/x.json cannot be written"], "--json", "/nowhere/x.json")
        folder = os.path.dirname(self.json)
        self.refused(["is a folder: name a file"], "--json", folder)

    def test_a_size_beyond_the_memory_is_refused_with_the_need_and_what_is_free(self):
        writers = 2 * len(os.sched_getaffinity(0))
        needed = 4 * 2**30 * (3 + 5 * writers)
        if os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") > needed:
            self.skipTest("this machine has the memory")
        name = (f"BM_Cell/op:push/mode:hogwild/opt:adam/elems:{2**30}/writers:{writers}"
                "/place:free/pages:4k")
        self.refused([f"needs {needed >> 20} MiB and a quarter more", "MiB free"],
                     "--filter", name)

    def test_the_results_have_limits_lines_scaling_and_the_parts_of_a_step(self):
        done = run("--smoke", "--json", self.json, "--filter",
                   "BM_Limit|BM_LineTransfer|BM_Train/mode:(hogwild|barrier).*workers:2")
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.json, encoding="utf-8") as file:
            results = json.load(file)
        limits = [(limit["what"], limit["unit"]) for limit in results["limits"]]
        self.assertIn(("triad", "GB/s"), limits)
        self.assertIn(("memcpy", "us"), limits)
        self.assertTrue(all(limit["value"] > 0 for limit in results["limits"]))
        if len(os.sched_getaffinity(0)) < 2:
            self.assertEqual(results["scaling"], [])
            self.skipTest("the rest needs two cores")
        self.assertIn(("hand-over, futex", "us"), limits)
        lines = results["line_transfer"]
        self.assertGreaterEqual(len(lines["cores"]), 2)
        for name in ("round_trip_ns", "update_ns_per_line"):
            self.assertEqual([len(row) for row in lines[name]], [len(lines["cores"])] *
                             len(lines["cores"]))
        self.assertGreater(lines["round_trip_ns"][0][1], 0)
        self.assertEqual(lines["round_trip_ns"][1][1], 0)
        found = {(row["sharing"], row["workers"]) for row in results["scaling"]}
        self.assertEqual(found, {("hogwild", 2), ("barrier", 2)})
        for row in results["scaling"]:
            self.assertGreater(row["private_steps_per_second"], 0)
        splits = {row["sharing"]: row for row in results["time_split"]}
        self.assertEqual(set(splits), {"private", "hogwild", "barrier"})
        for row in splits.values():
            for part in ("gather_us", "forward_us", "backward_us", "update_us"):
                self.assertGreater(row[part], 0, (row, part))
        self.assertGreater(splits["barrier"]["wait_us"], 0)

    def test_ctrl_c_prints_what_is_complete_and_writes_it(self):
        # Minutes of cells: there are some left when the signal comes, however busy the machine is.
        command = [PROGRAM, "--full", "--filter", "BM_Cell.*elems:79510", "--json", self.json]
        with subprocess.Popen(command, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as child:
            alarm = threading.Timer(LIMIT, child.kill)
            alarm.start()
            try:
                # A line of progress for each cell that is complete.
                self.assertIn("BM_Cell/", child.stderr.readline())
                child.send_signal(signal.SIGINT)
                output, _ = child.communicate()
            finally:
                alarm.cancel()
                child.kill()
        self.assertEqual(child.returncode, 130)
        self.assertIn("interrupted: what is above is complete", output)
        with open(self.json, encoding="utf-8") as file:
            results = json.load(file)
        self.assertTrue(results["interrupted"])
        self.assertGreaterEqual(len(results["cells"]), 1)
        self.assertTrue(all("p50" in cell for cell in results["cells"]))


if __name__ == "__main__":
    # Where the tests run in the background SIGINT is ignored, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    unittest.main()

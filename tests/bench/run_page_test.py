#!/usr/bin/env python3
"""Tests of the page of a run (tools/run_page): what is shown of any report, and which reports are
refused. Without matplotlib the tests of drawings are skipped."""

import contextlib
import io
import json
import math
import os
import re
import subprocess
import sys
import unittest
import unittest.mock
import xml.etree.ElementTree as ElementTree

from page_sample import ROOT, SVG, InAFolder  # sets the path

import plots
import run_page
import run_report

RUN_PAGE = os.path.join(ROOT, "tools", "run_page")
drawing = unittest.skipUnless(plots.AVAILABLE, "needs matplotlib (tools/setup --with bench)")


def point(i, **more):
    found = {"seconds": 0.5 * i, "global_step": 1000 * i, "loss": 2.3 / (1 + i),
             "accuracy": 1 - 0.9 / (1 + i), "steps_per_second": 2000.0, "staleness_mean": 1.25,
             "staleness_p99": 4, "dropped": 0, "workers": 2}
    return {**found, **more}


def worker(index, **more):
    found = {"index": index, "device": "cpu", "local_steps": 1000, "final_accuracy": None,
             "seconds": {"pull": 1.0, "compute": 6.0, "push": 2.0, "wait": 1.0}, "dropped": 0,
             "exit": "exited with 0"}
    return {**found, **more}


def report(**more):
    """A round one, as `passel train --report` writes it."""
    found = {
        "format": run_report.FORMAT, "job": "job-1", "test_accuracy": 0.9646, "test_loss": 0.11445,
        "global_step": 20000, "local_steps": 20000, "seconds": 12.0, "startup_seconds": 1.0,
        "training_seconds": 10.0, "steps_per_second": 2000.0, "updates_per_second": 2000.0,
        "mode": "hogwild", "modes": [{"mode": "hogwild", "since": 0}], "device": "cpu",
        "model": "mlp", "optimizer": "adam", "data": "/data/mnist", "ps": 1, "ps_restarts": 0,
        "interrupted": False, "exit_code": 0, "notes": [],
        "workers": [worker(0), worker(1)],
        "run": {"version": "0.1.0", "command": ["passel", "train", "--note=a b"],
                "started": "2026-11-22T14:37:29Z", "host": "node7", "processor": "A processor",
                "cores": 2, "settings": {"batch_size": "50", "seed": "1"},
                "changed": {"batch_size": "50"}},
        "curve": [point(i) for i in range(21)]}
    return {**found, **more}


DEATHS = [{"task": "worker/1", "life": 1, "at_s": 3.25, "cause": "was killed by SIGKILL (9)",
           "restarted": True},
          {"task": "worker/1", "life": 2, "at_s": 7.0, "cause": "exited with 1", "restarted": False},
          {"task": "ps/0", "life": 1, "at_s": 5.0, "cause": "was killed by SIGSEGV (11)",
           "restarted": True}]


class RunPage(InAFolder):
    def render(self, content, drawn=False):
        """The text of the page, and the page as a tree: XML is stricter than HTML. With empty
        drawings unless `drawn`: they take their time."""
        empty = f'<svg xmlns="{SVG.strip("{}")}"/>'
        svg = plots._svg if drawn else lambda figure, words: empty
        with unittest.mock.patch.object(plots, "_svg", svg):
            text = run_page.render(run_report.read_report(self.write("r.json", content)))
        return text, ElementTree.fromstring(text)

    def program(self, *arguments, **environment):
        """(exit code, standard output, standard error) of the program."""
        done = subprocess.run([sys.executable, "-B", RUN_PAGE, *arguments], timeout=60, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, check=False,
                              env={**os.environ, **environment})
        return done.returncode, done.stdout, done.stderr

    def run_here(self, *arguments):
        """The same, in this process: matplotlib takes half a second to start."""
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            try:
                code = run_page.run(arguments)
            except SystemExit as end:
                code = end.code
        return code, errors.getvalue()

    def numbers(self, tree, section):
        """The rows of the table in the section of that title, as lists of texts."""
        found, = [e for e in tree.iter("section") if e.findtext("h2") == section]
        return [[cell.text or "" for cell in row] for row in found.iter("tr")]


@drawing
class Shown(RunPage):
    def test_the_page_is_well_formed_needs_nothing_else_and_every_picture_is_told_in_words(self):
        text, tree = self.render(report(deaths=DEATHS), drawn=True)
        self.assertEqual(text.replace("http://www.w3.org/", "").count("://"), 0)
        self.assertNotRegex(text, r"<(script|link|img|iframe)\b|@import")
        drawn = list(tree.iter(SVG + "svg"))
        self.assertEqual(len(drawn), 6)  # four of the course, the workers, the lives
        words = [e.get("aria-label") for e in drawn]
        self.assertEqual(len(set(words)), 6)
        self.assertIn("Loss of the latest batches: 2.3 at global step 0, 0.1095 at global step 20,000; "
                      "least 0.1095 at 20,000, most 2.3 at 0", words)
        self.assertIn("Of the time of all workers: pull 10 %, compute 60 %, push 20 %, wait 10 %. A "
                      "bar for each worker", words)
        self.assertEqual(self.render(report(deaths=DEATHS), drawn=True)[0], text, "the same bytes again")

    def test_the_head_says_what_came_out_and_what_ran(self):
        text, tree = self.render(report())
        self.assertIn("Test accuracy 0.9646, test loss 0.1144. 20,000 global steps in 10 s: 2,000 "
                      "steps/s, 2,000 updates/s.", text)
        self.assertIn("<pre>passel train &#x27;--note=a b&#x27;</pre>", text)
        rows = self.numbers(tree, "What ran")
        for row in (["host", "node7"], ["passel", "0.1.0"], ["tasks", "1 ps, 2 workers"],
                    ["batch_size", "50"]):
            self.assertIn(row, rows)
        self.assertNotIn(["seed", "1"], rows)
        self.assertNotIn("warning\">", text)
        self.assertNotIn("checkpoints", [row[0] for row in rows])

    def test_checkpoints_are_a_fact(self):
        said = {"folder": "train", "saved": 3, "failed": 1, "newest": "model.ckpt-90",
                "best": "model.ckpt-60", "held_seconds": 0.5, "resumed_from": "train/model.ckpt-7"}
        rows = self.numbers(self.render(report(checkpoints=said))[1], "What ran")
        self.assertIn(["checkpoints", "3 saved in train, 1 failed, the newest model.ckpt-90, the best "
                       "model.ckpt-60, workers waited 0.5 s for them"], rows)
        self.assertIn(["goes on from", "train/model.ckpt-7"], rows)
        for bad in ({"saved": "3"}, [1], "none"):
            with self.assertRaises(run_report.BadFile):
                self.render(report(checkpoints=said | bad if isinstance(bad, dict) else bad))

    def test_what_went_wrong_is_marked(self):
        text, _ = self.render(report(exit_code=1, notes=["worker/1 <died>"]))
        self.assertIn('<p class="warning">This run failed: exit code 1.</p>', text)
        self.assertIn('<p class="warning">worker/1 &lt;died&gt;</p>', text)
        self.assertIn("This run was interrupted: exit code 130.",
                      self.render(report(exit_code=130, interrupted=True))[0])

    def test_a_table_has_the_figures_of_every_worker_and_death(self):
        _, tree = self.render(report(deaths=DEATHS))
        self.assertEqual(self.numbers(tree, "Where the time of the workers went")[1],
                         ["0", "1,000", "1.000", "6.000", "2.000", "1.000", "exited with 0"])
        self.assertEqual(self.numbers(tree, "Deaths and restarts")[1:], [
            ["3.25 s", "worker/1", "1", "was killed by SIGKILL (9)", "started again"],
            ["5 s", "ps/0", "1", "was killed by SIGSEGV (11)", "started again"],
            ["7 s", "worker/1", "2", "exited with 1", "not started again"]])
        _, tree = self.render(report(workers=[worker(0), worker(1, device="gpu")]))
        self.assertEqual([row[6] for row in self.numbers(tree, "Where the time of the workers went")],
                         ["device", "cpu", "gpu"])

    def test_deaths_are_on_the_time_line_and_across_the_curves(self):
        with unittest.mock.patch.object(plots, "lives", return_value="<svg/>") as lives, \
                unittest.mock.patch.object(plots, "course", return_value="<svg/>") as course:
            self.render(report(deaths=DEATHS))
        _, _, tasks, spans, marks, _ = lives.call_args.args
        self.assertEqual(tasks, ["ps/0", "worker/0", "worker/1"])
        self.assertEqual(sorted(spans), [(0, 0, 5), (0, 5, 11), (1, 0, 11), (2, 0, 3.25),
                                         (2, 3.25, 7)])
        self.assertEqual(sorted(marks), [(0, 5), (2, 3.25), (2, 7)])
        # The first step was after one second, and a second is 2000 steps.
        events = [call.kwargs["events"] for call in course.call_args_list]
        self.assertEqual(sorted(events[0]), [(4500, "death"), (8000, "death"), (12000, "death")])
        self.assertEqual(sorted(events[2]), [(3.25, "death"), (5, "death"), (7, "death")])

    def test_changes_of_the_mode_are_across_the_curves(self):
        modes = [{"mode": "barrier", "since": 0}, {"mode": "hogwild", "since": 3000},
                 {"mode": "locked", "since": 99000}]  # after the last point that there is
        with unittest.mock.patch.object(plots, "course", return_value="<svg/>") as course:
            text, _ = self.render(report(modes=modes))
        events = [call.kwargs["events"] for call in course.call_args_list]
        self.assertEqual(events[0], [(3000, "mode"), (99000, "mode")])
        self.assertEqual(events[2], [(2.5, "mode"), (11, "mode")])
        self.assertIn("<td>barrier, from global step 3,000 on hogwild, from global step 99,000 on locked"
                      "</td>", text)

    def test_a_life_begins_where_the_report_says(self):
        starts = [{"task": task, "life": life, "at_s": at} for task, life, at in (
            ("worker/0", 1, 0.2), ("worker/1", 1, 0.3), ("worker/1", 2, 4.0), ("evaluator/0", 1, 0.1))]
        with unittest.mock.patch.object(plots, "lives", return_value="<svg/>") as lives:
            self.render(report(starts=starts, deaths=DEATHS[:1]))
        _, _, tasks, spans, _, _ = lives.call_args.args
        self.assertEqual(tasks, ["ps/0", "worker/0", "worker/1", "evaluator/0"])
        self.assertEqual(sorted(spans), [(1, 0.2, 11), (2, 0.3, 3.25), (2, 4, 11), (3, 0.1, 11)])

    def test_what_a_task_printed_last_is_shown(self):
        lines = [dict(death, last_lines=[f"I {i}", "E <no>"]) for i, death in enumerate(DEATHS)]
        text, tree = self.render(report(deaths=[*lines[:2], DEATHS[2]]))
        self.assertIn("<pre>I 0\nE &lt;no&gt;</pre>", text)
        self.assertEqual([(e.get("open"), e.findtext("summary")) for e in tree.iter("details")],
                         [("open", "last lines of worker/1, which died at 3.25 s"),
                          (None, "last lines of worker/1, which died at 7 s")])

    def test_a_report_without_deaths_has_no_time_line_of_them(self):
        for content in (report(), report(deaths=[])):
            self.assertNotIn("Deaths and restarts", self.render(content)[0])


@drawing
class Extremes(RunPage):
    def test_a_job_without_a_step(self):
        idle = {"pull": 0.0, "compute": 0.0, "push": 0.0, "wait": 0.0}
        text, tree = self.render(report(
            curve=[], local_steps=0, global_step=0, test_accuracy=None, test_loss=None, modes=[],
            training_seconds=0, startup_seconds=0, workers=[worker(0, seconds=idle)]))
        self.assertEqual(list(tree.iter(SVG + "svg")), [])
        for sentence in ("Not evaluated. No step was made.", "There is no course to draw",
                         "No worker has computed anything."):
            self.assertIn(sentence, text)

    def test_one_point_and_one_at_time_zero(self):
        for i in (0, 3):
            _, tree = self.render(report(curve=[point(i, steps_per_second=None)], startup_seconds=0),
                                  drawn=i == 0)
            self.assertEqual(len(list(tree.iter(SVG + "svg"))), 4)

    def test_losses_that_are_not_finite_are_gaps_or_a_sentence(self):
        text, _ = self.render(report(curve=[point(i, loss=None) for i in range(3)]))
        self.assertIn("The loss was never a finite number.", text)
        text, _ = self.render(report(curve=[point(0), point(1, loss=None), point(2)]), drawn=True)
        self.assertIn("Loss of the latest batches; gaps: not a finite number", text)
        self.assertNotIn("never", text)

    def test_a_loss_that_explodes_is_on_a_logarithmic_axis(self):
        with unittest.mock.patch.object(plots, "course", return_value="<svg/>") as course:
            self.render(report(curve=[point(0), point(1, loss=1e30)]))
            self.render(report())
        self.assertEqual([call.kwargs["log"] for call in course.call_args_list
                          if call.args[2] == "loss"], [True, False])
        self.render(report(curve=[point(0), point(1, loss=1e200)]), drawn=True)

    def test_steps_that_went_back_are_drawn(self):
        steps = [1000, 5000, 5000, 2000, 2000, 6000]
        self.render(report(curve=[point(i, global_step=step) for i, step in enumerate(steps)],
                           modes=[{"mode": "hogwild", "since": at} for at in range(0, 7000, 500)],
                           deaths=DEATHS))

    def test_many_workers_steps_and_deaths_make_no_large_page(self):
        workers = [worker(i) for i in range(100)]
        deaths = [{"task": f"worker/{i % 100}", "life": i // 100 + 1, "at_s": 3600 + i / 10,
                   "cause": "exited with 1", "restarted": True} for i in range(2000)]
        curve = [point(i, seconds=40.0 * i, global_step=4000 * i, dropped=i, workers=100 - i % 3)
                 for i in range(257)]
        text, tree = self.render(report(workers=workers, deaths=deaths, curve=curve, seconds=10280),
                                 drawn=True)
        self.assertEqual(len(list(tree.iter(SVG + "svg"))), 8)
        drawn = "".join(re.findall(r"<svg.*?</svg>", text, re.DOTALL))
        self.assertLess(len(drawn), 2 << 20)
        self.assertIn("Lives of 24 of the 101 tasks: those that died most often", text)
        self.assertIn("time since the start of the program, h", drawn)
        self.assertIn(">1 M<", drawn)

    def test_what_others_wrote_stays_text(self):
        nasty = '<b>"$\\frac$\x1b\ud800'
        text, tree = self.render(report(
            job=nasty, notes=[nasty], data=nasty,
            deaths=[{"task": nasty, "at_s": 1, "cause": nasty, "restarted": True}]), drawn=True)
        self.assertNotIn("<b>", text)
        self.assertEqual(tree.findtext("body/h1"), 'Run of <b>"$\\frac$??')


@drawing
class Refused(RunPage):
    def refuse(self, pattern, content):
        page = os.path.join(self.folder, "page.html")
        code, errors = self.run_here(self.write("bad.json", content), page)
        self.assertEqual(code, 2, errors)
        self.assertRegex(errors, pattern)
        self.assertEqual(len(errors.strip().splitlines()), 1, errors)
        self.assertFalse(os.path.exists(page))

    def test_what_is_no_report_of_this_version_is_refused(self):
        self.refuse(f"bad.json has format 99, this program reads {run_report.FORMAT}: write the file "
                    "again with passel train --report", report(format=99))
        self.refuse("bad.json is not JSON", "{")
        self.refuse("bad.json has no list 'curve': name a file written by passel train", {"images": 3})

    def check(self, pattern, content):
        with self.assertRaisesRegex(run_report.BadFile, pattern):
            run_report.read_report(self.write("bad.json", content))

    def test_a_damaged_field_is_named(self):
        self.check(r"curve\[1\].loss is 'x', not a number", report(curve=[point(0), point(1, loss="x")]))
        self.check(r"curve\[0\].seconds is None, not a number", report(curve=[point(0, seconds=None)]))
        self.check(r"curve\[0\].loss is inf, not a number",
                   json.dumps(report(curve=[point(0, loss=12345.5)])).replace("12345.5", "1e999"))
        self.check(r"curve\[0\] is 7, not an object", report(curve=[7]))
        self.check(r"workers is {}, not a list", report(workers={}))
        self.check(r"workers\[0\].seconds.wait is None", report(workers=[worker(0, seconds={
            "pull": 1, "compute": 1, "push": 1})]))
        self.check(r"deaths\[0\].at_s is True, not a number", report(deaths=[{"at_s": True}]))
        self.check(r"deaths\[0\].last_lines is 'x', not a list",
                   report(deaths=[{"at_s": 1, "last_lines": "x"}]))
        self.check(r"run is \[\], not an object", report(run=[]))
        self.check(r"seconds is '1', not a number", report(seconds="1"))
        self.check("is not JSON", report(seconds=math.nan))

    def test_every_field_but_the_needed_ones_may_be_missing(self):
        self.render({"format": run_report.FORMAT, "curve": []})
        self.render({"format": run_report.FORMAT, "workers": [{"index": 0, "seconds": dict.fromkeys(
            ("pull", "compute", "push", "wait"), 1)}], "curve": [{"seconds": 1, "global_step": 2}],
            "deaths": [{"at_s": 1}]})


class Command(RunPage):
    @drawing
    def test_the_page_is_replaced_as_a_whole(self):
        source, page = self.write("r.json", report()), self.write("page.html", "old")
        self.assertEqual(self.program(source, page), (0, "", ""))
        ElementTree.parse(page)
        self.assertEqual(sorted(os.listdir(self.folder)), ["page.html", "r.json"])

    @drawing
    def test_a_page_that_cannot_be_written_is_said(self):
        source = self.write("r.json", report())
        os.mkdir(os.path.join(self.folder, "d"))
        for name, reason in (("no/page.html", "No such file"), ("d", "Is a directory")):
            code, errors = self.run_here(source, os.path.join(self.folder, name))
            self.assertEqual(code, 1)
            self.assertRegex(errors, f"^run_page: .* cannot be written: {reason}.*; make room or name "
                                     "another file\n$")
            self.assertEqual(sorted(os.listdir(self.folder)), ["d", "r.json"])

    def test_without_matplotlib_the_package_is_named(self):
        self.write("matplotlib.py", "raise ImportError('none here')")
        for arguments, fix in ((["--check"], ""), (["r.json", "page.html"],
                                                   ": install the Debian package python3-matplotlib")):
            code, out, errors = self.program(*arguments, PYTHONPATH=self.folder)
            self.assertEqual((code, out), (run_page.NO_MATPLOTLIB, ""))
            self.assertRegex(errors, rf"has no matplotlib that can draw \(none here\){fix}\n$")

    def test_wrong_usage_is_said(self):
        for arguments in ([], ["r.json"], ["--check", "r.json"], ["--check", "r.json", "p.html"]):
            code, errors = self.run_here(*arguments)
            self.assertEqual(code, 2)
            self.assertIn("takes REPORT.json and FILE, or --check alone", errors)


if __name__ == "__main__":
    unittest.main()

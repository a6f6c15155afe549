#!/usr/bin/env python3
"""Tests of bench/page: what is refused, what is missing, what is said and drawn, and what is filled
in. Without matplotlib the tests of drawings are skipped."""

import contextlib
import json
import math
import os
import unittest
import unittest.mock
import xml.etree.ElementTree as ElementTree

from page_sample import BARE, ROOT, SVG, InAFolder, cell, whole, whole_peers  # sets the path

import plots
import report
import results as files

drawing = unittest.skipUnless(plots.AVAILABLE, "needs matplotlib (tools/setup --with bench)")


class Refusals(InAFolder):
    def refuse(self, pattern, content, peers=None):
        arguments = ["--results", self.write("bad.json", content)]
        if peers is not None:
            arguments += ["--peers", self.write("bad-peers.json", peers)]
        code, out, errors = self.report(*arguments, "--out", os.path.join(self.folder, "r.html"))
        self.assertEqual((code, out), (2, ""), errors)
        self.assertRegex(errors, pattern)
        self.assertEqual(len(errors.strip().splitlines()), 1, errors)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "r.html")))

    def test_what_is_no_result_of_this_version_is_refused(self):
        self.refuse(f"has format 99, this program reads {files.RESULTS_FORMAT}: write the file again",
                    {"format": 99, "rows": []})
        self.refuse("bad-peers.json has format 0, this program reads", BARE,
                    {"format": 0, "latency": []})
        self.refuse("is not JSON: name a file written by tools/bench", "{")
        self.refuse("is not JSON", "[" * 100000)
        self.refuse("has no list 'rows'", "[]")
        self.refuse("has no list 'latency': name a file written by bench/peers/run", BARE, BARE)
        code, _, errors = self.report("--results", os.path.join(self.folder, "none.json"))
        self.assertEqual(code, 2)
        self.assertRegex(errors, r"none.json cannot be read \(No such file")

    def test_a_damaged_field_is_named(self):
        for pattern, value in ((r"cells\[0\] has no 'p50'", None), ("bad.json is not JSON", math.nan)):
            bad = whole()
            bad["cells"][0]["p50"] = value
            self.refuse(pattern, bad)

    def test_a_page_that_cannot_be_written_is_said(self):
        code, _, errors = self.program("--results", self.write("good.json", BARE), "--out",
                                       os.path.join(self.folder, "no", "such.html"))
        self.assertEqual(code, 1)
        self.assertRegex(errors, "such.html.* cannot be written: No such file")


def render(results, peers, drawn=False):
    """The page, with empty drawings unless `drawn`: they take their time."""
    with contextlib.ExitStack() as stack:
        for kind in () if drawn else ("lines", "bars", "shades"):
            stack.enter_context(unittest.mock.patch.object(
                plots, kind, lambda *_, **__: '<svg xmlns="http://www.w3.org/2000/svg"/>'))
        return report.render(results, peers)


class Page(InAFolder):
    def render(self, results, peers=None, drawn=False):
        return render(self.results(results), None if peers is None else self.peers(peers), drawn)

    @drawing
    def test_the_page_has_a_picture_of_every_part_is_well_formed_and_needs_nothing_else(self):
        text = self.render(whole(), whole_peers(), drawn=True)
        root = ElementTree.fromstring(text)  # as XML: stricter than HTML
        self.assertEqual(text.replace("http://www.w3.org/", "").count("://"), 0)
        names = {e.get("id") for e in root.iter("figure")}
        self.assertLessEqual(
            {"latency-push-adam-2-own-4k", "writers-push-adam-79510-4k",
             "percentiles-push-adam-2-79510-own-4k", "speed-up", "round-trip", "line-update",
             "peers-view-79510", "peers-push-79510", "peers-training-2"}, names)
        self.assertEqual(len(list(root.iter(SVG + "svg"))), len(names))

    def test_what_others_wrote_is_escaped(self):
        text = self.render(whole(), whole_peers())
        self.assertIn("A &lt;fast&gt; &amp; &quot;wide&quot; one", text)
        self.assertIn("spread &lt;a lot&gt;", text)
        self.assertIn("&lt;no&gt; socket", text)
        self.assertNotIn("<fast>", text)

    def test_each_part_may_be_missing_alone(self):
        for name in ("cells", "rows", "limits", "scaling", "time_split", "line_transfer", "machine"):
            part = whole()
            if name == "rows":
                part["rows"] = []
            else:
                del part[name]
            self.assertIsNotNone(ElementTree.fromstring(self.render(part, whole_peers())))
        text = self.render(BARE)
        self.assertEqual(text.count("<table>") + text.count("<figure"), 0)
        self.assertIn("the other systems were not measured", text)

    def test_what_could_not_be_measured_gives_the_reason(self):
        one = dict(BARE, cells=[cell("locked", 16, 2, 1.0, not_applicable="no huge pages here")])
        self.assertIn("<td>no huge pages here</td>", self.render(one))
        self.assertIn("<p class=\"warning\">grpc: not installed: run bench/peers/setup --only grpc</p>",
                      self.render(BARE, whole_peers()))
        self.assertIn("The run was interrupted", self.render(dict(BARE, interrupted=True)))

    def test_the_verdicts_of_targets_are_counted(self):
        self.assertIn("3 targets: 1 met, 1 missed, 1 not applicable.", self.render(whole()))

    def test_a_cell_has_all_its_figures_in_the_table(self):
        one = cell("locked", 1000, 2, 10.0, loop="open", rate_per_second=5000)
        _, _, (row,) = report.cells_table(self.results(dict(BARE, cells=[one])).measured)
        self.assertEqual(row, ["push, locked, adam, one core each, open loop at 5 k/s", "1,000", 2,
                               "10 µs", "20 µs", "300 µs", "2 ms", "5 µs", "2.000", "4 %",
                               "100,000", "0.500", "0.00003 %", "12", "1"])


class Shrink(InAFolder):
    def test_what_is_kept_gives_the_same_page(self):
        content = whole()
        content["cells"][0].update(p50=1.23456789, curve=[[0.5, 1.23456789], [0.99999206, 2.0],
                                                         [1.0, 200.000001]])
        code = self.report("--results", self.write("r.json", content), "--peers",
                           self.write("p.json", whole_peers()), "--shrink",
                           os.path.join(self.folder, "kept.json"))
        self.assertEqual(code, (0, "", ""))
        with open(os.path.join(self.folder, "kept.json"), encoding="utf-8") as file:
            text = file.read()
        kept = json.loads(text)
        self.assertEqual(kept["cells"][0]["p50"], 1.2346)
        self.assertEqual(kept["cells"][0]["curve"], [[0.5, 1.2346], [0.99999206, 2], [1, 200]])
        self.assertEqual(kept["warnings"], content["warnings"])
        self.assertGreater(text.count("\n"), len(content["cells"]))
        pages = [render(files.read_results(os.path.join(self.folder, name)),
                        files.read_peers(os.path.join(self.folder, peers)))
                 for name, peers in (("r.json", "p.json"), ("kept.json", "kept.peers.json"))]
        self.assertEqual(len(pages[0].splitlines()), len(pages[1].splitlines()))


class Drawings(InAFolder):
    def test_numbers_have_three_digits_and_a_unit_that_suits_them(self):
        for us, text in ((0.00984, "9.84 ns"), (0.85, "850 ns"), (0.9996, "1 µs"), (9.484, "9.48 µs"),
                         (351.2, "351 µs"), (999.7, "1 ms"), (17800, "17.8 ms"), (2.5e6, "2.5 s")):
            self.assertEqual(plots.duration(us), text)
        for value, text in ((16, "16"), (1000, "1 k"), (79510, "79.5 k"), (999900, "1 M"),
                            (16777216, "16.8 M"), (2e9, "2 G")):
            self.assertEqual(plots.count(value), text)
        for value, text in ((0, "0"), (0.0123456, "0.0123"), (1060, "1060"), (100.0, "100"),
                            (2.50, "2.5")):
            self.assertEqual(plots.short(value), text)

    def test_the_axis_of_percentiles_is_how_rare_a_sample_is(self):
        one = self.results(dict(BARE, cells=[cell("locked", 16, 2, 1.0)])).cells[0]
        self.assertEqual(report.percentile_points(one),
                         [(2, 1), (10, 1.1), (100, 2), (1000, 30), (10000, 200)])

    def test_a_line_of_a_mode_and_one_of_the_reference(self):
        cells = self.results(dict(BARE, cells=[cell("locked", n, 2, float(n)) for n in (10, 20)]
                                  + [cell("hogwild", 10, 2, 8.0)])).cells
        drawn = report.mode_lines(cells, "elements", "p50", "reference")
        self.assertEqual([(line.label, line.points) for line in drawn],
                         [("hogwild", [(10, 8.0)]), ("locked", [(10, 10.0), (20, 20.0)]),
                          ("reference", [(10, 4.5), (20, 10.0)])])

    def test_what_ran_beside_a_mode_does_not_change_its_place(self):
        # The private runs of locked were disturbed as locked itself was: its ratio tells.
        rows = [{"sharing": sharing, "workers": workers, "steps_per_second": 0.9 * speed,
                 "private_steps_per_second": speed, "ratio": 0.9, "spread": 0.0}
                for sharing, workers, speed in (
                    ("hogwild", 2, 5000), ("locked", 2, 1000), ("barrier", 2, 5000),
                    ("hogwild", 4, 9000), ("locked", 4, 1000), ("barrier", 4, 9000))]
        found = self.results(dict(BARE, scaling=rows)).scaling
        self.assertEqual(sorted(line.label for line in report.speed_up_lines(found)),
                         ["barrier 3.24×", "hogwild 3.24×", "locked 3.24×", "private 3.6×"])

    @drawing
    def test_many_cores_are_shaded_without_figures(self):
        n = 64
        drawn = plots.shades("", list(range(n)),
                             [[100 + i + j for j in range(n)] for i in range(n)], "ns")
        self.assertLess(drawn.count("<text"), n)


class Docs(InAFolder):
    PAGE = ("# Title\n\nBefore.\n<!-- begin targets -->\nold\n<!-- end targets -->\nBetween.\n"
            "<!-- begin sharing -->\n<!-- end sharing -->\nAfter.\n")
    PICTURE = "<!-- begin speed-up -->\n<!-- end speed-up -->\n"

    def fill(self, text=PAGE):
        os.makedirs(os.path.join(self.folder, "docs", "plots"), exist_ok=True)
        path = self.write("docs/performance.md", text)
        self.write("docs/plots/gone.svg", "<svg/>")
        code = self.report("--results", self.write("r.json", whole()), "--docs",
                           os.path.join(self.folder, "docs"))
        with open(path, encoding="utf-8") as file:
            return code, file.read()

    def test_what_stands_between_marks_is_replaced_and_nothing_else(self):
        code, text = self.fill()
        self.assertEqual(code, (0, "", ""))
        self.assertNotIn("old", text)
        for kept in ("# Title\n\nBefore.\n<!-- begin targets -->\n", "\nBetween.\n", "\nAfter.\n"):
            self.assertIn(kept, text)
        self.assertIn("| push & wait | 9.480 | 9.050 |  | us | 1.047 | ≤ 1.1 × | 0.1 % | met |", text)
        self.assertIn("| training | 7444 |  | 9639 | steps/s | 0.772 | ≥ 0.85 × | 31 % ! | missed |",
                      text)
        self.assertIn("| 2 | hogwild | 4,850 | 5,000 | 0.970 | 2 % |", text)
        self.assertEqual(os.listdir(os.path.join(self.folder, "docs", "plots")), [])
        again, second = self.fill(text)
        self.assertEqual((again, second), (code, text))

    @drawing
    def test_pictures_that_are_shown_are_kept_and_no_others(self):
        code, text = self.fill(self.PICTURE)
        self.assertEqual(code, (0, "", ""))
        self.assertIn('<img src="plots/speed-up.svg" width="70%" alt="Speed-up of training">', text)
        plots_folder = os.path.join(self.folder, "docs", "plots")
        self.assertEqual(os.listdir(plots_folder), ["speed-up.svg"])
        ElementTree.parse(os.path.join(plots_folder, "speed-up.svg"))

    def test_a_wrong_mark_is_refused_and_nothing_is_changed(self):
        for pattern, text in (("a mark for 'nothing', but there are only cells,",
                               "<!-- begin nothing -->\n<!-- end nothing -->\n"),
                              ("needs one '<!-- begin cells -->' and after it one",
                               "<!-- begin cells -->\n")):
            (code, _, errors), after = self.fill(text)
            self.assertEqual((code, after), (2, text))
            self.assertRegex(errors, pattern)
            self.assertEqual(os.listdir(os.path.join(self.folder, "docs", "plots")), ["gone.svg"])

    @drawing
    def test_the_marks_of_the_page_in_the_repository_are_known(self):
        with open(os.path.join(ROOT, "docs", "performance.md"), encoding="utf-8") as file:
            (code, _, errors), text = self.fill(file.read())
        self.assertEqual((code, errors), (0, ""))
        self.assertIn("| push & wait |", text)
        kept = os.listdir(os.path.join(ROOT, "docs", "plots"))
        self.assertEqual(sorted(kept), sorted(
            os.listdir(os.path.join(self.folder, "docs", "plots"))))
        self.assertLessEqual(len(kept), 4)

    def test_every_block_can_be_made_of_nothing(self):
        for name, text in report.blocks_of(self.results(BARE), None).items():
            if name != "machine":
                self.assertRegex(text, "^Not here: ", name)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""Tests of bench/page: what is refused, what is missing, what is said, and what is filled in."""

import copy
import json
import math
import os
import unittest
import xml.etree.ElementTree as ElementTree

from page_sample import BARE, ROOT, SVG, InAFolder, cell, whole, whole_peers  # sets the path

import advice
import docs
import lessons
import page
import results as files


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

    def test_another_version_is_refused(self):
        self.refuse(f"has format 99, this program reads {files.RESULTS_FORMAT}: write the file again",
                    {"format": 99, "rows": []})
        self.refuse("has no format number", {"rows": []})
        self.refuse("bad-peers.json has format 0, this program reads", BARE,
                    {"format": 0, "latency": []})

    def test_what_is_no_result_is_refused(self):
        self.refuse("is not JSON: name a file written by tools/bench", "{")
        self.refuse("is not JSON", "[" * 100000)
        self.refuse("has no list 'rows'", "[]")
        self.refuse("has no list 'latency': name a file written by bench/peers/run", BARE, BARE)
        code, _, errors = self.report("--results", os.path.join(self.folder, "none.json"))
        self.assertEqual(code, 2)
        self.assertRegex(errors, r"none.json cannot be read \(No such file")

    def test_a_damaged_field_is_named(self):
        for pattern, name, value in (
                (r"cells\[0\] has no 'p99'", "p99", None), ("'p50' of .* is 'x'", "p50", "x"),
                ("'p50' of .* is nan", "p50", math.nan), ("a p50, a size or writers", "p50", 0),
                (r"the curve of cells\[0\] has the point \[2, 3\]", "curve", [[2, 3]]),
                ("'elements' of .* is True", "elements", True)):
            bad = copy.deepcopy(whole())
            bad["cells"][0][name] = value
            self.refuse(pattern, bad)
        bad = whole()
        bad["line_transfer"]["round_trip_ns"] = [[1, 2]]
        self.refuse("round_trip_ns of line_transfer is not 4 by 4", bad)

    def test_wrong_usage_is_one_sentence(self):
        good = self.write("good.json", BARE)
        for pattern, arguments in (("the following arguments are required: --results", []),
                                   ("unrecognized arguments: --quick",
                                    ["--results", good, "--quick"]),
                                   ("is a folder", ["--results", good, "--out", self.folder]),
                                   ("--docs and --out are two things", ["--results", good, "--docs",
                                                                        "--out", "x"]),
                                   ("--out and --shrink are", ["--results", good, "--shrink", "y",
                                                               "--out", "x"])):
            code, out, errors = self.report(*arguments)
            self.assertEqual((code, out), (2, ""), errors)
            self.assertRegex(errors, pattern)
            self.assertEqual(len(errors.strip().splitlines()), 1, errors)

    def test_a_page_that_cannot_be_written_is_said(self):
        code, _, errors = self.report("--results", self.write("good.json", BARE), "--out",
                                      os.path.join(self.folder, "no", "such.html"))
        self.assertEqual(code, 1)
        self.assertRegex(errors, "such.html.* cannot be written: No such file")


class Page(InAFolder):
    def render(self, results, peers=None):
        return page.render(self.results(results),
                           None if peers is None else self.peers(peers), "no peers here")

    def test_the_page_is_well_formed_and_needs_nothing_else(self):
        text = self.render(whole(), whole_peers())
        root = ElementTree.fromstring(text)  # as XML: stricter than HTML
        ids = [e.get("id") for e in root.iter() if e.get("id")]
        self.assertEqual(len(ids), len(set(ids)))
        links = [e.get("href") for e in root.iter("a")]
        self.assertTrue(links and all(link[1:] in ids for link in links))
        self.assertEqual(list(root.iter("script")) + list(root.iter("link")), [])
        self.assertEqual(text.replace("http://www.w3.org/2000/svg", "").count("://"), 0)
        for width in ("wide", "phone"):
            self.assertIn(f"svg.{width}{{display:none}}", text)
            drawn = [e for e in root.iter(SVG + "svg") if e.get("class") == width]
            self.assertGreater(len(drawn), 20)

    def test_what_others_wrote_is_escaped(self):
        text = self.render(whole(), whole_peers())
        self.assertIn("A &lt;fast&gt; &amp; &quot;wide&quot; one", text)
        self.assertIn("spread &lt;a lot&gt;", text)
        self.assertIn("&lt;no&gt; socket", text)
        self.assertNotIn("<fast>", text)

    def test_the_same_files_give_the_same_bytes(self):
        results, out = self.write("r.json", whole()), os.path.join(self.folder, "r.html")
        peers = self.write("p.json", whole_peers())
        texts = []
        for _ in range(2):
            self.assertEqual(self.report("--results", results, "--peers", peers, "--out", out),
                             (0, "", ""))
            with open(out, encoding="utf-8") as file:
                texts.append(file.read())
        self.assertEqual(texts[0], texts[1])
        self.assertEqual(sorted(os.listdir(self.folder)), ["p.json", "r.html", "r.json"])

    def test_a_missing_part_says_why_instead_of_an_empty_chart(self):
        text = self.render(BARE)
        root = ElementTree.fromstring(text)
        self.assertEqual(list(root.iter(SVG + "svg")), [])
        missing = [e for e in root.iter("p") if e.get("class") == "missing"]
        self.assertEqual(len(missing), 11)  # targets, eight sections, limits, cells
        self.assertIn("Not here: no peers here.", text)
        self.assertIn("Not here: no training was measured (--filter BM_Train).", text)

    def test_each_part_may_be_missing_alone(self):
        for name in ("cells", "rows", "limits", "scaling", "time_split", "line_transfer", "machine"):
            part = whole()
            if name == "rows":
                part["rows"] = []
            else:
                del part[name]
            text = self.render(part, whole_peers())
            self.assertIsNotNone(ElementTree.fromstring(text))
            if name != "machine":
                self.assertEqual(text.count("Not here: "), 5 if name == "cells" else 1, name)

    def test_cells_that_could_not_be_measured_give_the_reason(self):
        one = dict(BARE, cells=[cell("locked", 16, 2, 1.0,
                                     not_applicable="no huge pages here")])
        text = self.render(one)
        self.assertIn("Not here: no cell could be measured: no huge pages here.", text)
        self.assertIn("1 cell without a figure", text)

    def test_a_single_cell_is_enough_for_a_page(self):
        text = self.render(dict(BARE, cells=[cell("locked", 16, 2, 0.4)]))
        self.assertIn("Not here: no mode was measured at two sizes", text)
        self.assertIn("figure-percentiles-push-adam-2-16", text)

    def test_an_interrupted_run_says_so(self):
        self.assertIn("The run was interrupted", self.render(dict(BARE, interrupted=True)))

    def test_peers_that_are_missing_are_named(self):
        text = self.render(BARE, whole_peers())
        self.assertIn("Missing: grpc: not installed: run bench/peers/setup --only grpc.", text)
        self.assertIn("Failed: Redis, TCP: ended with 1", text)
        figure = text[text.index('id="figure-peers-push-79510"'):]
        figure = figure[:figure.index("</svg>")]
        self.assertIn(">gRPC, unary<", figure)
        self.assertIn(">not measured: see below<", figure)
        self.assertIn(">10.5 µs (p99 20.9 µs) !<", figure)  # the median of three, and their spread is large

    def test_the_verdicts_of_targets_are_counted(self):
        self.assertIn("3 targets: 1 met, 1 missed, 1 not applicable.", self.render(whole()))


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
        pages = [page.render(files.Results(os.path.join(self.folder, name)),
                             files.Peers(os.path.join(self.folder, peers)), "")
                 for name, peers in (("r.json", "p.json"), ("kept.json", "kept.peers.json"))]
        self.assertEqual(len(pages[0].splitlines()), len(pages[1].splitlines()))


class Advice(InAFolder):
    def sentence(self, *rows):
        return advice.sentences(self.results(dict(BARE, scaling=[
            {"sharing": sharing, "workers": 4, "steps_per_second": 4000 * ratio,
             "private_steps_per_second": 4000, "ratio": ratio, "spread": spread}
            for sharing, ratio, spread in rows])))

    def test_the_fastest_mode_is_named_with_its_share(self):
        text, = self.sentence(("locked", 0.93, 0.01), ("barrier", 0.80, 0.01), ("naive", 0.99, 0.01))
        self.assertIn("With 4 workers `locked` trains fastest: 0.93 of what", text)
        self.assertIn("`barrier` follows with 0.80", text)
        self.assertNotIn("naive", text)  # a foil is no mode to choose

    def test_a_difference_within_the_noise_is_none(self):
        for spread in (0.0, 0.2):
            gap = 0.02 if spread == 0 else 0.08
            text, = self.sentence(("locked", 0.93, spread), ("hogwild", 0.93 - gap, 0.0))
            self.assertIn(f"`hogwild` ({0.93 - gap:.2f}) cannot be told apart", text)

    def test_nothing_is_advised_without_training(self):
        self.assertEqual(advice.sentences(self.results(BARE)), [])


class Lessons(InAFolder):
    def said(self, content):
        return lessons.sentences(self.results(content))

    def test_they_are_made_of_the_figures(self):
        said = "\n".join(self.said(whole()))
        for part in (
                "a push of 16 parameters by 1 writer takes 208 ns in `hogwild`",
                "against the bare loops): `hogwild` 2.00× with 1, 2.00× with 2 and 2.00× with 4; `locked`",
                "Updates a second of 4 writers that push all the time, as a share of as many bare "
                "loops: `hogwild` 0.5 and `locked` 0.5; what one would write instead: a sweep without "
                "claims 0.5, relaxed atomics element by element 0.5 and one lock around the variable",
                "lost by 4 writers that push all the time: `hogwild` 0.00000038 %, `locked`",
                "At 16 M parameters (adam), far beyond the caches of a core, `hogwild` takes, against "
                "the bare loops, 2.00× with 1 writer, 2.00× with 2 writers and 2.00× with 4 writers.",
                "Placement of 2 writers in `hogwild`, adam, 79.5 k parameters: one core each 25 k updates "
                "a second (p99 79.9 µs), placed by the kernel 16.7 k updates a second (p99 120 µs) and",
                "Huge pages were not to be had: no huge pages here.",
                "p99 79.9 µs, but 88 µs from the moment at which each was due, at 1 k a second",
                "from core to core and back in 125 to 1400 ns: some cores are nearer than others",
                "Of a training step of 4 workers updating and waiting take: `hogwild` 15 % and"):
            self.assertIn(part, said)

    def test_nothing_is_said_of_what_was_not_measured(self):
        self.assertEqual(self.said(BARE), [])
        for name in ("cells", "scaling", "time_split", "line_transfer"):
            content = whole()
            del content[name]
            self.assertTrue(self.said(content))

    def test_cores_are_near_unless_both_directions_say_otherwise(self):
        def said(matrix, other_cores=0.0):
            return self.said(dict(BARE, load={"other_cores": other_cores, "steal": 0.0},
                                  line_transfer={"cores": [0, 1, 2], "round_trip_ns": matrix}))
        even = [[0, 100, 4000], [100, 0, 110], [105, 110, 0]]
        self.assertEqual(said(even), ["One line goes from core to core and back in 100 to 110 ns: "
                                      "all cores are about equally near."])
        apart = [[0, 100, 300], [100, 0, 310], [305, 310, 0]]
        self.assertRegex(said(apart)[0], "100 to 310 ns: some cores are nearer than others")
        self.assertRegex(said(apart, other_cores=2.0)[0], "other programs ran meanwhile, so that")

    def test_a_machine_without_a_convoy_is_shown_by_its_figures(self):
        def scaling(naive):
            return [{"sharing": sharing, "workers": 2, "steps_per_second": 1000 * ratio, "ratio": ratio,
                     "private_steps_per_second": 1000}
                    for sharing, ratio in (("hogwild", 0.9), ("locked", 0.88), ("naive", naive))]
        split = [{"sharing": sharing, "workers": 2, "gather_us": 1, "forward_us": 1, "backward_us": 1,
                  "update_us": us, "wait_us": 0, "other_us": 0}
                 for sharing, us in (("naive", 44.0), ("private", 40.0))]
        self.assertEqual(
            self.said(dict(BARE, scaling=scaling(0.88), time_split=split))[-1],
            "Training speed against the naive sweep: `hogwild` 1.02×, `locked` 1.00× with 2 workers; "
            "it forms no convoy that claims could break here (update of a step: naive 44 µs and private "
            "40 µs).")
        self.assertEqual(
            self.said(dict(BARE, scaling=scaling(0.6), time_split=split))[-1],
            "Training speed against the naive sweep: `hogwild` 1.50×, `locked` 1.47× with 2 workers.")

    def test_they_are_on_the_page_and_in_the_documents(self):
        results = self.results(whole())
        self.assertIn("<h2>What this run says</h2>", page.render(results, None, ""))
        self.assertIn("- Huge pages were not to be had", docs.blocks_of(results, None)[0]["advice"])


class Docs(InAFolder):
    PAGE = ("# Title\n\nBefore.\n<!-- begin targets -->\nold\n<!-- end targets -->\nBetween.\n"
            "<!-- begin scaling -->\n<!-- end scaling -->\nAfter.\n")

    def fill(self, text=PAGE):
        os.makedirs(os.path.join(self.folder, "docs", "plots"), exist_ok=True)
        path = self.write("docs/performance.md", text)
        self.write("docs/plots/gone.svg", "<svg/>")
        code = self.report("--results", self.write("r.json", whole()), "--docs", "--docs-dir",
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
        self.assertIn('<img src="plots/speed-up.svg" width="49%" alt="Speed-up of training">', text)
        plots = sorted(os.listdir(os.path.join(self.folder, "docs", "plots")))
        self.assertEqual(plots, ["share-of-private.svg", "speed-up.svg"])
        for name in plots:
            ElementTree.parse(os.path.join(self.folder, "docs", "plots", name))
        again, second = self.fill(text)
        self.assertEqual((again, second), (code, text))

    def test_a_wrong_mark_is_refused_and_nothing_is_changed(self):
        for pattern, text in (("a mark for 'nothing', but there are only advice,",
                               "<!-- begin nothing -->\n<!-- end nothing -->\n"),
                              ("needs one '<!-- begin cells -->' and after it one",
                               "<!-- begin cells -->\n"),
                              ("has no mark", "text\n")):
            (code, _, errors), after = self.fill(text)
            self.assertEqual((code, after), (2, text))
            self.assertRegex(errors, pattern)
            self.assertEqual(os.listdir(os.path.join(self.folder, "docs", "plots")), ["gone.svg"])

    def test_the_marks_of_the_page_in_the_repository_are_known(self):
        with open(os.path.join(ROOT, "docs", "performance.md"), encoding="utf-8") as file:
            (code, _, errors), text = self.fill(file.read())
        self.assertEqual((code, errors), (0, ""))
        self.assertIn("| push & wait |", text)
        for name in os.listdir(os.path.join(self.folder, "docs", "plots")):
            self.assertIn(f"plots/{name}", text)

    def test_every_block_can_be_made_of_nothing(self):
        blocks, drawings = docs.blocks_of(self.results(BARE), None)
        self.assertEqual(drawings, {})
        for name, text in blocks.items():
            if name != "machine":
                self.assertRegex(text, "^Not here: ", name)


if __name__ == "__main__":
    unittest.main()

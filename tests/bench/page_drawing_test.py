#!/usr/bin/env python3
"""Tests of what bench/page draws: numbers, scales, and that no labels overlap or leave their
drawing."""

import unittest
import xml.etree.ElementTree as ElementTree

from page_sample import BARE, SVG, InAFolder, cell, whole, whole_peers  # sets the path

import cell_figures
import figures
import page
import scale
import style
import svg
import training_figures
import words


class Words(unittest.TestCase):
    def test_numbers_have_three_digits_and_a_unit_that_suits_them(self):
        for us, text in ((0.00984, "9.84 ns"), (0.85, "850 ns"), (0.9996, "1 µs"), (9.484, "9.48 µs"),
                         (351.2, "351 µs"), (999.7, "1 ms"), (17800, "17.8 ms"), (2.5e6, "2.5 s")):
            self.assertEqual(words.duration(us), text)
        for value, text in ((16, "16"), (1000, "1 k"), (79510, "79.5 k"), (999900, "1 M"),
                            (16777216, "16.8 M"), (2e9, "2 G")):
            self.assertEqual(words.count(value), text)
        for value, text in ((0, "0"), (0.0123456, "0.0123"), (1060, "1060"), (100.0, "100"),
                            (2.50, "2.5")):
            self.assertEqual(words.short(value), text)

    def test_lines_are_wrapped_at_words(self):
        lines = words.wrap("one two three four", 12, words.width("one two ", 12))
        self.assertEqual(lines, ["one two", "three", "four"])


class Scales(unittest.TestCase):
    def test_linear_ticks_are_round_and_no_more_than_asked_for(self):
        self.assertEqual(scale.Linear(0, 1, 0, 100).ticks(6), [0, 0.2, 0.4, 0.6, 0.8, 1])
        self.assertEqual(scale.Linear(0, 537, 0, 100).ticks(7), [0, 100, 200, 300, 400, 500])
        self.assertEqual(scale.Linear(-3, 3, 0, 100).ticks(4), [-2, 0, 2])
        for most in range(2, 12):
            for high in (0.0031, 1, 7.5, 99, 1e6):
                ticks = scale.Linear(0, high, 0, 100).ticks(most)
                self.assertLessEqual(len(ticks), most)
                self.assertGreaterEqual(len(ticks), 1)
                self.assertTrue(all(0 <= tick <= high * (1 + 1e-9) for tick in ticks))

    def test_logarithmic_ticks_are_powers_of_ten_with_steps_between_where_there_is_room(self):
        self.assertEqual(scale.Log(1, 100, 0, 1).ticks(7), [1, 2, 5, 10, 20, 50, 100])
        self.assertEqual(scale.Log(1, 100, 0, 1).ticks(6), [1, 3, 10, 30, 100])
        self.assertEqual(scale.Log(0.1, 1e5, 0, 1).ticks(8), [0.1, 1, 10, 100, 1e3, 1e4, 1e5])
        self.assertEqual(scale.Log(1, 1e8, 0, 1).ticks(5), [1, 100, 1e4, 1e6, 1e8])

    def test_a_logarithmic_axis_keeps_ratios(self):
        x = scale.Log(1, 1000, 0, 300)
        self.assertAlmostEqual(x(10), 100)
        self.assertAlmostEqual(x(100) - x(10), x(1000) - x(100))
        with self.assertRaises(ValueError):
            scale.Log(0, 1, 0, 1)

    def test_ranges_are_widened_to_round_values(self):
        self.assertEqual(scale.nice_log_range(9.5, 351), (5, 500))
        self.assertEqual(scale.nice_log_range(0.02, 17800), (0.01, 20000))

    def test_labels_move_apart_keep_their_order_and_stay_inside(self):
        self.assertEqual(scale.spread_labels([50, 10], 15, 0, 100), [50, 10])
        places = scale.spread_labels([98, 97, 99, 5], 15, 0, 100)
        self.assertEqual(places[3], 5)
        ordered = [places[1], places[0], places[2]]
        self.assertEqual(ordered, sorted(ordered))
        self.assertTrue(all(b - a >= 15 - 1e-9 for a, b in zip(ordered, ordered[1:])))
        self.assertLessEqual(max(places), 100)
        crowded = scale.spread_labels([50] * 4, 10, 0, 100)
        self.assertEqual(sorted(crowded), [35, 45, 55, 65])


class Drawings(InAFolder):
    """No text over another, none outside, at every width that is drawn."""

    def texts(self, drawing):
        """[(left, top, right, bottom, text)]: boxes of the horizontal texts."""
        found = []
        for element in ElementTree.fromstring(drawing.render()).iter(SVG + "text"):
            size = 13 if element.get("class") == "title" else 12
            wide = words.width(element.text, size)
            x, y = float(element.get("x")), float(element.get("y"))
            x -= {"middle": wide / 2, "end": wide}.get(element.get("text-anchor"), 0)
            found.append((x, y - 9, x + wide, y + 2, element.text))
        return found

    def check(self, drawing, name):
        boxes = self.texts(drawing)
        for left, top, right, bottom, text in boxes:
            self.assertGreaterEqual(left, -6, f"{name}: '{text}' begins left of the drawing")
            self.assertLessEqual(right, drawing.width + 6, f"{name}: '{text}' is cut at the right")
            self.assertGreaterEqual(top, -2, f"{name}: '{text}' is cut at the top")
            self.assertLessEqual(bottom, drawing.height + 2, f"{name}: '{text}' is cut below")
        for i, a in enumerate(boxes):
            for b in boxes[:i]:
                apart = a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
                self.assertTrue(apart, f"{name}: '{a[4]}' lies over '{b[4]}'")

    def test_labels_do_not_overlap(self):
        results, peers = self.results(whole()), self.peers(whole_peers())
        count = 0
        for section in page.sections(results, peers, ""):
            for figure in section.figures:
                for width in (figure.wide, figures.PHONE):
                    self.check(figure.draw(width), f"{figure.name} at {width}")
                    count += 1
        self.assertGreater(count, 40)

    def test_lines_that_end_at_one_point_have_labels_apart(self):
        same = dict(BARE, cells=[cell(mode, n, 2, n / 1000) for n in (1000, 2000)
                                 for mode in ("hogwild", "locked", "ssp", "naive", "atomic", "mutex")])
        for figure in cell_figures.latency_section(self.results(same)).figures:
            self.check(figure.draw(figures.PHONE), figure.name)

    def test_many_cores_are_shaded_without_figures(self):
        n = 64
        many = dict(BARE, line_transfer={
            "cores": list(range(n)), "round_trip_ns": [[100 + i + j for j in range(n)]
                                                       for i in range(n)]})
        figure, = training_figures.lines_section(self.results(many)).figures
        drawing = figure.draw(figures.HALF)
        self.check(drawing, "64 cores")
        self.assertEqual(drawing.render().count("<rect"), n * (n - 1) + 8)

    def test_every_way_to_share_has_a_colour_of_its_own_and_is_told_apart_without_it(self):
        for colours in (style._LIGHT, style._DARK):
            shown = [colours[key] for key in style.SERIES if key != "private"]
            self.assertEqual(len(shown), len(set(shown)))
        marks = [mark for mark, kind in style.SERIES.values() if kind != "limit"]
        self.assertEqual(len(marks), len(set(marks)))
        self.assertLessEqual(set(marks), set(svg.MARKERS))


class Percentiles(InAFolder):
    def test_the_axis_is_how_rare_a_sample_is(self):
        one = self.results(dict(BARE, cells=[cell("locked", 16, 2, 1.0)])).cells[0]
        points = cell_figures.percentile_points(one)
        expected = [(2, 1), (10, 1.1), (100, 2), (1000, 30), (10000, 200)]
        for (at, us), (want_at, want_us) in zip(points, expected, strict=True):
            self.assertAlmostEqual(at, want_at)
            self.assertAlmostEqual(us, want_us)


class SpeedUp(InAFolder):
    def test_what_ran_beside_a_mode_does_not_change_its_place(self):
        # The private runs of locked were disturbed as locked itself was: its ratio tells.
        rows = [{"sharing": sharing, "workers": workers, "steps_per_second": 0.9 * speed,
                 "private_steps_per_second": speed, "ratio": 0.9, "spread": 0.0}
                for sharing, workers, speed in (
                    ("hogwild", 2, 5000), ("locked", 2, 1000), ("barrier", 2, 5000),
                    ("hogwild", 4, 9000), ("locked", 4, 1000), ("barrier", 4, 9000))]
        drawing = training_figures.scaling_section(self.results(dict(BARE, scaling=rows))).figures[0].draw(510)
        labels = [text for text in (e.text for e in ElementTree.fromstring(drawing.render()).iter(
            SVG + "text")) if "×" in text]
        self.assertEqual(sorted(labels),
                         ["barrier 3.24×", "hogwild 3.24×", "locked 3.24×", "private 3.6×"])
        self.assertIn("times 1/2 of 2 private workers", drawing.render())


if __name__ == "__main__":
    unittest.main()

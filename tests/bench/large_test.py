#!/usr/bin/env python3
"""The rows of large models of passel_bench (argument: the program) at tiny sizes."""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop(1)


class Large(unittest.TestCase):
    def test_the_note_is_of_the_pairs_that_the_row_is_of(self):
        with tempfile.TemporaryDirectory() as folder:
            results = os.path.join(folder, "results.json")
            subprocess.run([PROGRAM, "--smoke", "--filter", "BM_Large|BM_Threads", "--json", results], check=True,
                           capture_output=True, timeout=100)
            with open(results, encoding="utf-8") as file:
                rows = json.load(file)["rows"]
        measured = [row for row in rows if row.get("measured") is not None]
        self.assertGreaterEqual(len(measured), 2)
        for row in measured:
            step, products = (float(number) for number in
                              re.search(r"a step ([0-9.e-]+) ms: products ([0-9.e-]+) ", row["note"]).groups())
            if row["unit"] == "x":
                self.assertRegex(row["note"], r"with one thread a step [0-9.e-]+$")
                continue
            self.assertAlmostEqual(1e3 / row["measured"] / step, 1, delta=2e-3)
            self.assertAlmostEqual(1e3 / row["limit"] / products, 1, delta=2e-3)


if __name__ == "__main__":
    unittest.main()

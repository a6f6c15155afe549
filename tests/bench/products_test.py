#!/usr/bin/env python3
"""Tests of passel_product_bench (argument: the program) at tiny sizes."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop(1)

# A BLIS of plain loops, whose sums begin at WRONG. As 0.9.0 it answers no question before
# bli_init() if BLIS_ARCH_TYPE is set.
BLIS = """
#include <stdio.h>
#include <stdlib.h>
static int ready;
void bli_init(void) { AT_START ready = 1; }
int bli_arch_query_id(void) {
  if (!ready && getenv("BLIS_ARCH_TYPE") != NULL) { fprintf(stderr, "uninitialized\\n"); abort(); }
  return 0;
}
const char* bli_arch_string(int id) { return "stand-in"; }
void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float* a,
                 int lda, const float* b, int ldb, float beta, float* c, int ldc) {
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      float sum = WRONG;
      for (int l = 0; l < k; ++l)
        sum += (ta == 112 ? a[l * lda + i] : a[i * lda + l]) *
               (tb == 112 ? b[j * ldb + l] : b[l * ldb + j]);
      c[i * ldc + j] = alpha * sum;
    }
}
"""


class Products(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.json = os.path.join(self.folder.name, "out.json")

    def run_it(self, *arguments):
        done = subprocess.run([PROGRAM, "--quick", "--json", self.json, *arguments], text=True,
                              capture_output=True, timeout=60)
        found = None
        if os.path.exists(self.json):
            with open(self.json, encoding="utf-8") as file:
                found = json.load(file)
        return done, found

    def stand_in(self, wrong, at_start=""):
        source = os.path.join(self.folder.name, "blis.c")
        with open(source, "w", encoding="utf-8") as file:
            file.write(BLIS.replace("AT_START", at_start))
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", f"-DWRONG={wrong}", source, "-o",
                        os.path.join(self.folder.name, "libblis.so.4")], check=True)

    def test_each_library_is_measured_on_each_product_or_named_as_missing(self):
        done, found = self.run_it("--libraries", self.folder.name)
        self.assertEqual(done.returncode, 0, done.stderr)
        named = [*found["kernels"], *found["missing"]]
        for library in ("OpenBLAS, own choice", "BLIS", "oneDNN", "libxsmm"):
            self.assertIn(library, named)
            self.assertIn(library, done.stdout)
        self.assertIn(found["chosen"], found["kernels"])
        self.assertEqual(len(found["products"]), 12)  # two layers, three products, warm and cold
        for product in found["products"]:
            self.assertGreater(product["peak_gflops"], 0)
            for library in found["kernels"]:
                if library != "libxsmm" or product["product"] == "forward":
                    self.assertGreater(product["libraries"][library]["share"], 0)

    def test_each_openblas_runs_the_kernels_that_it_was_asked_for(self):
        _, found = self.run_it()
        for library, kernels in found["kernels"].items():
            for core in ("Haswell", "Zen", "SkylakeX", "Cooperlake"):
                if library.startswith("OpenBLAS " + core):
                    self.assertEqual(kernels, core)

    def test_another_library_is_taken_from_the_folder(self):
        self.stand_in(0)
        done, found = self.run_it("--libraries", self.folder.name)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(found["kernels"]["BLIS"], "stand-in")

    def test_a_wrong_answer_is_said_and_fails(self):
        self.stand_in(1)
        done, _ = self.run_it("--libraries", self.folder.name)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("WRONG", done.stderr)
        self.assertIn("BLIS: 20-10 b7 forward", done.stderr)

    def test_a_library_that_dies_is_said_and_fails(self):
        self.stand_in("*(volatile float*)8")
        done, _ = self.run_it("--libraries", self.folder.name)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("20-10 b7 forward: BLIS was killed by SIGSEGV (11)", done.stderr)

    def test_a_library_that_does_not_start_is_named_with_what_it_wrote(self):
        self.stand_in(0, 'fprintf(stderr, "no such processor\\n"); abort();')
        done, _ = self.run_it("--libraries", self.folder.name)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertEqual(done.stderr, "passel_product_bench: BLIS was killed by SIGABRT (6): "
                                      "no such processor\n")

    def test_no_library_uses_wider_vectors_than_it_is_told(self):
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            has_it = "avx2" in file.read()
        if not has_it:
            self.skipTest("this processor has no AVX2")
        self.stand_in(0)
        done, found = self.run_it("--libraries", self.folder.name, "--vectors", "avx2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(found["vectors"], "avx2")
        self.assertEqual(found["kernels"]["BLIS"], "stand-in")

    def test_wrong_usage(self):
        for arguments in (["--vectors", "avx9"], ["--seconds", "0"],
                          ["--libraries", "/no/such/folder"], ["--no_such_option"]):
            done, _ = self.run_it(*arguments)
            self.assertEqual(done.returncode, 2, arguments)


if __name__ == "__main__":
    unittest.main()

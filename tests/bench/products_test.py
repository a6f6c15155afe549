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


# Each says that it runs what its variable names: whether it is told, on whatever processor.
SGEMM = """
void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float* a,
                 int lda, const float* b, int ldb, float beta, float* c, int ldc);
#include <stdlib.h>
static const char* told(const char* name) { return getenv(name) != NULL ? getenv(name) : "not told"; }
"""
TOLD = {
    "libopenblas.so.0": SGEMM + """
const char* openblas_get_corename(void) { return told("OPENBLAS_CORETYPE"); }
void openblas_set_num_threads(int threads) {}
""",
    "libblis.so.4": SGEMM + """
void bli_init(void) {}
int bli_arch_query_id(void) { return 0; }
const char* bli_arch_string(int id) { return told("BLIS_ARCH_TYPE"); }
""",
    # 0x7 is dnnl_cpu_isa_avx2.
    "libdnnl.so.2": SGEMM + """
int dnnl_get_effective_cpu_isa(void) {
  const char* isa = told("ONEDNN_MAX_CPU_ISA");
  return isa[0] == 'A' && isa[3] == '2' && isa[4] == 0 ? 0x7 : 0xfff;
}
int dnnl_sgemm(char ta, char tb, long m, long n, long k, float alpha, const float* a, long lda,
               const float* b, long ldb, float beta, float* c, long ldc) {
  cblas_sgemm(101, ta == 'T' ? 112 : 111, tb == 'T' ? 112 : 111, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  return 0;
}
""",
    # Its kernels multiply nothing: the program ends with wrong answers, and writes the rest.
    "libxsmm.so": SGEMM + """
void libxsmm_init(void) {}
const char* libxsmm_get_target_arch(void) { return told("LIBXSMM_TARGET"); }
static void kernel(const float* a, const float* b, float* c) {}
void (*libxsmm_smmdispatch(int m, int n, int k, const int* lda, const int* ldb, const int* ldc, const float* alpha,
                           const float* beta, const int* flags, const int* prefetch))(const float*, const float*, float*) {
  return kernel;
}
""",
}
NARROW = {  # what each says of itself with AVX2 and nothing wider
    "OpenBLAS": ("Haswell", "Zen"), "BLIS": ("haswell",), "oneDNN": ("cpu_isa 0x7",), "libxsmm": ("hsw",)}


def has_avx2():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        return "avx2" in file.read()


class Products(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.json = os.path.join(self.folder.name, "out.json")

    def run_it(self, *arguments, **variables):
        done = subprocess.run([PROGRAM, "--quick", "--json", self.json, *arguments], text=True,
                              capture_output=True, timeout=60, env={**os.environ, **variables})
        found = None
        if os.path.exists(self.json):
            with open(self.json, encoding="utf-8") as file:
                found = json.load(file)
        return done, found

    def stand_in(self, wrong, at_start=""):
        self.compile(BLIS.replace("AT_START", at_start), "libblis.so.4", wrong)

    def compile(self, text, name, wrong=0):
        source = os.path.join(self.folder.name, "source.c")
        with open(source, "w", encoding="utf-8") as file:
            file.write(text)
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", f"-DWRONG={wrong}", source, "-o",
                        os.path.join(self.folder.name, name)], check=True)

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

    def test_each_library_is_told_to_use_no_wider_vectors(self):
        if not has_avx2():
            self.skipTest("this processor has no AVX2")
        sgemm = "void cblas_sgemm" + BLIS.partition("void cblas_sgemm")[2]
        for name, text in TOLD.items():
            self.compile(text + sgemm, name)
        _, found = self.run_it("--libraries", self.folder.name, "--vectors", "avx2")
        self.assertEqual(found["vectors"], "avx2")
        self.assertEqual(found["kernels"], {
            "OpenBLAS Haswell": "Haswell", "OpenBLAS Haswell, pieces": "Haswell", "OpenBLAS Zen": "Zen",
            "BLIS": "3", "oneDNN": "cpu_isa 0x7", "libxsmm": "hsw"})

    def test_no_library_that_is_installed_uses_wider_vectors_than_it_is_told(self):
        if not has_avx2():
            self.skipTest("this processor has no AVX2")
        peers = os.environ.get("PASSEL_PEERS_DIR") or os.path.join(
            os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "passel/peers")
        folder = ["--libraries", peers] if os.path.isdir(peers) else []
        done, found = self.run_it(*folder, "--vectors", "avx2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("OpenBLAS, own choice", found["kernels"])
        for library, kernels in found["kernels"].items():
            self.assertIn(kernels, NARROW[library.split()[0]], library)

    def test_variables_that_choose_kernels_are_ignored(self):
        _, before = self.run_it()
        done, found = self.run_it(OPENBLAS_CORETYPE="Nehalem")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("passel_product_bench: OPENBLAS_CORETYPE=Nehalem is ignored\n", done.stderr)
        self.assertEqual(found["kernels"], before["kernels"])

    def test_another_library_is_not_taken_for_passels(self):
        self.stand_in(0)
        self.compile("int nothing;", "libopenblas.so.0")
        done, found = self.run_it("--libraries", self.folder.name)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(found["chosen_is_missing"])
        self.assertIn(found["chosen"], found["missing"])
        self.assertNotIn("<- passel's", done.stdout)
        self.assertIn(f"no target was looked at: passel's choice, {found['chosen']}, is missing\n", done.stdout)

    def test_one_library_is_passels(self):
        done, found = self.run_it()
        marked = [line for line in done.stdout.splitlines() if "<- passel's" in line]
        self.assertEqual(len(marked), 1, done.stdout)
        self.assertIn(f"] {found['chosen']} ", marked[0])
        self.assertFalse(found["chosen_is_missing"])

    def test_wrong_usage(self):
        for arguments in (["--vectors", "avx9"], ["--seconds", "0"],
                          ["--libraries", "/no/such/folder"], ["--no_such_option"]):
            done, _ = self.run_it(*arguments)
            self.assertEqual(done.returncode, 2, arguments)


if __name__ == "__main__":
    unittest.main()

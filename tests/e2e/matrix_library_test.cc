// Which kernels OpenBLAS multiplies with: chosen by the program before the library starts.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "support/program.h"

namespace passel::testing {
namespace {

using ::testing::HasSubstr;

// By what the kernel says that the processor can do.
std::string BestCore() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  std::set<std::string> flags;
  while (flags.empty() && std::getline(file, line)) {
    if (!line.starts_with("flags")) continue;
    std::istringstream words(line);
    for (std::string word; words >> word;) flags.insert(word);
  }
  if (flags.contains("avx512_bf16")) return "Cooperlake";
  if (flags.contains("avx512bw") && flags.contains("avx512vl")) return "SkylakeX";
  return flags.contains("avx2") ? "Haswell" : "";
}

class MatrixLibraryTest : public ::testing::Test {
 protected:
  MatrixLibraryTest() {
    sandbox_.SetEnv("OPENBLAS_VERBOSE", "2");  // it tells its choice
  }
  Sandbox sandbox_;
};

TEST_F(MatrixLibraryTest, HasTheKernelsThatTheProcessorCanRun) {
  if (BestCore().empty()) GTEST_SKIP() << "this processor has no AVX2";
  for (const char* threads : {"1", "2"}) {
    sandbox_.SetEnv("OPENBLAS_NUM_THREADS", threads);
    EXPECT_THAT(sandbox_.Run({"--version"}).err, HasSubstr("Core: " + BestCore() + "\n"));
  }
}

TEST_F(MatrixLibraryTest, HasTheKernelsThatTheUserNames) {
  sandbox_.SetEnv("OPENBLAS_CORETYPE", "Prescott");
  EXPECT_THAT(sandbox_.Run({"--version"}).err, HasSubstr("Core: Prescott\n"));
}

}  // namespace
}  // namespace passel::testing

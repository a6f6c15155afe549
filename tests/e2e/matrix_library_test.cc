// Which kernels OpenBLAS multiplies with: chosen by the program before the library starts.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "support/program.h"

namespace passel::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

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

TEST_F(MatrixLibraryTest, ChoosesWhereTheUserNamesNone) {
  if (BestCore().empty()) GTEST_SKIP() << "this processor has no AVX2";
  sandbox_.SetEnv("OPENBLAS_CORETYPE", "");
  EXPECT_THAT(sandbox_.Run({"--version"}).err, HasSubstr("Core: " + BestCore() + "\n"));
}

TEST_F(MatrixLibraryTest, OneThatTheProcessorCannotRunIsRefused) {
  if (BestCore() != "Haswell") GTEST_SKIP() << "this processor has AVX-512, or no AVX2";
  std::vector<const char*> cores = {"SkylakeX", "cooperlake"};
  if (__builtin_cpu_supports("fma4") == 0) cores.push_back("Bulldozer");
  for (const char* core : cores) {
    sandbox_.SetEnv("OPENBLAS_CORETYPE", core);
    const auto done = sandbox_.Run({"--version"});
    EXPECT_EQ(done.code, 2);
    EXPECT_EQ(done.err, std::string("passel: OPENBLAS_CORETYPE=") + core +
                            " names kernels with instructions that this processor has not: unset "
                            "it, and passel chooses\n");
  }
}

TEST_F(MatrixLibraryTest, OneThatDoesNotExistIsSaid) {
  const std::vector<std::string> job = {"train",  "--fake_data", "--device=cpu",
                                        "--ps=0", "--workers=1", "--train_steps=2"};
  sandbox_.SetEnv("OPENBLAS_CORETYPE", "Foo");
  EXPECT_THAT(sandbox_.Run(job).err,
              HasSubstr("OPENBLAS_CORETYPE is \"Foo\", which OpenBLAS does not know or have: it "
                        "multiplies with kernels for "));
  sandbox_.SetEnv("OPENBLAS_CORETYPE", "PRESCOTT");
  EXPECT_THAT(sandbox_.Run(job).err, Not(HasSubstr("OPENBLAS_CORETYPE")));
}

// The bits of a job depend on them.
TEST_F(MatrixLibraryTest, ACheckpointMadeWithOtherKernelsIsNoted) {
  if (BestCore().empty()) GTEST_SKIP() << "this processor has no AVX2";
  const std::string folder = sandbox_.dir().path() + "/train";
  const auto train = [&](const std::string& steps, const std::string& report) {
    return sandbox_.Run({"train", "--fake_data", "--mode", "barrier", "--train_steps", steps,
                         "--checkpoint_dir", folder, "--report", report});
  };
  sandbox_.SetEnv("OPENBLAS_CORETYPE", "Prescott");
  const auto first = train("20", folder + "-1.json");
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(ReadText(folder + "-1.json"), HasSubstr("\"kernels\": \"Prescott\""));
  const auto same = train("40", folder + "-2.json");
  ASSERT_EQ(same.code, 0) << same.err;
  EXPECT_THAT(same.err, Not(HasSubstr("was made with")));
  sandbox_.SetEnv("OPENBLAS_CORETYPE", BestCore());
  const auto other = train("60", folder + "-3.json");
  ASSERT_EQ(other.code, 0) << other.err;
  EXPECT_THAT(other.err, HasSubstr("was made with the matrix kernels \"Prescott\", and here they "
                                   "are \"" +
                                   BestCore()));
}

}  // namespace
}  // namespace passel::testing

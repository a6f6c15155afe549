// Tools that are absent, broken or unwilling, and a program built without NVTX: training is the
// same, and one sentence says that nothing is recorded.

#include <filesystem>

#include "nvtx/nvtx_job.h"

namespace passel::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

int Count(const std::string& text, const std::string& what) {
  int count = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
    ++count;
  }
  return count;
}

TEST(NvtxToolTest, WithoutOneNothingIsSaidOrWritten) {
  Sandbox sandbox;
  sandbox.SetEnv("PASSEL_NVTX_RECORD", sandbox.dir().File("record"));
  const Outcome outcome = sandbox.Run(sandbox.Train({"--train_steps=50"}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, Not(HasSubstr("NVTX")));
  EXPECT_FALSE(std::filesystem::exists(sandbox.dir().File("record")));
}

TEST(NvtxToolTest, AMissingOneIsNamedOnceAndTrainingGoesOn) {
  Sandbox sandbox;
  sandbox.SetEnv("NVTX_INJECTION64_PATH", "/nonexistent/tool.so");
  const Outcome outcome = sandbox.Run(sandbox.Train({"--train_steps=50"}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(Count(outcome.err, "NVTX_INJECTION64_PATH names /nonexistent/tool.so"), 1)
      << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("no ranges are recorded"));
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(NvtxToolTest, OneThatIsNoLibraryIsNamedByEveryTaskByHand) {
  Sandbox sandbox;
  const std::string text = sandbox.dir().File("text.so");
  WriteText(text, "no library");
  sandbox.SetEnv("NVTX_INJECTION64_PATH", text);
  Program ps = sandbox.Start(sandbox.Task("ps", 0, 1, 1, {"--train_steps=20"}));
  Program worker = sandbox.Start(sandbox.Task("worker", 0, 1, 1, {"--train_steps=20"}));
  for (Program* task : {&worker, &ps}) {
    const Outcome outcome = sandbox.Finish(*task, 20);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(Count(outcome.err, "NVTX_INJECTION64_PATH names"), 1) << outcome.err;
  }
}

TEST(NvtxToolTest, OneThatRefusesToStartIsNamedToo) {
  Sandbox sandbox;
  sandbox.SetEnv("NVTX_INJECTION64_PATH", PASSEL_NVTX_RECORDER);  // it wants PASSEL_NVTX_RECORD
  const Outcome outcome = sandbox.Run(sandbox.Train({"--train_steps=50", "--ps=0", "--workers=1"}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(Count(outcome.err, "no tool attached"), 1) << outcome.err;
}

TEST(NvtxToolTest, TheVersionSaysWhatIsBuiltIn) {
  Sandbox sandbox;
  const Outcome outcome = sandbox.Run({"--version"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("\nbuilt with NVTX, headers from /"));
}

TEST(NvtxToolTest, ABuildWithoutItCallsNoToolAndSaysSo) {
  RecordedJob job;
  Program probe = job.sandbox.StartCommand({PASSEL_NVTX_OFF_PROBE});
  const Outcome outcome = job.sandbox.Finish(probe, 10);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("built without NVTX: this is a test"));
  EXPECT_THAT(outcome.err, HasSubstr("this passel was built without NVTX: this is a test"));
  EXPECT_FALSE(std::filesystem::exists(job.path())) << "the recorder was loaded";
  // Not even the code that would load one is there.
  const std::string program = ReadText(PASSEL_NVTX_OFF_PROBE);
  EXPECT_EQ(program.find("InitializeInjectionNvtx2"), std::string::npos);
  EXPECT_NE(ReadText(PASSEL_PROGRAM).find("InitializeInjectionNvtx2"), std::string::npos);
}

}  // namespace
}  // namespace passel::testing

// What the program says when memory is short, when values diverge, and when a shard is too small:
// one sentence that names the limit, the value and the fix, and nothing is left behind. What is
// wrong with input itself is in the table of tests/bad_inputs.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "support/large_model.h"
#include "support/program.h"

namespace passel::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Runs it; the one error line it must write, or a test failure.
std::string Refusal(Sandbox& sandbox, const std::vector<std::string>& arguments, int code = 2) {
  const std::string error = OnlyError(sandbox.Run(arguments), code);
  EXPECT_EQ(sandbox.Leftovers(), "");
  return error;
}

// Hidden units for which the job needs `share` of the memory that is free now.
std::string UnitsThatNeed(double share) {
  std::ifstream meminfo("/proc/meminfo");
  std::string word;
  double kib = 0;
  while (meminfo >> word) {
    if (word == "MemAvailable:") meminfo >> kib;
  }
  // values, two slot variables and a gradient for each of two workers, 784 + 1 + 10 floats a unit
  return fmt::format("{}", static_cast<std::int64_t>(share * kib * 1024 / (5 * 4 * 795.0)));
}

TEST(BadMemoryTest, JobThatDoesNotFitNamesNeedAndFreeBytes) {
  for (const char* ps : {"--ps=1", "--ps=3"}) {
    Sandbox sandbox;
    const std::string line =
        Refusal(sandbox, sandbox.Train({ps, "--hidden_units=" + UnitsThatNeed(1.3)}));
    EXPECT_THAT(line, HasSubstr("bytes"));
    EXPECT_THAT(line, HasSubstr("free"));
    EXPECT_THAT(line, HasSubstr("smaller model"));
  }
}

TEST(BadMemoryTest, SingleProcessThatDoesNotFitNamesNeedAndFreeBytes) {
  Sandbox sandbox;
  const std::string line = Refusal(
      sandbox, sandbox.Train({"--ps=0", "--workers=1", "--hidden_units=" + UnitsThatNeed(1.6)}));
  EXPECT_THAT(line, HasSubstr("free"));
}

TEST(BadMemoryTest, TasksByHandReportItFromThePs) {
  Sandbox sandbox;
  const std::vector<std::string> flags = {"--hidden_units=" + UnitsThatNeed(2.5), "--start_wait=5"};
  Program ps = sandbox.Start(sandbox.Task("ps", 0, 1, 1, flags));
  ASSERT_TRUE(ps.WaitFor("is ready for its workers"));
  EXPECT_THAT(OnlyError(sandbox.Run(sandbox.Task("worker", 0, 1, 1, flags)), 2), HasSubstr("free"));
  sandbox.Interrupt(ps);
}

// In rounds, or where all meet for it. What is free may change between our look and the program's.
TEST(BadMemoryTest, SavesThatCopyAllAreRefusedWhereThereIsNoMemoryForTheCopy) {
  Sandbox sandbox;
  const std::string folder = sandbox.dir().File("c");
  const auto refusal = [&](const std::vector<std::string>& arguments) {
    std::string line;
    for (int turn = 0; turn < 5 && line.find("is copied to memory") == line.npos; ++turn) {
      line = Refusal(sandbox,
                     With(arguments, {LayersThatAreNotCopied(), "--checkpoint_dir=" + folder}));
    }
    EXPECT_THAT(line, AllOf(HasSubstr("a checkpoint is copied to memory before it is written"),
                            HasSubstr("bytes free"), HasSubstr("use a smaller model")));
    EXPECT_FALSE(std::filesystem::exists(folder));
    return line;
  };
  EXPECT_THAT(refusal(sandbox.Train({"--workers=1", "--mode=barrier"})),
              HasSubstr("use a mode without rounds"));
  EXPECT_THAT(refusal(sandbox.Train({"--ps=0", "--workers=1", "--checkpoint_consistent"})),
              HasSubstr("omit --checkpoint_consistent"));
}

TEST(BadMemoryTest, ChiefByHandRefusesSavesThatFindNoMemoryBeforeTheJobBegins) {
  Sandbox sandbox;
  const std::vector<std::string> flags = {"--mode=barrier", "--start_wait=20",
                                          "--checkpoint_dir=" + sandbox.dir().File("c")};
  Program ps = sandbox.Start(sandbox.Task("ps", 0, 1, 1, flags));
  ASSERT_TRUE(ps.WaitFor("is ready for its workers"));
  std::string line;
  for (int turn = 0; turn < 5 && line.find("is copied to memory") == line.npos; ++turn) {
    line = OnlyError(
        sandbox.Run(sandbox.Task("worker", 0, 1, 1, With(flags, {LayersThatAreNotCopied()}))));
  }
  EXPECT_THAT(line, AllOf(HasSubstr("in rounds a checkpoint is copied"), HasSubstr("bytes free")));
  // The job has not begun, and does with a smaller one.
  EXPECT_EQ(sandbox.Run(sandbox.Task("worker", 0, 1, 1, With(flags, {"--train_steps=20"}))).code,
            0);
  EXPECT_EQ(sandbox.Finish(ps).code, 0) << ps.Err();
}

TEST(BadValuesTest, GradientThatIsNotFiniteStopsTheJobOnce) {
  for (const char* ps : {"--ps=1", "--ps=2"}) {
    Sandbox sandbox;
    const std::string line = Refusal(
        sandbox, sandbox.Train({ps, "--workers=4", "--optimizer=sgd", "--learning_rate=1e30"}), 1);
    EXPECT_THAT(line, HasSubstr("not finite"));
    EXPECT_THAT(line, HasSubstr("step"));
    EXPECT_THAT(line, HasSubstr("--learning_rate"));
  }
  Sandbox sandbox;
  const std::string report = sandbox.dir().File("r");
  EXPECT_THAT(Refusal(sandbox,
                      sandbox.Train({"--ps=0", "--optimizer=sgd", "--learning_rate=1e30",
                                     "--report=" + report}),
                      1),
              HasSubstr("not finite"));
  EXPECT_EQ(ReadJson(report)["exit_code"], 1);
  // By hand.
  const std::vector<std::string> flags = {"--optimizer=sgd", "--learning_rate=1e30"};
  Program ps = sandbox.Start(sandbox.Task("ps", 0, 1, 1, flags));
  const Outcome worker = sandbox.Run(sandbox.Task("worker", 0, 1, 1, flags));
  EXPECT_EQ(worker.code, 1) << worker.err;
}

TEST(BadValuesTest, SkippedGradientsDoNotKeepTheJobForEver) {
  Sandbox sandbox;
  const Outcome outcome = sandbox.Run(sandbox.Train({"--optimizer=sgd", "--learning_rate=1e30",
                                                     "--on_nan=skip", "--train_steps=1000"}),
                                      30);
  EXPECT_THAT(OnlyError(outcome, 1), AllOf(HasSubstr("not finite"), HasSubstr("in a row")));
  EXPECT_EQ(sandbox.Leftovers(), "");
}

// Its own shard would do, that of the last worker would not, and the others would train alone.
TEST(BadTaskTest, ChiefRefusesABatchAboveTheSmallestShardBeforeItProposesAPlan) {
  Sandbox sandbox;
  const std::vector<std::string> flags = {"--shard_data", "--batch_size=858", "--start_wait=20"};
  Program ps = sandbox.Start(sandbox.Task("ps", 0, 1, 7, flags));
  EXPECT_THAT(OnlyError(sandbox.Run(sandbox.Task("worker", 0, 1, 7, flags)), 2),
              HasSubstr("at most the 857 of 6000 training examples"));
  EXPECT_EQ(sandbox.GlobalStep(), -1);
}

TEST(BadTaskTest, TokenFileThatIsAFifoOrOfAnotherUserIsRefused) {
  Sandbox sandbox;
  const std::string path = sandbox.dir().File("token");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(Refusal(sandbox, sandbox.Task("ps", 0, 1, 1, {"--token_file=" + path})),
              HasSubstr("no regular file"));
  if (::getuid() != 0) return;
  WriteText(path + "2", std::string(32, 'x'));
  ::chmod((path + "2").c_str(), 0400);
  ASSERT_EQ(::chown((path + "2").c_str(), 12345, 0), 0);
  EXPECT_THAT(Refusal(sandbox, sandbox.Task("ps", 0, 1, 1, {"--token_file=" + path + "2"})),
              HasSubstr("belongs to user 12345"));
}

TEST(BadStartTest, ARefusedOneLeavesNothingWhereCheckpointsWereToGo) {
  Sandbox sandbox;
  const std::vector<std::string> small = {"--ps=0", "--workers=1", "--batch_size=20",
                                          "--train_steps=10"};
  const std::string other = sandbox.dir().File("other"), folder = sandbox.dir().File("new");
  ASSERT_EQ(
      sandbox.Run(sandbox.Train(With(small, {"--hidden_units=16", "--checkpoint_dir=" + other})))
          .code,
      0);
  const auto start = sandbox.Train(With(
      small, {"--hidden_units=8", "--resume=" + other, "--checkpoint_dir=" + folder + "/run"}));
  EXPECT_THAT(Refusal(sandbox, start), HasSubstr("this job cannot go on from it"));
  EXPECT_FALSE(std::filesystem::exists(folder));
  std::filesystem::create_directories(folder + "/run");
  EXPECT_THAT(Refusal(sandbox, start), HasSubstr("this job cannot go on from it"));
  EXPECT_TRUE(std::filesystem::is_empty(folder + "/run"));
}

}  // namespace
}  // namespace passel::testing

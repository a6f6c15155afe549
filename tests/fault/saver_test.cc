// Whoever saves is one of two, is stopped, or is told to end: what becomes of the checkpoints.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <thread>

#include "base/deadline.h"
#include "support/program.h"
#include "support/temp_dir.h"
#include "support/whole_checkpoints.h"

namespace passel::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::vector<std::string> kEndlessSmallJob = {"--hidden_units=16", "--batch_size=20",
                                                   "--train_steps=100000000"};

// Two jobs begin in one folder at the same time: one of them trains.
void Race(int turns) {
  for (int turn = 0; turn < turns; ++turn) {
    Sandbox one, two;
    const test::TempDir shared;
    const std::string folder = shared.path() + "/checkpoints";
    const auto start = [&](Sandbox& sandbox) {
      return sandbox.Start(
          sandbox.Train(With(kEndlessSmallJob, {"--checkpoint_dir=" + folder,
                                                "--logs_dir=" + sandbox.dir().path() + "/logs"})));
    };
    Program first = start(one);
    Program second = start(two);
    const Deadline deadline = Deadline::After(Scaled(20.0));
    while (first.Running() && second.Running() && !deadline.Expired()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    const bool first_won = first.Running();
    Program& loser = first_won ? second : first;
    Program& winner = first_won ? first : second;
    Sandbox& refused = first_won ? two : one;
    EXPECT_THAT(OnlyError(refused.Finish(loser)),
                AllOf(HasSubstr("is the checkpoint folder of"), HasSubstr("stop it first")));
    EXPECT_THAT(refused.dir().List(), IsEmpty());
    EXPECT_EQ(refused.Leftovers(), "");
    EXPECT_TRUE(winner.WaitFor("saved checkpoint")) << winner.Err();
    Sandbox& trains = first_won ? one : two;
    EXPECT_TRUE(trains.Advances(10)) << winner.Err();
    EXPECT_THAT(ReadText(folder + "/.owner"),
                HasSubstr(fmt::format("process {} on ", winner.pid())));
    // What is in the folder at the end is the winner's.
    EXPECT_EQ(trains.Interrupt(winner).code, 130);
    EXPECT_GE(WholeStep(folder), 10);
    EXPECT_EQ(UnfinishedFiles(folder), "");
  }
}

TEST(TwoJobsTest, OneOfThemGetsTheFolder) { Race(3); }
TEST(SlowTwoJobsTest, OneOfThemGetsTheFolder) { Race(100); }

// The supervisor is stopped while all wait for its copy: they go on when its time is over.
TEST(StoppedSaverTest, TheWorkersGoOnAndTheNextSaveSucceeds) {
  Sandbox sandbox;
  sandbox.SetEnv("PASSEL_FAILPOINT", "copy.met:2:stop:" + sandbox.dir().File("stopped"));
  Program program = sandbox.Start(
      sandbox.Train(With(kEndlessSmallJob, {"--mode=barrier", "--workers=3", "--save_steps=50",
                                            "--checkpoint_dir=" + sandbox.dir().path() + "/c"})));
  for (int look = 0; look < 2000 && !std::filesystem::exists(sandbox.dir().File("stopped"));
       ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  std::int64_t step = -1;  // until the ps answers
  for (int look = 0; look < 2000 && step < 0; ++look) step = sandbox.GlobalStep();
  ASSERT_GE(step, 0) << program.Err();
  ASSERT_TRUE(sandbox.AwaitStep(step + 200, 20)) << program.Err();
  program.Signal(SIGCONT);
  EXPECT_TRUE(program.WaitFor("no checkpoint was saved to")) << program.Err();
  EXPECT_THAT(program.Err(), HasSubstr("the workers went on before this was done"));
  const std::int64_t before = WholeStep(sandbox.dir().path() + "/c");
  const Outcome end = sandbox.Interrupt(program);
  EXPECT_GT(WholeStep(sandbox.dir().path() + "/c"), before) << end.err;
}

// A worker that is stopped while all meet holds up neither the end of the job nor its last values.
TEST(StoppedSaverTest, AJobWithAStoppedWorkerEndsInTime) {
  for (const std::string mode : {"barrier", "hogwild"}) {
    SCOPED_TRACE(mode);
    Sandbox sandbox;
    const std::string folder = sandbox.dir().path() + "/c";
    Program program = sandbox.Start(sandbox.Train(
        With(kEndlessSmallJob, {"--mode=" + mode, "--save_steps=20", "--grace=4",
                                "--checkpoint_consistent", "--checkpoint_dir=" + folder})));
    ASSERT_TRUE(program.WaitFor("saved checkpoint")) << program.Err();
    ASSERT_NE(sandbox.TaskPid("worker", 1), 0);
    ::kill(sandbox.TaskPid("worker", 1), SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    program.Signal(SIGTERM);
    const Outcome end = sandbox.Finish(program, 8);
    EXPECT_EQ(end.code, 143) << end.err;
    EXPECT_GE(WholeStep(folder), 0) << end.err;
    EXPECT_EQ(sandbox.Leftovers(), "");
  }
}

// PASSEL_TEST_SIGNALS: how many.
TEST(SlowSignalledSaverTest, AtAnyTimeAJobEndsWithWhatItHas) {
  const char* const asked = std::getenv("PASSEL_TEST_SIGNALS");
  const int signals = asked != nullptr ? std::atoi(asked) : 100;
  const std::uint64_t seed = TestSeed();
  std::mt19937_64 random(seed);
  const std::vector<std::string> modes = {"hogwild", "locked", "barrier", "replicas", "ssp"};
  std::map<std::string, std::unique_ptr<Sandbox>> places;
  std::map<std::string, std::int64_t> newest;
  for (int turn = 0; turn < signals; ++turn) {
    const std::string mode = modes[static_cast<std::size_t>(turn) % modes.size()];
    SCOPED_TRACE(fmt::format("seed {}, turn {}, {}", seed, turn, mode));
    if (!places.contains(mode)) {
      places[mode] = std::make_unique<Sandbox>();
      newest[mode] = -1;
    }
    Sandbox& sandbox = *places[mode];
    const std::string folder = sandbox.dir().path() + "/c";
    const bool alone = turn % 7 == 3;
    Program program = sandbox.Start(sandbox.Train(With(
        kEndlessSmallJob,
        {"--mode=" + mode, alone ? "--ps=0" : "--ps=2", alone ? "--workers=1" : "--workers=2",
         "--checkpoint_dir=" + folder, fmt::format("--save_steps={}", turn % 3 == 0 ? 1 : 50)})));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 1'000'000));
    program.Signal(turn % 4 == 0 ? SIGHUP : SIGTERM);
    const Outcome end = sandbox.Finish(program, 25);
    // Before it listens to signals it ends as any program does.
    ASSERT_THAT(end.code, AnyOf(143, 1000 + SIGTERM, 1000 + SIGHUP)) << end.err;
    EXPECT_EQ(end.errors.size(), 0u) << end.err;
    if (!std::filesystem::exists(folder)) continue;
    const std::int64_t step = WholeStep(folder);
    ASSERT_GE(step, newest[mode]) << end.err;
    newest[mode] = step;
    EXPECT_EQ(UnfinishedFiles(folder), "");
  }
}

}  // namespace
}  // namespace passel::testing

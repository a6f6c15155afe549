// Stop rules of presets: how many steps each worker makes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <set>

#include "e2e/preset_run.h"

namespace passel::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

TEST(PresetTest, EpochsAreLocalStepsOfEachWorkerAndAllAreCounted) {
  for (const char* mode : {"--mode=hogwild", "--mode=locked", "--mode=ssp"}) {
    SCOPED_TRACE(mode);
    Sandbox sandbox;
    // 6000 images, 5000 of them for validation: 10 steps an epoch.
    const Training run =
        TrainPreset(sandbox, "async-softmax", {mode, "--epochs=20", "--log_epochs=5"});
    EXPECT_EQ(run.report["global_step"], 600);
    for (const auto& worker : run.report["workers"]) EXPECT_EQ(worker["local_steps"], 200);
    std::vector<std::vector<std::string>> lines;
    CountMatches(run.outcome.out,
                 R"(worker=(\d),epoch=(\d+),global_step=(\d+), local_step=(\d+), loss = [0-9.]+)",
                 &lines);
    EXPECT_EQ(lines.size(), 12u) << run.outcome.out;
    std::set<std::string> last;
    for (const auto& line : lines) {
      EXPECT_EQ(10 * (std::stoi(line[1]) + 1), std::stoi(line[3]));
      EXPECT_GE(std::stoi(line[2]), std::stoi(line[3]));
      last.insert(line[2]);
    }
    EXPECT_THAT(last, Contains("600"));  // whoever was the last
    EXPECT_EQ(CountMatches(run.outcome.out, R"(worker=\d, final accuracy = 0\.\d+)"), 3u);
  }
}

TEST(PresetTest, InRoundsEveryWorkerMakesItsOwnStepsToo) {
  Sandbox sandbox;
  const Training run = TrainPreset(sandbox, "async-softmax", {"--sync_replicas", "--epochs=7"});
  EXPECT_EQ(run.report["mode"], "barrier");
  EXPECT_EQ(run.report["global_step"], 70);
  for (const auto& worker : run.report["workers"]) EXPECT_EQ(worker["local_steps"], 70);
}

TEST(PresetTest, EpochsOfAShardAreThoseOfItsExamples) {
  Sandbox sandbox;
  // 1000 examples among 3 workers, 33 examples a batch: 334, 333 and 333 make 10 steps an epoch.
  const Training run =
      TrainPreset(sandbox, "async-softmax",
                  {"--shard_data", "--batch_size=33", "--epochs=4", "--log_epochs=1"});
  EXPECT_EQ(run.report["global_step"], 120);
  EXPECT_EQ(CountMatches(run.outcome.out, "worker=.,epoch=3,.* local_step=40,.*"), 3u);
}

TEST(PresetTest, AnotherLifeMakesTheStepsThatAreLeft) {
  Sandbox sandbox;
  const std::string path = sandbox.dir().File("r.json");
  Program job = sandbox.Start(sandbox.Train(
      {"--preset=async-softmax", "--local_steps=1500", "--slow_worker=1:1ms", "--max_restarts=1",
       "--report=" + path, "--log_epochs=0", "--log_step_count_steps=500"}));
  ASSERT_TRUE(job.WaitFor("local_step=1000, ")) << job.Err();
  ASSERT_TRUE(job.WaitFor("worker=1,epoch=49,")) << job.Out();  // its step 500
  const pid_t victim = sandbox.TaskPid("worker", 1);
  ASSERT_NE(victim, 0);
  ::kill(victim, SIGKILL);
  const Outcome outcome = sandbox.Finish(job, 60);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const nlohmann::json report = ReadJson(path);
  for (const auto& worker : report["workers"]) EXPECT_EQ(worker["local_steps"], 1500);
  // The push that the death interrupted may have been counted without its worker's knowledge.
  EXPECT_GE(report["global_step"], 4500);
  EXPECT_LE(report["global_step"], 4501);
  EXPECT_THAT(outcome.out, HasSubstr("local_step=1500, "));
  EXPECT_EQ(CountMatches(outcome.out, "worker=1,epoch=.*,global_step=.*, local_step=1500, .*"), 1u);
}

// Both workers evaluate; who stays behind for long while it still makes steps is not killed.
TEST(PresetTest, WhoStillMakesStepsOfItsOwnIsNotKilledWhenOthersAreDone) {
  Sandbox sandbox;
  const Training run =
      TrainPreset(sandbox, "async-softmax",
                  {"--workers=2", "--local_steps=80", "--slow_worker=1:20ms", "--stall_limit=0.5"});
  EXPECT_EQ(run.report["global_step"], 160);
  EXPECT_EQ(run.outcome.err.find("killing it"), std::string::npos) << run.outcome.err;
}

}  // namespace
}  // namespace passel::testing

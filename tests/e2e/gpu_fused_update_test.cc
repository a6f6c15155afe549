// Whole jobs with --arena device whose steps make their updates themselves, on an emulated GPU:
// they learn what pushes learn, and each update is counted once, whatever happens to a worker.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "e2e/emulated_gpu.h"
#include "support/program.h"

namespace passel::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class GpuFusedUpdateTest : public EmulatedGpuTest {
 protected:
  GpuFusedUpdateTest() : EmulatedGpuTest("rtx4090-pcie-2") {}
  std::vector<std::string> Train(int workers, const std::vector<std::string>& more) {
    return JobOf(more, {"--gpus=0", "--arena=device", "--batch_size=32", "--report=" + Report(),
                        "--workers_per_gpu=" + std::to_string(workers), "--optimizer=sgd",
                        "--hidden_units=16"});
  }
  Outcome RunTrain(int workers, const std::vector<std::string>& more) {
    return RunJob(Train(workers, more));
  }
};

constexpr const char* kRate = "--learning_rate=0.02";

// One worker, so that both runs are the same but for who makes the update.
TEST_F(GpuFusedUpdateTest, OneWorkerLearnsWhatItLearnsByPushes) {
  const std::vector<std::vector<std::string>> jobs = {
      {"--mode=hogwild"}, {"--mode=ssp"}, {"--ps=2", "--partitioner=fixed:2"}};
  for (const std::vector<std::string>& job : jobs) {
    SCOPED_TRACE(job.back());
    const auto run = [&](bool fused) {
      std::vector<std::string> flags = job;
      flags.insert(flags.end(), {kRate, "--train_steps=200"});
      if (!fused) flags.emplace_back("--nofused_update");
      const Outcome outcome = RunTrain(1, flags);
      EXPECT_EQ(outcome.code, 0) << outcome.err;
      EXPECT_THAT(outcome.err,
                  HasSubstr(fused ? "values and gradients in the memory of the GPU; with the "
                                    "update fused into a step"
                                  : "in the memory of the GPU; updates are kernels of their own"));
      EXPECT_THAT(outcome.err, Not(HasSubstr("fake GPU: ")));
      EXPECT_EQ(outcome.out.find("200 updates fused into their steps") != std::string::npos, fused)
          << outcome.out;
      EXPECT_EQ(outcome.out.find(", push p50") == std::string::npos, fused) << outcome.out;
      const auto report = ReadJson(Report());
      EXPECT_EQ(report.at("fused_updates").get<int>(), fused ? 200 : 0);
      EXPECT_EQ(report.at("global_step").get<int>(), 200);
      EXPECT_EQ(report.at("push_latency_us").at("p50").is_null(), fused);
      return report.at("test_loss").get<double>();
    };
    const double pushed = run(false);
    EXPECT_NEAR(run(true), pushed, 1e-6 * pushed);
  }
  EXPECT_EQ(sandbox_.Leftovers(), "");
}

TEST_F(GpuFusedUpdateTest, EachUpdateOfFourWorkersCountsOnce) {
  for (const char* mode : {"hogwild", "ssp"}) {
    const Outcome outcome =
        RunTrain(4, {std::string("--mode=") + mode, kRate, "--train_steps=400"});
    ASSERT_EQ(outcome.code, 0) << mode << "\n" << outcome.err;
    const auto report = ReadJson(Report());
    EXPECT_GT(report.at("test_accuracy").get<double>(), 0.6) << mode;
    EXPECT_GE(report.at("global_step").get<int>(), 400) << mode;
    EXPECT_EQ(report.at("global_step"), report.at("local_steps")) << mode;
    EXPECT_EQ(report.at("fused_updates"), report.at("local_steps")) << mode;
    EXPECT_EQ(report.at("half_applied"), 0) << mode;
  }
  EXPECT_EQ(sandbox_.Leftovers(), "");
}

// The mode decides from step to step; operations in adversarial order, variables in parts.
TEST_F(GpuFusedUpdateTest, ChangesOfModeChangeWhoUpdates) {
  sandbox_.SetEnv("PASSEL_FAKE_GPU", "adversarial seed=7");
  const Outcome outcome = RunTrain(
      2, {"--ps=2", "--partitioner=fixed:2", "--hidden_units=8", kRate,
          "--mode_schedule=60:locked,120:ssp=2,180:locked,240:hogwild", "--train_steps=300"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, Not(HasSubstr("fake GPU: ")));
  const auto report = ReadJson(Report());
  EXPECT_EQ(report.at("global_step"), report.at("local_steps"));
  EXPECT_EQ(report.at("modes").size(), 5u);
  EXPECT_EQ(report.at("half_applied"), 0);
  // A mode begins at most one update of each other worker late.
  EXPECT_NEAR(report.at("fused_updates").get<int>(), 180, 8);
  EXPECT_FALSE(report.at("push_latency_us").at("p50").is_null()) << "of the pushes in locked";
}

TEST_F(GpuFusedUpdateTest, WhatCannotBeFusedIsPushed) {
  const std::vector<std::vector<std::string>> jobs = {
      {"--mode=locked"},        {"--overlap"},         {"--on_nan=skip"}, {"--slow_worker=0:1ms"},
      {"--optimizer=momentum"}, {"--hidden_units=400"}};
  for (const std::vector<std::string>& job : jobs) {
    std::vector<std::string> flags = job;
    flags.insert(flags.end(), {"--learning_rate=0.001", "--train_steps=20"});
    const Outcome outcome = RunTrain(1, flags);
    ASSERT_EQ(outcome.code, 0) << job[0] << "\n" << outcome.err;
    const auto report = ReadJson(Report());
    EXPECT_EQ(report.at("fused_updates"), 0) << job[0];
    EXPECT_EQ(report.at("global_step"), 20) << job[0];
    EXPECT_THAT(outcome.out, HasSubstr(", push p50 ")) << job[0];
  }
}

// At each point of a step: what it had under way is at most half applied, and never counted.
TEST_F(GpuFusedUpdateTest, KilledWorkerLeavesOneUpdateHalfApplied) {
  for (const char* point : {"update.begun", "update.started", "push.before_version"}) {
    SCOPED_TRACE(point);
    sandbox_.SetEnv("PASSEL_FAILPOINT",
                    std::string(point) + ":40:kill:" + sandbox_.dir().File(point));
    const Outcome outcome = RunTrain(2, {kRate, "--train_steps=600", "--max_restarts=3"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("was killed by SIGKILL"));
    const auto report = ReadJson(Report());
    EXPECT_EQ(report.at("half_applied"), 1);
    EXPECT_EQ(report.at("global_step"), report.at("local_steps"));
    EXPECT_EQ(report.at("fused_updates"), report.at("local_steps"));
    EXPECT_GT(report.at("test_accuracy").get<double>(), 0.6);
    EXPECT_EQ(sandbox_.Leftovers(), "");
  }
}

// In ssp the others wait for it, until it is evicted. What it may have added is no step.
TEST_F(GpuFusedUpdateTest, StoppedWorkerIsEvictedAndComesBack) {
  sandbox_.SetEnv("PASSEL_FAILPOINT", "update.started:40:stop:" + sandbox_.dir().File("stopped"));
  Program train =
      sandbox_.Start(Train(3, {"--mode=ssp", "--staleness_bound=2", kRate,
                               "--train_steps=100000000", "--stall_limit=2", "--max_restarts=3"}));
  ASSERT_TRUE(train.WaitFor("steps/s")) << train.Err();
  ASSERT_TRUE(train.WaitFor("was evicted", 30)) << train.Err();
  EXPECT_TRUE(Advances(100)) << train.Err();
  Interrupt(train);
  const auto report = ReadJson(Report());
  EXPECT_EQ(report.at("global_step"), report.at("local_steps"));
  EXPECT_EQ(report.at("fused_updates"), report.at("local_steps"));
  EXPECT_EQ(sandbox_.Leftovers(), "");
}

TEST_F(GpuFusedUpdateTest, JobThatIsInterruptedHasCountedWhatItAdded) {
  Program train = sandbox_.Start(Train(3, {kRate, "--train_steps=100000000"}));
  ASSERT_TRUE(train.WaitFor("steps/s")) << train.Err();
  EXPECT_TRUE(Advances(200)) << train.Err();
  Interrupt(train);
  const auto report = ReadJson(Report());
  EXPECT_EQ(report.at("global_step"), report.at("local_steps"));
  EXPECT_EQ(report.at("fused_updates"), report.at("local_steps"));
  EXPECT_EQ(report.at("half_applied"), 0);
  EXPECT_EQ(sandbox_.Leftovers(), "");
}

TEST_F(GpuFusedUpdateTest, WhatIsNotFiniteEndsTheJobInOneSentence) {
  const Outcome outcome = RunTrain(1, {"--learning_rate=1e30", "--train_steps=200"});
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("is not finite at local step "), HasSubstr("lower --learning_rate")));
  EXPECT_EQ(sandbox_.Leftovers(), "");
}

}  // namespace
}  // namespace passel::testing

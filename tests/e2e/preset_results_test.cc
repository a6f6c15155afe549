// The acceptance figures of docs/presets.md.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <optional>

#include "e2e/preset_run.h"
#include "support/temp_dir.h"
#include "support/whole_checkpoints.h"

namespace passel::testing {
namespace {

// The acceptance figures of docs/presets.md, on real MNIST.
class SlowPresetTest : public ::testing::Test {
 protected:
  void SetUp() override {
    mnist_ = SharedDataDir("mnist");
    if (!mnist_) GTEST_SKIP() << "no ../shared/data/mnist";
  }
  // Later flags win.
  Training Train(const std::string& preset, std::vector<std::string> more) {
    Sandbox sandbox;
    const std::string path = sandbox.dir().File("r.json");
    const std::vector<std::string> flags =
        With({"train", "--data_dir=" + *mnist_, "--job_id=" + sandbox.job(), "--preset=" + preset,
              "--report=" + path},
             more);
    Training run;
    run.outcome = sandbox.Run(flags, 500);
    EXPECT_EQ(run.outcome.code, 0) << run.outcome.err;
    run.report = ReadJson(path);
    fmt::print("{} {}: accuracy {}, {} global steps, {:.0f} steps/s\n", preset,
               more.empty() ? "" : more[0], run.report["test_accuracy"].get<double>(),
               run.report["global_step"].get<std::int64_t>(),
               run.report["steps_per_second"].get<double>());
    std::fflush(stdout);
    return run;
  }
  std::optional<std::string> mnist_;
};

TEST_F(SlowPresetTest, AsyncSoftmaxMakesAllItsStepsAndLearnsWhatTheReferenceLearns) {
  const Training run = Train("async-softmax", {});
  EXPECT_EQ(run.report["global_step"], 82500);
  ASSERT_EQ(run.report["workers"].size(), 3u);
  for (const auto& worker : run.report["workers"]) {
    EXPECT_EQ(worker["local_steps"], 27500);
    EXPECT_GE(worker["final_accuracy"], 0.88);
    EXPECT_LE(worker["final_accuracy"], 0.895);
  }
  EXPECT_EQ(CountMatches(run.outcome.out, "worker=.,epoch=49,.* local_step=27500,.*"), 3u);
}

TEST_F(SlowPresetTest, K8sAdagradsLocalStepsAddUpToTheGlobalStep) {
  const Training run = Train("k8s-adagrad", {});
  const std::int64_t global = run.report["global_step"];
  EXPECT_GE(global, 10000);
  EXPECT_LE(global, 10001);
  EXPECT_EQ(run.report["local_steps"], global);
  EXPECT_EQ(CountMatches(run.outcome.out, R"(acc: 0\.\d+)"), 102u);
  EXPECT_GE(run.report["test_accuracy"], 0.95);
}

TEST_F(SlowPresetTest, DistMnistReaches95InAsyncAndSync) {
  for (const char* mode : {"--nosync_replicas", "--sync_replicas"}) {
    EXPECT_GE(Train("dist-mnist", {mode}).report["test_accuracy"], 0.95) << mode;
  }
  EXPECT_GE(
      Train("dist-mnist", {"--sync_replicas", "--replicas_to_aggregate=1"}).report["test_accuracy"],
      0.95);
}

// 200 asynchronous steps are few: where workers share cores with other programs, one that was held
// up for twenty updates of the other leaves its mark. Hence the median of five runs.
TEST_F(SlowPresetTest, MnistReplicaReaches92In200Steps) {
  std::vector<double> async;
  for (int seed = 1; seed <= 5; ++seed) {
    const std::string flag = fmt::format("--seed={}", seed);
    const double serial =
        Train("mnist-replica", {"--ps=0", "--workers=1", flag}).report["test_accuracy"];
    EXPECT_GE(serial, 0.93) << flag;
    EXPECT_LE(serial, 0.955) << flag;
    EXPECT_GE(Train("mnist-replica", {"--sync_replicas", flag}).report["test_accuracy"], 0.92)
        << flag;
    async.push_back(Train("mnist-replica", {flag}).report["test_accuracy"]);
  }
  std::sort(async.begin(), async.end());
  EXPECT_GE(async[2], 0.92);
  EXPECT_GE(async[0], 0.85);
}

// The accuracy that the monitored session program ends with, all of it being killed at these steps
// and started again by the same command.
double MonitoredAccuracy(const std::string& data, int steps, const std::vector<int>& kills,
                         const std::vector<std::string>& more) {
  Sandbox sandbox;
  const test::TempDir logs;  // a save that is killed leaves a file there, until the next job
  const std::string path = sandbox.dir().File("r.json");
  const std::vector<std::string> command = With(
      {"train", "--preset=monitored", "--data_dir=" + data, "--job_id=" + sandbox.job(),
       fmt::format("--train_steps={}", steps), "--logs_dir=" + logs.path(), "--report=" + path},
      more);
  for (const int at : kills) {
    Program program = sandbox.Start(command);
    EXPECT_TRUE(sandbox.AwaitStep(at, 300)) << program.Err();
    program.Signal(SIGKILL);
    program.Wait();
    EXPECT_EQ(sandbox.Leftovers(10), "");
  }
  const Outcome end = sandbox.Run(command, 500);
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(end.err.find("goes on from") != std::string::npos, !kills.empty()) << end.err;
  EXPECT_EQ(UnfinishedFiles(logs.path()), "");
  const nlohmann::json report = ReadJson(path);
  EXPECT_GE(report["global_step"], steps);
  const double accuracy = report.value("test_accuracy", 0.0);
  fmt::print("monitored, killed {} times: {:.4f}\n", kills.size(), accuracy);
  std::fflush(stdout);
  return accuracy;
}

// In rounds not even a bit may differ, as long as nobody is evicted. A millisecond for each, so
// that none is done too soon.
TEST(SlowMonitoredKillTest, KilledAsAWholeItEndsWhereAnUndisturbedOneDoes) {
  const std::vector<std::string> rounds = {"--sync_replicas", "--save_steps=50",
                                           "--slow_worker=0:1ms,1:1ms", "--on_stall=wait"};
  const double undisturbed = MonitoredAccuracy(Digits(), 1200, {}, rounds);
  EXPECT_EQ(MonitoredAccuracy(Digits(), 1200, {200, 500}, rounds), undisturbed);
}

// On MNIST with all of its steps. What one undisturbed run reaches varies by 0.1 points.
TEST_F(SlowPresetTest, MonitoredKilledAsAWholeEndsWhereAnUndisturbedOneDoes) {
  std::vector<double> undisturbed;
  for (const char* seed : {"--seed=1", "--seed=2", "--seed=3"}) {
    undisturbed.push_back(MonitoredAccuracy(*mnist_, 100'000, {}, {seed, "--save_secs=3"}));
  }
  std::sort(undisturbed.begin(), undisturbed.end());
  EXPECT_NEAR(
      MonitoredAccuracy(*mnist_, 100'000, {30'000, 60'000, 90'000}, {"--seed=2", "--save_secs=3"}),
      undisturbed[1], 0.003);
}

}  // namespace
}  // namespace passel::testing

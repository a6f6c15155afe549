#include "train/log_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "train/server_lines.h"

namespace passel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A whole life of worker 1 of a job, with steps 1 to 3 that gave the global steps 2, 4 and 6.
std::vector<std::string> LifeOf(LogLineOptions options) {
  std::vector<std::string> lines;
  options.task = {"worker", 1};
  LogLines log(options, [&](std::string_view line) { lines.emplace_back(line); });
  log.Task();
  log.WorkerDevice("/job:worker/task:1/cpu:0");
  log.SessionBegins();
  log.SessionComplete();
  log.TrainingBegins(1700000000.25);
  for (int step = 1; step <= 3; ++step) {
    StepReport report;
    report.local_step = step;
    report.outcome.global_step = 2 * step;
    report.loss = 0.1 * step;
    log.Step(report, 1700000000.25 + step);
  }
  log.Evaluation({.accuracy = 0.9123456, .loss = 0.25, .loss_sum = 2500.123});
  log.TrainingEnds(1700000004.5, 4.25);
  WorkerResult result;
  result.global_step = 7;
  result.evaluation = TestResult{.accuracy = 0.8865, .loss = 0.4, .loss_sum = 4000};
  log.Final(result);
  return lines;
}

LogLineOptions Style(LogStyle style, std::int64_t steps) {
  LogLineOptions options;
  options.style = style;
  options.steps = steps;
  options.train_steps = 200;
  return options;
}

TEST(LogLines, DistMnistSaysWhatTheReferenceProgramSays) {
  EXPECT_THAT(
      LifeOf(Style(LogStyle::kDistMnist, 1)),
      ElementsAre("job name = worker", "task index = 1", "worker_device: /job:worker/task:1/cpu:0",
                  "Worker 1: Waiting for session to be initialized...",
                  "Worker 1: Session initialization complete.",
                  "Training begins @ 1700000000.250000",
                  "1700000001.250000: Worker 1: training step 1 done (global step: 2)",
                  "1700000002.250000: Worker 1: training step 2 done (global step: 4)",
                  "1700000003.250000: Worker 1: training step 3 done (global step: 6)",
                  "Training ends @ 1700000004.500000", "Training elapsed time: 4.250000 s",
                  "After 200 training step(s), validation cross entropy = 4000"));
}

TEST(LogLines, MnistReplicaHasItsOwnWords) {
  EXPECT_THAT(LifeOf(Style(LogStyle::kMnistReplica, 2)),
              ElementsAre("job name = worker", "task index = 1",
                          "Worker 1:Waiting for session to be initialized...",
                          "Worker 1: Session initialization complete.",
                          "Training begin @ 1700000000.250000",
                          "1700000002.250000: worker 1: training step 2 done (global step： 4)",
                          "Training ends @ 1700000004.500000", "Training elapsed time:4.250000 s",
                          "After 200 training steps,validation cross entropy = 4000"));
}

TEST(LogLines, K8sAdagradTellsEveryEvaluation) {
  EXPECT_THAT(
      LifeOf(Style(LogStyle::kK8sAdagrad, 3)),
      ElementsAre("job name = worker", "task index = 1",
                  "Worker 1: Waiting for session to be initialized...",
                  "Worker 1: Session initialization complete.",
                  "Training begins @ 1700000000.250000",
                  "1700000003.250000: Worker 1: training step 3 done (global step: 6)",
                  "acc: 0.912346", "cross entropy = 2500.12", "Training ends @ 1700000004.500000",
                  "Training elapsed time: 4.250000 s", "acc: 0.8865", "cross entropy = 4000"));
}

TEST(LogLines, AsyncSoftmaxPrintsFloatsWithAllTheirDigits) {
  LogLineOptions options = Style(LogStyle::kAsyncSoftmax, 2);
  EXPECT_THAT(
      LifeOf(options),
      ElementsAre("worker=1,epoch=1,global_step=4, local_step=2, loss = 0.20000000298023224",
                  "worker=1, final accuracy = 0.8865000009536743"));
}

TEST(LogLines, AsyncSoftmaxCountsEpochsFromZeroAndEndsThemWithTheirLastStep) {
  std::vector<std::string> lines;
  LogLineOptions options = Style(LogStyle::kAsyncSoftmax, 1);
  options.epochs = 10;
  LogLines log(options, [&](std::string_view line) { lines.emplace_back(line); });
  log.SetStepsPerEpoch(550);
  for (int step = 1; step <= 27500; ++step) {
    StepReport report;
    report.local_step = step;
    report.outcome.global_step = 3 * step;
    report.loss = 1;
    log.Step(report, 0);
  }
  EXPECT_THAT(lines,
              ElementsAre("worker=0,epoch=9,global_step=16500, local_step=5500, loss = 1.0",
                          "worker=0,epoch=19,global_step=33000, local_step=11000, loss = 1.0",
                          "worker=0,epoch=29,global_step=49500, local_step=16500, loss = 1.0",
                          "worker=0,epoch=39,global_step=66000, local_step=22000, loss = 1.0",
                          "worker=0,epoch=49,global_step=82500, local_step=27500, loss = 1.0"));
}

TEST(LogLines, MonitoredTellsTheRateOfTheChiefAlone) {
  LogLineOptions options = Style(LogStyle::kMonitored, 4);
  EXPECT_THAT(LifeOf(options), IsEmpty());
  for (const bool chief : {false, true}) {
    options.chief = chief;
    EXPECT_EQ(LogLines(options, [](std::string_view) {}).Hooks().size(), chief ? 1u : 0u);
  }
}

TEST(LogLines, TaskAddsTheAccuracyAndNoneSaysNothing) {
  EXPECT_EQ(LifeOf(Style(LogStyle::kTask, 1)).back(), "worker=1, final accuracy = 0.8865");
  EXPECT_THAT(LifeOf(Style(LogStyle::kNone, 1)), IsEmpty());
}

// A chief task and worker/0 of one job are two tasks.
TEST(LogLines, AChiefOfItsOwnIsNotTakenForWorkerZero) {
  for (const LogStyle style : {LogStyle::kTask, LogStyle::kDistMnist, LogStyle::kK8sAdagrad,
                               LogStyle::kMnistReplica, LogStyle::kAsyncSoftmax}) {
    std::vector<std::string> lines;
    LogLineOptions options = Style(style, 1);
    options.task = {"chief", 0};
    options.chief = true;
    LogLines log(options, [&](std::string_view line) { lines.emplace_back(line); });
    log.SessionBegins();
    log.SessionComplete();
    log.Step({.local_step = 1, .outcome = {}, .loss = 1, .accuracy = 1}, 0);
    WorkerResult result;
    result.evaluation = TestResult{.accuracy = 0.5, .loss = 1, .loss_sum = 1};
    log.Final(result);
    ASSERT_FALSE(lines.empty());
    int named = 0;
    for (const std::string& line : lines) {
      EXPECT_THAT(line, Not(HasSubstr("orker")));
      named += line.find("hief 0") != std::string::npos || line.find("chief=0,") == 0;
    }
    EXPECT_GE(named, style == LogStyle::kAsyncSoftmax ? 2 : 3);
  }
}

TEST(LogLines, ChiefInitialisesAndAnExistingServerIsNamed) {
  std::vector<std::string> lines;
  for (const LogStyle style : {LogStyle::kDistMnist, LogStyle::kMnistReplica, LogStyle::kTask}) {
    LogLineOptions options = Style(style, 1);
    options.chief = true;
    LogLines log(options, [&](std::string_view line) { lines.emplace_back(line); });
    log.SessionBegins();
    log.ExistingServer("localhost:2223");
  }
  EXPECT_THAT(lines, ElementsAre("Worker 0: Initializing session...",
                                 "Using existing server at: grpc://localhost:2223",
                                 "Worker 0:initializing sess ...",
                                 "Using existing server at: grpc://localhost:2223",
                                 "Worker 0: Initializing session...",
                                 "Using existing server at: localhost:2223"));  // no port, no gRPC
}

TEST(LogLines, TheWordsOfTheFrameworkAreForThoseWhoImitateAProgram) {
  EXPECT_EQ(WaitingLine(LogStyle::kMnistReplica, "chief/0"),
            "CreateSession still waiting for response from worker: /job:chief/replica:0/task:0");
  EXPECT_EQ(WaitingLine(LogStyle::kDistMnist, "ps/12"),
            "CreateSession still waiting for response from worker: /job:ps/replica:0/task:12");
  EXPECT_TRUE(TellsOfServers(LogStyle::kDistMnist));
  for (const LogStyle plain : {LogStyle::kTask, LogStyle::kNone}) {
    EXPECT_EQ(WaitingLine(plain, "ps/12"), "still waiting for ps/12");
    EXPECT_FALSE(TellsOfServers(plain));
  }
}

// A worker that evaluates for nobody wastes its time.
TEST(LogLines, EvaluationAtTheEndIsToldOfByAllWhoSaySo) {
  for (const LogStyle style :
       {LogStyle::kNone, LogStyle::kTask, LogStyle::kDistMnist, LogStyle::kMonitored,
        LogStyle::kAsyncSoftmax, LogStyle::kK8sAdagrad, LogStyle::kMnistReplica}) {
    int lines = 0;
    LogLines log(Style(style, 1), [&](std::string_view) { ++lines; });
    WorkerResult result;
    log.Final(result);
    EXPECT_EQ(lines, 0);
    result.evaluation = TestResult{};
    log.Final(result);
    EXPECT_EQ(lines > 0, TellsOfFinalEvaluation(style)) << static_cast<int>(style);
  }
}

TEST(LogLines, WithoutALimitOfGlobalStepsTheLastLineHasThoseThatWereMade) {
  LogLineOptions options = Style(LogStyle::kDistMnist, 1);
  options.train_steps = kNoStepLimit;
  EXPECT_EQ(LifeOf(options).back(), "After 7 training step(s), validation cross entropy = 4000");
}

TEST(LogLines, NothingIsSaidOfAnEvaluationThatWasNotMade) {
  std::vector<std::string> lines;
  LogLines log(Style(LogStyle::kTask, 1), [&](std::string_view line) { lines.emplace_back(line); });
  log.Final(WorkerResult{});
  EXPECT_THAT(lines, IsEmpty());
}

TEST(LogLines, UnknownStyleIsAnErrorThatListsThem) {
  EXPECT_EQ(*ParseLogStyle("k8s-adagrad"), LogStyle::kK8sAdagrad);
  EXPECT_THAT(ParseLogStyle("loud").status().message(), HasSubstr("mnist-replica"));
  EXPECT_THAT(ParseLogStyle("loud").status().message(), HasSubstr("--log_lines loud"));
}

}  // namespace
}  // namespace passel

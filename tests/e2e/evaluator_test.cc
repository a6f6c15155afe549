// The evaluator: follows a running job without being part of it.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <sstream>
#include <thread>

#include "support/hand_started.h"

namespace passel::testing {
namespace {

using ::testing::HasSubstr;

struct Line {
  bool final = false;
  std::int64_t step = 0;
  double accuracy = 0;
};

std::vector<Line> Evaluations(const std::string& out) {
  std::vector<Line> lines;
  std::istringstream text(out);
  for (std::string line; std::getline(text, line) && !text.eof();) {  // whole lines
    Line read;
    read.final = line.rfind("final ", 0) == 0;
    const char* const rest = line.c_str() + (read.final ? 6 : 0);
    double loss = -1;
    if (std::sscanf(rest, "evaluation at global step %" SCNd64 ": test accuracy %lf, test loss %lf",
                    &read.step, &read.accuracy, &loss) != 3) {
      continue;
    }
    EXPECT_GE(loss, 0);
    EXPECT_GE(read.accuracy, 0);
    EXPECT_LE(read.accuracy, 1);
    lines.push_back(read);
  }
  return lines;
}

// One final evaluation, at the end; steps never go back.
void ExpectInOrder(const std::vector<Line>& lines) {
  ASSERT_FALSE(lines.empty());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i].final, i + 1 == lines.size()) << i;
    if (i > 0) {
      EXPECT_GE(lines[i].step, lines[i - 1].step);
    }
  }
}

bool AwaitEvaluations(Program& program, std::size_t count, double seconds = 15) {
  const Deadline deadline = Deadline::After(Scaled(seconds));
  while (!deadline.Expired()) {
    if (Evaluations(program.Out()).size() >= count) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

const std::vector<std::string> kFollowed = {"--train_steps=100000000", "--start_wait=20",
                                            "--eval_interval=0.05"};

TEST(EvaluatorTest, SupervisedOneReportsTheLiveValuesAndTheLastOnes) {
  for (const char* mode : {"--mode=hogwild", "--mode=barrier"}) {
    Sandbox sandbox;
    const std::string report = sandbox.dir().File("r.json");
    const Outcome outcome = sandbox.Run(
        sandbox.Train({"--evaluator", "--eval_steps=100", "--ps=2", "--train_steps=1000",
                       "--slow_worker=0:1ms,1:1ms", mode, "--report=" + report}),
        60);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const std::vector<Line> lines = Evaluations(outcome.out);
    ExpectInOrder(lines);
    EXPECT_GE(lines.size(), 4u) << outcome.out;
    EXPECT_LT(lines.front().step, 500) << outcome.out;
    const nlohmann::json json = ReadJson(report);
    // The same values, evaluated by another process.
    EXPECT_EQ(lines.back().step, json["global_step"].get<std::int64_t>());
    EXPECT_NEAR(lines.back().accuracy, json["test_accuracy"].get<double>(), 0.00005);
    EXPECT_EQ(json["workers"].size(), 2u);  // it is none
    EXPECT_EQ(sandbox.Leftovers(), "");
  }
}

TEST(EvaluatorTest, ByHandItMayComeFirstAndEndsWithTheJob) {
  HandStarted job(
      2, 2, {"--train_steps=400", "--start_wait=20", "--mode=barrier", "--eval_interval=0.02"});
  job.Start("evaluator/0");
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  for (const char* task : {"worker/1", "ps/1", "worker/0", "ps/0"}) job.Start(task);
  job.ExpectEnd();
  const std::vector<Line> lines = Evaluations(job["evaluator/0"].Out());
  ExpectInOrder(lines);
  EXPECT_EQ(lines.back().step, 400);
  EXPECT_THAT(job["worker/1"].Out(), HasSubstr("training step 400 done (global step: 400)"));
}

TEST(EvaluatorTest, KilledOneAffectsNobodyAndMayBeStartedAgain) {
  HandStarted job(1, 2, With(kFollowed, {"--mode=barrier"}));
  job.StartAll();
  for (int life = 0; life < 3; ++life) {
    Program& evaluator = job.Start("evaluator/0");
    ASSERT_TRUE(AwaitEvaluations(evaluator, 2)) << evaluator.Err();
    if (life == 0) {
      EXPECT_THAT(OnlyError(job.sandbox().Run(job.Task("evaluator/0"), 5)),
                  HasSubstr("evaluator/0"));
    }
    evaluator.Signal(life == 2 ? SIGTERM : SIGKILL);
    ASSERT_TRUE(evaluator.Wait(5));
    EXPECT_TRUE(job.Advances(50));
  }
  job.Stop({"ps/0", "worker/0", "worker/1"});
  for (const char* task : {"ps/0", "worker/0", "worker/1"}) {
    EXPECT_EQ(job.Finish(task).errors.size(), 0u) << job[task].Err();
  }
}

TEST(EvaluatorTest, KilledChildOfASupervisorIsOnlyNoted) {
  Sandbox sandbox;
  Program train = sandbox.Start(sandbox.Train(
      {"--evaluator", "--eval_interval=0.05", "--train_steps=1500", "--slow_worker=0:1ms,1:1ms"}));
  ASSERT_TRUE(AwaitEvaluations(train, 1)) << train.Err();
  const pid_t evaluator = sandbox.AwaitTask("evaluator", 0);
  ASSERT_GT(evaluator, 0);
  ::kill(evaluator, SIGKILL);
  const Outcome outcome = sandbox.Finish(train, 30);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("evaluator/0 was killed by"));
  EXPECT_THAT(outcome.err, HasSubstr("training goes on without it"));
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(EvaluatorTest, OutlivesThePsAndFindsItAgain) {
  HandStarted job(1, 1, kFollowed);
  for (const char* task : {"ps/0", "worker/0", "evaluator/0"}) job.Start(task);
  Program& evaluator = job["evaluator/0"];
  ASSERT_TRUE(AwaitEvaluations(evaluator, 2)) << evaluator.Err();
  job.Kill("ps/0");
  // Training goes on in the arena, and so does evaluation.
  const std::size_t seen = Evaluations(evaluator.Out()).size();
  ASSERT_TRUE(AwaitEvaluations(evaluator, seen + 2)) << evaluator.Err();
  EXPECT_THAT(evaluator.Err(), HasSubstr("ps/0 is gone"));
  job.Start("ps/0");
  ASSERT_TRUE(evaluator.WaitFor("ps/0 is back")) << evaluator.Err();
  ASSERT_TRUE(AwaitEvaluations(evaluator, Evaluations(evaluator.Out()).size() + 2));
  job["ps/0"].Signal(SIGINT);
  job.ExpectEnd(130);
  ExpectInOrder(Evaluations(evaluator.Out()));
}

TEST(EvaluatorTest, LaunchKnowsItAsARole) {
  Sandbox sandbox;
  const Outcome outcome =
      sandbox.Run({"launch", "ps=1", "worker=1", "evaluator=1", "--data_dir=" + Digits(),
                   "--train_steps=50", "--job_id=" + sandbox.job()},
                  20);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  ExpectInOrder(Evaluations(outcome.out));
  EXPECT_THAT(OnlyError(sandbox.Run({"launch", "ps=1", "worker=1", "evaluator=2"}), 2),
              HasSubstr("evaluator=0 or 1"));
}

TEST(EvaluatorTest, SupervisorStartsThePsAnewUnderIt) {
  Sandbox sandbox;
  Program train = sandbox.Start(sandbox.Train(
      {"--evaluator", "--eval_interval=0.05", "--train_steps=2500", "--slow_worker=0:1ms,1:1ms"}));
  ASSERT_TRUE(AwaitEvaluations(train, 1)) << train.Err();
  const pid_t ps = sandbox.AwaitTask("ps", 0);
  ASSERT_GT(ps, 0);
  ::kill(ps, SIGKILL);
  ASSERT_TRUE(train.WaitFor("starting it again on the same arena")) << train.Err();
  ASSERT_TRUE(AwaitEvaluations(train, Evaluations(train.Out()).size() + 2)) << train.Err();
  const Outcome outcome = sandbox.Finish(train, 30);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  ExpectInOrder(Evaluations(outcome.out));
  EXPECT_GE(Evaluations(outcome.out).back().step, 2500);
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(EvaluatorTest, AllItsWaitsEnd) {
  HandStarted job(1, 1, {"--train_steps=100000000", "--eval_interval=0.05"});
  const auto start = [&] { job.Start("evaluator/0", "", {"--start_wait=0.6", "--ps_wait=0.6"}); };
  start();
  EXPECT_THAT(job.OnlyErrorOf("evaluator/0", 143), HasSubstr("ps/0"));
  job.Start("ps/0", "", {"--start_wait=20"});
  start();
  EXPECT_THAT(job.OnlyErrorOf("evaluator/0", 143), HasSubstr("the chief, worker/0"));
  job.Start("worker/0", "", {"--start_wait=20"});
  start();
  ASSERT_TRUE(AwaitEvaluations(job["evaluator/0"], 1)) << job["evaluator/0"].Err();
  for (const char* task : {"ps/0", "worker/0"}) job[task].Signal(SIGKILL);
  EXPECT_THAT(job.OnlyErrorOf("evaluator/0", 143), HasSubstr("--ps_wait"));
}

TEST(EvaluatorTest, StoppedPsHoldsNobodyUp) {
  HandStarted job(1, 1, kFollowed);
  for (const char* task : {"ps/0", "worker/0", "evaluator/0"}) job.Start(task);
  Program& evaluator = job["evaluator/0"];
  ASSERT_TRUE(AwaitEvaluations(evaluator, 1)) << evaluator.Err();
  job["ps/0"].Signal(SIGSTOP);
  const std::size_t seen = Evaluations(evaluator.Out()).size();
  EXPECT_TRUE(AwaitEvaluations(evaluator, seen + 3)) << evaluator.Err();
  for (const int signal : {SIGCONT, SIGINT}) job["ps/0"].Signal(signal);
  job.ExpectEnd(130);
}

TEST(EvaluatorTest, AnotherModelThanThatOfTheJobIsRefused) {
  HandStarted job(1, 1, kFollowed);
  job.StartAll();
  ASSERT_TRUE(job["worker/0"].WaitFor("Training begins"));
  EXPECT_THAT(OnlyError(job.sandbox().Run(job.Task("evaluator/0", {"--hidden_units=7"}))),
              HasSubstr("hid_w"));
  job["ps/0"].Signal(SIGINT);
  job.ExpectEnd(130);
}

TEST(EvaluatorTest, ReadsTheValuesOfOneStepIfThatIsAskedFor) {
  Sandbox sandbox;
  const Outcome outcome = sandbox.Run(
      sandbox.Train({"--evaluator", "--eval_steps=50", "--eval_consistent", "--ps=2",
                     "--train_steps=600", "--slow_worker=0:1ms,1:1ms", "--mode=hogwild"}),
      60);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  ExpectInOrder(Evaluations(outcome.out));
  EXPECT_THAT(outcome.err, HasSubstr("ms at most for the values of global step"));
  EXPECT_EQ(outcome.err.find("may be of several steps"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace passel::testing

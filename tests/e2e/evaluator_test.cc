// The evaluator: follows a running job without being part of it.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <sstream>
#include <thread>

#include "support/program.h"

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
  Sandbox sandbox;
  const std::vector<std::string> flags = {"--train_steps=400", "--start_wait=20", "--mode=barrier",
                                          "--eval_interval=0.02"};
  Program evaluator = sandbox.Start(sandbox.Task("evaluator", 0, 2, 2, flags));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  std::vector<Program> tasks;
  for (const auto& [job, index] :
       {std::pair("worker", 1), std::pair("ps", 1), std::pair("worker", 0), std::pair("ps", 0)}) {
    tasks.push_back(sandbox.Start(sandbox.Task(job, index, 2, 2, flags)));
  }
  for (Program& task : tasks) EXPECT_EQ(sandbox.Finish(task, 20).code, 0) << task.Err();
  const Outcome outcome = sandbox.Finish(evaluator, 10);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  ExpectInOrder(Evaluations(outcome.out));
  EXPECT_EQ(Evaluations(outcome.out).back().step, 400);
  EXPECT_THAT(tasks[0].Out(), HasSubstr("training step 400 done (global step: 400)"));
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(EvaluatorTest, KilledOneAffectsNobodyAndMayBeStartedAgain) {
  Sandbox sandbox;
  std::vector<std::string> flags = kFollowed;
  flags.emplace_back("--mode=barrier");
  Program ps = sandbox.Start(sandbox.Task("ps", 0, 1, 2, flags));
  Program chief = sandbox.Start(sandbox.Task("worker", 0, 1, 2, flags));
  Program worker = sandbox.Start(sandbox.Task("worker", 1, 1, 2, flags));
  for (int life = 0; life < 3; ++life) {
    Program evaluator = sandbox.Start(sandbox.Task("evaluator", 0, 1, 2, flags));
    ASSERT_TRUE(AwaitEvaluations(evaluator, 2)) << evaluator.Err();
    if (life == 0) {
      EXPECT_THAT(OnlyError(sandbox.Run(sandbox.Task("evaluator", 0, 1, 2, flags), 5), 2),
                  HasSubstr("evaluator/0"));
    }
    evaluator.Signal(life == 2 ? SIGTERM : SIGKILL);
    ASSERT_TRUE(evaluator.Wait(5));
    const std::int64_t step = sandbox.GlobalStep();
    const Deadline deadline = Deadline::After(Scaled(10.0));
    while (sandbox.GlobalStep() < step + 50 && !deadline.Expired()) continue;
    EXPECT_GE(sandbox.GlobalStep(), step + 50);
  }
  EXPECT_EQ(sandbox.Run({"ctl", "stop", sandbox.job()}).code, 0);
  for (Program* p : {&ps, &chief, &worker}) {
    const Outcome outcome = sandbox.Finish(*p, 5);
    EXPECT_EQ(outcome.code, 130);
    EXPECT_EQ(outcome.errors.size(), 0u) << outcome.err;
  }
  EXPECT_EQ(sandbox.Leftovers(), "");
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
  Sandbox sandbox;
  Program ps = sandbox.Start(sandbox.Task("ps", 0, 1, 1, kFollowed));
  Program worker = sandbox.Start(sandbox.Task("worker", 0, 1, 1, kFollowed));
  Program evaluator = sandbox.Start(sandbox.Task("evaluator", 0, 1, 1, kFollowed));
  ASSERT_TRUE(AwaitEvaluations(evaluator, 2)) << evaluator.Err();
  ps.Signal(SIGKILL);
  ps.Wait();
  // Training goes on in the arena, and so does evaluation.
  const std::size_t seen = Evaluations(evaluator.Out()).size();
  ASSERT_TRUE(AwaitEvaluations(evaluator, seen + 2)) << evaluator.Err();
  EXPECT_THAT(evaluator.Err(), HasSubstr("ps/0 is gone"));
  ps = sandbox.Start(sandbox.Task("ps", 0, 1, 1, kFollowed));
  ASSERT_TRUE(evaluator.WaitFor("ps/0 is back")) << evaluator.Err();
  ASSERT_TRUE(AwaitEvaluations(evaluator, Evaluations(evaluator.Out()).size() + 2));
  ps.Signal(SIGINT);
  EXPECT_EQ(sandbox.Finish(worker, 5).code, 130);
  const Outcome outcome = sandbox.Finish(evaluator, 5);
  EXPECT_EQ(outcome.code, 130) << outcome.err;
  ExpectInOrder(Evaluations(outcome.out));
  EXPECT_EQ(sandbox.Finish(ps, 5).code, 130);
  EXPECT_EQ(sandbox.Leftovers(), "");
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
  Sandbox sandbox;
  const std::vector<std::string> flags = {"--train_steps=100000000", "--start_wait=0.6",
                                          "--ps_wait=0.6", "--eval_interval=0.05"};
  EXPECT_THAT(OnlyError(sandbox.Run(sandbox.Task("evaluator", 0, 1, 1, flags), 5), 143),
              HasSubstr("ps/0"));
  Program ps = sandbox.Start(sandbox.Task("ps", 0, 1, 1, kFollowed));
  ASSERT_TRUE(ps.WaitFor("is ready for its workers"));
  EXPECT_THAT(OnlyError(sandbox.Run(sandbox.Task("evaluator", 0, 1, 1, flags), 5), 143),
              HasSubstr("the chief, worker/0"));
  Program worker = sandbox.Start(sandbox.Task("worker", 0, 1, 1, kFollowed));
  Program evaluator = sandbox.Start(sandbox.Task("evaluator", 0, 1, 1, flags));
  ASSERT_TRUE(AwaitEvaluations(evaluator, 1)) << evaluator.Err();
  for (Program* p : {&ps, &worker}) p->Signal(SIGKILL);
  EXPECT_THAT(OnlyError(sandbox.Finish(evaluator, 5), 143), HasSubstr("--ps_wait"));
}

TEST(EvaluatorTest, StoppedPsHoldsNobodyUp) {
  Sandbox sandbox;
  Program ps = sandbox.Start(sandbox.Task("ps", 0, 1, 1, kFollowed));
  Program worker = sandbox.Start(sandbox.Task("worker", 0, 1, 1, kFollowed));
  Program evaluator = sandbox.Start(sandbox.Task("evaluator", 0, 1, 1, kFollowed));
  ASSERT_TRUE(AwaitEvaluations(evaluator, 1)) << evaluator.Err();
  ps.Signal(SIGSTOP);
  const std::size_t seen = Evaluations(evaluator.Out()).size();
  EXPECT_TRUE(AwaitEvaluations(evaluator, seen + 3)) << evaluator.Err();
  ps.Signal(SIGCONT);
  ps.Signal(SIGINT);
  for (Program* p : {&ps, &worker, &evaluator}) EXPECT_EQ(sandbox.Finish(*p, 5).code, 130);
}

TEST(EvaluatorTest, WrongFlagsAreRefused) {
  Sandbox sandbox;
  EXPECT_THAT(OnlyError(sandbox.Run(sandbox.Train({"--evaluator", "--eval_interval=0"})), 2),
              HasSubstr("--eval_interval"));
  EXPECT_THAT(OnlyError(sandbox.Run(sandbox.Train({"--evaluator", "--eval_steps=-1"})), 2),
              HasSubstr("--eval_steps"));
  EXPECT_THAT(OnlyError(sandbox.Run(sandbox.Train({"--evaluator", "--ps=0", "--workers=1"})), 2),
              HasSubstr("--evaluator"));
  EXPECT_THAT(OnlyError(sandbox.Run(sandbox.Task("evaluator", 1, 1, 1)), 2),
              HasSubstr("at most one 'evaluator'"));
  Program ps = sandbox.Start(sandbox.Task("ps", 0, 1, 1, kFollowed));
  Program worker = sandbox.Start(sandbox.Task("worker", 0, 1, 1, kFollowed));
  ASSERT_TRUE(worker.WaitFor("Training begins"));
  EXPECT_THAT(OnlyError(sandbox.Run(sandbox.Task("evaluator", 0, 1, 1, {"--hidden_units=7"})), 2),
              HasSubstr("hid_w"));
  ps.Signal(SIGINT);
  for (Program* p : {&ps, &worker}) EXPECT_EQ(sandbox.Finish(*p, 5).code, 130);
}

}  // namespace
}  // namespace passel::testing

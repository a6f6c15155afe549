// What comes after the last step: the evaluation, whether the values are numbers, the file.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "support/program.h"

namespace passel::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// The process of the sandbox whose command line has `word`, waited for; 0 if there is none.
pid_t AwaitProcess(const Sandbox& sandbox, const std::string& word) {
  const Deadline deadline = Deadline::After(Scaled(20));
  while (!deadline.Expired()) {
    for (const auto& [pid, command] : sandbox.Processes()) {
      if (command.find(word) != std::string::npos && command.find(PASSEL_PROGRAM) == 0) return pid;
    }
  }
  return 0;
}

// Ten thousand images, on a model that takes seconds for them, and so as many threads as workers.
TEST(ConclusionTest, EvaluationIsSeenAndASignalEndsItButNotTheSaving) {
  for (const int signal : {SIGINT, SIGTERM}) {
    Sandbox sandbox;
    const std::string model = sandbox.dir().File("m"), report = sandbox.dir().File("r");
    std::string command = PASSEL_PROGRAM;
    for (const char* argument : {"train", "--fake_data", "--hidden_units=12000", "--optimizer=sgd",
                                 "--batch_size=10", "--train_steps=2", "--workers=2"}) {
      command += std::string(" ") + argument;
    }
    command += " --job_id=" + sandbox.job() + " --save=" + model + " --report=" + report;
    Program terminal = sandbox.StartCommand({"script", "-qefc", command, "/dev/null"});
    if (!terminal.WaitFor("evaluating ", 60)) {
      if (sandbox.Finish(terminal).code == 127) GTEST_SKIP() << "no `script` to make a terminal";
      FAIL() << terminal.Out();
    }
    ::kill(AwaitProcess(sandbox, " train "), signal);
    const Outcome outcome = sandbox.Finish(terminal);
    EXPECT_EQ(outcome.code, signal == SIGINT ? 130 : 143);
    EXPECT_THAT(outcome.out, AllOf(HasSubstr("/10000  test images"), HasSubstr("not evaluated"),
                                   HasSubstr("ended the evaluation"), HasSubstr("saved " + model)));
    const nlohmann::json json = ReadJson(report);
    EXPECT_EQ(json["exit_code"], outcome.code);
    EXPECT_EQ(json["interrupted"], true);
    EXPECT_TRUE(json["test_accuracy"].is_null());
    EXPECT_TRUE(std::filesystem::exists(model));
    EXPECT_EQ(sandbox.Leftovers(), "");
  }
}

TEST(ConclusionTest, WithoutATerminalALongEvaluationIsOneLine) {
  Sandbox sandbox;
  sandbox.SetEnv("PASSEL_FAILPOINT", "train.evaluating:2:sleep2100");  // of two batches
  const Outcome outcome = sandbox.Run(sandbox.Train({"--train_steps=10"}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("\nevaluating 500/1000  test images"));
}

// Both workers compute before either adds its update, so that one comes too much.
TEST(ConclusionTest, ProgressShowsNoStepAboveTheLimit) {
  Sandbox sandbox;
  sandbox.SetEnv("PASSEL_FAILPOINT", "worker.before_leave:1:sleep400");
  const Outcome outcome = sandbox.Run(
      sandbox.Train({"--slow_worker=0:600ms", "--slow_worker=1:600ms", "--train_steps=1"}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("2 global steps"));
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("step 1/1"), Not(HasSubstr("step 2/1"))));
}

TEST(ConclusionTest, ALossThatIsFiniteButWorseThanGuessingIsSaid) {
  Sandbox sandbox;
  const std::string report = sandbox.dir().File("r");
  const Outcome outcome =
      sandbox.Run(sandbox.Train({"--ps=0", "--optimizer=sgd", "--train_steps=1",
                                 "--learning_rate=1e10", "--report=" + report}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("is worse than guessing would be (2.3026)"));
  EXPECT_THAT(ReadJson(report)["notes"].dump(), HasSubstr("lower --learning_rate"));
}

TEST(ConclusionTest, WhatTheLastUpdateSpoiltIsSaidAndTheExitCodeIsOne) {
  struct Case {
    const char* loss;
    const char* word;
  };
  // A sum over the batch overflows the values themselves, a mean what the model makes of them.
  for (const Case& c : {Case{"sum", " is not finite after the last update (global step 1)"},
                        Case{"mean", "the loss on the test images is not finite"}}) {
    const std::vector<std::string> flags = {"--optimizer=sgd", "--learning_rate=8e37",
                                            "--train_steps=1", std::string("--loss=") + c.loss};
    for (const char* ps : {"--ps=0", "--ps=1"}) {
      SCOPED_TRACE(std::string(ps) + c.word);
      Sandbox sandbox;
      const std::string report = sandbox.dir().File("r");
      const std::vector<std::string> all = With(flags, {ps, "--workers=1", "--report=" + report});
      const Outcome outcome = sandbox.Run(sandbox.Train(all));
      EXPECT_THAT(OnlyError(outcome, 1), AllOf(HasSubstr(c.word), HasSubstr("--learning_rate")));
      EXPECT_THAT(outcome.out, AllOf(HasSubstr("test loss nan"), HasSubstr(c.word)));
      EXPECT_THAT(outcome.out + outcome.err, Not(HasSubstr("-nan")));
      EXPECT_EQ(ReadJson(report)["exit_code"], 1);
      EXPECT_TRUE(ReadJson(report)["test_loss"].is_null());
    }
    Sandbox sandbox;
    Program ps = sandbox.Start(sandbox.Task("ps", 0, 1, 1, flags));
    EXPECT_THAT(OnlyError(sandbox.Run(sandbox.Task("worker", 0, 1, 1, flags)), 1),
                HasSubstr(c.word));
  }
}

TEST(ConclusionTest, NothingIsCalledSavedThatIsNot) {
  Sandbox sandbox;
  const std::string dir = sandbox.dir().File("gone");
  std::filesystem::create_directory(dir);
  Program train = sandbox.Start(sandbox.Train(
      {"--workers=1", "--slow_worker=0:400ms", "--train_steps=2", "--save=" + dir + "/m"}));
  ASSERT_TRUE(train.WaitFor("1 worker, "));  // it has looked at the path
  std::filesystem::remove(dir);
  const Outcome outcome = sandbox.Finish(train);
  EXPECT_THAT(OnlyError(outcome, 1), HasSubstr(dir));
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("test accuracy"), Not(HasSubstr("saved "))));
}

}  // namespace
}  // namespace passel::testing

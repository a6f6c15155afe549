// Which tasks of a supervised job are started again, how often, and after which pause.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "support/program.h"

namespace passel::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ExitCodeTest, DecidesWhetherATaskIsStartedAgain) {
  struct Case {
    const char* failpoint;
    int code;  // of the job
    const char *says, *does_not_say;
  };
  const char* const again = "starting it again";
  for (const Case& c :
       {Case{"worker.computed:5:exit126", 2, "exited with 126", again},
        Case{"worker.computed:5:exit3", 0, "exited with 3; the others go on", again},
        Case{"worker.computed:5:exit138", 0, "exited with 138; starting it again", "go on"},
        Case{"arena.reserved:1:exit3", 1, "ps/0 exited with 3", again},
        Case{"ps.published:1:exit143", 0, "ps/0 exited with 143; starting it again", "go on"}}) {
    SCOPED_TRACE(c.failpoint);
    Sandbox sandbox;
    sandbox.SetEnv("PASSEL_FAILPOINT", std::string(c.failpoint) + ":" + sandbox.dir().File("once"));
    const Outcome outcome =
        sandbox.Run(sandbox.Train({"--train_steps=300", "--pin=none", "--max_restarts=5"}), 20);
    EXPECT_EQ(outcome.code, c.code) << outcome.err;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr(c.says), Not(HasSubstr(c.does_not_say))));
    EXPECT_EQ(outcome.errors.size(), c.code == 0 ? 0u : 1u) << outcome.err;
    EXPECT_EQ(sandbox.Leftovers(), "");
  }
}

// Two deaths of a worker, of which one restart is allowed.
void KillTwice(const char* window, std::chrono::milliseconds between, bool second_restart) {
  SCOPED_TRACE(window);
  Sandbox sandbox;
  Program train = sandbox.Start(sandbox.Train(
      {"--train_steps=100000000", "--max_restarts=1", std::string("--restart_window=") + window}));
  ASSERT_TRUE(sandbox.Advances(20)) << train.Err();
  const pid_t first = sandbox.AwaitTask("worker", 1);
  ASSERT_NE(first, 0);
  ::kill(first, SIGKILL);
  ASSERT_TRUE(train.WaitFor("worker/1 was killed by SIGKILL (9); starting it again\n"));
  std::this_thread::sleep_for(between);
  const pid_t second = sandbox.AwaitTask("worker", 1, first);
  ASSERT_NE(second, 0) << train.Err();
  ::kill(second, SIGKILL);
  if (second_restart) {
    EXPECT_NE(sandbox.AwaitTask("worker", 1, second), 0) << train.Err();
  } else {
    EXPECT_TRUE(train.WaitFor(
        "worker/1 was killed by SIGKILL (9); the others go on (--max_restarts 1 is used up)"))
        << train.Err();
  }
  sandbox.Interrupt(train);
}

TEST(RestartWindowTest, RestartsCountWithinIt) {
  KillTwice("3600", std::chrono::milliseconds(0), false);
  KillTwice("0.2", std::chrono::milliseconds(250), true);
}

// Which life of whom began and ended when, and what it said last.
TEST(LivesTest, AreInTheReportAndTheFirstDeathInTheSummary) {
  Sandbox sandbox;
  const std::string path = sandbox.dir().File("r");
  Program train = sandbox.Start(
      sandbox.Train({"--train_steps=100000000", "--max_restarts=1", "--log_lines=dist-mnist",
                     "--log_step_count_steps=100000", "--report=" + path}));
  ASSERT_TRUE(train.WaitFor("Worker 1: Session initialization complete.")) << train.Out();
  ASSERT_TRUE(sandbox.Advances(20)) << train.Err();
  ::kill(sandbox.TaskPid("worker", 1), SIGKILL);
  ASSERT_TRUE(train.WaitFor("worker/1 was killed by SIGKILL (9); starting it again"))
      << train.Err();
  ::kill(sandbox.TaskPid("ps", 0), SIGTERM);
  ASSERT_TRUE(train.WaitFor("ps/0 exited with 0; starting it again")) << train.Err();
  ASSERT_TRUE(sandbox.Advances(20)) << train.Err();
  const Outcome outcome = sandbox.Interrupt(train);

  const nlohmann::json report = ReadJson(path);
  ASSERT_TRUE(report.is_object());
  std::vector<std::string> starts;
  double before = 0;
  for (const nlohmann::json& start : report["starts"]) {
    starts.push_back(
        fmt::format("{} {}", start["task"].get<std::string>(), start["life"].get<int>()));
    EXPECT_GE(start["at_s"].get<double>(), before);
    before = start["at_s"].get<double>();
  }
  EXPECT_THAT(starts,
              ::testing::ElementsAre("ps/0 1", "worker/0 1", "worker/1 1", "worker/1 2", "ps/0 2"));
  EXPECT_LE(before, report["seconds"].get<double>());
  ASSERT_EQ(report["deaths"].size(), 2u) << report["deaths"];
  const nlohmann::json &worker = report["deaths"][0], &ps = report["deaths"][1];
  EXPECT_EQ(worker["task"], "worker/1");
  EXPECT_EQ(worker["life"], 1);
  EXPECT_EQ(worker["signal"], SIGKILL);
  EXPECT_TRUE(worker["exit_code"].is_null());
  EXPECT_EQ(worker["restarted"], true);
  EXPECT_GE(worker["at_s"].get<double>(), report["starts"][2]["at_s"].get<double>());
  EXPECT_LE(worker["at_s"].get<double>(), report["starts"][3]["at_s"].get<double>());
  EXPECT_THAT(worker["last_lines"].dump(), HasSubstr("Worker 1: Session initialization complete."));
  EXPECT_THAT(worker["last_lines"].dump(), Not(HasSubstr("Worker 0: ")));
  EXPECT_EQ(ps["task"], "ps/0");
  EXPECT_EQ(ps["exit_code"], 0);
  EXPECT_EQ(report["ps_restarts"], 1);
  EXPECT_THAT(outcome.out, AllOf(::testing::ContainsRegex(
                                     "worker/1 died first, after [0-9.]+ s: it was killed by "
                                     "SIGKILL \\(9\\); its last lines:\n  "),
                                 HasSubstr("ps/0 died, after "), Not(HasSubstr("note: worker"))));
}

// The last misfortune ends the job, but the first one may have led to it.
TEST(LivesTest, LineOfAFailedJobNamesTheFirstDeath) {
  Sandbox sandbox;
  sandbox.SetEnv("PASSEL_FAILPOINT", "worker.computed:1500:exit126:" + sandbox.dir().File("once"));
  Program train = sandbox.Start(sandbox.Train({"--train_steps=100000000"}));
  ASSERT_TRUE(sandbox.Advances(20)) << train.Err();
  ::kill(sandbox.TaskPid("ps", 0), SIGKILL);
  EXPECT_THAT(OnlyError(sandbox.Finish(train, 20), 2),
              ::testing::ContainsRegex("worker/[01] exited with 126; ps/0 died first, after "
                                       "[0-9.]+ s: it was killed by SIGKILL \\(9\\)"));
  EXPECT_EQ(sandbox.Leftovers(), "");
}

// A chief that never gets to train, so that the pauses grow.
TEST(RestartPauseTest, EndsWithTheWishToStop) {
  Sandbox sandbox;
  sandbox.SetEnv("PASSEL_FAILPOINT", "chief.before_open:1:kill");
  Program train =
      sandbox.Start(sandbox.Train({"--train_steps=100", "--max_restarts=100", "--workers=1"}));
  ASSERT_TRUE(train.WaitFor("; starting it again in 1.6 s\n")) << train.Err();
  train.Signal(SIGTERM);
  const Outcome outcome = sandbox.Finish(train, 1);
  EXPECT_EQ(outcome.code, 143) << outcome.err;
  EXPECT_THAT(outcome.err, Not(HasSubstr("in 3.2 s")));
  EXPECT_EQ(sandbox.Leftovers(), "");
}

}  // namespace
}  // namespace passel::testing

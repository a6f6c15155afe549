// A task dies, or is stopped, at a named place: mostly in the windows of the start, where there is
// least to hold on to.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <optional>

#include "support/program.h"
#include "support/whole_checkpoints.h"

namespace passel::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Window {
  const char* point;
  int hit;
  const char* mode;
  const char* victim;  // as the job names it; "" if the place may not be reached by that time
  int restarts = 0;
};

class WindowTest : public ::testing::TestWithParam<Window> {};

// Whoever reaches the place first is killed there, once; the job finishes all the same.
TEST_P(WindowTest, KilledTaskDoesNotStopTheJob) {
  const Window& window = GetParam();
  Sandbox sandbox;
  sandbox.SetEnv("PASSEL_FAILPOINT", fmt::format("{}:{}:kill:{}", window.point, window.hit,
                                                 sandbox.dir().File("killed")));
  const Outcome outcome = sandbox.Run(
      sandbox.Train({"--ps=2", "--workers=3", "--pin=none", "--train_steps=300",
                     fmt::format("--max_restarts={}", window.restarts),
                     fmt::format("--mode={}", window.mode), "--report=" + sandbox.dir().File("r")}),
      20);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.errors.size(), 0u) << outcome.err;
  EXPECT_GE(ReadJson(sandbox.dir().File("r"))["global_step"], 300);
  EXPECT_EQ(sandbox.Leftovers(), "");
  EXPECT_THAT(outcome.err, HasSubstr(window.victim));
  EXPECT_THAT(outcome.err, HasSubstr("was killed by SIGKILL (9)"));
}

INSTANTIATE_TEST_SUITE_P(
    Fault, WindowTest,
    ::testing::Values(Window{"arena.reserved", 1, "hogwild", "ps/0"},
                      Window{"arena.before_publish", 1, "hogwild", "ps/0"},
                      Window{"ps.published", 1, "hogwild", "ps/0"},
                      Window{"ps.published", 1, "barrier", "ps/0", 1},
                      Window{"ps.kept", 1, "hogwild", "ps/0"},
                      Window{"chief.before_open", 1, "hogwild", "worker/0"},
                      Window{"chief.before_open", 2, "hogwild", "worker/0", 1},
                      Window{"chief.before_open", 1, "barrier", "worker/0", 1},
                      Window{"join.claimed", 1, "hogwild", "worker/"},
                      Window{"join.follow", 1, "locked", "worker/", 1},
                      Window{"join.claimed", 1, "barrier", "worker/", 1},
                      Window{"join.follow", 1, "barrier", "worker/"},
                      Window{"worker.computed", 1, "barrier", "worker/", 1},
                      Window{"worker.computed", 40, "hogwild", "worker/"},
                      Window{"push.claimed", 500, "locked", "worker/", 1},
                      Window{"push.before_version", 20, "hogwild", "worker/"},
                      Window{"round.arrived", 20, "barrier", "worker/", 1},
                      Window{"round.decided", 10, "barrier", "worker/"},
                      Window{"round.saved", 100, "barrier", "worker/", 1},
                      Window{"round.applied", 100, "barrier", "worker/"},
                      Window{"round.before_finish", 10, "barrier", "worker/", 1},
                      Window{"worker.before_leave", 1, "hogwild", "worker/", 1}),
    [](const auto& test) {
      std::string name = fmt::format("{}_{}_{}", test.param.point, test.param.hit, test.param.mode);
      std::ranges::replace(name, '.', '_');
      return name;
    });

// Every place in every mode, where it is reached first, soon after and later: 450 of them.
class SlowWindowTest : public ::testing::TestWithParam<const char*> {};

TEST_P(SlowWindowTest, WhoIsKilledThereStopsNoJob) {
  const std::string point = GetParam();
  const bool launchers = point.starts_with("checkpoint.") || point.starts_with("copy.") ||
                         point.starts_with("supervisor.");
  for (const char* mode : {"hogwild", "locked", "ssp", "replicas", "barrier"}) {
    for (const int hit : {1, 3, 20}) {
      SCOPED_TRACE(fmt::format("{}, passage {}", mode, hit));
      Sandbox sandbox;
      const std::string marker = sandbox.dir().File("killed");
      const std::string folder = sandbox.dir().path() + "/c";
      std::vector<std::string> command = sandbox.Train(
          {"--ps=2", "--workers=3", "--pin=none", "--hidden_units=16", "--batch_size=20",
           "--train_steps=300", "--max_restarts=1", "--save_steps=20", "--checkpoint_dir=" + folder,
           std::string("--mode=") + mode, "--report=" + sandbox.dir().File("r")});
      if (point == "copy.met") command.push_back("--checkpoint_consistent");
      sandbox.SetEnv("PASSEL_FAILPOINT", fmt::format("{}:{}:kill:{}", point, hit, marker));
      Outcome end = sandbox.Run(command);
      const bool killed = std::filesystem::exists(marker);
      if (hit == 1 && !point.starts_with("round.") && !point.starts_with("push.") &&
          !point.starts_with("ssp.")) {
        EXPECT_TRUE(killed);
      }
      if (killed && launchers) {
        ASSERT_EQ(end.code, 1000 + SIGKILL) << end.err;
        EXPECT_EQ(sandbox.Leftovers(), "");
        if (std::filesystem::exists(folder + "/checkpoint")) {
          EXPECT_GE(WholeStep(folder), 0);
        }
        end = sandbox.Run(command);
      }
      ASSERT_EQ(end.code, 0) << end.err;
      EXPECT_EQ(end.errors.size(), 0u) << end.err;
      EXPECT_GE(ReadJson(sandbox.dir().File("r"))["global_step"], 300);
      EXPECT_GE(WholeStep(folder), 300);
      EXPECT_EQ(UnfinishedFiles(folder), "");
      EXPECT_EQ(sandbox.Leftovers(), "");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Fault, SlowWindowTest,
    ::testing::Values("arena.reserved", "arena.before_publish", "ps.published", "ps.kept",
                      "chief.before_open", "join.claimed", "join.before_identity",
                      "join.before_clock", "join.clock", "join.before_mode", "join.before_running",
                      "join.running", "join.follow", "worker.computed", "push.claimed",
                      "push.before_version", "round.arrived", "round.decided", "round.saving",
                      "round.saved", "round.piece", "round.applied", "round.before_finish",
                      "ssp.completed", "worker.before_leave", "supervisor.started_child",
                      "checkpoint.begin", "copy.met", "checkpoint.written", "checkpoint.committed"),
    [](const auto& test) {
      std::string name = test.param;
      std::ranges::replace(name, '.', '_');
      return name;
    });

TEST(SupervisorWindowTest, KilledWhileItStartsChildrenLeavesNobody) {
  for (int hit = 1; hit <= 4; ++hit) {
    Sandbox sandbox;
    sandbox.SetEnv("PASSEL_FAILPOINT", fmt::format("supervisor.started_child:{}:kill", hit));
    const Outcome outcome = sandbox.Run(sandbox.Train({"--ps=2", "--train_steps=100000000"}));
    EXPECT_EQ(outcome.code, 1000 + SIGKILL);
    EXPECT_EQ(sandbox.Leftovers(2), "");
  }
}

// In each of its lives.
TEST(StartWindowTest, WhoDiesAgainAndAgainEndsTheJob) {
  struct {
    const char *point, *says;
    Sandbox sandbox;
    std::optional<Program> train;
  } jobs[] = {{"chief.before_open",
               "worker/0 was killed by SIGKILL (9); without the chief the variables get no first "
               "values: giving up",
               {},
               {}},
              {"arena.reserved",
               "ps/0 was killed by SIGKILL (9); 7 times in a row it has ended within a second of "
               "its start: giving up",
               {},
               {}}};
  for (auto& job : jobs) {
    job.sandbox.SetEnv("PASSEL_FAILPOINT", fmt::format("{}:1:kill", job.point));
    job.train = job.sandbox.Start(job.sandbox.Train({"--train_steps=100"}));
  }
  for (auto& job : jobs) {
    const Outcome outcome = job.sandbox.Finish(*job.train, 20);
    EXPECT_THAT(OnlyError(outcome, 1), HasSubstr(job.says));
    // The first restart comes at once.
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("; starting it again\n"),
                                   HasSubstr("; starting it again in 1.6 s\n")));
    EXPECT_EQ(job.sandbox.Leftovers(), "");
  }
}

TEST(StoppedAtStartTest, PsThatHangsIsNamedAfterStartWait) {
  Sandbox sandbox;
  sandbox.SetEnv("PASSEL_FAILPOINT", "arena.reserved:1:stop:" + sandbox.dir().File("stopped"));
  const Outcome outcome = sandbox.Run(sandbox.Train({"--train_steps=100", "--start_wait=1"}), 15);
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("ps/0 of job"));
  EXPECT_THAT(outcome.err, HasSubstr("within 1 s"));
  EXPECT_THAT(outcome.err, HasSubstr("--start_wait"));
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(StoppedAtStartTest, ChiefThatHangsIsNamedAfterStartWait) {
  Sandbox sandbox;
  sandbox.SetEnv("PASSEL_FAILPOINT", "chief.before_open:1:stop:" + sandbox.dir().File("stopped"));
  const Outcome outcome =
      sandbox.Run(sandbox.Train({"--train_steps=100", "--start_wait=1", "--stall_limit=1"}), 15);
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("the chief, worker/0"));
  EXPECT_EQ(sandbox.Leftovers(), "");
}

}  // namespace
}  // namespace passel::testing

// A task dies, or is stopped, at a named place: mostly in the windows of the start, where there is
// least to hold on to.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "support/program.h"

namespace passel::testing {
namespace {

using ::testing::HasSubstr;

struct Window {
  const char* point;
  int hit;
  const char* mode;
  const char* victim;  // as the job names it; "" if the place may not be reached by that time
};

class WindowTest : public ::testing::TestWithParam<Window> {};

// Whoever reaches the place first is killed there, once; the job finishes all the same.
TEST_P(WindowTest, KilledTaskDoesNotStopTheJob) {
  const Window& window = GetParam();
  for (const char* restarts : {"--max_restarts=0", "--max_restarts=1"}) {
    SCOPED_TRACE(restarts);
    Sandbox sandbox;
    const std::string marker = sandbox.dir().File("killed");
    sandbox.SetEnv("PASSEL_FAILPOINT",
                   fmt::format("{}:{}:kill:{}", window.point, window.hit, marker));
    Program train = sandbox.Start(sandbox.Train(
        {"--ps=2", "--workers=3", "--pin=none", "--train_steps=300", restarts,
         fmt::format("--mode={}", window.mode), "--report=" + sandbox.dir().File("r")}));
    const Outcome outcome = sandbox.Finish(train, 20);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.errors.size(), 0u) << outcome.err;
    EXPECT_GE(ReadJson(sandbox.dir().File("r"))["global_step"], 300);
    EXPECT_EQ(sandbox.Leftovers(), "");
    EXPECT_THAT(outcome.err, HasSubstr(window.victim));
    EXPECT_THAT(outcome.err, HasSubstr("was killed by SIGKILL (9)"));
  }
}

INSTANTIATE_TEST_SUITE_P(Fault, WindowTest,
                         ::testing::Values(Window{"arena.reserved", 1, "hogwild", "ps/0"},
                                           Window{"arena.before_publish", 1, "hogwild", "ps/0"},
                                           Window{"ps.published", 1, "hogwild", "ps/0"},
                                           Window{"ps.published", 1, "barrier", "ps/0"},
                                           Window{"ps.kept", 1, "hogwild", "ps/0"},
                                           Window{"chief.before_open", 1, "hogwild", "worker/0"},
                                           Window{"chief.before_open", 2, "hogwild", "worker/0"},
                                           Window{"chief.before_open", 1, "barrier", "worker/0"},
                                           Window{"join.claimed", 1, "hogwild", "worker/"},
                                           Window{"join.follow", 1, "locked", "worker/"},
                                           Window{"join.claimed", 1, "barrier", "worker/"},
                                           Window{"join.follow", 1, "barrier", "worker/"},
                                           Window{"worker.computed", 1, "barrier", "worker/"},
                                           Window{"worker.computed", 40, "hogwild", "worker/"},
                                           Window{"push.claimed", 500, "locked", "worker/"},
                                           Window{"push.before_version", 20, "hogwild", "worker/"},
                                           Window{"round.arrived", 20, "barrier", "worker/"},
                                           Window{"round.decided", 10, "barrier", "worker/"},
                                           Window{"round.saved", 100, "barrier", "worker/"},
                                           Window{"round.applied", 100, "barrier", "worker/"},
                                           Window{"round.before_finish", 10, "barrier", "worker/"},
                                           Window{"worker.before_leave", 1, "hogwild", "worker/"}),
                         [](const auto& test) {
                           std::string name = fmt::format("{}_{}_{}", test.param.point,
                                                          test.param.hit, test.param.mode);
                           for (char& c : name) {
                             if (c == '.') c = '_';
                           }
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

TEST(ChiefWindowTest, ChiefThatDiesAgainAndAgainEndsTheJob) {
  Sandbox sandbox;
  sandbox.SetEnv("PASSEL_FAILPOINT", "chief.before_open:1:kill");  // in each of its lives
  const Outcome outcome = sandbox.Run(sandbox.Train({"--train_steps=100"}), 20);
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  ASSERT_EQ(outcome.errors.size(), 1u) << outcome.err;
  EXPECT_THAT(outcome.errors[0], HasSubstr("worker/0"));
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(PsWindowTest, PsThatDiesAgainAndAgainEndsTheJob) {
  Sandbox sandbox;
  sandbox.SetEnv("PASSEL_FAILPOINT", "arena.reserved:1:kill");
  const Outcome outcome = sandbox.Run(sandbox.Train({"--train_steps=100"}), 60);
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_EQ(outcome.errors.size(), 1u) << outcome.err;
  EXPECT_EQ(sandbox.Leftovers(), "");
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

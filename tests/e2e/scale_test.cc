// Workers join a real job and leave it while it trains.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "support/hand_started.h"

namespace passel::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// A job that trains until it is stopped.
Program StartScalable(Sandbox& sandbox, const std::vector<std::string>& more) {
  return sandbox.Start(
      sandbox.Train(With({"--pin=none", "--train_steps=100000000", "--max_workers=3",
                          "--report=" + sandbox.dir().File("r")},
                         more)));
}

Outcome Scale(Sandbox& sandbox, int workers, const std::vector<std::string>& more = {}) {
  return sandbox.Run(
      With({"ctl", "scale", sandbox.job(), fmt::format("--workers={}", workers)}, more));
}

// "running", "left": of worker/0, worker/1, ...
std::vector<std::string> Phases(Sandbox& sandbox) {
  std::vector<std::string> phases;
  const nlohmann::json status = sandbox.Status();
  for (const nlohmann::json& w : status["arena"]["workers"]) {
    phases.push_back(w["phase"].get<std::string>());
  }
  return phases;
}

std::vector<std::string> TasksOf(const nlohmann::json& list) {
  std::vector<std::string> tasks;
  for (const nlohmann::json& entry : list) tasks.push_back(entry["task"].get<std::string>());
  return tasks;
}

std::int64_t LocalSteps(Sandbox& sandbox, std::size_t worker) {
  return sandbox.Status()["arena"]["workers"][worker]["local_steps"].get<std::int64_t>();
}

class ScaleTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ScaleTest, WorkersJoinAndLeaveAndNobodyWaitsForThoseWhoAreNotIn) {
  Sandbox sandbox;
  std::vector<std::string> flags = {"--ps=2", "--workers=1", fmt::format("--mode={}", GetParam())};
  if (std::string(GetParam()) == "ssp") flags.emplace_back("--staleness_bound=1");
  Program train = StartScalable(sandbox, flags);
  // Places that nobody has been asked to take hold up no round.
  ASSERT_TRUE(sandbox.AwaitStep(60)) << train.Err();
  EXPECT_THAT(Phases(sandbox), ElementsAre("running"));
  EXPECT_THAT(sandbox.Run({"ctl", "status", sandbox.job()}).out, Not(HasSubstr("worker/1")));

  const Outcome up = Scale(sandbox, 3);
  ASSERT_EQ(up.code, 0) << up.err << train.Err();
  EXPECT_THAT(up.out, HasSubstr(fmt::format("job {}: 3 workers", sandbox.job())));
  EXPECT_THAT(Phases(sandbox), ElementsAre("running", "running", "running"));
  ASSERT_TRUE(sandbox.Advances(60));
  EXPECT_GT(LocalSteps(sandbox, 1), 0);
  EXPECT_GT(LocalSteps(sandbox, 2), 0);

  const Outcome down = Scale(sandbox, 1);
  ASSERT_EQ(down.code, 0) << down.err << train.Err();
  EXPECT_THAT(down.out, HasSubstr(": 1 worker\n"));
  EXPECT_THAT(Phases(sandbox), ElementsAre("running", "left", "left"));
  const std::int64_t steps = LocalSteps(sandbox, 1);
  ASSERT_TRUE(sandbox.Advances(60)) << "whoever left holds up nobody";
  EXPECT_EQ(LocalSteps(sandbox, 1), steps);

  ASSERT_EQ(Scale(sandbox, 2).code, 0);
  ASSERT_TRUE(sandbox.Advances(60));
  EXPECT_THAT(Phases(sandbox), ElementsAre("running", "running", "left"));
  EXPECT_GT(LocalSteps(sandbox, 1), steps);

  ASSERT_EQ(sandbox.Run({"ctl", "stop", sandbox.job()}).code, 0);
  const Outcome outcome = sandbox.Finish(train);
  EXPECT_EQ(outcome.code, 130) << outcome.err;
  EXPECT_EQ(outcome.errors.size(), 0u) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("number of workers changed to 3 after "));
  EXPECT_THAT(outcome.out, Not(HasSubstr("died")));
  EXPECT_THAT(outcome.out, Not(HasSubstr("of its")));
  const nlohmann::json report = ReadJson(sandbox.dir().File("r"));
  EXPECT_EQ(report["deaths"].size(), 0u);
  std::vector<std::string> left = TasksOf(report["leaves"]);
  std::ranges::sort(left);
  EXPECT_THAT(left, ElementsAre("worker/1", "worker/2"));
  ASSERT_EQ(report["scaled"].size(), 3u);
  EXPECT_EQ(report["scaled"][0]["workers"], 3);
  EXPECT_EQ(report["scaled"][2]["workers"], 2);
  EXPECT_EQ(report["workers"][2]["exit"], "left");
  EXPECT_EQ(report["half_applied"], 0);
  EXPECT_LE(report["max_clock_lead"].get<int>(), 1);
  if (std::string(GetParam()) == "barrier") {
    // One gradient of each that is in: worker/0 was in all rounds, nothing was dropped.
    const auto rounds = report["global_step"].get<std::int64_t>();
    EXPECT_NEAR(report["workers"][0]["local_steps"].get<double>(), static_cast<double>(rounds), 1);
    EXPECT_LT(report["local_steps"].get<std::int64_t>(), 3 * rounds);
    EXPECT_EQ(report["staleness"]["max"], 0);
  }
  EXPECT_EQ(sandbox.Leftovers(), "");
}

std::string NameOfMode(const ::testing::TestParamInfo<const char*>& test) { return test.param; }
INSTANTIATE_TEST_SUITE_P(Modes, ScaleTest, ::testing::Values("hogwild", "barrier", "ssp"),
                         NameOfMode);
INSTANTIATE_TEST_SUITE_P(SlowModes, ScaleTest, ::testing::Values("locked", "replicas"), NameOfMode);

TEST(ScaleJobTest, PlacesThatNobodyTookAreNotMissed) {
  Sandbox sandbox;
  const Outcome outcome = sandbox.Run(
      sandbox.Train({"--workers=2", "--max_workers=8", "--mode=barrier", "--train_steps=60",
                     "--evaluator", "--report=" + sandbox.dir().File("r")}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("2 workers (up to 8)"));
  EXPECT_THAT(outcome.out + outcome.err, Not(HasSubstr("worker/2")));
  const nlohmann::json report = ReadJson(sandbox.dir().File("r"));
  EXPECT_EQ(report["workers"].size(), 2u);
  EXPECT_EQ(report["notes"].size(), 0u) << report["notes"];
  EXPECT_EQ(report["local_steps"], 120);
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(ScaleJobTest, AskingForTheSameNumberStartsThoseWhoDiedAgain) {
  Sandbox sandbox;
  Program train = StartScalable(sandbox, {"--workers=2"});
  ASSERT_TRUE(sandbox.AwaitStep(20));
  // The chief, too: variables have values.
  for (const int victim : {1, 0}) {
    ASSERT_EQ(::kill(sandbox.TaskPid("worker", victim), SIGKILL), 0);
    ASSERT_TRUE(train.WaitFor(fmt::format("worker/{} was killed by SIGKILL", victim)));
    ASSERT_EQ(Scale(sandbox, 2).code, 0) << train.Err();
    EXPECT_THAT(Phases(sandbox), ElementsAre("running", "running"));
  }
  ASSERT_TRUE(sandbox.Advances(20));
  sandbox.Interrupt(train);
}

TEST(ScaleJobTest, WrongNumbersAreRefusedAndTheJobGoesOn) {
  Sandbox sandbox;
  Program train = StartScalable(sandbox, {"--workers=1"});
  ASSERT_TRUE(sandbox.AwaitStep(5));
  const Outcome none = Scale(sandbox, 0);
  EXPECT_THAT(OnlyError(none), AllOf(HasSubstr("at least 1 worker, not 0"), HasSubstr("ctl stop")));
  const Outcome more = Scale(sandbox, 4);
  EXPECT_THAT(OnlyError(more), AllOf(HasSubstr("up to 3 workers, not 4"),
                                     HasSubstr("--max_workers 4"), HasSubstr("--checkpoint_dir")));
  EXPECT_EQ(sandbox.Status()["arena"]["scaled_to"], 1);
  // Two at once: the second waits for the first.
  Program first = sandbox.Start({"ctl", "scale", sandbox.job(), "--workers=3"});
  const Outcome second = Scale(sandbox, 2);
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(sandbox.Finish(first).code, 0);
  ASSERT_TRUE(sandbox.Advances(10));
  EXPECT_THAT(sandbox.Status()["arena"]["scaled_to"].get<int>(), ::testing::AnyOf(2, 3));
  sandbox.Interrupt(train);
}

TEST(ScaleJobTest, ACheckpointGoesOnWithOtherNumbers) {
  Sandbox sandbox;
  const std::string folder = sandbox.dir().File("c");
  const auto flags = [&](const char* workers, const char* most, const char* report) {
    return sandbox.Train({"--pin=none", "--train_steps=100000000", "--checkpoint_dir=" + folder,
                          workers, most, "--report=" + sandbox.dir().File(report)});
  };
  Program train = sandbox.Start(flags("--workers=1", "--max_workers=3", "r"));
  ASSERT_TRUE(sandbox.AwaitStep(20));
  ASSERT_EQ(Scale(sandbox, 3).code, 0) << train.Err();
  ASSERT_TRUE(sandbox.Advances(60));
  ASSERT_EQ(Scale(sandbox, 1).code, 0);
  ASSERT_EQ(sandbox.Run({"ctl", "stop", sandbox.job()}).code, 0);
  ASSERT_EQ(sandbox.Finish(train).code, 130) << train.Err();
  const nlohmann::json before = ReadJson(sandbox.dir().File("r"));

  Program again = sandbox.Start(flags("--workers=2", "--max_workers=4", "r2"));
  const auto step = before["global_step"].get<std::int64_t>();
  ASSERT_TRUE(sandbox.AwaitStep(step + 20)) << again.Err();
  EXPECT_THAT(again.Err(), HasSubstr("unlike then: 2 workers (was 1)\n"));
  EXPECT_GE(sandbox.Status()["arena"]["local_steps"].get<std::int64_t>(),
            before["local_steps"].get<std::int64_t>())
      << "those of worker/2 too";
  ASSERT_EQ(Scale(sandbox, 3).code, 0) << again.Err();
  EXPECT_GE(LocalSteps(sandbox, 2), before["workers"][2]["local_steps"].get<std::int64_t>())
      << "it goes on where its cursor was";
  ASSERT_EQ(sandbox.Run({"ctl", "stop", sandbox.job()}).code, 0);
  EXPECT_EQ(sandbox.Finish(again).code, 130) << again.Err();
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(ScaleJobTest, PlacesAreNoWorkersForACheckpoint) {
  Sandbox sandbox;
  const auto flags = [&](int steps) {
    return sandbox.Train({"--pin=none", "--workers=1", "--max_workers=3", "--hidden_units=16",
                          fmt::format("--train_steps={}", steps),
                          "--checkpoint_dir=" + sandbox.dir().File("c")});
  };
  ASSERT_EQ(sandbox.Run(flags(20)).code, 0);
  const Outcome again = sandbox.Run(flags(40));
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.err, AllOf(HasSubstr("goes on from"), Not(HasSubstr("unlike then"))));
}

TEST(ScaleJobTest, WhereEachWorkerHasItsOwnExamplesTheirNumberStays) {
  Sandbox sandbox;
  Program train = sandbox.Start(
      sandbox.Train({"--pin=none", "--train_steps=100000000", "--workers=3", "--shard_data"}));
  ASSERT_TRUE(sandbox.AwaitStep(5)) << train.Err();
  for (const int workers : {2, 4}) {
    EXPECT_THAT(OnlyError(Scale(sandbox, workers)),
                AllOf(HasSubstr(fmt::format("keeps its 3 workers and cannot have {}", workers)),
                      HasSubstr("--shard_data"),
                      HasSubstr(fmt::format("start it again with --workers {}", workers))));
  }
  EXPECT_THAT(OnlyError(Scale(sandbox, 0)), HasSubstr("at least 1 worker"));
  EXPECT_EQ(Scale(sandbox, 3).code, 0) << "those who died come back";
  EXPECT_THAT(Phases(sandbox), ElementsAre("running", "running", "running"));
  sandbox.Interrupt(train);
}

// A failpoint that nobody meets before Arm().
class Trap {
 public:
  Trap(Sandbox& sandbox, const std::string& point) : marker_(sandbox.dir().File("sprung")) {
    WriteText(marker_, "");
    sandbox.SetEnv("PASSEL_FAILPOINT", fmt::format("{}:1:kill:{}", point, marker_));
  }
  void Arm() { std::filesystem::remove(marker_); }

 private:
  const std::string marker_;
};

class ScaleDeath : public ::testing::TestWithParam<const char*> {};

TEST_P(ScaleDeath, OfAWorkerThatJoinsIsToldAndMayBeAskedAgain) {
  Sandbox sandbox;
  Trap trap(sandbox, GetParam());
  Program train = StartScalable(sandbox, {"--workers=2", "--mode=barrier", "--stall_limit=3"});
  ASSERT_TRUE(sandbox.AwaitStep(20));
  trap.Arm();
  const Outcome scaled = Scale(sandbox, 3);
  EXPECT_EQ(scaled.code, 1) << scaled.err;
  EXPECT_THAT(scaled.err, AllOf(HasSubstr("2 of 3 workers"), HasSubstr("worker/2 (")));
  ASSERT_TRUE(train.WaitFor("worker/2 was killed by SIGKILL (9)"));
  ASSERT_TRUE(sandbox.Advances(20)) << "rounds go on without it";
  ASSERT_EQ(Scale(sandbox, 3).code, 0) << train.Err();
  ASSERT_TRUE(sandbox.Advances(20));
  sandbox.Interrupt(train);
}

INSTANTIATE_TEST_SUITE_P(Fault, ScaleDeath,
                         ::testing::Values("join.claimed", "join.before_running"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::ranges::replace(name, '.', '_');
                           return name;
                         });

TEST(ScaleFaultTest, AWorkerThatIsKilledWhileItLeavesIsADeathAndIsNotStartedAgain) {
  Sandbox sandbox;
  Trap trap(sandbox, "worker.before_leave");
  Program train = StartScalable(sandbox, {"--workers=3", "--mode=barrier", "--max_restarts=2"});
  ASSERT_TRUE(sandbox.AwaitStep(20));
  trap.Arm();
  const Outcome scaled = Scale(sandbox, 2);
  EXPECT_EQ(scaled.code, 0) << scaled.err;
  ASSERT_TRUE(sandbox.Advances(20));
  EXPECT_THAT(Phases(sandbox), ElementsAre("running", "running", "dead"));
  EXPECT_EQ(sandbox.TaskPid("worker", 2), 0);
  ASSERT_EQ(sandbox.Run({"ctl", "stop", sandbox.job()}).code, 0);
  EXPECT_EQ(sandbox.Finish(train).code, 130) << train.Err();
  const nlohmann::json report = ReadJson(sandbox.dir().File("r"));
  EXPECT_THAT(TasksOf(report["deaths"]), ElementsAre("worker/2"));
  EXPECT_EQ(report["leaves"].size(), 0u);
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(ScaleFaultTest, AJoinerThatDiesIsStartedAgain) {
  Sandbox sandbox;
  Trap trap(sandbox, "join.before_running");
  Program train = StartScalable(sandbox, {"--workers=1", "--mode=barrier", "--max_restarts=2"});
  ASSERT_TRUE(sandbox.AwaitStep(20)) << train.Err();
  trap.Arm();
  const Outcome scaled = Scale(sandbox, 2);
  EXPECT_EQ(scaled.code, 0) << scaled.err << train.Err();
  EXPECT_THAT(train.Err(), HasSubstr("worker/1 was killed by SIGKILL (9)"));
  // Its next life too, once it trains.
  const pid_t pid = sandbox.TaskPid("worker", 1);
  ASSERT_NE(pid, 0);
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  ASSERT_NE(sandbox.AwaitTask("worker", 1, pid), 0) << train.Err();
  ASSERT_TRUE(sandbox.Advances(20));
  sandbox.Interrupt(train);
}

// The one that was asked to join joins nevertheless, and the chief is started again.
TEST(ScaleFaultTest, AChiefThatIsKilledWhileTheJobScalesHoldsUpNobody) {
  for (const std::string mode : {"--mode=hogwild", "--mode=barrier"}) {
    SCOPED_TRACE(mode);
    Sandbox sandbox;
    sandbox.SetEnv("PASSEL_FAILPOINT", "supervisor.scaling:2:sleep300");
    Program train = StartScalable(sandbox, {"--workers=2", mode, "--max_restarts=2"});
    ASSERT_TRUE(sandbox.AwaitStep(20)) << train.Err();
    const pid_t chief = sandbox.TaskPid("worker", 0);
    ASSERT_NE(chief, 0);
    Program ctl = sandbox.Start({"ctl", "scale", sandbox.job(), "--workers=3"});
    ASSERT_TRUE(train.WaitFor("the job is to have 3 workers")) << train.Err();
    ASSERT_EQ(::kill(chief, SIGKILL), 0);
    EXPECT_EQ(sandbox.Finish(ctl).code, 0) << train.Err();
    EXPECT_NE(sandbox.AwaitTask("worker", 0, chief), 0) << train.Err();
    ASSERT_TRUE(sandbox.Advances(20)) << train.Err();
    sandbox.Interrupt(train);
  }
}

TEST(ScaleFaultTest, AWorkerThatDoesNotLeaveIsKilled) {
  Sandbox sandbox;
  Program train =
      StartScalable(sandbox, {"--workers=2", "--stall_limit=0.5", "--slow_worker=1:60000ms"});
  ASSERT_TRUE(sandbox.AwaitStep(20));
  const pid_t pid = sandbox.TaskPid("worker", 1);
  // It is continued and told to go, and is stopped again before it could.
  Program ctl = sandbox.Start({"ctl", "scale", sandbox.job(), "--workers=1"});
  for (int i = 0; i < 2000 && ctl.Running() && ::kill(pid, SIGSTOP) == 0; ++i) ::usleep(1000);
  EXPECT_EQ(sandbox.Finish(ctl).code, 0);
  ASSERT_TRUE(sandbox.Advances(20));
  EXPECT_EQ(sandbox.TaskPid("worker", 1), 0);
  sandbox.Interrupt(train);
}

TEST(ScaleFaultTest, APsThatDiesWithAWishStartsAgainAndTheWishStands) {
  Sandbox sandbox;
  Trap trap(sandbox, "ps.scale_wished");
  Program train = StartScalable(sandbox, {"--workers=1"});
  ASSERT_TRUE(sandbox.AwaitStep(20));
  trap.Arm();
  const Outcome scaled = Scale(sandbox, 2);
  EXPECT_EQ(scaled.code, 0) << scaled.err;
  EXPECT_TRUE(train.WaitFor("ps/0 was killed by SIGKILL (9)"));
  EXPECT_THAT(Phases(sandbox), ElementsAre("running", "running"));
  sandbox.Interrupt(train);
}

TEST(ScaleFaultTest, NothingIsLeftOfAJobWhoseSupervisorIsKilledWhileItScales) {
  Sandbox sandbox;
  Trap trap(sandbox, "supervisor.scaling");
  Program train = StartScalable(sandbox, {"--workers=1"});
  ASSERT_TRUE(sandbox.AwaitStep(20));
  trap.Arm();
  const Outcome scaled = Scale(sandbox, 3);
  EXPECT_EQ(scaled.code, 2) << scaled.err;
  EXPECT_THAT(scaled.err, HasSubstr("ended before it had 3 workers"));
  EXPECT_EQ(sandbox.Finish(train).code, 1000 + SIGKILL);
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(ScaleFaultTest, AnEndThatIsAskedForWhileWorkersJoinEndsThemToo) {
  Sandbox sandbox;
  sandbox.SetEnv("PASSEL_FAILPOINT", "supervisor.scaling:2:sleep300");
  Program train = StartScalable(sandbox, {"--workers=1"});
  ASSERT_TRUE(sandbox.AwaitStep(20));
  Program ctl = sandbox.Start({"ctl", "scale", sandbox.job(), "--workers=3"});
  ASSERT_TRUE(train.WaitFor("the job is to have 3 workers"));
  sandbox.Interrupt(train, 8);
  EXPECT_NE(sandbox.Finish(ctl).code, 0);
}

TEST(JoinByHandTest, MoreWorkersTakeFreePlacesAndLeaveThem) {
  HandStarted job(1, 2, With(kEndless, {"--max_workers=4", "--mode=barrier"}));
  job.StartAll();
  ASSERT_TRUE(job.Advances(20)) << job["worker/0"].Err() << job["ps/0"].Err();
  EXPECT_THAT(OnlyError(Scale(job.sandbox(), 3)),
              AllOf(HasSubstr("started by hand"), HasSubstr("passel task --join")));
  // The lists and the name of the job are enough.
  std::vector<std::string> join = {"task", "--join"};
  for (const std::string& flag : job.Task("worker/0")) {
    const bool own = flag == "task" || flag.starts_with("--job_name") ||
                     flag.starts_with("--task_index") || flag.starts_with("--max_workers");
    if (!own) join.push_back(flag);
  }
  EXPECT_THAT(OnlyError(job.sandbox().Run(With(join, {"--shard_data"}))),
              AllOf(HasSubstr("--shard_data gives each worker a part of the examples for good"),
                    HasSubstr("up to 4 workers"), HasSubstr("omit it")));
  // Both at once.
  Program joiner = job.sandbox().Start(join), other = job.sandbox().Start(join);
  for (Program* program : {&joiner, &other}) {
    ASSERT_TRUE(program->WaitFor("Session initialization complete")) << program->Err();
  }
  const bool first = joiner.Err().find("as worker/2") != std::string::npos;
  EXPECT_THAT(joiner.Err(), HasSubstr(first ? "as worker/2" : "as worker/3"));
  EXPECT_THAT(other.Err(), HasSubstr(first ? "as worker/3" : "as worker/2"));
  ASSERT_TRUE(job.Advances(20));
  EXPECT_THAT(Phases(job.sandbox()), ElementsAre("running", "running", "running", "running"));
  const Outcome full = job.sandbox().Run(join);
  EXPECT_THAT(OnlyError(full), AllOf(HasSubstr("places for 4 workers, and all are taken"),
                                     HasSubstr("larger --max_workers")));
  for (Program* program : {&joiner, &other}) {
    program->Signal(SIGTERM);
    EXPECT_EQ(job.sandbox().Finish(*program).code, 143) << program->Err();
  }
  ASSERT_TRUE(job.Advances(20)) << "rounds go on with two";
  EXPECT_THAT(Phases(job.sandbox()), ElementsAre("running", "running", "left", "left"));
  job.Stop({"worker/0", "worker/1", "ps/0"});
}

TEST(JoinByHandTest, AJobWithAPlaceThatNobodyTookEndsAsUsual) {
  HandStarted job(1, 2, {"--train_steps=200", "--start_wait=20", "--max_workers=4"});
  job.StartAll();
  job.ExpectEnd();
  EXPECT_THAT(job["ps/0"].Err(), HasSubstr("all workers are done"));
}

}  // namespace
}  // namespace passel::testing

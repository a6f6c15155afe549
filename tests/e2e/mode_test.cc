// The mode of a real job changes while it trains: by a schedule, and by `passel ctl set-mode`.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>

#include "support/program.h"

namespace passel::testing {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> Modes(const nlohmann::json& report) {
  std::vector<std::string> modes;
  for (const nlohmann::json& m : report["modes"]) modes.push_back(m["mode"].get<std::string>());
  return modes;
}

TEST(ModeScheduleTest, IsKeptAndReported) {
  Sandbox sandbox;
  const Outcome outcome = sandbox.Run(sandbox.Train(
      {"--ps=2", "--workers=3", "--train_steps=900", "--report=" + sandbox.dir().File("r"),
       "--mode_schedule=0:barrier,200:hogwild,400:replicas=2,600:ssp=1,700:locked"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.errors.size(), 0u) << outcome.err;
  const nlohmann::json report = ReadJson(sandbox.dir().File("r"));
  EXPECT_THAT(Modes(report),
              ::testing::ElementsAre("barrier", "hogwild", "replicas=2", "ssp=1", "locked"));
  // From rounds to the step; else up to one step of every other worker later.
  const std::int64_t planned[] = {0, 200, 400, 600, 700};
  const std::int64_t late[] = {0, 0, 2, 0, 2};
  for (std::size_t i = 0; i < 5; ++i) {
    const auto since = report["modes"][i]["since"].get<std::int64_t>();
    EXPECT_GE(since, planned[i]);
    EXPECT_LE(since, planned[i] + late[i]);
  }
  EXPECT_EQ(report["mode"], "locked");
  EXPECT_LE(report["max_clock_lead"].get<int>(), 1);
  EXPECT_GE(report["global_step"].get<std::int64_t>(), 900);
  EXPECT_LE(report["global_step"].get<std::int64_t>(), 902);
  EXPECT_GE(report["test_accuracy"].get<double>(), 0.9);
  EXPECT_THAT(outcome.out, HasSubstr("mode barrier, from step 200 on hogwild, from step 40"));
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(ModeScheduleTest, ComesFromTheConfigurationFileToo) {
  Sandbox sandbox;
  WriteText(sandbox.dir().File("job.yaml"),
            "mode_schedule: '100:barrier,150:hogwild'\ntrain_steps: 300\nworkers: 2\n");
  const Outcome outcome = sandbox.Run(sandbox.Train(
      {"--config=" + sandbox.dir().File("job.yaml"), "--report=" + sandbox.dir().File("r")}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(Modes(ReadJson(sandbox.dir().File("r"))),
              ::testing::ElementsAre("hogwild", "barrier", "hogwild"));
}

TEST(ModeScheduleTest, WorksWithoutAPs) {
  Sandbox sandbox;
  const Outcome outcome = sandbox.Run(sandbox.Train({"--ps=0", "--workers=1", "--train_steps=90",
                                                     "--report=" + sandbox.dir().File("r"),
                                                     "--mode_schedule=30:replicas=2,60:ssp"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const nlohmann::json report = ReadJson(sandbox.dir().File("r"));
  EXPECT_THAT(Modes(report), ::testing::ElementsAre("hogwild", "replicas=2", "ssp=3"));
  EXPECT_EQ(report["modes"][1]["since"], 30);
  EXPECT_EQ(report["modes"][2]["since"], 60);
  EXPECT_EQ(report["global_step"], 90);
  EXPECT_EQ(report["local_steps"], 30 + 2 * 30 + 30);
}

TEST(ReplicasTest, MoreReplicasThanWorkersAreCountedExactly) {
  Sandbox sandbox;
  const Outcome outcome =
      sandbox.Run(sandbox.Train({"--workers=2", "--mode=replicas", "--replicas_to_aggregate=5",
                                 "--train_steps=100", "--report=" + sandbox.dir().File("r")}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const nlohmann::json report = ReadJson(sandbox.dir().File("r"));
  EXPECT_EQ(report["global_step"], 100);
  EXPECT_EQ(report["local_steps"], 500);
  EXPECT_EQ(report["workers"][0]["local_steps"], 300);
  EXPECT_EQ(report["workers"][1]["local_steps"], 200);
  EXPECT_EQ(report["dropped"], 0);
  EXPECT_EQ(report["staleness"]["max"], 0);
}

TEST(CompareModesTest, PrintsALineForEachMode) {
  Sandbox sandbox;
  Program compare = sandbox.StartCommand(
      {std::string(PASSEL_SOURCE_DIR) + "/tools/compare_modes", "--program", PASSEL_PROGRAM,
       "--data_dir", Digits(), "--workers", "2", "--train_steps", "60", "--seconds", "0.3",
       "--modes", "backup,hogwild", "--slow_worker", "1:5ms", "--", "--batch_size", "20"});
  const Outcome outcome = sandbox.Finish(compare, 60);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("| mode | steps/s | updates/s |"));
  EXPECT_THAT(outcome.out, HasSubstr("\n| replicas, R = N - 1 = 1 | "));
  EXPECT_THAT(outcome.out, HasSubstr("\n| hogwild | "));
  Program wrong = sandbox.StartCommand({std::string(PASSEL_SOURCE_DIR) + "/tools/compare_modes",
                                        "--program", PASSEL_PROGRAM, "--modes", "frob"});
  EXPECT_EQ(sandbox.Finish(wrong).code, 2);
  EXPECT_EQ(sandbox.Leftovers(), "");
}

// A job that trains until it is stopped.
Program StartLong(Sandbox& sandbox, const std::vector<std::string>& more = {}) {
  return sandbox.Start(
      sandbox.Train(With(more, {"--workers=3", "--pin=none", "--train_steps=100000000",
                                "--report=" + sandbox.dir().File("r")})));
}

TEST(SetModeTest, ChangesARunningJobToEveryMode) {
  Sandbox sandbox;
  Program train = StartLong(sandbox, {"--ps=2"});
  ASSERT_TRUE(sandbox.AwaitStep(20));
  struct Change {
    std::vector<std::string> words;
    std::string mode;
  };
  const std::vector<Change> changes = {{{"barrier"}, "barrier"},
                                       {{"replicas", "--replicas_to_aggregate=2"}, "replicas=2"},
                                       {{"ssp", "--staleness_bound=0"}, "ssp=0"},
                                       {{"replicas=5"}, "replicas=5"},
                                       {{"locked"}, "locked"},
                                       {{"replicas"}, "replicas=3"},
                                       {{"ssp"}, "ssp=3"},
                                       {{"hogwild"}, "hogwild"}};
  std::vector<std::string> expected = {"hogwild"};
  for (const Change& change : changes) {
    const Outcome set = sandbox.Run(With({"ctl", "set-mode", sandbox.job()}, change.words));
    ASSERT_EQ(set.code, 0) << set.err;
    EXPECT_THAT(set.out, HasSubstr(fmt::format("job {}: mode {} since global step ", sandbox.job(),
                                               change.mode)));
    expected.push_back(change.mode);
    const nlohmann::json arena = sandbox.Status()["arena"];
    EXPECT_EQ(arena["mode"], change.mode.substr(0, change.mode.find('=')));
    EXPECT_TRUE(arena["changing"].is_null());
    ASSERT_TRUE(sandbox.Advances(10)) << change.mode;
  }
  const Outcome again = sandbox.Run({"ctl", "set-mode", sandbox.job(), "hogwild"});
  EXPECT_EQ(again.code, 0) << "it is in that mode already";
  EXPECT_THAT(sandbox.Run({"ctl", "status", sandbox.job()}).out,
              HasSubstr("modes so far: hogwild from step 0 on, barrier from step "));
  EXPECT_TRUE(train.WaitFor("mode hogwild since ", 10));
  ASSERT_EQ(sandbox.Run({"ctl", "stop", sandbox.job()}).code, 0);
  const Outcome outcome = sandbox.Finish(train);
  EXPECT_EQ(outcome.code, 130) << outcome.err;
  const nlohmann::json report = ReadJson(sandbox.dir().File("r"));
  EXPECT_EQ(Modes(report), expected);
  EXPECT_LE(report["max_clock_lead"].get<int>(), 3);
  EXPECT_EQ(report["half_applied"], 0);
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(SetModeTest, NamesWhoHoldsTheChangeUpAndTheWishStands) {
  Sandbox sandbox;
  Program train = StartLong(sandbox, {"--slow_worker=1:4000ms"});
  ASSERT_TRUE(sandbox.AwaitStep(5));
  const Outcome early = sandbox.Run({"ctl", "set-mode", sandbox.job(), "barrier", "--wait=0.3"});
  EXPECT_EQ(early.code, 143) << early.err;
  EXPECT_THAT(early.err, HasSubstr("waiting for worker/1"));
  EXPECT_THAT(sandbox.Run({"ctl", "status", sandbox.job()}).out,
              HasSubstr("changing to mode barrier"));
  const Outcome other = sandbox.Run({"ctl", "set-mode", sandbox.job(), "locked", "--wait=0.2"});
  EXPECT_EQ(other.code, 2) << other.err;
  EXPECT_THAT(other.err, HasSubstr("is changing to mode barrier"));
  const Outcome in_time = sandbox.Run({"ctl", "set-mode", sandbox.job(), "barrier"});
  EXPECT_EQ(in_time.code, 0) << in_time.err;
  sandbox.Interrupt(train);
}

struct Death {
  const char* point;
  const char* victim;
  const char* mode;
};
class SetModeDeath : public ::testing::TestWithParam<Death> {};

TEST_P(SetModeDeath, LeavesTheNewModeAndAJobThatGoesOn) {
  Sandbox sandbox;
  sandbox.SetEnv("PASSEL_FAILPOINT",
                 fmt::format("{}:1:kill:{}", GetParam().point, sandbox.dir().File("killed")));
  Program train =
      StartLong(sandbox, {"--ps=2", "--max_restarts=1", fmt::format("--mode={}", GetParam().mode)});
  ASSERT_TRUE(sandbox.AwaitStep(20));
  const Outcome set = sandbox.Run({"ctl", "set-mode", sandbox.job(), "replicas=2"});
  EXPECT_EQ(set.code, 0) << set.err;
  EXPECT_TRUE(train.WaitFor("was killed by SIGKILL (9)"));
  ASSERT_TRUE(sandbox.Advances(20));
  EXPECT_EQ(sandbox.Status()["arena"]["mode_number"], 1) << "it changed once";
  ASSERT_EQ(sandbox.Run({"ctl", "stop", sandbox.job()}).code, 0);
  const Outcome outcome = sandbox.Finish(train);
  EXPECT_EQ(outcome.code, 130) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr(GetParam().victim));
  EXPECT_EQ(sandbox.Leftovers(), "");
}

INSTANTIATE_TEST_SUITE_P(Fault, SetModeDeath,
                         ::testing::Values(Death{"ps.wished", "ps/0", "hogwild"},
                                           Death{"mode.arrived", "worker/", "barrier"},
                                           Death{"mode.prepared", "worker/", "hogwild"},
                                           Death{"mode.published", "worker/", "barrier"}),
                         [](const auto& test) {
                           std::string name = test.param.point;
                           std::ranges::replace(name, '.', '_');
                           return name;
                         });

TEST(SetModeTest, AKilledCtlLeavesTheOldModeOrTheNewOne) {
  Sandbox sandbox;
  Program train = StartLong(sandbox);
  ASSERT_TRUE(sandbox.AwaitStep(20));
  for (int i = 0; i < 8; ++i) {
    const std::string mode = i % 2 == 0 ? "barrier" : "hogwild";
    Program ctl = sandbox.Start({"ctl", "set-mode", sandbox.job(), mode});
    ::usleep(static_cast<useconds_t>(2200 * i));
    ctl.Signal(SIGKILL);
    (void)sandbox.Finish(ctl);
    ASSERT_TRUE(sandbox.Advances(10)) << "after " << i;
    const nlohmann::json arena = sandbox.Status()["arena"];
    EXPECT_TRUE(arena["mode"] == "barrier" || arena["mode"] == "hogwild");
  }
  ASSERT_EQ(sandbox.Run({"ctl", "stop", sandbox.job()}).code, 0);
  EXPECT_EQ(sandbox.Finish(train).code, 130);
  EXPECT_EQ(sandbox.Leftovers(), "");
}

}  // namespace
}  // namespace passel::testing

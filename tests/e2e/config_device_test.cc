// Flags of devices, binding and memory: what is checked, shown and warned of.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "e2e/printed_config.h"
#include "support/program.h"

namespace passel::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ConfigTest, DeviceFlagsThatCannotBeHonouredAreNamed) {
  Sandbox sandbox;
  const auto run = [&](std::vector<std::string> more) {
    const std::vector<std::string> all =
        With(sandbox.Task("worker", 1, 2, 2, {"--start_wait=0.2"}), more);
    return sandbox.Run(all, 5);
  };
  EXPECT_THAT(OnlyError(run({"--num_gpus=-1"})), HasSubstr("-1"));
  EXPECT_THAT(OnlyError(run({"--num_gpus=2", "--noallow_soft_placement"})), HasSubstr("gpu:1"));
  const Outcome soft = run({"--num_gpus=2", "--per_process_gpu_memory_fraction=0.2"});
  EXPECT_THAT(soft.err, HasSubstr("computes on the CPU, not on gpu:1"));
  EXPECT_THAT(soft.err, HasSubstr("--per_process_gpu_memory_fraction 0.2 has no effect"));
  EXPECT_THAT(soft.out, HasSubstr("worker_device: /job:worker/task:1/gpu:1\n"));
  EXPECT_THAT(OnlyError(run({"--per_process_gpu_memory_fraction=1.5"})), HasSubstr("1.5"));
  EXPECT_THAT(OnlyError(run({"--device_filters=/job:ps/task:0,/job:worker/task:1"})),
              HasSubstr("leave out ps/1"));
  EXPECT_THAT(OnlyError(run({"--device_filters=ps"})), HasSubstr("--device_filters"));
  // What the reference programs give: the ps and the task itself. It then waits for the ps.
  EXPECT_THAT(OnlyError(run({"--device_filters=/job:ps,/job:worker/task:1"}), 143),
              HasSubstr("did not start"));
}

// Before anything is waited for, and where only settings or places are printed.
TEST(ConfigTest, DevicesAndPinsAreCheckedBeforeAnythingElse) {
  Sandbox sandbox;
  for (const char* print : {"--print_config", "--print_placement", ""}) {
    const auto refusal = [&](const std::string& flag, const std::string& more = "") {
      std::vector<std::string> all = sandbox.Task("worker", 1, 2, 2, {"--start_wait=300", flag});
      for (const std::string& text : {std::string(print), more}) {
        if (!text.empty()) all.push_back(text);
      }
      return OnlyError(sandbox.Run(all, 5));
    };
    EXPECT_THAT(refusal("--pin_variable=hid_w=/job:ps/task:2"), HasSubstr("0 to 1, not 2"));
    EXPECT_THAT(refusal("--pin_variable=w=/job:ps/task:0"), HasSubstr("hid_w, hid_b, sm_w, sm_b"));
    EXPECT_THAT(refusal("--device_filters=/job:worker/task:1"), HasSubstr("leave out ps/0"));
    EXPECT_THAT(refusal("--per_process_gpu_memory_fraction=100000000000000000000"),
                HasSubstr("above 0 and up to 1, not 100000000000000000000: use"));
    EXPECT_THAT(refusal("--num_gpus=1", "--noallow_soft_placement"), HasSubstr("gpu:0"));
  }
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(ConfigTest, ADefaultThatFollowsFromOthersIsShownAsItWillBe) {
  Sandbox sandbox;
  const auto show = [&](const std::vector<std::string>& flags) {
    Outcome outcome = sandbox.Run(sandbox.Task("worker", 0, 1, 3, flags));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome;
  };
  Outcome outcome = show({"--print_config", "--sync_replicas"});
  EXPECT_EQ(SettingOf(outcome, "mode"), "barrier  follows from --sync_replicas");
  EXPECT_EQ(SettingOf(outcome, "learning_rate"), "0.001  default of --optimizer adam");
  EXPECT_EQ(SettingOf(outcome, "momentum"), "-  not used by --optimizer adam");
  EXPECT_EQ(SettingOf(outcome, "staleness_bound"), "-  not used in mode barrier");
  EXPECT_EQ(SettingOf(outcome, "log_lines"), "task  default of a task");
  outcome = show({"--print_config", "--mode=replicas", "--optimizer=nesterov", "--epochs=2"});
  EXPECT_EQ(SettingOf(outcome, "mode"), "replicas  flag --mode");
  EXPECT_EQ(SettingOf(outcome, "replicas_to_aggregate"), "3  default: the number of workers");
  EXPECT_EQ(SettingOf(outcome, "use_nesterov"), "true  default of --optimizer nesterov");
  EXPECT_EQ(SettingOf(outcome, "learning_rate"), "0.05  default of --optimizer nesterov");
  EXPECT_EQ(SettingOf(outcome, "train_steps"), "0  default with --epochs");
  outcome = show({"--print_config", "--mode=ssp", "--model=softmax"});
  EXPECT_EQ(SettingOf(outcome, "staleness_bound"), "3  default");
  EXPECT_EQ(SettingOf(outcome, "hidden_units"), "-  not used by --model softmax");
  outcome = show({"--print_config", "--mode_schedule=0:replicas=2,9:hogwild"});
  EXPECT_EQ(SettingOf(outcome, "mode"), "replicas  follows from --mode_schedule");
  EXPECT_EQ(SettingOf(outcome, "replicas_to_aggregate"), "2  follows from --mode_schedule");
  outcome = show(
      {"--print_config", "--preset=dist-mnist", "--replicas_to_aggregate=2", "--sync_replicas"});
  EXPECT_EQ(SettingOf(outcome, "mode"), "replicas  follows from --sync_replicas");
  EXPECT_EQ(SettingOf(outcome, "learning_rate"), "0.01  preset dist-mnist");
}

TEST(ConfigTest, TrainTakesGpusTooAndSaysOnceThatItHasNone) {
  Sandbox sandbox;
  const Outcome soft = sandbox.Run(
      sandbox.Train({"--num_gpus=1", "--train_steps=20", "--log_lines=dist-mnist", "--workers=2"}));
  EXPECT_EQ(soft.code, 0) << soft.err;
  const std::string warning = "all workers compute on the CPU, not on gpu:0 (--num_gpus 1)";
  ASSERT_THAT(soft.err, HasSubstr(warning));
  EXPECT_THAT(soft.err.substr(soft.err.find(warning) + warning.size()),
              Not(HasSubstr("on the CPU")));
  EXPECT_THAT(soft.out, HasSubstr("worker_device: /job:worker/task:1/gpu:0\n"));
  const auto refusal = [&](std::vector<std::string> flags) {
    return OnlyError(sandbox.Run(sandbox.Train(std::move(flags)), 5));
  };
  EXPECT_THAT(refusal({"--num_gpus=1", "--noallow_soft_placement"}), HasSubstr("--num_gpus 0"));
  EXPECT_THAT(refusal({"--num_gpus=-1"}), HasSubstr("--num_gpus is -1"));
  EXPECT_THAT(refusal({"--num_gpus=1", "--preset=mnist-replica", "--print_placement"}),
              HasSubstr("number of gpus is less than number of workers"));
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(ConfigTest, DeviceFlagsOfATaskAloneAreNotIgnoredEither) {
  Sandbox sandbox;
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"task", "--data_dir=" + Digits(), "--train_steps=20",
                               "--job_id=" + sandbox.job()});
    return sandbox.Run(more, 10);
  };
  const Outcome soft = run({"--num_gpus=1", "--log_device_placement"});
  EXPECT_EQ(soft.code, 0) << soft.err;
  EXPECT_THAT(soft.err, HasSubstr("worker/0 computes on the CPU, not on gpu:0"));
  EXPECT_THAT(soft.err, HasSubstr("every variable, forward and backward pass: this process"));
  EXPECT_THAT(OnlyError(run({"--num_gpus=1", "--noallow_soft_placement"})), HasSubstr("gpu:0"));
  EXPECT_THAT(OnlyError(run({"--existing_servers"})), HasSubstr("needs a cluster"));
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(ConfigTest, MemoryOfAnArenaMayBeLimited) {
  Sandbox sandbox;
  EXPECT_THAT(OnlyError(sandbox.Run(sandbox.Train({"--memory_fraction=0"}))), HasSubstr("not 0"));
  EXPECT_THAT(OnlyError(sandbox.Run(sandbox.Train({"--memory_fraction=1.5"}))), HasSubstr("1.5"));
  EXPECT_THAT(OnlyError(sandbox.Run(sandbox.Train({"--memory_fraction=0.0000001"}))),
              HasSubstr("--memory_fraction 1e-07"));
  // By hand the ps says so, to the chief.
  const std::vector<std::string> flags = {"--memory_fraction=0.0000001", "--start_wait=20"};
  Program ps = sandbox.Start(sandbox.Task("ps", 0, 1, 1, flags));
  EXPECT_THAT(OnlyError(sandbox.Run(sandbox.Task("worker", 0, 1, 1, flags), 10)),
              HasSubstr("--memory_fraction 1e-07"));
  ps.Signal(SIGINT);
  EXPECT_EQ(sandbox.Finish(ps, 5).code, 130);
  EXPECT_EQ(sandbox.Run(sandbox.Train({"--memory_fraction=0.9", "--train_steps=20"})).code, 0);
  EXPECT_EQ(sandbox.Leftovers(), "");
}

}  // namespace
}  // namespace passel::testing

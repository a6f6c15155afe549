// What is said of settings that cannot be: one sentence that names the flag, its limits, the value
// as it was typed and the fix. That the program refuses with it is in tests/bad_inputs.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "job/launch_setup.h"
#include "job/mode_settings.h"
#include "tests/unit/job/settings_of.h"

namespace passel::job::testing {
namespace {

using ::testing::StartsWith;

struct Refused {
  std::vector<std::string> flags;
  std::vector<std::string> says;  // in this order
};

constexpr std::size_t kLongestSentence = 700;

// What the program says before it looks at data or at the machine.
Status Check(const std::vector<std::string>& flags) {
  TrainSettings settings;
  // No row may come as far as a look at the GPUs of this machine.
  settings.devices.device = "cpu";
  Give(flags, &settings);
  const Result<JobConfig> config = CheckTrainSettings(&settings);
  return config.ok() ? SetUpLaunch(settings, *config).status() : config.status();
}

void ExpectRefused(std::span<const Refused> rows) {
  for (const Refused& row : rows) {
    std::string given;
    for (const std::string& flag : row.flags) given += " " + flag;
    SCOPED_TRACE(given);
    const Status status = Check(row.flags);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.message();
    std::size_t at = 0;
    for (const std::string& words : row.says) {
      const std::size_t found = status.message().find(words, at);
      EXPECT_NE(found, std::string::npos) << words << " in " << status.message();
      if (found != std::string::npos) at = found + words.size();
    }
    EXPECT_LE(status.message().size(), kLongestSentence);
    EXPECT_TRUE(std::ranges::all_of(status.message(), [](char c) { return c >= ' '; }));
  }
}

const Refused kFlags[] = {
    {{"--workers=0"}, {"1 to 256", "not 0", "--workers"}},
    {{"--workers=257"}, {"1 to 256", "257", "--workers"}},
    {{"--ps=0", "--workers=2"}, {"one worker", "2", "--ps 1"}},
    {{"--optimizer=magic"}, {"magic", "sgd", "adam"}},
    {{"--placement=left"}, {"--placement", "left", "round_robin"}},
    {{"--partitioner=x"}, {"--partitioner", "x", "min_max"}},
    {{"--partitioner=fixed:0"}, {"--partitioner", "fixed:0", "from 1"}},
    {{"--model=cnn"}, {"cnn", "mlp", "softmax"}},
    {{"--hidden_units=10,,5"}, {"10,,5"}},
    {{"--model=softmax", "--hidden_units=5"}, {"--hidden_units 5", "--model softmax", "omit it"}},
    {{"--hidden_units=8,0"}, {"8,0", "1 to", "not 0"}},
    {{"--loss=hinge"}, {"hinge", "sum", "mean"}},
    {{"--pull=maybe"}, {"--pull", "maybe", "auto", "view", "copy"}},
    {{"--on_nan=hope"}, {"--on_nan", "hope", "skip"}},
    {{"--on_stall=hope"}, {"--on_stall", "hope", "evict", "wait", "fail"}},
    {{"--momentum=0.9"}, {"--momentum", "adam"}},
    {{"--weight_decay=0.01"}, {"--weight_decay has no meaning for --optimizer adam", "omit it"}},
    {{"--optimizer=adamw", "--weight_decay=-1"}, {"--weight_decay must", "0 or more", "got -1"}},
    {{"--optimizer=sgd", "--beta1=0.9"}, {"--beta1", "sgd"}},
    {{"--optimizer=adagrad", "--l2=1"}, {"--l2", "adagrad"}},
    {{"--optimizer=rmsprop", "--decay=-1"}, {"--decay must", "-1", "use, for example, 0.9"}},
    {{"--learning_rate=100000000000000000000000000000000000000000"},
     {"--learning_rate must", "got 100000000000000000000000000000000000000000:"}},
    {{"--train_steps=9223372036854775807"},
     {"--train_steps is 0 to 1000000000000, not 9223372036854775807: use "
      "--train_steps=1000000000000 or less"}},
    {{"--grace=1e99"}, {"--grace is 0.1 to 3600 s, not 1e99: use"}},
    {{"--optimizer=ftrl", "--learning_rate_power=1"}, {"learning_rate_power", "0 or less", "1"}},
    {{"--spin_us=nan"}, {"--spin_us", "nan"}},
    {{"--grace=nan"}, {"--grace", "nan"}},
    {{"--restart_window=-1"}, {"--restart_window is 0 to 31536000 s, not -1"}},
    {{"--restart_window=nan"}, {"--restart_window", "nan"}},
    {{"--max_restarts=1001"}, {"--max_restarts is 0 to 1000, not 1001"}},
    {{"--report=/dev/full"}, {"--report", "/dev/full", "regular"}},
    {{"--sync_replicas", "--mode=hogwild"}, {"--sync_replicas", "hogwild", "omit one"}},
    {{"--sync_replicas", "--mode_schedule=0:ssp,5:hogwild"},
     {"--sync_replicas begins with mode barrier", "0:ssp", "omit one"}},
    {{"--report=/dev/stdout"}, {"/dev/stdout", "symbolic link"}},
    {{"--log_file=m", "--save=./m"}, {"--log_file", "--save", "two files"}},
    {{"--log_file=r", "--report=r"}, {"--log_file", "--report", "two files"}},
    {{"--train_steps=100000000", "--save=/tmp"}, {"/tmp", "directory"}},
    {{"--train_steps=100000000", "--save=/etc/hostname/m"},
     {"--save", "/etc/hostname", "Not a directory"}},
    {{"--train_steps=100000000", "--report=/proc/r.json"}, {"--report", "/proc", "another path"}},
};

const Refused kNumbers[] = {
    {{"--batch_size=-1"}, {"--batch_size", "not -1"}},
    {{"--workers=-1"}, {"1 to 256 workers", "not -1"}},
    {{"--ps=-1"}, {"0 to 16 ps", "not -1"}},
    {{"--ps=17"}, {"0 to 16 ps", "not 17"}},
    {{"--epochs=1", "--local_steps=5"}, {"--epochs 1", "--local_steps 5", "omit one"}},
    {{"--towers=2", "--threads_per_worker=2"}, {"--threads_per_worker 2", "--towers 2"}},
    {{"--global_step_bytes=5"}, {"--global_step_bytes is 4", "not 5"}},
    {{"--num_gpus=-1"}, {"--num_gpus", "-1"}},
    {{"--per_process_gpu_memory_fraction=0"},
     {"--per_process_gpu_memory_fraction is above 0", "not 0"}},
    {{"--per_process_gpu_memory_fraction=2"},
     {"--per_process_gpu_memory_fraction is above 0", "not 2"}},
    {{"--workers_per_gpu=2"}, {"--workers_per_gpu", "--gpus"}},
    {{"--steps_ahead=2"}, {"--steps_ahead 2", "--overlap"}},
    {{"--towers=9", "--batch_size=8"}, {"--towers", "8 examples", "not 9"}},
    {{"--push_every=0"}, {"--push_every is 1 to 1000, not 0: use --push_every=1 or more"}},
};

const Refused kReals[] = {
    {{"--memory_fraction=0"}, {"--memory_fraction is above 0", "not 0"}},
    {{"--memory_fraction=1.0001"}, {"--memory_fraction", "1.0001"}},
    {{"--memory_fraction=nan"}, {"--memory_fraction", "nan"}},
    {{"--stall_limit=nan"}, {"--stall_limit", "nan"}},
    {{"--start_wait=inf"}, {"--start_wait", "inf"}},
    {{"--shadow_interval=0"}, {"--shadow_interval", "0.01", "not 0"}},
    {{"--shadow_interval=nan"}, {"--shadow_interval", "nan"}},
    {{"--learning_rate=0"}, {"--learning_rate", "0"}},
    {{"--beta1=1"}, {"--beta1 must", "1"}},
    {{"--beta2=1"}, {"--beta2 must", "1"}},
    {{"--epsilon=0"}, {"--epsilon must", "0"}},
    {{"--optimizer=momentum", "--momentum=nan"}, {"--momentum must", "nan"}},
    {{"--optimizer=rmsprop", "--decay=1.1"}, {"--decay must", "1.1"}},
    {{"--optimizer=adagrad", "--initial_accumulator_value=nan"},
     {"--initial_accumulator_value must", "nan"}},
    {{"--optimizer=ftrl", "--l1=inf"}, {"--l1 must", "inf"}},
    {{"--optimizer=ftrl", "--l2=-0.5"}, {"--l2 must", "-0.5"}},
    {{"--optimizer=ftrl", "--l2_shrinkage=-1"}, {"--l2_shrinkage must", "-1"}},
    {{"--optimizer=ftrl", "--learning_rate_power=nan"}, {"--learning_rate_power must", "nan"}},
    {{"--optimizer=sgd", "--centered"}, {"--centered", "sgd"}},
    {{"--optimizer=adagrad", "--use_nesterov"}, {"--use_nesterov", "adagrad"}},
    {{"--optimizer=ftrl", "--epsilon=1"}, {"--epsilon", "ftrl"}},
    {{"--initial_accumulator_value=0.1"}, {"--initial_accumulator_value", "adam"}},
    {{"--learning_rate_power=-0.5"}, {"--learning_rate_power", "adam"}},
    {{"--optimizer=momentum", "--l2_shrinkage=1"}, {"--l2_shrinkage", "momentum"}},
    {{"--optimizer=rmsprop", "--l1=1"}, {"--l1", "rmsprop"}},
};

const Refused kRoles[] = {
    {{"--ps=0", "--workers=1", "--evaluator"}, {"--evaluator", "--ps 1"}},
};

const Refused kChoices[] = {
    {{"--mode=hogwlid"}, {"hogwlid", "hogwild"}},
    {{"--mode=ssp "}, {"ssp"}},
    {{"--optimizer=lamb"}, {"lamb", "adam"}},
    {{"--loss=mse"}, {"mse", "mean"}},
    {{"--sampler=shuffle"}, {"--sampler", "shuffle", "next_batch"}},
    {{"--math=fp16"}, {"--math", "fp16", "tf32"}},
    {{"--arena=gpu"}, {"--arena", "gpu", "host"}},
    {{"--huge_pages=on"}, {"--huge_pages", "on", "transparent"}},
    {{"--global_step=middle"}, {"--global_step", "middle", "first"}},
    {{"--worker_eval_set=train"}, {"--worker_eval_set", "train", "validation"}},
    {{"--worker_eval_set=validation"}, {"validation", "--validation_size 0"}},
    {{"--bind=cpu"}, {"--bind", "cpu", "numa"}},
    {{"--device=gpu"}, {"--device is auto", "\"gpu\""}},
    {{"--device=cuda:0"}, {"--device", "UUID", "\"cuda:0\""}},
    {{"--gpus=0", "--num_gpus=1"}, {"--gpus 0", "--num_gpus 1"}},
    {{"--ps=0", "--workers=1", "--gpus=all"}, {"--gpus", "--ps 1"}},
    {{"--overlap", "--mode=barrier"}, {"--overlap", "barrier", "omit it"}},
    {{"--prefetch", "--mode=replicas"}, {"--prefetch", "in replicas", "omit it", "hogwild"}},
    {{"--prefetch", "--mode_schedule=9:barrier"}, {"--prefetch", "in barrier", "omit it"}},
    {{"--hidden_units=many"}, {"many"}},
    {{"--hidden_units=1.5"}, {"1.5"}},
    {{"--hidden_units=10;20"}, {"10;20"}},
    {{"--hidden_units=10, 20"}, {"10, 20"}},
    {{"--hidden_units=18446744073709551616"}, {"18446744073709551616"}},
    {{"--hidden_units=2147483647,2147483647"}, {"2147483647"}},
    {{"--partitioner=fixed:-1"}, {"--partitioner fixed:-1", "-1"}},
    {{"--partitioner=fixed"}, {"--partitioner fixed", "fixed:PARTS"}},
    {{"--partitioner=axis:1000:2:3"}, {"--partitioner", "axis:1000:2:3"}},
    {{"--partitioner=fixed:99999999999999999999"}, {"--partitioner", "99999999999999999999"}},
    {{"--slow_worker=1"}, {"--slow_worker", "1"}},
    {{"--slow_worker=1:5s"}, {"--slow_worker", "1:5s"}},
    {{"--slow_worker=0:-5ms"}, {"--slow_worker", "0:-5ms"}},
    {{"--staleness_bound=3"}, {"--staleness_bound", "hogwild", "ssp"}},
    {{"--mode=ssp", "--staleness_bound=-1"}, {"--staleness_bound", "-1"}},
    {{"--mode=ssp", "--staleness_bound=10000000000"}, {"--staleness_bound", "10000000000"}},
    {{"--mode=barrier", "--replicas_to_aggregate=2"}, {"--replicas_to_aggregate", "barrier"}},
    {{"--mode=replicas", "--replicas_to_aggregate=-1"}, {"--replicas_to_aggregate", "-1"}},
    {{"--mode_schedule=10:replicas=x"}, {"replicas"}},
};

const Refused kSchedules[] = {
    {{"--mode_schedule=barrier"}, {"--mode_schedule", "\"barrier\" is not understood"}},
    {{"--mode_schedule=5:frob"}, {"--mode_schedule", "\"frob\""}},
    {{"--mode_schedule=5:barrier,"}, {"--mode_schedule", "\"\" is not understood"}},
    {{"--mode_schedule=5:barrier,5:hogwild"}, {"--mode_schedule", "5 after 5"}},
    {{"--mode_schedule=9:barrier,5:hogwild"}, {"--mode_schedule", "5 after 9"}},
    {{"--mode_schedule=-1:barrier"}, {"--mode_schedule", "\"-1:barrier\""}},
    {{"--mode_schedule=1000000000001:barrier"}, {"--mode_schedule", "1000000000000"}},
    {{"--mode_schedule=99999999999999999999:barrier"}, {"--mode_schedule", "1000000000000"}},
    {{"--mode_schedule=5:replicas=0"}, {"--mode_schedule", "from 1 to 65536"}},
    {{"--mode_schedule=5:hogwild=2"}, {"--mode_schedule", "takes no number"}},
    {{"--mode_schedule=1:barrier,2:hogwild,3:hogwild,4:hogwild,5:hogwild,6:hogwild,7:hogwild,"
      "8:hogwild,9:hogwild,10:hogwild,11:hogwild,12:hogwild,13:hogwild,14:hogwild,15:hogwild,"
      "16:hogwild,17:hogwild"},
     {"--mode_schedule", "at most 16", "17"}},
    {{"--mode=barrier", "--mode_schedule=0:hogwild"}, {"--mode barrier", "hogwild"}},
    {{"--staleness_bound=2", "--mode_schedule=0:ssp"}, {"--staleness_bound", "0:ssp=5"}},
};

const Refused kPins[] = {
    {{"--ps=2", "--pin_variable=hid_w"}, {"NAME=DEVICE"}},
    {{"--ps=2", "--pin_variable=x=/job:ps/task:0"}, {"hid_w, hid_b"}},
    {{"--ps=2", "--pin_variable=global_step=/job:ps/task:0"}, {"only those"}},
    {{"--ps=2", "--pin_variable=hid_w=/job:ps/task:2"}, {"0 to 1, not 2"}},
    {{"--ps=2", "--pin_variable=hid_w=/job:worker/task:0"}, {"/job:ps/task:N"}},
    {{"--ps=2", "--pin_variable=hid_w=/job:ps/gpu:0"}, {"host memory"}},
    {{"--ps=2", "--pin_variable=hid_w=task"}, {"hid_w"}},
};

TEST(SettingsTest, TheDefaultsPass) { EXPECT_TRUE(Check({}).ok()) << Check({}).message(); }

TEST(SettingsTest, WhatIsWrongAloneIsRefused) { ExpectRefused(kFlags); }

TEST(SettingsTest, WholeNumbersOutOfRangeAreRefused) { ExpectRefused(kNumbers); }

TEST(SettingsTest, NumbersOutOfRangeOrOfAnotherOptimizerAreRefused) { ExpectRefused(kReals); }

TEST(SettingsTest, AnEvaluatorNeedsAPs) { ExpectRefused(kRoles); }

TEST(SettingsTest, WordsThatAreNoChoiceAreRefused) { ExpectRefused(kChoices); }

TEST(SettingsTest, SchedulesOfModesThatCannotBeAreRefused) { ExpectRefused(kSchedules); }

TEST(SettingsTest, WrongPinsAreRefused) { ExpectRefused(kPins); }

// `train` and `ctl set-mode` go by the same checks.
TEST(SettingsTest, AModeTakesItsOwnNumberAndNoOther) {
  const auto taken = [](ModeSetting mode, const ModeNumber& number) {
    const Status status = TakeNumbers({&number, 1}, &mode);
    return status.ok() ? mode.ToString() : status.message();
  };
  EXPECT_EQ(taken(Mode::kReplicas, {"replicas_to_aggregate", 3}), "replicas=3");
  EXPECT_EQ(taken(Mode::kSsp, {"staleness_bound", 0}), "ssp=0");
  EXPECT_EQ(taken(Mode::kHogwild, {"staleness_bound", std::nullopt}), "hogwild");
  EXPECT_EQ(taken(Mode::kHogwild, {"staleness_bound", 3}),
            "--staleness_bound has no meaning in mode hogwild: use mode ssp, or omit it");
  EXPECT_THAT(taken(Mode::kReplicas, {"replicas_to_aggregate", 0}),
              ::testing::AllOf(::testing::HasSubstr("--replicas_to_aggregate"),
                               ::testing::HasSubstr("not 0")));
  EXPECT_THAT(taken(Mode::kSsp, {"staleness_bound", std::int64_t{1} << 40}),
              ::testing::HasSubstr("1000000"));
}

// Another value than the default one.
std::string OtherValue(const SettingValue& value) {
  return std::holds_alternative<bool*>(value) ? "" : TextOf(value) == "7" ? "8" : "7";
}

TEST(SettingsTableTest, ATaskIsGivenEverySettingOfItsJobThatIsNotItsDefault) {
  TrainSettings defaults;
  EXPECT_EQ(ToArguments(ViewOf(defaults.job, &defaults.devices)), std::vector<std::string>());
  const std::set<std::string> of_the_command = {
      "download_only", "download_url",         "device",           "checkpoint_dir",
      "save_secs",     "save_steps",           "keep_checkpoints", "keep_every_hours",
      "resume",        "checkpoint_consistent"};
  int given = 0;
  for (const SettingRow& row : SettingsTable()) {
    const SettingValue value = row.value(ViewOf(defaults.job, &defaults.devices));
    if (value.index() == 0) continue;
    SCOPED_TRACE(row.name);
    EXPECT_EQ(row.traits.to_child, !of_the_command.contains(row.name));
    TrainSettings settings;
    const SettingsView view = ViewOf(settings.job, &settings.devices);
    std::vector<std::string> expected = {fmt::format("--{}={}", row.name, OtherValue(value))};
    if (const bool* const* const on = std::get_if<bool*>(&value)) {
      expected = {fmt::format("--{}{}", **on ? "no" : "", row.name)};
      *std::get<bool*>(row.value(view)) = !**on;
    } else {
      std::visit([&](auto field) { SetTo(OtherValue(value), field); }, row.value(view));
    }
    if (!row.traits.to_child) expected.clear();
    EXPECT_EQ(ToArguments(view), expected);
    ++given;
  }
  EXPECT_GT(given, 70);
}

TEST(SettingsTableTest, OfOneCommandNoNameIsThereTwice) {
  TrainSettings train;
  JobSettings job;
  TaskSettings task;
  for (const SettingsView& view : {ViewOf(train), ViewOf(job, &task.devices, &task)}) {
    std::set<std::string> names;
    for (const SettingRow& row : SettingsTable()) {
      if (row.value(view).index() == 0) continue;
      EXPECT_TRUE(names.insert(row.name).second) << row.name;
      EXPECT_EQ(row.group.empty(), row.help.empty()) << row.name;
    }
  }
}

// The default itself is within its range, and a number beyond it is refused.
TEST(SettingsTableTest, ARangeHoldsForItsSetting) {
  int ranges = 0;
  for (const SettingRow& row : SettingsTable()) {
    if (!row.traits.range) continue;
    ++ranges;
    SCOPED_TRACE(row.name);
    const SettingRange& range = *row.traits.range;
    EXPECT_LT(range.least, range.most);
    for (const double wrong : {range.least - 1, range.most + 1}) {
      TrainSettings train;
      JobSettings own;
      TaskSettings task;
      const bool of_tasks = row.value(ViewOf(train)).index() == 0;
      JobSettings& job = of_tasks ? own : train.job;
      const SettingsView view = of_tasks ? ViewOf(own, &task.devices, &task) : ViewOf(train);
      EXPECT_TRUE(CheckRanges(view, job.typed).ok());
      GiveTo(view, fmt::format("--{}={}", row.name, wrong), &job);
      EXPECT_THAT(CheckRanges(view, job.typed).message(),
                  StartsWith(fmt::format("--{} is {} to {}{}, not", row.name, range.least,
                                         range.most, range.unit)));
    }
  }
  EXPECT_GT(ranges, 20);
}

}  // namespace
}  // namespace passel::job::testing

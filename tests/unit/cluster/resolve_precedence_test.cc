// Resolution: who decides over all sets of sources, and what is warned of.

#include "cluster/resolve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/cluster/resolve_inputs.h"

namespace passel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Inputs;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using testing::ThreeTasks;
using testing::Value;

// --- Precedence --------------------------------------------------------------------------------

TEST(ResolveTest, EverySetOfSourcesIsDecidedInTheDocumentedOrder) {
  // Source s gives ps_hosts "ps-<s>:1", job worker, task_index <s>; all have 7 workers, so that
  // every index exists.
  const std::vector<std::string> names{"TF_CONFIG", "flag", "environment",
                                       "KEY",       "file", "default"};
  const auto hosts = [](const std::string& prefix, int source) {
    std::string text;
    for (int i = 0; i < 7; ++i) {
      text += (i ? "," : "");
      text += prefix + std::to_string(source) + std::to_string(i) + ":1";
    }
    return text;
  };
  for (int set = 1; set < 64; ++set) {
    const auto has = [&](int source) { return (set >> source & 1) != 0; };
    Inputs in;
    if (has(0)) {
      std::string workers = "\"" + hosts("w", 0) + "\"";
      for (std::size_t at = 0; (at = workers.find(',', at)) != std::string::npos; at += 3) {
        workers.replace(at, 1, "\",\"");
      }
      in.TfConfig(R"({"cluster":{"ps":["ps-0:1"],"worker":[)" + workers +
                  R"(]},"task":{"type":"worker","index":0}})");
    }
    if (has(1)) {
      in.Task("worker", "1");
      in.Give("ps_hosts", "ps-1:1").Give("worker_hosts", hosts("w", 1));
    }
    if (has(2)) {
      in.Env("JOB_NAME", "worker").Env("TASK_INDEX", "2");
      in.Env("PS_HOSTS", "ps-2:1").Env("WORKER_HOSTS", hosts("w", 2));
    }
    if (has(3)) in.Env("PS_KEY", "ps-3:1").Env("WORKER_KEY", hosts("w", 3));
    if (has(4)) {
      in.File("job_name: worker\ntask_index: 4\nps_hosts: ps-4:1\nworker_hosts: " + hosts("w", 4));
    }
    if (has(5) && !has(1)) {
      in.Default("job_name", "worker").Default("task_index", "5");
      in.Default("ps_hosts", "ps-5:1").Default("worker_hosts", hosts("w", 5));
    }
    // The first source that has host lists, and the first that has a task: 3 has none.
    const auto first = [&](bool task) {
      for (int source = 0; source < 6; ++source) {
        if (has(source) && !(task && source == 3) && !(source == 5 && has(1))) return source;
      }
      return -1;
    };
    const auto config = in.Resolve();
    if (first(true) < 0) {
      EXPECT_EQ(config.status().message(), "Must specify an explicit `job_name`") << set;
      continue;
    }
    ASSERT_TRUE(config.ok()) << set << ": " << config.status().ToString();
    EXPECT_TRUE(config->distributed);
    EXPECT_EQ(config->task->index, first(true)) << set;
    EXPECT_EQ(config->cluster.Address({"ps", 0})->host, "ps-" + std::to_string(first(false)));
    EXPECT_EQ(config->cluster.Address({"worker", 0})->host,
              "w" + std::to_string(first(false)) + "0");
    EXPECT_THAT(config->Find("ps_hosts")->origin,
                HasSubstr(first(false) == 4 ? "train.yaml:3" : names[first(false)]));
    EXPECT_THAT(config->Find("task_index")->origin,
                HasSubstr(first(true) == 4 ? "train.yaml:2" : names[first(true)]));
  }
}

TEST(ResolveTest, EachSettingIsDecidedForItself) {
  const auto config = Inputs()
                          .Give("task_index", "1")
                          .Env("WORKER_KEY", "w:1,w:2\n")
                          .File("task: {type: worker, index: 0}\ncluster:\n  ps: [p:1]\n")
                          .Resolved();
  EXPECT_EQ(Value(*config, "job_name"), "worker <- file train.yaml:1");
  EXPECT_EQ(Value(*config, "task_index"), "1 <- flag --task_index");
  EXPECT_EQ(Value(*config, "ps_hosts"), "p:1 <- file train.yaml:3");
  EXPECT_EQ(Value(*config, "worker_hosts"), "w:1,w:2 <- environment WORKER_KEY");
  EXPECT_EQ(config->cluster.CanonicalText(), "ps{0=p:1}worker{0=w:1,1=w:2}");
  EXPECT_THAT(config->warnings, IsEmpty());
}

TEST(ResolveTest, OtherFlagsComeFromTheCommandLineThenTheFileThenTheDefault) {
  Inputs in;
  in.Default("batch_size", "100", FlagType::kInteger);
  in.Default("train_steps", "200", FlagType::kInteger);
  in.Default("data_dir", "/tmp/mnist-data");
  in.Give("batch_size", "7");
  in.File("batch_size: 8\ntrain_steps: 9\n");
  const auto config = in.Resolved();
  EXPECT_EQ(Value(*config, "batch_size"), "7 <- flag --batch_size");
  EXPECT_EQ(Value(*config, "train_steps"), "9 <- file train.yaml:2");
  EXPECT_EQ(Value(*config, "data_dir"), "/tmp/mnist-data <- default");
  EXPECT_EQ(config->Find("nothing"), nullptr);
  EXPECT_FALSE(config->distributed);
  EXPECT_THAT(config->warnings, IsEmpty());
  // A flag that the file may not set.
  in.Find("data_dir").in_file = false;
  EXPECT_THAT(in.File("data_dir: /x").Error(),
              StartsWith("train.yaml:1:1: the setting \"data_dir\" is not known"));
  EXPECT_THAT(in.File("batch_sise: 1").Error(), HasSubstr("did you mean \"batch_size\"?"));
}

TEST(ResolveTest, TfConfigsClusterIsNotMixedWithOtherHosts) {
  const auto config =
      Inputs()
          .Give("ps_hosts", "other:1")
          .TfConfig(R"({"cluster":{"worker":["w:1","w:2"]},"task":{"type":"worker","index":0}})")
          .Resolve();
  EXPECT_EQ(config.status().message(), "There must be at least one ps. (TF_CONFIG cluster)");
}

TEST(ResolveTest, WhatTfConfigLeavesOpenComesFromElsewhere) {
  const std::string cluster = R"({"cluster":{"ps":["p:1"],"worker":["w:1","w:2"]})";
  auto config = Inputs().Task("worker", "1").TfConfig(cluster + "}").Resolved();
  EXPECT_EQ(*config->task, (TaskId{"worker", 1}));
  config = Inputs()
               .Give("task_index", "1")
               .TfConfig(cluster + R"(,"task":{"type":"worker"}})")
               .Resolved();
  EXPECT_EQ(*config->task, (TaskId{"worker", 1}));
  EXPECT_EQ(Inputs().TfConfig(cluster + R"(,"task":{"type":"worker"}})").Error(),
            "Must specify an explicit `task_index`");
  EXPECT_EQ(Inputs().TfConfig(cluster + "}").Error(), "Must specify an explicit `job_name`");
  config = ThreeTasks("ps", "0").TfConfig(R"({"task":{"type":"worker","index":1}})").Resolved();
  EXPECT_EQ(*config->task, (TaskId{"worker", 1}));
  EXPECT_EQ(config->cluster.num_tasks("worker"), 2);
}

// --- Warnings ----------------------------------------------------------------------------------

TEST(ResolveTest, TfConfigWinsOverFlagsWithAWarningThatNamesBoth) {
  const auto config =
      ThreeTasks("ps", "1")
          .TfConfig(
              R"({"cluster":{"ps":["P:1"],"worker":["x:1"]},"task":{"type":"worker","index":0}})")
          .Resolved();
  EXPECT_EQ(*config->task, (TaskId{"worker", 0}));
  EXPECT_THAT(
      config->warnings,
      ElementsAre("TF_CONFIG task.type = \"worker\" wins over flag --job_name = \"ps\": remove one "
                  "of them",
                  "TF_CONFIG task.index = \"0\" wins over flag --task_index = \"1\": remove one of "
                  "them",
                  "TF_CONFIG cluster.worker = \"x:1\" wins over flag --worker_hosts = \"w:1,w:2\": "
                  "remove one of them"));
}

TEST(ResolveTest, OnlyTheEnvironmentsVictoriesAreWarnedOf) {
  const std::string file = "job_name: ps\ntask_index: 0\nps_hosts: f:1\nworker_hosts: f:2\n";
  auto config =
      ThreeTasks("worker", "0").Env("PS_KEY", "k:1").Env("WORKER_KEY", "k:2").File(file).Resolved();
  EXPECT_THAT(config->warnings, IsEmpty());  // flags are seen
  config = Inputs().Env("PS_KEY", "k:1").File(file).Resolved();
  EXPECT_THAT(config->warnings,
              ElementsAre("environment PS_KEY = \"k:1\" wins over file train.yaml:3 = \"f:1\": "
                          "remove one of them"));
  config = Inputs()
               .Env("JOB_NAME", "ps")
               .Env("TASK_INDEX", "0")
               .Env("PS_HOSTS", "e:1")
               .Env("WORKER_HOSTS", "f:2")
               .Env("PS_KEY", "k:1")
               .File(file)
               .Resolved();
  EXPECT_THAT(config->warnings,
              ElementsAre("environment PS_HOSTS = \"e:1\" wins over environment PS_KEY = \"k:1\", "
                          "file train.yaml:3 = \"f:1\": remove one of them"));
}

TEST(ResolveTest, UnknownKeysOfTfConfigAreWarnedOf) {
  const auto config = Inputs().TfConfig(R"({"job":{},"task":{"trial":"1"}})").Resolved();
  EXPECT_THAT(config->warnings,
              ElementsAre("TF_CONFIG has keys that are not used here: job, task.trial"));
}

}  // namespace
}  // namespace passel

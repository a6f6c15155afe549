// Resolution of what torchrun and its like tell their processes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/resolve.h"
#include "unit/cluster/resolve_inputs.h"

namespace passel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Inputs;
using ::testing::IsEmpty;
using testing::Value;

// As torchrun --standalone --nproc_per_node=SIZE sets them.
Inputs Rank(int rank, int size) {
  return Inputs()
      .Env("RANK", std::to_string(rank))
      .Env("LOCAL_RANK", std::to_string(rank))
      .Env("WORLD_SIZE", std::to_string(size))
      .Env("LOCAL_WORLD_SIZE", std::to_string(size))
      .Env("MASTER_ADDR", "localhost")
      .Env("MASTER_PORT", "29500");
}

TEST(ResolveRanksTest, EachRankIsAWorkerAndTheFirstStartsThePs) {
  for (int rank = 0; rank < 3; ++rank) {
    const auto config = Rank(rank, 3).Resolved();
    EXPECT_TRUE(config->distributed);
    EXPECT_EQ(config->task->ToString(), "worker/" + std::to_string(rank));
    EXPECT_EQ(config->is_chief, rank == 0);
    EXPECT_EQ(config->starts_ps, rank == 0);
    EXPECT_EQ(config->cluster.CanonicalText(),
              "ps{0=localhost:29500}worker{0=localhost:29501,1=localhost:29502,2=localhost:29503}");
    EXPECT_EQ(Value(*config, "task_index"), std::to_string(rank) + " <- environment RANK");
    EXPECT_EQ(Value(*config, "ps_hosts"),
              "localhost:29500 <- environment MASTER_ADDR, MASTER_PORT");
    EXPECT_THAT(config->warnings, IsEmpty());
  }
}

TEST(ResolveRanksTest, ThePortsOfManyWorkersWrapAround) {
  const auto config = Rank(2, 3).Env("MASTER_PORT", "65534").Resolved();
  EXPECT_EQ(config->cluster.CanonicalText(),
            "ps{0=localhost:65534}worker{0=localhost:65535,1=localhost:1,2=localhost:2}");
}

TEST(ResolveRanksTest, AnAddressMayBeAnIpv6Address) {
  const auto config = Rank(0, 2).Env("MASTER_ADDR", "::1").Resolved();
  EXPECT_EQ(Value(*config, "ps_hosts"), "[::1]:29500 <- environment MASTER_ADDR, MASTER_PORT");
}

TEST(ResolveRanksTest, OneAloneTrainsAlone) {
  const auto config = Rank(0, 1).Resolved();
  EXPECT_FALSE(config->distributed);
  EXPECT_FALSE(config->starts_ps);
}

TEST(ResolveRanksTest, WhoeverNamesAClusterWins) {
  Inputs flags = testing::ThreeTasks("worker", "1");
  Inputs tf_config, variables, keys, file;
  const char* hosts = R"({"cluster":{"ps":["p:1"],"worker":["w:1","w:2"]},)";
  tf_config.TfConfig(hosts + std::string(R"("task":{"type":"worker","index":1}})"));
  variables.Env("JOB_NAME", "worker").Env("TASK_INDEX", "1");
  variables.Env("PS_HOSTS", "p:1").Env("WORKER_HOSTS", "w:1,w:2");
  keys.Env("PS_KEY", "p:1").Env("WORKER_KEY", "w:1,w:2");
  keys.Task("worker", "1");
  file.File("job_name: worker\ntask_index: 1\nps_hosts: p:1\nworker_hosts: w:1,w:2\n");
  for (Inputs* in : {&flags, &tf_config, &variables, &keys, &file}) {
    for (const auto& [name, value] : Rank(0, 4).environment) in->Env(name, value);
    const auto config = in->Resolve();
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_EQ(config->task->ToString(), "worker/1");
    EXPECT_EQ(config->cluster.num_tasks("worker"), 2);
    EXPECT_FALSE(config->starts_ps);
  }
  // A part of a cluster is no other cluster: what is missing is said.
  EXPECT_THAT(Rank(0, 2).Give("job_name", "worker").Error(), HasSubstr("`task_index`"));
}

TEST(ResolveRanksTest, DefaultsOfAPresetNameNoCluster) {
  const auto config = Rank(1, 2).Default("ps_hosts", "p:1").Default("task_index", "0").Resolved();
  EXPECT_EQ(config->task->ToString(), "worker/1");
}

TEST(ResolveRanksTest, WhatIsMissingIsSaid) {
  Inputs in = Rank(0, 2);
  in.environment.erase("MASTER_PORT");
  const auto config = in.Resolved();
  EXPECT_FALSE(config->distributed);
  EXPECT_THAT(config->warnings, ElementsAre("the environment has RANK and WORLD_SIZE but not "
                                            "MASTER_PORT: they are not used"));
  // Of variables with such names others may have their own.
  const auto others = Inputs().Env("RANK", "general").Env("MASTER_ADDR", "h").Resolved();
  EXPECT_FALSE(others->distributed);
  EXPECT_THAT(others->warnings, IsEmpty());
}

TEST(ResolveRanksTest, WrongValuesAreRefused) {
  EXPECT_EQ(Rank(2, 2).Error(),
            "RANK is \"2\", but it must be a number from 0 to 1: correct or unset it");
  EXPECT_THAT(Rank(0, 2).Env("RANK", "-1").Error(), HasSubstr("RANK is \"-1\""));
  EXPECT_THAT(Rank(0, 2).Env("WORLD_SIZE", "two").Error(), HasSubstr("WORLD_SIZE is \"two\""));
  EXPECT_THAT(Rank(0, 0).Error(), HasSubstr("WORLD_SIZE is \"0\""));
  EXPECT_THAT(Rank(0, 2).Env("LOCAL_RANK", "2").Error(), HasSubstr("LOCAL_RANK is \"2\""));
  EXPECT_THAT(Rank(0, 2).Env("MASTER_PORT", "70000").Error(), HasSubstr("from 1 to 65535"));
  EXPECT_THAT(Rank(0, 2).Env("MASTER_ADDR", "a b").Error(), HasSubstr("a b"));
  EXPECT_EQ(Rank(8, 16).Env("LOCAL_RANK", "0").Env("LOCAL_WORLD_SIZE", "8").Error(),
            "WORLD_SIZE is 16, but LOCAL_WORLD_SIZE, the processes of this host, 8: this build "
            "joins processes of one host only, so start all of them here (torchrun --nnodes 1)");
}

TEST(ResolveRanksTest, RanksShareTheGpusOfTheirHost) {
  struct GpuCase {
    int rank, size, gpus;
    std::string num_gpus, gpu;
  };
  for (const GpuCase& c : {GpuCase{0, 2, 8, "2", "0"}, GpuCase{1, 2, 8, "2", "1"},
                           GpuCase{3, 4, 2, "2", "1"}, GpuCase{1, 2, 0, "0", "-"}}) {
    Inputs in = Rank(c.rank, c.size).Default("num_gpus", "0", FlagType::kInteger);
    const auto config = in.Resolved(c.gpus);
    EXPECT_EQ(config->Find("num_gpus")->value, c.num_gpus);
    EXPECT_EQ(config->gpu ? std::to_string(*config->gpu) : "-", c.gpu);
  }
  // Who says how many has said it.
  const auto config = Rank(1, 2).Give("num_gpus", "0").Resolved(8);
  EXPECT_FALSE(config->gpu.has_value());
}

}  // namespace
}  // namespace passel

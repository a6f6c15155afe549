// Resolution of the reference programs' own inputs.

#include "cluster/resolve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/cluster/resolve_inputs.h"

namespace passel {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Inputs;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using testing::Value;

/// Flags of the first reference program (and, with fewer GPUs, of the fifth).
Inputs MnistReplica(const std::string& num_gpus, const std::string& train_steps) {
  return Inputs()
      .Default("ps_hosts", "localhost:2222")
      .Default("worker_hosts", "localhost:2223,localhost:2224")
      .Default("num_gpus", num_gpus, FlagType::kInteger)
      .Default("train_steps", train_steps, FlagType::kInteger);
}

TEST(ReferenceInputsTest, KubernetesJobOfOnePsAndOneWorker) {
  const std::string start =
      R"({"cluster":{"ps":["dist-mnist-for-e2e-test-ps-0.default.svc:2222"],"worker":["dist-mnist-for-e2e-test-worker-0.default.svc:2222"]},"task":{"type":")";
  for (const std::string job : {"ps", "worker"}) {
    const auto config = MnistReplica("1", "20000")
                            .Give("num_gpus", "2")
                            .Give("batch_size", "100")
                            .TfConfig(start + job + R"(","index":0},"environment":"cloud"})")
                            .Resolved();
    EXPECT_TRUE(config->distributed);
    EXPECT_EQ(*config->task, (TaskId{job, 0}));
    EXPECT_EQ(config->is_chief, job == "worker");
    EXPECT_EQ(config->target, "dist-mnist-for-e2e-test-" + job + "-0.default.svc:2222");
    EXPECT_EQ(config->worker_device, job == "worker" ? "/job:worker/task:0/gpu:0" : "");
    EXPECT_EQ(Value(*config, "ps_hosts"),
              "dist-mnist-for-e2e-test-ps-0.default.svc:2222 <- TF_CONFIG cluster.ps");
    EXPECT_EQ(Value(*config, "environment"), "cloud <- TF_CONFIG environment");
    EXPECT_THAT(config->warnings, IsEmpty());  // its default hosts are nobody's wish
  }
  // Without TF_CONFIG, and without the flags that it replaces, the program refuses to start.
  EXPECT_EQ(MnistReplica("1", "20000").Error(), "Must specify an explicit `job_name`");
  EXPECT_EQ(MnistReplica("1", "20000").TfConfig("").Error(), "Must specify an explicit `job_name`");
}

TEST(ReferenceInputsTest, WorkersOfOneMachineShareItsGpus) {
  std::string workers;
  for (int i = 0; i < 5; ++i) workers += (i ? ",w:" : "w:") + std::to_string(i + 1);
  for (int i = 0; i < 5; ++i) {
    Inputs in = MnistReplica("2", "200");
    in.Task("worker", std::to_string(i));
    in.Give("worker_hosts", workers);
    auto config = in.Resolved();
    EXPECT_EQ(config->gpu, i % 2);
    EXPECT_EQ(config->worker_device,
              "/job:worker/task:" + std::to_string(i) + "/gpu:" + std::to_string(i % 2));
    in.gpu_per_worker = true;
    EXPECT_EQ(in.Error(), "number of gpus is less than number of workers");
    in.Give("num_gpus", "5");
    EXPECT_EQ(in.Resolve()->gpu, i);
    in.Give("num_gpus", "0");
    config = in.Resolved();
    EXPECT_EQ(config->gpu, std::nullopt);
    EXPECT_EQ(config->worker_device, "/job:worker/task:" + std::to_string(i) + "/cpu:0");
    in.Give("num_gpus", "-1");
    EXPECT_EQ(in.Error(), "--num_gpus is -1: use the number of GPUs, or 0 for the CPU");
    in.Give("num_gpus", "two");
    EXPECT_EQ(in.Error(), "--num_gpus must be an integer, not \"two\" (flag --num_gpus)");
  }
}

TEST(ReferenceInputsTest, TheFourClusteroneVariables) {
  const auto clusterone = [](const std::string& job, const std::string& index) {
    return Inputs()
        .Env("JOB_NAME", job)
        .Env("TASK_INDEX", index)
        .Env("PS_HOSTS", "10.0.0.1:5000")
        .Env("WORKER_HOSTS", "10.0.0.2:5000,10.0.0.3:5000");
  };
  for (const auto& [job, index] :
       {std::pair<std::string, std::string>{"worker", "0"}, {"worker", "1"}, {"ps", "0"}}) {
    const auto config = clusterone(job, index).Resolved();
    EXPECT_EQ(config->Announcement(), "Running distributed training");
    EXPECT_EQ(config->task->ToString(), job + "/" + index);
    // TASK_INDEX is text, but "0" is the chief.
    EXPECT_EQ(config->is_chief, job == "worker" && index == "0");
    EXPECT_EQ(config->worker_device, job == "worker" ? "/job:worker/task:" + index : "");
    EXPECT_EQ(Value(*config, "task_index"), index + " <- environment TASK_INDEX");
  }
  // Any missing: one machine.
  for (const std::string name : {"JOB_NAME", "TASK_INDEX", "PS_HOSTS", "WORKER_HOSTS"}) {
    Inputs in = clusterone("worker", "1");
    in.environment.erase(name);
    const auto config = in.Resolved();
    EXPECT_FALSE(config->distributed);
    EXPECT_EQ(config->Announcement(), "Running single-machine training");
    EXPECT_TRUE(config->is_chief);
    EXPECT_EQ(config->task, std::nullopt);
    EXPECT_TRUE(config->cluster.jobs().empty());
    EXPECT_EQ(config->target, "");
    ASSERT_EQ(config->warnings.size(), 1u);
    EXPECT_THAT(config->warnings[0], HasSubstr(" but not " + name + ": they are not used"));
  }
  // Many build systems set JOB_NAME for themselves.
  const auto quiet = Inputs().Env("JOB_NAME", "nightly").Resolved();
  EXPECT_FALSE(quiet->distributed);
  EXPECT_THAT(quiet->warnings, IsEmpty());
  EXPECT_EQ(Inputs().Resolve()->Announcement(), "Running single-machine training");
  // What was given but does not count is named beside what is missing.
  Inputs some = Inputs().Env("JOB_NAME", "worker").Env("TASK_INDEX", "0");
  EXPECT_THAT(some.Env("PS_KEY", "a:1").Env("WORKER_KEY", "b:2").Error(),
              AllOf(StartsWith("Must specify an explicit `job_name`"),
                    HasSubstr("JOB_NAME, TASK_INDEX but not PS_HOSTS, WORKER_HOSTS")));
  // Set but empty is not missing.
  EXPECT_EQ(clusterone("worker", "").Error(), "Must specify an explicit `task_index`");
  EXPECT_EQ(clusterone("", "0").Error(), "Must specify an explicit `job_name`");
  EXPECT_EQ(clusterone("worker", "0").Env("PS_HOSTS", "").Error(),
            "Must specify an explicit `ps_hosts`");
  EXPECT_EQ(clusterone("worker", "0").Env("WORKER_HOSTS", "").Error(),
            "Must specify an explicit `worker_hosts`");
  EXPECT_EQ(clusterone("worker", "x").Error(),
            "the task index must be an integer, not \"x\" (environment TASK_INDEX)");
}

TEST(ReferenceInputsTest, HostsOfThreeTasksOnOneMachineAreDefaults) {
  // The program whose job_name is ps and task_index 0 unless a flag says otherwise.
  const auto task = [](const std::string& job, const std::string& index) {
    Inputs in;
    in.Default("job_name", "ps").Default("task_index", "0").Default("ps_hosts", "localhost:9001");
    in.Default("worker_hosts", "localhost:9002,localhost:9003,localhost:9004");
    if (!job.empty()) in.Give("job_name", job);
    if (!index.empty()) in.Give("task_index", index);
    return in;
  };
  EXPECT_EQ(task("", "").Resolve()->task->ToString(), "ps/0");
  const auto config = task("worker", "2").Resolved();
  EXPECT_EQ(config->task->ToString(), "worker/2");
  EXPECT_EQ(config->target, "localhost:9004");
  EXPECT_EQ(Value(*config, "ps_hosts"), "localhost:9001 <- default");
}

TEST(ReferenceInputsTest, FlagsOfThePodsAndKeysOfAConfigMap) {
  // job_name "", task_index 0, hosts "" unless flags say otherwise.
  const auto base = [] { return Inputs().Default("task_index", "0"); };
  auto config = base()
                    .Give("ps_hosts", "10.244.2.140:2222")
                    .Give("worker_hosts", "10.244.1.134:2222,10.244.2.141:2222")
                    .Task("worker", "1")
                    .Resolved();
  EXPECT_EQ(config->cluster.CanonicalText(),
            "ps{0=10.244.2.140:2222}worker{0=10.244.1.134:2222,1=10.244.2.141:2222}");
  EXPECT_EQ(config->worker_device, "/job:worker/task:1");
  EXPECT_FALSE(config->is_chief);
  config = base()
               .Give("job_name", "ps")
               .Env("PS_KEY", "10.244.2.140:2222\n")
               .Env("WORKER_KEY", "10.244.1.134:2222,10.244.2.141:2222")
               .Resolved();
  EXPECT_EQ(config->task->ToString(), "ps/0");
  EXPECT_EQ(Value(*config, "task_index"), "0 <- default");
  EXPECT_EQ(Value(*config, "worker_hosts"),
            "10.244.1.134:2222,10.244.2.141:2222 <- environment WORKER_KEY");
  // A default index alone names no cluster.
  EXPECT_FALSE(base().Resolve()->distributed);
  EXPECT_EQ(base().Env("PS_KEY", "p:1").Give("job_name", "ps").Error(),
            "Must specify an explicit `worker_hosts`");
}

TEST(ReferenceInputsTest, ThreeDevicesByFlags) {
  for (const auto& [job, index, chief] : {std::tuple<std::string, int, bool>{"ps", 0, false},
                                          {"worker", 0, true},
                                          {"worker", 1, false}}) {
    const auto config = MnistReplica("0", "200").Task(job, std::to_string(index)).Resolved();
    EXPECT_EQ(*config->task, (TaskId{job, index}));
    EXPECT_EQ(config->is_chief, chief);
    EXPECT_EQ(config->worker_device,
              job == "ps" ? "" : "/job:worker/task:" + std::to_string(index) + "/cpu:0");
    EXPECT_EQ(Value(*config, "train_steps"), "200 <- default");
    EXPECT_EQ(config->cluster.CanonicalText(),
              "ps{0=localhost:2222}worker{0=localhost:2223,1=localhost:2224}");
  }
}

}  // namespace
}  // namespace passel

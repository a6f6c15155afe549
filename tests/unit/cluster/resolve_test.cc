// Resolution: precedence over all sets of sources, the reference programs' inputs, warnings,
// errors.

#include "cluster/resolve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace passel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

/// Inputs that a test fills in and resolves.
struct Inputs {
  std::vector<Flag> flags{{"job_name"}, {"task_index"}, {"ps_hosts"}, {"worker_hosts"}};
  std::map<std::string, std::string> environment;
  std::optional<std::string> file;
  bool gpu_per_worker = false;

  Flag& Find(const std::string& name) {
    for (Flag& flag : flags) {
      if (flag.name == name) return flag;
    }
    flags.push_back({name});
    return flags.back();
  }
  Inputs& Give(const std::string& name, const std::string& value) {
    Find(name).given = true;
    Find(name).value = value;
    return *this;
  }
  Inputs& Default(const std::string& name, const std::string& value,
                  FlagType type = FlagType::kText) {
    Find(name).value = value;
    Find(name).type = type;
    return *this;
  }
  Inputs& Env(const std::string& name, const std::string& value) {
    environment[name] = value;
    return *this;
  }
  Inputs& File(const std::string& text) {
    file = text;
    return *this;
  }

  Result<ResolvedConfig> Resolve() const {
    ResolveInputs inputs;
    inputs.flags = flags;
    inputs.environment = [this](const std::string& name) -> std::optional<std::string> {
      const auto found = environment.find(name);
      if (found == environment.end()) return std::nullopt;
      return found->second;
    };
    inputs.config_path = "train.yaml";
    inputs.config_text = file;
    inputs.gpu_per_worker = gpu_per_worker;
    return passel::Resolve(inputs);
  }
  std::string Error() const {
    const auto config = Resolve();
    EXPECT_FALSE(config.ok());
    return config.status().message();
  }
};

std::string Value(const ResolvedConfig& config, std::string_view name) {
  const Setting* setting = config.Find(name);
  return setting ? setting->value + " <- " + setting->origin : "none";
}

/// The flags of three tasks by hand.
Inputs ThreeTasks(const std::string& job, const std::string& index) {
  return Inputs()
      .Give("job_name", job)
      .Give("task_index", index)
      .Give("ps_hosts", "p:1")
      .Give("worker_hosts", "w:1,w:2");
}

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
      in.Env("TF_CONFIG", R"({"cluster":{"ps":["ps-0:1"],"worker":[)" + workers +
                              R"(]},"task":{"type":"worker","index":0}})");
    }
    if (has(1)) {
      in.Give("job_name", "worker").Give("task_index", "1");
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
                          .Resolve();
  ASSERT_TRUE(config.ok()) << config.status().ToString();
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
  const auto config = in.Resolve();
  ASSERT_TRUE(config.ok()) << config.status().ToString();
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
          .Env("TF_CONFIG",
               R"({"cluster":{"worker":["w:1","w:2"]},"task":{"type":"worker","index":0}})")
          .Resolve();
  EXPECT_EQ(config.status().message(), "There must be at least one ps. (TF_CONFIG cluster)");
}

TEST(ResolveTest, WhatTfConfigLeavesOpenComesFromElsewhere) {
  const std::string cluster = R"({"cluster":{"ps":["p:1"],"worker":["w:1","w:2"]})";
  auto config = Inputs()
                    .Give("job_name", "worker")
                    .Give("task_index", "1")
                    .Env("TF_CONFIG", cluster + "}")
                    .Resolve();
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(*config->task, (TaskId{"worker", 1}));
  config = Inputs()
               .Give("task_index", "1")
               .Env("TF_CONFIG", cluster + R"(,"task":{"type":"worker"}})")
               .Resolve();
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(*config->task, (TaskId{"worker", 1}));
  EXPECT_EQ(Inputs().Env("TF_CONFIG", cluster + R"(,"task":{"type":"worker"}})").Error(),
            "Must specify an explicit `task_index`");
  EXPECT_EQ(Inputs().Env("TF_CONFIG", cluster + "}").Error(),
            "Must specify an explicit `job_name`");
  config =
      ThreeTasks("ps", "0").Env("TF_CONFIG", R"({"task":{"type":"worker","index":1}})").Resolve();
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(*config->task, (TaskId{"worker", 1}));
  EXPECT_EQ(config->cluster.num_tasks("worker"), 2);
}

// --- Warnings ----------------------------------------------------------------------------------

TEST(ResolveTest, TfConfigWinsOverFlagsWithAWarningThatNamesBoth) {
  const auto config =
      ThreeTasks("ps", "1")
          .Env("TF_CONFIG",
               R"({"cluster":{"ps":["P:1"],"worker":["x:1"]},"task":{"type":"worker","index":0}})")
          .Resolve();
  ASSERT_TRUE(config.ok()) << config.status().ToString();
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
      ThreeTasks("worker", "0").Env("PS_KEY", "k:1").Env("WORKER_KEY", "k:2").File(file).Resolve();
  ASSERT_TRUE(config.ok());
  EXPECT_THAT(config->warnings, IsEmpty());  // flags are seen
  config = Inputs().Env("PS_KEY", "k:1").File(file).Resolve();
  ASSERT_TRUE(config.ok());
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
               .Resolve();
  ASSERT_TRUE(config.ok());
  EXPECT_THAT(config->warnings,
              ElementsAre("environment PS_HOSTS = \"e:1\" wins over environment PS_KEY = \"k:1\", "
                          "file train.yaml:3 = \"f:1\": remove one of them"));
}

TEST(ResolveTest, UnknownKeysOfTfConfigAreWarnedOf) {
  const auto config = Inputs().Env("TF_CONFIG", R"({"job":{},"task":{"trial":"1"}})").Resolve();
  ASSERT_TRUE(config.ok());
  EXPECT_THAT(config->warnings,
              ElementsAre("TF_CONFIG has keys that are not used here: job, task.trial"));
}

// --- The reference programs' own inputs ---------------------------------------------------------

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
    const auto config =
        MnistReplica("1", "20000")
            .Give("num_gpus", "2")
            .Give("batch_size", "100")
            .Env("TF_CONFIG", start + job + R"(","index":0},"environment":"cloud"})")
            .Resolve();
    ASSERT_TRUE(config.ok()) << config.status().ToString();
    EXPECT_TRUE(config->distributed);
    EXPECT_EQ(*config->task, (TaskId{job, 0}));
    EXPECT_EQ(config->is_chief, job == "worker");
    EXPECT_EQ(config->target, "grpc://dist-mnist-for-e2e-test-" + job + "-0.default.svc:2222");
    EXPECT_EQ(config->worker_device, job == "worker" ? "/job:worker/task:0/gpu:0" : "");
    EXPECT_EQ(Value(*config, "ps_hosts"),
              "dist-mnist-for-e2e-test-ps-0.default.svc:2222 <- TF_CONFIG cluster.ps");
    EXPECT_EQ(Value(*config, "environment"), "cloud <- TF_CONFIG environment");
    EXPECT_THAT(config->warnings, IsEmpty());  // its default hosts are nobody's wish
  }
  // Without TF_CONFIG, and without the flags that it replaces, the program refuses to start.
  EXPECT_EQ(MnistReplica("1", "20000").Error(), "Must specify an explicit `job_name`");
  EXPECT_EQ(MnistReplica("1", "20000").Env("TF_CONFIG", "").Error(),
            "Must specify an explicit `job_name`");
}

TEST(ReferenceInputsTest, WorkersOfOneMachineShareItsGpus) {
  std::string workers;
  for (int i = 0; i < 5; ++i) workers += (i ? ",w:" : "w:") + std::to_string(i + 1);
  for (int i = 0; i < 5; ++i) {
    Inputs in = MnistReplica("2", "200");
    in.Give("job_name", "worker").Give("task_index", std::to_string(i));
    in.Give("worker_hosts", workers);
    auto config = in.Resolve();
    ASSERT_TRUE(config.ok());
    EXPECT_EQ(config->gpu, i % 2);
    EXPECT_EQ(config->worker_device,
              "/job:worker/task:" + std::to_string(i) + "/gpu:" + std::to_string(i % 2));
    in.gpu_per_worker = true;
    EXPECT_EQ(in.Error(), "number of gpus is less than number of workers");
    in.Give("num_gpus", "5");
    EXPECT_EQ(in.Resolve()->gpu, i);
    in.Give("num_gpus", "0");
    config = in.Resolve();
    ASSERT_TRUE(config.ok());
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
    const auto config = clusterone(job, index).Resolve();
    ASSERT_TRUE(config.ok()) << config.status().ToString();
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
    const auto config = in.Resolve();
    ASSERT_TRUE(config.ok());
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
  const auto quiet = Inputs().Env("JOB_NAME", "nightly").Resolve();
  ASSERT_TRUE(quiet.ok());
  EXPECT_FALSE(quiet->distributed);
  EXPECT_THAT(quiet->warnings, IsEmpty());
  EXPECT_EQ(Inputs().Resolve()->Announcement(), "Running single-machine training");
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
  const auto config = task("worker", "2").Resolve();
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->task->ToString(), "worker/2");
  EXPECT_EQ(config->target, "grpc://localhost:9004");
  EXPECT_EQ(Value(*config, "ps_hosts"), "localhost:9001 <- default");
}

TEST(ReferenceInputsTest, FlagsOfThePodsAndKeysOfAConfigMap) {
  // job_name "", task_index 0, hosts "" unless flags say otherwise.
  const auto base = [] { return Inputs().Default("task_index", "0"); };
  auto config = base()
                    .Give("ps_hosts", "10.244.2.140:2222")
                    .Give("worker_hosts", "10.244.1.134:2222,10.244.2.141:2222")
                    .Give("job_name", "worker")
                    .Give("task_index", "1")
                    .Resolve();
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->cluster.CanonicalText(),
            "ps{0=10.244.2.140:2222}worker{0=10.244.1.134:2222,1=10.244.2.141:2222}");
  EXPECT_EQ(config->worker_device, "/job:worker/task:1");
  EXPECT_FALSE(config->is_chief);
  config = base()
               .Give("job_name", "ps")
               .Env("PS_KEY", "10.244.2.140:2222\n")
               .Env("WORKER_KEY", "10.244.1.134:2222,10.244.2.141:2222")
               .Resolve();
  ASSERT_TRUE(config.ok()) << config.status().ToString();
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
    const auto config = MnistReplica("0", "200")
                            .Give("job_name", job)
                            .Give("task_index", std::to_string(index))
                            .Resolve();
    ASSERT_TRUE(config.ok());
    EXPECT_EQ(*config->task, (TaskId{job, index}));
    EXPECT_EQ(config->is_chief, chief);
    EXPECT_EQ(config->worker_device,
              job == "ps" ? "" : "/job:worker/task:" + std::to_string(index) + "/cpu:0");
    EXPECT_EQ(Value(*config, "train_steps"), "200 <- default");
    EXPECT_EQ(config->cluster.CanonicalText(),
              "ps{0=localhost:2222}worker{0=localhost:2223,1=localhost:2224}");
  }
}

// --- Errors ------------------------------------------------------------------------------------

TEST(ResolveTest, MissingSettingsHaveTheWordsOfTheReferencePrograms) {
  EXPECT_EQ(Inputs().Give("task_index", "0").Error(), "Must specify an explicit `job_name`");
  EXPECT_EQ(Inputs().Give("job_name", "").Error(), "Must specify an explicit `job_name`");
  EXPECT_EQ(Inputs().Give("job_name", "ps").Error(), "Must specify an explicit `task_index`");
  EXPECT_EQ(Inputs().Give("job_name", "ps").Give("task_index", "").Error(),
            "Must specify an explicit `task_index`");
  EXPECT_EQ(Inputs().Give("job_name", "ps").Give("task_index", "0").Error(),
            "Must specify an explicit `ps_hosts`");
  EXPECT_EQ(Inputs().Give("job_name", "ps").Give("task_index", "0").Give("ps_hosts", "p:1").Error(),
            "Must specify an explicit `worker_hosts`");
  EXPECT_EQ(ThreeTasks("ps", "0").Give("ps_hosts", "").Error(),
            "Must specify an explicit `ps_hosts`");
}

TEST(ResolveTest, WrongValuesNameTheirSource) {
  EXPECT_EQ(ThreeTasks("walker", "0").Error(),
            "Job \"walker\" was not defined in cluster: it has ps, worker (flag --job_name)");
  EXPECT_EQ(ThreeTasks("worker", "2").Error(),
            "Task 2 was not defined in job \"worker\": task index 2 is out of range: job "
            "\"worker\" has 2 tasks (flag --task_index)");
  EXPECT_THAT(ThreeTasks("worker", "-1").Error(),
              StartsWith("Task -1 was not defined in job \"worker\""));
  EXPECT_EQ(ThreeTasks("worker", "99999999999").Error(),
            "the task index must be an integer, not \"99999999999\" (flag --task_index)");
  EXPECT_EQ(ThreeTasks("worker", "1.0").Error(),
            "the task index must be an integer, not \"1.0\" (flag --task_index)");
  EXPECT_EQ(ThreeTasks("worker", "0").Give("ps_hosts", "p").Error(),
            "Could not parse port for local server from \"p\": write host:port with a port of 1 to "
            "65535 (flag --ps_hosts)");
  EXPECT_EQ(ThreeTasks("worker", "0").Give("worker_hosts", "w:1,p:1").Error(),
            "address p:1 belongs to both ps/0 and worker/1: give each task its own (flag "
            "--worker_hosts)");
  EXPECT_THAT(Inputs()
                  .Env("PS_KEY", "a:1,")
                  .Env("WORKER_KEY", "w:1")
                  .Give("job_name", "ps")
                  .Give("task_index", "0")
                  .Error(),
              HasSubstr("(environment PS_KEY)"));
  EXPECT_THAT(Inputs().Env("TF_CONFIG", "{").Error(), StartsWith("TF_CONFIG is not JSON: "));
  EXPECT_EQ(Inputs().Env("TF_CONFIG", std::string((1 << 20) + 1, 'x')).Resolve().status().code(),
            Code::kResourceExhausted);
  EXPECT_THAT(Inputs().File("a: [").Error(), StartsWith("train.yaml:1:"));
}

// --- Roles -------------------------------------------------------------------------------------

TEST(ResolveTest, TheChiefIsTheChiefTaskOrWorkerZero) {
  for (const std::string chief : {"chief", "master"}) {
    const auto role = [&](const std::string& task) {
      const auto config = Inputs()
                              .Env("TF_CONFIG", R"({"cluster":{"ps":["p:1"],"worker":["w:1"],")" +
                                                    chief + R"(":["c:1"]},"task":)" + task + "}")
                              .Resolve();
      EXPECT_TRUE(config.ok()) << config.status().ToString();
      return *config;
    };
    EXPECT_TRUE(role(R"({"type":")" + chief + R"(","index":0})").is_chief);
    EXPECT_FALSE(role(R"({"type":"worker","index":0})").is_chief);
    EXPECT_FALSE(role(R"({"type":"ps","index":0})").is_chief);
    const ResolvedConfig evaluator = role(R"({"type":"evaluator","index":0})");
    EXPECT_FALSE(evaluator.is_chief);
    EXPECT_EQ(evaluator.target, "");
    EXPECT_EQ(evaluator.worker_device, "");
    EXPECT_EQ(Value(evaluator, "cluster." + chief), "c:1 <- TF_CONFIG cluster." + chief);
  }
}

TEST(ResolveTest, AnEvaluatorNeedNotBeInTheCluster) {
  const auto config = ThreeTasks("evaluator", "0").Resolve();
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->task->ToString(), "evaluator/0");
  EXPECT_EQ(config->cluster.num_tasks("evaluator"), 0);
  EXPECT_TRUE(config->distributed);
  EXPECT_EQ(ThreeTasks("evaluator", "1").Error(),
            "There must be at most one 'evaluator' job, with index 0, not 1 (flag --task_index)");
  // It also watches a worker that trains alone.
  const auto watches =
      Inputs()
          .Env("TF_CONFIG",
               R"({"cluster":{"worker":["w:1"]},"task":{"type":"evaluator","index":0}})")
          .Resolve();
  ASSERT_TRUE(watches.ok()) << watches.status().ToString();
  EXPECT_EQ(watches->task->ToString(), "evaluator/0");
}

TEST(ResolveTest, TheFilesChiefBelongsToTheFilesHosts) {
  const std::string file =
      "cluster:\n  ps: [p:1]\n  worker: [w:1]\n  chief: [c:1]\n  evaluator: [e:1]\n";
  auto config = Inputs().Give("job_name", "chief").Give("task_index", "0").File(file).Resolve();
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_TRUE(config->is_chief);
  EXPECT_EQ(config->worker_device, "/job:chief/task:0");
  EXPECT_EQ(Value(*config, "cluster.chief"), "c:1 <- file train.yaml:4");
  config = ThreeTasks("worker", "0").File(file).Resolve();
  ASSERT_TRUE(config.ok());
  EXPECT_TRUE(config->is_chief);
  EXPECT_EQ(config->cluster.CanonicalText(), "ps{0=p:1}worker{0=w:1,1=w:2}");
  EXPECT_THAT(config->warnings,
              ElementsAre(StartsWith("file train.yaml:4: cluster.chief is not used, since"),
                          StartsWith("file train.yaml:5: cluster.evaluator is not used, since")));
  EXPECT_EQ(Inputs()
                .Give("job_name", "ps")
                .Give("task_index", "0")
                .File("cluster: {ps: [p:1], worker: [w:1], chief: [c:1], master: [m:1]}")
                .Error(),
            "the cluster has 2 chiefs: name at most one");
}

TEST(ResolveTest, OneTaskAloneTrainsWithoutACluster) {
  for (const std::string job : {"worker", "chief", "master"}) {
    const auto config =
        Inputs()
            .Env("TF_CONFIG", R"({"cluster":{")" + job + R"(":["h:1"]},"task":{"type":")" + job +
                                  R"(","index":0}})")
            .Resolve();
    ASSERT_TRUE(config.ok()) << config.status().ToString();
    EXPECT_FALSE(config->distributed);
    EXPECT_TRUE(config->is_chief);
    EXPECT_THAT(config->warnings, IsEmpty());
    const auto no_cluster =
        Inputs().Env("TF_CONFIG", R"({"task":{"type":")" + job + R"(","index":0}})").Resolve();
    ASSERT_TRUE(no_cluster.ok());
    EXPECT_FALSE(no_cluster->distributed);
    EXPECT_THAT(no_cluster->warnings, ElementsAre(HasSubstr("it trains on this machine alone")));
  }
  // Not for tasks that need others.
  EXPECT_EQ(Inputs().Env("TF_CONFIG", R"({"task":{"type":"ps","index":0}})").Error(),
            "Must specify an explicit `ps_hosts`");
  EXPECT_EQ(Inputs().Env("TF_CONFIG", R"({"task":{"type":"worker","index":1}})").Error(),
            "Must specify an explicit `ps_hosts`");
  EXPECT_EQ(Inputs()
                .Env("TF_CONFIG", R"({"cluster":{"ps":["p:1"]},"task":{"type":"ps","index":0}})")
                .Error(),
            "There must be at least one worker. (TF_CONFIG cluster)");
}

TEST(ResolveTest, APartOfAClusterIsMarkedAndHasNoHash) {
  const auto sparse = [](const std::string& document) {
    return Inputs().Env("TF_CONFIG", document).Resolve();
  };
  auto config = sparse(
      R"({"sparseCluster":{"worker":{"3":"w:4"},"ps":["p:1","p:2"]},"task":{"type":"worker","index":3}})");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_TRUE(config->partial);
  EXPECT_FALSE(config->is_chief);
  EXPECT_EQ(config->target, "grpc://w:4");
  EXPECT_EQ(Value(*config, "worker_hosts"), "3=w:4 <- TF_CONFIG sparseCluster.worker");
  EXPECT_EQ(config->CheckComplete().code(), Code::kFailedPrecondition);
  EXPECT_THAT(config->Describe(), HasSubstr("none: the cluster is seen in part"));
  config = sparse(R"({"sparseCluster":{"worker":{},"ps":["p:2"]},"task":{"type":"ps","index":1}})");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_TRUE(config->partial);
  EXPECT_EQ(config->task->ToString(), "ps/1");
  config = sparse(
      R"({"cluster":{"worker":{"1":"w:2"},"ps":["p:1"]},"task":{"type":"worker","index":1}})");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_TRUE(config->partial);
  const auto whole = ThreeTasks("ps", "0").Resolve();
  EXPECT_TRUE(whole->CheckComplete().ok());
  EXPECT_FALSE(whole->partial);
}

TEST(ResolveTest, EveryTaskOfAClusterSeesTheSameHashHoweverItIsTold) {
  const auto by_flags = ThreeTasks("ps", "0").Resolve();
  const auto by_file = Inputs()
                           .Give("job_name", "worker")
                           .Give("task_index", "1")
                           .File("cluster: {worker: {1: W:2, 0: w:1}, ps: [p:1]}")
                           .Resolve();
  const auto by_tf_config =
      Inputs()
          .Env(
              "TF_CONFIG",
              R"({"cluster":{"worker":["w:1","w:2"],"ps":{"0":"p:1"}},"task":{"type":"worker","index":0}})")
          .Resolve();
  ASSERT_TRUE(by_flags.ok() && by_file.ok() && by_tf_config.ok());
  EXPECT_EQ(by_flags->cluster.Hash(), by_file->cluster.Hash());
  EXPECT_EQ(by_flags->cluster.Hash(), by_tf_config->cluster.Hash());
  const auto other = ThreeTasks("ps", "0").Give("worker_hosts", "w:2,w:1").Resolve();
  EXPECT_NE(by_flags->cluster.Hash(), other->cluster.Hash());
}

TEST(ResolveTest, AThousandWorkersAndAnIpv6Address) {
  std::string workers;
  for (int i = 0; i < 1000; ++i) {
    workers += (i ? ",[2001:db8::" : "[2001:db8::") + std::to_string(i) + "]:2222";
  }
  const auto config = ThreeTasks("worker", "999").Give("worker_hosts", workers).Resolve();
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->target, "grpc://[2001:db8::999]:2222");
  EXPECT_EQ(config->cluster.num_tasks("worker"), 1000);
  EXPECT_THAT(config->Describe(), HasSubstr("[2001:db8::999]:2222  flag --worker_hosts\n"));
}

TEST(ResolveTest, SessionMasterReplacesTheTarget) {
  const auto config =
      ThreeTasks("worker", "0")
          .Env("TF_CONFIG", R"({"session_master":"grpc://gate:1","rpc_layer":"grpc"})")
          .Resolve();
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->target, "grpc://gate:1");
  EXPECT_EQ(Value(*config, "session_master"), "grpc://gate:1 <- TF_CONFIG session_master");
  EXPECT_EQ(Value(*config, "rpc_layer"), "grpc <- TF_CONFIG rpc_layer");
}

// --- The table ---------------------------------------------------------------------------------

TEST(ResolveTest, TheTableNamesEveryValueAndItsOrigin) {
  Inputs in = ThreeTasks("worker", "1");
  in.flags[2].given = in.flags[3].given = false;
  in.Env("PS_KEY", "localhost:2222");
  in.Default("batch_size", "100", FlagType::kInteger).Default("data_dir", "");
  in.File("# ours\nbatch_size: 64\nworker_hosts: [localhost:2223, localhost:2224]\n");
  in.flags[2].value = in.flags[3].value = "";
  const auto config = in.Resolve();
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->Describe(),
            "setting        value                          origin\n"
            "job_name       worker                         flag --job_name\n"
            "task_index     1                              flag --task_index\n"
            "ps_hosts       localhost:2222                 environment PS_KEY\n"
            "worker_hosts   localhost:2223,localhost:2224  file train.yaml:3\n"
            "batch_size     64                             file train.yaml:2\n"
            "data_dir       \"\"                             default\n"
            "training       distributed                    derived\n"
            "task           worker/1                       derived\n"
            "is_chief       false                          derived\n"
            "cluster_hash   c85026fd44cc113d               derived\n"  // cluster_golden.py
            "target         grpc://localhost:2224          derived\n"
            "worker_device  /job:worker/task:1             derived\n");
}

TEST(ResolveTest, TheTableHasNoControlCharacters) {
  Inputs in;
  in.Give("data_dir", "a\nb\x1b[2J\xC3\xA9").Give("x", "y");
  const std::string table = in.Resolve()->Describe();
  EXPECT_THAT(table, HasSubstr("data_dir      a?b?[2J\xC3\xA9        flag --data_dir\n"));
  EXPECT_THAT(table, HasSubstr("training      single-machine  derived\n"));
}

TEST(ResolveTest, WithoutFlagsEnvironmentAndFileNothingIsAskedFor) {
  const auto config = Resolve(ResolveInputs());
  ASSERT_TRUE(config.ok());
  EXPECT_FALSE(config->distributed);
  EXPECT_EQ(config->settings.size(), 4u);
}

}  // namespace
}  // namespace passel

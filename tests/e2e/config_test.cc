// Where a task learns what it is: flags, environment variables, a file, and who wins.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <csignal>
#include <map>

#include "e2e/printed_config.h"
#include "support/program.h"

namespace passel::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kCluster =
    R"("cluster": {"ps": ["localhost:2222"], "worker": ["localhost:2223", "localhost:2224"]})";

std::string TfConfig(const std::string& type, int index) {
  return fmt::format(R"({{{}, "task": {{"type": "{}", "index": {}}}, "environment": "cloud"}})",
                     kCluster, type, index);
}

TEST(ConfigTest, FileSetsWhatNobodyTypedAndEachOriginIsShown) {
  Sandbox sandbox;
  const std::string path = sandbox.dir().File("train.yaml");
  WriteText(path,
            "batch_size: 64\nhidden_units: [256, 128]\nsync_replicas: true\nlearning_rate: 0.25\n"
            "replicas_to_aggregate: 2\nslow_worker: ['1:20ms', '0:1ms']\n"
            "cluster:\n  ps: [localhost:2222]\n  worker: [localhost:2223, localhost:2224]\n");
  const Outcome outcome = sandbox.Run({"task", "--config=" + path, "--job_name=worker",
                                       "--task_index=1", "--batch_size=50", "--print_config"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(SettingOf(outcome, "batch_size"), "50  flag --batch_size");
  EXPECT_EQ(SettingOf(outcome, "hidden_units"), "256,128  file " + path + ":2");
  EXPECT_EQ(SettingOf(outcome, "sync_replicas"), "true  file " + path + ":3");
  EXPECT_EQ(SettingOf(outcome, "learning_rate"), "0.25  file " + path + ":4");
  EXPECT_EQ(SettingOf(outcome, "slow_worker"), "1:20ms,0:1ms  file " + path + ":6");
  EXPECT_EQ(SettingOf(outcome, "train_steps"), "20000  default");
  EXPECT_EQ(SettingOf(outcome, "worker_hosts"),
            "localhost:2223,localhost:2224  file " + path + ":9");
  EXPECT_EQ(SettingOf(outcome, "task"), "worker/1  derived");
  EXPECT_EQ(SettingOf(outcome, "training"), "distributed  derived");
  EXPECT_EQ(SettingOf(outcome, "cluster_hash"), "c85026fd44cc113d  derived");
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(ConfigTest, OrderOfPrecedenceIsTfConfigFlagsVariablesKeysFile) {
  Sandbox sandbox;
  const std::string path = sandbox.dir().File("c.json");
  WriteText(path, R"({"cluster": {"ps": ["localhost:5"], "worker": ["localhost:6"]},
                      "task": {"type": "worker", "index": 0}})");
  const std::vector<std::string> show = {"task", "--config=" + path, "--print_config"};
  const auto ps_hosts = [&](const std::vector<std::string>& more) {
    const Outcome outcome = sandbox.Run(With(show, more));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return SettingOf(outcome, "ps_hosts");
  };
  EXPECT_EQ(ps_hosts({}), "localhost:5  file " + path + ":1");
  sandbox.SetEnv("PS_KEY", "localhost:4\n");
  EXPECT_EQ(ps_hosts({}), "localhost:4  environment PS_KEY");
  sandbox.SetEnv("JOB_NAME", "worker");
  sandbox.SetEnv("TASK_INDEX", "0");
  sandbox.SetEnv("PS_HOSTS", "localhost:3");
  EXPECT_EQ(ps_hosts({}), "localhost:4  environment PS_KEY");  // three of four are not used
  sandbox.SetEnv("WORKER_HOSTS", "localhost:31");
  EXPECT_EQ(ps_hosts({}), "localhost:3  environment PS_HOSTS");
  EXPECT_EQ(ps_hosts({"--ps_hosts=localhost:2"}), "localhost:2  flag --ps_hosts");
  sandbox.SetEnv("TF_CONFIG", TfConfig("worker", 1));
  EXPECT_EQ(ps_hosts({"--ps_hosts=localhost:2"}), "localhost:2222  TF_CONFIG cluster.ps");
  const Outcome outcome = sandbox.Run({"task", "--task_index=0", "--print_config"});
  EXPECT_THAT(outcome.err,
              HasSubstr("TF_CONFIG task.index = \"1\" wins over flag --task_index = \"0\""));
  EXPECT_EQ(SettingOf(outcome, "task"), "worker/1  derived");
}

TEST(ConfigTest, BrokenTfConfigIsOneSentence) {
  struct Case {
    const char* text;
    const char* words;
  };
  for (const Case& c : std::vector<Case>{
           {"{", "TF_CONFIG is not JSON"},
           {R"({"task": {"type": "walker", "index": 0}})", "Unrecognized task_type: 'walker'"},
           {R"({"cluster": {"ps": ["h:1"], "worker": ["h:2"]},
                "task": {"type": "worker", "index": 7}})",
            "The `task_id` 7 exceeds the maximum id of worker."},
           {R"({"sparseCluster": {"ps": {"0": "localhost:1"}, "worker": {"1": "localhost:2"}},
                "task": {"type": "worker", "index": 1}})",
            "only a part of the cluster (ps/0, worker/1), but"}}) {
    Sandbox sandbox;
    sandbox.SetEnv("TF_CONFIG", c.text);
    const std::string error = OnlyError(sandbox.Run({"task"}, 5));
    EXPECT_THAT(error, HasSubstr(c.words));
    // Who asks for the settings hears of it too, as an error or beside what there is to show.
    EXPECT_THAT(sandbox.Run({"task", "--print_config"}, 5).err, HasSubstr(c.words));
    EXPECT_EQ(sandbox.Leftovers(), "");
  }
}

TEST(ConfigTest, TrainTakesItsFlagsFromAFileToo) {
  Sandbox sandbox;
  const std::string path = sandbox.dir().File("job.yaml");
  const std::string report = sandbox.dir().File("r.json");
  WriteText(path, "workers: 1\nmode: locked\ntrain_steps: 40\nbatch_size: 10\nreport: " + report);
  const Outcome outcome = sandbox.Run(sandbox.Train({"--config=" + path, "--train_steps=60"}), 20);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const nlohmann::json json = ReadJson(report);
  EXPECT_EQ(json["mode"], "locked");
  EXPECT_EQ(json["workers"].size(), 1u);
  EXPECT_EQ(json["global_step"], 60);  // the flag
  WriteText(path, "cluster: {ps: [localhost:1], worker: [localhost:2]}\n");
  EXPECT_THAT(OnlyError(sandbox.Run(sandbox.Train({"--config=" + path}), 5)),
              HasSubstr("names a cluster"));
}

TEST(ConfigTest, WithoutAClusterATaskTrainsAlone) {
  Sandbox sandbox;
  const std::string model = sandbox.dir().File("m.safetensors");
  const std::vector<std::string> alone = {"task", "--data_dir=" + Digits(), "--train_steps=50",
                                          "--job_id=" + sandbox.job(), "--save=" + model};
  const Outcome outcome = sandbox.Run(alone, 20);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out + outcome.err, HasSubstr("Running single-machine training"));
  EXPECT_EQ(sandbox.Eval(model), 0);
  // Some of the variables, and a TF_CONFIG of one worker, name no cluster either.
  sandbox.SetEnv("TASK_INDEX", "0");
  EXPECT_THAT(sandbox.Run(alone, 20).err, HasSubstr("not used"));
  sandbox.SetEnv("TF_CONFIG",
                 R"({"cluster": {"worker": ["h:1"]}, "task": {"type": "worker", "index": 0}})");
  EXPECT_EQ(sandbox.Run(alone, 20).code, 0);
  EXPECT_EQ(sandbox.Leftovers(), "");
}

// One task has the cluster as lists, one as objects of indices, one as a sparseCluster.
TEST(ConfigTest, JobOfTfConfigAloneTrains) {
  constexpr const char* kObjects =
      R"({"ps": {"0": "localhost:2222"}, "worker": {"1": "localhost:2224", "0": "localhost:2223"}})";
  const std::map<std::string, std::string> clusters = {
      {"ps/0", fmt::format(R"("sparseCluster": {})", kObjects)},
      {"worker/0", fmt::format(R"("cluster": {})", kObjects)},
      {"worker/1", kCluster}};
  std::vector<Program> tasks;
  Sandbox sandbox;
  const std::vector<std::string> command = {"task", "--data_dir=" + Digits(), "--train_steps=200",
                                            "--start_wait=20", "--job_id=" + sandbox.job()};
  for (const auto& [type, index] :
       {std::pair("ps", 0), std::pair("worker", 1), std::pair("worker", 0)}) {
    const std::string& cluster = clusters.at(fmt::format("{}/{}", type, index));
    sandbox.SetEnv("TF_CONFIG", fmt::format(R"({{{}, "task": {{"type": "{}", "index": {}}}}})",
                                            cluster, type, index));
    EXPECT_EQ(SettingOf(sandbox.Run({"task", "--print_config"}), "cluster_hash"),
              "c85026fd44cc113d  derived");
    tasks.push_back(sandbox.Start(command));
  }
  for (Program& task : tasks) {
    const Outcome outcome = sandbox.Finish(task, 20);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("Running distributed training"));
  }
  EXPECT_THAT(tasks[1].Out(), HasSubstr("job name = worker\ntask index = 1\n"
                                        "worker_device: /job:worker/task:1/cpu:0\n"));
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(ConfigTest, SupervisedTasksDoNotReadTheEnvironment) {
  Sandbox sandbox;
  sandbox.SetEnv("TF_CONFIG", TfConfig("ps", 0));
  const Outcome outcome = sandbox.Run(sandbox.Train({"--train_steps=50"}), 20);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("TF_CONFIG is not used"));
}

TEST(ConfigTest, TasksOfOtherClustersAreRefusedWithBothHashes) {
  Sandbox sandbox;
  // Without --job_id: they meet because they name the same ps/0.
  const std::string port = std::to_string(20'000 + ::getpid() % 40'000);
  const auto task = [&](const std::string& job, const std::string& workers) {
    return std::vector<std::string>{"task",
                                    "--job_name=" + job,
                                    "--task_index=0",
                                    "--ps_hosts=localhost:" + port,
                                    "--worker_hosts=" + workers,
                                    "--data_dir=" + Digits()};
  };
  const auto hash = [&](const std::string& workers) {
    const std::vector<std::string> show = With(task("ps", workers), {"--print_config"});
    return SettingOf(sandbox.Run(show), "cluster_hash").substr(0, 16);
  };
  Program ps = sandbox.Start(task("ps", "localhost:7,localhost:8"));
  ASSERT_TRUE(ps.WaitFor("is ready for its workers"));
  const std::string error = OnlyError(sandbox.Run(task("worker", "localhost:7"), 10));
  EXPECT_THAT(error, HasSubstr(hash("localhost:7,localhost:8")));
  EXPECT_THAT(error, HasSubstr(hash("localhost:7")));
  EXPECT_THAT(error, HasSubstr("--worker_hosts"));
  EXPECT_THAT(OnlyError(sandbox.Run(task("ps", "localhost:9"), 5)), HasSubstr("running already"));
  EXPECT_TRUE(ps.Running());
  sandbox.Interrupt(ps);
}

TEST(ConfigTest, EvaluatorOfTfConfigFollowsItsJob) {
  Sandbox sandbox;
  const std::vector<std::string> command = {"task", "--data_dir=" + Digits(), "--train_steps=200",
                                            "--start_wait=20", "--job_id=" + sandbox.job()};
  const auto start = [&](const std::string& type) {
    sandbox.SetEnv("TF_CONFIG",
                   R"({"cluster": {"ps": ["localhost:1"], "worker": ["localhost:2"],
                       "evaluator": ["localhost:3"]}, "task": {"type": ")" +
                       type + R"(", "index": 0}})");
    return sandbox.Start(command);
  };
  Program evaluator = start("evaluator");
  Program ps = start("ps");
  Program worker = start("worker");
  for (Program* program : {&ps, &worker, &evaluator}) {
    EXPECT_EQ(sandbox.Finish(*program, 20).code, 0) << program->Err();
  }
  EXPECT_THAT(evaluator.Out(), HasSubstr("final evaluation at global step 200: test accuracy"));
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(ConfigTest, PlacementOfVariablesIsLoggedOnRequest) {
  Sandbox sandbox;
  Program ps = sandbox.Start(sandbox.Task("ps", 0, 2, 1, {"--train_steps=20"}));
  Program other = sandbox.Start(sandbox.Task("ps", 1, 2, 1, {"--train_steps=20"}));
  Program worker = sandbox.Start(
      sandbox.Task("worker", 0, 2, 1, {"--train_steps=20", "--log_device_placement"}));
  const Outcome outcome = sandbox.Finish(worker, 20);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  // Round robin in the order of creation: global_step, hid_w, hid_b, sm_w, sm_b.
  EXPECT_THAT(outcome.err, HasSubstr("global_step: /job:ps/replica:0/task:0/cpu:0\n"));
  EXPECT_THAT(outcome.err, HasSubstr("hid_w: /job:ps/replica:0/task:1/cpu:0\n"));
  EXPECT_THAT(outcome.err, HasSubstr("hid_b: /job:ps/replica:0/task:0/cpu:0\n"));
  EXPECT_THAT(outcome.err, HasSubstr("sm_w: /job:ps/replica:0/task:1/cpu:0\n"));
  EXPECT_THAT(outcome.err, HasSubstr("sm_b: /job:ps/replica:0/task:0/cpu:0\n"));
  EXPECT_EQ(sandbox.Finish(ps).code, 0);
  EXPECT_EQ(sandbox.Finish(other).code, 0);
}

TEST(ConfigTest, ExistingServersAreUsedAndTheirAbsenceEndsInTime) {
  Sandbox sandbox;
  const std::vector<std::string> flags = {"--train_steps=100", "--start_wait=0.5",
                                          "--existing_servers"};
  const Outcome alone = sandbox.Run(sandbox.Task("worker", 0, 1, 1, flags), 5);
  EXPECT_THAT(OnlyError(alone, 143), HasSubstr("ps/0"));
  EXPECT_EQ(alone.out.find("existing server"), std::string::npos) << "there is none";
  EXPECT_THAT(OnlyError(sandbox.Run(sandbox.Task("ps", 0, 1, 1, flags), 5)),
              HasSubstr("tasks that train"));
  Program ps = sandbox.Start(sandbox.Task("ps", 0, 1, 1, {"--start_wait=20"}));
  ASSERT_TRUE(ps.WaitFor("is ready for its workers"));
  const Outcome outcome = sandbox.Run(sandbox.Task("worker", 0, 1, 1, flags), 20);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("Using existing server at: localhost:2222\n"));
  EXPECT_EQ(sandbox.Finish(ps, 5).code, 0);
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(ConfigTest, WithExistingServersTheLossOfThePsIsNoticed) {
  Sandbox sandbox;
  const std::vector<std::string> flags = {"--train_steps=100000000", "--ps_wait=0.4"};
  Program ps = sandbox.Start(sandbox.Task("ps", 0, 1, 1, flags));
  ASSERT_TRUE(ps.WaitFor("is ready for its workers"));
  Program worker =
      sandbox.Start(sandbox.Task("worker", 0, 1, 1, With(flags, {"--existing_servers"})));
  ASSERT_TRUE(worker.WaitFor("training step 100 done")) << worker.Err();
  ps.Signal(SIGKILL);
  ps.Wait();
  EXPECT_THAT(OnlyError(sandbox.Finish(worker, 5), 143), HasSubstr("--ps_wait"));
}

}  // namespace
}  // namespace passel::testing

// Resolution: errors, roles, and the table of what was decided.

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

// --- Errors ------------------------------------------------------------------------------------

TEST(ResolveTest, MissingSettingsHaveTheWordsOfTheReferencePrograms) {
  EXPECT_EQ(Inputs().Give("task_index", "0").Error(), "Must specify an explicit `job_name`");
  EXPECT_EQ(Inputs().Give("job_name", "").Error(), "Must specify an explicit `job_name`");
  EXPECT_EQ(Inputs().Give("job_name", "ps").Error(), "Must specify an explicit `task_index`");
  EXPECT_EQ(Inputs().Task("ps", "").Error(), "Must specify an explicit `task_index`");
  EXPECT_EQ(Inputs().Task("ps", "0").Error(), "Must specify an explicit `ps_hosts`");
  EXPECT_EQ(Inputs().Task("ps", "0").Give("ps_hosts", "p:1").Error(),
            "Must specify an explicit `worker_hosts`");
  EXPECT_EQ(ThreeTasks("ps", "0").Give("ps_hosts", "").Error(),
            "Must specify an explicit `ps_hosts`");
}

TEST(ResolveTest, WorkersMayHaveAnIndexBeyondTheLists) {
  Inputs inputs = ThreeTasks("worker", "5");
  inputs.more_workers = true;
  const Result<ResolvedConfig> more = inputs.Resolve();
  ASSERT_TRUE(more.ok()) << more.status().message();
  EXPECT_EQ(*more->task, (TaskId{"worker", 5}));
  EXPECT_FALSE(more->is_chief);
  EXPECT_EQ(more->cluster.Hash(), ThreeTasks("worker", "0").Resolve()->cluster.Hash());
  Inputs ps = ThreeTasks("ps", "5");
  ps.more_workers = true;
  EXPECT_THAT(ps.Error(), HasSubstr("out of range")) << "of workers alone";
}

TEST(ResolveTest, WhoeverJoinsIsAWorkerAndNeedsNoIndex) {
  Inputs inputs = ThreeTasks("", "");
  inputs.joins = inputs.more_workers = true;
  const Result<ResolvedConfig> joins = inputs.Resolve();
  ASSERT_TRUE(joins.ok()) << joins.status().message();
  EXPECT_EQ(*joins->task, (TaskId{"worker", 2}));
  inputs.Task("ps", "0");
  EXPECT_THAT(inputs.Error(), HasSubstr("--join is for workers, not for \"ps\""));
  Inputs nobody;
  nobody.joins = true;
  EXPECT_EQ(nobody.Error(), "Must specify an explicit `ps_hosts`") << "it does not train alone";
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
  EXPECT_THAT(Inputs().Env("PS_KEY", "a:1,").Env("WORKER_KEY", "w:1").Task("ps", "0").Error(),
              HasSubstr("(environment PS_KEY)"));
  EXPECT_THAT(Inputs().TfConfig("{").Error(), StartsWith("TF_CONFIG is not JSON: "));
  EXPECT_EQ(Inputs().TfConfig(std::string((1 << 20) + 1, 'x')).Resolve().status().code(),
            Code::kResourceExhausted);
  EXPECT_THAT(Inputs().File("a: [").Error(), StartsWith("train.yaml:1:"));
}

// --- Roles -------------------------------------------------------------------------------------

TEST(ResolveTest, TheChiefIsTheChiefTaskOrWorkerZero) {
  for (const std::string chief : {"chief", "master"}) {
    const auto role = [&](const std::string& task) {
      const auto config = Inputs()
                              .TfConfig(R"({"cluster":{"ps":["p:1"],"worker":["w:1"],")" + chief +
                                        R"(":["c:1"]},"task":)" + task + "}")
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
  const auto config = ThreeTasks("evaluator", "0").Resolved();
  EXPECT_EQ(config->task->ToString(), "evaluator/0");
  EXPECT_EQ(config->cluster.num_tasks("evaluator"), 0);
  EXPECT_TRUE(config->distributed);
  EXPECT_EQ(ThreeTasks("evaluator", "1").Error(),
            "There must be at most one 'evaluator' job, with index 0, not 1 (flag --task_index)");
  // It also watches a worker that trains alone.
  const auto watches =
      Inputs()
          .TfConfig(R"({"cluster":{"worker":["w:1"]},"task":{"type":"evaluator","index":0}})")
          .Resolved();
  EXPECT_EQ(watches->task->ToString(), "evaluator/0");
}

TEST(ResolveTest, TheFilesChiefBelongsToTheFilesHosts) {
  const std::string file =
      "cluster:\n  ps: [p:1]\n  worker: [w:1]\n  chief: [c:1]\n  evaluator: [e:1]\n";
  auto config = Inputs().Task("chief", "0").File(file).Resolved();
  EXPECT_TRUE(config->is_chief);
  EXPECT_EQ(config->worker_device, "/job:chief/task:0");
  EXPECT_EQ(Value(*config, "cluster.chief"), "c:1 <- file train.yaml:4");
  config = ThreeTasks("worker", "0").File(file).Resolved();
  EXPECT_TRUE(config->is_chief);
  EXPECT_EQ(config->cluster.CanonicalText(), "ps{0=p:1}worker{0=w:1,1=w:2}");
  EXPECT_THAT(config->warnings,
              ElementsAre(StartsWith("file train.yaml:4: cluster.chief is not used, since"),
                          StartsWith("file train.yaml:5: cluster.evaluator is not used, since")));
  EXPECT_EQ(Inputs()
                .Task("ps", "0")
                .File("cluster: {ps: [p:1], worker: [w:1], chief: [c:1], master: [m:1]}")
                .Error(),
            "the cluster has 2 chiefs: name at most one");
}

TEST(ResolveTest, OneTaskAloneTrainsWithoutACluster) {
  for (const std::string job : {"worker", "chief", "master"}) {
    const auto config = Inputs()
                            .TfConfig(R"({"cluster":{")" + job + R"(":["h:1"]},"task":{"type":")" +
                                      job + R"(","index":0}})")
                            .Resolved();
    EXPECT_FALSE(config->distributed);
    EXPECT_TRUE(config->is_chief);
    EXPECT_THAT(config->warnings, IsEmpty());
    const auto no_cluster =
        Inputs().TfConfig(R"({"task":{"type":")" + job + R"(","index":0}})").Resolved();
    EXPECT_FALSE(no_cluster->distributed);
    EXPECT_THAT(no_cluster->warnings, ElementsAre(HasSubstr("it trains on this machine alone")));
  }
  // Not for tasks that need others.
  EXPECT_EQ(Inputs().TfConfig(R"({"task":{"type":"ps","index":0}})").Error(),
            "Must specify an explicit `ps_hosts`");
  EXPECT_EQ(Inputs().TfConfig(R"({"task":{"type":"worker","index":1}})").Error(),
            "Must specify an explicit `ps_hosts`");
  EXPECT_EQ(
      Inputs().TfConfig(R"({"cluster":{"ps":["p:1"]},"task":{"type":"ps","index":0}})").Error(),
      "There must be at least one worker. (TF_CONFIG cluster)");
}

TEST(ResolveTest, APartOfAClusterIsMarkedAndHasNoHash) {
  const auto sparse = [](const std::string& document) {
    return Inputs().TfConfig(document).Resolve();
  };
  auto config = sparse(
      R"({"sparseCluster":{"worker":{"3":"w:4"},"ps":["p:1","p:2"]},"task":{"type":"worker","index":3}})");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_TRUE(config->partial);
  EXPECT_FALSE(config->is_chief);
  EXPECT_EQ(config->target, "w:4");
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
  EXPECT_THAT(
      config->CheckComplete().message(),
      HasSubstr("only a part of the cluster (ps/0, worker/1), but every task must know all"));
  const auto whole = ThreeTasks("ps", "0").Resolve();
  EXPECT_TRUE(whole->CheckComplete().ok());
  EXPECT_FALSE(whole->partial);
}

TEST(ResolveTest, EveryTaskOfAClusterSeesTheSameHashHoweverItIsTold) {
  const auto by_flags = ThreeTasks("ps", "0").Resolve();
  const auto by_file =
      Inputs().Task("worker", "1").File("cluster: {worker: {1: W:2, 0: w:1}, ps: [p:1]}").Resolve();
  const auto by_tf_config =
      Inputs()
          .TfConfig(
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
  const auto config = ThreeTasks("worker", "999").Give("worker_hosts", workers).Resolved();
  EXPECT_EQ(config->target, "[2001:db8::999]:2222");
  EXPECT_EQ(config->cluster.num_tasks("worker"), 1000);
  EXPECT_THAT(config->Describe(), HasSubstr("[2001:db8::999]:2222  flag --worker_hosts\n"));
}

TEST(ResolveTest, SessionMasterReplacesTheTarget) {
  const auto config = ThreeTasks("worker", "0")
                          .TfConfig(R"({"session_master":"grpc://gate:1","rpc_layer":"grpc"})")
                          .Resolved();
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
  const auto config = in.Resolved();
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
            "target         localhost:2224                 derived\n"
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

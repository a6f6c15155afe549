// Whole jobs: what they learn, what they count, what they write.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <thread>

#include "base/clock.h"
#include "support/program.h"

namespace passel::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// Runs `train` to its end; its report.
nlohmann::json Train(Sandbox& sandbox, const std::vector<std::string>& arguments) {
  const std::string report = sandbox.dir().File("report.json");
  const Outcome outcome = sandbox.Run(sandbox.Train(With(arguments, {"--report=" + report})));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(sandbox.Leftovers(), "");
  nlohmann::json json = ReadJson(report);
  EXPECT_TRUE(json.is_object());
  return json;
}

std::string SavedBytes(Sandbox& sandbox, const std::vector<std::string>& arguments) {
  const std::string path = sandbox.dir().File("model.safetensors");
  Train(sandbox, With(arguments, {"--save=" + path}));
  return ReadText(path);
}

TEST(ReportTest, HoldsEveryFieldWithItsType) {
  Sandbox sandbox;
  const nlohmann::json r = Train(sandbox, {"--train_steps=300", "--workers=3", "--ps=2"});
  for (const char* name : {"test_accuracy", "test_loss", "seconds", "startup_seconds",
                           "steps_per_second", "updates_per_second"}) {
    ASSERT_TRUE(r.contains(name)) << name;
    EXPECT_TRUE(r[name].is_number()) << name;
    EXPECT_GT(r[name].get<double>(), 0) << name;
  }
  EXPECT_EQ(r["mode"], "hogwild");
  EXPECT_EQ(r["device"], "cpu");
  for (const char* name : {"p50", "p99", "max"}) {
    EXPECT_TRUE(r["staleness"][name].is_number_integer()) << name;
  }
  ASSERT_EQ(r["workers"].size(), 3u);
  std::int64_t local_steps = 0;
  for (int i = 0; i < 3; ++i) {
    const nlohmann::json& w = r["workers"][static_cast<std::size_t>(i)];
    EXPECT_EQ(w["index"], i);
    EXPECT_TRUE(w["final_accuracy"].is_null());  // evaluated once, by the supervisor
    EXPECT_EQ(w["exit"], "exited with 0");
    local_steps += w["local_steps"].get<std::int64_t>();
  }
  EXPECT_EQ(local_steps, r["global_step"]);
  EXPECT_GE(r["seconds"].get<double>(), r["startup_seconds"].get<double>());
  // Each push once.
  for (const char* histogram : {"staleness", "push_latency_us"}) {
    std::int64_t values = 0;
    for (const nlohmann::json& bucket : r[histogram]["buckets"]) {
      EXPECT_LE(bucket[0], bucket[1]);
      values += bucket[2].get<std::int64_t>();
    }
    EXPECT_EQ(values, local_steps) << histogram;
  }
  // Enough to run it again.
  const nlohmann::json& run = r["run"];
  EXPECT_THAT(run["version"].get<std::string>(), ContainsRegex("^[0-9]+[.][0-9]+"));
  EXPECT_EQ(run["command"][1], "train");
  EXPECT_THAT(run["command"], ::testing::Contains("--train_steps=300"));
  EXPECT_EQ(run["settings"]["train_steps"], "300");
  EXPECT_EQ(run["settings"]["seed"], "1");
  EXPECT_EQ(run["changed"]["train_steps"], "300");
  EXPECT_TRUE(run["changed"].contains("report"));
  EXPECT_FALSE(run["changed"].contains("seed"));
  EXPECT_EQ(run["settings"]["batch_size"], "100");
  EXPECT_GE(run["cores"], 1);
  EXPECT_NE(run["host"], "");
  EXPECT_THAT(run["started"].get<std::string>(),
              ContainsRegex("^20[0-9-]{8}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$"));
  ASSERT_FALSE(r["curve"].empty());
  EXPECT_EQ(r["curve"].back()["global_step"], r["global_step"]);
  EXPECT_GT(r["curve"].back()["loss"], 0);
  EXPECT_LE(r["curve"].back()["accuracy"], 1);
  EXPECT_GT(r["curve"].back()["steps_per_second"], 0);
  EXPECT_GE(r["curve"].back()["staleness_p99"], r["curve"].back()["staleness_mean"]);
  EXPECT_EQ(r["curve"].back()["workers"], r["workers"].size());
}

TEST(StepsTest, LocalStepsAddUpAndOvershootIsBelowTheNumberOfWorkers) {
  for (const char* mode : {"--mode=hogwild", "--mode=locked"}) {
    Sandbox sandbox;
    const nlohmann::json r = Train(sandbox, {mode, "--train_steps=500", "--workers=4"});
    EXPECT_GE(r["global_step"], 500);
    EXPECT_LE(r["global_step"], 503);
    EXPECT_EQ(r["global_step"], r["local_steps"]);
    EXPECT_EQ(r["dropped"], 0);
  }
}

TEST(StepsTest, BarrierCountsRoundsAndEndsExactly) {
  Sandbox sandbox;
  const nlohmann::json r = Train(sandbox, {"--mode=barrier", "--train_steps=200", "--workers=3"});
  EXPECT_EQ(r["global_step"], 200);
  EXPECT_EQ(r["local_steps"], 600);
  EXPECT_EQ(r["staleness"]["max"], 0);
  EXPECT_EQ(r["overlapped_blocks"], 0);
}

TEST(StepsTest, SyncReplicasIsBarrier) {
  Sandbox sandbox;
  EXPECT_EQ(Train(sandbox, {"--sync_replicas", "--train_steps=50"})["mode"], "barrier");
}

TEST(RepeatTest, OneWorkerGivesTheSameBytesAgain) {
  for (const char* mode : {"--mode=hogwild", "--mode=locked", "--mode=barrier"}) {
    Sandbox first, second, other_seed;
    const std::vector<std::string> flags = {mode, "--workers=1", "--train_steps=100"};
    const std::string bytes = SavedBytes(first, flags);
    ASSERT_FALSE(bytes.empty());
    EXPECT_TRUE(bytes == SavedBytes(second, flags)) << mode;
    EXPECT_FALSE(bytes ==
                 SavedBytes(other_seed, {mode, "--workers=1", "--train_steps=100", "--seed=2"}))
        << mode;
  }
}

// Where the variables lie changes no arithmetic, as long as each is whole.
TEST(RepeatTest, OneWorkerGivesTheSameBytesWhereverTheVariablesLie) {
  Sandbox sandbox;
  const std::vector<std::vector<std::string>> ways = {{"--ps=0"},
                                                      {"--ps=1"},
                                                      {"--ps=3"},
                                                      {"--ps=3", "--placement=greedy"},
                                                      {"--ps=2", "--pull=copy"},
                                                      {"--ps=2", "--huge_pages=transparent"}};
  std::string expected;
  for (const std::vector<std::string>& way : ways) {
    const std::string bytes = SavedBytes(sandbox, With(way, {"--workers=1", "--train_steps=100"}));
    if (expected.empty()) expected = bytes;
    EXPECT_TRUE(bytes == expected) << way.back();
  }
}

// In parts the products over the rows of hid_w are sums of partial sums, so the last bits differ:
// the run is repeatable, and close.
TEST(RepeatTest, PartitionedVariablesGiveTheSameBytesAgain) {
  Sandbox sandbox;
  const std::vector<std::string> flags = {"--ps=3", "--partitioner=fixed:3", "--workers=1",
                                          "--train_steps=100"};
  const std::string bytes = SavedBytes(sandbox, flags);
  EXPECT_TRUE(bytes == SavedBytes(sandbox, flags));
  const double parts = Train(sandbox, flags)["test_loss"].get<double>();
  const double whole = Train(sandbox, {"--ps=1", "--workers=1", "--train_steps=100"})["test_loss"];
  EXPECT_NEAR(parts, whole, 0.02 * whole);
}

TEST(OptimizerTest, EveryOneTrainsInOneProcessOrOnTwoPs) {
  bool alone = false;
  for (const char* optimizer :
       {"sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adam", "ftrl"}) {
    Sandbox sandbox;
    alone = !alone;
    EXPECT_GT(Train(sandbox, {alone ? "--ps=0" : "--ps=2", fmt::format("--optimizer={}", optimizer),
                              "--train_steps=600"})["test_accuracy"],
              0.85)
        << optimizer;
  }
}

TEST(ModelTest, SoftmaxAndTwoHiddenLayersTrain) {
  Sandbox sandbox;
  EXPECT_GT(Train(sandbox, {"--model=softmax", "--learning_rate=0.01",
                            "--train_steps=600"})["test_accuracy"],
            0.8);
  EXPECT_GT(Train(sandbox, {"--hidden_units=64,32", "--train_steps=600"})["test_accuracy"], 0.85);
}

TEST(FlagsTest, LossSamplerAndShardDataTrain) {
  Sandbox sandbox;
  for (const std::vector<std::string>& flags : std::vector<std::vector<std::string>>{
           {"--loss=sum", "--sampler=random"},
           {"--shard_data", "--pin=none", "--threads_per_worker=2"}}) {
    EXPECT_GT(Train(sandbox, With(flags, {"--train_steps=600"}))["test_accuracy"], 0.85);
  }
}

TEST(SaveTest, EvalReadsWhatTrainSavedAndFindsTheSameAccuracy) {
  for (const char* partitioner : {"--partitioner=none", "--partitioner=min_max:4:1024"}) {
    Sandbox sandbox;
    const std::string model = sandbox.dir().File("m.safetensors");
    const std::string report = sandbox.dir().File("eval.json");
    const nlohmann::json trained =
        Train(sandbox, {"--ps=2", partitioner, "--train_steps=300", "--save=" + model});
    const Outcome eval =
        sandbox.Run({"eval", "--model=" + model, "--data_dir=" + Digits(), "--report=" + report});
    ASSERT_EQ(eval.code, 0) << eval.err;
    EXPECT_EQ(ReadJson(report)["accuracy"], trained["test_accuracy"]);
    EXPECT_THAT(eval.out, HasSubstr("1000 images"));
    EXPECT_EQ(ReadJson(report)["parameters"]["metadata"]["global_step"],
              std::to_string(trained["global_step"].get<std::int64_t>()));
  }
}

TEST(SaveTest, FileOfAnEarlierRunIsReplacedAsAWhole) {
  Sandbox sandbox;
  const std::string model = sandbox.dir().File("m.safetensors");
  WriteText(model, "something older");
  Train(sandbox, {"--train_steps=50", "--save=" + model});
  EXPECT_EQ(sandbox.Eval(model), 0);
  EXPECT_EQ(sandbox.dir().List(), (std::vector<std::string>{"m.safetensors", "report.json"}));
}

TEST(LaunchTest, RolesAndCountsAreExplicit) {
  Sandbox sandbox;
  const std::string report = sandbox.dir().File("r.json");
  const Outcome outcome =
      sandbox.Run({"launch", "ps=2", "worker=3", "--data_dir=" + Digits(),
                   "--job_id=" + sandbox.job(), "--train_steps=100", "--report=" + report});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(ReadJson(report)["ps"], 2);
  EXPECT_EQ(ReadJson(report)["workers"].size(), 3u);
  const Outcome wrong = sandbox.Run({"launch", "ps=2", "chef=3", "--job_id=" + sandbox.job()});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("chef=3"));
}

TEST(OutputTest, PipedOutputIsPlainLines) {
  Sandbox sandbox;
  const Outcome outcome = sandbox.Run(sandbox.Train({"--train_steps=1000"}));
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("steps/s"));
  EXPECT_THAT(outcome.out, HasSubstr("test accuracy"));
  EXPECT_THAT(outcome.out + outcome.err, Not(HasSubstr("\r")));
  EXPECT_THAT(outcome.out + outcome.err, Not(HasSubstr("\033")));
}

TEST(OutputTest, TerminalGetsALiveLine) {
  Sandbox sandbox;
  std::string command = PASSEL_PROGRAM;
  for (const std::string& a : sandbox.Train({"--train_steps=3000"})) command += " " + a;
  Program terminal = sandbox.StartCommand({"script", "-qefc", command, "/dev/null"});
  const Outcome outcome = sandbox.Finish(terminal);
  if (outcome.code == 127) GTEST_SKIP() << "no `script` (bsdutils) to make a terminal";
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (const char* word :
       {"\r\033[K", "step ", "steps/s", "loss", "accuracy", "staleness", "left"}) {
    EXPECT_THAT(outcome.out, HasSubstr(word));
  }
}

TEST(CtlTest, ListStatusAndStopFindTheRunningJob) {
  Sandbox sandbox;
  Program train = sandbox.Start(sandbox.Train(
      {"--train_steps=100000000", "--ps=2", "--workers=3", "--save=" + sandbox.dir().File("m")}));
  const Deadline limit = Deadline::After(Scaled(20.0));
  // All three, not only those that made the first steps.
  const auto joined = [&](int worker) {
    const nlohmann::json now = sandbox.Status();
    return !now.is_null() && now["arena"]["workers"][worker]["pid"] != 0;
  };
  ASSERT_TRUE(sandbox.AwaitStep(10));
  for (int worker = 0; worker < 3; ++worker) {
    while (!joined(worker)) ASSERT_FALSE(limit.Expired());
  }
  const Outcome list = sandbox.Run({"ctl", "list"});
  EXPECT_EQ(list.code, 0);
  EXPECT_THAT(list.out, HasSubstr(sandbox.job()));
  const nlohmann::json status = sandbox.Status();
  EXPECT_EQ(status["job"], sandbox.job());
  EXPECT_EQ(status["arena"]["mode"], "hogwild");
  EXPECT_EQ(status["arena"]["shards"], 2);
  ASSERT_EQ(status["arena"]["workers"].size(), 3u);
  EXPECT_EQ(status["arena"]["workers"][1]["pid"], sandbox.TaskPid("worker", 1));
  EXPECT_EQ(status["arena"]["target_step"], 100'000'000);
  EXPECT_EQ(status["silent"], nlohmann::json::array());
  // Of a mean since the first step: as many steps as there are, over less than the job's age.
  const double age = WallSeconds() - status["arena"]["started"].get<double>();
  EXPECT_GT(age, 0);
  EXPECT_LT(age, Scaled(20.0).count() * 1e-3);
  EXPECT_GE(status["arena"]["steps_per_second"].get<double>() * age,
            status["arena"]["local_steps"].get<double>());
  EXPECT_THAT(sandbox.Run({"ctl", "status", sandbox.job()}).out,
              AllOf(HasSubstr("worker/2 running"), ContainsRegex("global step [0-9]+ of 100000000"),
                    ContainsRegex("[0-9]+ steps/s"),
                    ContainsRegex("started 20[0-9][0-9]-[0-9][0-9]-[0-9][0-9] ")));
  EXPECT_EQ(sandbox.Run({"ctl", "stop", sandbox.job()}).code, 0);
  const Outcome end = sandbox.Finish(train, 5);
  EXPECT_EQ(end.code, 130) << end.err;
  EXPECT_THAT(end.out, HasSubstr("stopped on request"));
  EXPECT_EQ(sandbox.Leftovers(), "");
  EXPECT_EQ(sandbox.Eval(sandbox.dir().File("m")), 0);
}

// The default limit of a question is longer than this one waits for the whole list.
TEST(CtlTest, WhoDoesNotAnswerIsNamedAndKeepsNobodyWaiting) {
  Sandbox stuck, other;
  Program first = stuck.Start(stuck.Train({"--train_steps=100000000", "--ps=2", "--workers=1"}));
  Program second = other.Start(other.Train({"--train_steps=100000000", "--workers=1"}));
  ASSERT_TRUE(stuck.AwaitStep(1) && other.AwaitStep(1));

  ASSERT_EQ(::kill(stuck.TaskPid("ps", 1), SIGSTOP), 0);
  EXPECT_EQ(stuck.Status()["silent"], nlohmann::json({"ps/1"}));
  EXPECT_THAT(stuck.Run({"ctl", "status", stuck.job()}).out, HasSubstr("no answer from ps/1\n"));
  ASSERT_EQ(::kill(stuck.TaskPid("ps", 0), SIGSTOP), 0);
  const Outcome list = stuck.Run({"ctl", "list"}, 3);
  EXPECT_EQ(list.code, 0) << list.err;
  EXPECT_THAT(list.out,
              ContainsRegex(stuck.job() + " +2 +ps/0 of job " + stuck.job() + " does not answer"));
  EXPECT_THAT(list.out,
              ContainsRegex(other.job() + " +1 +1 +hogwild +[0-9]+ +100000000 +[0-9]+ +20"));
  const nlohmann::json all = nlohmann::json::parse(stuck.Run({"ctl", "list", "--json"}, 3).out);
  for (const nlohmann::json& job : all) {
    const std::string name = job["job"].get<std::string>();
    if (name == stuck.job()) {
      EXPECT_THAT(job["error"].get<std::string>(), HasSubstr("ps/0"));
    } else if (name == other.job()) {
      EXPECT_EQ(job["status"]["arena"]["target_step"], 100'000'000);
    }
  }
  const Outcome status = stuck.Run({"ctl", "status", stuck.job()}, 3);
  EXPECT_THAT(OnlyError(status, 143),  // try again
              HasSubstr("ps/0 of job " + stuck.job() + " does not answer"));
  EXPECT_EQ(other.Run({"ctl", "status", other.job()}).code, 0);

  for (const int ps : {0, 1}) ::kill(stuck.TaskPid("ps", ps), SIGCONT);
  EXPECT_EQ(stuck.Run({"ctl", "stop", stuck.job()}).code, 0);
  EXPECT_EQ(stuck.Finish(first, 5).code, 130);
  EXPECT_EQ(other.Run({"ctl", "stop", other.job()}).code, 0);
  EXPECT_EQ(other.Finish(second, 5).code, 130);
  EXPECT_EQ(stuck.Leftovers() + other.Leftovers(), "");
}

TEST(CtlTest, StopDuringStartUpIsNotLost) {
  Sandbox sandbox;
  sandbox.SetEnv("PASSEL_FAILPOINT", "ps.published:1:sleep300");
  Program train = sandbox.Start(sandbox.Train({"--train_steps=100000000"}));
  ASSERT_NE(sandbox.AwaitTask("worker", 1), 0);
  const Outcome stop = sandbox.Run({"ctl", "stop", sandbox.job()});
  EXPECT_EQ(stop.code, 0) << stop.err;
  EXPECT_EQ(sandbox.Finish(train, 5).code, 130);
  EXPECT_EQ(sandbox.Leftovers(), "");
}

}  // namespace
}  // namespace passel::testing

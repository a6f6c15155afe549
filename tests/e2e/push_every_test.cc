// --push_every in the real program: what it trains, counts, survives and refuses.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <thread>

#include "support/program.h"

namespace passel::testing {
namespace {

using ::testing::HasSubstr;

class PushEveryProgramTest : public ::testing::Test {
 protected:
  // The report of a run; "test_loss" -1 if it failed.
  nlohmann::json Train(std::vector<std::string> flags) {
    const std::string report = sandbox_.dir().File("r.json");
    flags.push_back("--report=" + report);
    const Outcome outcome = sandbox_.Run(sandbox_.Train(flags), 60);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(sandbox_.Leftovers(), "");
    out_ = outcome.out;
    return outcome.code == 0 ? ReadJson(report) : nlohmann::json{{"test_loss", -1.0}};
  }
  double Loss(const std::vector<std::string>& flags) {
    return Train(With(flags, {"--train_steps=60", "--optimizer=sgd"}))
        .at("test_loss")
        .get<double>();
  }

  Sandbox sandbox_;
  std::string out_;
};

TEST_F(PushEveryProgramTest, TrainsAsOneBatchThatIsAsLargeWould) {
  const double one = Loss({"--workers=1", "--batch_size=60"});
  ASSERT_GT(one, 0);
  for (const std::vector<std::string>& flags : std::vector<std::vector<std::string>>{
           {"--workers=1"},
           {"--ps=0", "--workers=1"},
           {"--workers=1", "--towers=2"},
           {"--workers=1", "--mode=locked", "--pull=copy", "--ps=2"},
           {"--workers=1", "--mode=ssp"},
           {"--workers=1", "--mode=barrier"}}) {
    EXPECT_NEAR(Loss(With(flags, {"--batch_size=20", "--push_every=3"})), one, 1e-5 * one)
        << flags.back();
  }
  const double rounds = Loss({"--workers=2", "--mode=barrier", "--batch_size=60"});
  EXPECT_NEAR(Loss({"--workers=2", "--mode=barrier", "--batch_size=20", "--push_every=3"}), rounds,
              1e-5 * rounds);
  const double sum = Loss({"--workers=1", "--loss=sum", "--learning_rate=0.001"});
  EXPECT_NEAR(Loss({"--workers=1", "--loss=sum", "--learning_rate=0.001", "--batch_size=25",
                    "--push_every=4"}),
              sum, 1e-5 * sum);
}

TEST_F(PushEveryProgramTest, CountsTheSameInEveryMode) {
  for (const std::string mode : {"hogwild", "locked", "ssp", "barrier", "replicas"}) {
    const bool rounds = mode == "barrier" || mode == "replicas";
    const nlohmann::json report =
        Train({"--workers=3", "--mode=" + mode, "--local_steps=50", "--push_every=8",
               "--batch_size=10", "--log_lines=task", "--log_step_count_steps=25"});
    EXPECT_EQ(report.at("push_every"), 8);
    EXPECT_EQ(report.at("local_steps"), 150);
    // Six pushes of 8 and one of 2, of each worker.
    EXPECT_EQ(report.at("global_step"), rounds ? 7 : 21) << mode;
    EXPECT_NEAR(report.at("steps_per_second").get<double>() * (rounds ? 7 : 21),
                report.at("updates_per_second").get<double>() * 150, 1e-3);
    EXPECT_THAT(out_, HasSubstr("mode " + mode + ", a push every 8 steps, staleness p50"));
    for (const char* worker : {"Worker 0", "Worker 1", "Worker 2"}) {
      // Half way through a push and at the end of the last.
      EXPECT_THAT(out_, HasSubstr(std::string(worker) + ": training step 25 done")) << mode;
      EXPECT_THAT(out_, HasSubstr(std::string(worker) + ": training step 50 done")) << mode;
    }
  }
}

TEST_F(PushEveryProgramTest, EndsAtTheGlobalStepAndPlaysStragglersByTheBatch) {
  const nlohmann::json report =
      Train({"--workers=2", "--mode=barrier", "--train_steps=5", "--push_every=4",
             "--batch_size=10", "--slow_worker=1:10ms"});
  EXPECT_EQ(report.at("global_step"), 5);
  EXPECT_EQ(report.at("local_steps"), 40);
  EXPECT_GE(report.at("training_seconds").get<double>(), 0.19);
  EXPECT_EQ(
      Train({"--workers=2", "--epochs=2", "--batch_size=100", "--push_every=7"}).at("local_steps"),
      2 * 2 * 60);
}

TEST_F(PushEveryProgramTest, WorkerThatDiesBetweenTwoPushesIsReplacedAndNothingIsCountedTwice) {
  const std::string report = sandbox_.dir().File("r.json");
  Program train = sandbox_.Start(
      sandbox_.Train({"--workers=2", "--local_steps=600", "--push_every=50", "--batch_size=10",
                      "--slow_worker=0:2ms,1:2ms", "--max_restarts=3", "--report=" + report}));
  const pid_t first = sandbox_.AwaitTask("worker", 1);
  ASSERT_GT(first, 0);
  ASSERT_TRUE(sandbox_.AwaitStep(4));
  // A push of 50 steps takes 100 ms, nearly all of it between two pushes.
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  ASSERT_EQ(::kill(first, SIGKILL), 0);
  const Outcome outcome = sandbox_.Finish(train, 60);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const nlohmann::json json = ReadJson(report);
  EXPECT_EQ(json.at("local_steps"), 1200);
  EXPECT_EQ(json.at("global_step"), 24);
  EXPECT_EQ(sandbox_.Leftovers(), "");
}

TEST_F(PushEveryProgramTest, IsSetByAFileAndShown) {
  const std::string path = sandbox_.dir().File("job.yaml");
  WriteText(path, "push_every: 3\ncluster:\n  ps: [localhost:2222]\n  worker: [localhost:2223]\n");
  const std::vector<std::string> print = {"task", "--config=" + path, "--job_name=worker",
                                          "--task_index=0", "--print_config"};
  const Outcome file = sandbox_.Run(print);
  EXPECT_EQ(file.code, 0) << file.err;
  EXPECT_THAT(file.out, ::testing::ContainsRegex("push_every +3 +file .*job.yaml:1\n"));
  EXPECT_THAT(sandbox_.Run(With(print, {"--push_every=5"})).out,
              ::testing::ContainsRegex("push_every +5 +flag --push_every\n"));
}

}  // namespace
}  // namespace passel::testing

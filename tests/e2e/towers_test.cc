// In-graph replication in the real program: several towers in one worker process.

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "support/program.h"

namespace passel::testing {
namespace {

struct Trained {
  double loss = -1;
  std::string model;  // the bytes of the saved file
  nlohmann::json report;
};

Trained Train(std::vector<std::string> flags) {
  Sandbox sandbox;
  const std::string report = sandbox.dir().File("r.json");
  const std::string model = sandbox.dir().File("m.safetensors");
  flags.insert(flags.end(),
               {"--train_steps=100", "--optimizer=sgd", "--report=" + report, "--save=" + model});
  const Outcome outcome = sandbox.Run(sandbox.Train(flags), 40);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(sandbox.Leftovers(), "");
  if (outcome.code != 0) return {};
  Trained trained;
  trained.report = ReadJson(report);
  trained.loss = trained.report["test_loss"].get<double>();
  trained.model = ReadText(model);
  return trained;
}

TEST(TowersProgramTest, GiveWhatOneTowerGivesAndTheSameEachTime) {
  const Trained one = Train({"--workers=1"});
  ASSERT_GT(one.loss, 0);
  for (const char* towers : {"--towers=2", "--towers=3", "--towers=4"}) {
    const Trained several = Train({"--workers=1", towers});
    EXPECT_NEAR(several.loss, one.loss, 1e-5 * one.loss) << towers;
    EXPECT_EQ(several.report["global_step"], 100);
    EXPECT_EQ(several.report["workers"].size(), 1u);
    EXPECT_EQ(Train({"--workers=1", towers}).model, several.model) << towers;
  }
}

TEST(TowersProgramTest, WorkWithoutAPsAndInRoundsOfSeveralWorkers) {
  const Trained one = Train({"--workers=1"});
  const Trained alone = Train({"--ps=0", "--workers=1", "--towers=3"});
  EXPECT_NEAR(alone.loss, one.loss, 1e-5 * one.loss);
  const Trained rounds = Train({"--workers=2", "--mode=barrier"});
  const Trained towers = Train({"--workers=2", "--mode=barrier", "--towers=2", "--batch_size=100"});
  EXPECT_NEAR(towers.loss, rounds.loss, 1e-5 * rounds.loss);
}

TEST(TowersProgramTest, SumOfLossesIsTheSumOfTheTowers) {
  const std::vector<std::string> flags = {"--workers=1", "--loss=sum", "--learning_rate=0.001"};
  const auto with = [&](const char* towers) {
    std::vector<std::string> all = flags;
    all.emplace_back(towers);
    return Train(all).loss;
  };
  const double one = with("--towers=1");
  ASSERT_GT(one, 0);
  EXPECT_NEAR(with("--towers=4"), one, 1e-5 * one);
}

TEST(TowersProgramTest, HaveTheirThreadsAndEndWithTheWorker) {
  Sandbox sandbox;
  Program train = sandbox.Start(
      sandbox.Train({"--workers=1", "--towers=5", "--train_steps=100000000", "--pin=none"}));
  const pid_t worker = sandbox.AwaitTask("worker", 0);
  ASSERT_GT(worker, 0);
  const Deadline deadline = Deadline::After(Scaled(10.0));
  while (sandbox.GlobalStep() < 20 && !deadline.Expired()) continue;
  std::size_t threads = 0;
  for ([[maybe_unused]] const auto& thread :
       std::filesystem::directory_iterator("/proc/" + std::to_string(worker) + "/task")) {
    ++threads;
  }
  EXPECT_GE(threads, 5u);
  train.Signal(SIGINT);
  EXPECT_EQ(sandbox.Finish(train, 5).code, 130);
  EXPECT_EQ(sandbox.Leftovers(), "");
}

}  // namespace
}  // namespace passel::testing

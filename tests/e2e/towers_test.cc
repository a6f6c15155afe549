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

Trained Train(const std::vector<std::string>& flags) {
  Sandbox sandbox;
  const std::string report = sandbox.dir().File("r.json");
  const std::string model = sandbox.dir().File("m.safetensors");
  const Outcome outcome =
      sandbox.Run(sandbox.Train(With(flags, {"--train_steps=100", "--optimizer=sgd",
                                             "--report=" + report, "--save=" + model})),
                  40);
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
    if (towers != std::string("--towers=3")) continue;
    EXPECT_EQ(Train({"--workers=1", towers}).model, several.model);
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
  const double one = Train(With(flags, {"--towers=1"})).loss;
  ASSERT_GT(one, 0);
  EXPECT_NEAR(Train(With(flags, {"--towers=4"})).loss, one, 1e-5 * one);
}

TEST(TowersProgramTest, HaveTheirThreadsAndEndWithTheWorker) {
  Sandbox sandbox;
  Program train = sandbox.Start(
      sandbox.Train({"--workers=1", "--towers=5", "--train_steps=100000000", "--pin=none"}));
  const pid_t worker = sandbox.AwaitTask("worker", 0);
  ASSERT_GT(worker, 0);
  EXPECT_TRUE(sandbox.AwaitStep(20));
  std::size_t threads = 0;
  for ([[maybe_unused]] const auto& thread :
       std::filesystem::directory_iterator("/proc/" + std::to_string(worker) + "/task")) {
    ++threads;
  }
  EXPECT_GE(threads, 5u);
  sandbox.Interrupt(train);
}

}  // namespace
}  // namespace passel::testing

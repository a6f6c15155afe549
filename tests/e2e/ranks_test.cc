// Tasks that a launcher of ranks starts, as torchrun does.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <vector>

#include "support/program.h"

namespace passel::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class RanksTest : public ::testing::Test {
 protected:
  // Rank `rank` of `size`: the same command line for all.
  Program Start(int rank, int size, const std::vector<std::string>& more) {
    sandbox_.SetEnv("RANK", std::to_string(rank));
    sandbox_.SetEnv("LOCAL_RANK", std::to_string(rank));
    sandbox_.SetEnv("WORLD_SIZE", std::to_string(size));
    sandbox_.SetEnv("LOCAL_WORLD_SIZE", std::to_string(size));
    sandbox_.SetEnv("MASTER_ADDR", "127.0.0.1");
    sandbox_.SetEnv("MASTER_PORT", "29500");
    std::vector<std::string> arguments = sandbox_.Train(more);
    arguments[0] = "task";
    return sandbox_.Start(arguments);
  }
  Sandbox sandbox_;
};

TEST_F(RanksTest, TrainTogetherInAnyOrderAndLeaveNothing) {
  for (const std::vector<int>& order : {std::vector<int>{0, 1, 2}, {2, 1, 0}}) {
    std::vector<Program> ranks;
    for (const int rank : order) {
      ranks.push_back(Start(rank, 3, {"--train_steps=600", "--start_wait=20", "--mode=locked"}));
    }
    std::string all;
    for (Program& program : ranks) {
      const Outcome outcome = sandbox_.Finish(program, 20);
      EXPECT_EQ(outcome.code, 0) << outcome.err << outcome.out;
      EXPECT_EQ(outcome.errors.size(), 0u) << outcome.err;
      all += outcome.out + outcome.err;
    }
    for (const char* name :
         {"ps/0 of job", "worker=0, final", "worker=1, final", "worker=2, final"}) {
      EXPECT_THAT(all, HasSubstr(name));
    }
    EXPECT_EQ(sandbox_.Leftovers(), "");
  }
}

TEST_F(RanksTest, OneAloneTrainsAlone) {
  Program program = Start(0, 1, {"--train_steps=200"});
  const Outcome outcome = sandbox_.Finish(program, 20);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out + outcome.err, Not(HasSubstr("ps/0")));
  EXPECT_EQ(sandbox_.Leftovers(), "");
}

TEST_F(RanksTest, StoppedOnesEndWithTheirPs) {
  const std::vector<std::string> endless = {"--train_steps=100000000", "--start_wait=20"};
  std::vector<Program> ranks;
  for (const int rank : {0, 1}) ranks.push_back(Start(rank, 2, endless));
  EXPECT_TRUE(sandbox_.AwaitStep(10));
  for (Program& program : ranks) program.Signal(SIGTERM);  // as torchrun does
  for (Program& program : ranks) EXPECT_EQ(sandbox_.Finish(program, 20).code, 143) << program.Err();
  EXPECT_EQ(sandbox_.Leftovers(), "");
}

TEST_F(RanksTest, WhenTheFirstIsKilledItsPsGoesWithIt) {
  const std::vector<std::string> endless = {"--train_steps=100000000", "--start_wait=20",
                                            "--ps_wait=0.5"};
  std::vector<Program> ranks;
  for (const int rank : {0, 1}) ranks.push_back(Start(rank, 2, endless));
  EXPECT_TRUE(sandbox_.AwaitStep(10));
  ranks[0].Signal(SIGKILL);
  EXPECT_EQ(sandbox_.Finish(ranks[0], 20).code, 1000 + SIGKILL);
  EXPECT_EQ(sandbox_.Finish(ranks[1], 20).code, 143) << ranks[1].Err();
}

TEST_F(RanksTest, AFirstOneThatCannotBeginTakesItsPsAlong) {
  Program program =
      Start(0, 2, {"--train_steps=100", "--batch_size=50000", "--shard_data", "--start_wait=60"});
  const Outcome outcome = sandbox_.Finish(program, 20);
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_EQ(outcome.errors.size(), 1u) << outcome.err;
  EXPECT_EQ(sandbox_.Leftovers(), "");
}

}  // namespace
}  // namespace passel::testing

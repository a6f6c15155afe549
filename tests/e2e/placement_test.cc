// On which ps each variable is. The expected tables are those that the reference programs'
// frameworks give (round robin in the order of creation, global_step counted; greedy by bytes;
// contiguous parts, the first ones a row larger), written down by hand.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "support/program.h"

namespace passel::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Table = std::vector<std::string>;  // "variable rows bytes device"

// The lines of the table itself, with single spaces.
Table Rows(const Outcome& outcome) {
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  Table rows;
  std::istringstream lines(outcome.out);
  std::string line;
  std::getline(lines, line);  // the heading
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string name, span, bytes, device;
    words >> name >> span >> bytes >> device;
    if (device.rfind("/job:ps/", 0) == 0) {
      rows.push_back(fmt::format("{} {} {} {}", name, span, bytes, device.substr(8)));
    }
  }
  return rows;
}

Table Placed(int ps, std::vector<std::string> flags) {
  Sandbox sandbox;
  flags.insert(flags.begin(), {"train", "--print_placement", fmt::format("--ps={}", ps)});
  return Rows(sandbox.Run(flags));
}

// The table of the default model: `tasks` are those of global_step, hid_w, hid_b, sm_w and sm_b.
Table Mlp(const std::string& tasks) {
  Table rows = {"global_step - 4 task:", "hid_w 0-783 313600 task:", "hid_b 0-99 400 task:",
                "sm_w 0-99 4000 task:", "sm_b 0-9 40 task:"};
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] += tasks[i];
  return rows;
}

TEST(PlacementTest, MlpInRoundRobinWithGlobalStepFirst) {
  EXPECT_EQ(Placed(1, {}), Mlp("00000"));
  // ps0 = global_step, hid_b, sm_b; ps1 = hid_w, sm_w
  EXPECT_EQ(Placed(2, {}), Mlp("01010"));
  EXPECT_EQ(Placed(3, {}), Mlp("01201"));
}

TEST(PlacementTest, MlpInRoundRobinWithGlobalStepLast) {
  // ps0 = hid_w, sm_w, global_step; ps1 = hid_b, sm_b
  EXPECT_THAT(Placed(2, {"--global_step=last"}),
              ElementsAre("hid_w 0-783 313600 task:0", "hid_b 0-99 400 task:1",
                          "sm_w 0-99 4000 task:0", "sm_b 0-9 40 task:1", "global_step - 4 task:0"));
  EXPECT_THAT(Placed(3, {"--global_step=last"}),
              ElementsAre("hid_w 0-783 313600 task:0", "hid_b 0-99 400 task:1",
                          "sm_w 0-99 4000 task:2", "sm_b 0-9 40 task:0", "global_step - 4 task:0"));
}

// Where its turn counts, and where it really is, are two things; --log_device_placement and the
// arena say the latter.
TEST(PlacementTest, TheHeadingSaysWhereGlobalStepCountsAndWhoKeepsIt) {
  const auto heading = [](std::vector<std::string> flags) {
    Sandbox sandbox;
    flags.insert(flags.begin(), {"train", "--print_placement"});
    const std::string out = sandbox.Run(flags).out;
    return out.substr(0, out.find('\n'));
  };
  EXPECT_THAT(heading({"--ps=3", "--global_step=last"}),
              HasSubstr("(global_step: its turn counts on ps/1, as 4 bytes; ps/0 keeps it)"));
  EXPECT_THAT(heading({"--ps=2", "--preset=k8s-adagrad"}), HasSubstr("counts on ps/0, as 4 bytes"));
  EXPECT_THAT(heading({"--ps=2", "--preset=async-softmax"}), HasSubstr("ps/0, as 8 bytes"));
}

TEST(PlacementTest, SoftmaxRegressionInTurn) {
  const std::string model = "--model=softmax";
  EXPECT_THAT(Placed(1, {model}),
              ElementsAre("global_step - 4 task:0", "w 0-783 31360 task:0", "b 0-9 40 task:0"));
  EXPECT_THAT(Placed(2, {model}),
              ElementsAre("global_step - 4 task:0", "w 0-783 31360 task:1", "b 0-9 40 task:0"));
  EXPECT_THAT(Placed(3, {model}),
              ElementsAre("global_step - 4 task:0", "w 0-783 31360 task:1", "b 0-9 40 task:2"));
}

TEST(PlacementTest, GreedyGoesByBytes) {
  EXPECT_EQ(Placed(2, {"--placement=greedy"}), Mlp("01000"));
  // After global_step 4, hid_w 313600 and hid_b 400 bytes: sm_w to ps 0 (4), sm_b to ps 2 (400).
  EXPECT_EQ(Placed(3, {"--placement=greedy"}), Mlp("01202"));
}

TEST(PlacementTest, PartsArePlacedOneByOne) {
  // 784 = 262 + 261 + 261, 100 = 34 + 33 + 33, 10 = 4 + 3 + 3 rows.
  EXPECT_THAT(Placed(2, {"--partitioner=fixed:3"}),
              ElementsAre("global_step - 4 task:0", "hid_w/part_0 0-261 104800 task:1",
                          "hid_w/part_1 262-522 104400 task:0",
                          "hid_w/part_2 523-783 104400 task:1", "hid_b/part_0 0-33 136 task:0",
                          "hid_b/part_1 34-66 132 task:1", "hid_b/part_2 67-99 132 task:0",
                          "sm_w/part_0 0-33 1360 task:1", "sm_w/part_1 34-66 1320 task:0",
                          "sm_w/part_2 67-99 1320 task:1", "sm_b/part_0 0-3 16 task:0",
                          "sm_b/part_1 4-6 12 task:1", "sm_b/part_2 7-9 12 task:0"));
  // min_max: ceil(313600 / 262144) = 2 parts of hid_w, one of everything else.
  EXPECT_THAT(Placed(3, {"--partitioner=min_max:8"}),
              ElementsAre("global_step - 4 task:0", "hid_w/part_0 0-391 156800 task:1",
                          "hid_w/part_1 392-783 156800 task:2", "hid_b/part_0 0-99 400 task:0",
                          "sm_w/part_0 0-99 4000 task:1", "sm_b/part_0 0-9 40 task:2"));
  // Rows of hid_w have 400 bytes: 100000 / 400 = 250 a part, ceil(784 / 250) = 4 parts of 196.
  const Table axis = Placed(2, {"--partitioner=axis:100000"});
  ASSERT_EQ(axis.size(), 8u);
  EXPECT_EQ(axis[1], "hid_w/part_0 0-195 78400 task:1");
  EXPECT_EQ(axis[4], "hid_w/part_3 588-783 78400 task:0");
  EXPECT_EQ(axis[5], "hid_b/part_0 0-99 400 task:1");
}

TEST(PlacementTest, PinnedVariableMovesAloneAndStillCounts) {
  EXPECT_EQ(Placed(3, {"--pin_variable=hid_w=/job:ps/task:2,sm_b=/cpu:0"}), Mlp("02201"));
}

TEST(PlacementTest, ATaskShowsTheTableOfItsCluster) {
  Sandbox sandbox;
  std::vector<std::string> task = sandbox.Task("worker", 0, 3, 1, {"--print_placement"});
  EXPECT_EQ(Rows(sandbox.Run(task)), Mlp("01201"));
  const Outcome alone = sandbox.Run({"task", "--print_placement", "--hidden_units=7"});
  EXPECT_EQ(alone.code, 0) << alone.err;
  EXPECT_THAT(alone.out, HasSubstr("this process"));
  EXPECT_EQ(sandbox.Leftovers(), "");
}

// Wherever the variables are, what is learnt is the same: bitwise, unless a variable is cut, when
// its products are added up in another order.
TEST(PlacementTest, MakesNoDifferenceToTheValues) {
  const auto loss = [](std::vector<std::string> flags) {
    Sandbox sandbox;
    const std::string report = sandbox.dir().File("r.json");
    flags.insert(flags.end(), {"--workers=1", "--train_steps=60", "--report=" + report});
    const Outcome outcome = sandbox.Run(sandbox.Train(flags), 30);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.code == 0 ? ReadJson(report)["test_loss"].get<double>() : -1;
  };
  const double one = loss({"--ps=1"});
  EXPECT_GT(one, 0);
  EXPECT_EQ(loss({"--ps=2", "--global_step=last"}), one);
  EXPECT_EQ(loss({"--ps=3", "--pin_variable=hid_w=/job:ps/task:2,sm_w=/job:ps/task:2"}), one);
  EXPECT_NEAR(loss({"--ps=3", "--partitioner=fixed:5", "--placement=greedy"}), one, 1e-5 * one);
}

}  // namespace
}  // namespace passel::testing

// `passel bench`: a table of every mode, one sentence of advice, and nothing left behind.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <sstream>

#include "support/program.h"

namespace passel::testing {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::StartsWith;

std::string LastLine(const std::string& text) {
  const std::size_t end = text.find_last_not_of('\n');
  const std::size_t begin = text.rfind('\n', end);
  return text.substr(begin + 1, end - begin);
}

// "mode workers" of each row of the table, in their order.
std::vector<std::string> Rows(const std::string& table) {
  std::vector<std::string> rows;
  std::istringstream lines(table);
  std::string line;
  while (std::getline(lines, line) && !line.starts_with("mode ")) {
  }
  std::getline(lines, line);  // the rule below the head
  while (std::getline(lines, line) && !line.empty()) {
    std::istringstream words(line);
    std::string mode, workers;
    words >> mode >> workers;
    rows.push_back(mode + " " + workers);
  }
  return rows;
}

TEST(BenchTest, EveryModeIsMeasuredAndOneIsAdvised) {
  Sandbox sandbox;
  const std::string json = sandbox.dir().File("bench.json");
  const double seconds = std::min(4.0, 1e-3 * static_cast<double>(Scaled(2.0).count()));
  const Outcome outcome = sandbox.Run({"bench", "--elements=1000", "--optimizer=sgd", "--workers=2",
                                       fmt::format("--seconds={}", seconds), "--json", json});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.errors.size(), 0u) << outcome.err;
  // On a crowded machine rows at the end may be left out, and that is said.
  std::vector<std::string> expected = {"hogwild 2", "locked 2", "barrier 2", "replicas 2", "ssp 2",
                                       "hogwild 1", "locked 1", "barrier 1", "replicas 1", "ssp 1"};
  const std::vector<std::string> rows = Rows(outcome.out);
  const std::size_t said = outcome.out.find(" of 10 rows were left out");
  if (said == std::string::npos) {
    EXPECT_THAT(rows, ElementsAreArray(expected)) << outcome.out;
  } else {
    EXPECT_EQ(rows.size(), 10u - static_cast<std::size_t>(outcome.out[said - 1] - '0'));
    EXPECT_THAT(expected, IsSupersetOf(rows)) << outcome.out;
    EXPECT_THAT(rows, ::testing::Contains("hogwild 2"));
  }
  EXPECT_THAT(outcome.out, HasSubstr("One update of 1,000 parameters by sgd"));
  const std::string advice = LastLine(outcome.out);
  EXPECT_THAT(advice, StartsWith("On this machine with 2 workers"));
  EXPECT_EQ(advice.back(), '.');
  EXPECT_EQ(sandbox.Leftovers(), "");

  const nlohmann::json found = ReadJson(json);
  EXPECT_EQ(found.at("format"), 1);
  EXPECT_EQ(found.at("advice"), advice);
  EXPECT_EQ(found.at("interrupted"), false);
  EXPECT_EQ(found.at("guarantees").at("locked"), "applies each gradient at once and loses nothing");
  ASSERT_EQ(found.at("cells").size(), rows.size());
  for (const auto& cell : found.at("cells")) {
    EXPECT_EQ(cell.at("optimizer"), "sgd");
    EXPECT_GT(cell.at("p50"), 0.0);
    EXPECT_GE(cell.at("p99"), cell.at("p50"));
    EXPECT_GT(cell.at("ratio"), 0.0);
    if (cell.at("mode") == "locked") {
      EXPECT_EQ(cell.at("lost_updates"), 0);
    }
  }
}

// A liveness bound: it must not run on where a cell takes longer than all the time there is.
TEST(BenchTest, WhatDoesNotFitIsLeftOutAndSaid) {
  Sandbox sandbox;
  const Outcome outcome =
      sandbox.Run({"bench", "--elements=4000000", "--workers=2", "--seconds=1"}, 90);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_LT(Rows(outcome.out).size(), 10u);
  EXPECT_THAT(outcome.out, HasSubstr("of 10 rows were left out, for which 1 s are too short"));
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(BenchTest, AnInterruptLeavesWhatIsComplete) {
  for (const int signal : {SIGINT, SIGTERM}) {
    Sandbox sandbox;
    const std::string json = sandbox.dir().File("bench.json");
    Program program = sandbox.Start({"bench", "--workers=2", "--seconds=60", "--json", json});
    ASSERT_TRUE(program.WaitFor("\nhogwild ")) << program.Err();
    program.Signal(signal);
    const Outcome outcome = sandbox.Finish(program);
    EXPECT_EQ(outcome.code, 130) << outcome.err;
    const std::size_t rows = Rows(outcome.out).size();
    EXPECT_GE(rows, 1u);
    EXPECT_LT(rows, 10u);
    EXPECT_THAT(outcome.out, HasSubstr("interrupted: what is above is complete"));
    EXPECT_THAT(LastLine(outcome.out), StartsWith("On this machine with 2 workers"));
    const nlohmann::json found = ReadJson(json);
    EXPECT_EQ(found.at("interrupted"), true);
    EXPECT_EQ(found.at("cells").size(), rows);
    EXPECT_EQ(sandbox.Leftovers(), "");
  }
}

}  // namespace
}  // namespace passel::testing

// `passel train --ps 0`: one process that others find, watch and stop like any other job.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <regex>
#include <sstream>

#include "support/program.h"

namespace passel::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(SingleProcessTest, ControlFindsItCopiesItsValuesChangesItsModeAndStopsIt) {
  Sandbox sandbox;
  const std::string report = sandbox.dir().File("r"), model = sandbox.dir().File("m");
  Program train = sandbox.Start(sandbox.Train(
      {"--ps=0", "--train_steps=100000000", "--report=" + report, "--save=" + model}));
  ASSERT_TRUE(train.WaitFor("steps/s")) << train.Err();
  EXPECT_GT(sandbox.GlobalStep(), 0);
  EXPECT_EQ(sandbox.Processes().size(), 1u);
  EXPECT_THAT(sandbox.Run({"ctl", "list"}).out,
              ::testing::ContainsRegex(sandbox.job() + " +0 +1 +hogwild +[0-9]+"));
  EXPECT_THAT(sandbox.Run({"ctl", "status", sandbox.job()}).out,
              AllOf(HasSubstr("one process"), HasSubstr("worker/0 running")));
  const Outcome eval = sandbox.Run({"eval", "--job=" + sandbox.job(), "--data_dir=" + Digits()});
  EXPECT_EQ(eval.code, 0) << eval.err;
  EXPECT_THAT(eval.out, HasSubstr("1000 images"));
  EXPECT_EQ(sandbox.Run({"ctl", "set-mode", sandbox.job(), "locked"}).code, 0);
  EXPECT_THAT(OnlyError(sandbox.Run(sandbox.Train({"--ps=0"})), 2), HasSubstr("running already"));
  EXPECT_EQ(sandbox.Run({"ctl", "stop", sandbox.job()}).code, 0);
  const Outcome outcome = sandbox.Finish(train);
  EXPECT_EQ(outcome.code, 130);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("test accuracy"), HasSubstr("saved " + model)));
  EXPECT_EQ(ReadJson(report)["mode"], "locked");
  EXPECT_EQ(ReadJson(report)["interrupted"], true);
  EXPECT_EQ(ReadJson(report)["exit_code"], 130);
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(SingleProcessTest, OneWorkerIsWhatZeroPsMeanUnlessMoreAreAskedFor) {
  Sandbox sandbox;
  const std::string report = sandbox.dir().File("r");
  for (const std::vector<std::string>& roles : std::vector<std::vector<std::string>>{
           {"train", "--ps=0"}, {"launch", "ps=0"}, {"train", "--ps=0", "--preset=monitored"}}) {
    const std::vector<std::string> all =
        With(roles, {"--data_dir=" + Digits(), "--job_id=" + sandbox.job(), "--train_steps=20",
                     "--report=" + report});
    EXPECT_EQ(sandbox.Run(all).code, 0) << roles[0];
    EXPECT_EQ(ReadJson(report)["workers"].size(), 1u);
    EXPECT_EQ(ReadJson(report)["ps"], 0);
    EXPECT_EQ(ReadJson(report)["local_steps"], 20);
  }
  for (const char* workers : {"--workers=2", "--workers=3"}) {
    EXPECT_EQ(sandbox.Run(sandbox.Train({"--ps=0", workers})).code, 2);
  }
}

// Its lines on standard output, with another number for each number.
std::string LinesOf(const std::string& out) {
  std::string lines;
  std::istringstream text(out);
  for (std::string line; std::getline(text, line);) {
    // The ps tells of itself, at any time; where the worker computes depends on the machine.
    if (line == "job name = ps" || line.starts_with("task index = ") ||
        line.starts_with("worker_device: ")) {
      continue;
    }
    if (line.starts_with("test accuracy")) break;  // the summary
    lines += std::regex_replace(line, std::regex("[0-9.]+"), "#") + "\n";
  }
  return lines;
}

TEST(SingleProcessTest, LinesOfAPresetAreThoseOfAWorkerWithAPs) {
  for (const std::string preset : {"dist-mnist", "mnist-replica", "k8s-adagrad"}) {
    Sandbox sandbox;
    const auto lines = [&](const std::string& ps) {
      const Outcome outcome =
          sandbox.Run(sandbox.Train({"--preset=" + preset, "--ps=" + ps, "--workers=1",
                                     "--train_steps=3", "--validation_size=1000"}));
      EXPECT_EQ(outcome.code, 0) << outcome.err;
      return LinesOf(outcome.out);
    };
    const std::string with_ps = lines("1");
    EXPECT_EQ(lines("0"), with_ps) << preset;
    EXPECT_THAT(with_ps, HasSubstr("ession"));
  }
}

}  // namespace
}  // namespace passel::testing

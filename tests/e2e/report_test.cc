// Results as JSON: in files with the permissions that the user wants, and on standard output alone.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fmt/core.h>

#include "support/program.h"

namespace passel::testing {
namespace {

using ::testing::HasSubstr;

TEST(ReportTest, OnStandardOutputIsAloneThere) {
  Sandbox sandbox;
  const std::string saved = sandbox.dir().File("m");
  // With whatever else prints there: log lines of workers, an evaluator, one process alone.
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--evaluator", "--log_lines=dist-mnist",
                                 "--log_step_count_steps=5"},
        {"--ps=0"}}) {
    const std::vector<std::string> flags =
        With({"--train_steps=40", "--report=-", "--save=" + saved}, more);
    const Outcome train = sandbox.Run(sandbox.Train(flags));
    ASSERT_EQ(train.code, 0) << train.err;
    const nlohmann::json report = nlohmann::json::parse(train.out, nullptr, false);
    ASSERT_TRUE(report.is_object()) << train.out;
    EXPECT_GE(report["global_step"].get<int>(), 40);
    EXPECT_THAT(train.err, HasSubstr("test accuracy "));
    EXPECT_THAT(train.err, HasSubstr("saved " + saved));
  }
  const Outcome eval =
      sandbox.Run({"eval", "--params=" + saved, "--data_dir=" + Digits(), "--report=-"});
  ASSERT_EQ(eval.code, 0) << eval.err;
  const nlohmann::json result = nlohmann::json::parse(eval.out, nullptr, false);
  ASSERT_TRUE(result.is_object()) << eval.out;
  EXPECT_EQ(result["images"], 1000);
  EXPECT_THAT(eval.err, HasSubstr("precision"));
  // That it cannot be had is no success.
  Program full = sandbox.StartCommand(
      {"sh", "-c",
       fmt::format("exec {} eval --params={} --data_dir={} --report=- >/dev/full", PASSEL_PROGRAM,
                   saved, Digits())});
  const Outcome lost = sandbox.Finish(full);
  EXPECT_EQ(lost.code, 1);
  EXPECT_THAT(lost.err, HasSubstr("the result cannot be printed on standard output: No space"));
  EXPECT_EQ(sandbox.Leftovers(), "");
}

TEST(ReportTest, FilesFollowTheUmask) {
  Sandbox sandbox;
  const std::string saved = sandbox.dir().File("m"), report = sandbox.dir().File("r.json");
  const std::string evaluation = sandbox.dir().File("e.json");
  const auto mode = [](const std::string& path) {
    struct stat info {};
    EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
    return info.st_mode & 07777;
  };
  for (const mode_t mask : {0027u, 0077u}) {
    const std::string command = fmt::format(
        "umask {:03o} && {} train --ps=0 --train_steps=5 --data_dir={} --save={} --report={} && "
        "exec {} eval --params={} --data_dir={} --json={}",
        mask, PASSEL_PROGRAM, Digits(), saved, report, PASSEL_PROGRAM, saved, Digits(), evaluation);
    Program both = sandbox.StartCommand({"sh", "-c", command});
    const Outcome outcome = sandbox.Finish(both);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    for (const std::string& path : {saved, report, evaluation}) {
      EXPECT_EQ(mode(path), 0666u & ~mask) << path;
    }
  }
}

}  // namespace
}  // namespace passel::testing

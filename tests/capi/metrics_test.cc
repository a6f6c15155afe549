// Numbers that programs in C show of themselves.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "capi/job.h"
#include "support/program.h"
#include "support/read_events.h"

namespace passel::testing {
namespace {

using ::testing::HasSubstr;

// least_squares shows "worker", its index, and "step".
TEST(CapiMetrics, ReachTheStatusAndTensorBoard) {
  Job job(2, {"mode=barrier", "summary_steps=100"});
  Sandbox& sandbox = job.sandbox();
  const std::string logs = sandbox.dir().path() + "/logs";
  job.Set("logs_dir=" + logs);
  job.StartPs();
  for (int i = 0; i < 2; ++i) job.StartWorker(i, kEndless);
  ASSERT_TRUE(sandbox.AwaitStep(2000));
  const nlohmann::json status = sandbox.Status();
  const nlohmann::json& workers = status["arena"]["workers"];
  ASSERT_EQ(workers.size(), 2u) << status.dump();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(workers[i]["metrics"]["worker"], i);
    EXPECT_GE(workers[i]["metrics"]["step"], 90);
  }
  EXPECT_THAT(sandbox.Run({"ctl", "status", sandbox.job()}).out, HasSubstr("worker 1, step "));
  EXPECT_EQ(sandbox.Run({"ctl", "stop", sandbox.job()}).code, 0);
  for (int i = 0; i < 2; ++i) job.ExpectDone(i);
  job.ExpectPsEnds(130);

  const auto files = test::EventFilesIn(logs);
  ASSERT_EQ(files.size(), 1u);
  std::map<std::string, std::map<std::int64_t, float>> told;
  for (const auto& event : test::ReadEvents(files[0])) {
    for (const auto& value : event.summary().value()) {
      told[value.tag()][event.step()] = value.simple_value();
    }
  }
  EXPECT_GE(told["worker"].size(), 5u);
  EXPECT_EQ(told["worker"].rbegin()->second, 0.5);
  EXPECT_EQ(told["worker_1/worker"].rbegin()->second, 1);
  EXPECT_GT(told["global_step/sec"].rbegin()->second, 0);
}

}  // namespace
}  // namespace passel::testing

// What a job says it achieved.

#include "job/report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace passel::job::testing {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

JobStatus TwoWorkers() {
  JobStatus status;
  status.global_step = 30;
  status.local_steps = 40;
  for (int worker = 0; worker < 2; ++worker) {
    WorkerStatus& w = status.workers.emplace_back();
    w.member.worker = worker;
    w.first_step_ns = (5 + worker) * kSecond;
    w.last_step_ns = (9 - worker) * kSecond;
    w.dropped = 5;
    w.device = 1;
  }
  return status;
}

TEST(ReportTest, CountsFromTheStartOfTheProgramAndFromTheFirstStepOfAll) {
  JobReport report;
  report.program_start_ns = 3 * kSecond;
  report.TakeStatus(TwoWorkers());
  EXPECT_DOUBLE_EQ(report.startup_seconds, 2);
  EXPECT_DOUBLE_EQ(report.TrainingSeconds(), 4);
  EXPECT_DOUBLE_EQ(report.StepsPerSecond(), 10);
  EXPECT_DOUBLE_EQ(report.UpdatesPerSecond(), 7.5);
}

TEST(ReportTest, AJobWithoutStepsHasNoRates) {
  JobReport report;
  report.program_start_ns = 3 * kSecond;
  report.TakeStatus({});
  EXPECT_EQ(report.startup_seconds, 0);
  EXPECT_EQ(report.TrainingSeconds(), 0);
  EXPECT_EQ(report.StepsPerSecond(), 0);
}

TEST(ReportTest, TextAndJsonSayTheSame) {
  JobReport report;
  report.mode = "hogwild";
  report.worker_exits = {"exited with 0", "was killed by SIGKILL (9)"};
  report.notes = {"the job finished with 1 of its 2 workers"};
  report.TakeStatus(TwoWorkers());
  const std::string text = Summary(report);
  EXPECT_NE(text.find("not evaluated"), std::string::npos);
  EXPECT_NE(text.find("worker/1: 0 local steps, 5 gradients dropped, was killed by SIGKILL (9)"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("note: the job finished with 1 of its 2 workers"), std::string::npos);
  const nlohmann::json json = nlohmann::json::parse(ToJson(report));
  EXPECT_TRUE(json["test_accuracy"].is_null());
  EXPECT_EQ(json["dropped"], 10);
  EXPECT_EQ(json["device"], "cpu");
  EXPECT_EQ(json["workers"][1]["exit"], "was killed by SIGKILL (9)");
  EXPECT_EQ(json["notes"][0], "the job finished with 1 of its 2 workers");
}

}  // namespace
}  // namespace passel::job::testing

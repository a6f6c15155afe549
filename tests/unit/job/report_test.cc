// What a job says it achieved.

#include "job/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

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
    w.counts[&WorkerCounters::dropped] = 5;
    w.counts[&WorkerCounters::max_clock_lead] = 2 + static_cast<std::uint64_t>(worker);
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

TEST(ReportTest, WorkersWithDifferentKernelsAreNotedOnce) {
  JobReport report;
  JobStatus status = TwoWorkers();
  status.workers[1].kernels = "Haswell";
  report.TakeStatus(status);
  EXPECT_TRUE(report.notes.empty()) << "nothing is known of the other";
  status.workers[0].kernels = "SkylakeX, in pieces";
  report.TakeStatus(status);
  report.TakeStatus(status);
  ASSERT_EQ(report.notes.size(), 1u);
  EXPECT_EQ(report.notes[0],
            "worker/0 multiplies with the kernels for SkylakeX, in pieces, worker/1 with those for "
            "Haswell: the bits of this job depend on which hosts its workers have");
  const nlohmann::json json = nlohmann::json::parse(ToJson(report));
  EXPECT_EQ(json["workers"][1]["kernels"], "Haswell");
}

TEST(ReportTest, TextAndJsonSayTheSame) {
  JobReport report;
  report.mode = "hogwild";
  report.model = "mlp";
  report.worker_exits = {"exited with 0", "was killed by SIGKILL (9)"};
  report.notes = {"the job finished with 1 of its 2 workers"};
  report.TakeStatus(TwoWorkers());
  const std::string text = Summary(report);
  EXPECT_NE(text.find("not evaluated"), std::string::npos);
  EXPECT_NE(text.find("worker/1: 0 local steps, 5 gradients dropped, up to 3 steps ahead of the "
                      "slowest, was killed by SIGKILL (9)"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("note: the job finished with 1 of its 2 workers"), std::string::npos);
  const nlohmann::json json = nlohmann::json::parse(ToJson(report));
  EXPECT_TRUE(json["test_accuracy"].is_null());
  EXPECT_EQ(json["dropped"], 10);
  EXPECT_EQ(json["max_clock_lead"], 3) << "the largest, not the sum";
  EXPECT_EQ(json["device"], "cpu");
  EXPECT_EQ(json["workers"][1]["exit"], "was killed by SIGKILL (9)");
  EXPECT_EQ(json["notes"][0], "the job finished with 1 of its 2 workers");
}

TEST(ReportTest, HasEveryCountOfTheJobAndOfEachWorker) {
  JobReport report;
  report.TakeStatus(TwoWorkers());
  const nlohmann::json json = nlohmann::json::parse(ToJson(report));
  for (const WorkerCount& count : kWorkerCounts) {
    EXPECT_TRUE(json.contains(count.name)) << count.name;
    for (const nlohmann::json& worker : json["workers"]) {
      EXPECT_TRUE(worker.contains(count.name)) << count.name;
    }
  }
  for (const WorkerTime& time : kWorkerTimes) {
    EXPECT_TRUE(json["workers"][0]["seconds"].contains(time.name)) << time.name;
  }
}

TEST(ReportTest, SaysWhatBecameOfCheckpoints) {
  JobReport report;
  EXPECT_TRUE(nlohmann::json::parse(ToJson(report))["checkpoints"].is_null());
  report.checkpoints.folder = "train";
  report.checkpoints.saved = 3;
  report.checkpoints.best = BestEntry{"model.ckpt-5", ValidationScore{0.75, 4}};
  const nlohmann::json json = nlohmann::json::parse(ToJson(report))["checkpoints"];
  EXPECT_EQ(json["saved"], 3);
  EXPECT_EQ(json["best"], "model.ckpt-5");
  EXPECT_EQ(json["best_step"], 4);
  EXPECT_TRUE(json["newest"].is_null());
  EXPECT_TRUE(json["resumed_step"].is_null());
  std::ifstream file(PASSEL_SOURCE_DIR "/docs/report.md");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  for (const auto& [name, value] : json.items()) {
    EXPECT_THAT(text, ::testing::HasSubstr("`" + name + "`"));
  }
}

TEST(ReportTest, DocsSayWhatEachCountIs) {
  std::ifstream file(PASSEL_SOURCE_DIR "/docs/report.md");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  for (const WorkerCount& count : kWorkerCounts) {
    EXPECT_THAT(text, ::testing::HasSubstr("| `" + std::string(count.name) + "` | " +
                                           std::string(count.unit) + " |"));
  }
}

}  // namespace
}  // namespace passel::job::testing

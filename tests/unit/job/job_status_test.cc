// What an arena tells of its job, as numbers and as the JSON of a status.

#include "job/job_status.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/memory_file.h"
#include "base/process_identity.h"
#include "job/progress.h"
#include "job/report.h"
#include "shm/arena.h"
#include "store/membership.h"
#include "store/metrics.h"
#include "train/worker_loop.h"

namespace passel::job {
namespace {

StorePlan TwoWorkers() {
  StorePlan plan;
  plan.mode = {Mode::kSsp, 3};
  plan.num_workers = 2;
  plan.optimizer = *ParseOptimizer("adam");
  VariableInfo v;
  v.name = v.logical = "v";
  v.shape = {30, 7};
  plan.variables = *VariableTable::Build({v}, 1);
  return plan;
}

shm::Arena MakeArena() {
  const MemoryBudget plenty{std::uint64_t{64} << 20, "the test"};
  Result<shm::Arena> arena = shm::Arena::Create(TwoWorkers(), 0, {.job_id = "status-test"}, plenty);
  EXPECT_TRUE(arena.ok()) << arena.status().message();
  arena->Publish();
  return std::move(*arena);
}

// In the status, the progress line and the report.
TEST(JobStatusTest, MetricsOfWorkersReachPeople) {
  const shm::Arena arena = MakeArena();
  const ShardMemory& memory = arena.memory();
  ASSERT_TRUE(Join(memory, 0, SelfIdentity()).ok());
  MetricSlots &first = memory.tasks[0].metrics, &second = memory.tasks[1].metrics;
  for (const double value : {9.0, 1.0}) ASSERT_TRUE(SetMetric(first, "reward", value).ok());
  ASSERT_TRUE(SetMetric(second, "length", 5).ok());
  ASSERT_TRUE(SetMetric(second, "reward", 2).ok());
  JobReport report;
  report.TakeStatus(ReadJobStatus(memory));
  const std::vector<Metric> means = MeanMetrics(report.status);
  ASSERT_EQ(means.size(), 2u);
  EXPECT_EQ(means[0].name, "reward");
  EXPECT_EQ(means[0].value, 1.5);
  EXPECT_EQ(means[1].value, 5);

  const auto json = nlohmann::json::parse(DescribeJob(arena, WorkerNames{}).Write());
  EXPECT_EQ(json["workers"][1]["metrics"], (nlohmann::json{{"length", 5.0}, {"reward", 2.0}}));
  const auto reported = nlohmann::json::parse(ToJson(report));
  EXPECT_EQ(reported["metrics"], (nlohmann::json{{"reward", 1.5}, {"length", 5.0}}));
  EXPECT_EQ(reported["workers"][0]["metrics"], (nlohmann::json{{"reward", 1.0}}));
  EXPECT_NE(Summary(report).find("worker/1: 0 local steps, length 5, reward 2"), std::string::npos)
      << Summary(report);

  report.status.local_steps = report.status.workers[0].first_step_ns = 1;
  ::testing::internal::CaptureStderr();
  Progress(100, kNoStepLimit, false).Update(report.status);
  const std::string line = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(line.find("  reward 1.5  length 5  "), std::string::npos) << line;
  EXPECT_EQ(line.find("loss"), std::string::npos) << line;
}

TEST(JobStatusTest, SaysWhatTheWorkersHaveWritten) {
  const shm::Arena arena = MakeArena();
  const ShardMemory& memory = arena.memory();
  ASSERT_TRUE(Join(memory, 1, SelfIdentity()).ok());
  WorkerCounters& counters = memory.tasks[1].counters;
  counters.local_steps = 7;
  counters.dropped = 2;
  counters.device = 2;
  counters.first_step_ns = 2000;
  memory.tasks[0].counters.local_steps = 5;
  memory.tasks[0].counters.first_step_ns = 1000;
  memory.state->global_step = 11;

  const JobStatus status = ReadJobStatus(memory);
  EXPECT_EQ(status.global_step, 11);
  EXPECT_EQ(status.local_steps, 12u);
  EXPECT_FALSE(status.initialized);
  ASSERT_EQ(status.workers.size(), 2u);
  EXPECT_EQ(status.workers[1].counts[&WorkerCounters::dropped], 2u);
  EXPECT_STREQ(DeviceName(status.workers[1].device), "gpu");
  EXPECT_STREQ(DeviceName(status.workers[0].device), "unknown");
  EXPECT_EQ(FirstStepNs(status), 1000);
  EXPECT_EQ(FirstStepNs(JobStatus{}), 0);
}

// Means are of the steps made here, not of those in the checkpoint that the job began with.
TEST(JobStatusTest, StepsOfACheckpointAreNoSpeed) {
  const shm::Arena arena = MakeArena();
  const ShardMemory& memory = arena.memory();
  memory.tasks[0].counters.first_step_ns = 1'000'000'000;
  memory.tasks[0].counters.last_step_ns = 3'000'000'000;
  memory.tasks[0].counters.local_steps = 5'010;
  memory.state->global_step = 3'008;
  memory.state->restored_local_steps = 5'000;
  memory.state->restored_step = 3'000;
  const nlohmann::json told = nlohmann::json::parse(DescribeJob(arena, {}).Write());
  EXPECT_DOUBLE_EQ(told["steps_per_second"], 5);
  EXPECT_DOUBLE_EQ(told["updates_per_second"], 4);
  EXPECT_EQ(told["local_steps"], 5'010);
}

TEST(JobStatusTest, TellsEveryCountByItsName) {
  const shm::Arena arena = MakeArena();
  WorkerCounters& counters = arena.memory().tasks[1].counters;
  std::uint64_t number = 100;
  for (const WorkerCount& count : kWorkerCounts) counters.*count.counter = number++;
  for (const WorkerTime& time : kWorkerTimes) counters.*time.ns = 1'000'000'000 * number++;

  const nlohmann::json told = nlohmann::json::parse(DescribeJob(arena, {}).Write())["workers"][1];
  number = 100;
  for (const WorkerCount& count : kWorkerCounts) {
    EXPECT_EQ(told[std::string(count.name)], number++) << count.name;
  }
  for (const WorkerTime& time : kWorkerTimes) {
    EXPECT_EQ(told["seconds"][std::string(time.name)], number++) << time.name;
  }
}

TEST(JobStatusTest, IsJsonWithNamesWhateverTheNumbersAre) {
  const shm::Arena arena = MakeArena();
  const ShardMemory& memory = arena.memory();
  ASSERT_TRUE(Join(memory, 1, SelfIdentity()).ok());
  memory.tasks[1].counters.loss = std::numeric_limits<double>::quiet_NaN();
  ASSERT_TRUE(GiveUpExpecting(memory, 0));

  const nlohmann::json told =
      nlohmann::json::parse(DescribeJob(arena, {.chief = 1, .chief_name = "chief/0"}).Write());
  EXPECT_EQ(told["mode"], "ssp");
  EXPECT_EQ(told["staleness_bound"], 3);
  EXPECT_EQ(told["optimizer"], "adam");
  EXPECT_EQ(told["parameters"], 210);
  EXPECT_TRUE(told["target_step"].is_null());
  EXPECT_TRUE(told["shadow"].is_null());
  EXPECT_EQ(told["workers"][0]["phase"], "never started");
  EXPECT_EQ(told["workers"][1]["task"], "chief/0");
  EXPECT_EQ(told["workers"][1]["phase"], "running");
  EXPECT_TRUE(told["workers"][1]["loss"].is_null()) << "JSON has no NaN";
  EXPECT_EQ(told["events"].back()["task"], "worker/0");
}

}  // namespace
}  // namespace passel::job

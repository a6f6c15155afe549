#include "train/profiler_hook.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "support/small_worker.h"
#include "support/temp_dir.h"

namespace passel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ProfilerHookTest : public test::SmallWorkerTest {
 protected:
  void SetUp() override {
    SmallWorkerTest::SetUp();
    Open(0.1F);
  }
  Result<WorkerResult> Profile(const Interval& every, std::size_t max_steps = 1000) {
    const auto hook =
        MakeProfiler({.every = every, .output_dir = dir_.path(), .max_steps = max_steps}).value();
    return Run({.hooks = {hook.get()}});
  }
  // Those of a timeline, in order.
  std::vector<Json> Bars(const std::string& name) const {
    const auto bytes = ReadFile(dir_.File(name), 1 << 20).value();
    const Json timeline =
        ParseJson(name, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, 8).value();
    std::vector<Json> bars;
    for (const Json& event : *timeline.Find("traceEvents")->list()) {
      if (*event.Find("ph")->text() == "X") bars.push_back(event);
    }
    return bars;
  }
  static double Number(const Json& object, const char* name) {
    return object.Find(name)->As<double>().value();
  }

  test::TempDir dir_;
};

TEST_F(ProfilerHookTest, WritesAFileAfterTheSecondStepThenByTheTimerAndAtTheEnd) {
  ASSERT_TRUE(Profile({.steps = 9}).ok());
  EXPECT_THAT(dir_.List(), ElementsAre("timeline-11.json", "timeline-2.json", "timeline-20.json"));
  EXPECT_EQ(Bars("timeline-2.json").front().Find("args")->Find("global_step")->As<int>(), 1);
  Open(0.1F);
  options_.train_steps = 25;
  ASSERT_TRUE(Profile({.steps = 9}).ok());
  int steps = 0;
  for (const Json& bar : Bars("timeline-25.json")) steps += *bar.Find("name")->text() == "step";
  EXPECT_EQ(steps, 5) << "those that no file has";
}

TEST_F(ProfilerHookTest, HasABarForEachStepAndItsPartsInOrder) {
  ASSERT_TRUE(Profile({.steps = 9}).ok());
  std::map<std::string, double> parts;
  double end = 0;
  int steps = 0;
  for (const Json& event : Bars("timeline-11.json")) {
    const std::string name = *event.Find("name")->text();
    const double begin = Number(event, "ts"), length = Number(event, "dur");
    if (name == "step") {
      ++steps;
      EXPECT_EQ(Number(*event.Find("args"), "global_step"), 2 + steps);
      end = begin;
      continue;
    }
    EXPECT_GE(begin, end - 0.001) << name << " begins behind the part before it";
    end = begin + length;
    parts[name] += Number(*event.Find("args"), "ns");
  }
  EXPECT_EQ(steps, 9) << "those since the last file";
  EXPECT_GT(parts["compute"], 0);
  EXPECT_LE(parts["compute"], static_cast<double>(store_->counters().compute_ns.load()));
  EXPECT_GT(parts["push"], 0);
  EXPECT_FALSE(parts.contains("wait")) << "nothing to wait for in hogwild";
}

TEST_F(ProfilerHookTest, KeepsTheNewestStepsOfALongInterval) {
  ASSERT_TRUE(Profile({.steps = 18}, 4).ok());
  std::vector<std::int64_t> steps;
  for (const Json& event : Bars("timeline-20.json")) {
    if (*event.Find("name")->text() != "step") continue;
    steps.push_back(static_cast<std::int64_t>(Number(*event.Find("args"), "global_step")));
  }
  EXPECT_THAT(steps, ElementsAre(17, 18, 19, 20));
}

TEST_F(ProfilerHookTest, AFileThatCannotBeWrittenIsToldOfOnceAndTrainingGoesOn) {
  const auto hook = MakeProfiler({.every = {.steps = 2}, .output_dir = dir_.File("none")}).value();
  ::testing::internal::CaptureStderr();
  const Result<WorkerResult> result = Run({.hooks = {hook.get()}});
  const std::string log = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->local_steps, 20);
  EXPECT_THAT(log, HasSubstr("the timeline is not written, training goes on without"));
  EXPECT_EQ(log.find("the timeline"), log.rfind("the timeline"));
}

TEST_F(ProfilerHookTest, RefusesWhatShowsNothing) {
  EXPECT_THAT(MakeProfiler({.every = {.steps = 1}, .max_steps = 0}).status().message(),
              HasSubstr("at most 0 steps"));
  EXPECT_FALSE(MakeProfiler({}).ok());
}

}  // namespace
}  // namespace passel

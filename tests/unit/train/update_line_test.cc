// What a job on GPUs says of its updates: every mode, and which other arena it names.

#include "train/update_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace passel {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

UpdateFacts Facts(const char* mode, int workers) {
  UpdateFacts facts;
  facts.workers = workers;
  const Result<ModeSetting> setting = ParseModeSetting(mode);
  EXPECT_TRUE(setting.ok()) << setting.status().message();
  if (setting.ok()) facts.mode = *setting;
  facts.gpu = "0";
  return facts;
}

// Between the place of the parameters and that where they could be.
std::string UpdatesOf(const UpdateFacts& facts) {
  const std::string line = UpdateLine(facts);
  const std::size_t first = line.find("; "), last = line.rfind("; ");
  EXPECT_NE(first, last) << line;
  return line.substr(first + 2, last - first - 2);
}

TEST(UpdateLineTest, TheDefaultsAreHostMemoryAndHogwild) {
  EXPECT_EQ(UpdateLine(Facts("hogwild", 8)),
            "parameters in host memory (--arena host); hogwild: 8 workers each make updates of 100 "
            "examples, without waiting for each other; --arena device would keep them in the "
            "memory of GPU 0");
}

TEST(UpdateLineTest, WithParametersOnAGpuTheHostIsTheOtherPlace) {
  UpdateFacts facts = Facts("hogwild", 2);
  facts.on_device = true;
  facts.gpu = "6";
  EXPECT_EQ(UpdateLine(facts),
            "parameters in the memory of GPU 6 (--arena device); hogwild: 2 workers each make "
            "updates of 100 examples, without waiting for each other; --arena host would keep them "
            "in host memory");
}

TEST(UpdateLineTest, EveryGradientIsAnUpdateWhereNobodyGathersThem) {
  EXPECT_EQ(UpdatesOf(Facts("locked", 4)),
            "locked: 4 workers each make updates of 100 examples, waiting for each other block by "
            "block alone");
  EXPECT_EQ(UpdatesOf(Facts("ssp", 4)),
            "ssp=3: 4 workers each make updates of 100 examples, at most 3 steps ahead of the "
            "slowest");
  EXPECT_EQ(UpdatesOf(Facts("ssp=1", 2)),
            "ssp=1: 2 workers each make updates of 100 examples, at most 1 step ahead of the "
            "slowest");
}

TEST(UpdateLineTest, OneWorkerWaitsForNobodyAnyhow) {
  for (const char* mode : {"hogwild", "locked", "ssp"}) {
    EXPECT_THAT(UpdatesOf(Facts(mode, 1)), EndsWith(": 1 worker makes updates of 100 examples"));
  }
  EXPECT_EQ(UpdatesOf(Facts("barrier", 1)), "barrier: one update a round, from 100 examples");
  EXPECT_EQ(UpdatesOf(Facts("replicas", 1)), "replicas: one update a round, from 100 examples");
  EXPECT_EQ(UpdatesOf(Facts("replicas=5", 1)),
            "replicas=5: one update a round, from 5 gradients of 1 worker, 5 x 100 = 500 examples");
}

TEST(UpdateLineTest, ARoundMakesOneUpdateOfTheGradientsThatItGathers) {
  EXPECT_EQ(UpdatesOf(Facts("barrier", 8)),
            "barrier: one update a round, from 8 x 100 = 800 examples");
  EXPECT_EQ(UpdatesOf(Facts("replicas", 8)),
            "replicas: one update a round, from 8 x 100 = 800 examples");
  EXPECT_EQ(UpdatesOf(Facts("replicas=8", 8)),
            "replicas=8: one update a round, from 8 x 100 = 800 examples");
  EXPECT_EQ(UpdatesOf(Facts("replicas=6", 8)),
            "replicas=6: one update a round, from the first 6 of 8 gradients, 6 x 100 = 600 "
            "examples");
  EXPECT_EQ(UpdatesOf(Facts("replicas=1", 3)),
            "replicas=1: one update a round, from the first of 3 gradients, 100 examples");
  EXPECT_EQ(UpdatesOf(Facts("replicas=20", 8)),
            "replicas=20: one update a round, from 20 gradients of 8 workers, 20 x 100 = 2000 "
            "examples");
}

TEST(UpdateLineTest, GradientsThatAreAddedUpBeforeAPushMakeItLarger) {
  UpdateFacts facts = Facts("hogwild", 2);
  facts.batch_size = 32;
  facts.push_every = 4;
  EXPECT_THAT(UpdatesOf(facts), HasSubstr("each make updates of 4 x 32 = 128 examples"));
  facts.mode = {Mode::kBarrier};
  EXPECT_THAT(UpdatesOf(facts), EndsWith("from 2 x 4 x 32 = 256 examples"));
  facts.batch_size = 1 << 24;
  facts.push_every = 1000;
  EXPECT_THAT(UpdatesOf(facts), EndsWith("2 x 1000 x 16777216 = 33554432000 examples"));
}

TEST(UpdateLineTest, AScheduleIsSaidWithItsFirstModeAndWhenThatEnds) {
  UpdateFacts facts = Facts("locked", 2);
  facts.schedule = {{200, {Mode::kHogwild}}, {500, {Mode::kSsp, 2}}};
  EXPECT_THAT(UpdatesOf(facts),
              StartsWith("locked until step 200, then as --mode_schedule says: 2 workers each"));
  EXPECT_THAT(UpdateLine(facts), EndsWith("--arena device would keep them in the memory of GPU 0"));
}

TEST(UpdateLineTest, WhatWouldBeRefusedIsNotRecommended) {
  EXPECT_THAT(UpdateLine(Facts("barrier", 4)),
              EndsWith("; --arena device would be refused: barrier has rounds"));
  EXPECT_THAT(UpdateLine(Facts("replicas=3", 4)),
              EndsWith("; --arena device would be refused: replicas has rounds"));
  UpdateFacts facts = Facts("hogwild", 4);
  facts.schedule = {{100, {Mode::kLocked}}, {300, {Mode::kBarrier}}};
  EXPECT_THAT(UpdateLine(facts),
              EndsWith("; --arena device would be refused: barrier, from step 300 on, has rounds"));
  facts.schedule.clear();
  facts.obstacle = "GPU 1 has no NVLink to GPU 0";
  EXPECT_THAT(UpdateLine(facts),
              EndsWith("; --arena device would be refused: GPU 1 has no NVLink to GPU 0"));
  facts.on_device = true;
  EXPECT_THAT(UpdateLine(facts), Not(HasSubstr("refused")));
}

}  // namespace
}  // namespace passel

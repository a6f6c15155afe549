// Whether a job finds the memory that its saves need.

#include "job/memory_need.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>

#include "job/exit_code.h"
#include "tests/unit/job/checkpoint_sample.h"

namespace passel::job::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class SaveMemoryTest : public ::testing::Test {
 protected:
  SaveMemoryTest() {
    checkpoints_.folder = "/saved";
    checkpoints_.interval = std::chrono::seconds(600);
    for (const int shard : kShards) {
      bytes_ += 3 * sizeof(float) * job_.plan.variables.ShardFloats(shard);  // Adam has two slots
    }
  }
  Status Check(std::uint64_t free) const {
    return CheckSaveMemory(job_.plan, checkpoints_, kShards, 1000, {free, "the test"});
  }
  bool IsRefused(std::string_view says) const {
    EXPECT_TRUE(Check(1000 + bytes_).ok());
    const Status status = Check(1000 + bytes_ - 1);
    if (status.ok()) return false;
    EXPECT_EQ(ExitCodeFor(status), kExitUsage);
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr(says), HasSubstr(std::to_string(bytes_) + " bytes beside 1000"),
                      HasSubstr("the test has " + std::to_string(1000 + bytes_ - 1)),
                      HasSubstr("use a smaller model")));
    return true;
  }

  static constexpr int kShards[] = {0, 2};  // those of this host
  std::mt19937 random_{20261124};
  SampleJob job_{SampleModel(), Optimizer("adam"), 3, random_};
  CheckpointConfig checkpoints_;
  std::uint64_t bytes_ = 0;
};

TEST_F(SaveMemoryTest, RoundsNeedIt) {
  for (const Mode mode : {Mode::kBarrier, Mode::kReplicas}) {
    job_.plan.mode = mode;
    EXPECT_TRUE(IsRefused("in rounds")) << ModeName(mode);
  }
  // From some step on.
  job_.plan.mode = Mode::kHogwild;
  job_.plan.schedule = {{100, Mode::kSsp}, {200, Mode::kBarrier}};
  EXPECT_TRUE(IsRefused("use a mode without rounds"));
  checkpoints_.interval = {};
  checkpoints_.steps = 10;
  EXPECT_TRUE(IsRefused("in rounds"));
}

TEST_F(SaveMemoryTest, ConsistentOnesNeedItInEachMode) {
  checkpoints_.consistent = true;
  for (const Mode mode : {Mode::kHogwild, Mode::kLocked, Mode::kSsp}) {
    job_.plan.mode = mode;
    EXPECT_TRUE(IsRefused("omit --checkpoint_consistent")) << ModeName(mode);
  }
}

TEST_F(SaveMemoryTest, WhereNothingIsCopiedFirstNoneIsNeeded) {
  for (const Mode mode : {Mode::kHogwild, Mode::kLocked, Mode::kSsp}) {
    job_.plan.mode = mode;
    EXPECT_TRUE(Check(0).ok()) << ModeName(mode);
  }
  job_.plan.mode = Mode::kBarrier;
  checkpoints_.interval = {};  // at the end alone
  EXPECT_TRUE(Check(0).ok());
  checkpoints_.interval = std::chrono::seconds(600);
  checkpoints_.folder.clear();
  EXPECT_TRUE(Check(0).ok());
}

}  // namespace
}  // namespace passel::job::testing

// Of which steps a copy of the shadow is, whatever its writer does meanwhile.

#include "store/shadow.h"

#include <gtest/gtest.h>

#include <memory>

#include "store/block_claims.h"

namespace passel {
namespace {

class ShadowTest : public ::testing::Test {
 protected:
  ShadowTest() {
    memory_.state = state_.get();
    memory_.blocks = &block_;
    memory_.num_blocks = 1;
    PublishShadow(memory_, 10, 14);
  }
  const std::unique_ptr<ShardState> state_ = std::make_unique<ShardState>();
  BlockState block_{};
  ShardMemory memory_{};
};

constexpr std::int64_t kNow = 50;  // the global step
constexpr Claim kWriter{1, 0};

TEST_F(ShadowTest, QuietShadowIsOfTheStepsAroundItsMaking) {
  const ShadowReader reader(memory_);
  const ShadowSteps steps = reader.Steps(kNow);
  EXPECT_EQ(steps.first, 10);
  EXPECT_EQ(steps.last, 14);
  EXPECT_GT(steps.age_ns, 0);
}

TEST_F(ShadowTest, FirstValuesHaveNoAge) {
  state_->device.shadow_ns.store(0);
  EXPECT_EQ(ShadowReader(memory_).Steps(kNow).age_ns, 0);
}

// The copy has something of what is being written: it may be as new as now.
TEST_F(ShadowTest, WriterAtWorkMakesTheCopyAsNewAsNow) {
  const ShadowReader reader(memory_);
  ASSERT_TRUE(TryClaim(block_, kWriter));
  EXPECT_EQ(reader.Steps(kNow).first, 10);
  EXPECT_EQ(reader.Steps(kNow).last, kNow);
}

TEST_F(ShadowTest, WriterThatCameAndWentMakesTheCopyAsNewAsNow) {
  const ShadowReader reader(memory_);
  ASSERT_TRUE(TryClaim(block_, kWriter));
  PublishShadow(memory_, 40, 44);
  ReleaseClaim(block_, kWriter);
  EXPECT_EQ(reader.Steps(kNow).first, 10) << "it may have copied all before";
  EXPECT_EQ(reader.Steps(kNow).last, kNow);
  const ShadowSteps later = ShadowReader(memory_).Steps(kNow);
  EXPECT_EQ(later.first, 40);
  EXPECT_EQ(later.last, 44);
}

TEST_F(ShadowTest, WriterThatGaveUpLeavesValuesOfItsTime) {
  ASSERT_TRUE(TryClaim(block_, kWriter));
  ShadowBrokeOff(memory_, 44);
  ReleaseClaim(block_, kWriter);
  const ShadowSteps steps = ShadowReader(memory_).Steps(kNow);
  EXPECT_EQ(steps.first, 10);
  EXPECT_EQ(steps.last, 44);
}

}  // namespace
}  // namespace passel

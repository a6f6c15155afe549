// The hook that docs/hooks.md shows, as it stands there.

#include <gtest/gtest.h>

#include "support/small_worker.h"
#include "train/hook.h"

namespace {
#include <example_of_hooks.inc>  // made of the page
}  // namespace

namespace passel {
namespace {

class OwnHookTest : public test::SmallWorkerTest {};

TEST_F(OwnHookTest, EndsTrainingWhenItHasSeenEnough) {
  Open(0.5F);
  options_.train_steps = 10'000;
  StopWhenGood hook(0.6);
  const Result<WorkerResult> result = Run({.hooks = {&hook}});
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->reason, LeaveReason::kHook);
  EXPECT_GE(result->local_steps, 92) << "the mean of a hundred perfect batches needs as many";
}

}  // namespace
}  // namespace passel

// The step engine on a device that chooses its order: none that the plan allows shows, and each
// that it forbids does.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "cuda/engine_under_test.h"
#include "cuda/plans_under_test.h"
#include "cuda/step_plan.h"
#include "support/sanitized.h"

namespace passel::cuda {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

// The heart of it: thousands of launches, each in an order of its own, with up to three steps under
// way and all of the host's memory changing as soon as it may. Bit by bit what one stream gives.
TEST(DeviceStepEngine, NoAllowedOrderShowsInTheResult) {
  constexpr int kSeeds = Turns(100, 30), kSteps = 40;
  StepWorld world({7, 5, 3}, 4, Placement::kRoundRobin, 11);
  FakeDeviceOptions plain;
  plain.adversarial = false;
  world.options.graph = false;
  std::vector<std::vector<std::uint32_t>> batches;
  std::vector<Outcome> wanted;
  {
    const auto made = Make(world.options, plain);
    for (int i = 0; i < kSteps; ++i) {
      batches.push_back(world.RandomBatch());
      wanted.push_back(RunStep(*made->engine, world, batches.back(), i % 3));
    }
  }
  world.options.graph = true;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    FakeDeviceOptions fake;
    fake.seed = seed;
    const auto made = Make(world.options, fake);
    RunSomeAtOnce(
        seed, kSteps,
        [&](int step) {
          world.PoisonSlot(step % 3);
          ASSERT_TRUE(made->engine->Start(batches[static_cast<std::size_t>(step)], step % 3).ok());
        },
        [&](int step) {
          ASSERT_EQ(FinishStep(*made->engine, world, step % 3),
                    wanted[static_cast<std::size_t>(step)])
              << "step " << step;
        });
    ASSERT_FALSE(HasFatalFailure());
    made->ExpectACleanEnd();
  }
}

TEST(DeviceStepEngine, EveryForgottenEdgeIsFound) {
  StepWorld world({7, 5, 3}, 4, Placement::kSplit, 12);
  const auto batch = world.RandomBatch();
  FakeDeviceOptions plain;
  plain.adversarial = false;
  const auto good = Make(world.options, plain);
  const Outcome wanted = RunStep(*good->engine, world, batch, 0);
  // Whose edges: the plan of a slot, built on memory of no consequence.
  const auto found =
      ExpectEveryEdgeIsFound(PlanOf(world.options), {}, 400, [&](const FakeDeviceOptions& fake) {
        const auto made = Make(world.options, fake);
        world.PoisonSlot(0);
        EXPECT_TRUE(made->engine->Start(batch, 0).ok());
        return FinishOrNever(*made, world, 0) != wanted;
      });
  EXPECT_GE(found.size(), 15u);
}

// The plan of one slot, driven by hand, as an engine with a bug would.
class PlanByHand : public testing::Test {
 protected:
  PlanByHand()
      : world_({7, 5, 3}, 4, Placement::kOneShard, 13),
        device_({}),
        memory_(std::move(StepMemory::Create(device_, world_.options)).value()),
        host_(device_, world_.options) {
    executable_ = std::move(device_.Prepare(BuildStepPlan(world_.options, memory_, host_.host),
                                            Device::How::kGraph))
                      .value();
  }
  const StepReportLine* line() { return host_.host.line; }

  StepWorld world_;
  FakeDevice device_;
  StepMemory memory_;
  PinnedHost host_;
  std::unique_ptr<Device::Executable> executable_;
};

TEST_F(PlanByHand, AStepBlockThatIsRewrittenTooEarlyShows) {
  const auto first = world_.RandomBatch(), second = world_.RandomBatch();
  host_.Order(1, first);
  ASSERT_TRUE(device_.Launch(*executable_).ok());
  ASSERT_TRUE(device_.Synchronize(Soon()).ok());
  const double wanted = line()->loss;
  ASSERT_EQ(line()->number, 1u);
  host_.Order(2, first);
  ASSERT_TRUE(device_.Launch(*executable_).ok());
  host_.Order(3, second);  // the launch has returned, but the copy reads when it runs
  ASSERT_TRUE(device_.Synchronize(Soon()).ok());
  EXPECT_NE(line()->loss, wanted);
  EXPECT_EQ(line()->number, 3u);
}

TEST_F(PlanByHand, MemoryReleasedBeforeItsExecutableIsSeen) {
  EXPECT_THAT(device_.violations(), IsEmpty());
  host_.ReleaseBlock();
  EXPECT_THAT(device_.violations(), Each(HasSubstr("before an executable")));
  EXPECT_EQ(device_.violations().size(), 1u);
}

TEST_F(PlanByHand, AnExecutableDestroyedUnderWayIsSeen) {
  host_.Order(1, world_.RandomBatch());
  ASSERT_TRUE(device_.Launch(*executable_).ok());
  executable_.reset();
  EXPECT_THAT(device_.violations(), Each(HasSubstr("under way")));
  EXPECT_EQ(device_.violations().size(), 1u);
}

TEST_F(PlanByHand, PageableMemoryInAPlanIsRefused) {
  StepHostMemory host = host_.host;
  host.values = {world_.values(0).data()};
  const auto refused =
      device_.Prepare(BuildStepPlan(world_.options, memory_, host), Device::How::kGraph);
  EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), HasSubstr("copy values of shard 0"));
}

}  // namespace
}  // namespace passel::cuda

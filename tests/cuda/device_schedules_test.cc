// The step engine on a device that chooses its order: none that the plan allows shows, and each
// that it forbids does.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "cuda/engine_under_test.h"
#include "cuda/step_plan.h"
#include "support/sanitized.h"

namespace passel::cuda {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

// The heart of it: 10,000 launches, each in an order of its own, with up to three steps under way
// and all of the host's memory changing as soon as it may. Bit by bit what one stream gives.
TEST(DeviceStepEngine, NoAllowedOrderShowsInTheResult) {
  constexpr int kSeeds = Turns(250, 30), kSteps = 40;
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
    Random random(seed);
    int started = 0, finished = 0;
    while (finished < kSteps) {
      const int under_way = started - finished;
      if (started < kSteps && under_way < 3 && (under_way == 0 || random.Below(2) == 0)) {
        world.PoisonSlot(started % 3);
        ASSERT_TRUE(
            made->engine->Start(batches[static_cast<std::size_t>(started)], started % 3).ok());
        ++started;
      } else {
        const Outcome outcome = FinishStep(*made->engine, world, finished % 3);
        ASSERT_EQ(outcome, wanted[static_cast<std::size_t>(finished)]) << "step " << finished;
        ++finished;
      }
    }
    made->engine.reset();
    ASSERT_THAT(made->device->violations(), IsEmpty());
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
  FakeDevice scratch({});
  auto memory = StepMemory::Create(scratch, world.options);
  ASSERT_TRUE(memory.ok());
  StepHostMemory host;
  std::vector<std::byte> block(StepBlockSize(4));
  StepReportLine line;
  host.block = reinterpret_cast<StepBlock*>(block.data());
  host.line = &line;
  for (std::size_t s = 0; s < 3; ++s) {
    host.values.push_back(world.options.memory.shard_values[s].data());
    host.gradients.push_back(world.options.memory.gradient_slots[0][s].data());
  }
  const Plan plan = BuildStepPlan(world.options, *memory, host);
  int edges = 0;
  for (int node = 0; node < static_cast<int>(plan.nodes().size()); ++node) {
    for (const int before : plan.nodes()[static_cast<std::size_t>(node)].after) {
      ++edges;
      bool found = false;
      for (std::uint64_t seed = 0; seed < 400 && !found; ++seed) {
        FakeDeviceOptions fake;
        fake.seed = seed;
        fake.forgotten_edges = {{before, node}};
        const auto made = Make(world.options, fake);
        world.PoisonSlot(0);
        EXPECT_TRUE(made->engine->Start(batch, 0).ok());
        found = FinishOrNever(*made, world, 0) != wanted;
      }
      EXPECT_TRUE(found) << "without " << before << " -> " << node << " ("
                         << plan.nodes()[static_cast<std::size_t>(before)].name << " -> "
                         << plan.nodes()[static_cast<std::size_t>(node)].name << ")";
    }
  }
  EXPECT_GE(edges, 15);
}

// The plan of one slot, driven by hand, as an engine with a bug would.
class PlanByHand : public testing::Test {
 protected:
  PlanByHand() : world_({7, 5, 3}, 4, Placement::kOneShard, 13), device_({}) {
    memory_.emplace(std::move(StepMemory::Create(device_, world_.options)).value());
    block_ = std::move(device_.AllocatePinned(StepBlockSize(4))).value();
    line_ = std::move(device_.AllocatePinned(sizeof(StepReportLine))).value();
    for (int i = 0; i < 2; ++i) {
      staging_.push_back(std::move(device_.AllocatePinned(Floats() * sizeof(float))).value());
    }
    host_.block = block();
    host_.line = line();
    host_.values = {static_cast<float*>(staging_[0].get())};
    host_.gradients = {static_cast<float*>(staging_[1].get())};
    std::copy_n(world_.values(0).data(), Floats(), static_cast<float*>(staging_[0].get()));
    executable_ = std::move(device_.Prepare(BuildStepPlan(world_.options, *memory_, host_),
                                            Device::How::kGraph))
                      .value();
  }
  std::size_t Floats() { return world_.values(0).size(); }
  StepBlock* block() { return static_cast<StepBlock*>(block_.get()); }
  StepReportLine* line() { return static_cast<StepReportLine*>(line_.get()); }
  void Write(std::uint64_t number, const std::vector<std::uint32_t>& indices) {
    block()->number = number;
    std::copy(indices.begin(), indices.end(), reinterpret_cast<std::uint32_t*>(block() + 1));
  }

  StepWorld world_;
  FakeDevice device_;
  std::optional<StepMemory> memory_;
  Device::Memory block_, line_;
  std::vector<Device::Memory> staging_;
  StepHostMemory host_;
  std::unique_ptr<Device::Executable> executable_;
};

TEST_F(PlanByHand, AStepBlockThatIsRewrittenTooEarlyShows) {
  const auto first = world_.RandomBatch(), second = world_.RandomBatch();
  Write(1, first);
  ASSERT_TRUE(device_.Launch(*executable_).ok());
  ASSERT_TRUE(device_.Synchronize(Soon()).ok());
  const double wanted = line()->loss;
  ASSERT_EQ(line()->number, 1u);
  Write(2, first);
  ASSERT_TRUE(device_.Launch(*executable_).ok());
  Write(3, second);  // the launch has returned, but the copy reads when it runs
  ASSERT_TRUE(device_.Synchronize(Soon()).ok());
  EXPECT_NE(line()->loss, wanted);
  EXPECT_EQ(line()->number, 3u);
}

TEST_F(PlanByHand, MemoryReleasedBeforeItsExecutableIsSeen) {
  EXPECT_THAT(device_.violations(), IsEmpty());
  block_.reset();
  EXPECT_THAT(device_.violations(), Each(HasSubstr("before an executable")));
  EXPECT_EQ(device_.violations().size(), 1u);
}

TEST_F(PlanByHand, AnExecutableDestroyedUnderWayIsSeen) {
  Write(1, world_.RandomBatch());
  ASSERT_TRUE(device_.Launch(*executable_).ok());
  executable_.reset();
  EXPECT_THAT(device_.violations(), Each(HasSubstr("under way")));
  EXPECT_EQ(device_.violations().size(), 1u);
}

TEST_F(PlanByHand, PageableMemoryInAPlanIsRefused) {
  StepHostMemory host = host_;
  host.values = {world_.values(0).data()};
  const auto refused =
      device_.Prepare(BuildStepPlan(world_.options, *memory_, host), Device::How::kGraph);
  EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), HasSubstr("copy values of shard 0"));
}

}  // namespace
}  // namespace passel::cuda

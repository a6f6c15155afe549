// The step engine on the FakeDevice: right numbers, whatever order the device chooses.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "cuda/engine_under_test.h"

namespace passel::cuda {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

struct Net {
  std::vector<std::size_t> widths;
  std::size_t batch;
  bool clip = true;
  bool mean = false;
};

const Net kNets[] = {{{784, 100, 10}, 100},
                     {{9, 4}, 3, false, true},
                     {{1, 1}, 1},
                     {{17, 13, 7, 5}, 33, true},
                     {{31, 2, 3}, 1, false, false},
                     {{64, 64, 64, 10}, 64, true, true},
                     {{5, 3, 256}, 17, true, true},
                     {{13, 97, 11}, 7, false, true}};

class EngineOnNets : public testing::TestWithParam<std::tuple<Net, Placement, bool>> {};

INSTANTIATE_TEST_SUITE_P(All, EngineOnNets,
                         testing::Combine(testing::ValuesIn(kNets),
                                          testing::Values(Placement::kOneShard,
                                                          Placement::kRoundRobin,
                                                          Placement::kSplit),
                                          testing::Bool()));

TEST_P(EngineOnNets, GradientAndLossAreThoseOfDoublePrecision) {
  const auto& [net, placement, graph] = GetParam();
  StepWorld world(net.widths, net.batch, placement, 1 + net.batch);
  world.options.network.clip = net.clip;
  world.options.network.mean = net.mean;
  world.options.graph = graph;
  const auto made = Make(world.options, {});
  for (int slot = 0; slot < 2; ++slot) {
    world.RandomValues();
    world.PoisonSlot(slot);
    const auto batch = world.RandomBatch();
    const ReferenceResult wanted = world.Reference(batch);
    ExpectNear(world, RunStep(*made->engine, world, batch, slot), wanted);
    EXPECT_THAT(world.Padding(slot), Each(0.f));
  }
  made->ExpectACleanEnd();
  EXPECT_THAT(made->warnings, IsEmpty());
}

TEST(DeviceStepEngine, ExamplesBelowTheClipAreThoseOfDoublePrecision) {
  for (const bool clip : {true, false}) {
    StepWorld world({17, 13, 5}, 33, Placement::kOneShard, 3);
    world.options.network.clip = clip;
    for (float& value : world.values(0)) value *= 20;
    const auto made = Make(world.options, {});
    const auto batch = world.RandomBatch();
    const ReferenceResult wanted = world.Reference(batch);
    EXPECT_GE(wanted.vanished, 2u);
    EXPECT_LT(wanted.vanished, batch.size());
    ExpectNear(world, RunStep(*made->engine, world, batch, 0), wanted);
  }
}

TEST(DeviceStepEngine, WithoutRegistrationValuesTakeTheLongWayRound) {
  StepWorld world({17, 13, 5}, 6, Placement::kSplit, 21);
  const auto batch = world.RandomBatch();
  const auto direct = Make(world.options, {});
  const Outcome wanted = RunStep(*direct->engine, world, batch, 1);
  FakeDeviceOptions fake;
  fake.refuse_registration = true;
  direct->engine.reset();
  const auto made = Make(world.options, fake);
  ASSERT_EQ(made->warnings.size(), 1u);
  EXPECT_THAT(made->warnings[0], HasSubstr("cannot be registered"));
  EXPECT_THAT(made->engine->Describe(), HasSubstr("through pinned memory"));
  world.PoisonSlot(1);
  EXPECT_EQ(RunStep(*made->engine, world, batch, 1), wanted);
  made->ExpectACleanEnd();
}

TEST(DeviceStepEngine, EnginesOfOneProcessShareTheRegistrationOfTheirArena) {
  StepWorld world({17, 13, 5}, 6, Placement::kSplit, 21);
  FakeDevice device({});
  DeviceStepEngineHooks hooks;
  hooks.looks_per_health = 1;
  std::vector<std::string> warnings;
  hooks.warn = [&](std::string_view text) { warnings.emplace_back(text); };
  const auto make = [&](bool graph) {
    StepEngineOptions options = world.options;
    options.graph = graph;
    auto engine = CreateDeviceStepEngine(device, options, hooks);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    EXPECT_THAT((*engine)->Describe(), HasSubstr("DMA from and to the arena"));
    return std::move(*engine);
  };
  auto graph = make(true), single = make(false);
  const auto batch = world.RandomBatch();
  const Outcome wanted = RunStep(*graph, world, batch, 1);
  world.PoisonSlot(1);
  EXPECT_EQ(RunStep(*single, world, batch, 1), wanted);
  // The other one's pages stay registered, whoever was first.
  graph.reset();
  world.PoisonSlot(1);
  EXPECT_EQ(RunStep(*single, world, batch, 1), wanted);
  graph = make(true);
  single.reset();
  world.PoisonSlot(1);
  EXPECT_EQ(RunStep(*graph, world, batch, 1), wanted);
  graph.reset();
  EXPECT_EQ(device.memories_alive(), 0u);
  EXPECT_THAT(device.violations(), IsEmpty());
  EXPECT_THAT(warnings, IsEmpty());
}

TEST(FakeDevice, RefusesPagesThatOthersHaveRegisteredInPart) {
  StepWorld world({17, 13, 5}, 6, Placement::kOneShard, 21);
  FakeDevice device({});
  auto* const pages = reinterpret_cast<std::byte*>(world.values(0).data()) - 64;
  {
    const auto two = device.Register(pages, 8192), again = device.Register(pages, 8192);
    EXPECT_TRUE(two.ok() && again.ok());
    EXPECT_EQ(device.memories_alive(), 1u);
    EXPECT_EQ(device.Register(pages, 4096).status().code(), Code::kFailedPrecondition);
    EXPECT_EQ(device.Register(pages + 4096, 4096).status().code(), Code::kFailedPrecondition);
  }
  EXPECT_EQ(device.memories_alive(), 0u);
  EXPECT_TRUE(device.Register(pages + 4096, 4096).ok());
  EXPECT_THAT(device.violations(), IsEmpty());
}

TEST(DeviceStepEngine, AFaultInAnyOperationIsNamedAndLasts) {
  StepWorld world({7, 5, 3}, 4, Placement::kOneShard, 22);
  int faults = 0;
  for (int node = 0;; ++node) {
    FakeDeviceOptions fake;
    fake.fail_at = {1, node};
    const auto made = Make(world.options, fake);
    RunStep(*made->engine, world, world.RandomBatch(), 0);
    ASSERT_TRUE(made->engine->Start(world.RandomBatch(), 1).ok());
    bool finite = true;
    const auto result = made->engine->Finish(Soon(), &finite);
    if (result.ok()) break;  // behind the last operation
    ++faults;
    EXPECT_EQ(result.status().code(), Code::kUnavailable);
    EXPECT_THAT(result.status().message(), HasSubstr("operation '"));
    EXPECT_EQ(made->engine->Start(world.RandomBatch(), 2).code(), Code::kUnavailable);
    EXPECT_EQ(made->engine->Finish(Soon(), &finite).status().code(), Code::kUnavailable);
  }
  EXPECT_EQ(faults, 11);
}

TEST(DeviceStepEngine, AHangEndsAtTheDeadlineAndInTheEnd) {
  StepWorld world({7, 5, 3}, 4, Placement::kOneShard, 23);
  FakeDeviceOptions fake;
  fake.hang_at = 1;
  const auto made = Make(world.options, fake);
  RunStep(*made->engine, world, world.RandomBatch(), 0);
  ASSERT_TRUE(made->engine->Start(world.RandomBatch(), 1).ok());
  bool finite = true;
  for (int i = 0; i < 2; ++i) {
    const auto result =
        made->engine->Finish(Deadline::After(std::chrono::milliseconds(20)), &finite);
    EXPECT_EQ(result.status().code(), Code::kDeadlineExceeded);
    EXPECT_THAT(result.status().message(), HasSubstr("step 2 of this worker is not done on Fake"));
  }
  made->engine.reset();
  ASSERT_EQ(made->warnings.size(), 1u);
  EXPECT_THAT(made->warnings[0], HasSubstr("left to the driver"));
  EXPECT_THAT(made->device->violations(), IsEmpty());  // nothing was released under way
  EXPECT_GT(made->device->memories_alive(), 0u);
}

TEST(DeviceStepEngine, StepsUnderWayAreWaitedForAtTheEnd) {
  StepWorld world({7, 5, 3}, 4, Placement::kOneShard, 24);
  const auto made = Make(world.options, {});
  EXPECT_EQ(made->engine->max_in_flight(), 3);
  for (int slot = 0; slot < 3; ++slot) {
    ASSERT_TRUE(made->engine->Start(world.RandomBatch(), slot).ok());
  }
  made->ExpectACleanEnd();
}

TEST(DeviceStepEngine, WhatIsNotFiniteIsReported) {
  StepWorld world({7, 5, 3}, 4, Placement::kRoundRobin, 25);
  const auto made = Make(world.options, {});
  for (const float bad : {kNan, std::numeric_limits<float>::infinity()}) {
    world.RandomValues();
    world.values(0)[0] = bad;
    EXPECT_FALSE(RunStep(*made->engine, world, world.RandomBatch(), 0).finite);
    world.RandomValues();
    EXPECT_TRUE(RunStep(*made->engine, world, world.RandomBatch(), 0).finite);
  }
}

TEST(DeviceStepEngine, TooLittleMemoryIsAnErrorThatLeavesNothing) {
  StepWorld world({7, 5, 3}, 4, Placement::kOneShard, 26);
  std::uint64_t limit = 64;
  for (;; limit += 64) {
    FakeDeviceOptions fake;
    fake.memory_limit = limit;
    FakeDevice device(fake);
    const auto engine = CreateDeviceStepEngine(device, world.options, {});
    if (engine.ok()) break;
    ASSERT_EQ(engine.status().code(), Code::kResourceExhausted);
    ASSERT_THAT(engine.status().message(), HasSubstr("are needed"));
    ASSERT_EQ(device.memories_alive(), 0u);
    ASSERT_THAT(device.violations(), IsEmpty());
  }
  EXPECT_GT(limit, 1000u);
}

TEST(DeviceStepEngine, WhatAGpuCannotComputeIsRefused) {
  const auto refusal = [](const StepEngineOptions& options) {
    FakeDevice device({});
    const auto engine = CreateDeviceStepEngine(device, options, {});
    EXPECT_EQ(engine.status().code(), Code::kInvalidArgument);
    return engine.status().message();
  };
  StepWorld wide({3, 257}, 2, Placement::kOneShard, 27);
  EXPECT_THAT(refusal(wide.options), HasSubstr("257 classes"));
  StepWorld world({3, 4}, 2, Placement::kOneShard, 27);
  auto options = world.options;
  options.batch_size = 0;
  EXPECT_THAT(refusal(options), HasSubstr("batch size is 0"));
  options = world.options;
  options.train.rows = 0;
  EXPECT_THAT(refusal(options), HasSubstr("0 images"));
  options = world.options;
  const std::vector<std::uint8_t> labels(options.train.rows, 4);
  options.train.labels = labels.data();
  EXPECT_THAT(refusal(options), HasSubstr("label 4"));
}

}  // namespace
}  // namespace passel::cuda

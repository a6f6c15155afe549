// The step engine on the FakeDevice: right numbers, whatever order the device chooses.

#include "cuda/device_step_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "cuda/fake_device.h"
#include "cuda/step_plan.h"
#include "cuda/step_world.h"

namespace passel::cuda {
namespace {

using std::chrono::seconds;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

Deadline Soon() { return Deadline::After(seconds(60)); }

struct Made {
  std::unique_ptr<FakeDevice> device;
  std::unique_ptr<StepEngine> engine;
  std::vector<std::string> warnings;
};

// On the heap: the engine calls back into it.
std::unique_ptr<Made> Make(const StepEngineOptions& options, const FakeDeviceOptions& fake) {
  auto made = std::make_unique<Made>();
  made->device = std::make_unique<FakeDevice>(fake);
  DeviceStepEngineHooks hooks;
  hooks.warn = [m = made.get()](std::string_view text) { m->warnings.emplace_back(text); };
  hooks.looks_per_health = 1;
  auto engine = CreateDeviceStepEngine(*made->device, options, hooks);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  if (engine.ok()) made->engine = std::move(engine).value();
  return made;
}

struct Outcome {
  double loss = 0;
  std::size_t correct = 0;
  bool finite = false;
  std::vector<std::vector<float>> gradient;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome FinishStep(StepEngine& engine, const StepWorld& world, int slot) {
  Outcome outcome;
  auto result = engine.Finish(Soon(), &outcome.finite);
  EXPECT_TRUE(result.ok()) << result.status().message();
  if (!result.ok()) return outcome;
  outcome.loss = result->loss;
  outcome.correct = result->correct;
  outcome.gradient = world.Slot(slot);
  return outcome;
}

Outcome RunStep(StepEngine& engine, const StepWorld& world,
                const std::vector<std::uint32_t>& indices, int slot) {
  const Status started = engine.Start(indices, slot);
  EXPECT_TRUE(started.ok()) << started.message();
  return FinishStep(engine, world, slot);
}

void ExpectNear(const StepWorld& world, const Outcome& outcome, const ReferenceResult& wanted) {
  EXPECT_TRUE(outcome.finite);
  EXPECT_EQ(outcome.correct, wanted.correct);
  EXPECT_NEAR(outcome.loss, wanted.loss, 1e-5 * std::abs(wanted.loss) + 1e-6);
  const auto got = world.Variables(outcome.gradient);
  for (std::size_t v = 0; v < got.size(); ++v) {
    EXPECT_LE(RelativeError(got[v], wanted.gradients[v]), 1e-5) << "variable " << v;
  }
}

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
  made->engine.reset();
  EXPECT_THAT(made->device->violations(), IsEmpty());
  EXPECT_EQ(made->device->memories_alive(), 0u);
  EXPECT_THAT(made->warnings, IsEmpty());
}

// The reference itself: its gradient is the slope of its loss.
TEST(ReferenceNetwork, GradientIsTheSlopeOfTheLoss) {
  StepWorld world({6, 5, 4, 3}, 8, Placement::kOneShard, 3);
  const auto batch = world.RandomBatch();
  auto variables = world.Variables();
  const ReferenceResult at = world.Reference(batch);
  constexpr double kStep = 1e-6;
  for (std::size_t v = 0; v < variables.size(); ++v) {
    for (std::size_t i = 0; i < variables[v].size(); ++i) {
      const double here = variables[v][i];
      const auto loss = [&](double x) {
        variables[v][i] = x;
        return ReferenceStep(world.options.network, variables, world.options.train, batch).loss;
      };
      const double slope = (loss(here + kStep) - loss(here - kStep)) / (2 * kStep);
      variables[v][i] = here;
      EXPECT_NEAR(at.gradients[v][i], slope, 1e-6) << "variable " << v << ", element " << i;
    }
  }
}

TEST(DeviceStepEngine, ALargeLayerGoesToTheLibrary) {
  StepWorld world({700, 400, 3}, 4, Placement::kSplit, 5);
  const auto made = Make(world.options, {});
  EXPECT_THAT(made->engine->Describe(), HasSubstr("cuBLASLt"));
  const auto batch = world.RandomBatch();
  const ReferenceResult wanted = world.Reference(batch);
  ExpectNear(world, RunStep(*made->engine, world, batch, 0), wanted);
  StepWorld deep({20, 700, 400, 3}, 4, Placement::kOneShard, 5);
  const auto of_deep = Make(deep.options, {});
  const auto deep_batch = deep.RandomBatch();
  ExpectNear(deep, RunStep(*of_deep->engine, deep, deep_batch, 0), deep.Reference(deep_batch));
}

// The heart of it: 10,000 launches, each in an order of its own, with up to three steps under way
// and all of the host's memory changing as soon as it may. Bit by bit what one stream gives.
TEST(DeviceStepEngine, NoAllowedOrderShowsInTheResult) {
  constexpr int kSeeds = 250, kSteps = 40;
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
        Outcome outcome;
        // Once everything is done, a sign that has not come never will.
        bool idle = false;
        Result<BatchResult> result = Unavailable("not tried");
        do {
          idle = made->device->idle();
          result = made->engine->Finish(Deadline::After(seconds(0)), &outcome.finite);
        } while (!idle && result.status().code() == Code::kDeadlineExceeded);
        if (result.ok()) {
          outcome = {result->loss, result->correct, outcome.finite, world.Slot(0)};
        }
        found = outcome != wanted;
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
  made->engine.reset();
  EXPECT_THAT(made->device->violations(), IsEmpty());
  EXPECT_EQ(made->device->memories_alive(), 0u);
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
  EXPECT_EQ(faults, 12);
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
  made->engine.reset();
  EXPECT_THAT(made->device->violations(), IsEmpty());
  EXPECT_EQ(made->device->memories_alive(), 0u);
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

// With a device that really runs beside the host, and values that others change: for
// ThreadSanitizer above all.
TEST(DeviceStepEngine, ADeviceBesideTheHostGivesTheSame) {
  for (const bool adversarial : {false, true}) {
    StepWorld world({17, 9, 4}, 8, Placement::kRoundRobin, 28);
    FakeDeviceOptions fake;
    fake.adversarial = adversarial;
    fake.progress = FakeDeviceOptions::Progress::kOnAThread;
    const auto made = Make(world.options, fake);
    std::vector<std::vector<std::uint32_t>> batches;
    std::deque<ReferenceResult> wanted;
    int finished = 0;
    for (int i = 0; i < 60; ++i) {
      batches.push_back(world.RandomBatch());
      wanted.push_back(world.Reference(batches.back()));
      world.PoisonSlot(i % 3);
      ASSERT_TRUE(made->engine->Start(batches.back(), i % 3).ok());
      if (i - finished == 2) {
        ExpectNear(world, FinishStep(*made->engine, world, finished % 3), wanted.front());
        wanted.pop_front();
        ++finished;
      }
    }
    // Two are still under way, and now the values change.
    std::atomic<bool> stop{false};
    std::thread writer([&] {
      while (!stop) {
        for (float& v : world.values(0)) {
          std::atomic_ref<float>(v).store(0.5f, std::memory_order_relaxed);
        }
      }
    });
    for (; finished < 60; ++finished) FinishStep(*made->engine, world, finished % 3);
    for (int i = 0; i < 20; ++i) {
      EXPECT_TRUE(RunStep(*made->engine, world, world.RandomBatch(), i % 3).finite);
    }
    stop = true;
    writer.join();
    made->engine.reset();
    EXPECT_THAT(made->device->violations(), IsEmpty());
    EXPECT_EQ(made->device->memories_alive(), 0u);
  }
}

}  // namespace
}  // namespace passel::cuda

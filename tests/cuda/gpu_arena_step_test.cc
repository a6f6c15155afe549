// Steps and updates in GPU memory, in one process, on a GPU or on the emulated one: against double
// precision and against the CPU's optimizers. Label gpu, see gpu_step_test.cc; small, so that
// compute-sanitizer sees every kernel that a push launches.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <vector>

#include "cuda/gpu_fixture.h"
#include "cuda/step_world.h"
#include "cuda/updates_on_both.h"
#include "optim/update_kernels.h"
#include "support/every_optimizer.h"

namespace passel::cuda {
namespace {

constexpr std::uint64_t kClaim = std::uint64_t{1} << 16 | 1;  // first life of worker/0

class GpuArenaStep : public GpuFixture {
 protected:
  void Push(int shard, int gradient_slot, const StepScalars& scalars, bool claims) {
    DeviceArena::Push push;
    push.shard = shard;
    push.gradient_slot = gradient_slot;
    push.scalars = &scalars;
    push.claims = claims;
    push.claim = kClaim;
    const auto pushed = arena_->Apply(push, Soon());
    ASSERT_TRUE(pushed.ok()) << pushed.status().ToString();
    EXPECT_EQ(pushed->left, 0u);
    EXPECT_EQ(pushed->taken_over, 0u);
  }
};

// The emulated GPU gives the same bits; a GPU has a power function of its own.
TEST_F(GpuArenaStep, UpdatesAreThoseOfTheCpuForEachOptimizer) {
  constexpr std::size_t kFloats = 64 * 3 + 16;
  std::vector<OptimizerConfig> configs = EveryOptimizer();
  // The kernels of a job on several GPUs, too, if only on one.
  for (std::size_t c = 0; c < 2 * configs.size(); ++c) {
    OptimizerConfig& config = configs[c / 2];
    const bool several_gpus = c % 2 != 0;
    SCOPED_TRACE(::testing::Message() << "configuration " << c / 2 << ", several " << several_gpus);
    config.learning_rate = 0.125;
    DeviceArenaShape shape;
    shape.shards = {{kFloats, 64}};
    shape.slots = NumSlots(config);
    shape.several_gpus = several_gpus;
    CreateArena(shape);
    ASSERT_FALSE(HasFatalFailure());
    DeviceArena::Push push;
    push.claim = kClaim;
    const BothUpdated both = UpdateBoth(*arena_, config, kFloats, push);
    for (std::size_t a = 0; a < both.cpu.size(); ++a) {
      for (std::size_t i = 0; i < kFloats; ++i) {
        ASSERT_NEAR(both.device[a][i], both.cpu[a][i], 1e-5 * std::abs(both.cpu[a][i]) + 1e-6)
            << "array " << a << ", element " << i;
      }
    }
  }
}

// Each step computes on what the pushes before it have made of the values.
TEST_F(GpuArenaStep, StepsReadTheValuesThereAndLeaveTheirGradients) {
  OptimizerConfig config;
  config.kind = OptimizerKind::kSgd;
  config.learning_rate = 0.05;
  for (const Placement placement :
       {Placement::kOneShard, Placement::kRoundRobin, Placement::kSplit}) {
    StepWorld world({33, 20, 10}, 7, placement, 21, 2);
    CreateArena(world);
    ASSERT_FALSE(HasFatalFailure());
    world.options.arena = arena_.get();
    auto engine = accelerator_->CreateStepEngine(world.options);
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    for (int step = 0; step < 4; ++step) {
      const int slot = step % 2;
      const auto indices = world.RandomBatch();
      Outcome outcome = RunStep(**engine, world, indices, slot);
      for (std::size_t s = 0; s < outcome.gradient.size(); ++s) {
        auto& gradient = outcome.gradient[s];
        ASSERT_TRUE(arena_->ReadGradient(static_cast<int>(s), slot, gradient.data(), Soon()).ok());
      }
      ExpectNear(world, outcome, world.Reference(indices));
      const StepScalars scalars = Prepare(config, step + 1);
      for (std::size_t s = 0; s < outcome.gradient.size(); ++s) {
        const auto& gradient = outcome.gradient[s];
        Push(static_cast<int>(s), slot, scalars, step % 2 == 0);
        ASSERT_FALSE(HasFatalFailure());
        const std::vector<float> values = Read(static_cast<int>(s), 0, gradient.size());
        for (std::size_t i = 0; i < gradient.size(); ++i) {
          const float pushed = world.values(s)[i] - 0.05f * gradient[i];
          ASSERT_NEAR(values[i], pushed, 1e-5 * std::abs(pushed) + 1e-6);
          world.values(s)[i] = values[i];
        }
      }
    }
    engine->reset();
  }
}

// Prints, for tools/gpu_check: what a push in GPU memory costs one process, and steps with it. The
// prediction was made for an H200 before any measurement.
TEST_F(GpuArenaStep, Speed) {
  for (const OptimizerKind kind : {OptimizerKind::kSgd, OptimizerKind::kAdam}) {
    const bool adds = kind == OptimizerKind::kSgd;
    StepWorld world = MnistWorld(Placement::kOneShard, 15, 1, true);
    const std::size_t floats = world.options.memory.shard_values[0].size();
    OptimizerConfig config;
    config.kind = kind;
    config.learning_rate = 1e-6;
    const char* const how = adds ? "SGD by atomic additions" : "Adam, block by block";
    CreateArena(world, NumSlots(config), 2048);
    ASSERT_FALSE(HasFatalFailure());
    std::vector<float> gradient(floats);
    Random random(5);
    for (float& g : gradient) g = static_cast<float>(random.Normal());
    ASSERT_TRUE(arena_->WriteGradient(0, 0, gradient.data()).ok());
    const StepScalars scalars = Prepare(config, 1);
    const auto push = [&] { Push(0, 0, scalars, !adds); };
    std::printf("RESULT push of %zu floats in GPU memory, %s: %.2f us\n", floats, how,
                Microseconds(push));
    world.options.arena = arena_.get();
    auto engine = accelerator_->CreateStepEngine(world.options);
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    const auto indices = world.RandomBatch();
    const auto step = [&] {
      bool finite = false;
      ASSERT_TRUE((*engine)->Start(indices, 0).ok());
      ASSERT_TRUE((*engine)->Finish(Soon(), &finite).ok());
    };
    if (adds) {
      std::printf("RESULT step in GPU memory, graph, 1 in flight, without a push: %.2f us\n",
                  Microseconds(step));
    }
    const double us = Microseconds([&] {
      step();
      push();
    });
    ASSERT_FALSE(HasFatalFailure());
    std::printf("RESULT step and push in GPU memory, graph, %s: %.2f us, %.0f steps/s", how, us,
                1e6 / us);
    if (!Small()) {
      std::printf(" (predicted 16-25 us; %.2f of the slower, %.2f of the faster prediction)",
                  25 / us, 16 / us);
    }
    std::printf("\n");
    engine->reset();
  }
}

}  // namespace
}  // namespace passel::cuda

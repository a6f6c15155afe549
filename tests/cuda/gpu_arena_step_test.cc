// Steps and updates in GPU memory, in one process, on a GPU or on the emulated one: against double
// precision and against the CPU's optimizers. Label gpu, see gpu_step_test.cc; small, so that
// compute-sanitizer sees every kernel that a push launches.

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "cuda/gpu_fixture.h"
#include "cuda/step_world.h"
#include "optim/update_kernels.h"
#include "support/every_optimizer.h"

namespace passel::cuda {
namespace {

constexpr std::uint64_t kClaim = std::uint64_t{1} << 16 | 1;  // first life of worker/0

class GpuArenaStep : public GpuFixture {
 protected:
  void Create(const std::vector<std::size_t>& floats, int slots, int gradient_slots,
              std::size_t block_floats = 64, bool several_gpus = false) {
    DeviceArenaShape shape;
    shape.several_gpus = several_gpus;
    for (const std::size_t n : floats) shape.shards.push_back({n, block_floats});
    shape.slots = slots;
    shape.gradient_slots = gradient_slots;
    shape.id = 4711;
    shape.plan_hash = 1;
    auto arena = accelerator_->CreateArena(shape);
    ASSERT_TRUE(arena.ok()) << arena.status().ToString();
    arena_ = std::move(*arena);
  }
  std::vector<float> Read(int shard, int array, std::size_t floats) {
    std::vector<float> values(floats);
    const Status read = arena_->Read(shard, array, values.data(), Soon());
    EXPECT_TRUE(read.ok()) << read.ToString();
    return values;
  }
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

  std::unique_ptr<DeviceArena> arena_;
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
    const int slots = NumSlots(config);
    Create({kFloats}, slots, 1, 64, several_gpus);
    ASSERT_FALSE(HasFatalFailure());
    Random random(9);
    std::vector<std::vector<float>> arrays(static_cast<std::size_t>(slots) + 1);
    for (std::size_t a = 0; a < arrays.size(); ++a) {
      for (std::size_t i = 0; i < kFloats; ++i) {
        arrays[a].push_back(static_cast<float>(a == 0 ? random.Normal()
                                                      : 0.5 + 0.01 * static_cast<double>(i % 50)));
      }
      ASSERT_TRUE(arena_->Write(0, static_cast<int>(a), arrays[a].data()).ok());
    }
    float* slot_pointers[kMaxSlots] = {};
    for (int s = 0; s < slots; ++s) {
      slot_pointers[s] = arrays[static_cast<std::size_t>(s) + 1].data();
    }
    for (std::int64_t step = 1; step <= 3; ++step) {
      std::vector<float> gradient(kFloats);
      for (float& g : gradient) g = static_cast<float>(random.Normal());
      ASSERT_TRUE(arena_->WriteGradient(0, 0, gradient.data()).ok());
      const StepScalars scalars = Prepare(config, step);
      Push(0, 0, scalars, slots > 0 || step != 2);  // plain SGD: with claims, and without
      ASSERT_FALSE(HasFatalFailure());
      Apply(scalars, arrays[0].data(), slot_pointers, gradient.data(), kFloats);
    }
    for (std::size_t a = 0; a < arrays.size(); ++a) {
      const std::vector<float> got = Read(0, static_cast<int>(a), kFloats);
      for (std::size_t i = 0; i < kFloats; ++i) {
        ASSERT_NEAR(got[i], arrays[a][i], 1e-5 * std::abs(arrays[a][i]) + 1e-6)
            << "array " << a << ", element " << i;
      }
    }
    arena_.reset();
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
    std::vector<std::size_t> floats;
    for (const auto& values : world.options.memory.shard_values) floats.push_back(values.size());
    Create(floats, 0, 2);
    ASSERT_FALSE(HasFatalFailure());
    for (std::size_t s = 0; s < floats.size(); ++s) {
      ASSERT_TRUE(arena_->Write(static_cast<int>(s), 0, world.values(s).data()).ok());
    }
    world.options.arena = arena_.get();
    auto engine = accelerator_->CreateStepEngine(world.options);
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    for (int step = 0; step < 4; ++step) {
      const int slot = step % 2;
      const auto indices = world.RandomBatch();
      ASSERT_TRUE((*engine)->Start(indices, slot).ok());
      bool finite = false;
      const auto result = (*engine)->Finish(Soon(), &finite);
      ASSERT_TRUE(result.ok()) << result.status().ToString();
      EXPECT_TRUE(finite);
      const ReferenceResult wanted = world.Reference(indices);
      EXPECT_NEAR(result->loss, wanted.loss, 1e-5 * std::abs(wanted.loss) + 1e-6);
      std::vector<std::vector<float>> gradient;
      for (std::size_t s = 0; s < floats.size(); ++s) {
        gradient.emplace_back(floats[s]);
        ASSERT_TRUE(
            arena_->ReadGradient(static_cast<int>(s), slot, gradient[s].data(), Soon()).ok());
      }
      const auto got = world.Variables(gradient);
      for (std::size_t v = 0; v < got.size(); ++v) {
        EXPECT_LE(RelativeError(got[v], wanted.gradients[v]), 1e-5) << "variable " << v;
      }
      const StepScalars scalars = Prepare(config, step + 1);
      for (std::size_t s = 0; s < floats.size(); ++s) {
        Push(static_cast<int>(s), slot, scalars, step % 2 == 0);
        ASSERT_FALSE(HasFatalFailure());
        const std::vector<float> values = Read(static_cast<int>(s), 0, floats[s]);
        for (std::size_t i = 0; i < floats[s]; ++i) {
          const float pushed = world.values(s)[i] - 0.05f * gradient[s][i];
          ASSERT_NEAR(values[i], pushed, 1e-5 * std::abs(pushed) + 1e-6);
          world.values(s)[i] = values[i];
        }
      }
    }
    engine->reset();
    arena_.reset();
  }
}

// Prints, for tools/gpu_check: what a push in GPU memory costs one process, and steps with it. The
// prediction was made for an H200 before any measurement.
TEST_F(GpuArenaStep, Speed) {
  const bool small = std::getenv("PASSEL_GPU_SMALL") != nullptr;
  const int warm_up = small ? 5 : 200, turns = small ? 20 : 5000;
  for (const OptimizerKind kind : {OptimizerKind::kSgd, OptimizerKind::kAdam}) {
    StepWorld world(
        small ? std::vector<std::size_t>{33, 20, 10} : std::vector<std::size_t>{784, 100, 10},
        small ? 7 : 100, Placement::kOneShard, 15, 1, small ? 50 : 60000);
    const std::size_t floats = world.options.memory.shard_values[0].size();
    OptimizerConfig config;
    config.kind = kind;
    config.learning_rate = 1e-6;
    const char* const how =
        kind == OptimizerKind::kSgd ? "SGD by atomic additions" : "Adam, block by block";
    Create({floats}, NumSlots(config), 1, 2048);
    ASSERT_FALSE(HasFatalFailure());
    ASSERT_TRUE(arena_->Write(0, 0, world.values(0).data()).ok());
    std::vector<float> gradient(floats);
    Random random(5);
    for (float& g : gradient) g = static_cast<float>(random.Normal());
    ASSERT_TRUE(arena_->WriteGradient(0, 0, gradient.data()).ok());
    const StepScalars scalars = Prepare(config, 1);
    std::int64_t begin = 0;
    for (int i = 0; i < warm_up + turns; ++i) {
      if (i == warm_up) begin = MonotonicNs();
      Push(0, 0, scalars, kind != OptimizerKind::kSgd);
      ASSERT_FALSE(HasFatalFailure());
    }
    std::printf("RESULT push of %zu floats in GPU memory, %s: %.2f us\n", floats, how,
                static_cast<double>(MonotonicNs() - begin) * 1e-3 / turns);
    world.options.arena = arena_.get();
    auto engine = accelerator_->CreateStepEngine(world.options);
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    const auto indices = world.RandomBatch();
    for (int i = 0; kind == OptimizerKind::kSgd && i < warm_up + turns; ++i) {
      if (i == warm_up) begin = MonotonicNs();
      bool finite = false;
      ASSERT_TRUE((*engine)->Start(indices, 0).ok());
      ASSERT_TRUE((*engine)->Finish(Soon(), &finite).ok());
    }
    if (kind == OptimizerKind::kSgd) {
      std::printf("RESULT step in GPU memory, graph, 1 in flight, without a push: %.2f us\n",
                  static_cast<double>(MonotonicNs() - begin) * 1e-3 / turns);
    }
    for (int i = 0; i < warm_up + turns; ++i) {
      if (i == warm_up) begin = MonotonicNs();
      bool finite = false;
      ASSERT_TRUE((*engine)->Start(indices, 0).ok());
      ASSERT_TRUE((*engine)->Finish(Soon(), &finite).ok());
      Push(0, 0, scalars, kind != OptimizerKind::kSgd);
      ASSERT_FALSE(HasFatalFailure());
    }
    const double us = static_cast<double>(MonotonicNs() - begin) * 1e-3 / turns;
    std::printf("RESULT step and push in GPU memory, graph, %s: %.2f us, %.0f steps/s", how, us,
                1e6 / us);
    if (!small) {
      std::printf(" (predicted 16-25 us; %.2f of the slower, %.2f of the faster prediction)",
                  25 / us, 16 / us);
    }
    std::printf("\n");
    engine->reset();
    arena_.reset();
  }
}

}  // namespace
}  // namespace passel::cuda

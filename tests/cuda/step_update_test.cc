// Steps that make their update themselves, on the FakeDevice: what they add, in whatever order the
// device chooses, and what they leave out.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cuda/arena_workers.h"
#include "cuda/engine_under_test.h"
#include "cuda/mapped_arena.h"
#include "cuda/plans_under_test.h"
#include "cuda/step_plan.h"
#include "optim/update_kernels.h"
#include "support/sanitized.h"

namespace passel::cuda {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr float kRate = 0.25f;

// One process: a device, an arena with the world's values, an engine.
class Process {
 public:
  Process(StepWorld& world, const FakeDeviceOptions& fake, bool updates = true,
          bool several_gpus = false)
      : world_(world), device_(fake), right_(fake.forgotten_edges.empty()) {
    DeviceArenaShape shape = Shape(world);
    shape.several_gpus = several_gpus;
    auto arena = CreateMappedArena(device_, shape);
    EXPECT_TRUE(arena.ok()) << arena.status().message();
    arena_ = std::move(arena).value();
    SetValues();
    StepEngineOptions options = world.options;
    options.arena = arena_.get();
    options.updates = updates;
    DeviceStepEngineHooks hooks;
    hooks.looks_per_health = 1;
    auto engine = CreateDeviceStepEngine(device_, options, hooks);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    engine_ = std::move(engine).value();
  }
  ~Process() {
    engine_.reset();
    arena_.reset();
    if (right_) {
      EXPECT_THAT(device_.violations(), IsEmpty());
    }
    EXPECT_EQ(device_.memories_alive(), 0u);
  }

  StepEngine& engine() { return *engine_; }
  FakeDevice& device() { return device_; }
  DeviceArena& arena() { return *arena_; }

  void SetValues() {
    for (int s = 0; s < shards(); ++s) {
      EXPECT_TRUE(arena_->Write(s, 0, world_.values(static_cast<std::size_t>(s)).data()).ok());
    }
  }
  // As they are at this moment, whatever is under way.
  std::vector<std::vector<float>> Values() const {
    std::vector<std::vector<float>> values;
    for (int s = 0; s < shards(); ++s) {
      const float* const begin = arena_->values(s);
      values.emplace_back(
          begin, begin + world_.options.memory.shard_values[static_cast<std::size_t>(s)].size());
    }
    return values;
  }
  struct Result {
    double loss = 0;
    std::size_t correct = 0;
    bool finite = false;
    LeftOut left_out;
    std::vector<std::vector<float>> values;
  };
  Result Update(const std::vector<std::uint32_t>& batch, int slot, float rate = kRate) {
    const Status started = engine_->StartUpdate(batch, slot, rate);
    EXPECT_TRUE(started.ok()) << started.message();
    return Finish();
  }
  Result Finish() {
    Result result;
    const auto finished = engine_->Finish(Soon(), &result.finite);
    EXPECT_TRUE(finished.ok()) << finished.status().message();
    if (!finished.ok()) return result;
    result.loss = finished->loss;
    result.correct = finished->correct;
    result.left_out = engine_->left_out();
    result.values = Values();
    return result;
  }
  // The same step without the update in it, and its push.
  Result StepAndPush(const std::vector<std::uint32_t>& batch, int slot, float rate = kRate) {
    EXPECT_TRUE(engine_->Start(batch, slot).ok());
    Result result = Finish();
    OptimizerConfig config;
    config.kind = OptimizerKind::kSgd;
    config.learning_rate = static_cast<double>(rate);
    const StepScalars scalars = Prepare(config, 1);
    for (int s = 0; s < shards(); ++s) {
      DeviceArena::Push push;
      push.shard = s;
      push.gradient_slot = slot;
      push.scalars = &scalars;
      push.claims = false;
      EXPECT_TRUE(arena_->Apply(push, Soon()).ok());
    }
    result.values = Values();
    return result;
  }

 private:
  int shards() const { return static_cast<int>(world_.options.memory.shard_values.size()); }

  StepWorld& world_;
  FakeDevice device_;
  const bool right_;  // the plan is as it was made
  std::unique_ptr<DeviceArena> arena_;
  std::unique_ptr<StepEngine> engine_;
};

FakeDeviceOptions Seeded(std::uint64_t seed) {
  FakeDeviceOptions fake;
  fake.seed = seed;
  return fake;
}

struct UpdateNet {
  std::vector<std::size_t> widths;
  std::size_t batch;
  bool clip = true;
  bool mean = false;
};

// What the update should have added, in double precision: -rate times the reference's gradient.
TEST(StepUpdate, AddsTheGradientOfDoublePrecision) {
  for (const UpdateNet& net :
       {UpdateNet{{784, 100, 10}, 100}, UpdateNet{{9, 4}, 3, false, true}, UpdateNet{{1, 1}, 1},
        UpdateNet{{17, 13, 7, 5}, 33}, UpdateNet{{64, 64, 64, 10}, 64, true, true},
        UpdateNet{{5, 3, 256}, 17, true, true}, UpdateNet{{13, 97, 11}, 7, false, true}}) {
    for (const Placement placement :
         {Placement::kOneShard, Placement::kRoundRobin, Placement::kSplit}) {
      for (const bool graph : {true, false}) {
        SCOPED_TRACE(testing::Message()
                     << net.widths.size() << " widths, the first " << net.widths[0]
                     << ", placement " << static_cast<int>(placement) << ", graph " << graph);
        StepWorld world(net.widths, net.batch, placement, 3 + net.batch, 2);
        world.options.network.clip = net.clip;
        world.options.network.mean = net.mean;
        world.options.graph = graph;
        Process process(world, Seeded(net.batch));
        ASSERT_TRUE(process.engine().can_update());
        EXPECT_THAT(process.engine().Describe(), HasSubstr("with the update fused into a step"));
        for (int step = 0; step < 2; ++step) {
          world.RandomValues();
          process.SetValues();
          const auto batch = world.RandomBatch();
          const ReferenceResult wanted = world.Reference(batch);
          const auto before = world.Variables();
          const auto got = process.Update(batch, step);
          EXPECT_TRUE(got.finite);
          EXPECT_EQ(got.left_out.elements, 0u);
          EXPECT_EQ(got.correct, wanted.correct);
          EXPECT_NEAR(got.loss, wanted.loss, 1e-5 * std::abs(wanted.loss) + 1e-6);
          const auto after = world.Variables(got.values);
          for (std::size_t v = 0; v < after.size(); ++v) {
            // Of the sum: what rounds is the value. Of the gradient: what is small beside it.
            std::vector<double> sum, added, minus_gradient;
            double largest = 0;
            for (std::size_t i = 0; i < after[v].size(); ++i) {
              const double g = -static_cast<double>(kRate) * wanted.gradients[v][i];
              sum.push_back(before[v][i] + g);
              added.push_back(after[v][i] - before[v][i]);
              minus_gradient.push_back(g);
              largest = std::max(largest, std::abs(before[v][i]));
            }
            EXPECT_LE(RelativeError(after[v], sum), 1e-5) << "variable " << v;
            double off = 0, size = 0;
            for (std::size_t i = 0; i < added.size(); ++i) {
              off += std::pow(added[i] - minus_gradient[i], 2);
              size += std::pow(minus_gradient[i], 2);
            }
            const double rounding = largest * 6e-8 * std::sqrt(static_cast<double>(added.size()));
            EXPECT_LE(std::sqrt(off), 1e-5 * std::sqrt(size) + 2 * rounding) << "variable " << v;
          }
        }
      }
    }
  }
}

// The products and the additions are the same, so the bits are: with one writer.
TEST(StepUpdate, GivesTheBitsOfAStepAndItsPush) {
  for (const Placement placement :
       {Placement::kOneShard, Placement::kRoundRobin, Placement::kSplit}) {
    StepWorld world({33, 20, 10}, 7, placement, 4, 2);
    Process fused(world, Seeded(1)), apart(world, Seeded(2));
    for (int step = 0; step < 12; ++step) {
      const auto batch = world.RandomBatch();
      const float rate = 0.5f / static_cast<float>(1 + step);  // read at run time
      const auto got = fused.Update(batch, step % 2, rate);
      const auto wanted = apart.StepAndPush(batch, step % 2, rate);
      ASSERT_EQ(got.values, wanted.values) << "step " << step;
      ASSERT_EQ(got.loss, wanted.loss);
      ASSERT_EQ(got.correct, wanted.correct);
    }
    // And from one to the other, as a change of mode does.
    for (int step = 0; step < 12; ++step) {
      const auto batch = world.RandomBatch();
      const auto got =
          step % 3 == 0 ? fused.StepAndPush(batch, step % 2) : fused.Update(batch, step % 2);
      ASSERT_EQ(got.values, apart.StepAndPush(batch, step % 2).values) << "step " << step;
    }
  }
}

// Thousands of launches, each in an order of its own, with up to three steps under way.
TEST(StepUpdate, NoAllowedOrderShowsInTheValues) {
  constexpr int kSeeds = Turns(50, 15), kSteps = 20;
  for (const Placement placement : {Placement::kOneShard, Placement::kSplit}) {
    StepWorld world({7, 5, 4, 3}, 4, placement, 11);
    std::vector<std::vector<std::uint32_t>> batches;
    std::vector<double> losses;
    std::vector<std::vector<float>> wanted;
    {
      FakeDeviceOptions plain;
      plain.adversarial = false;
      Process process(world, plain);
      for (int i = 0; i < kSteps; ++i) {
        batches.push_back(world.RandomBatch());
        const auto result = process.Update(batches.back(), i % 3);
        losses.push_back(result.loss);
        wanted = result.values;
      }
    }
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      SCOPED_TRACE(seed);
      Process process(world, Seeded(seed));
      RunSomeAtOnce(
          seed, kSteps,
          [&](int step) {
            const auto& batch = batches[static_cast<std::size_t>(step)];
            ASSERT_TRUE(process.engine().StartUpdate(batch, step % 3, kRate).ok());
          },
          [&](int step) {
            const auto result = process.Finish();
            ASSERT_EQ(result.loss, losses[static_cast<std::size_t>(step)]) << step;
            if (step + 1 == kSteps) {
              ASSERT_EQ(result.values, wanted);
            }
          });
      ASSERT_FALSE(HasFatalFailure());
    }
  }
}

// The plan of a slot of such an engine, on memory of no consequence.
Plan UpdatePlan(const StepEngineOptions& options, FakeDevice& scratch,
                std::vector<std::byte>* block, StepReportLine* line) {
  auto memory = StepMemory::Create(scratch, options);
  EXPECT_TRUE(memory.ok());
  block->resize(StepBlockSize(options.batch_size));
  StepHostMemory host;
  host.block = reinterpret_cast<StepBlock*>(block->data());
  host.line = line;
  return BuildUpdatePlan(options, *memory, host);
}

bool EveryPartDiffers(const StepWorld& world, const std::vector<std::vector<float>>& a,
                      const std::vector<std::vector<float>>& b) {
  const auto& variables = world.options.memory.variables;
  for (std::size_t v = 0; v < variables.size(); ++v) {
    const std::size_t cols = v % 2 == 0 ? world.options.network.layers[v / 2].outputs : 1;
    for (const auto& part : variables[v]) {
      const auto s = static_cast<std::size_t>(part.shard);
      const auto first = static_cast<std::ptrdiff_t>(part.offset);
      const auto count = static_cast<std::ptrdiff_t>(part.rows * cols);
      if (count != 0 &&
          std::equal(a[s].begin() + first, a[s].begin() + first + count, b[s].begin() + first)) {
        return false;
      }
    }
  }
  return true;
}

// That of the weights' own readers above all: backward to the inputs must not see the update. The
// values are looked at when the sign is there, and not behind the launch's end.
TEST(StepUpdate, EveryForgottenEdgeIsFound) {
  for (const Placement placement : {Placement::kOneShard, Placement::kSplit}) {
    if (kSanitized && placement == Placement::kSplit) continue;
    FakeDeviceOptions plain;
    plain.adversarial = false;
    // A part that an update leaves as it is (its units are silent) would not show when it is late.
    std::optional<StepWorld> found_world;
    std::optional<Process> found_process;
    std::vector<std::uint32_t> batch;
    Process::Result wanted;
    for (std::uint64_t seed = 12; !found_process; ++seed) {
      ASSERT_LT(seed, 1000u);
      found_world.emplace(std::vector<std::size_t>{7, 5, 4, 3}, 4, placement, seed);
      batch = found_world->RandomBatch();
      found_process.emplace(*found_world, plain);
      const auto before = found_process->Values();
      wanted = found_process->Update(batch, 0);
      if (!EveryPartDiffers(*found_world, before, wanted.values)) found_process.reset();
    }
    StepWorld& world = *found_world;
    Process& good = *found_process;
    std::vector<std::byte> block;
    StepReportLine line;
    StepEngineOptions options = world.options;
    options.arena = &good.arena();
    options.updates = true;
    FakeDevice scratch({});
    const Plan plan = UpdatePlan(options, scratch, &block, &line);
    const auto found = ExpectEveryEdgeIsFound(plan, {}, 400, [&](const FakeDeviceOptions& fake) {
      Process process(world, fake);
      EXPECT_TRUE(process.engine().StartUpdate(batch, 0, kRate).ok());
      const auto [result, finite] = FinishOrNever(process.engine(), process.device());
      return !result.ok() || finite != wanted.finite || result->loss != wanted.loss ||
             process.Values() != wanted.values;
    });
    EXPECT_GE(found.size(), 12u);
    if (placement == Placement::kOneShard) {
      for (const std::string layer : {"1", "2"}) {
        EXPECT_THAT(found, Contains("backward inputs " + layer + " -> backward weights " + layer));
      }
    }
  }
}

TEST(StepUpdate, NothingIsAddedForALossThatIsNotFinite) {
  StepWorld world({7, 5, 3}, 4, Placement::kRoundRobin, 25, 2);
  Process process(world, Seeded(1));
  for (const float bad : {kNan, std::numeric_limits<float>::infinity()}) {
    world.RandomValues();
    world.values(1)[0] = bad;  // a bias of the first layer
    process.SetValues();
    const auto before = process.Values();
    const auto result = process.Update(world.RandomBatch(), 0);
    EXPECT_FALSE(result.finite);
    EXPECT_FALSE(std::isfinite(result.loss));
    for (std::size_t s = 0; s < before.size(); ++s) {
      for (std::size_t i = 0; i < before[s].size(); ++i) {
        if (std::isfinite(before[s][i])) {
          ASSERT_EQ(result.values[s][i], before[s][i]);
        }
      }
    }
    world.RandomValues();
    process.SetValues();
    const auto good = process.Update(world.RandomBatch(), 1);
    EXPECT_TRUE(good.finite);
    EXPECT_EQ(good.left_out.elements, 0u);
  }
}

// So too where the gradient is finite, and could be added: 1 and -1 for each example.
TEST(StepUpdate, NothingIsAddedForAnInfiniteLossOfAFiniteGradient) {
  StepWorld world({4, 2}, 3, Placement::kOneShard, 29, 1);
  world.options.network.clip = false;
  std::vector<std::uint8_t> pixels(12, 255), labels(3, 1);
  world.options.train = {pixels.data(), labels.data(), 3};
  std::ranges::fill(world.values(0), 0.f);
  const std::size_t bias = world.options.memory.variables[1][0].offset;
  world.values(0)[bias] = 3e38f;
  world.values(0)[bias + 1] = -3e38f;
  Process process(world, Seeded(3));
  const auto before = process.Values();
  EXPECT_TRUE(process.engine().Start(std::vector<std::uint32_t>{0, 1, 2}, 0).ok());
  const auto plain = process.Finish();
  EXPECT_FALSE(plain.finite);
  EXPECT_TRUE(std::isinf(plain.loss));
  std::vector<float> gradient(before[0].size());
  ASSERT_TRUE(process.arena().ReadGradient(0, 0, gradient.data(), Soon()).ok());
  EXPECT_EQ(gradient[bias], 3.f);
  const auto result = process.Update({0, 1, 2}, 0);
  EXPECT_FALSE(result.finite);
  EXPECT_EQ(result.values, before);
}

// The loss is finite, but not what goes back to the first layer: its values stay, those of the
// second get their update, and the variable is named. Or what the second layer is given is so large
// that its own gradient is not finite.
TEST(StepUpdate, WhatIsNotFiniteIsLeftOutAndNamed) {
  for (const Placement placement :
       {Placement::kOneShard, Placement::kRoundRobin, Placement::kSplit}) {
    for (const std::size_t layer : {0u, 1u}) {
      SCOPED_TRACE(testing::Message()
                   << "placement " << static_cast<int>(placement) << ", layer " << layer);
      StepWorld world({4, 2, 2}, 3, placement, 26, 1);
      std::vector<std::uint8_t> pixels(12, 255), labels(3, 1);
      world.options.train = {pixels.data(), labels.data(), 3};
      const auto& variables = world.options.memory.variables;
      const auto in = [&](auto& shards, std::size_t v, std::size_t i) -> auto& {
        const std::size_t cols = v % 2 == 0 ? 2 : 1;
        auto part = variables[v].begin();
        while (i / cols >= part->first_row + part->rows) ++part;
        return shards[static_cast<std::size_t>(part->shard)]
                     [part->offset + i - part->first_row * cols];
      };
      std::vector<std::span<float>> values;
      for (std::size_t s = 0; s < world.options.memory.shard_values.size(); ++s) {
        values.push_back(world.values(s));
        std::ranges::fill(values[s], 0.f);
      }
      for (std::size_t i = 0; i < 2; ++i) in(values, 1, i) = layer == 0 ? 1.2e-38f : 3e38f;
      for (std::size_t i = 0; i < 4 && layer == 0; ++i)
        in(values, 2, i) = i % 2 == 0 ? 3e38f : -3e38f;
      Process process(world, Seeded(2));
      const auto before = process.Values();
      const auto result = process.Update({0, 1, 2}, 0);
      EXPECT_TRUE(std::isfinite(result.loss));
      EXPECT_FALSE(result.finite);
      EXPECT_EQ(result.left_out.variable, 2 * layer);
      EXPECT_EQ(result.left_out.elements, layer == 0 ? 4u * 2 + 2 : 2u * 2);
      for (const std::size_t v : {0u, 1u, 2u}) {
        if (v == 2 && layer == 0) continue;
        for (std::size_t i = 0; i < (v == 0 ? 8u : v == 1 ? 2u : 4u); ++i) {
          EXPECT_EQ(in(result.values, v, i), in(before, v, i)) << v;
        }
      }
      EXPECT_NE(in(result.values, 3, 0), 0.f);
      for (const auto& shard : result.values) {
        for (const float v : shard) ASSERT_TRUE(std::isfinite(v));
      }
    }
  }
}

TEST(StepUpdate, IsOnlyForArenasOnOneDeviceAndSmallLayers) {
  StepWorld world({7, 5, 3}, 4, Placement::kOneShard, 27);
  world.options.updates = true;
  const auto made = Make(world.options, {});  // no arena
  EXPECT_FALSE(made->engine->can_update());
  Process not_asked(world, {}, false);
  EXPECT_FALSE(not_asked.engine().can_update());
  EXPECT_THAT(not_asked.engine().Describe(), HasSubstr("updates are kernels of their own"));
  Process shared(world, {}, true, true);  // with workers on other GPUs
  EXPECT_FALSE(shared.engine().can_update());
  StepWorld large({700, 400, 3}, 4, Placement::kOneShard, 28, 1);
  Process library(large, {});
  EXPECT_FALSE(library.engine().can_update());
  const auto batch = large.RandomBatch();
  EXPECT_TRUE(library.StepAndPush(batch, 0).finite);
  // Kernels of our own add, whatever the size of the layer.
  FakeDeviceOptions without;
  without.adversarial = false;
  without.no_library = true;
  Process own(large, without);
  EXPECT_TRUE(own.engine().can_update());
}

TEST(StepUpdate, AFaultInAnyOperationIsNamedAndLasts) {
  StepWorld world({7, 5, 3}, 4, Placement::kOneShard, 22);
  int faults = 0;
  for (int node = 0;; ++node) {
    FakeDeviceOptions fake;
    fake.fail_at = {1, node};
    Process process(world, fake);
    process.Update(world.RandomBatch(), 0);
    ASSERT_TRUE(process.engine().StartUpdate(world.RandomBatch(), 1, kRate).ok());
    bool finite = true;
    const auto result = process.engine().Finish(Soon(), &finite);
    if (result.ok()) break;  // behind the last operation
    ++faults;
    EXPECT_EQ(result.status().code(), Code::kUnavailable);
    EXPECT_THAT(result.status().message(), HasSubstr("operation '"));
    EXPECT_EQ(process.engine().StartUpdate(world.RandomBatch(), 2, kRate).code(),
              Code::kUnavailable);
  }
  // Block, gather, 2 forward, loss, gate, 1 + 2 backward, report: two less than a step and a push
  // of its own.
  EXPECT_EQ(faults, 10);
}

}  // namespace
}  // namespace passel::cuda

// arena_workers.h - processes that share an arena in device memory, each with a FakeDevice.

#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "cuda/engine_under_test.h"
#include "cuda/fake_device.h"
#include "cuda/mapped_arena.h"
#include "optim/update_kernels.h"
#include "support/sanitized.h"

namespace passel::cuda {

/// The claim of worker number `worker` in that life.
constexpr std::uint64_t Word(std::uint32_t epoch, int worker) {
  return std::uint64_t{epoch} << 16 | static_cast<std::uint64_t>(worker + 1);
}

inline DeviceArenaShape Shape(std::vector<std::size_t> floats, int slots, std::size_t block = 32) {
  DeviceArenaShape shape;
  for (const std::size_t n : floats) shape.shards.push_back({n, block});
  shape.slots = slots;
  shape.id = 77;
  shape.plan_hash = 0xabc;
  return shape;
}

/// With a place for each gradient slot of the world.
inline DeviceArenaShape Shape(const StepWorld& world) {
  std::vector<std::size_t> floats;
  for (const auto& values : world.options.memory.shard_values) floats.push_back(values.size());
  DeviceArenaShape shape = Shape(floats, 0, 16);
  shape.gradient_slots = static_cast<int>(world.options.memory.gradient_slots.size());
  return shape;
}

/// The first push of worker/0, into shard 0.
inline DeviceArena::Push FirstPush(const StepScalars& scalars) {
  DeviceArena::Push push;
  push.scalars = &scalars;
  push.claim = Word(1, 0);
  return push;
}

inline StepScalars Scalars(OptimizerKind kind, double rate = 1) {
  OptimizerConfig config;
  config.kind = kind;
  config.learning_rate = rate;
  config.momentum = 1;
  return Prepare(config, 1);
}

/// One process's device and arena.
struct Worker {
  explicit Worker(const FakeDeviceOptions& options) : device(options) {}
  FakeDevice device;
  std::unique_ptr<DeviceArena> arena;
  ~Worker() {
    arena.reset();
    EXPECT_THAT(device.violations(), ::testing::IsEmpty());
    EXPECT_EQ(device.memories_alive(), 0u);
  }
  void SetGradient(int shard, std::size_t floats, float value) {
    const std::vector<float> gradient(floats, value);
    ASSERT_TRUE(
        device.CopyIn(arena->gradient(shard, 0), gradient.data(), gradient.size() * sizeof(float))
            .ok());
  }
  std::vector<float> Read(int shard, int array, std::size_t floats) {
    std::vector<float> values(floats);
    EXPECT_TRUE(arena->Read(shard, array, values.data(), Soon()).ok());
    return values;
  }
  BlocksSwept Apply(const DeviceArena::Push& push) {
    const auto pushed = arena->Apply(push, Soon());
    EXPECT_TRUE(pushed.ok()) << pushed.status().message();
    return pushed.ok() ? *pushed : BlocksSwept{};
  }
  /// The values of all shards are those of the world.
  void Write(StepWorld& world) {
    for (std::size_t s = 0; s < world.options.memory.shard_values.size(); ++s) {
      EXPECT_TRUE(arena->Write(static_cast<int>(s), 0, world.values(s).data()).ok());
    }
  }
  /// On this device and arena, which outlive it.
  std::unique_ptr<StepEngine> Engine(StepWorld& world) {
    world.options.arena = arena.get();
    DeviceStepEngineHooks hooks;
    hooks.looks_per_health = 1;
    auto engine = CreateDeviceStepEngine(device, world.options, hooks);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    return engine.ok() ? std::move(*engine) : nullptr;
  }
  /// What a step left in that slot of the arena.
  std::vector<std::vector<float>> Gradient(const StepWorld& world, int slot) {
    std::vector<std::vector<float>> gradient;
    for (const auto& values : world.options.memory.shard_values) {
      const int shard = static_cast<int>(gradient.size());
      gradient.emplace_back(values.size());
      EXPECT_TRUE(arena->ReadGradient(shard, slot, gradient.back().data(), Soon()).ok());
    }
    return gradient;
  }
};

inline std::unique_ptr<Worker> Creator(const DeviceArenaShape& shape,
                                       const FakeDeviceOptions& options) {
  auto worker = std::make_unique<Worker>(options);
  auto arena = CreateMappedArena(worker->device, shape);
  EXPECT_TRUE(arena.ok()) << arena.status().message();
  if (arena.ok()) worker->arena = std::move(*arena);
  return worker;
}
inline std::unique_ptr<Worker> Importer(int fd, const DeviceArenaShape& shape,
                                        const FakeDeviceOptions& options) {
  auto worker = std::make_unique<Worker>(options);
  auto arena = ImportMappedArena(worker->device, fd, shape);
  EXPECT_TRUE(arena.ok()) << arena.status().message();
  if (arena.ok()) worker->arena = std::move(*arena);
  return worker;
}

/// Every worker pushes gradients of -1 into each shard so many times, all at once, each from a
/// block of its own on, and goes on until a push is done. Returns how many pushes failed.
inline int PushAtOnce(std::vector<std::unique_ptr<Worker>>& workers, const DeviceArenaShape& shape,
                      OptimizerKind kind, bool claims, std::size_t pushes) {
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (std::size_t w = 0; w < workers.size(); ++w) {
    threads.emplace_back([&, w] {
      Worker& worker = *workers[w];
      const StepScalars scalars = Scalars(kind);
      // Before the first push: its sign comes a moment before its launch has ended.
      for (std::size_t s = 0; s < shape.shards.size(); ++s) {
        worker.SetGradient(static_cast<int>(s), shape.shards[s].floats, -1);
      }
      for (std::size_t i = 0; i < pushes; ++i) {
        for (std::size_t s = 0; s < shape.shards.size(); ++s) {
          const auto& [floats, block] = shape.shards[s];
          DeviceArena::Push push;
          push.shard = static_cast<int>(s);
          push.scalars = &scalars;
          push.claims = claims;
          push.claim = Word(1, static_cast<int>(w));
          push.first_block = (i + w) % (floats / block);
          const Deadline deadline = Soon();
          for (;;) {
            const auto pushed = worker.arena->Apply(push, deadline);
            if (!pushed.ok() || deadline.Expired()) ++failures;
            if (!pushed.ok() || pushed->left == 0 || deadline.Expired()) break;
            push.goes_on = true;
          }
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return failures;
}

/// Four workers push at once, in each way. Gradients of -1 count in the values; momentum of 1
/// counts in the slot and sums that up in the value, so that one of the two that is lost, or halves
/// of two updates, would show. `make` makes worker `number` of an arena of that shape, whose first
/// worker is `first`, null for itself; `look` sees them afterwards.
inline void ExpectNothingIsLost(
    const DeviceArenaShape& like,
    const std::function<std::unique_ptr<Worker>(const DeviceArenaShape&, Worker* first,
                                                std::size_t number)>& make,
    const std::function<void(Worker&)>& look) {
  constexpr std::size_t kPushes = Turns(240, 60), kWorkers = 4;
  for (const auto& [kind, claims] :
       {std::pair{OptimizerKind::kSgd, true}, std::pair{OptimizerKind::kSgd, false},
        std::pair{OptimizerKind::kMomentum, true}}) {
    DeviceArenaShape shape = like;
    const bool momentum = kind == OptimizerKind::kMomentum;
    shape.slots = momentum ? 1 : 0;
    std::vector<std::unique_ptr<Worker>> workers;
    while (workers.size() < kWorkers) {
      workers.push_back(make(shape, workers.empty() ? nullptr : workers[0].get(), workers.size()));
    }
    EXPECT_EQ(PushAtOnce(workers, shape, kind, claims, kPushes), 0);
    constexpr float kTotal = kWorkers * kPushes;
    for (std::size_t s = 0; s < shape.shards.size(); ++s) {
      const std::size_t floats = shape.shards[s].floats;
      const auto shard = static_cast<int>(s);
      EXPECT_THAT(workers[1 + s]->Read(shard, 0, floats),
                  ::testing::Each(momentum ? kTotal * (kTotal + 1) / 2 : kTotal));
      if (momentum) {
        EXPECT_THAT(workers[3]->Read(shard, 1, floats), ::testing::Each(-kTotal));
      }
    }
    for (const auto& worker : workers) look(*worker);
  }
}

inline FakeDeviceOptions OnAThread() {
  FakeDeviceOptions options;
  options.adversarial = false;
  options.progress = FakeDeviceOptions::Progress::kOnAThread;
  return options;
}

}  // namespace passel::cuda

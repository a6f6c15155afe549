// arena_workers.h - processes that share an arena in device memory, each with a FakeDevice.

#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "cuda/engine_under_test.h"
#include "cuda/fake_device.h"
#include "cuda/mapped_arena.h"
#include "optim/update_kernels.h"

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
      for (std::size_t i = 0; i < pushes; ++i) {
        for (std::size_t s = 0; s < shape.shards.size(); ++s) {
          const auto& [floats, block] = shape.shards[s];
          DeviceArena::Push push;
          push.shard = static_cast<int>(s);
          if (i == 0) worker.SetGradient(push.shard, floats, -1);
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

inline FakeDeviceOptions OnAThread() {
  FakeDeviceOptions options;
  options.adversarial = false;
  options.progress = FakeDeviceOptions::Progress::kOnAThread;
  return options;
}

}  // namespace passel::cuda

// gpu_fixture.h - a test on the device that the plugin opens: a GPU, or the emulated one. Where it
// opens none the test is left out, with the reason; with PASSEL_GPU_REQUIRED set it fails.

#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "compute/accelerator_loader.h"
#include "compute/device_arena.h"
#include "cuda/step_world.h"

namespace passel::cuda {

/// Whether to take little time: under a sanitizer, or on an emulated GPU.
inline bool Small() { return std::getenv("PASSEL_GPU_SMALL") != nullptr; }

class GpuFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = OpenAccelerator({});
    const bool required = std::getenv("PASSEL_GPU_REQUIRED") != nullptr;
    if (!opened.ok() && opened.status().code() == Code::kNotFound && !required) {
      GTEST_SKIP() << opened.status().message();
    }
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    accelerator_ = std::move(opened).value();
  }
  void CreateArena(const DeviceArenaShape& shape) {
    arena_.reset();
    auto arena = accelerator_->CreateArena(shape);
    ASSERT_TRUE(arena.ok()) << arena.status().ToString();
    arena_ = std::move(*arena);
  }
  /// With the values of the world, and a place for each of its gradient slots.
  void CreateArena(StepWorld& world, int slots = 0, std::size_t block_floats = 64) {
    DeviceArenaShape shape;
    for (const auto& values : world.options.memory.shard_values) {
      shape.shards.push_back({values.size(), block_floats});
    }
    shape.slots = slots;
    shape.gradient_slots = static_cast<int>(world.options.memory.gradient_slots.size());
    shape.id = 4711;
    shape.plan_hash = 1;
    CreateArena(shape);
    if (!HasFatalFailure()) Write(world);
  }
  void Write(StepWorld& world) {
    for (std::size_t s = 0; s < world.options.memory.shard_values.size(); ++s) {
      ASSERT_TRUE(arena_->Write(static_cast<int>(s), 0, world.values(s).data()).ok());
    }
  }
  std::vector<float> Read(int shard, int array, std::size_t floats) {
    std::vector<float> values(floats);
    const Status read = arena_->Read(shard, array, values.data(), Soon());
    EXPECT_TRUE(read.ok()) << read.ToString();
    return values;
  }

  std::unique_ptr<Accelerator> accelerator_;
  std::unique_ptr<DeviceArena> arena_;
};

/// MNIST's network, or a small one; for speeds with as many images as MNIST has.
inline StepWorld MnistWorld(Placement placement, std::uint64_t seed, int slots = 3,
                            bool all_images = false) {
  const std::vector<std::size_t> widths =
      Small() ? std::vector<std::size_t>{33, 20, 10} : std::vector<std::size_t>{784, 100, 10};
  return StepWorld(widths, Small() ? 7 : 100, placement, seed, slots,
                   all_images && !Small() ? 60000 : 50);
}

/// Microseconds that a call of `turn` takes, behind some that warm up; 0 if the test has failed.
inline double Microseconds(const std::function<void()>& turn) {
  const int warm_up = Small() ? 5 : 200, turns = Small() ? 20 : 5000;
  std::int64_t begin = 0;
  for (int i = 0; i < warm_up + turns; ++i) {
    if (i == warm_up) begin = MonotonicNs();
    turn();
    if (::testing::Test::HasFatalFailure()) return 0;
  }
  return static_cast<double>(MonotonicNs() - begin) * 1e-3 / turns;
}

}  // namespace passel::cuda

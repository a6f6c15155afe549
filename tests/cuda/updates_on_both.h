// updates_on_both.h - updates of an arena in device memory, and the same on the CPU.

#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "base/random.h"
#include "compute/device_arena.h"
#include "cuda/step_world.h"
#include "optim/update_kernels.h"

namespace passel::cuda {

/// [array]: the values, then the slots.
struct BothUpdated {
  std::vector<std::vector<float>> device, cpu;
};

/// Three updates of shard 0, which has so many floats, by pushes like `push`: plain SGD with claims
/// and without.
inline BothUpdated UpdateBoth(DeviceArena& arena, const OptimizerConfig& config, std::size_t floats,
                              DeviceArena::Push push) {
  BothUpdated both;
  const int slots = NumSlots(config);
  Random random(9);
  float* slot_pointers[kMaxSlots] = {};
  for (int a = 0; a <= slots; ++a) {
    auto& array = both.cpu.emplace_back();
    for (std::size_t i = 0; i < floats; ++i) {
      array.push_back(
          static_cast<float>(a == 0 ? random.Normal() : 0.5 + 0.01 * static_cast<double>(i % 100)));
    }
    EXPECT_TRUE(arena.Write(0, a, array.data()).ok());
    if (a > 0) slot_pointers[a - 1] = array.data();
  }
  for (int step = 1; step <= 3; ++step) {
    std::vector<float> gradient(floats);
    for (float& g : gradient) g = static_cast<float>(random.Normal());
    EXPECT_TRUE(arena.WriteGradient(0, 0, gradient.data()).ok());
    const StepScalars scalars = Prepare(config, step);
    push.scalars = &scalars;
    push.claims = slots > 0 || step != 2;
    const auto pushed = arena.Apply(push, Soon());
    EXPECT_TRUE(pushed.ok()) << pushed.status().ToString();
    if (pushed.ok()) {
      EXPECT_EQ(pushed->left + pushed->taken_over, 0u);
    }
    Apply(scalars, both.cpu[0].data(), slot_pointers, gradient.data(), floats);
  }
  for (int a = 0; a <= slots; ++a) {
    auto& array = both.device.emplace_back(floats);
    EXPECT_TRUE(arena.Read(0, a, array.data(), Soon()).ok());
  }
  return both;
}

}  // namespace passel::cuda

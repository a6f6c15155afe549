// engine_under_test.h - a step engine on a FakeDevice, and what came of a step.

#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cuda/device_step_engine.h"
#include "cuda/fake_device.h"
#include "cuda/step_world.h"

namespace passel::cuda {

struct Made {
  std::unique_ptr<FakeDevice> device;
  std::unique_ptr<StepEngine> engine;
  std::vector<std::string> warnings;
  /// Ends the engine, which has broken no rule of the device and leaves nothing there.
  void ExpectACleanEnd() {
    engine.reset();
    EXPECT_THAT(device->violations(), ::testing::IsEmpty());
    EXPECT_EQ(device->memories_alive(), 0u);
  }
};

// On the heap: the engine calls back into it.
inline std::unique_ptr<Made> Make(const StepEngineOptions& options, const FakeDeviceOptions& fake) {
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

/// The end of a step with a plan that may be wrong: once everything is done, a sign that has not
/// come never will. With whether all is finite.
inline std::pair<Result<BatchResult>, bool> FinishOrNever(StepEngine& engine,
                                                          const FakeDevice& device) {
  bool idle = false, finite = false;
  Result<BatchResult> result = Unavailable("not tried");
  do {
    idle = device.idle();
    result = engine.Finish(Deadline::After(std::chrono::seconds(0)), &finite);
  } while (!idle && result.status().code() == Code::kDeadlineExceeded);
  return {std::move(result), finite};
}

/// The same, with its gradient; nothing if it does not end.
inline Outcome FinishOrNever(const Made& made, const StepWorld& world, int slot) {
  const auto [result, finite] = FinishOrNever(*made.engine, *made.device);
  if (!result.ok()) return {};
  return {result->loss, result->correct, finite, world.Slot(slot)};
}

/// Calls `start` and `finish` for `steps` steps, each with its number, up to three under way at
/// once: how many, chance decides.
inline void RunSomeAtOnce(std::uint64_t seed, int steps, const std::function<void(int)>& start,
                          const std::function<void(int)>& finish) {
  Random random(seed);
  int started = 0, finished = 0;
  while (finished < steps && !::testing::Test::HasFatalFailure()) {
    const int under_way = started - finished;
    if (started < steps && under_way < 3 && (under_way == 0 || random.Below(2) == 0)) {
      start(started++);
    } else {
      finish(finished++);
    }
  }
}

}  // namespace passel::cuda

// engine_under_test.h - a step engine on a FakeDevice, and what came of a step.

#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/device_step_engine.h"
#include "cuda/fake_device.h"
#include "cuda/step_world.h"

namespace passel::cuda {

inline Deadline Soon() { return Deadline::After(std::chrono::seconds(60)); }

struct Made {
  std::unique_ptr<FakeDevice> device;
  std::unique_ptr<StepEngine> engine;
  std::vector<std::string> warnings;
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

struct Outcome {
  double loss = 0;
  std::size_t correct = 0;
  bool finite = false;
  std::vector<std::vector<float>> gradient;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

inline Outcome FinishStep(StepEngine& engine, const StepWorld& world, int slot) {
  Outcome outcome;
  auto result = engine.Finish(Soon(), &outcome.finite);
  EXPECT_TRUE(result.ok()) << result.status().message();
  if (!result.ok()) return outcome;
  outcome.loss = result->loss;
  outcome.correct = result->correct;
  outcome.gradient = world.Slot(slot);
  return outcome;
}

/// A step with a plan that may be wrong: once everything is done, a sign that has not come never
/// will, and the outcome is none.
inline Outcome FinishOrNever(const Made& made, const StepWorld& world, int slot) {
  Outcome outcome;
  bool idle = false;
  Result<BatchResult> result = Unavailable("not tried");
  do {
    idle = made.device->idle();
    result = made.engine->Finish(Deadline::After(std::chrono::seconds(0)), &outcome.finite);
  } while (!idle && result.status().code() == Code::kDeadlineExceeded);
  if (result.ok()) outcome = {result->loss, result->correct, outcome.finite, world.Slot(slot)};
  return outcome;
}

inline Outcome RunStep(StepEngine& engine, const StepWorld& world,
                       const std::vector<std::uint32_t>& indices, int slot) {
  const Status started = engine.Start(indices, slot);
  EXPECT_TRUE(started.ok()) << started.message();
  return FinishStep(engine, world, slot);
}

inline void ExpectNear(const StepWorld& world, const Outcome& outcome,
                       const ReferenceResult& wanted, double tolerance = 1e-5) {
  EXPECT_TRUE(outcome.finite);
  EXPECT_EQ(outcome.correct, wanted.correct);
  EXPECT_NEAR(outcome.loss, wanted.loss, 1e-5 * std::abs(wanted.loss) + 1e-6);
  const auto got = world.Variables(outcome.gradient);
  for (std::size_t v = 0; v < got.size(); ++v) {
    EXPECT_LE(RelativeError(got[v], wanted.gradients[v]), tolerance) << "variable " << v;
  }
}

}  // namespace passel::cuda

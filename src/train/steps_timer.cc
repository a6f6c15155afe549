#include "train/steps_timer.h"

#include <fmt/core.h>

#include "base/clock.h"

namespace passel {

Result<StepsTimer> StepsTimer::Make(const Interval& every) {
  if (every.steps < 0 || every.time.count() < 0) {
    return InvalidArgument(
        fmt::format("an interval of {} steps, {:g} s is negative: give a number of steps or of "
                    "seconds above 0",
                    every.steps, ToSeconds(every.time)));
  }
  if (every.steps == 0 && every.time.count() == 0) {
    return InvalidArgument("Either every_secs or every_steps should be provided.");
  }
  if (every.steps > 0 && every.time.count() > 0) {
    return InvalidArgument("Can not provide both every_secs and every_steps.");
  }
  return StepsTimer(every);
}

bool StepsTimer::IsDue(std::int64_t step) const {
  if (!fired_) return true;
  if (step == step_) return false;
  if (every_.steps > 0) return step >= step_ + every_.steps;
  return MonotonicNs() >= time_ns_ + every_.time.count();
}

std::optional<StepsTimer::Elapsed> StepsTimer::Fire(std::int64_t step) {
  const std::int64_t now = MonotonicNs();
  std::optional<Elapsed> elapsed;
  if (fired_) elapsed = {step - step_, 1e-9 * static_cast<double>(now - time_ns_)};
  fired_ = true;
  step_ = step;
  time_ns_ = now;
  return elapsed;
}

std::optional<std::int64_t> StepsTimer::last_step() const {
  if (!fired_) return std::nullopt;
  return step_;
}

}  // namespace passel

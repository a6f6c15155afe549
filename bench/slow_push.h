// slow_push.h - a slow-down on purpose, with which the guards against slow-downs are tested.

#pragma once

#include "base/status.h"
#include "optim/update_kernels.h"
#include "store/shard_memory.h"

namespace passel::bench {

/// PASSEL_BENCH_SLOW_PUSH=P makes each push that a benchmark measures about P percent longer.
class SlowPush {
 public:
  /// No slow-down.
  SlowPush() = default;
  /// Errors: kInvalidArgument unless the variable is unset or a whole number from 0 to 100.
  static Result<SlowPush> FromEnvironment();

  int percent() const { return percent_; }

  /// To be called behind a push of worker 0, inside what is measured: updates that share of the
  /// shard's floats once more. The values are wrong afterwards.
  void AfterPush(const StepScalars& scalars, const ShardMemory& memory) const {
    if (percent_ == 0) return;
    Apply(scalars, memory.values, memory.slots, memory.Gradient(0, 0),
          memory.floats * static_cast<std::size_t>(percent_) / 100);
  }

 private:
  explicit SlowPush(int percent) : percent_(percent) {}
  int percent_ = 0;
};

}  // namespace passel::bench

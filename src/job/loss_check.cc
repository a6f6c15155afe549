#include "job/loss_check.h"

#include <fmt/core.h>

namespace passel::job {
namespace {

// By then the values have changed enough to be judged by those who made these updates.
constexpr std::int64_t kStepsToTrust = 100;

}  // namespace

Status CheckLosses(const ShardMemory& lead, const WorkerNames& names) {
  const std::int64_t now = lead.state->global_step.load(std::memory_order_acquire);
  for (int worker = 0; worker < lead.num_workers; ++worker) {
    const std::int64_t at =
        lead.tasks[worker].counters.not_finite_at.load(std::memory_order_acquire) - 1;
    if (at < 0 || now >= at + kStepsToTrust) continue;
    return Diverged(fmt::format(
        "the loss or gradient of {} was not finite at global step {}: lower --learning_rate",
        names(worker), at));
  }
  return {};
}

}  // namespace passel::job

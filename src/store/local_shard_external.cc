// A push to values that somebody else updates: see external_sweep.h. And one whose update the step
// that computes its gradient makes: the two halves around it.

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "base/failpoint.h"
#include "base/histogram.h"
#include "base/nvtx.h"
#include "optim/update_kernels.h"
#include "store/external_sweep.h"
#include "store/local_shard.h"

namespace passel {
namespace {

// Sweeps of one push before it does without the blocks that are still held, where nobody waits. A
// sweep tries each block for longer than a holder that runs needs.
constexpr int kPassesBeforeLeavingOut = 8;

// How long a sweep may take before whoever makes it counts as lost: for that the rest of a push's
// time, which it may have spent on waiting for others, may be too little, and all of it too much.
Deadline SweepLimit(Deadline push) {
  constexpr std::chrono::seconds kLeast{5};
  constexpr std::chrono::minutes kMost{5};
  return Deadline::At(std::max(push.Sooner(kMost).at_ns(), Deadline::After(kLeast).at_ns()));
}

}  // namespace

Status LocalShard::CheckCurrent() const {
  if (external_->Current()) return {};
  return Aborted(
      fmt::format("{} pushes to an arena on the GPU that is not the job's any more; start it again",
                  options_.names(worker_)));
}

bool LocalShard::AddsElsewhere() const {
  const bool lock_free = !rules_.rounds() && !rules_.binding();
  return external_ != nullptr && lock_free && memory_.num_slots == 0;
}

Status LocalShard::BeginUpdate(StepScalars* scalars) {
  PASSEL_CHECK(AddsElsewhere(), "this update takes more than additions");
  PASSEL_RETURN_IF_ERROR(CheckAlive());
  PASSEL_RETURN_IF_ERROR(CheckCurrent());
  *scalars = Prepare(rules_.optimizer, BeginPush());
  return {};
}

Status LocalShard::EndUpdate(Version* version_before) {
  Heartbeat();
  Failpoint("push.before_version");
  return EndPush(version_before);
}

Status LocalShard::ApplyElsewhere(int slot, const StepScalars& scalars, Deadline deadline) {
  PASSEL_RETURN_IF_ERROR(CheckCurrent());
  const bool binding = rules_.binding();
  BlockSweep sweep;
  sweep.gradient_slot = slot;
  sweep.scalars = &scalars;
  sweep.claim = MyClaim().Pack();
  sweep.claims = binding || memory_.num_slots > 0;
  sweep.first_block = memory_.num_blocks > 1 ? random_.Below(memory_.num_blocks) : 0;
  ClaimPatience patience(*watch_);
  for (int pass = 1;; ++pass) {
    // Fenced off while we were stopped: what we held may be somebody else's by now.
    PASSEL_RETURN_IF_ERROR(CheckAlive());
    PASSEL_ASSIGN_OR_RETURN(const BlocksSwept swept, external_->Sweep(sweep, SweepLimit(deadline)));
    Failpoint("push.swept");
    if (swept.taken_over > 0) {
      Increment(counters().taken_over_blocks, swept.taken_over);
      nvtx::Mark(nvtx::Event::kBlockTakenOver, static_cast<std::int64_t>(swept.taken_over));
    }
    if (swept.left == 0) return {};
    sweep.goes_on = true;
    // Stands for whichever block was left: who is patient looks at the holder.
    external_blocker_.claim.store(swept.holder, std::memory_order_relaxed);
    const std::uint64_t dead = HolderLives(lead_, Claim::Unpack(swept.holder)) ? 0 : swept.holder;
    // Named once it is taken over, or never: not every sweep may do that.
    const bool can_help = dead != 0 && dead != sweep.former;
    sweep.former = dead;
    if (!binding && pass >= kPassesBeforeLeavingOut) {
      Increment(counters().overlapped_blocks, swept.left);
      watch_->LookAfterHolder(external_blocker_);
      return watch_->failure();
    }
    if (can_help && !deadline.Expired()) continue;
    if (!binding) {
      ::sched_yield();
      continue;
    }
    PASSEL_RETURN_IF_ERROR(AwaitHolder(patience, external_blocker_, deadline));
  }
}

}  // namespace passel

// Prefetch: a gradient is on its way while the next one is computed.
//
//   Push(k)   awaits what became of gradient k-1, and takes k
//   Wait(k)   ssp: until the slowest is near enough; hands k out; returns what became of k-1
//   Pull()    the values that came with k-1; once more, with k
//
// So step k+1 is computed on values without update k, and its staleness, which is taken from the
// versions at its pull and at its apply, says so. Before the mode changes, or the job stops, k is
// not handed out but applied.

#include <algorithm>
#include <utility>

#include "store/sharded_store.h"

namespace passel {

Status ShardedStore::PushAhead(int slot, std::uint32_t stamp, Deadline deadline) {
  PASSEL_RETURN_IF_ERROR(EndAhead());
  ahead_.state = ahead_.kPushed;
  ahead_.slot = slot;
  ahead_.stamp = stamp;
  ahead_.deadline = deadline;
  return {};
}

Result<PushOutcome> ShardedStore::GoAhead(Deadline deadline) {
  if (open_ == Open::kStep) PASSEL_RETURN_IF_ERROR(FinishStep(deadline));
  PushOutcome nothing;  // as it was before this one
  nothing.applied = true;
  nothing.gradients = 0;
  nothing.version = pulled_[ahead_.stamp % kStamps][0];
  nothing.global_step = lead_->global_step();
  CountStep();  // its report travels with the gradient
  for (std::size_t s = shards_.size(); s-- > 0;) {
    shards_[s]->BeginApply(ahead_.slot, ahead_.deadline);
  }
  ahead_.state = ahead_.kUnderWay;
  ahead_.pulled = false;
  if (std::exchange(ahead_.untold, false)) return outcome_;
  return nothing;
}

// Sets outcome_.
Status ShardedStore::EndAhead() {
  if (ahead_.state == ahead_.kFailed) return ahead_.failed;
  if (ahead_.state != ahead_.kUnderWay) return {};
  ahead_.state = ahead_.kNone;
  const auto end = [this]() -> Status {
    Versions at_apply{};
    for (std::size_t s = shards_.size(); s-- > 0;) {
      PASSEL_RETURN_IF_ERROR(shards_[s]->Apply(ahead_.slot, ahead_.deadline, &at_apply[s]));
    }
    return CountUpdate(at_apply, ahead_.stamp);
  };
  Status ended = end();
  ahead_.untold = ended.ok();
  // Who calls again must not take it for one that is still to come.
  if (ended.code() == Code::kDeadlineExceeded) ended = Unavailable(ended.message());
  if (!ended.ok()) ahead_.state = ahead_.kFailed;
  return ahead_.failed = std::move(ended);
}

// At once, without the next step beside it.
Status ShardedStore::ApplyAhead() {
  const bool untold = std::exchange(ahead_.untold, false);
  ahead_.state = ahead_.kUnderWay;
  PASSEL_RETURN_IF_ERROR(EndAhead());
  CountStep();
  ahead_.untold = false;
  if (untold) ++outcome_.gradients;
  return {};
}

Status ShardedStore::PullAhead() {
  if (ahead_.state == ahead_.kFailed) return ahead_.failed;
  if (ahead_.state != ahead_.kUnderWay || !std::exchange(ahead_.pulled, true)) return {};
  return EndAhead();
}

}  // namespace passel

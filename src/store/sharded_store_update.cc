// A push whose update the step makes that computes its gradient: what the store does before and
// after.

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/histogram.h"
#include "optim/update_formulas.h"
#include "store/sharded_store.h"

namespace passel {

ExternalUpdates* ShardedStore::Elsewhere(std::size_t shard) const {
  ExternalUpdates* elsewhere = shards_[shard]->external_updates();
  PASSEL_CHECK(elsewhere != nullptr, "this carrier's values are updated nowhere else");
  return elsewhere;
}

void ShardedStore::SweepElsewhere(std::span<ExternalSweep* const> sweeps) {
  PASSEL_CHECK(sweeps.size() == shards_.size(), "one sweep for each shard");
  for (std::size_t s = 0; s < sweeps.size(); ++s) Elsewhere(s)->SweepElsewhere(sweeps[s]);
}

bool ShardedStore::UpdateIsAddition() const {
  return std::all_of(shards_.begin(), shards_.end(), [](const auto& shard) {
    const ExternalUpdates* elsewhere = shard->external_updates();
    return elsewhere != nullptr && elsewhere->AddsElsewhere();
  });
}

Status ShardedStore::BeginUpdate(float* rate) {
  PASSEL_CHECK(open_ == Open::kNothing && !update_begun_, "Wait() for the last push first");
  StepScalars scalars{};  // SGD's are the same for each step
  for (std::size_t s = shards_.size(); s-- > 0;) {
    const Status begun = Elsewhere(s)->BeginUpdate(&scalars);
    if (begun.ok()) continue;
    while (++s < shards_.size()) Elsewhere(s)->GiveUpUpdate();
    return begun;
  }
  *rate = scalars.rate;
  update_begun_ = true;
  return {};
}

Result<Ticket> ShardedStore::EndUpdate(std::uint32_t stamp) {
  PASSEL_CHECK(next_stamp_ - stamp - 1 < kStamps, "the pull of this gradient is too long ago");
  PASSEL_CHECK(update_begun_, "an update that ends has begun");
  update_begun_ = false;
  const std::int64_t begin = MonotonicNs();
  Versions at_apply{};
  Status first;
  for (std::size_t s = shards_.size(); s-- > 0;) {
    Status ended = Elsewhere(s)->EndUpdate(&at_apply[s]);
    if (first.ok()) first = std::move(ended);
  }
  PASSEL_RETURN_IF_ERROR(first);
  PASSEL_RETURN_IF_ERROR(CountUpdate(at_apply, stamp));
  Increment(counters().fused_updates);
  // No latency: when the update itself began and ended nobody knows.
  Increment(counters().push_ns, static_cast<std::uint64_t>(MonotonicNs() - begin));
  return Ticket{next_ticket_++};
}

void ShardedStore::GiveUpUpdate() {
  PASSEL_CHECK(update_begun_, "an update that is given up has begun");
  update_begun_ = false;
  for (std::size_t s = 0; s < shards_.size(); ++s) Elsewhere(s)->GiveUpUpdate();
}

}  // namespace passel

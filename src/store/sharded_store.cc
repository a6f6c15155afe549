#include "store/sharded_store.h"

#include <algorithm>
#include <utility>

#include "base/atomic_word.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/histogram.h"
#include "optim/update_formulas.h"
#include "optim/update_kernels.h"

namespace passel {
namespace {

#if defined(PASSEL_ATOMIC_VALUES)
constexpr bool kViewsAreCopies = true;  // sanitizer builds: every access to shared values is atomic
#else
constexpr bool kViewsAreCopies = false;
#endif

}  // namespace

ShardedStore::ShardedStore(VariableTable table, const ShardRules& rules, int worker,
                           std::unique_ptr<Lead> lead, std::vector<std::unique_ptr<Shard>> shards)
    : table_(std::move(table)),
      rules_(rules),
      worker_(worker),
      lead_(std::move(lead)),
      shards_(std::move(shards)) {
  PASSEL_CHECK(!shards_.empty() && static_cast<int>(shards_.size()) == table_.shards(),
               "one shard for each ps task of the table");
  shared_values_.resize(table_.size());
  rules_.mode = {};  // no mode yet: it has no part in rounds
}

void ShardedStore::UseValues(std::size_t shard, const float* values) {
  for (VarId id = 0; id < table_.size(); ++id) {
    const VariableInfo& v = table_[id];
    if (static_cast<std::size_t>(v.shard) == shard) shared_values_[id] = values + v.offset;
  }
}

void ShardedStore::UseRules() {
  quota_ = rounds() ? rules_.Quota(worker_) : 1;
  next_slot_ = 0;  // rounds read that one
  gradient_values_.clear();
  const int slots = shards_[0]->gradient_slots() + (quota_ > 1 ? 1 : 0);
  for (int slot = 0; slot < slots; ++slot) {
    auto& pointers = gradient_values_.emplace_back();
    for (const VariableInfo& v : table_.all()) {
      pointers.push_back(shards_[static_cast<std::size_t>(v.shard)]->gradient(slot) + v.offset);
    }
  }
}

Result<ParamView> ShardedStore::Pull(PullMode mode) {
  if (prefetch_) PASSEL_RETURN_IF_ERROR(PullAhead());
  const std::uint32_t stamp = next_stamp_++;
  Versions& versions = pulled_[stamp % kStamps];
  for (std::size_t s = 0; s < shards_.size(); ++s) {
    PulledShard& pulled = at_pull_[s];
    const float* const before = pulled.values;
    PASSEL_RETURN_IF_ERROR(shards_[s]->Pull(&pulled));
    if (pulled.values != before) UseValues(s, pulled.values);
    if (!rounds()) versions[s] = pulled.version;
  }
  // Over a wire what the lead says came with the values; in shared memory they are read from here
  // on. What is complete on all shards. A worker that no round waits for may look in the middle of
  // one: it is told the version before, and its gradient will be too late.
  if (rounds()) versions.fill(PulledRound());
  if (stopped()) {
    PASSEL_RETURN_IF_ERROR(EndRounds());
    return Cancelled("the job was stopped");
  }
  PASSEL_RETURN_IF_ERROR(lead_->CheckAlive());
  if (!entered_) {
    return FailedPrecondition(
        "this task has not seen the variables initialised: call WaitUntilInitialized() first");
  }
  if (rules_.bounded() && open_ == Open::kNothing) {
    RaiseTo(counters().max_clock_lead, lead_->ClockLead());
  }
  const auto own = [](const PulledShard& pulled) { return pulled.own; };
  if ((mode == PullMode::kView && !kViewsAreCopies) ||
      std::all_of(at_pull_.begin(), at_pull_.begin() + table_.shards(), own)) {
    return ParamView(shared_values_.data(), &table_, versions[0], stamp);
  }
  if (copies_.empty()) {
    for (int s = 0; s < table_.shards(); ++s) copies_.emplace_back(table_.ShardFloats(s));
    for (const VariableInfo& v : table_.all()) {
      const float* const copy = copies_[static_cast<std::size_t>(v.shard)].floats().data();
      copied_values_.push_back(copy + v.offset);
    }
  }
  for (std::size_t s = 0; s < shards_.size(); ++s) {
    shards_[s]->CopyAll(copies_[s].floats().data());
  }
  return ParamView(copied_values_.data(), &table_, versions[0], stamp);
}

std::uint64_t ShardedStore::PulledRound() const {
  std::uint64_t round = lead_->completed_round();
  for (std::size_t s = 0; s < shards_.size(); ++s) round = std::min(round, at_pull_[s].round);
  return round;
}

Result<ParamView> ShardedStore::PullLast() {
  PASSEL_RETURN_IF_ERROR(EndAhead());
  // What came with the answer to the last push others may have written since: the second pull in a
  // row is of now.
  for (std::size_t i = 0; i < 2 * shards_.size(); ++i) {
    const std::size_t s = i % shards_.size();
    PulledShard& pulled = at_pull_[s];
    const float* const before = pulled.values;
    PASSEL_RETURN_IF_ERROR(shards_[s]->Pull(&pulled));
    if (pulled.values != before) UseValues(s, pulled.values);
  }
  return ParamView(shared_values_.data(), &table_, at_pull_[0].version, next_stamp_++);
}

GradientBuffer ShardedStore::LendGradient() {
  int slot = next_slot_;
  if (!rounds()) {
    next_slot_ = (next_slot_ + 1) % shards_[0]->gradient_slots();
  } else if (summed_ > 0) {
    // Rounds read slot 0 of every member, and there the sum is.
    slot = shards_[0]->gradient_slots();
  }
  return GradientBuffer(gradient_values_[static_cast<std::size_t>(slot)].data(), &table_, slot);
}

GradientBuffer ShardedStore::UseGradient(const float* const* values) {
  callers_values_.resize(table_.size());
  // Nobody writes there: what takes them copies them, or is given parts.
  for (VarId id = 0; id < table_.size(); ++id) callers_values_[id] = const_cast<float*>(values[id]);
  return GradientBuffer(callers_values_.data(), &table_, GradientBuffer::kCallers);
}

bool ShardedStore::TakesParts() const {
  return !rounds() && !prefetch_ &&
         std::ranges::all_of(shards_, [](const auto& shard) { return shard->TakesParts(); });
}

Status ShardedStore::ApplyCallers(std::size_t shard, Deadline deadline, Version* version_before) {
  parts_.resize(shards_.size());
  std::vector<GradientPart>& parts = parts_[shard];
  parts.clear();
  for (VarId id = 0; id < table_.size(); ++id) {
    const VariableInfo& v = table_[id];
    if (static_cast<std::size_t>(v.shard) != shard) continue;
    parts.push_back({v.offset, v.offset + v.elements, v.group, callers_values_[id]});
  }
  // A shard without variables.
  if (parts.empty()) return shards_[shard]->Apply(0, deadline, version_before);
  return shards_[shard]->ApplyParts(parts, deadline, version_before);
}

bool ShardedStore::GradientIsFinite(const GradientBuffer& gradient, std::string* variable) const {
  for (VarId id = 0; id < table_.size(); ++id) {
    const std::span<const float> values = gradient.values(id);
    if (AllFinite(values.data(), values.size())) continue;
    if (variable != nullptr) *variable = table_[id].name;
    return false;
  }
  return true;
}

std::uint64_t ShardedStore::Staleness(const Versions& at_apply, std::uint32_t stamp) const {
  std::uint64_t largest = 0;
  const Versions& pulled = pulled_[stamp % kStamps];
  for (std::size_t s = 0; s < shards_.size(); ++s) {
    if (at_apply[s] > pulled[s]) largest = std::max(largest, at_apply[s] - pulled[s]);
  }
  return largest;
}

std::uint64_t ShardedStore::RoundsSince(std::uint32_t stamp, std::uint64_t round) const {
  const Version pulled = pulled_[stamp % kStamps][0];  // in rounds of all shards
  return round > pulled ? round - pulled : 0;
}

PushOutcome ShardedStore::OutcomeAt(std::uint64_t round) {
  PushOutcome outcome;
  outcome.version = round;
  outcome.global_step = static_cast<std::int64_t>(round);
  return outcome;
}

Result<Ticket> ShardedStore::Push(const GradientBuffer& gradient, std::uint32_t stamp,
                                  Deadline deadline) {
  const bool callers = gradient.slot() == GradientBuffer::kCallers;
  if (callers && !TakesParts()) {
    if (prefetch_) PASSEL_RETURN_IF_ERROR(EndAhead());  // the slot may be on its way still
    const GradientBuffer lent = LendGradient();
    for (VarId id = 0; id < table_.size(); ++id) {
      std::ranges::copy(gradient.values(id), lent.values(id).begin());
    }
    return Push(lent, stamp, deadline);
  }
  PASSEL_CHECK(next_stamp_ - stamp - 1 < kStamps, "the pull of this gradient is too long ago");
  PASSEL_CHECK((open_ == Open::kNothing || (prefetch_ && open_ == Open::kStep)) &&
                   ahead_.state != ahead_.kPushed && !update_begun_,
               "Wait() for the last push first");
  const std::int64_t begin = MonotonicNs();
  WorkerCounters& count = counters();
  if (rounds()) {
    PASSEL_RETURN_IF_ERROR(PushToRound(gradient.slot(), stamp));
  } else if (prefetch_) {
    PASSEL_RETURN_IF_ERROR(PushAhead(gradient.slot(), stamp, deadline));
  } else {
    Versions at_apply{};
    for (std::size_t s = shards_.size(); s-- > 0;) {
      PASSEL_RETURN_IF_ERROR(callers ? ApplyCallers(s, deadline, &at_apply[s])
                                     : shards_[s]->Apply(gradient.slot(), deadline, &at_apply[s]));
    }
    PASSEL_RETURN_IF_ERROR(CountUpdate(at_apply, stamp));
    CountStep();
  }
  const std::int64_t end = MonotonicNs();
  Increment(count.push_ns, static_cast<std::uint64_t>(end - begin));
  if (!rounds()) Record(count.push_latency_ns, static_cast<std::uint64_t>(end - begin));
  return Ticket{next_ticket_++};
}

// Takes the gradient into the sum of this worker, and arrives when that is whole. Sets `outcome_`
// unless a round is to be waited for.
Status ShardedStore::PushToRound(int slot, std::uint32_t stamp) {
  const std::uint64_t completed = lead_->completed_round();
  bool too_late = false;
  if (rules_.mode.mode == Mode::kReplicas) {
    PASSEL_CHECK(slot == 0 || summed_ > 0, "this gradient was lent before its set was dropped");
    const std::uint64_t base = pulled_[stamp % kStamps][0];
    too_late = base != completed || (summed_ > 0 && summed_base_ != completed);
  }
  // Who pulled after the last round in this mode: nobody else comes to another one.
  if (too_late || lead_->ChangeDue()) {
    PASSEL_RETURN_IF_ERROR(lead_->CheckAlive());
    outcome_ = OutcomeAt(completed);
    outcome_.staleness = RoundsSince(stamp, completed);
    outcome_.gradients = std::exchange(summed_, 0) + 1;  // all that belong to it
    Increment(counters().dropped, static_cast<std::uint64_t>(outcome_.gradients));
    CountStep();
    open_ = Open::kDropped;
    return {};
  }
  for (const auto& shard : shards_) PASSEL_RETURN_IF_ERROR(shard->Stage(slot));
  if (summed_ + 1 < quota_) {
    PASSEL_RETURN_IF_ERROR(lead_->CheckAlive());
    ++summed_;
    summed_base_ = completed;
    outcome_ = OutcomeAt(completed);
    outcome_.applied = true;
    outcome_.gradients = 0;
    CountStep();
    return {};
  }
  round_ = completed + 1;
  round_stamp_ = stamp;
  PASSEL_RETURN_IF_ERROR(lead_->Arrive(round_));
  round_span_ = nvtx::Span(nvtx::Event::kRound, static_cast<std::int64_t>(round_));
  open_ = Open::kRound;
  return {};
}

void ShardedStore::CountStep() {
  WorkerCounters& count = counters();
  Increment(count.local_steps);
  if (on_step_ && summed_ == 0) on_step_();
  if (!cursor_said_) return;
  cursor_said_ = false;
  count.cursor_epochs.store(cursor_.epochs, std::memory_order_relaxed);
  count.cursor_index.store(cursor_.index, std::memory_order_relaxed);
}

// One update more, which all shards have.
Status ShardedStore::CountUpdate(const Versions& at_apply, std::uint32_t stamp) {
  outcome_ = PushOutcome();
  PASSEL_RETURN_IF_ERROR(lead_->CountUpdate(&outcome_.global_step));
  outcome_.applied = true;
  outcome_.version = at_apply[0] + 1;
  outcome_.staleness = Staleness(at_apply, stamp);
  Record(counters().staleness, outcome_.staleness);
  if (rules_.bounded()) open_ = Open::kStep;
  return {};
}

Result<PushOutcome> ShardedStore::Wait(Ticket ticket, Deadline deadline) {
  PASSEL_CHECK(ticket.id + 1 == next_ticket_, "only the last push can be waited for");
  if (ahead_.state >= ahead_.kPushed) {
    if (ahead_.state == ahead_.kFailed) return ahead_.failed;
    if (!ApplySoon()) return GoAhead(deadline);
    PASSEL_RETURN_IF_ERROR(ApplyAhead());
  }
  switch (open_) {
    case Open::kNothing:
    case Open::kChange:
      break;
    case Open::kRound:
      PASSEL_RETURN_IF_ERROR(FinishRound(deadline));
      break;
    case Open::kDropped:
      // Nobody waits for us. But who pulls in the middle of a round comes too late again.
      PASSEL_RETURN_IF_ERROR(FinishInterruptedRound(deadline));
      open_ = Open::kNothing;
      break;
    case Open::kStep:
      PASSEL_RETURN_IF_ERROR(FinishStep(deadline));
      break;
  }
  // Between two gradients of one set there is no end of a step.
  if (open_ == Open::kChange || (summed_ == 0 && lead_->ChangeDue())) {
    open_ = Open::kChange;
    const std::int64_t begin = MonotonicNs();
    nvtx::Range range(nvtx::Event::kChangeMode, OwnSteps());
    const Status changed = ChangeMode(deadline);
    range.Close();
    Increment(counters().wait_ns, static_cast<std::uint64_t>(MonotonicNs() - begin));
    // The push stands; the next pull says that the job was stopped.
    if (!changed.ok() && changed.code() != Code::kCancelled) return changed;
    open_ = Open::kNothing;
  }
  return outcome_;
}

Status ShardedStore::FinishStep(Deadline deadline) {
  const nvtx::Range range(nvtx::Event::kAwaitSlowest, OwnSteps());
  const std::int64_t begin = MonotonicNs();
  const Status near_enough = lead_->AwaitSlowest(deadline);
  Increment(counters().wait_ns, static_cast<std::uint64_t>(MonotonicNs() - begin));
  PASSEL_RETURN_IF_ERROR(near_enough);
  open_ = Open::kNothing;
  return {};
}

Status ShardedStore::FinishRound(Deadline deadline) {
  WorkerCounters& count = counters();
  const std::int64_t begin = MonotonicNs();
  nvtx::Range await_range(nvtx::Event::kAwaitRound, static_cast<std::int64_t>(round_));
  Result<RoundGrant> grant = lead_->AwaitRound(round_, deadline);
  await_range.Close();
  std::int64_t decided = MonotonicNs();
  Increment(count.wait_ns, static_cast<std::uint64_t>(decided - begin));
  if (!grant.ok()) return grant.status();

  // Counted or not: the next gradient must not come before this round is over.
  PASSEL_RETURN_IF_ERROR(Complete(*grant, deadline));
  round_span_.End();
  const bool applied = grant->Counts(worker_);
  outcome_ = OutcomeAt(applied ? round_ : lead_->completed_round());
  outcome_.applied = applied;
  outcome_.gradients = quota_;
  outcome_.staleness = RoundsSince(round_stamp_, applied ? round_ - 1 : outcome_.version);
  if (applied) {
    for (int i = 0; i < quota_; ++i) Record(count.staleness, outcome_.staleness);
  } else {  // it came too late
    Increment(count.dropped, static_cast<std::uint64_t>(quota_));
  }
  open_ = Open::kNothing;
  summed_ = 0;
  CountStep();
  const std::int64_t end = MonotonicNs();
  Increment(count.push_ns, static_cast<std::uint64_t>(end - decided));
  Record(count.push_latency_ns, static_cast<std::uint64_t>(end - begin));
  return {};
}

// --- A push whose update is made by the step that computes its gradient --------------------------

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
  CountStep();
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

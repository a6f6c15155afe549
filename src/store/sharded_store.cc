#include "store/sharded_store.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/clock.h"
#include "optim/update_kernels.h"
#include "store/histogram.h"

namespace passel {
namespace {

#if defined(PASSEL_ATOMIC_VALUES)
constexpr bool kViewsAreCopies = true;  // sanitizer builds: every access to shared values is atomic
#else
constexpr bool kViewsAreCopies = false;
#endif

std::int64_t RowElements(const VariableInfo& v) {
  std::int64_t elements = 1;
  for (std::size_t d = 1; d < v.shape.size(); ++d) elements *= v.shape[d];
  return elements;
}

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
  UseRules();
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

ShardedStore::~ShardedStore() = default;

Status ShardedStore::CheckSelection(const Selection& what) const {
  for (const Selection::Rows& rows : what.rows()) {
    if (rows.variable >= table_.size()) {
      return InvalidArgument(fmt::format("there is no variable {}, the last one is {}",
                                         rows.variable, table_.size() - 1));
    }
    const VariableInfo& v = table_[rows.variable];
    if (rows.first_row < 0 || rows.rows < 0 || v.shape.empty() ||
        rows.first_row > v.shape[0] - rows.rows) {
      return InvalidArgument(fmt::format("\"{}\" has {} rows: {} rows from row {} on do not exist",
                                         v.name, v.shape.empty() ? 0 : v.shape[0], rows.rows,
                                         rows.first_row));
    }
  }
  return {};
}

Result<ParamView> ShardedStore::Pull(const Selection& what, PullMode mode) {
  if (!what.everything()) PASSEL_RETURN_IF_ERROR(CheckSelection(what));
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
  if (rounds()) versions.fill(lead_->completed_round());
  if (stopped()) {
    PASSEL_RETURN_IF_ERROR(EndRounds());
    return Cancelled("the job was stopped");
  }
  PASSEL_RETURN_IF_ERROR(lead_->CheckAlive());
  if (!entered_) {
    return FailedPrecondition(
        "this task has not seen the variables initialised: call WaitUntilInitialized() first");
  }
  if (rules_.mode == Mode::kSsp && open_ == Open::kNothing) {
    auto& most = counters().max_clock_lead;
    if (const std::uint64_t ahead = lead_->ClockLead();
        ahead > most.load(std::memory_order_relaxed)) {
      most.store(ahead, std::memory_order_relaxed);
    }
  }
  const auto own = [](const PulledShard& pulled) { return pulled.own; };
  if ((mode == PullMode::kView && !kViewsAreCopies) ||
      std::all_of(at_pull_.begin(), at_pull_.begin() + table_.shards(), own)) {
    return ParamView(shared_values_.data(), &table_, versions[0], stamp);
  }
  if (copied_values_.empty()) {
    std::size_t floats = 0;
    for (int s = 0; s < table_.shards(); ++s) floats += table_.ShardFloats(s);
    copy_.resize(floats + kVariableAlignment);
    auto address = reinterpret_cast<std::uintptr_t>(copy_.data());
    float* next = copy_.data() + ((64 - address % 64) % 64) / sizeof(float);
    for (int s = 0; s < table_.shards(); ++s) {
      copied_shards_.push_back(next);
      next += table_.ShardFloats(s);
    }
    for (const VariableInfo& v : table_.all()) {
      copied_values_.push_back(copied_shards_[static_cast<std::size_t>(v.shard)] + v.offset);
    }
  }
  const auto copy_rows = [&](VarId id, std::size_t first, std::size_t count) {
    CopyValues(const_cast<float*>(copied_values_[id]) + first, shared_values_[id] + first, count);
  };
  if (what.everything()) {
    for (std::size_t s = 0; s < shards_.size(); ++s) shards_[s]->CopyAll(copied_shards_[s]);
  } else {
    for (const Selection::Rows& rows : what.rows()) {
      const VariableInfo& v = table_[rows.variable];
      const std::int64_t row = RowElements(v);
      copy_rows(rows.variable, static_cast<std::size_t>(rows.first_row * row),
                static_cast<std::size_t>(rows.rows * row));
    }
  }
  return ParamView(copied_values_.data(), &table_, versions[0], stamp);
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

Result<Ticket> ShardedStore::Push(const GradientBuffer& gradient, std::uint32_t stamp,
                                  Deadline deadline) {
  PASSEL_CHECK(next_stamp_ - stamp - 1 < kStamps, "the pull of this gradient is too long ago");
  PASSEL_CHECK(open_ == Open::kNothing && !update_begun_, "Wait() for the last push first");
  const std::int64_t begin = MonotonicNs();
  WorkerCounters& count = counters();
  if (rounds()) {
    PASSEL_RETURN_IF_ERROR(PushToRound(gradient.slot(), stamp));
  } else {
    PASSEL_RETURN_IF_ERROR(PushNow(gradient.slot(), stamp, deadline));
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
  if (rules_.mode == Mode::kReplicas) {
    PASSEL_CHECK(slot == 0 || summed_ > 0, "this gradient was lent before its set was dropped");
    const std::uint64_t base = pulled_[stamp % kStamps][0];
    too_late = base != completed || (summed_ > 0 && summed_base_ != completed);
  }
  // Who pulled after the last round in this mode: nobody else comes to another one.
  if (too_late || lead_->ChangeDue()) {
    PASSEL_RETURN_IF_ERROR(lead_->CheckAlive());
    DropSet(summed_ + 1, completed, stamp);
    open_ = Open::kDropped;
    return {};
  }
  for (const auto& shard : shards_) PASSEL_RETURN_IF_ERROR(shard->Stage(slot));
  if (summed_ + 1 < quota_) {
    PASSEL_RETURN_IF_ERROR(lead_->CheckAlive());
    ++summed_;
    summed_base_ = completed;
    outcome_ = PushOutcome();
    outcome_.applied = true;
    outcome_.version = completed;
    outcome_.global_step = static_cast<std::int64_t>(completed);
    outcome_.gradients = 0;
    Increment(counters().local_steps);
    return {};
  }
  round_ = completed + 1;
  round_stamp_ = stamp;
  PASSEL_RETURN_IF_ERROR(lead_->Arrive(round_));
  round_span_ = nvtx::Span(nvtx::Event::kRound, static_cast<std::int64_t>(round_));
  open_ = Open::kRound;
  return {};
}

// The last of `gradients` gradients was just pushed, and all of them are too late.
void ShardedStore::DropSet(int gradients, std::uint64_t completed, std::uint32_t stamp) {
  summed_ = 0;
  Increment(counters().dropped, static_cast<std::uint64_t>(gradients));
  Increment(counters().local_steps);
  outcome_ = PushOutcome();
  outcome_.version = completed;
  outcome_.global_step = static_cast<std::int64_t>(completed);
  Versions now;
  now.fill(completed);
  outcome_.staleness = Staleness(now, stamp);
  outcome_.gradients = gradients;
}

Status ShardedStore::PushNow(int slot, std::uint32_t stamp, Deadline deadline) {
  Versions at_apply{};
  for (std::size_t s = shards_.size(); s-- > 0;) {
    PASSEL_RETURN_IF_ERROR(shards_[s]->Apply(slot, deadline, &at_apply[s]));
  }
  return CountUpdate(at_apply, stamp);
}

// One update more, which all shards have, and one step more of this worker.
Status ShardedStore::CountUpdate(const Versions& at_apply, std::uint32_t stamp) {
  outcome_ = PushOutcome();
  PASSEL_RETURN_IF_ERROR(lead_->CountUpdate(&outcome_.global_step));
  outcome_.applied = true;
  outcome_.version = at_apply[0] + 1;
  outcome_.staleness = Staleness(at_apply, stamp);
  Record(counters().staleness, outcome_.staleness);
  Increment(counters().local_steps);
  if (rules_.mode == Mode::kSsp) open_ = Open::kStep;
  return {};
}

Result<PushOutcome> ShardedStore::Wait(Ticket ticket, Deadline deadline) {
  PASSEL_CHECK(ticket.id + 1 == next_ticket_, "only the last push can be waited for");
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

  PushOutcome outcome;
  outcome.applied = grant->Counts(worker_);
  outcome.gradients = quota_;
  // Counted or not: the next gradient must not come before this round is over.
  PASSEL_RETURN_IF_ERROR(Complete(*grant, deadline));
  round_span_.End();
  if (outcome.applied) {
    Versions at_apply;
    at_apply.fill(round_ - 1);
    outcome.staleness = Staleness(at_apply, round_stamp_);
    for (int i = 0; i < quota_; ++i) Record(count.staleness, outcome.staleness);
    outcome.version = round_;
  } else {  // it came too late
    Increment(count.dropped, static_cast<std::uint64_t>(quota_));
    outcome.version = lead_->completed_round();
    Versions now;
    now.fill(outcome.version);
    outcome.staleness = Staleness(now, round_stamp_);
  }
  outcome.global_step = static_cast<std::int64_t>(outcome.version);
  outcome_ = outcome;
  open_ = Open::kNothing;
  summed_ = 0;
  Increment(count.local_steps);
  const std::int64_t end = MonotonicNs();
  Increment(count.push_ns, static_cast<std::uint64_t>(end - decided));
  Record(count.push_latency_ns, static_cast<std::uint64_t>(end - begin));
  return {};
}

std::int64_t ShardedStore::global_step() const { return lead_->global_step(); }
void ShardedStore::Stop() {
  lead_->Stop();
  for (const auto& shard : shards_) shard->Stop();
}
bool ShardedStore::stopped() const { return lead_->stopped(); }
std::vector<Member> ShardedStore::membership() const { return lead_->membership(); }
std::vector<Member> ShardedStore::WaitingFor() const {
  if (open_ == Open::kRound) {
    std::vector<Member> members = lead_->Missing(WaitingOn::kRound, round_);
    for (const auto& shard : shards_) {
      if (members.empty()) members = shard->HoldersIn(round_);
    }
    return members;
  }
  if (open_ == Open::kChange && !mode_entered_) {
    return lead_->Missing(WaitingOn::kChange, lead_->CurrentMode().number + 1);
  }
  if (open_ == Open::kStep || open_ == Open::kChange) return lead_->Missing(WaitingOn::kStep, 0);
  return {};
}
WorkerCounters& ShardedStore::counters() { return lead_->counters(); }

}  // namespace passel

#include "store/local_shard.h"

#include <fmt/core.h>

#include <algorithm>
#include <new>

#include "base/atomic_word.h"
#include "base/clock.h"
#include "base/denormals.h"
#include "base/failpoint.h"
#include "base/histogram.h"
#include "base/nvtx.h"
#include "base/wait_check.h"
#include "optim/update_kernels.h"
#include "store/mode_change.h"
#include "store/rates.h"

namespace passel {
namespace {

// Hogwild: how long a worker comes back to busy blocks before it goes ahead without the claim. A
// block takes about a microsecond, so a claim that outlasts this is held by somebody descheduled.
constexpr int kAdvisoryPasses = 3;
// Where it must not go ahead: how often it yields before it does without the block. A holder that
// runs is done by then; one that is suspended or stopped delays the push by some 20 us.
constexpr int kYieldsBeforeLeavingOut = 32;
// Between two looks at a busy block. Where there is no other block the holder may well push again
// at once, and then finds values, slots and counters in its own cache, unless somebody else's turn
// has carried them away: fewer and longer turns are fair as well, and several times as fast (two
// writers, 1,000 floats, Adam: 0.6 us a push instead of 3.3, and twice as many a second).
constexpr std::chrono::nanoseconds kTurn{1'000};
constexpr std::chrono::nanoseconds kTurnAtTheOnlyBlock{3'000};

}  // namespace

void FormatShard(const ShardMemory& memory, const ModeSetting& first) {
  auto* state = new (memory.state) ShardState{};
  const ModeWord mode{0, 0, 0, first};
  state->mode.current.store(mode.Pack(), std::memory_order_relaxed);
  state->mode.records[0].setting.store(mode.Pack(), std::memory_order_relaxed);
  new (memory.events) EventRing{};
  for (int i = 0; i < memory.num_workers; ++i) {
    auto* task = new (&memory.tasks[i]) TaskSlot{};
    task->counters.final_accuracy.store(-1.0, std::memory_order_relaxed);
    if (i < memory.num_workers - memory.spare_workers) continue;
    task->state.store(TaskState{0, Phase::kSpare}.Pack(), std::memory_order_relaxed);
  }
  for (std::size_t b = 0; b < memory.num_blocks; ++b) new (&memory.blocks[b]) BlockState{};
}

LocalShard::LocalShard(const ShardMemory& memory, std::shared_ptr<LocalWorker> life)
    : life_(std::move(life)),
      memory_(memory),
      lead_(life_->lead()),
      rules_(life_->rules()),
      worker_(life_->index()),
      epoch_(life_->epoch()),
      random_(StreamSeed(0x5eed, static_cast<std::uint64_t>(worker_), epoch_)),
      order_(memory.num_blocks, worker_, memory.num_workers),
      todo_(memory.num_blocks),
      scalars_(static_cast<std::size_t>(memory.num_groups)),
      gradients_(static_cast<std::size_t>(memory.num_workers)),
      span_gradients_(static_cast<std::size_t>(memory.num_workers)) {
  // Of a former life, which may have died there.
  memory.tasks[worker_].overlapping.store(0, std::memory_order_relaxed);
  if (memory.state == lead_.state) return;
  Failpoint("join.follow");
  passel::Follow(memory, worker_, epoch_, life_->identity());
}

Status LocalShard::Pull(PulledShard* pulled) {
  pulled->values = memory_.values;
  pulled->version = memory_.state->version.load(std::memory_order_acquire);
  return {};
}

Status LocalShard::Open(const ShardStart& start) {
  for (int s = 0; s < memory_.num_slots && !start.with_slots; ++s) {
    std::fill_n(memory_.slots[s], memory_.floats, SlotInitialValue(rules_.optimizer, s));
  }
  Failpoint("chief.before_open");
  // Relaxed: before `initialized`.
  memory_.state->cohort.store(start.cohort, std::memory_order_relaxed);
  memory_.state->version.store(start.version, std::memory_order_relaxed);
  memory_.state->optimizer_step.store(start.optimizer_step, std::memory_order_relaxed);
  if (start.round != 0) (void)PrepareChange(start.round);
  // Release: who sees 1 sees the values.
  memory_.state->initialized.store(1, std::memory_order_seq_cst);
  Notify(memory_.state->event);
  return {};
}

bool LocalShard::initialized() const {
  return memory_.state->initialized.load(std::memory_order_acquire) != 0;
}

Status LocalShard::WaitUntilInitialized(Deadline deadline) {
  const std::int64_t begin = MonotonicNs();
  const bool done = WaitFor(
      memory_.state->event, life_->options().spin, deadline,
      [&] { return initialized() || stopped(); }, [&] { life_->Heartbeat(); });
  life_->Heartbeat();  // the chief may have taken longer than the stall limit
  if (stopped()) return Cancelled("the job was stopped before its variables were initialised");
  if (!done) {
    return DeadlineExceeded(fmt::format(
        "the chief has not initialised the variables within {:.3g} s: start it, or wait longer",
        1e-9 * static_cast<double>(MonotonicNs() - begin)));
  }
  return {};
}

void LocalShard::Leave(Phase end) { passel::Leave(memory_, worker_, epoch_, end); }

void LocalShard::Stop() {
  memory_.state->stop.store(1, std::memory_order_seq_cst);
  Notify(memory_.state->event);
}

Status LocalShard::EnterMode(const ModeWord& mode) {
  rules_.mode = mode.setting;
  mode_number_ = mode.number;
  // On the other shards, for who looks at that shard alone. On the lead it is there already.
  RaiseTo(memory_.state->mode.current,
          ModeWord{mode.number, 0, mode.scheduled, mode.setting}.Pack());
  if (!rules_.rounds() || rules_.Quota(worker_) == 1 || addend_) return {};
  try {
    addend_.emplace(memory_.floats);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted(fmt::format(
        "no memory for {} values of gradient: use a smaller model, or a --replicas_to_aggregate "
        "of at most {}, the number of workers",
        memory_.floats, rules_.num_workers));
  }
  return {};
}

Status LocalShard::PrepareChange(std::uint64_t step) {
  for (std::size_t b = 0; b < memory_.num_blocks; ++b) RaiseTo(memory_.blocks[b].round, step);
  RaiseTo(memory_.state->completed_round, step);
  Replace(memory_.state->decision, [&](std::uint64_t word) {
    // What a fenced worker decides now, fails.
    Decision next = Decision::Unpack(NextGeneration<Decision>(word));
    if (next.round < step) {
      next = {step, next.generation, 0, 0, next.rates};
    } else if (next.round == step && next.ends != Decision::EndOf(mode_number_)) {
      next.ends = 0;  // of a mode long ago
    }
    return next.Pack();
  });
  return {};
}

// Several gradients of one round are added up: the others are added to slot 0.
Status LocalShard::Stage(int slot) {
  if (slot < memory_.gradient_slots) return {};  // it was computed in place
  float* sum = memory_.Gradient(worker_, 0);
  const float* const both[] = {sum, addend_->floats().data()};
  SumGradients(sum, both, 2, 1.0F, memory_.floats);
  return {};
}

void LocalShard::CopyAll(float* out) {
  order_.Pass([&](std::size_t begin, std::size_t end) {
    const std::size_t first = memory_.BlockBegin(begin);
    CopyValues(out + first, memory_.values + first,
               memory_.BlockBegin(end - 1) + memory_.BlockSize(end - 1) - first);
  });
}

void LocalShard::ApplySpan(const Update& update, Span span, std::size_t next) {
  if (!parts_.empty()) return ApplySpanOfParts(update, span);
  if (update.groups != nullptr) return ApplyGroups(update, span, next);
  float* slots[kMaxSlots];
  for (int s = 0; s < memory_.num_slots; ++s) slots[s] = memory_.slots[s] + span.begin;
  float* const values = memory_.values + span.begin;
  if (update.weight == 1) {
    passel::Apply(*update.scalars, values, slots, update.gradients[0] + span.begin, span.size);
    return;
  }
  for (int k = 0; k < update.count; ++k) {
    span_gradients_[static_cast<std::size_t>(k)] = update.gradients[k] + span.begin;
  }
  ApplyMean(*update.scalars, values, slots, span_gradients_.data(), update.count,
            static_cast<float>(update.weight), span.size, next);
}

// In parts, where groups of variables meet in it.
void LocalShard::ApplyGroups(const Update& update, Span span, std::size_t next) {
  auto group = std::ranges::upper_bound(*update.groups, span.begin, {}, &GroupSpan::end);
  for (const std::size_t end = span.begin + span.size;; ++group) {
    const std::size_t part_end = std::min(group->end, end);
    const bool last = part_end == end;
    Update part = update;
    part.groups = nullptr;
    part.scalars += group->group;
    ApplySpan(part, {span.begin, part_end - span.begin}, last ? next : 0);
    if (last) return;
    span.begin = part_end;
  }
}

// What is between them is padding.
void LocalShard::ApplySpanOfParts(const Update& update, Span span) {
  const std::size_t end = span.begin + span.size;
  auto part = std::ranges::upper_bound(parts_, span.begin, {}, &GradientPart::end);
  for (; part != parts_.end() && part->begin < end; ++part) {
    const std::size_t first = std::max(part->begin, span.begin);
    float* slots[kMaxSlots];
    for (int s = 0; s < memory_.num_slots; ++s) slots[s] = memory_.slots[s] + first;
    passel::Apply(update.scalars[update.groups != nullptr ? part->group : 0],
                  memory_.values + first, slots, part->values + (first - part->begin),
                  std::min(part->end, end) - first);
  }
}

Status LocalShard::ApplyParts(std::span<const GradientPart> parts, Deadline deadline,
                              Version* version_before) {
  const struct Parts {  // they go also where memory runs out
    ~Parts() { *of = {}; }
    std::span<const GradientPart>* const of;
  } end{&parts_};
  parts_ = parts;
  return Apply(0, deadline, version_before);
}

Status LocalShard::Apply(int slot, Deadline deadline, Version* version_before) {
  PASSEL_CHECK(!rules_.rounds(), "Apply() is for the async modes");
  // Once: setting the mode for each block would cost more than its claim.
  const FlushDenormals flush;
  if (!Alive()) return CheckAlive();
  const std::int64_t step = BeginPush();
  const nvtx::Range range(nvtx::Event::kApply, step);
  // Acquire, paired with the release of UseRates(): the set is whole.
  const StepScalars* const scalars =
      PrepareGroups(memory_.state->rates.now.load(std::memory_order_acquire), step);
  const Status result = external_ != nullptr ? ApplyElsewhere(slot, scalars[0], deadline)
                                             : ApplyHere(slot, scalars, deadline);
  Failpoint("push.before_version");
  if (result.ok()) return EndPush(version_before);
  GiveUpUpdate();
  return result;
}

// Returns the number of its update.
std::int64_t LocalShard::BeginPush() {
  Heartbeat();
  Increment(counters().pushes_begun);
  // Relaxed: a ticket; what the update needs to see is ordered by the claims.
  return memory_.state->optimizer_step.fetch_add(1, std::memory_order_relaxed) + 1;
}

Status LocalShard::EndPush(Version* version_before) {
  Increment(counters().pushes_ended);
  const bool alive = Alive();
  // If the job went over to another mode without us, the versions may be the numbers of rounds.
  if (!alive && CurrentModeNumber(memory_) != mode_number_) return CheckAlive();
  // Release: who sees the new version and pulls sees this update, unless a later one replaced it.
  *version_before = memory_.state->version.fetch_add(1, std::memory_order_acq_rel);
  return alive ? Status() : CheckAlive();
}

void LocalShard::GiveUpUpdate() {
  Increment(counters().half_applied);
  Increment(counters().pushes_ended);
}

// The scalars of update `t`, of each group; `set` is of RatesState.
const StepScalars* LocalShard::PrepareGroups(std::uint32_t set, std::int64_t t) {
  if (set == 0) {
    new (scalars_.data()) StepScalars(Prepare(rules_.optimizer, t));  // in place: no copy
    for (std::size_t g = 1; g < scalars_.size(); ++g) scalars_[g] = scalars_[0];
    return scalars_.data();
  }
  for (std::size_t g = 0; g < scalars_.size(); ++g) {
    const GroupRates rates = ReadRates(memory_, set, static_cast<int>(g));
    scalars_[g] = Prepare(WithRates(rules_.optimizer, rates), t);
  }
  return scalars_.data();
}

Result<std::uint32_t> LocalShard::SetRates(const RatesStep& step) {
  if (!Alive()) return CheckAlive();
  if (worker_ != 0) return OnlyTheChiefSetsRates();
  if (external_ != nullptr) {
    return FailedPrecondition(
        "parameters in GPU memory (--arena device) keep the learning rate that the job began with: "
        "use --arena host to change it");
  }
  const std::uint32_t set = step.set != 0 ? step.set : NextRates(memory_);
  if (step.write) {
    PASSEL_RETURN_IF_ERROR(Validate(rules_.optimizer, memory_.num_groups, step.rates));
    WriteRates(memory_, set, step.rates);
  }
  Failpoint("rates.written");
  if (step.use) UseRates(memory_, set);
  return set;
}

Status LocalShard::ApplyHere(int slot, const StepScalars* scalars, Deadline deadline) {
  WorkerCounters& count = counters();
  const bool binding = rules_.binding();
  const bool whole_slots = !binding && NeedsWholeSlots(rules_.optimizer.kind);
  const float* gradient = memory_.Gradient(worker_, slot);
  const Update update{scalars, memory_.groups.get(), &gradient, 1, 1};
  const Claim mine = MyClaim();

  std::size_t left = 0;
  order_.Pass([&](std::size_t begin, std::size_t end) {
    for (std::size_t b = begin; b < end; ++b) todo_[left++] = static_cast<std::uint32_t>(b);
  });
  ClaimPatience patience(*watch_, memory_.num_blocks == 1 ? kTurnAtTheOnlyBlock : kTurn);
  for (int pass = 1; left > 0; ++pass) {
    const bool go_ahead = !binding && !whole_slots && pass > kAdvisoryPasses;
    std::size_t busy = 0;
    for (std::size_t i = 0; i < left; ++i) {
      const std::size_t b = todo_[i];
      BlockState& block = memory_.blocks[b];
      bool claimed = TryClaim(block, mine);
      if (!claimed && pass > 1 && TryTakeOver(lead_, block, mine)) {
        Increment(count.taken_over_blocks);
        nvtx::Mark(nvtx::Event::kBlockTakenOver, static_cast<std::int64_t>(b));
        claimed = true;
      }
      if (claimed) {
        // Fenced off while we were stopped: what we hold may be somebody else's by now.
        if (!Alive()) return CheckAlive();
        Failpoint("push.claimed");
        ApplySpan(update, {memory_.BlockBegin(b), memory_.BlockSize(b)}, 0);
        ReleaseClaim(block, mine);
      } else if (go_ahead) {
        if (!Alive()) return CheckAlive();
        Increment(count.overlapped_blocks);
        ApplyWithoutClaim(update, b);
      } else {
        todo_[busy++] = static_cast<std::uint32_t>(b);
      }
    }
    left = busy;
    if (left == 0) continue;
    if (pass == 1) Increment(count.busy_blocks, left);
    const BlockState& blocker = memory_.blocks[todo_[0]];
    if (whole_slots) {
      if (patience.Wait(blocker, deadline) && patience.yields() < kYieldsBeforeLeavingOut) continue;
      Increment(count.overlapped_blocks, left);
      return watch_->failure();
    }
    if (binding) PASSEL_RETURN_IF_ERROR(AwaitHolder(patience, blocker, deadline));
  }
  return {};
}

// Whoever copies the block meanwhile sees that it is being changed, or that it was.
void LocalShard::ApplyWithoutClaim(const Update& update, std::size_t block) {
  std::atomic<std::uint64_t>& overlapping = memory_.tasks[worker_].overlapping;
  overlapping.store(block + 1, std::memory_order_relaxed);
  KeepStoresInOrder();
  Failpoint("push.overlaps");
  ApplySpan(update, {memory_.BlockBegin(block), memory_.BlockSize(block)}, 0);
  // Release: who sees that it has ended sees the values, and who finds us gone sees that it has.
  memory_.blocks[block].overlaps.fetch_add(1, std::memory_order_release);
  overlapping.store(0, std::memory_order_release);
}

// One round of waiting for a block that a push cannot do without.
Status LocalShard::AwaitHolder(ClaimPatience& patience, const BlockState& blocker,
                               Deadline deadline) {
  bool in_time = patience.Wait(blocker, deadline);
  Heartbeat();  // others must not take us for stopped
  if (patience.Sleeps()) {
    if (WaitIsOver() || (life_->while_blocked && !life_->while_blocked())) in_time = false;
  }
  PASSEL_RETURN_IF_ERROR(watch_->failure());
  const bool cancelled = stopped() && patience.Sleeps();
  if (in_time && !cancelled) return {};
  const std::string holder =
      options_.names(Claim::Unpack(blocker.claim.load(std::memory_order_relaxed)).worker);
  if (!cancelled) {
    return DeadlineExceeded(fmt::format("{} holds a block of the variables for too long", holder));
  }
  return Cancelled(fmt::format(
      "the job was stopped while {} held a block of the variables that this push needs", holder));
}

}  // namespace passel

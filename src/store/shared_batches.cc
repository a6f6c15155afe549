#include "store/shared_batches.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/failpoint.h"
#include "store/membership.h"

namespace passel {
namespace {

static_assert(kMaxWorkers == 256, "BatchState::returned has a place for each of what they hold");

// A word of TaskSlot::held is an Arrival with the number plus one.
constexpr std::uint64_t kMostBatches = (std::uint64_t{1} << 40) - 2;

std::string InWords(const BatchRules& rules) {
  return fmt::format(
      "{} examples in batches of {}, {}", rules.examples, rules.batch_size,
      rules.order == 0 ? "in order" : fmt::format("shuffled with seed {}", rules.order - 1));
}

// The one said first.
std::uint64_t AgreeOn(std::atomic<std::uint64_t>& word, std::uint64_t value) {
  std::uint64_t said = 0;
  if (word.compare_exchange_strong(said, value + 1, std::memory_order_seq_cst)) return value;
  return said - 1;
}

}  // namespace

Result<std::unique_ptr<SharedBatches>> SharedBatches::Create(const ShardMemory& lead, int worker,
                                                             const BatchRules& rules,
                                                             std::uint64_t end,
                                                             const WorkerNames& names) {
  PASSEL_CHECK(rules.examples > 0 && rules.batch_size > 0, "there are batches");
  BatchState& state = lead.state->batches;
  const BatchRules agreed = {AgreeOn(state.examples, rules.examples),
                             AgreeOn(state.batch_size, rules.batch_size),
                             AgreeOn(state.order, rules.order)};
  if (agreed != rules) {
    return InvalidArgument(
        fmt::format("{} shares {}, and the job {}: give the same in all workers, and in a job that "
                    "goes on from a checkpoint what it had",
                    names(worker), InWords(rules), InWords(agreed)));
  }
  const std::uint64_t per_epoch = (rules.examples - 1) / rules.batch_size + 1;
  return std::unique_ptr<SharedBatches>(new SharedBatches(lead, worker, StateOf(lead, worker).epoch,
                                                          per_epoch, std::min(end, kMostBatches)));
}

std::atomic<std::uint64_t>& SharedBatches::Own(int place) const {
  return lead_.tasks[worker_].held[place];
}

Result<std::optional<std::uint64_t>> SharedBatches::Next() {
  if (StateOf(lead_, worker_) != TaskState{epoch_, Phase::kRunning}) {
    return Aborted("this worker was evicted: leave the job, and join it again");
  }
  if (const auto batch = FromFormerLife()) return batch;
  if (const auto batch = FromReturned()) return batch;
  BatchState& state = lead_.state->batches;
  std::uint64_t next = Given();
  for (;;) {
    if (next >= end_ || (next > 0 && next % per_epoch_ == 0)) {
      if (const auto batch = FromOthers()) return batch;
    }
    if (next >= end_) {
      Done();
      return std::optional<std::uint64_t>();
    }
    const int place = FreePlace();
    Own(place).store(Arrival{epoch_, next + 1}.Pack(), std::memory_order_seq_cst);
    Failpoint("batches.held");
    if (state.next.compare_exchange_strong(next, next + 1, std::memory_order_seq_cst)) {
      Failpoint("batches.given");
      return std::optional(Hold(place, next));
    }
    Own(place).store(0, std::memory_order_seq_cst);
  }
}

void SharedBatches::Done() {
  for (int place = 0; place < kHeldBatches; ++place) LetGo(place);
}

std::uint64_t SharedBatches::Hold(int place, std::uint64_t batch) {
  held_[static_cast<std::size_t>(place)] = ++count_;
  return batch;
}

void SharedBatches::LetGo(int place) {
  if (std::exchange(held_[static_cast<std::size_t>(place)], 0) == 0) return;
  // Unless a next life has it: this one was taken for dead.
  std::uint64_t word = Own(place).load(std::memory_order_relaxed);
  if (Arrival::Unpack(word).IsOf(epoch_)) {
    Own(place).compare_exchange_strong(word, 0, std::memory_order_seq_cst);
  }
}

int SharedBatches::FreePlace() {
  const auto place = static_cast<int>(std::ranges::min_element(held_) - held_.begin());
  LetGo(place);
  return place;
}

// Also those that this life had before it began to share anew.
std::optional<std::uint64_t> SharedBatches::FromFormerLife() {
  for (int place = 0; place < kHeldBatches; ++place) {
    if (held_[static_cast<std::size_t>(place)] != 0) continue;
    std::uint64_t word = Own(place).load(std::memory_order_seq_cst);
    const std::uint64_t at = Arrival::Unpack(word).at;
    if (at == 0) continue;
    const bool was_given = at - 1 < Given();
    const std::uint64_t now = was_given ? Arrival{epoch_, at}.Pack() : 0;
    // It fails if another has it already.
    if (!Own(place).compare_exchange_strong(word, now, std::memory_order_seq_cst)) continue;
    if (was_given) return Hold(place, at - 1);
  }
  return std::nullopt;
}

std::optional<std::uint64_t> SharedBatches::FromReturned() {
  if (none_returned_) return std::nullopt;
  BatchState& state = lead_.state->batches;
  const std::uint32_t returned = state.num_returned.load(std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < returned; ++i) {
    const std::uint64_t word = state.returned[i].load(std::memory_order_seq_cst);
    if (word == 0) continue;
    if (const auto batch = TakeOver(state.returned[i], word, word - 1)) return batch;
  }
  none_returned_ = true;  // nobody adds any
  return std::nullopt;
}

std::optional<std::uint64_t> SharedBatches::FromOthers() {
  for (int k = 0; k < lead_.num_workers; ++k) {
    const Phase phase = StateOf(lead_, k).phase;
    if (k == worker_ || phase == Phase::kRunning || phase == Phase::kJoining) continue;
    for (std::atomic<std::uint64_t>& other : lead_.tasks[k].held) {
      const std::uint64_t word = other.load(std::memory_order_seq_cst);
      const std::uint64_t at = Arrival::Unpack(word).at;
      if (at == 0 || at - 1 >= Given()) continue;
      if (const auto batch = TakeOver(other, word, at - 1)) return batch;
    }
  }
  return std::nullopt;
}

// Whatever became of him: one that has just died is found by the next Next().
std::optional<int> SharedBatches::StillHeldBy() {
  for (int k = 0; k < lead_.num_workers; ++k) {
    if (k == worker_) continue;
    for (const std::atomic<std::uint64_t>& other : lead_.tasks[k].held) {
      const std::uint64_t at = Arrival::Unpack(other.load(std::memory_order_seq_cst)).at;
      if (at != 0 && at - 1 < std::min(Given(), end_)) return k;
    }
  }
  return std::nullopt;
}

std::optional<std::uint64_t> SharedBatches::TakeOver(std::atomic<std::uint64_t>& from,
                                                     std::uint64_t word, std::uint64_t batch) {
  const int place = FreePlace();
  Own(place).store(Arrival{epoch_, batch + 1}.Pack(), std::memory_order_seq_cst);
  lead_.state->batches.moves.fetch_add(1, std::memory_order_seq_cst);
  Failpoint("batches.moved");
  if (from.compare_exchange_strong(word, 0, std::memory_order_seq_cst)) return Hold(place, batch);
  Own(place).store(0, std::memory_order_seq_cst);
  return std::nullopt;
}

JobProgress::Batches BatchesOf(const ShardMemory& lead) {
  const BatchState& state = lead.state->batches;
  JobProgress::Batches batches;
  const std::uint64_t order = state.order.load(std::memory_order_seq_cst);
  const std::uint64_t examples = state.examples.load(std::memory_order_seq_cst);
  const std::uint64_t batch_size = state.batch_size.load(std::memory_order_seq_cst);
  if (order == 0 || examples == 0 || batch_size == 0) return batches;  // not agreed on yet
  batches.rules = {examples - 1, batch_size - 1, order - 1};
  // First: what is given from now on the job gives again.
  batches.next = state.next.load(std::memory_order_seq_cst);
  for (;;) {
    const std::uint64_t moves = state.moves.load(std::memory_order_seq_cst);
    std::vector<std::uint64_t>& open = batches.open;
    open.clear();
    const auto add = [&](std::uint64_t at) {
      if (at != 0 && at - 1 < batches.next) open.push_back(at - 1);
    };
    for (int k = 0; k < lead.num_workers; ++k) {
      for (const std::atomic<std::uint64_t>& word : lead.tasks[k].held) {
        add(Arrival::Unpack(word.load(std::memory_order_seq_cst)).at);
      }
    }
    const std::uint32_t returned = state.num_returned.load(std::memory_order_relaxed);
    for (std::uint32_t i = 0; i < returned; ++i) {
      add(state.returned[i].load(std::memory_order_seq_cst));
    }
    std::ranges::sort(open);
    open.erase(std::unique(open.begin(), open.end()), open.end());
    // One that moved meanwhile may have been seen in neither place.
    if (state.moves.load(std::memory_order_seq_cst) == moves) return batches;
  }
}

void RestoreBatches(const ShardMemory& lead, const JobProgress::Batches& batches) {
  if (batches.rules.examples == 0) return;
  BatchState& state = lead.state->batches;
  PASSEL_CHECK(batches.open.size() <= std::size(state.returned), "there is room for all");
  state.examples.store(batches.rules.examples + 1, std::memory_order_relaxed);
  state.batch_size.store(batches.rules.batch_size + 1, std::memory_order_relaxed);
  state.order.store(batches.rules.order + 1, std::memory_order_relaxed);
  state.next.store(batches.next, std::memory_order_relaxed);
  for (std::size_t i = 0; i < batches.open.size(); ++i) {
    state.returned[i].store(batches.open[i] + 1, std::memory_order_relaxed);
  }
  state.num_returned.store(static_cast<std::uint32_t>(batches.open.size()),
                           std::memory_order_seq_cst);
}

}  // namespace passel

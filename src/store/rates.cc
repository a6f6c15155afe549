#include "store/rates.h"

#include "base/atomic_word.h"
#include "base/check.h"

namespace passel {

std::uint32_t NextRates(const ShardMemory& lead) {
  const Decision last = Decision::Unpack(lead.state->decision.load(std::memory_order_seq_cst));
  const int proposer = last.worker < lead.num_workers ? last.worker : 0;
  // A round that is decided from here on takes last.rates: the chief alone changes that.
  const std::uint32_t of_round =
      lead.tasks[proposer].proposed_rates[last.round & 1].load(std::memory_order_acquire);
  std::uint32_t set = 1;
  while (set == last.rates || set == of_round) ++set;
  return set;
}

void WriteRates(const ShardMemory& memory, std::uint32_t set, std::span<const GroupRates> rates) {
  PASSEL_CHECK(set >= 1 && set <= RatesState::kSets, "such a set of rates is");
  RatesState::Words* const words = memory.state->rates.sets[set - 1];
  for (std::size_t g = 0; g < rates.size(); ++g) {
    // Relaxed: nobody reads the set before UseRates(). One who was stopped between his look at a
    // former set and its words may read some of these: both were in force during his update.
    words[g].learning_rate.store(rates[g].learning_rate, std::memory_order_relaxed);
    words[g].weight_decay.store(rates[g].weight_decay, std::memory_order_relaxed);
  }
}

void UseRates(const ShardMemory& memory, std::uint32_t set) {
  Replace(memory.state->decision, [set](std::uint64_t word) {
    Decision next = Decision::Unpack(word);
    next.rates = set;
    return next.Pack();
  });
  // Release, paired with the acquire of who begins an update.
  memory.state->rates.now.store(set, std::memory_order_release);
}

std::vector<GroupRates> RatesNow(const ShardMemory& memory) {
  std::vector<GroupRates> rates;
  const std::uint32_t set = memory.state->rates.now.load(std::memory_order_acquire);
  for (int g = 0; set != 0 && g < memory.num_groups; ++g) {
    rates.push_back(ReadRates(memory, set, g));
  }
  return rates;
}

Status OnlyTheChiefSetsRates() {
  return FailedPrecondition("only worker 0, the chief, sets rates: call it there alone");
}

}  // namespace passel

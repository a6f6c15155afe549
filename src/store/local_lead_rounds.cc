// Rounds: gradients of several workers, one mean, one update, whoever dies on the way.
//
//   arrive    every worker publishes "my gradient for round r is ready"; it may be a sum of several
//   decide    whoever sees that enough are there proposes them as members; one compare-and-swap on
//             `decision` makes one proposal the decision. Enough are R gradients, or all that the
//             workers who may still come can give, if that is less
//   apply     everyone applies blocks under binding claims; each block remembers the last round it
//             has seen, so each is applied once
//   finish    whoever has seen all blocks of all shards done raises the completed round
//
// Applying is in local_shard_apply_round.cc.

#include <fmt/core.h>

#include <algorithm>
#include <bit>

#include "base/atomic_word.h"
#include "base/failpoint.h"
#include "store/local_lead.h"
#include "store/membership.h"

namespace passel {

Status LocalLead::Arrive(std::uint64_t round) {
  PASSEL_RETURN_IF_ERROR(CheckAlive());
  life_->Heartbeat();
  // Release: who counts us in sees our gradient. Sequentially consistent, so that of several
  // workers that arrive at once the last one sees all the others and decides.
  RaiseTo(memory_.tasks[worker_].arrival, Arrival{epoch_, round}.Pack());
  Failpoint("round.arrived");
  TryDecide(round);
  return {};
}

bool LocalLead::TryDecide(std::uint64_t round) {
  std::uint64_t seen = memory_.state->decision.load(std::memory_order_seq_cst);
  const Decision last = Decision::Unpack(seen);
  // Stopped: looked at after the decision, see DecideNoMore().
  if (last.round + 1 != round || stopped()) return last.round >= round;
  WorkerMask members{};
  int arrived_weight = 0;
  int possible_weight = 0;
  for (int k = 0; k < memory_.num_workers; ++k) {
    const auto [epoch, phase] = StateOf(memory_, k);
    const bool arrived =
        Arrival::Says(memory_.tasks[k].arrival.load(std::memory_order_seq_cst), epoch, round);
    if (!arrived && !MayCome(phase)) continue;  // dead, evicted or done before it arrived
    possible_weight += rules_.Quota(k);
    if (!arrived) continue;
    arrived_weight += rules_.Quota(k);
    members[static_cast<std::size_t>(k) / 64] |= std::uint64_t{1} << (k % 64);
  }
  const int needed = std::min(rules_.RoundSize(), possible_weight);
  if (arrived_weight == 0 || arrived_weight < needed) return false;
  const std::uint32_t ends = EndsWith(round);
  auto& proposal = memory_.tasks[worker_].proposal[round & 1];
  auto& proposal_rates = memory_.tasks[worker_].proposed_rates[round & 1];
  for (int w = 0; w < kMaskWords; ++w) {
    // Release: who reads this over an older proposal sees that its round is not the last any more.
    proposal[w].store(members[static_cast<std::size_t>(w)], std::memory_order_release);
  }
  proposal_rates.store(last.rates, std::memory_order_release);
  // Release: who sees the decision sees the proposal.
  if (memory_.state->decision.compare_exchange_strong(
          seen, Decision{round, last.generation, worker_, ends, last.rates}.Pack(),
          std::memory_order_seq_cst)) {
    Failpoint("round.decided");
    Notify(memory_.state->event);
    return true;
  }
  return Decision::Unpack(seen).round >= round;  // else somebody joined meanwhile: look again later
}

// Whoever is about to publish a decision either did so before this, or its swap fails; and who
// looks at the decision afterwards sees that the job is stopped.
Status LocalLead::DecideNoMore() {
  Replace(memory_.state->decision, NextGeneration<Decision>);
  return {};
}

std::vector<Member> LocalLead::MissingIn(std::uint64_t round) const {
  std::vector<Member> missing = Membership(memory_);
  std::erase_if(missing, [&](const Member& m) {
    const auto& arrival = memory_.tasks[m.worker].arrival;
    return !MayCome(m.phase) ||
           Arrival::Says(arrival.load(std::memory_order_relaxed), m.epoch, round);
  });
  return missing;
}

Result<RoundGrant> LocalLead::AwaitRound(std::uint64_t round, Deadline deadline) {
  ShardState& state = *memory_.state;
  Watch& watch = life_->watch();
  const bool decided = Wait(
      deadline,
      [&] { return DecidedRound(memory_) >= round || stopped() || !watch.failure().ok(); },
      [&] {
        watch.LookAfter(MissingIn(round), WaitingOn::kRound, round);
        TryDecide(round);
      });
  const auto last_decision = [&] {
    return Decision::Unpack(state.decision.load(std::memory_order_seq_cst));
  };
  const Decision decision = last_decision();
  if (decision.round < round) {
    PASSEL_RETURN_IF_ERROR(life_->CheckWait());
    if (stopped()) return Cancelled(fmt::format("the job was stopped in round {}", round));
    if (!decided) return DeadlineExceeded(fmt::format("round {} is not complete", round));
  }
  if (decision.worker >= memory_.num_workers) {
    return DataLoss(
        fmt::format("the arena names worker {} of {}", decision.worker, memory_.num_workers));
  }
  RoundGrant grant;
  grant.round = round;
  const TaskSlot& proposer = memory_.tasks[decision.worker];
  grant.rates = proposer.proposed_rates[round & 1].load(std::memory_order_acquire);
  for (int w = 0; w < kMaskWords; ++w) {
    const auto word = static_cast<std::size_t>(w);
    grant.members[word] = proposer.proposal[round & 1][w].load(std::memory_order_acquire);
    grant.count += std::popcount(grant.members[word]);
  }
  // The proposal is stable while its round is the last one decided. If rounds went on without us,
  // this one is complete, and whoever completed it left word whether it counted us.
  if (!last_decision().SameRoundAs(decision) || decision.round != round) {
    PASSEL_RETURN_IF_ERROR(CheckAlive());
    grant.count = 0;
    grant.members = {};
    if (memory_.tasks[worker_].counted_round.load(std::memory_order_seq_cst) == round) {
      grant.members[static_cast<std::size_t>(worker_) / 64] |= std::uint64_t{1} << (worker_ % 64);
    }
  }
  return grant;
}

Status LocalLead::FinishRound(const RoundGrant& grant) {
  if (grant.count == 0) return {};
  Failpoint("round.before_finish");
  const std::uint64_t before = completed_round();
  if (before < grant.round) {
    for (int k = 0; k < memory_.num_workers; ++k) {
      if (grant.Counts(k)) RaiseTo(memory_.tasks[k].counted_round, grant.round);
    }
  }
  RaiseTo(memory_.state->global_step, static_cast<std::int64_t>(grant.round));
  RaiseTo(memory_.state->completed_round, grant.round);
  if (before < grant.round) Notify(memory_.state->event);
  return {};
}

bool LocalLead::AwaitCompletion(std::uint64_t round, Deadline deadline) {
  const auto complete = [&] { return completed_round() >= round; };
  Wait(
      deadline, [&] { return complete() || stopped(); }, [] {});
  return complete();
}

}  // namespace passel

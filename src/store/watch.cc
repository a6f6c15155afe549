#include "store/watch.h"

#include <fmt/core.h>

#include "base/clock.h"
#include "store/block_claims.h"
#include "store/membership.h"

namespace passel {
namespace {

constexpr std::int64_t kProbeEveryNs = 10'000'000;

}  // namespace

Watch::Watch(const ShardMemory& memory, const WaitOptions& options)
    : memory_(memory),
      options_(options),
      opened_ns_(MonotonicNs()),
      held_(static_cast<std::size_t>(memory.num_workers)) {}

void Watch::LookAfter(const std::vector<Member>& members, WaitingOn what, std::uint64_t number) {
  for (const Member& member : members) {
    // Blocks have even addresses.
    Look(member.worker, {member.epoch, member.phase},
         number << 3 | static_cast<std::uint64_t>(what) << 1 | 1, 0);
  }
}

void Watch::LookAfterHolder(const BlockState& block) {
  const std::uint64_t word = block.claim.load(std::memory_order_acquire);
  const Claim holder = Claim::Unpack(word);
  if (word == 0 || !HolderLives(memory_, holder)) return;
  // Most are done before the kernel could answer.
  Look(holder.worker, {holder.epoch, Phase::kRunning}, reinterpret_cast<std::uintptr_t>(&block),
       kProbeEveryNs);
}

void Watch::Stalled(int worker, std::uint32_t epoch) {
  switch (options_.on_stall) {
    case OnStall::kEvict:
      Evict(memory_, worker, epoch);
      break;
    case OnStall::kWait:
      break;
    case OnStall::kFail:
      failure_ = Internal(
          fmt::format("{} (process {}) holds the others up and has not answered for {:g} s",
                      options_.names(worker), LoadIdentity(memory_.tasks[worker], epoch).pid,
                      ToSeconds(options_.stall_limit)));
      break;
  }
}

void Watch::Look(int worker, TaskState state, std::uint64_t what, std::int64_t first_probe_in_ns) {
  const std::int64_t now = MonotonicNs();
  const TaskSlot& task = memory_.tasks[worker];
  const std::int64_t heartbeat = task.heartbeat_ns.load(std::memory_order_relaxed);
  Held& held = held_[static_cast<std::size_t>(worker)];
  const bool another = held.state != state || held.what != what;
  if (another) held = {state, what, heartbeat, now + first_probe_in_ns, {}};
  if (another || held.heartbeat != heartbeat) {
    held.heartbeat = heartbeat;
    held.silent.Restart(now);
  }
  if (now < held.next_probe_ns) return;
  held.next_probe_ns = now + kProbeEveryNs;
  switch (state.phase) {
    case Phase::kRunning:
      if (ProbeLiveness(LoadIdentity(task, state.epoch)) == Liveness::kDead) {
        MarkDead(memory_, worker, state.epoch);
      } else if (held.silent.Exceeds(options_.stall_limit.count(), now)) {
        Stalled(worker, state.epoch);
      }
      break;
    case Phase::kJoining:
      if (held.silent.Exceeds(std::chrono::nanoseconds(kJoinPatience).count(), now)) {
        MarkDead(memory_, worker, state.epoch);
      }
      break;
    case Phase::kExpected:
      if (now - opened_ns_ > options_.start_wait.count()) GiveUpExpecting(memory_, worker);
      break;
    default:
      break;
  }
}

}  // namespace passel

#include "store/caretaker.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/clock.h"
#include "base/log.h"
#include "store/membership.h"

namespace passel {

void Caretaker::BeginAnew() {
  told_.clear();
  told_missing_.clear();
  joiners_.clear();
}

void Caretaker::TellDepartures(const ShardMemory& memory) {
  const bool first = told_.empty();
  told_.resize(static_cast<std::size_t>(memory.num_workers));
  for (const Member& m : Membership(memory)) {
    const char* const what = m.phase == Phase::kDead      ? "died"
                             : m.phase == Phase::kLeft    ? "left before it was done"
                             : m.phase == Phase::kEvicted ? "did not answer, and was evicted"
                                                          : nullptr;
    std::uint32_t& told = told_[static_cast<std::size_t>(m.worker)];
    // Life 0 is of those who never came.
    if (what == nullptr || told == m.epoch) continue;
    told = m.epoch;
    if (first) continue;
    // Process 0: it died in its first join.
    LogWarning("{}{} {}", names_(m.worker), m.pid > 0 ? fmt::format(" (process {})", m.pid) : "",
               what);
  }
}

void Caretaker::FindDead(const ShardMemory& memory,
                         const std::function<bool(int worker)>& connected) {
  MarkDeadByKernel(memory);
  // The kernel cannot be asked about a worker that is joining, and one that died in it before
  // anybody looked on has no connection that ends.
  const std::int64_t now = MonotonicNs();
  for (int worker = 0; worker < memory.num_workers; ++worker) {
    const TaskState state = StateOf(memory, worker);
    if (state.phase != Phase::kJoining || connected(worker)) {
      joiners_.erase(worker);
      continue;
    }
    Joiner& joiner = joiners_[worker];
    if (joiner.epoch != state.epoch) joiner = {state.epoch, now};
    if (now - joiner.since_ns > std::chrono::nanoseconds(kJoinPatience).count()) {
      MarkDead(memory, worker, state.epoch);
    }
  }
}

void Caretaker::GiveUpThoseWhoNeverCame(const ShardMemory& memory, std::chrono::nanoseconds limit,
                                        bool quiet) {
  const std::vector<Member> members = Membership(memory);
  const bool running = std::any_of(members.begin(), members.end(), [](const Member& m) {
    return m.phase == Phase::kRunning || m.phase == Phase::kJoining;
  });
  for (const Member& member : members) {
    if (member.phase == Phase::kExpected && !running) GiveUpExpecting(memory, member.worker);
    // In the modes with rounds the other workers may have given it up themselves.
    const bool gone = StateOf(memory, member.worker) == TaskState{0, Phase::kEvicted};
    if (!gone || quiet || !told_missing_.insert(member.worker).second) continue;
    LogWarning("{} did not start within {:g} s: the job goes on and ends without it",
               names_(member.worker), ToSeconds(limit));
  }
}

void MarkGone(const ShardMemory& memory, int worker, const ProcessIdentity& who, bool another) {
  if (worker >= memory.num_workers) return;
  const TaskState state = StateOf(memory, worker);
  const bool its_life = state.phase == Phase::kRunning
                            ? LoadIdentity(memory.tasks[worker], state.epoch) == who
                            // Its identity is not written yet.
                            : state.phase == Phase::kJoining && !another;
  if (its_life) MarkDead(memory, worker, state.epoch);
}

}  // namespace passel

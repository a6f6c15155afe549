#include "job/stragglers.h"

#include <fmt/core.h>

#include "base/clock.h"
#include "store/membership.h"

namespace passel::job {

std::vector<int> Stragglers::Look(const TaskSlot* tasks, const std::vector<int>& left,
                                  bool any_done) {
  const std::int64_t now = MonotonicNs();
  std::vector<int> silent;
  for (const int worker : left) {
    const auto index = static_cast<std::size_t>(worker);
    if (index >= heard_.size()) heard_.resize(index + 1);
    Heard& heard = heard_[index];
    // Relaxed: only that it changes tells something.
    const std::int64_t heartbeat =
        tasks == nullptr ? 0 : tasks[worker].heartbeat_ns.load(std::memory_order_relaxed);
    if (heard.heartbeat != heartbeat) heard.silent.Restart(now);
    heard.heartbeat = heartbeat;
    if (heard.silent.Exceeds(stall_limit_ns_, now)) silent.push_back(worker);
  }
  if (!any_done && silent.size() < left.size()) silent.clear();
  return silent;
}

Status LookAfterStragglers(const ShardMemory& memory, const JobConfig& config,
                           const WorkerNames& names, Stragglers* stragglers) {
  if (config.on_stall == OnStall::kWait) return {};
  // Whoever is told to stop ends now, as whoever is done.
  bool any_done = memory.state->stop.load(std::memory_order_acquire) != 0;
  bool any_ended = any_done;
  std::vector<int> left;
  const std::vector<Member> members = Membership(memory);
  for (const Member& m : members) {
    any_done |= m.phase == Phase::kDone;
    any_ended |= m.epoch > 0 && !MayCome(m.phase);
    if (m.phase == Phase::kRunning) left.push_back(m.worker);
  }
  if (!any_ended) return {};
  for (const int worker : stragglers->Look(memory.tasks, left, any_done)) {
    const Member& m = members[static_cast<std::size_t>(worker)];
    if (config.on_stall == OnStall::kFail) {
      return KeepsFromEnding(names(worker), m.pid, config);
    }
    Evict(memory, worker, m.epoch);
  }
  return {};
}

Status KeepsFromEnding(const std::string& worker, std::int64_t pid, const JobConfig& config) {
  return Internal(fmt::format(
      "{} (process {}) keeps the job from ending, and has not answered for {:g} s (--stall_limit)",
      worker, pid, 1e-9 * static_cast<double>(config.stall_limit_ns)));
}

}  // namespace passel::job

#include "store/membership.h"

#include <fmt/core.h>

#include "base/clock.h"
#include "base/failpoint.h"

namespace passel {
namespace {

void RecordEvent(const ShardMemory& memory, int worker, TaskState state) {
  EventRing& ring = *memory.events;
  // Relaxed but for the number: a reader that sees a number twice around the fields has them whole.
  const std::uint64_t number = ring.next.fetch_add(1, std::memory_order_relaxed) + 1;
  EventRecord& record = ring.records[(number - 1) % EventRing::kRecords];
  record.number.store(0, std::memory_order_release);
  record.time_ns.store(MonotonicNs(), std::memory_order_relaxed);
  record.state.store(state.Pack(), std::memory_order_relaxed);
  record.worker.store(worker, std::memory_order_relaxed);
  record.pid.store(memory.tasks[worker].identity.pid, std::memory_order_relaxed);
  record.global_step.store(memory.state->global_step.load(std::memory_order_relaxed),
                           std::memory_order_relaxed);
  record.number.store(number, std::memory_order_release);
}

bool Transition(const ShardMemory& memory, int worker, TaskState from, Phase to) {
  TaskSlot& task = memory.tasks[worker];
  std::uint64_t expected = from.Pack();
  const bool done = task.state.compare_exchange_strong(expected, TaskState{from.epoch, to}.Pack(),
                                                       std::memory_order_seq_cst);
  if (done) {
    RecordEvent(memory, worker, {from.epoch, to});
    Notify(memory.state->event);
  }
  return done;
}

}  // namespace

bool GiveUpExpecting(const ShardMemory& memory, int worker) {
  const TaskState state = StateOf(memory, worker);
  if (state.phase != Phase::kExpected && state.phase != Phase::kJoining) return false;
  return Transition(memory, worker, state, Phase::kEvicted);
}

TaskState StateOf(const ShardMemory& memory, int worker) {
  return TaskState::Unpack(memory.tasks[worker].state.load(std::memory_order_seq_cst));
}

Result<std::uint32_t> Join(const ShardMemory& memory, int worker, const ProcessIdentity& who) {
  if (worker < 0 || worker >= memory.num_workers) {
    return InvalidArgument(fmt::format("worker index {} is out of range: this job has {} workers",
                                       worker, memory.num_workers));
  }
  TaskSlot& task = memory.tasks[worker];
  TaskState seen = StateOf(memory, worker);
  if (seen.phase == Phase::kRunning || seen.phase == Phase::kJoining) {
    // A joining task may not have written its identity yet; its predecessor's says "dead" then, and
    // of two tasks that join at once the one whose compare-and-swap comes second is told below.
    const ProcessIdentity holder = task.identity;
    if (seen.phase == Phase::kRunning && ProbeLiveness(holder) != Liveness::kDead) {
      return AlreadyExists(fmt::format(
          "worker/{} is running already as process {}: stop it first or use another --task_index",
          worker, holder.pid));
    }
    if (seen.phase == Phase::kRunning) MarkDead(memory, worker, seen.epoch);
    seen = StateOf(memory, worker);
  }
  const TaskState joining{seen.epoch + 1, Phase::kJoining};
  std::uint64_t expected = seen.Pack();
  if (!task.state.compare_exchange_strong(expected, joining.Pack(), std::memory_order_seq_cst)) {
    return AlreadyExists(
        fmt::format("another process became worker/{} at the same moment: start only one", worker));
  }
  Failpoint("join.claimed");
  task.identity = who;
  // A gradient of the life before must not be counted for ours. While we are joining no round is
  // decided, so this comes before anybody looks.
  task.arrived_round.store(0, std::memory_order_seq_cst);
  task.heartbeat_ns.store(MonotonicNs(), std::memory_order_relaxed);
  // A decision that somebody is preparing on what it saw of the life before must fail.
  std::uint64_t decision = memory.state->decision.load(std::memory_order_seq_cst);
  while (!memory.state->decision.compare_exchange_weak(
      decision, Decision::Unpack(decision).NextGeneration().Pack(), std::memory_order_seq_cst)) {
  }
  // Release (by the swap): who sees kRunning sees the identity.
  if (!Transition(memory, worker, joining, Phase::kRunning)) {
    return AlreadyExists(
        fmt::format("another process became worker/{} at the same moment: start only one", worker));
  }
  return joining.epoch;
}

bool Leave(const ShardMemory& memory, int worker, std::uint32_t epoch) {
  return Transition(memory, worker, {epoch, Phase::kRunning}, Phase::kDone);
}

bool MarkDead(const ShardMemory& memory, int worker, std::uint32_t epoch) {
  if (Transition(memory, worker, {epoch, Phase::kJoining}, Phase::kDead)) return true;
  if (!Transition(memory, worker, {epoch, Phase::kRunning}, Phase::kDead)) return false;
  // Its only writer is gone, and exactly one caller gets here per life.
  WorkerCounters& c = memory.tasks[worker].counters;
  const std::uint64_t begun = c.pushes_begun.load(std::memory_order_relaxed);
  const std::uint64_t ended = c.pushes_ended.load(std::memory_order_relaxed);
  if (begun > ended) {
    c.half_applied.fetch_add(begun - ended, std::memory_order_relaxed);
    c.pushes_ended.store(begun, std::memory_order_relaxed);
  }
  return true;
}

bool Evict(const ShardMemory& memory, int worker, std::uint32_t epoch) {
  return Transition(memory, worker, {epoch, Phase::kRunning}, Phase::kEvicted);
}

int MarkDeadByKernel(const ShardMemory& memory) {
  int dead = 0;
  for (int worker = 0; worker < memory.num_workers; ++worker) {
    const TaskState state = StateOf(memory, worker);
    if (state.phase != Phase::kRunning) continue;
    if (ProbeLiveness(memory.tasks[worker].identity) != Liveness::kDead) continue;
    dead += MarkDead(memory, worker, state.epoch);
  }
  return dead;
}

std::vector<Member> Membership(const ShardMemory& memory) {
  std::vector<Member> members;
  const std::int64_t now = MonotonicNs();
  for (int worker = 0; worker < memory.num_workers; ++worker) {
    const TaskState state = StateOf(memory, worker);
    const TaskSlot& task = memory.tasks[worker];
    Member member;
    member.worker = worker;
    member.phase = state.phase;
    member.epoch = state.epoch;
    if (state.phase != Phase::kExpected && state.phase != Phase::kJoining) {
      member.pid = task.identity.pid;
      member.heartbeat_age_ns = now - task.heartbeat_ns.load(std::memory_order_relaxed);
    }
    member.local_steps = task.counters.local_steps.load(std::memory_order_relaxed);
    members.push_back(member);
  }
  return members;
}

bool AllWorkersEnded(const ShardMemory& memory) {
  for (int worker = 0; worker < memory.num_workers; ++worker) {
    const Phase phase = StateOf(memory, worker).phase;
    if (phase == Phase::kExpected || phase == Phase::kJoining || phase == Phase::kRunning) {
      return false;
    }
  }
  return true;
}

}  // namespace passel

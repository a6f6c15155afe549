#include "store/membership.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "base/atomic_word.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/nvtx.h"

namespace passel {
namespace {

// Relaxed: who may read it was told by `state`; atomic only because a reader may come too late.
void StoreIdentity(TaskSlot& task, std::uint32_t epoch, const ProcessIdentity& who) {
  ProcessIdentity& identity = task.identity[epoch & 1];
  std::atomic_ref(identity.pid).store(who.pid, std::memory_order_relaxed);
  std::atomic_ref(identity.start_time).store(who.start_time, std::memory_order_relaxed);
  std::atomic_ref(identity.pid_namespace).store(who.pid_namespace, std::memory_order_relaxed);
}

// A push that a life began and did not end counts as half applied, once.
void SettlePushes(TaskSlot& task, std::uint64_t begun, std::uint64_t ended) {
  WorkerCounters& c = task.counters;
  if (begun > ended && c.pushes_ended.compare_exchange_strong(ended, begun)) {
    c.half_applied.fetch_add(begun - ended, std::memory_order_relaxed);
  }
}

void RecordEvent(const ShardMemory& memory, int worker, TaskState state) {
  EventRing& ring = *memory.events;
  // Relaxed but for the number: a reader that sees a number twice around the fields has them whole.
  const std::uint64_t number = ring.next.fetch_add(1, std::memory_order_relaxed) + 1;
  EventRecord& record = ring.records[(number - 1) % EventRing::kRecords];
  record.number.store(0, std::memory_order_release);
  record.time_ns.store(MonotonicNs(), std::memory_order_relaxed);
  record.state.store(state.Pack(), std::memory_order_relaxed);
  record.worker.store(worker, std::memory_order_relaxed);
  record.pid.store(LoadIdentity(memory.tasks[worker], state.epoch).pid, std::memory_order_relaxed);
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

Status WhyLost(const ShardMemory& memory, int worker, const WorkerNames& names) {
  const auto [epoch, phase] = StateOf(memory, worker);
  if (phase == Phase::kJoining ||
      (phase == Phase::kRunning &&
       ProbeLiveness(LoadIdentity(memory.tasks[worker], epoch)) != Liveness::kDead)) {
    return AlreadyExists(
        fmt::format("another process became {} meanwhile: start only one", names(worker)));
  }
  return Aborted(
      fmt::format("{} took more than {} ms to join and was taken for dead: start it again",
                  names(worker), kJoinPatience.count()));
}

// Where a worker that joins begins to count its steps.
std::uint64_t FirstClock(const ShardMemory& memory, int worker) {
  if (const auto slowest = SlowestClock(memory, worker, /*joining=*/false)) return *slowest;
  return HighestClock(memory);
}

}  // namespace

std::uint64_t HighestClock(const ShardMemory& memory) {
  std::uint64_t highest = 0;
  for (int k = 0; k < memory.num_workers; ++k) {
    const std::uint64_t word = memory.tasks[k].clock.load(std::memory_order_seq_cst);
    highest = std::max(highest, Arrival::Unpack(word).at);
  }
  return highest;
}

std::optional<std::uint64_t> SlowestClock(const ShardMemory& memory, int except, bool joining) {
  const auto generation = [&] {
    return Decision::Unpack(memory.state->decision.load(std::memory_order_seq_cst)).generation;
  };
  std::uint32_t before = generation();
  for (;;) {
    std::optional<std::uint64_t> slowest;
    for (int k = 0; k < memory.num_workers; ++k) {
      if (k == except) continue;
      const TaskState state = StateOf(memory, k);
      if (state.phase != Phase::kRunning && !(joining && state.phase == Phase::kJoining)) continue;
      const Arrival clock = Arrival::Unpack(memory.tasks[k].clock.load(std::memory_order_seq_cst));
      // Another life's clock does not count: not yet set, or it changed hands and we look again.
      if (clock.IsOf(state.epoch)) slowest = std::min(slowest.value_or(clock.at), clock.at);
    }
    const std::uint32_t after = generation();
    if (after == before) return slowest;
    before = after;
  }
}

bool GiveUpExpecting(const ShardMemory& memory, int worker) {
  const TaskState state = StateOf(memory, worker);
  if (state.phase != Phase::kExpected && state.phase != Phase::kJoining) return false;
  if (!Transition(memory, worker, state, Phase::kEvicted)) return false;
  nvtx::Mark(nvtx::Event::kGivenUp, worker);
  return true;
}

ProcessIdentity LoadIdentity(const TaskSlot& task, std::uint32_t epoch) {
  auto& identity = const_cast<ProcessIdentity&>(task.identity[epoch & 1]);
  ProcessIdentity who;
  who.pid = std::atomic_ref(identity.pid).load(std::memory_order_relaxed);
  who.start_time = std::atomic_ref(identity.start_time).load(std::memory_order_relaxed);
  who.pid_namespace = std::atomic_ref(identity.pid_namespace).load(std::memory_order_relaxed);
  return who;
}

Status RunsAlready(const WorkerNames& names, int worker, std::int64_t pid) {
  const std::string name = names(worker);
  return AlreadyExists(
      fmt::format("{} is running already as process {}: stop it first{}", name, pid,
                  name.starts_with("worker/") ? " or use another --task_index" : ""));
}

Result<std::uint32_t> Join(const ShardMemory& memory, int worker, const ProcessIdentity& who,
                           const WorkerNames& names, Eviction eviction) {
  if (worker < 0 || worker >= memory.num_workers) {
    return InvalidArgument(fmt::format("worker index {} is out of range: this job has {} workers",
                                       worker, memory.num_workers));
  }
  if (who.pid <= 0) {
    return Internal(fmt::format(
        "{} cannot join: its own entry in /proc is not readable (are file descriptors short? see "
        "ulimit -n)",
        names(worker)));
  }
  TaskSlot& task = memory.tasks[worker];
  TaskState seen = StateOf(memory, worker);
  // Counted, not timed: it ends under a fake clock too.
  for (int ms = 0; seen.phase == Phase::kJoining && ms < kJoinPatience.count(); ++ms) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    seen = StateOf(memory, worker);
  }
  if (seen.phase == Phase::kJoining) {
    MarkDead(memory, worker, seen.epoch);
    seen = StateOf(memory, worker);
  }
  if (seen.phase == Phase::kRunning) {
    const ProcessIdentity holder = LoadIdentity(task, seen.epoch);
    if (ProbeLiveness(holder) != Liveness::kDead) {
      return RunsAlready(names, worker, holder.pid);
    }
    MarkDead(memory, worker, seen.epoch);
    seen = StateOf(memory, worker);
  }
  const TaskState joining{seen.epoch + 1, Phase::kJoining};
  std::uint64_t expected = seen.Pack();
  if (seen.phase == Phase::kJoining || seen.phase == Phase::kRunning ||
      !task.state.compare_exchange_strong(expected, joining.Pack(), std::memory_order_seq_cst)) {
    return WhyLost(memory, worker, names);
  }
  Failpoint("join.claimed");
  // Whoever was kept from running for long may have been given up: the slot is another's then.
  if (StateOf(memory, worker) != joining) return WhyLost(memory, worker, names);
  Failpoint("join.before_identity");
  StoreIdentity(task, joining.epoch, who);
  if (eviction == Eviction::kKill) RaiseTo(task.killable, joining.epoch);
  task.heartbeat_ns.store(MonotonicNs(), std::memory_order_relaxed);
  // An evicted life that was killed afterwards: nobody counted its last push.
  SettlePushes(task, task.counters.pushes_begun.load(std::memory_order_relaxed),
               task.counters.pushes_ended.load(std::memory_order_relaxed));
  const std::uint64_t first_clock = FirstClock(memory, worker);
  Failpoint("join.before_clock");
  // Others wait for us from here on, at a clock that may be out of date by now.
  RaiseTo(task.clock, Arrival{joining.epoch, first_clock}.Pack());
  Failpoint("join.clock");
  // A decision that somebody is preparing on what it saw of the life before must fail; and who is
  // looking for the slowest and has not seen us looks again.
  Replace(memory.state->decision, NextGeneration<Decision>);
  Failpoint("join.before_mode");
  // So must a change of mode that somebody is about to publish: it waits for us, too.
  Replace(memory.state->mode.current, NextGeneration<ModeWord>);
  // So whoever went on without us did so before this look, and is not too far ahead of it.
  RaiseTo(task.clock, Arrival{joining.epoch, FirstClock(memory, worker)}.Pack());
  Failpoint("join.before_running");
  // Release (by the swap): who sees kRunning sees the identity.
  if (!Transition(memory, worker, joining, Phase::kRunning)) return WhyLost(memory, worker, names);
  Failpoint("join.running");
  return joining.epoch;
}

void Follow(const ShardMemory& other, int worker, std::uint32_t epoch, const ProcessIdentity& who,
            Eviction eviction) {
  TaskSlot& task = other.tasks[worker];
  // Whoever was kept from running since it joined may have been evicted: this is another's, then.
  if (StateOf(other, worker).epoch > epoch) return;
  StoreIdentity(task, epoch, who);
  if (eviction == Eviction::kKill) RaiseTo(task.killable, epoch);
  // Settles a life before that nobody counted here.
  SettlePushes(task, task.counters.pushes_begun.load(std::memory_order_relaxed),
               task.counters.pushes_ended.load(std::memory_order_relaxed));
  // Only raised: a former life that comes late is not there any more.
  RaiseTo(task.state, TaskState{epoch, Phase::kRunning}.Pack());
  Notify(other.state->event);
}

bool Leave(const ShardMemory& memory, int worker, std::uint32_t epoch, Phase end) {
  return Transition(memory, worker, {epoch, Phase::kRunning}, end);
}

bool MarkDead(const ShardMemory& memory, int worker, std::uint32_t epoch) {
  // Read before the transition: after it the next life may be pushing already.
  TaskSlot& task = memory.tasks[worker];
  const std::uint64_t begun = task.counters.pushes_begun.load(std::memory_order_relaxed);
  const std::uint64_t ended = task.counters.pushes_ended.load(std::memory_order_relaxed);
  const bool evicted = task.evicted.load(std::memory_order_seq_cst) == epoch && epoch != 0;
  const Phase over = evicted ? Phase::kEvicted : Phase::kDead;
  if (!Transition(memory, worker, {epoch, Phase::kJoining}, over) &&
      !Transition(memory, worker, {epoch, Phase::kRunning}, over)) {
    return false;
  }
  nvtx::Mark(evicted ? nvtx::Event::kWorkerEvicted : nvtx::Event::kWorkerDied, worker);
  SettlePushes(task, begun, ended);
  return true;
}

bool AwaitSuccessor(const ShardMemory& memory, int worker, std::uint32_t epoch) {
  return Transition(memory, worker, {epoch, Phase::kRunning}, Phase::kExpected);
}

bool Evict(const ShardMemory& memory, int worker, std::uint32_t epoch) {
  TaskSlot& task = memory.tasks[worker];
  if (task.killable.load(std::memory_order_seq_cst) == epoch &&
      StateOf(memory, worker) == TaskState{epoch, Phase::kRunning}) {
    // Whoever finds it dead then knows why it is.
    RaiseTo(task.evicted, epoch);
    if (KillProcess(LoadIdentity(task, epoch), Deadline::After(kKillPatience))) {
      return MarkDead(memory, worker, epoch);
    }
  }
  if (!Transition(memory, worker, {epoch, Phase::kRunning}, Phase::kEvicted)) return false;
  nvtx::Mark(nvtx::Event::kWorkerEvicted, worker);
  return true;
}

int MarkDeadByKernel(const ShardMemory& memory) {
  int dead = 0;
  for (int worker = 0; worker < memory.num_workers; ++worker) {
    const TaskState state = StateOf(memory, worker);
    if (state.phase != Phase::kRunning) continue;
    if (ProbeLiveness(LoadIdentity(memory.tasks[worker], state.epoch)) != Liveness::kDead) continue;
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
      member.pid = LoadIdentity(task, state.epoch).pid;
      const std::int64_t heartbeat = task.heartbeat_ns.load(std::memory_order_relaxed);
      if (heartbeat != 0) member.heartbeat_age_ns = std::max<std::int64_t>(0, now - heartbeat);
    }
    member.local_steps = task.counters.local_steps.load(std::memory_order_relaxed);
    members.push_back(member);
  }
  return members;
}

std::string_view PhaseName(Phase phase) {
  constexpr std::string_view kNames[] = {"expected", "joining", "running", "done",
                                         "dead",     "evicted", "left",    "spare"};
  const auto index = static_cast<std::size_t>(phase);
  return index < std::size(kNames) ? kNames[index] : "unknown";
}

std::string_view PhaseInWords(const Member& member) {
  const bool came = member.epoch > 0 || member.phase != Phase::kEvicted;
  return came ? PhaseName(member.phase) : "never started";
}

bool IsRepresented(const ShardMemory& memory, int worker, std::uint32_t epoch) {
  const ProcessIdentity who = LoadIdentity(memory.tasks[worker], epoch);
  return who.pid > 0 && who.pid_namespace == 0;
}

bool AllWorkersEnded(const ShardMemory& memory) {
  for (int worker = 0; worker < memory.num_workers; ++worker) {
    if (MayCome(StateOf(memory, worker).phase)) return false;
  }
  return true;
}

bool AllWorkersDone(const ShardMemory& memory) {
  if (!AllWorkersEnded(memory)) return false;
  for (int worker = 0; worker < memory.num_workers - memory.spare_workers; ++worker) {
    if (StateOf(memory, worker).phase != Phase::kDone) return false;
  }
  return true;
}

}  // namespace passel

// membership.h - who takes part: joining, leaving, dying, being evicted.
//
// In a job of several shards the lead's slots say so, and claims on all shards name its epochs.
//
// A worker's TaskState moves by compare-and-swap only:
//
//   kExpected, kDone, kDead, kEvicted, kLeft, kSpare --Join--> kJoining(epoch+1) --> kRunning
//   kRunning --Leave--> kDone or kLeft        kJoining, kRunning --MarkDead--> kDead
//   kRunning --Evict--> kEvicted      kExpected, kJoining --GiveUpExpecting--> kEvicted
//   kRunning --AwaitSuccessor--> kExpected
//
// To evict a process is to kill it: what it writes after that nobody need fear. Where that cannot
// be (Eviction) it is fenced off: it looks at its state before it writes, and may still finish what
// it was writing when it was stopped.
//
// Whoever has proof may move another worker: the ps (its connection ended), the supervisor (its
// child is gone) or a fellow worker (the kernel says so).
//
// Memory order: a transition is sequentially consistent and followed by a Notify(); who sees
// kRunning sees the identity.

#pragma once

#include <chrono>
#include <optional>
#include <string_view>
#include <vector>

#include "base/process_identity.h"
#include "base/status.h"
#include "cluster/worker_names.h"
#include "store/parameter_store.h"
#include "store/shard_memory.h"

namespace passel {

/// Joining takes microseconds and names nobody yet, so the kernel cannot be asked about it: a task
/// that is seen joining for so long is taken for dead.
inline constexpr std::chrono::milliseconds kJoinPatience{1000};

/// How long the kernel may take for the end of a process that was killed.
inline constexpr std::chrono::seconds kKillPatience{5};

/// Makes `who` the worker with index `worker`, with the clock of the slowest that runs, or, if none
/// does, the highest that any had. Returns its epoch. Sleeps for up to kJoinPatience
/// when another task died while it was joining.
/// Errors: kAlreadyExists when a live task holds the identity, with its pid; kAborted when it took
/// so long itself that others gave it up; kInvalidArgument when the index is out of range;
/// kInternal when `who` is nobody.
Result<std::uint32_t> Join(const ShardMemory& memory, int worker, const ProcessIdentity& who,
                           const WorkerNames& names = {}, Eviction eviction = Eviction::kFence);

/// Writes on another shard than the lead that this life of the worker is there, for those who see
/// that shard alone: its ps. Who takes part the lead alone says.
void Follow(const ShardMemory& other, int worker, std::uint32_t epoch, const ProcessIdentity& who,
            Eviction eviction = Eviction::kFence);

/// kAlreadyExists: a live process has the identity.
Status RunsAlready(const WorkerNames& names, int worker, std::int64_t pid);

/// A clean end, kDone or kLeft. False if this life had been ended by others before.
bool Leave(const ShardMemory& memory, int worker, std::uint32_t epoch, Phase end = Phase::kDone);

/// Its process is gone. A push that it had begun counts as half applied. False if that life is
/// over already.
bool MarkDead(const ShardMemory& memory, int worker, std::uint32_t epoch);

/// Its process is gone, and another joins in its place at once: rounds wait for that one, where
/// they would go on without who is dead. Its last push is settled by Join(). False if that life is
/// over.
bool AwaitSuccessor(const ShardMemory& memory, int worker, std::uint32_t epoch);

/// It does not answer. Takes up to kKillPatience.
bool Evict(const ShardMemory& memory, int worker, std::uint32_t epoch);

/// It never joined in time: rounds no longer wait for it. It may still join later.
bool GiveUpExpecting(const ShardMemory& memory, int worker);

/// ssp: the smallest clock of the workers that hold others up: the running ones, and with `joining`
/// those that are about to run. Nothing if there are none but `except`. A worker that joins while
/// this looks is either seen, or will start no lower than what this returns.
/// Memory order: sequentially consistent.
std::optional<std::uint64_t> SlowestClock(const ShardMemory& memory, int except, bool joining);

/// The highest clock that any worker has or had.
/// Memory order: sequentially consistent.
std::uint64_t HighestClock(const ShardMemory& memory);

inline TaskState StateOf(const ShardMemory& memory, int worker) {
  return TaskState::Unpack(memory.tasks[worker].state.load(std::memory_order_seq_cst));
}

/// Who that life of the worker is. What is done to it has no effect if the slot changed hands
/// meanwhile.
ProcessIdentity LoadIdentity(const TaskSlot& task, std::uint32_t epoch);

/// Asks the kernel about every running worker and marks those that are gone. Returns how many.
int MarkDeadByKernel(const ShardMemory& memory);

/// The round decided last. Memory order: sequentially consistent.
inline std::uint64_t DecidedRound(const ShardMemory& memory) {
  return Decision::Unpack(memory.state->decision.load(std::memory_order_seq_cst)).round;
}

std::vector<Member> Membership(const ShardMemory& memory);

/// "running", "done".
std::string_view PhaseName(Phase phase);
/// The same; "never started" for a worker that the others gave up before its first life.
std::string_view PhaseInWords(const Member& member);

/// Whether that life is of a worker that reaches this shard by messages: a proxy stands for it.
bool IsRepresented(const ShardMemory& memory, int worker, std::uint32_t epoch);

/// True once no worker is expected, joining or running.
bool AllWorkersEnded(const ShardMemory& memory);
/// True once all workers with which the job began are done, and nobody else trains.
bool AllWorkersDone(const ShardMemory& memory);

}  // namespace passel

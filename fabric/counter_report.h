// counter_report.h - a worker's counters between its own record and the one in the arena.
//
// The worker owns most of them: they travel to the ps with its steps. Those that the engine counts
// while it works for the worker come back with the answers.

#pragma once

#include <array>
#include <cstdint>

#include "fabric/wire.h"
#include "store/shard_memory.h"

namespace passel::fabric {

/// Points in time become ages.
CounterReport MakeReport(const WorkerCounters& counters);
/// What `report` says is so in `counters`.
void TakeReport(const CounterReport& report, WorkerCounters* counters);

/// State::engine.
std::array<std::uint64_t, 6> EngineCounts(const WorkerCounters& counters);
void TakeEngineCounts(const std::array<std::uint64_t, 6>& counts, WorkerCounters* counters);

}  // namespace passel::fabric

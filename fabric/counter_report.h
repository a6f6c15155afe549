// counter_report.h - a worker's counters between its own record and the one in the arena.
//
// The worker owns most of them: they travel to the ps with its steps. Those that the engine counts
// while it works for the worker come back with the answers.

#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "fabric/wire.h"
#include "store/shard_memory.h"

namespace passel::fabric {

/// The buckets of a worker's histograms that the other side has, in the order of CounterReport.
using KnownBuckets = std::vector<std::uint64_t>;

/// The scalars, and the buckets that are not as `known` (at most kMaxBuckets of them; empty: all
/// that are not 0). Points in time become ages.
CounterReport MakeReport(const WorkerCounters& counters, const KnownBuckets& known);
/// What `report` says is so in `counters`; and the buckets in `known`, if not null.
void TakeReport(const CounterReport& report, WorkerCounters* counters);
void Remember(const CounterReport& report, KnownBuckets* known);

/// State::engine.
std::array<std::uint64_t, 6> EngineCounts(const WorkerCounters& counters);
void TakeEngineCounts(const std::array<std::uint64_t, 6>& counts, WorkerCounters* counters);

}  // namespace passel::fabric

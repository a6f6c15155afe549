#include "lab/measure.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/subprocess.h"
#include "lab/arenas.h"
#include "lab/exact.h"
#include "lab/measurement.h"
#include "lab/samples.h"

namespace passel::lab {
namespace {

constexpr std::size_t kMostSamples = 8'000'000;

std::vector<std::vector<int>> CpusOf(const Cell& cell) {
  const auto writers = static_cast<std::size_t>(cell.writers);
  switch (cell.placement) {
    case Placement::kOwn:
      return OneCoreEach(cell.writers);
    case Placement::kOne:
      return std::vector<std::vector<int>>(writers, OneCoreEach(1)[0]);
    case Placement::kFree:
      break;
  }
  return std::vector<std::vector<int>>(writers);
}

// Errors: kFailedPrecondition if it must lie on huge pages and there are none.
Result<shm::Arena> CellArena(const Cell& cell, const StorePlan& plan, std::string* note) {
  if (cell.pages == CellPages::k4k) return CreateArena(plan);
  PASSEL_ASSIGN_OR_RETURN(shm::Arena explicit_pages, CreateArena(plan, HugePages::kExplicit));
  if (HugePagesInEffect(explicit_pages)) {
    *note = explicit_pages.huge_page_report();
    return explicit_pages;
  }
  PASSEL_ASSIGN_OR_RETURN(shm::Arena transparent, CreateArena(plan, HugePages::kTransparent));
  if (HugePagesInEffect(transparent)) {
    *note = transparent.huge_page_report();
    return transparent;
  }
  return Status(
      Code::kFailedPrecondition,
      fmt::format("there are no huge pages for {} MiB: give vm.nr_hugepages {} free ones of "
                  "2 MiB, or /sys/kernel/mm/transparent_hugepage/shmem_enabled 'advise'",
                  transparent.bytes() >> 20,
                  (transparent.bytes() + kHugePageBytes - 1) / kHugePageBytes));
}

double OperationsPerSecond(const RunLog& log) {
  const double seconds = 1e-9 * static_cast<double>(log.end_ns - log.begin_ns);
  return seconds > 0 ? static_cast<double>(log.samples) / seconds : 0;
}

CellResult Summarize(const Measurement& m) {
  CellResult found;
  found.limit_what = m.cell.op == CellOp::kPushPull ? "copy and bare fused loop, private memory"
                                                    : "bare fused loop, private memory";
  std::vector<float> all, all_limit;
  std::vector<double> rates, limit_rates, shares;
  for (int pair = 0; pair < m.options.pairs; ++pair) {
    std::vector<float> samples, limit;
    double rate = 0, limit_rate = 0;
    for (int k = 0; k < m.cell.writers; ++k) {
      const WriterLog& log = (*m.logs)[static_cast<std::size_t>(k)];
      const float* from = m.samples->Of(k, /*limit=*/false, pair);
      samples.insert(samples.end(), from, from + log.cell[pair].samples);
      from = m.samples->Of(k, /*limit=*/true, pair);
      limit.insert(limit.end(), from, from + log.limit[pair].samples);
      rate += OperationsPerSecond(log.cell[pair]);
      limit_rate += OperationsPerSecond(log.limit[pair]);
    }
    all.insert(all.end(), samples.begin(), samples.end());
    all_limit.insert(all_limit.end(), limit.begin(), limit.end());
    const double limit_p50 = MedianSample(std::move(limit));
    const double p50 = MedianSample(std::move(samples));
    if (limit_p50 > 0) found.pairs.push_back(p50 / limit_p50);
    rates.push_back(rate);
    limit_rates.push_back(limit_rate);
    if (limit_rate > 0) shares.push_back(rate / limit_rate);
  }
  found.latency = Describe(std::move(all));
  found.limit = Describe(std::move(all_limit));
  if (found.limit.p50 > 0) found.ratio = found.latency.p50 / found.limit.p50;
  found.spread = Spread(found.pairs);
  found.updates_per_second = Median(rates);
  found.limit_updates_per_second = Median(limit_rates);
  found.share = Median(shares);
  found.share_spread = Spread(shares);
  bool late = false;
  for (int k = 0; k < m.cell.writers; ++k) {
    const WriterLog& log = (*m.logs)[static_cast<std::size_t>(k)];
    found.pushes += log.pushes;
    found.busy_blocks += static_cast<std::int64_t>(log.collisions.busy);
    found.overlapped_blocks += static_cast<std::int64_t>(log.collisions.overlapped);
    late = late || log.late;
  }
  if (late) {
    found.note = fmt::format("the rate was not kept: {:.0f} of {:.0f} operations a second",
                             found.updates_per_second,
                             m.cell.rate_per_second * static_cast<double>(m.cell.writers));
  }
  return found;
}

}  // namespace

Result<CellResult> MeasureCell(const Cell& cell, const LabOptions& options) {
  PASSEL_CHECK(options.pairs >= 1 && options.pairs <= kMaxPairs &&
                   options.max_samples <= kMostSamples && options.run_seconds > 0,
               "the caller checked the options");
  const int cores = static_cast<int>(UsableCpus().size());
  PASSEL_RETURN_IF_ERROR(CheckCell(cell, cores));
  PASSEL_RETURN_IF_ERROR(CheckCellMemory(cell));
  Measurement m;
  m.cell = cell;
  m.options = options;
  m.usable_cores = cores;
  PASSEL_ASSIGN_OR_RETURN(m.plan, CellPlan(cell));
  std::string note;
  PASSEL_ASSIGN_OR_RETURN(const shm::Arena arena, CellArena(cell, m.plan, &note));
  m.arena_fd = arena.fd();
  // Each element in 100 ns by each writer in turn, and far longer runs than were asked for.
  const double slow = 1e-7 * static_cast<double>(cell.elements) * cell.writers *
                      static_cast<double>(2 * options.pairs * (m.LeastOperations() + 2));
  const double seconds = 120 + slow + 40 * options.run_seconds * options.pairs;
  m.deadline = Deadline::After(std::chrono::milliseconds(static_cast<std::int64_t>(1e3 * seconds)));
  const auto runs = static_cast<std::size_t>(cell.writers * options.pairs);
  const SampleMemory samples(cell.writers, options.pairs,
                             std::max<std::size_t>(options.max_samples / runs, 64));
  if (!samples.valid()) return ResourceExhausted("no memory for the samples of a cell");
  SharedArray<WriterLog> logs(static_cast<std::size_t>(cell.writers));
  SharedArray<Common> common(static_cast<std::size_t>(options.pairs));
  SharedArray<SharedMutex> mutex(1);
  PASSEL_RETURN_IF_ERROR(mutex[0].Init());
  m.samples = &samples;
  m.logs = &logs;
  m.common = &common;
  m.mutex = &mutex;
  PASSEL_RETURN_IF_ERROR(RunProcesses(
      CpusOf(cell), m.deadline, [&m](int index, Gate& gate) { return RunWriter(m, index, gate); }));

  CellResult found = Summarize(m);
  if (cell.sharing.in_rounds()) {
    const std::int64_t rounds = found.pushes / cell.writers;
    PASSEL_RETURN_IF_ERROR(
        CheckRounds(cell, m.plan, arena.memory(), kCheckRounds + 1, kCheckRounds + rounds));
  } else {
    PASSEL_ASSIGN_OR_RETURN(found.lost_updates,
                            CountLost(cell, m.plan, arena.memory(), found.pushes));
  }
  if (!note.empty()) found.note = found.note.empty() ? note : found.note + "; " + note;
  return found;
}

}  // namespace passel::lab

#include "fabric/counter_report.h"

#include <bit>

#include "base/clock.h"

namespace passel::fabric {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;  // counters order nothing

// Visits the scalars that the worker owns, in the order of CounterReport::scalars: numbers as they
// are with `number`, points in time with `time`.
template <typename Counters, typename Number, typename Time>
void VisitScalars(Counters& c, Number&& number, Time&& time) {
  for (auto* count :
       {&c.local_steps, &c.dropped, &c.max_clock_lead, &c.skipped, &c.fused_updates, &c.pull_ns,
        &c.compute_ns, &c.push_ns, &c.wait_ns, &c.cursor_epochs, &c.cursor_index, &c.device,
        &c.staleness.maximum, &c.push_latency_ns.maximum}) {
    number(*count);
  }
  for (auto* real : {&c.loss, &c.accuracy, &c.final_accuracy, &c.validation.accuracy}) {
    number(*real);
  }
  for (auto* step : {&c.validation.step, &c.not_finite_at}) number(*step);
  for (auto* point : {&c.first_step_ns, &c.last_step_ns}) time(*point);
}

template <typename Counters>
auto& BucketOf(Counters& c, std::size_t index) {
  return index < Histogram::kBuckets ? c.staleness.counts[index]
                                     : c.push_latency_ns.counts[index - Histogram::kBuckets];
}

template <typename Counters>
auto EngineWords(Counters& c) {
  return std::array{&c.pushes_begun,      &c.pushes_ended, &c.half_applied,
                    &c.overlapped_blocks, &c.busy_blocks,  &c.taken_over_blocks};
}

}  // namespace

CounterReport MakeReport(const WorkerCounters& counters) {
  CounterReport report;
  std::size_t next = 0;
  VisitScalars(
      counters,
      [&](const auto& word) {
        report.scalars[next++] = std::bit_cast<std::uint64_t>(word.load(kRelaxed));
      },
      [&](const auto& point) {
        const std::int64_t at = point.load(kRelaxed);
        report.scalars[next++] =
            at == 0 ? 0 : static_cast<std::uint64_t>(std::max<std::int64_t>(1, MonotonicNs() - at));
      });
  static_assert(CounterReport::kScalars == 14 + 4 + 2 + 2);
  for (std::size_t i = 0; i < 2 * Histogram::kBuckets; ++i) {
    const std::uint64_t count = BucketOf(counters, i).load(kRelaxed);
    if (count != 0) report.buckets.push_back({static_cast<std::uint16_t>(i), count});
  }
  return report;
}

void TakeReport(const CounterReport& report, WorkerCounters* counters) {
  std::size_t next = 0;
  VisitScalars(
      *counters,
      [&](auto& word) {
        using Value = decltype(word.load());
        word.store(std::bit_cast<Value>(report.scalars[next++]), kRelaxed);
      },
      [&](auto& point) {
        const auto age = static_cast<std::int64_t>(report.scalars[next++]);
        point.store(age <= 0 ? 0 : MonotonicNs() - age, kRelaxed);
      });
  for (const auto& bucket : report.buckets) {
    BucketOf(*counters, bucket.index).store(bucket.count, kRelaxed);
  }
}

std::array<std::uint64_t, 6> EngineCounts(const WorkerCounters& counters) {
  std::array<std::uint64_t, 6> counts{};
  const auto words = EngineWords(counters);
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = words[i]->load(kRelaxed);
  return counts;
}

void TakeEngineCounts(const std::array<std::uint64_t, 6>& counts, WorkerCounters* counters) {
  const auto words = EngineWords(*counters);
  for (std::size_t i = 0; i < counts.size(); ++i) words[i]->store(counts[i], kRelaxed);
}

}  // namespace passel::fabric

// histogram.h - single-writer counters and histograms in shared memory.

#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

namespace passel {

/// += for a counter with one writer: no locked instruction. Relaxed: readers only look.
inline void Increment(std::atomic<std::uint64_t>& counter, std::uint64_t by = 1) {
  counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

/// Counts of values: exact below 128, then eight buckets per power of two.
struct Histogram {
  static constexpr int kExact = 128;
  static constexpr int kBuckets = kExact + 8 * (64 - 7);
  std::atomic<std::uint64_t> counts[kBuckets];
  std::atomic<std::uint64_t> maximum;
};

constexpr int HistogramBucket(std::uint64_t value) {
  if (value < Histogram::kExact) return static_cast<int>(value);
  const int log = std::bit_width(value) - 1;  // >= 7
  return Histogram::kExact + 8 * (log - 7) + static_cast<int>(value >> (log - 3) & 7);
}

/// The largest value of a bucket; its smallest one is that of the bucket before, and 1.
constexpr std::uint64_t HistogramBucketTop(int bucket) {
  if (bucket < Histogram::kExact) return static_cast<std::uint64_t>(bucket);
  const int log = (bucket - Histogram::kExact) / 8 + 7;
  const auto part = static_cast<std::uint64_t>((bucket - Histogram::kExact) % 8);
  return (std::uint64_t{1} << log) + ((part + 1) << (log - 3)) - 1;
}

inline void Record(Histogram& histogram, std::uint64_t value) {
  Increment(histogram.counts[HistogramBucket(value)]);
  if (value > histogram.maximum.load(std::memory_order_relaxed)) {
    histogram.maximum.store(value, std::memory_order_relaxed);
  }
}

/// Counts the values from `least` to `most`, both included.
struct BucketCount {
  std::uint64_t least, most, count;
};
/// The buckets that have a value, ascending, of several histograms taken together. They may be
/// written meanwhile.
std::vector<BucketCount> Buckets(std::span<const Histogram* const> histograms);

struct HistogramSummary {
  std::uint64_t count = 0;
  /// Exact below 128, else within 12.5 %: the values of a bucket count as spread evenly in it.
  std::uint64_t p50 = 0, p99 = 0, p999 = 0;
  std::uint64_t maximum = 0;  ///< exact
};

/// Summarises several histograms taken together; they may be written meanwhile.
HistogramSummary Summarize(std::span<const Histogram* const> histograms);

}  // namespace passel

#include "store/metrics.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "base/text.h"

namespace passel {
namespace {

using Words = std::array<std::uint64_t, MetricSlots::kNameWords>;

bool IsPlain(char c) { return c > ' ' && c < 0x7f; }

std::size_t Count(const MetricSlots& slots, std::memory_order order) {
  return std::min<std::size_t>(slots.count.load(order), kMaxMetrics);
}

bool IsNamed(const MetricSlots::Slot& slot, const Words& name) {
  return std::ranges::equal(slot.name, name, [](const auto& word, std::uint64_t of_name) {
    return word.load(std::memory_order_relaxed) == of_name;
  });
}

}  // namespace

Status SetMetric(MetricSlots& slots, std::string_view name, double value) {
  if (name.empty() || name.size() > kMaxMetricName) {
    return InvalidArgument(fmt::format("the name of a metric has 1 to {} bytes, not {}: shorten it",
                                       kMaxMetricName, name.size()));
  }
  if (!std::ranges::all_of(name, IsPlain)) {
    return InvalidArgument(fmt::format(
        "the name of a metric is printable ASCII without spaces, not {}: use, for example, "
        "\"train/loss\"",
        Quoted(name)));
  }
  Words words{};
  std::memcpy(words.data(), name.data(), name.size());
  const std::size_t count = Count(slots, std::memory_order_relaxed);
  for (std::size_t i = 0; i < count; ++i) {
    if (!IsNamed(slots.slots[i], words)) continue;
    slots.slots[i].value.store(value, std::memory_order_relaxed);
    return {};
  }
  if (count == kMaxMetrics) {
    return ResourceExhausted(
        fmt::format("a worker has at most {} metrics, and {} would be one more: show fewer",
                    kMaxMetrics, Quoted(name)));
  }
  MetricSlots::Slot& slot = slots.slots[count];
  for (std::size_t w = 0; w < words.size(); ++w) {
    slot.name[w].store(words[w], std::memory_order_relaxed);
  }
  slot.value.store(value, std::memory_order_relaxed);
  // Release: who sees the place sees its name.
  slots.count.store(static_cast<std::uint32_t>(count + 1), std::memory_order_release);
  return {};
}

std::vector<Metric> ReadMetrics(const MetricSlots& slots) {
  std::vector<Metric> metrics;
  const std::size_t count = Count(slots, std::memory_order_acquire);
  for (std::size_t i = 0; i < count; ++i) {
    Words words;
    for (std::size_t w = 0; w < words.size(); ++w) {
      words[w] = slots.slots[i].name[w].load(std::memory_order_relaxed);
    }
    char name[sizeof words];
    std::memcpy(name, words.data(), sizeof words);
    metrics.push_back({std::string(name, ::strnlen(name, kMaxMetricName)),
                       slots.slots[i].value.load(std::memory_order_relaxed)});
  }
  return metrics;
}

}  // namespace passel

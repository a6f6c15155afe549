#include "train/profiler_hook.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"

namespace passel {
namespace {

constexpr std::size_t kParts = 4;
constexpr std::array<std::string_view, kParts> kPartNames = {"pull", "compute", "push", "wait"};
using Parts = std::array<std::int64_t, kParts>;  // in nanoseconds

Parts PartsOf(const WorkerCounters& counters) {
  const auto ns = [](const std::atomic<std::uint64_t>& counter) {
    // Relaxed: this thread alone writes them.
    return static_cast<std::int64_t>(counter.load(std::memory_order_relaxed));
  };
  return {ns(counters.pull_ns), ns(counters.compute_ns), ns(counters.push_ns),
          ns(counters.wait_ns)};
}

// An exact quotient is written with no more digits than it has.
double Microseconds(std::int64_t ns) { return static_cast<double>(ns) / 1000; }

struct TracedStep {
  std::int64_t begin_ns = 0, end_ns = 0;
  Parts parts{};
  std::int64_t local_step = 0, global_step = 0;
};

class Profiler final : public Hook {
 public:
  Profiler(const ProfilerOptions& options, const StepsTimer& timer)
      : options_(options), timer_(timer) {
    steps_.reserve(options.max_steps);
  }

  Status BeforeRun(HookContext& context) override {
    before_ = PartsOf(context.counters());
    begin_ns_ = MonotonicNs();
    return {};
  }

  Status AfterRun(HookContext& context) override {
    Keep(context);
    // The first step finds cold caches, and is no example.
    if (!std::exchange(warm_, true) || !timer_.IsDue(context.global_step())) return {};
    timer_.Fire(context.global_step());
    TryToWrite(context);
    return {};
  }

  Status End(HookContext& context) override {
    if (!steps_.empty()) TryToWrite(context);
    return {};
  }

 private:
  void TryToWrite(const HookContext& context) {
    const Status written = Write(context);
    if (!written.ok() && !std::exchange(failed_, true)) {
      LogWarning("the timeline is not written, training goes on without: {}", written.message());
    }
    steps_.clear();
    oldest_ = 0;
  }

  // Over the oldest one if there are so many already.
  void Keep(const HookContext& context) {
    TracedStep step{begin_ns_, MonotonicNs(), PartsOf(context.counters()),
                    context.step().local_step, context.global_step()};
    for (std::size_t i = 0; i < kParts; ++i) step.parts[i] -= before_[i];
    if (steps_.size() < options_.max_steps) {
      steps_.push_back(step);
    } else {
      steps_[oldest_] = step;
      oldest_ = (oldest_ + 1) % options_.max_steps;
    }
  }

  Status Write(const HookContext& context) const {
    const int worker = context.store().worker();
    const int pid = ::getpid();
    Json::List events;
    events.push_back({{"ph", "M"},
                      {"name", "process_name"},
                      {"pid", pid},
                      {"args", Json{{"name", context.task()}}}});
    const auto bar = [&](std::string_view name, std::int64_t begin, std::int64_t end, Json args) {
      events.push_back({{"ph", "X"},
                        {"name", name},
                        {"pid", pid},
                        {"tid", worker},
                        {"ts", Microseconds(begin)},
                        {"dur", Microseconds(end - begin)},
                        {"args", std::move(args)}});
    };
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const TracedStep& step = steps_[(oldest_ + i) % steps_.size()];
      bar("step", step.begin_ns, step.end_ns,
          {{"local_step", step.local_step}, {"global_step", step.global_step}});
      std::int64_t begin = step.begin_ns;
      for (std::size_t part = 0; part < kParts; ++part) {
        if (step.parts[part] == 0) continue;
        const std::int64_t end = std::min(begin + step.parts[part], step.end_ns);
        bar(kPartNames[part], begin, end, {{"ns", step.parts[part]}});
        begin = end;
      }
    }
    const std::string text =
        Json{{"displayTimeUnit", "ns"}, {"traceEvents", std::move(events)}}.Write() + "\n";
    const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
    return WriteFileAtomically(
        fmt::format("{}/timeline-{}.json", options_.output_dir, context.global_step()),
        {&bytes, 1});
  }

  const ProfilerOptions options_;
  StepsTimer timer_;
  Parts before_{};
  std::int64_t begin_ns_ = 0;
  std::vector<TracedStep> steps_;  // a ring, once it is full
  std::size_t oldest_ = 0;
  bool warm_ = false, failed_ = false;
};

}  // namespace

Result<std::unique_ptr<Hook>> MakeProfiler(const ProfilerOptions& options) {
  if (options.max_steps == 0) {
    return InvalidArgument("a timeline of at most 0 steps shows nothing: allow 1 or more");
  }
  PASSEL_ASSIGN_OR_RETURN(const StepsTimer timer, StepsTimer::Make(options.every));
  return std::unique_ptr<Hook>(std::make_unique<Profiler>(options, timer));
}

}  // namespace passel

// What this machine can do at all: memory, copies, and how fast one process learns of another. No
// targets: the limits that the other rows are held against.

#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/futex.h"
#include "bench/plain_loops.h"
#include "bench/stores.h"
#include "bench/suite.h"
#include "lab/processes.h"

namespace passel::bench {
namespace {

constexpr std::chrono::seconds kLimit{60};

// So many repetitions that a turn takes a few milliseconds at 20 GB/s.
int Repetitions(std::size_t bytes, bool smoke) {
  constexpr std::size_t kTurnBytes = 100'000'000;
  return smoke ? 1 : static_cast<int>(std::max<std::size_t>(1, kTurnBytes / bytes));
}

// 64-byte aligned, touched.
class Floats {
 public:
  explicit Floats(std::size_t n, float value)
      : memory_(std::make_unique<float[]>(n + 16)), data_(memory_.get()) {
    const auto address = reinterpret_cast<std::uintptr_t>(data_);
    data_ += (64 - address % 64) % 64 / sizeof(float);
    for (std::size_t i = 0; i < n; ++i) data_[i] = value;
  }
  float* data() const { return data_; }

 private:
  std::unique_ptr<float[]> memory_;
  float* data_;
};

Status BenchTriad(benchmark::State& state, Suite& suite, std::size_t elements, int processes,
                  Row& row) {
  const int repetitions = Repetitions(12 * elements, suite.settings().smoke);
  const double bytes = 12.0 * static_cast<double>(elements) * repetitions * processes;
  std::vector<double> measured;
  for (auto _ : state) {
    if (lab::Interrupted()) return {};
    lab::SharedArray<double> seconds(static_cast<std::size_t>(processes));
    const Deadline deadline = Deadline::After(kLimit);
    const auto body = [&](int index, lab::Gate& gate) -> Status {
      const Floats a(elements, 0), b(elements, 1), c(elements, 2);
      Triad(a.data(), b.data(), c.data(), 3, elements);  // caches as they will be
      PASSEL_RETURN_IF_ERROR(gate.Wait(deadline));
      const std::int64_t begin = MonotonicNs();
      for (int i = 0; i < repetitions; ++i) {
        Triad(a.data(), b.data(), c.data(), 3, elements);
        benchmark::ClobberMemory();
      }
      seconds[static_cast<std::size_t>(index)] = 1e-9 * static_cast<double>(MonotonicNs() - begin);
      const bool right = a.data()[0] == 7 && a.data()[elements - 1] == 7;
      return right ? Status() : Internal("a triad of 1 + 3 * 2 did not give 7");
    };
    PASSEL_RETURN_IF_ERROR(lab::RunProcesses(lab::OneCoreEach(processes), deadline, body));
    double slowest = 0;
    for (int i = 0; i < processes; ++i) {
      slowest = std::max(slowest, seconds[static_cast<std::size_t>(i)]);
    }
    state.SetIterationTime(slowest);
    measured.push_back(1e-9 * bytes / slowest);
  }
  row.measured = lab::Median(measured);
  row.pairs = measured;
  suite.report().Add(Limit{"triad", 12 * elements, processes, row.measured, row.unit});
  return {};
}

Status BenchMemcpy(benchmark::State& state, Suite& suite, std::size_t elements, Row& row) {
  const std::size_t bytes = elements * sizeof(float);
  const int copies = suite.settings().smoke ? 2 : 2000;
  std::vector<double> measured;
  lab::SharedArray<double> median_us(1), p99_us(1);
  for (auto _ : state) {
    if (lab::Interrupted()) return {};
    const auto body = [&](int, lab::Gate&) -> Status {
      const Floats from(elements, 1), to(elements, 0);
      std::vector<double> us;
      for (int i = 0; i < copies; ++i) {
        const std::int64_t begin = MonotonicNs();
        std::memcpy(to.data(), from.data(), bytes);
        benchmark::ClobberMemory();
        us.push_back(1e-3 * static_cast<double>(MonotonicNs() - begin));
      }
      median_us[0] = lab::Median(us);
      p99_us[0] = lab::Percentile(us, 0.99);
      return to.data()[elements - 1] == 1 ? Status() : Internal("a copy differs from its source");
    };
    PASSEL_RETURN_IF_ERROR(lab::RunProcesses(lab::OneCoreEach(1), Deadline::After(kLimit), body));
    state.SetIterationTime(1e-6 * median_us[0] * copies);
    measured.push_back(median_us[0]);
  }
  row.measured = lab::Median(measured);
  row.pairs = measured;
  suite.report().Add(Limit{"memcpy", bytes, 1, row.measured, row.unit});
  row.note =
      fmt::format("{:.1f} GB/s read and written", 2e-3 * static_cast<double>(bytes) / row.measured);
  return {};
}

enum class HandOver { kSpin, kFutex };

struct Ball {
  alignas(128) std::atomic<std::uint32_t> turn;
  alignas(128) std::array<float, 4096> one_way_us;
};

// Two processes on two cores; whoever's turn it is passes it on. Half a round trip is a hand-over.
Status BenchHandOver(benchmark::State& state, Suite& suite, HandOver how, Row& row) {
  const std::uint32_t rounds = suite.settings().smoke ? 20 : how == HandOver::kSpin ? 4096 : 1000;
  std::vector<double> all, measured;
  for (auto _ : state) {
    if (lab::Interrupted()) return {};
    lab::SharedArray<Ball> balls(1);
    Ball& ball = balls[0];
    const Deadline deadline = Deadline::After(kLimit);
    const auto body = [&](int index, lab::Gate& gate) -> Status {
      PASSEL_RETURN_IF_ERROR(gate.Wait(deadline));
      const auto me = static_cast<std::uint32_t>(index);
      for (std::uint32_t round = 0; round < rounds; ++round) {
        const std::uint32_t mine = 2 * round + me;
        const std::int64_t begin = MonotonicNs();
        for (std::uint64_t i = 1;; ++i) {
          const std::uint32_t seen = ball.turn.load(std::memory_order_acquire);
          if (seen == mine) break;
          if (how == HandOver::kFutex) {
            FutexWait(ball.turn, seen, deadline);
          } else {
            SpinPause();
          }
          if (i % 4096 == 0 && deadline.Expired()) {
            return DeadlineExceeded("the other process of a hand-over did not take its turn");
          }
        }
        if (index == 0 && round > 0) {
          ball.one_way_us[round] =
              static_cast<float>(5e-4 * static_cast<double>(MonotonicNs() - begin));
        }
        ball.turn.store(mine + 1, std::memory_order_release);
        if (how == HandOver::kFutex) FutexWakeAll(ball.turn);
      }
      return {};
    };
    PASSEL_RETURN_IF_ERROR(lab::RunProcesses(lab::OneCoreEach(2), deadline, body));
    const std::vector<double> us(ball.one_way_us.begin() + 1, ball.one_way_us.begin() + rounds);
    state.SetIterationTime(2e-6 * lab::Median(us) * rounds);
    measured.push_back(lab::Median(us));
    all.insert(all.end(), us.begin(), us.end());
  }
  row.measured = lab::Median(measured);
  row.pairs = measured;
  row.latency = lab::Summarize(all);
  const char* what = how == HandOver::kSpin ? "hand-over, spinning" : "hand-over, futex";
  suite.report().Add(Limit{what, 64, 2, row.measured, row.unit});
  return {};
}

}  // namespace

void RegisterLimitBenchmarks(Suite& suite) {
  const bool smoke = suite.settings().smoke;
  const int cores = suite.usable_cores();
  const std::size_t many = smoke ? 100'000 : 16'000'000;
  for (const std::size_t elements : {std::size_t{79510}, many}) {
    for (const int processes : {1, cores}) {
      if (processes == 1 && cores == 1 && elements == many) continue;
      Row row;
      row.what = fmt::format("limit: triad, {} floats, {} process{}", elements, processes,
                             processes == 1 ? "" : "es");
      row.unit = "GB/s";
      const Status memory =
          lab::CheckFreeMemory(12 * elements * static_cast<std::size_t>(processes));
      if (!memory.ok()) row.not_applicable = memory.message();
      suite.Register(fmt::format("BM_Limit/what:triad/elems:{}/processes:{}", elements, processes),
                     row, suite.settings().Pairs(3),
                     [&suite, elements, processes](benchmark::State& state, Row& found) {
                       return BenchTriad(state, suite, elements, processes, found);
                     });
    }
  }
  for (const std::size_t elements : {std::size_t{79510}, std::size_t{1} << 20}) {
    Row row;
    row.what = fmt::format("limit: memcpy, {} floats", elements);
    row.unit = "us";
    suite.Register(fmt::format("BM_Limit/what:memcpy/elems:{}", elements), row,
                   suite.settings().Pairs(3), [&suite, elements](benchmark::State& s, Row& found) {
                     return BenchMemcpy(s, suite, elements, found);
                   });
  }
  for (const HandOver how : {HandOver::kSpin, HandOver::kFutex}) {
    Row row;
    row.what = how == HandOver::kSpin ? "limit: hand-over to a process that spins"
                                      : "limit: hand-over to a process that sleeps (futex)";
    row.unit = "us";
    if (cores < 2) row.not_applicable = fmt::format("needs 2 cores, {} is usable", cores);
    suite.Register(how == HandOver::kSpin ? "BM_Limit/what:spin" : "BM_Limit/what:futex", row,
                   suite.settings().Pairs(3), [&suite, how](benchmark::State& s, Row& found) {
                     return BenchHandOver(s, suite, how, found);
                   });
  }
}

}  // namespace passel::bench

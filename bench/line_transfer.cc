#include "bench/line_transfer.h"

#include <benchmark/benchmark.h>

#include <array>
#include <atomic>
#include <chrono>

#include "base/clock.h"
#include "base/futex.h"
#include "bench/stores.h"
#include "lab/processes.h"
#include "lab/samples.h"
#include "optim/update_kernels.h"

namespace passel::bench {
namespace {

struct Shared {
  alignas(128) std::atomic<std::uint64_t> turn;
  alignas(128) std::array<double, 1000> own_us;
  std::array<double, 1000> foreign_us;
  double round_trip_ns;
};

Status AwaitTurn(const std::atomic<std::uint64_t>& turn, std::uint64_t wanted, Deadline deadline) {
  for (std::uint64_t i = 1; turn.load(std::memory_order_acquire) != wanted; ++i) {
    SpinPause();
    if (i % 4096 == 0 && deadline.Expired()) {
      return DeadlineExceeded("the other process of a line transfer did not take its turn");
    }
  }
  return {};
}

}  // namespace

Result<LineTransfer> MeasureLineTransfer(int from, int to, std::size_t elements, int turns) {
  PASSEL_ASSIGN_OR_RETURN(const StorePlan plan, lab::FlatPlan(Mode::kHogwild, "adam", elements, 2));
  PASSEL_ASSIGN_OR_RETURN(const shm::Arena arena, lab::CreateArena(plan));
  const Deadline deadline = Deadline::After(std::chrono::seconds(30));
  lab::SharedArray<Shared> cells(1);
  Shared& shared = cells[0];
  const StepScalars scalars = Prepare(plan.optimizer, 100);
  constexpr std::uint64_t kBounces = 4000;
  const auto count = static_cast<std::uint64_t>(turns);

  // Process 0 runs on `to` and is timed, process 1 on `from`.
  const auto body = [&](int index, lab::Gate&) -> Status {
    PASSEL_ASSIGN_OR_RETURN(const shm::Arena mine, lab::AdoptArena(arena.fd()));
    const ShardMemory& memory = mine.memory();
    float total = 0;
    const auto update = [&] {
      Apply(scalars, memory.values, memory.slots, memory.Gradient(index, 0), memory.floats);
    };
    const auto read_and_update = [&] {
      const std::int64_t begin = MonotonicNs();
      for (std::size_t i = 0; i < memory.floats; i += 16) total += memory.values[i];
      benchmark::DoNotOptimize(total);
      update();
      return 1e-3 * static_cast<double>(MonotonicNs() - begin);
    };
    const auto me = static_cast<std::uint64_t>(index);
    for (std::uint64_t t = 0; t < 2 * count; ++t) {
      if (t % 2 == me) continue;
      PASSEL_RETURN_IF_ERROR(AwaitTurn(shared.turn, t, deadline));
      if (index == 1) {
        update();
      } else {
        shared.foreign_us[t / 2] = read_and_update();
        shared.own_us[t / 2] = read_and_update();
      }
      shared.turn.store(t + 1, std::memory_order_release);
    }
    // One line, in turn.
    const std::uint64_t begin_turn = 2 * count;
    PASSEL_RETURN_IF_ERROR(AwaitTurn(shared.turn, begin_turn + me, deadline));
    const std::int64_t begin = MonotonicNs();
    for (std::uint64_t t = begin_turn + me; t < begin_turn + 2 * kBounces; t += 2) {
      for (std::uint64_t i = 1; shared.turn.load(std::memory_order_acquire) != t; ++i) {
        if (i % 1'000'000 == 0 && deadline.Expired()) {
          return DeadlineExceeded("the other process of a line transfer went away");
        }
      }
      shared.turn.store(t + 1, std::memory_order_release);
    }
    if (index == 0) {
      shared.round_trip_ns =
          static_cast<double>(MonotonicNs() - begin) / static_cast<double>(kBounces);
    }
    return {};
  };
  PASSEL_RETURN_IF_ERROR(lab::RunProcesses({{to}, {from}}, deadline, body));
  LineTransfer found;
  found.from = from;
  found.to = to;
  const auto median = [&](const std::array<double, 1000>& samples) {
    return lab::Median(std::vector<double>(samples.begin() + turns / 10, samples.begin() + turns));
  };
  found.own_us = median(shared.own_us);
  found.foreign_us = median(shared.foreign_us);
  const double lines = 3.0 * static_cast<double>(elements) / 16;
  found.line_ns = 1e3 * found.ExtraUs() / lines;
  found.round_trip_ns = shared.round_trip_ns;
  return found;
}

Result<std::vector<LineTransfer>> MeasureAllPairs(const std::vector<int>& cpus,
                                                  std::size_t elements, int turns) {
  std::vector<LineTransfer> pairs;
  for (std::size_t i = 0; i < cpus.size(); ++i) {
    for (std::size_t j = 0; j < cpus.size(); ++j) {
      if (i == j) continue;
      PASSEL_ASSIGN_OR_RETURN(const LineTransfer pair,
                              MeasureLineTransfer(cpus[i], cpus[j], elements, turns));
      pairs.push_back(pair);
    }
  }
  return pairs;
}

}  // namespace passel::bench

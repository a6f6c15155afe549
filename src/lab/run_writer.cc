#include <sched.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/futex.h"
#include "lab/arenas.h"
#include "lab/exact.h"
#include "lab/measurement.h"
#include "lab/samples.h"

// One writer: is what it does right, and how fast is it?

namespace passel::lab {
namespace {

constexpr double kLeastUs = 0.001;  // of a sample: the clock counts no less

// What a reading of the clock adds to a sample, in us.
double ClockCost() {
  std::vector<double> costs;
  for (int i = 0; i < 1000; ++i) {
    const std::int64_t begin = MonotonicNs();
    costs.push_back(1e-3 * static_cast<double>(MonotonicNs() - begin));
  }
  return Median(std::move(costs));
}

void SleepUntil(std::int64_t at_ns) {
  timespec until{};
  until.tv_sec = static_cast<time_t>(at_ns / 1'000'000'000);
  until.tv_nsec = static_cast<long>(at_ns % 1'000'000'000);
  ::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
}

// Returns at `at_ns`, or at once if that has passed.
void AwaitStart(std::int64_t at_ns, bool spin) {
  constexpr std::int64_t kWakeUp = 60'000;  // ns that a sleep may end late
  while (true) {
    const std::int64_t left = at_ns - MonotonicNs();
    if (left <= 0) return;
    if (spin) {
      SpinPause();
    } else if (left > 2 * kWakeUp) {
      SleepUntil(at_ns - kWakeUp);
    } else {
      ::sched_yield();
    }
  }
}

// The reference: always a closed loop, everyone for himself.
void RunLimit(const Measurement& m, int index, int pair, double clock_us, PrivateLoop& loop) {
  RunLog& log = (*m.logs)[static_cast<std::size_t>(index)].limit[pair];
  float* const samples = m.samples->Of(index, /*limit=*/true, pair);
  const std::size_t capacity = m.samples->capacity();
  const auto least = static_cast<std::size_t>(m.LeastOperations());
  log.begin_ns = MonotonicNs();
  const std::int64_t end = log.begin_ns + m.RunNs();
  std::int64_t now = log.begin_ns;
  while (log.samples < capacity && (now < end || log.samples < least)) {
    const std::int64_t begin = MonotonicNs();
    loop.Update();
    now = MonotonicNs();
    const double us = 1e-3 * static_cast<double>(now - begin) - clock_us;
    samples[log.samples++] = static_cast<float>(std::max(kLeastUs, us));
  }
  log.end_ns = now;
}

Status RunCell(const Measurement& m, int index, int pair, double clock_us, Writer& writer) {
  WriterLog& writer_log = (*m.logs)[static_cast<std::size_t>(index)];
  RunLog& log = writer_log.cell[pair];
  float* const samples = m.samples->Of(index, /*limit=*/false, pair);
  const auto capacity = static_cast<std::int64_t>(m.samples->capacity());
  Common& common = (*m.common)[static_cast<std::size_t>(pair)];
  std::atomic<std::int64_t>& common_end = common.end_operations;
  const bool together = m.EndsTogether();
  const bool open = m.cell.rate_per_second > 0;
  const double period_ns = open ? 1e9 / m.cell.rate_per_second : 0;
  log.begin_ns = MonotonicNs();
  if (open) {
    // Relaxed: a number of its own. Who was late at the gate is late here, and has it in its
    // figures.
    std::int64_t start = 0;
    if (!common.start_ns.compare_exchange_strong(start, log.begin_ns, std::memory_order_relaxed)) {
      log.begin_ns = start;
    }
  }
  const std::int64_t end = log.begin_ns + m.RunNs();
  // An open loop that cannot keep its rate falls behind for ever.
  const std::int64_t give_up = log.begin_ns + 4 * m.RunNs();
  const auto intended_ns = [&](std::int64_t operation) {
    // In turn; but a round is due for everyone at once, or they would wait for the last one's turn.
    const double phase =
        m.cell.sharing.in_rounds() ? 0 : static_cast<double>(index) / m.cell.writers;
    return log.begin_ns +
           static_cast<std::int64_t>((static_cast<double>(operation) + phase) * period_ns);
  };
  std::int64_t done = 0, now = log.begin_ns;
  const auto enough = [&] {
    if (done >= capacity) return true;
    if (done < m.LeastOperations()) return false;
    return open ? intended_ns(done) >= end || now >= give_up : now >= end;
  };
  while (true) {
    if (together) {
      // Relaxed: nobody else writes it. Release, paired with the acquire below: whoever completes
      // an operation together with writer 0's next one has seen it.
      if (index == 0 && common_end.load(std::memory_order_relaxed) == 0 &&
          (enough() || done + m.Lead() >= capacity)) {
        common_end.store(done + m.Lead(), std::memory_order_release);
      }
      const std::int64_t last = common_end.load(std::memory_order_acquire);
      if (last != 0 && done >= last) break;
    } else if (enough()) {
      break;
    }
    if (m.options.before_operation) m.options.before_operation(index, done);
    std::int64_t begin = MonotonicNs();
    if (open) {
      begin = intended_ns(done);
      AwaitStart(begin, m.CoresForAll());
    }
    PASSEL_RETURN_IF_ERROR(writer.Update(m.deadline));
    now = MonotonicNs();
    const double us = 1e-3 * static_cast<double>(now - begin) - (open ? 0 : clock_us);
    samples[done++] = static_cast<float>(std::max(kLeastUs, us));
  }
  log.samples = static_cast<std::size_t>(done);
  log.end_ns = now;
  writer_log.pushes += done;
  if (open && now >= give_up && intended_ns(done) < end) writer_log.late = true;
  return {};
}

}  // namespace

Status RunWriter(const Measurement& m, int index, Gate& gate) {
  const Cell& cell = m.cell;
  PASSEL_ASSIGN_OR_RETURN(const shm::Arena arena, AdoptArena(m.arena_fd));
  const ShardMemory memory = arena.memory();
  PASSEL_ASSIGN_OR_RETURN(const std::unique_ptr<Writer> writer,
                          OpenWriter(cell, m.plan, memory, index, &(*m.mutex)[0]));
  PASSEL_ASSIGN_OR_RETURN(PrivateLoop loop, PrivateLoop::Make(cell, m.plan));
  const double clock_us = ClockCost();
  const auto meet = [&] { return gate.Wait(m.deadline); };

  // Is it right?
  FillGradientForCheck(index, cell.elements, writer->gradient());
  PASSEL_RETURN_IF_ERROR(meet());
  if (index == 0) FillForCheck(m.plan, cell.elements, memory.values, memory.slots);
  PASSEL_RETURN_IF_ERROR(meet());
  for (int round = 0; round < kCheckRounds; ++round) {
    if (cell.sharing.in_rounds()) {
      PASSEL_RETURN_IF_ERROR(writer->Update(m.deadline));
      continue;
    }
    for (int k = 0; k < cell.writers; ++k) {
      if (k == index) PASSEL_RETURN_IF_ERROR(writer->Update(m.deadline));
      PASSEL_RETURN_IF_ERROR(meet());
    }
  }
  PASSEL_RETURN_IF_ERROR(meet());
  if (index == 0) PASSEL_RETURN_IF_ERROR(CheckAgainstLoop(cell, m.plan, memory, loop));
  PASSEL_RETURN_IF_ERROR(meet());
  if (index == 0) {
    FillForCounting(m.plan, cell.elements, memory.values, memory.slots);
    memory.state->optimizer_step.store(kCountingStep, std::memory_order_relaxed);
  }
  FillGradientForCounting(cell.elements, writer->gradient());
  FillForCounting(m.plan, cell.elements, loop.values(), loop.slots());
  FillGradientForCounting(cell.elements, loop.gradient());
  const Collisions before = writer->collisions();

  // How fast is it?
  for (int pair = 0; pair < m.options.pairs; ++pair) {
    PASSEL_RETURN_IF_ERROR(meet());
    for (int i = 0; i < m.WarmUps(); ++i) loop.Update();
    PASSEL_RETURN_IF_ERROR(meet());
    RunLimit(m, index, pair, clock_us, loop);
    PASSEL_RETURN_IF_ERROR(meet());
    for (int i = 0; i < m.WarmUps(); ++i) PASSEL_RETURN_IF_ERROR(writer->Update(m.deadline));
    (*m.logs)[static_cast<std::size_t>(index)].pushes += m.WarmUps();
    PASSEL_RETURN_IF_ERROR(meet());
    PASSEL_RETURN_IF_ERROR(RunCell(m, index, pair, clock_us, *writer));
  }
  PASSEL_RETURN_IF_ERROR(meet());
  const Collisions after = writer->collisions();
  (*m.logs)[static_cast<std::size_t>(index)].collisions = {after.busy - before.busy,
                                                           after.overlapped - before.overlapped};
  return writer->Leave();
}

}  // namespace passel::lab

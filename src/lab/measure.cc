#include "lab/measure.h"

#include <fmt/core.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <ctime>
#include <memory>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/futex.h"
#include "base/subprocess.h"
#include "lab/arenas.h"
#include "lab/exact.h"
#include "lab/processes.h"
#include "lab/samples.h"
#include "lab/writers.h"

namespace passel::lab {
namespace {

constexpr int kMaxPairs = 64;
constexpr std::size_t kMostSamples = 8'000'000;
constexpr double kLeastUs = 0.001;  // of a sample: the clock counts no less

// One timed run of one writer.
struct RunLog {
  std::size_t samples = 0;
  std::int64_t begin_ns = 0, end_ns = 0;
};

struct WriterLog {
  RunLog limit[kMaxPairs], cell[kMaxPairs];
  std::int64_t pushes = 0;  // of the cell, after the check
  Collisions collisions;
  bool late = false;  // an open loop gave up before its last operation
};

// What the writers of one timed run agree on; 0: not decided yet.
struct Common {
  std::atomic<std::int64_t> start_ns;        // open loops: the first one's start, for all of them
  std::atomic<std::int64_t> end_operations;  // rounds, and ssp: all end after the same operation
};

// Samples of all writers in us, shared with them: [writers][limit, cell][pairs][capacity].
class SampleMemory {
 public:
  SampleMemory(int writers, int pairs, std::size_t capacity)
      : pairs_(static_cast<std::size_t>(pairs)),
        capacity_(capacity),
        bytes_(static_cast<std::size_t>(writers) * 2 * pairs_ * capacity * sizeof(float)) {
    void* memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory != MAP_FAILED) samples_ = static_cast<float*>(memory);
  }
  ~SampleMemory() {
    if (samples_ != nullptr) ::munmap(samples_, bytes_);
  }
  SampleMemory(const SampleMemory&) = delete;
  SampleMemory& operator=(const SampleMemory&) = delete;

  bool valid() const { return samples_ != nullptr; }
  std::size_t capacity() const { return capacity_; }
  float* Of(int writer, bool limit, int pair) const {
    const std::size_t run = (static_cast<std::size_t>(writer) * 2 + (limit ? 0 : 1)) * pairs_ +
                            static_cast<std::size_t>(pair);
    return samples_ + run * capacity_;
  }

 private:
  const std::size_t pairs_;
  const std::size_t capacity_;  // of one run
  const std::size_t bytes_;
  float* samples_ = nullptr;
};

// What all processes of one measurement know.
struct Measurement {
  Cell cell;
  StorePlan plan;
  LabOptions options;
  int usable_cores = 1;
  Deadline deadline = Deadline::After(std::chrono::seconds(0));
  int arena_fd = -1;
  const SampleMemory* samples = nullptr;
  SharedArray<WriterLog>* logs = nullptr;
  SharedArray<Common>* common = nullptr;  // [pairs]
  SharedArray<SharedMutex>* mutex = nullptr;

  std::int64_t RunNs() const { return static_cast<std::int64_t>(1e9 * options.run_seconds); }
  bool EndsTogether() const { return cell.sharing.in_rounds() || cell.sharing.traits().bounded; }
  // Operations that a writer can be ahead of another, and one more.
  std::int64_t Lead() const {
    const ModeTraits& traits = cell.sharing.traits();
    return traits.bounded ? traits.omitted + 2 : 1;
  }
  // However long they take.
  std::int64_t LeastOperations() const { return cell.elements > 4'000'000 ? 2 : 5; }
  // Untimed, before each run: caches and branches as they will be.
  int WarmUps() const {
    return static_cast<int>(std::clamp<std::size_t>(1'000'000 / cell.elements, 1, 1000));
  }
  // Every writer that waits for its time has a core to do so on.
  bool CoresForAll() const {
    return cell.placement != Placement::kOne && cell.writers <= usable_cores;
  }
};

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

// Everything that one writer does.
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

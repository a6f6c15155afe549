// Push and pull of one worker, against the bare update loop over the same memory.

#include <fmt/core.h>
#include <sched.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "bench/one_worker.h"
#include "bench/stores.h"
#include "bench/suite.h"
#include "lab/processes.h"
#include "optim/update_kernels.h"

namespace passel::bench {
namespace {

constexpr std::size_t kMlpElements = 79510;                       // 784-100-10
constexpr std::size_t kManyElements = std::size_t{16} * 1000000;  // beyond every cache

// This process on one core while it lives.
class ScopedPin {
 public:
  ScopedPin() {
    ok_ = ::sched_getaffinity(0, sizeof before_, &before_) == 0;
    status_ = lab::PinTo(lab::OneCoreEach(1)[0]);
  }
  ~ScopedPin() {
    if (ok_) ::sched_setaffinity(0, sizeof before_, &before_);
  }
  ScopedPin(const ScopedPin&) = delete;
  ScopedPin& operator=(const ScopedPin&) = delete;
  const Status& status() const { return status_; }

 private:
  cpu_set_t before_;
  bool ok_ = false;
  Status status_;
};

Status PushOnce(ParameterStore& store, const GradientBuffer& gradient) {
  PASSEL_ASSIGN_OR_RETURN(const ParamView view, store.Pull(PullMode::kView));
  PASSEL_ASSIGN_OR_RETURN(const Ticket ticket, store.Push(gradient, view.stamp(), Soon()));
  return store.Wait(ticket, Soon()).status();
}

// Three pushes must give the bits that three bare updates of the same values give.
Status VerifyPush(const StorePlan& plan, OneWorker& one) {
  const ShardMemory& memory = one.arena->memory();
  std::vector<float> values(memory.values, memory.values + memory.floats);
  std::vector<std::vector<float>> slot_values;
  float* slots[kMaxSlots] = {};
  for (int s = 0; s < memory.num_slots; ++s) {
    slot_values.emplace_back(memory.slots[s], memory.slots[s] + memory.floats);
  }
  for (int s = 0; s < memory.num_slots; ++s)
    slots[s] = slot_values[static_cast<std::size_t>(s)].data();
  const GradientBuffer gradient = one.store->LendGradient();
  FillGradient(gradient);
  for (int step = 1; step <= 3; ++step) {
    PASSEL_RETURN_IF_ERROR(PushOnce(*one.store, gradient));
    Apply(Prepare(plan.optimizer, step), values.data(), slots, memory.Gradient(0, gradient.slot()),
          memory.floats);
  }
  if (std::memcmp(values.data(), memory.values, memory.floats * sizeof(float)) != 0) {
    return Internal("three pushes gave other values than three updates of the whole array");
  }
  for (int s = 0; s < memory.num_slots; ++s) {
    if (std::memcmp(slots[s], memory.slots[s], memory.floats * sizeof(float)) != 0) {
      return Internal("three pushes gave another slot variable than three whole updates");
    }
  }
  if (one.store->global_step() != 3) return Internal("three pushes are not three global steps");
  return {};
}

Status BenchPush(benchmark::State& state, Suite& suite, Mode mode, const std::string& optimizer,
                 std::size_t elements, Row& row) {
  const ScopedPin pin;
  PASSEL_RETURN_IF_ERROR(pin.status());
  PASSEL_ASSIGN_OR_RETURN(const StorePlan plan, lab::FlatPlan(mode, optimizer, elements, 1));
  PASSEL_ASSIGN_OR_RETURN(OneWorker one, OneWorker::Make(plan));
  PASSEL_RETURN_IF_ERROR(VerifyPush(plan, one));
  const ShardMemory& memory = one.arena->memory();
  ParameterStore& store = *one.store;
  const StepScalars scalars = Prepare(plan.optimizer, 100);
  // Short turns, so that both see the same clock rate and the same neighbours.
  const int turns = suite.settings().smoke ? 1 : 50;
  const int pushes = suite.settings().smoke ? 2 : 40;
  std::vector<double> all, measured, limit;
  for (auto _ : state) {
    if (lab::Interrupted()) return {};
    std::vector<double> pushed, bare;
    double seconds = 0;
    for (int turn = 0; turn < turns; ++turn) {
      for (int i = 0; i < pushes; ++i) {
        const std::int64_t begin = MonotonicNs();
        Apply(scalars, memory.values, memory.slots, memory.Gradient(0, 0), memory.floats);
        bare.push_back(1e-3 * static_cast<double>(MonotonicNs() - begin));
      }
      for (int i = 0; i < pushes; ++i) {
        PASSEL_ASSIGN_OR_RETURN(const ParamView view, store.Pull(PullMode::kView));
        const GradientBuffer gradient = store.LendGradient();
        const Deadline deadline = Soon();
        const std::int64_t begin = MonotonicNs();
        PASSEL_ASSIGN_OR_RETURN(const Ticket ticket, store.Push(gradient, view.stamp(), deadline));
        PASSEL_RETURN_IF_ERROR(store.Wait(ticket, deadline).status());
        suite.settings().slow_push.AfterPush(scalars, memory);
        pushed.push_back(1e-3 * static_cast<double>(MonotonicNs() - begin));
        seconds += 1e-6 * pushed.back();
      }
    }
    state.SetIterationTime(seconds);
    measured.push_back(lab::Median(pushed));
    limit.push_back(lab::Median(bare));
    all.insert(all.end(), pushed.begin(), pushed.end());
  }
  const auto items = static_cast<std::int64_t>(all.size() * elements);
  state.SetItemsProcessed(items);
  // Values and slots are read and written, the gradient is read.
  state.SetBytesProcessed(items * 4 * (3 + 2 * memory.num_slots));
  Compare(measured, limit, &row);
  row.latency = lab::Summarize(all);
  if (mode == Mode::kHogwild) {
    const auto bytes = elements * 4 * static_cast<std::size_t>(3 + 2 * memory.num_slots);
    suite.report().Add(Limit{"bare fused loop, " + optimizer, bytes, 1, *row.limit, row.unit});
  }
  return store.Leave();
}

Status BenchPull(benchmark::State& state, Suite& suite, std::size_t elements, Row& row) {
  const ScopedPin pin;
  PASSEL_RETURN_IF_ERROR(pin.status());
  PASSEL_ASSIGN_OR_RETURN(const StorePlan plan, lab::FlatPlan(Mode::kHogwild, "sgd", elements, 1));
  PASSEL_ASSIGN_OR_RETURN(OneWorker one, OneWorker::Make(plan));
  ParameterStore& store = *one.store;
  PASSEL_ASSIGN_OR_RETURN(const ParamView first, store.Pull(PullMode::kView));
  if (first.values(0).data() != one.arena->memory().values || first.values(0).size() != elements) {
    return Internal("a view does not show the shared values themselves");
  }
  const int pulls = suite.settings().smoke ? 10 : 20000;
  constexpr int kBatch = 64;
  std::vector<double> all, measured;
  for (auto _ : state) {
    if (lab::Interrupted()) return {};
    // Alone each pull would be a quarter of the clock's own cost; the clock is taken off below.
    std::vector<double> clock, single;
    for (int i = 0; i < pulls; ++i) {
      const std::int64_t begin = MonotonicNs();
      const std::int64_t end = MonotonicNs();
      clock.push_back(static_cast<double>(end - begin));
    }
    const double clock_ns = lab::Median(clock);
    for (int i = 0; i < pulls; ++i) {
      const std::int64_t begin = MonotonicNs();
      Result<ParamView> view = store.Pull(PullMode::kView);
      benchmark::DoNotOptimize(view);
      const std::int64_t end = MonotonicNs();
      PASSEL_RETURN_IF_ERROR(view.status());
      single.push_back(std::max(0.0, static_cast<double>(end - begin) - clock_ns));
    }
    std::vector<double> batches;
    double seconds = 0;
    for (int i = 0; i < pulls / kBatch + 1; ++i) {
      const std::int64_t begin = MonotonicNs();
      for (int k = 0; k < kBatch; ++k) {
        Result<ParamView> view = store.Pull(PullMode::kView);
        benchmark::DoNotOptimize(view);
      }
      const auto ns = static_cast<double>(MonotonicNs() - begin);
      batches.push_back(ns / kBatch);
      seconds += 1e-9 * ns;
    }
    state.SetIterationTime(seconds);
    measured.push_back(lab::Median(batches));
    all.insert(all.end(), single.begin(), single.end());
  }
  row.measured = lab::Median(measured);
  row.pairs = measured;
  row.latency = lab::Summarize(all);
  return store.Leave();
}

}  // namespace

void RegisterStoreBenchmarks(Suite& suite) {
  const bool smoke = suite.settings().smoke;
  for (const Mode mode : {Mode::kHogwild, Mode::kLocked}) {
    for (const char* optimizer : {"sgd", "adam"}) {
      const std::size_t elements = smoke ? 5000 : kMlpElements;
      Row row;
      row.what =
          fmt::format("push, {}, {}, {} floats, 1 writer", ModeName(mode), optimizer, elements);
      row.unit = "us";
      row.target = RatioAtMost(1.10);
      suite.Register(fmt::format("BM_Push/mode:{}/opt:{}/elems:{}/writers:1", ModeName(mode),
                                 optimizer, elements),
                     row, suite.settings().Pairs(5),
                     [&suite, mode, optimizer, elements](benchmark::State& state, Row& found) {
                       return BenchPush(state, suite, mode, optimizer, elements, found);
                     });
    }
  }
  for (const std::size_t elements : {kMlpElements, kManyElements}) {
    if (smoke && elements == kManyElements) continue;
    Row row;
    row.what = fmt::format("pull as a view, {} floats", elements);
    row.unit = "ns";
    row.target = AtMost(100);
    const Status memory = lab::CheckFreeMemory(elements * 8);
    if (!memory.ok()) row.not_applicable = memory.message();
    suite.Register(fmt::format("BM_Pull/mode:hogwild/elems:{}", elements), row,
                   suite.settings().Pairs(5),
                   [&suite, elements](benchmark::State& state, Row& found) {
                     return BenchPull(state, suite, elements, found);
                   });
  }
}

}  // namespace passel::bench

// What the ranges of a step cost while no tool listens, against the step of one worker.

#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include "base/clock.h"
#include "base/nvtx.h"
#include "bench/suite.h"
#include "bench/training.h"
#include "data/dataset.h"
#include "lab/processes.h"

namespace passel::bench {
namespace {

using nvtx::Event;
using nvtx::Range;

// As many as a worker opens in a step of `hogwild`, nested as there. Around every one the compiler
// must take memory as changed, as it must around what the ranges enclose.
void RangesOfAStep(std::int64_t step) {
  const Range whole(Event::kStep, step);
  benchmark::ClobberMemory();
  {
    const Range pull(Event::kPull, step);
    benchmark::ClobberMemory();
  }
  {
    const Range compute(Event::kCompute, step);
    for (const Event event : {Event::kGather, Event::kForward, Event::kBackward}) {
      const Range part(event, 100);
      benchmark::ClobberMemory();
    }
  }
  {
    const Range push(Event::kPush, step);
    benchmark::ClobberMemory();
    const Range apply(Event::kApply, step);
    benchmark::ClobberMemory();
  }
}
constexpr double kRangesOfAStep = 8;

Status BenchRanges(benchmark::State& state, Suite& suite, Row& row) {
  if (!nvtx::kBuiltIn) {
    row.not_applicable = "this build is " + nvtx::Describe();
    for (auto _ : state) state.SetIterationTime(1e-9);
    return {};
  }
  // This program attaches no tool: with one the figure would be the tool's.
  if (nvtx::Attached()) return Internal("a tool is attached");
  PASSEL_ASSIGN_OR_RETURN(const std::string dir, suite.DataDir());
  PASSEL_ASSIGN_OR_RETURN(const OwnedDataset data, OwnedDataset::Load(dir));
  const bool smoke = suite.settings().smoke;
  const TrainingJob job = JobOf(suite, *data, 1);
  const int steps = smoke ? 1000 : 2'000'000;
  std::vector<double> measured, limit;
  for (auto _ : state) {
    if (lab::Interrupted()) return {};
    PASSEL_ASSIGN_OR_RETURN(const TrainingRun run, RunTraining(job, Mode::kHogwild));
    const std::int64_t begin = MonotonicNs();
    for (int step = 0; step < steps; ++step) RangesOfAStep(step);
    const std::int64_t ns = MonotonicNs() - begin;
    limit.push_back(run.median_step_us);
    measured.push_back(1e-3 * static_cast<double>(ns) / steps);
    state.SetIterationTime(1e-9 * static_cast<double>(ns));
  }
  Compare(measured, limit, &row);
  row.note = fmt::format("{:.0f} ranges a step, {:.2f} ns each", kRangesOfAStep,
                         1e3 * row.measured / kRangesOfAStep);
  return {};
}

}  // namespace

void RegisterNvtxBenchmarks(Suite& suite) {
  Row row;
  row.what = "NVTX ranges of a step, no tool, of one worker's step";
  row.unit = "us";
  row.is_reference = true;
  row.target = RatioAtMost(0.01);
  suite.Register(
      "BM_NvtxRanges/mode:hogwild/opt:adam", row, suite.settings().Pairs(5),
      [&suite](benchmark::State& state, Row& found) { return BenchRanges(state, suite, found); });
}

}  // namespace passel::bench

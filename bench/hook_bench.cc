// What hooks and heartbeats cost a step, against the step of one worker: none at all, the heartbeat
// alone, and with the hooks that a monitored session has by default.

#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include <limits>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "bench/one_worker.h"
#include "bench/suite.h"
#include "bench/training.h"
#include "data/dataset.h"
#include "lab/processes.h"
#include "train/hooks.h"
#include "train/model_plan.h"
#include "train/profiler_hook.h"

namespace passel::bench {
namespace {

using HookVector = std::vector<std::unique_ptr<Hook>>;

// Whatever a hook says or saves is somebody else's cost.
Result<HookVector> MakeHooks(bool profiled) {
  const LineFunction write = [](std::string_view line) { benchmark::DoNotOptimize(line.data()); };
  HookVector hooks;
  const auto add = [&hooks](Result<std::unique_ptr<Hook>> hook) {
    if (hook.ok()) hooks.push_back(std::move(*hook));
    return hook.status();
  };
  PASSEL_RETURN_IF_ERROR(add(MakeStopAtStep({}, std::numeric_limits<std::int64_t>::max())));
  PASSEL_RETURN_IF_ERROR(add(MakeStepCounter({.write = write})));
  PASSEL_RETURN_IF_ERROR(add(MakeSummarySaver({.write = [](HookContext&) { return Status(); }})));
  PASSEL_RETURN_IF_ERROR(add(MakeCheckpointSaver({.save = [](std::int64_t) { return Status(); }})));
  PASSEL_RETURN_IF_ERROR(add(MakeLogging(
      {.values = {{"loss", [](const HookContext& context) { return context.loss(); }},
                  {"accuracy", [](const HookContext& context) { return context.accuracy(); }}},
       .every = {.steps = 100},
       .write = write})));
  hooks.push_back(MakeNanGuard());
  // Never due: what it writes, it writes seldom.
  if (profiled)
    PASSEL_RETURN_IF_ERROR(add(MakeProfiler({.every = {.time = std::chrono::hours(1)}})));
  return hooks;
}

// As the loop of a worker does it.
// `alive`: whose heartbeat is a part of each step; null: none.
Status StepsWith(const HookVector& hooks, ParameterStore* alive, HookContext& context, int steps) {
  StepReport report;
  for (int step = 1; step <= steps; ++step) {
    if (alive != nullptr) alive->SayAlive();
    context.BeginsStep(step - 1, step - 1);
    for (const auto& hook : hooks) PASSEL_RETURN_IF_ERROR(hook->BeforeRun(context));
    benchmark::ClobberMemory();
    for (const auto& hook : hooks) PASSEL_RETURN_IF_ERROR(hook->BeforePush(context, {}));
    report.local_step = report.outcome.global_step = step;
    context.Made(report, {});
    for (const auto& hook : hooks) PASSEL_RETURN_IF_ERROR(hook->AfterRun(context));
    benchmark::ClobberMemory();
  }
  return {};
}

Status BenchHooks(benchmark::State& state, Suite& suite, std::string_view which, Row& row) {
  PASSEL_ASSIGN_OR_RETURN(const std::string dir, suite.DataDir());
  PASSEL_ASSIGN_OR_RETURN(const OwnedDataset data, OwnedDataset::Load(dir));
  const TrainingJob job = JobOf(suite, *data, 1);
  StorePlan plan;
  PASSEL_ASSIGN_OR_RETURN(plan.optimizer, ParseOptimizer("adam"));
  // Any store does: nothing is pushed.
  ModelConfig model = DefaultModelConfig(ModelKind::kSoftmax);
  model.inputs = 784;
  model.classes = 10;
  PASSEL_ASSIGN_OR_RETURN(plan.variables, PlaceModel(model, 1, {}));
  PASSEL_ASSIGN_OR_RETURN(const OneWorker one, OneWorker::Make(plan));
  const int steps = suite.settings().smoke ? 1000 : 1'000'000;
  std::vector<double> measured, limit;
  std::size_t count = 0;
  for (auto _ : state) {
    if (lab::Interrupted()) return {};
    PASSEL_ASSIGN_OR_RETURN(const TrainingRun run, RunTraining(job, Mode::kHogwild));
    HookVector hooks;
    if (which != "none" && which != "heartbeats") {
      PASSEL_ASSIGN_OR_RETURN(hooks, MakeHooks(which == "profiled"));
    }
    count = hooks.size();
    HookContext context(*one.store, "worker/0", true, {});
    for (const auto& hook : hooks) PASSEL_RETURN_IF_ERROR(hook->AfterCreateSession(context));
    const std::int64_t begin = MonotonicNs();
    PASSEL_RETURN_IF_ERROR(
        StepsWith(hooks, which == "none" ? nullptr : one.store.get(), context, steps));
    const std::int64_t ns = MonotonicNs() - begin;
    limit.push_back(run.median_step_us);
    measured.push_back(1e-3 * static_cast<double>(ns) / steps);
    state.SetIterationTime(1e-9 * static_cast<double>(ns));
  }
  Compare(measured, limit, &row);
  row.note = fmt::format("{} hooks, {:.0f} ns a step", count, 1e3 * row.measured);
  return {};
}

}  // namespace

void RegisterHookBenchmarks(Suite& suite) {
  for (const auto& [which, what] : {std::pair<std::string_view, std::string_view>{"none", "no"},
                                    {"heartbeats", "a heartbeat and no"},
                                    {"default", "a heartbeat and the default"},
                                    {"profiled", "a heartbeat, the default and the profiler's"}}) {
    Row row;
    row.what = fmt::format("{} hooks around a step, of one worker's step", what);
    row.unit = "us";
    row.is_reference = true;
    row.target = RatioAtMost(0.01);
    suite.Register(fmt::format("BM_Hooks/hooks:{}/mode:hogwild/opt:adam", which), row,
                   suite.settings().Pairs(20),
                   [&suite, which = which](benchmark::State& state, Row& found) {
                     return BenchHooks(state, suite, which, found);
                   });
  }
}

}  // namespace passel::bench

// What the summaries for TensorBoard cost a worker's thread, against its step.

#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include <chrono>
#include <thread>

#include "base/clock.h"
#include "bench/scoped_folder.h"
#include "bench/suite.h"
#include "bench/training.h"
#include "data/dataset.h"
#include "lab/processes.h"
#include "store/open_store.h"
#include "train/summary_writer.h"

namespace passel::bench {
namespace {

constexpr std::int64_t kEverySteps = 100;  // the default of a monitored session

// The MLP's variables, of a worker that does nothing else.
struct Watched {
  ModelConfig model;
  std::unique_ptr<InProcessArena> arena;
  std::unique_ptr<ParameterStore> store;
  std::optional<ModelLayout> layout;
  GradientBuffer gradient;
  std::optional<HookContext> context;

  Status Open() {
    model = DefaultModelConfig(ModelKind::kMlp);
    model.inputs = 784;
    model.classes = 10;
    StorePlan plan;
    PASSEL_ASSIGN_OR_RETURN(plan.variables, PlaceModel(model, 1, {}));
    PASSEL_ASSIGN_OR_RETURN(arena, InProcessArena::Create(plan));
    PASSEL_ASSIGN_OR_RETURN(store, arena->Open(0));
    PASSEL_ASSIGN_OR_RETURN(const ModelLayout made, ModelLayout::Make(model, store->variables()));
    layout.emplace(made);
    PASSEL_RETURN_IF_ERROR(InitializeStore(model, *layout, *store));
    // Values of a gradient are as good as any.
    PASSEL_RETURN_IF_ERROR(store->Pull(PullMode::kView).status());
    gradient = store->LendGradient();
    for (VarId id = 0; id < store->variables().size(); ++id) {
      for (float& value : gradient.values(id)) value = 0.25F;
    }
    context.emplace(*store, "worker/0", true, nullptr);
    return {};
  }

  // The nanoseconds of `steps` steps, the first of which gives global step `first`.
  Result<std::int64_t> Steps(Hook& hook, std::int64_t first, std::int64_t steps) {
    WorkerCounters& counters = store->counters();
    StepReport report;
    const std::int64_t begin = MonotonicNs();
    for (std::int64_t step = first; step < first + steps; ++step) {
      context->BeginsStep(step - 1, step - 1);
      PASSEL_RETURN_IF_ERROR(hook.BeforeRun(*context));
      PASSEL_RETURN_IF_ERROR(hook.BeforePush(*context, gradient));
      report.outcome.global_step = step;
      counters.last_step_ns.store(begin, std::memory_order_relaxed);
      context->Made(report, {});
      PASSEL_RETURN_IF_ERROR(hook.AfterRun(*context));
      benchmark::ClobberMemory();
    }
    return MonotonicNs() - begin;
  }
};

// `every_steps` 0: none of the steps that are timed is in a summary.
Status BenchSummaries(benchmark::State& state, Suite& suite, std::int64_t every_steps, Row& row) {
  PASSEL_ASSIGN_OR_RETURN(const std::string dir, suite.DataDir());
  PASSEL_ASSIGN_OR_RETURN(const OwnedDataset data, OwnedDataset::Load(dir));
  const bool smoke = suite.settings().smoke;
  const TrainingJob job = JobOf(suite, *data, 1);
  const std::int64_t turns = smoke ? 5 : 100;
  const std::int64_t turn = every_steps > 0 ? every_steps : 100'000;
  std::vector<double> measured, limit;
  for (auto _ : state) {
    if (lab::Interrupted()) return {};
    PASSEL_ASSIGN_OR_RETURN(const TrainingRun run, RunTraining(job, Mode::kHogwild));
    const ScopedFolder folder;
    if (!folder.made()) return Internal("a temporary folder cannot be made");
    Watched watched;
    PASSEL_RETURN_IF_ERROR(watched.Open());
    watched.store->counters().first_step_ns.store(MonotonicNs(), std::memory_order_relaxed);
    SummaryOptions options;
    options.folder = folder.path();
    options.every_steps = every_steps;
    options.interval = std::chrono::hours(1);
    options.histogram_interval = std::chrono::seconds(30);
    options.workers = {&watched.store->counters()};
    const auto writer =
        SummaryWriter::Create(options, watched.model, *watched.layout, *watched.store);
    if (!writer) return Internal("no summaries can be written");
    // The first summary, with histograms.
    PASSEL_RETURN_IF_ERROR(watched.Steps(*writer, 1, 1).status());
    std::int64_t ns = 0;
    for (std::int64_t i = 0; i < turns; ++i) {
      // So that no event is dropped, as none is where a step takes its time.
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      PASSEL_ASSIGN_OR_RETURN(const std::int64_t took, watched.Steps(*writer, 2 + i * turn, turn));
      ns += took;
    }
    limit.push_back(run.median_step_us);
    measured.push_back(1e-3 * static_cast<double>(ns) / static_cast<double>(turns * turn));
    state.SetIterationTime(1e-9 * static_cast<double>(ns));
  }
  Compare(measured, limit, &row);
  row.note = fmt::format("{:.1f} ns a step", 1e3 * row.measured);
  return {};
}

}  // namespace

void RegisterSummaryBenchmarks(Suite& suite) {
  for (const std::int64_t every : {std::int64_t{0}, kEverySteps}) {
    Row row;
    row.what = every == 0 ? "summaries for TensorBoard, a step that none is due at, of a step"
                          : "summaries for TensorBoard, every 100 steps, of a step";
    row.unit = "us";
    row.is_reference = true;
    row.target = RatioAtMost(0.01);
    suite.Register(fmt::format("BM_Summaries/every:{}", every), row, suite.settings().Pairs(20),
                   [&suite, every](benchmark::State& state, Row& found) {
                     return BenchSummaries(state, suite, every, found);
                   });
  }
}

}  // namespace passel::bench

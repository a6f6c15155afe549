// Experiments: other block sizes, orders, patience and pinning than the product's. Shown with
// --variants only; no target belongs to them.

#include <fmt/core.h>

#include <memory>
#include <optional>

#include "bench/suite.h"
#include "bench/training.h"
#include "data/dataset.h"
#include "lab/processes.h"

namespace passel::bench {
namespace {

struct Variant {
  std::string name;
  TrainingSharing sharing = Mode::kHogwild;
  std::size_t block_floats = 2048;
  std::optional<Sweep> sweep = std::nullopt;
  std::optional<WaitOptions> engine = std::nullopt;
  bool flush = false;
  bool pinned = true;
  bool touch = false;
};

using SharedData = std::shared_ptr<std::optional<OwnedDataset>>;

std::vector<Variant> Variants() {
  using Claims = Sweep::Claims;
  using Start = Sweep::Start;
  std::vector<Variant> all;
  const auto add = [&](const std::string& name, const TrainingSharing& sharing) -> Variant& {
    all.push_back({});
    all.back().name = name;
    all.back().sharing = sharing;
    return all.back();
  };
  for (const TrainingSharing& sharing :
       std::initializer_list<TrainingSharing>{std::nullopt, Mode::kHogwild, Mode::kBarrier}) {
    add("flush:1", sharing).flush = true;
    add("pin:none", sharing).pinned = false;
    add("touch:1", sharing).touch = true;
  }
  for (const TrainingSharing& sharing :
       std::initializer_list<TrainingSharing>{Mode::kHogwild, Mode::kBarrier}) {
    for (const std::size_t block : {512, 1024, 4096, 8192}) {
      add(fmt::format("block:{}", block), sharing).block_floats = block;
    }
  }
  // The product's own choices in the stand-in: what the stand-in itself costs.
  add("same", Mode::kHogwild).sweep = Sweep{};
  add("start:zero", Mode::kHogwild).sweep = Sweep{Claims::kAdvisory, Start::kZero};
  add("start:offset", Mode::kHogwild).sweep = Sweep{Claims::kAdvisory, Start::kOffset};
  for (const int passes : {1, 10, 30}) {
    add(fmt::format("passes:{}", passes), Mode::kHogwild).sweep =
        Sweep{Claims::kAdvisory, Start::kThereAndBack, passes};
  }
  for (const int pause : {8, 64}) {
    add(fmt::format("passes:10/pause:{}", pause), Mode::kHogwild).sweep =
        Sweep{Claims::kAdvisory, Start::kThereAndBack, 10, pause};
  }
  add("claims:none", Mode::kHogwild).sweep = Sweep{Claims::kNone, Start::kThereAndBack};
  add("claims:none/start:offset", Mode::kHogwild).sweep = Sweep{Claims::kNone, Start::kOffset};
  add("start:random", Mode::kHogwild).sweep = Sweep{Claims::kAdvisory, Start::kRandom};
  add("same", Mode::kBarrier).sweep = Sweep{Claims::kBinding, Start::kThereAndBack};
  add("start:offset", Mode::kBarrier).sweep = Sweep{Claims::kBinding, Start::kOffset};
  add("undo:0", Mode::kBarrier).sweep =
      Sweep{Claims::kBinding, Start::kThereAndBack, 3, 0, /*undo=*/false};
  add("start:zero", Mode::kBarrier).sweep = Sweep{Claims::kBinding, Start::kZero};
  add("start:random", Mode::kBarrier).sweep = Sweep{Claims::kBinding, Start::kRandom};
  for (const int spin_us : {20, 100, 2000}) {
    WaitOptions engine;
    engine.spin = std::chrono::microseconds(spin_us);
    add(fmt::format("spin:{}", spin_us), Mode::kBarrier).engine = engine;
  }
  return all;
}

Status BenchVariant(benchmark::State& state, Suite& suite, const Variant& variant, int workers,
                    const SharedData& data, Row& row) {
  if (!data->has_value()) {
    PASSEL_ASSIGN_OR_RETURN(const std::string dir, suite.DataDir());
    PASSEL_ASSIGN_OR_RETURN(OwnedDataset loaded, OwnedDataset::Load(dir));
    data->emplace(std::move(loaded));
  }
  TrainingJob job;
  job.data = &***data;
  job.workers = workers;
  job.cores = suite.usable_cores();
  job.seconds = suite.settings().RunSeconds();
  TrainingJob other = job;
  other.block_floats = variant.block_floats;
  other.sweep = variant.sweep;
  other.engine = variant.engine;
  other.flush_denormals = variant.flush;
  other.pinned = variant.pinned;
  other.touch_values = variant.touch;
  int diverged = 0;
  std::vector<double> measured, limit, push, push_now, step, step_now;
  for (auto _ : state) {
    if (lab::Interrupted()) return {};
    const Result<TrainingPair> ran =
        LeastDisturbed<TrainingPair>(suite, [&]() -> Result<TrainingPair> {
          TrainingPair found;
          PASSEL_ASSIGN_OR_RETURN(found.limit, RunTraining(job, variant.sharing));
          PASSEL_ASSIGN_OR_RETURN(found.run, RunTraining(other, variant.sharing));
          return found;
        });
    // Without claims that happens, as it does to lab::Foil::kNaive.
    const bool unclaimed = variant.sweep && variant.sweep->claims == Sweep::Claims::kNone;
    if (unclaimed && ran.status().code() == Code::kInvalidArgument) {
      state.SetIterationTime(job.seconds);
      ++diverged;
      continue;
    }
    PASSEL_RETURN_IF_ERROR(ran.status());
    const TrainingPair& pair = *ran;
    const TrainingRun& now = pair.limit;
    const TrainingRun& run = pair.run;
    state.SetIterationTime(job.seconds);
    limit.push_back(now.steps_per_second);
    measured.push_back(run.steps_per_second);
    push_now.push_back(now.push_us);
    push.push_back(run.push_us);
    step_now.push_back(now.median_step_us);
    step.push_back(run.median_step_us);
  }
  if (measured.empty()) {
    row.not_applicable = "a loss became infinite or NaN in every run";
    return {};
  }
  Compare(measured, limit, &row);
  std::vector<double> by_step;
  for (std::size_t i = 0; i < step.size(); ++i) by_step.push_back(step_now[i] / step[i]);
  row.note = fmt::format(
      "by the median step {:.3f}x, pairs {:.2f} to {:.2f}; mean push {:.1f} us, as it is {:.1f} us",
      lab::Median(by_step), lab::Percentile(by_step, 0.01), lab::Percentile(by_step, 1),
      lab::Median(push), lab::Median(push_now));
  if (diverged > 0) {
    row.note += fmt::format("; a loss became infinite or NaN in {} runs, left out here", diverged);
  }
  return {};
}

}  // namespace

void RegisterVariantBenchmarks(Suite& suite) {
  const auto data = std::make_shared<std::optional<OwnedDataset>>();
  for (const int workers : {2, 4}) {
    for (const Variant& variant : Variants()) {
      Row row;
      row.what = fmt::format("{}, {} workers, {} (reference: as it is)",
                             TrainingSharingName(variant.sharing), workers, variant.name);
      row.unit = "steps/s";
      row.is_reference = true;
      if (suite.usable_cores() < workers) {
        row.not_applicable = fmt::format("needs {} cores", workers);
      }
      suite.Register(fmt::format("BM_Variant/mode:{}/{}/workers:{}",
                                 TrainingSharingName(variant.sharing), variant.name, workers),
                     row, suite.settings().Pairs(7),
                     [&suite, variant, workers, data](benchmark::State& state, Row& found) {
                       return BenchVariant(state, suite, variant, workers, data, found);
                     });
    }
  }
}

}  // namespace passel::bench

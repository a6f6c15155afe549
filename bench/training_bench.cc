// Training of N processes that share the parameters, against N that do not; and the price of a
// cache line that another core has just written, which explains what is missing.

#include <fmt/core.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "bench/line_transfer.h"
#include "bench/suite.h"
#include "bench/training.h"
#include "data/dataset.h"
#include "lab/processes.h"

namespace passel::bench {
namespace {

constexpr int kMostCores = 12;            // of which each pair is measured
constexpr std::size_t kElements = 79536;  // 784-100-10, each variable padded to 64 bytes

// What the benchmarks of this file have in common: made when the first of them runs.
struct TrainingContext {
  std::optional<OwnedDataset> data;
  std::vector<LineTransfer> lines;  // of all ordered pairs of the processors in use
  std::set<int> private_split;      // numbers of workers whose private step's time was split
};

std::vector<int> FirstCpus(int count) {
  std::vector<int> cpus;
  for (const auto& cpu : lab::OneCoreEach(count)) cpus.push_back(cpu[0]);
  return cpus;
}

Status Load(Suite& suite, TrainingContext* context) {
  if (context->data) return {};
  PASSEL_ASSIGN_OR_RETURN(const std::string dir, suite.DataDir());
  PASSEL_ASSIGN_OR_RETURN(OwnedDataset data, OwnedDataset::Load(dir));
  context->data.emplace(std::move(data));
  return {};
}

// Measures every pair once, `again`: anew.
Status MeasureLines(Suite& suite, bool again, TrainingContext* context) {
  if (!context->lines.empty() && !again) return {};
  const bool smoke = suite.settings().smoke;
  PASSEL_ASSIGN_OR_RETURN(
      context->lines,
      MeasureAllPairs(FirstCpus(std::min(smoke ? 2 : kMostCores, suite.usable_cores())), kElements,
                      smoke ? 10 : 200));
  return {};
}

// A line for each core that wrote last, a column for each that updates.
std::string MatrixText(const LineMatrix& matrix) {
  std::string text = fmt::format("{:>10}", "from \\ to");
  for (const int core : matrix.cores) text += fmt::format("{:>12}", core);
  for (std::size_t i = 0; i < matrix.cores.size(); ++i) {
    text += fmt::format("\n{:>10}", matrix.cores[i]);
    for (std::size_t j = 0; j < matrix.cores.size(); ++j) {
      text += fmt::format("{:>12}",
                          i == j ? std::string("-")
                                 : fmt::format("{:.1f} / {:.0f}", matrix.update_ns_per_line[i][j],
                                               matrix.round_trip_ns[i][j]));
    }
  }
  return text;
}

Status BenchLines(benchmark::State& state, Suite& suite, TrainingContext& context, Row& row) {
  std::vector<std::vector<double>> line_ns;  // [pairs of processors][turns]
  std::vector<double> medians;
  for (auto _ : state) {
    if (lab::Interrupted()) return {};
    PASSEL_RETURN_IF_ERROR(MeasureLines(suite, true, &context));
    double seconds = 0;
    std::vector<double> all;
    line_ns.resize(context.lines.size());
    for (std::size_t i = 0; i < context.lines.size(); ++i) {
      line_ns[i].push_back(context.lines[i].line_ns);
      all.push_back(context.lines[i].line_ns);
      seconds += 1e-6 * context.lines[i].foreign_us;
    }
    state.SetIterationTime(seconds);
    medians.push_back(lab::Median(all));
  }
  row.measured = lab::Median(medians);
  row.pairs = medians;
  LineMatrix matrix;
  matrix.cores = FirstCpus(std::min(suite.settings().smoke ? 2 : kMostCores, suite.usable_cores()));
  const std::vector<std::vector<double>> zeros(matrix.cores.size(),
                                               std::vector<double>(matrix.cores.size()));
  matrix.round_trip_ns = matrix.update_ns_per_line = zeros;
  std::size_t next = 0;
  for (std::size_t i = 0; i < matrix.cores.size(); ++i) {
    for (std::size_t j = 0; j < matrix.cores.size(); ++j) {
      if (i == j) continue;
      matrix.update_ns_per_line[i][j] = lab::Median(line_ns[next]);
      matrix.round_trip_ns[i][j] = context.lines[next++].round_trip_ns;
    }
  }
  row.note = "ns a line in a sweep over all of them / ns of a round trip of one line\n" +
             MatrixText(matrix);
  suite.report().Set(std::move(matrix));
  return {};
}

// What the lines of other cores cost a worker per step, on average over the pairs of `cpus`.
double ForeignLinesUs(const TrainingContext& context, const std::vector<int>& cpus) {
  double extra = 0;
  int pairs = 0;
  for (const LineTransfer& line : context.lines) {
    if (line.from > cpus.back() || line.to > cpus.back()) continue;
    extra += line.ExtraUs();
    ++pairs;
  }
  return extra / pairs;
}

// One more run, with clocks around the parts of a step; for each number of workers one of private
// compute too.
Status SplitTime(Suite& suite, TrainingContext& context, TrainingJob job, lab::Sharing sharing) {
  job.time_parts = true;
  for (const TrainingSharing& which : {TrainingSharing(), TrainingSharing(sharing)}) {
    if (!which && !context.private_split.insert(job.workers).second) continue;
    const Result<TrainingRun> run = RunTraining(job, which);
    // A naive sweep may not converge.
    if (sharing == lab::Foil::kNaive && run.status().code() == Code::kInvalidArgument) return {};
    PASSEL_RETURN_IF_ERROR(run.status());
    TimeSplit split;
    split.sharing = std::string(TrainingSharingName(which));
    split.workers = job.workers;
    split.gather_us = run->gather_us;
    split.forward_us = run->forward_us;
    split.backward_us = run->backward_us;
    split.update_us = run->push_us - run->wait_us;
    split.wait_us = run->wait_us;
    split.other_us =
        std::max(0.0, run->compute_us - run->gather_us - run->forward_us - run->backward_us);
    suite.report().Add(std::move(split));
  }
  return {};
}

Status BenchTraining(benchmark::State& state, Suite& suite, TrainingContext& context,
                     lab::Sharing sharing, int workers, Row& row) {
  PASSEL_RETURN_IF_ERROR(Load(suite, &context));
  PASSEL_RETURN_IF_ERROR(MeasureLines(suite, false, &context));
  const TrainingJob job = JobOf(suite, **context.data, workers);
  std::vector<double> measured, limit, push, push_alone, compute, compute_alone, wait, accuracy;
  std::vector<double> overlapped, slowest, step, step_alone;
  int diverged = 0;
  std::optional<TrainingRun> last;
  for (auto _ : state) {
    if (lab::Interrupted()) return {};
    const Result<TrainingPair> pair =
        LeastDisturbed<TrainingPair>(suite, [&]() -> Result<TrainingPair> {
          TrainingPair found;
          PASSEL_ASSIGN_OR_RETURN(found.limit, RunTraining(job, std::nullopt));
          PASSEL_ASSIGN_OR_RETURN(found.run, RunTraining(job, sharing));
          return found;
        });
    state.SetIterationTime(job.seconds);
    if (sharing == lab::Foil::kNaive && pair.status().code() == Code::kInvalidArgument) {
      ++diverged;
      continue;
    }
    PASSEL_RETURN_IF_ERROR(pair.status());
    const TrainingRun& alone = pair->limit;
    const TrainingRun& run = pair->run;
    limit.push_back(alone.steps_per_second);
    measured.push_back(run.steps_per_second);
    push_alone.push_back(alone.push_us);
    push.push_back(run.push_us);
    compute_alone.push_back(alone.compute_us);
    compute.push_back(run.compute_us);
    wait.push_back(run.wait_us);
    slowest.push_back(alone.slowest);
    step.push_back(run.median_step_us);
    step_alone.push_back(alone.median_step_us);
    overlapped.push_back(run.overlapped_share);
    accuracy.push_back(run.accuracy);
    last = run;
  }
  if (measured.empty()) {
    row.not_applicable = "a loss became infinite or NaN in every run";
    return {};
  }
  Compare(measured, limit, &row);
  suite.report().Add(Scaling{std::string(lab::SharingName(sharing)), workers, row.measured,
                             *row.limit, *row.ratio, lab::Spread(row.pairs)});
  PASSEL_RETURN_IF_ERROR(SplitTime(suite, context, job, sharing));
  row.note = fmt::format(
      "median step {:.0f} us (private {:.0f}: {:.2f}x); means: compute {:.0f} us (private {:.0f}), "
      "push {:.0f} us (private {:.0f})",
      lab::Median(step), lab::Median(step_alone), lab::Median(step_alone) / lab::Median(step),
      lab::Median(compute), lab::Median(compute_alone), lab::Median(push), lab::Median(push_alone));
  if (sharing == Mode::kBarrier) {
    row.note += fmt::format(
        ", {:.0f} us of it waiting; in the private runs the slowest of {} workers took {:.2f} of "
        "the "
        "mean step, so {:.2f}x can be reached by waiting for it",
        lab::Median(wait), workers, lab::Median(slowest), 1 / lab::Median(slowest));
  } else if (workers > 1) {
    // Every line of values and slots was last written by another worker: it comes from there.
    const double extra = ForeignLinesUs(context, FirstCpus(workers));
    const double step_us = 1e6 * workers / *row.limit;
    const double predicted = step_us / (step_us + extra);
    row.note += fmt::format(
        "; lines from other cores cost {:.0f} us a step, so {:.2f}x can be reached here: measured "
        "{:.0f} % of that",
        extra, predicted, 100 * *row.ratio / predicted);
  }
  if (sharing == Mode::kHogwild) {
    row.note += fmt::format("; {:.3f} % of the blocks overlapped", 100 * lab::Median(overlapped));
  }
  row.note += fmt::format(
      "; accuracy {:.3f}; push p50 {:.0f}, p99 {:.0f}, p99.9 {:.0f}, max {:.0f} us",
      lab::Median(accuracy), 1e-3 * static_cast<double>(last->push_ns.p50),
      1e-3 * static_cast<double>(last->push_ns.p99), 1e-3 * static_cast<double>(last->push_ns.p999),
      1e-3 * static_cast<double>(last->push_ns.maximum));
  return {};
}

}  // namespace

void RegisterTrainingBenchmarks(Suite& suite) {
  const auto context = std::make_shared<TrainingContext>();
  const int cores = suite.usable_cores();
  Row lines;
  lines.what = "line transfer between two cores, median of the pairs";
  lines.unit = "ns/line";
  if (cores < 2) lines.not_applicable = fmt::format("needs 2 cores, {} is usable", cores);
  suite.Register("BM_LineTransfer/elems:79536", lines, suite.settings().Pairs(3),
                 [&suite, context](benchmark::State& state, Row& found) {
                   return BenchLines(state, suite, *context, found);
                 });
  // Without targets for other numbers of workers: how the speed grows with them.
  std::set<int> counts = {2, 4};
  if (suite.settings().full) {
    for (int n = 1; n <= cores; n = n < 4 ? n + 1 : 2 * n) counts.insert(n);
    counts.insert(cores);
  }
  for (const int workers : counts) {
    for (const lab::Sharing sharing : std::initializer_list<lab::Sharing>{
             Mode::kHogwild, Mode::kLocked, Mode::kBarrier, lab::Foil::kNaive}) {
      Row row;
      row.what = fmt::format("training, {}, {} workers{}", lab::SharingName(sharing), workers,
                             sharing == lab::Foil::kNaive ? " (no claims)" : "");
      row.unit = "steps/s";
      row.is_reference = true;
      if (sharing != lab::Foil::kNaive && workers == 2) {
        row.target = RatioAtLeast(sharing == Mode::kBarrier   ? 0.85
                                  : sharing == Mode::kHogwild ? 0.93
                                                              : 0.90);
      } else if (sharing != lab::Foil::kNaive && workers == 4) {
        row.target = RatioAtLeast(sharing == Mode::kBarrier ? 0.65 : 0.70);
      }
      if (cores < workers) {
        row.not_applicable = fmt::format("needs {} cores, {} usable", workers, cores);
      }
      suite.Register(fmt::format("BM_Train/mode:{}/opt:adam/hidden:100/batch:100/workers:{}",
                                 lab::SharingName(sharing), workers),
                     row, suite.settings().Pairs(7),
                     [&suite, context, sharing, workers](benchmark::State& state, Row& found) {
                       return BenchTraining(state, suite, *context, sharing, workers, found);
                     });
    }
  }
}

}  // namespace passel::bench

#include "train/summary_writer.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/histogram.h"
#include "base/log.h"
#include "train/checkpoint_watch.h"

namespace passel {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
// Looking at the counters of many workers takes time.
constexpr std::int64_t kCountEveryNs = 250'000'000;
// One copy costs less than the lines that it touches; many of them show all of a variable.
constexpr std::size_t kRun = 1024;  // elements

std::int64_t After(std::int64_t now_ns, std::chrono::nanoseconds interval) {
  return interval.count() == 0 ? kNever : now_ns + interval.count();
}

// Elements of a variable that lies in `parts`, whose rows have `cols` elements. All of them, or, of
// a large one, runs whose distances are equal.
template <typename Part>
std::vector<float> SampleOf(const std::vector<Part>& parts, std::size_t cols) {
  std::size_t all = 0;
  for (const Part& part : parts) all += part.rows * cols;
  const std::size_t stride = all <= kMostSampled ? kRun : (all - 1) / (kMostSampled / kRun) + 1;
  std::vector<float> sample;
  sample.reserve(std::min(all, kMostSampled));
  std::size_t begin = 0;  // of the part, in the variable
  std::size_t next = 0;   // of the run
  for (const Part& part : parts) {
    const std::size_t end = begin + part.rows * cols;
    while (next < end) {
      const std::size_t count = std::min(kRun, end - next);
      const float* const first = part.data + (next - begin);
      sample.insert(sample.end(), first, first + count);
      next += stride == kRun ? count : stride;
    }
    begin = end;
  }
  return sample;
}

}  // namespace

std::unique_ptr<SummaryWriter> SummaryWriter::Create(const SummaryOptions& options,
                                                     const ModelConfig& model,
                                                     const ModelLayout& layout,
                                                     ParameterStore& store, FileOps& ops) {
  EventFileOptions file;
  file.on_problem = [](const std::string& sentence) {
    LogWarning("summaries: {}; what cannot be shown is left out, and training goes on", sentence);
  };
  if (!options.checkpoints.empty()) {
    const auto watch = std::make_shared<CheckpointWatch>(options.checkpoints, options.began_at);
    file.others = [watch] { return watch->News(); };
  }
  Result<std::unique_ptr<EventFile>> made =
      EventFile::Create(options.folder, WallSeconds(), file, ops);
  if (!made.ok()) {
    LogWarning("no summaries are written: {}; training goes on", made.status().message());
    return nullptr;
  }
  std::unique_ptr<SummaryWriter> writer(new SummaryWriter(options, model, layout, store));
  writer->file_ = std::move(*made);
  writer->Describe(model, ops);
  return writer;
}

SummaryWriter::SummaryWriter(const SummaryOptions& options, const ModelConfig& model,
                             const ModelLayout& layout, ParameterStore& store)
    : options_(options),
      layout_(layout),
      store_(store),
      counters_(store.counters()),
      variables_(ModelVariables(model)),
      due_(options.every_steps > 0 || options.interval.count() > 0),
      histograms_due_(options.histogram_interval.count() > 0),
      next_step_(kNever),
      next_ns_(kNever),
      next_histograms_ns_(kNever) {}

void SummaryWriter::Describe(const ModelConfig& model, FileOps& ops) {
  const double now = WallSeconds();
  const std::int64_t step = store_.global_step();
  // TensorBoard leaves out what former lives wrote of this step and later ones. They were at this
  // step too, and that stays.
  file_->Add({now, step == 0 ? 0 : step + 1, SessionLog{SessionLog::Status::kStart}});
  Graph graph = ModelGraph(model, layout_, options_.places);
  const std::string text = GraphText(graph);
  const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
  if (const Status written =
          WriteFileAtomically(options_.folder + "/graph.pbtxt", {&bytes, 1}, ops);
      !written.ok()) {
    LogWarning("summaries: {}; training goes on", written.message());
  }
  file_->Add({now, step, std::move(graph)});
  file_->Add(
      {now, step,
       Summary{{"variables", VariablesInMarkdown(layout_.table(), options_.places.has_ps)}}});
  LogInfo("writing summaries: tensorboard --logdir {}", options_.folder);
}

SummaryWriter::~SummaryWriter() {
  file_->Close(Event{WallSeconds(), store_.global_step(), SessionLog{SessionLog::Status::kStop}});
  // One that failed was told of.
  if (file_->dropped() > 0 && !file_->failed()) {
    LogWarning(
        "summaries: {} of them are not in {}, since they came faster than they were written: write "
        "fewer (--summary_steps, --summary_secs)",
        file_->dropped(), file_->path());
  }
}

Status SummaryWriter::BeforeRun(HookContext& context) {
  if (due_) return {};
  // Relaxed: this thread has written it, after the step before.
  const std::int64_t now_ns = counters_.last_step_ns.load(std::memory_order_relaxed);
  due_ = context.global_step() + 1 >= next_step_ || now_ns >= next_ns_;
  if (due_) histograms_due_ = now_ns >= next_histograms_ns_;
  return {};
}

Status SummaryWriter::BeforePush(HookContext&, const GradientBuffer& gradient) {
  if (!due_ || !histograms_due_) return {};
  gradients_.clear();
  layout_.Bind(gradient, &gradient_parts_);
  for (std::size_t v = 0; v < variables_.size(); ++v) {
    gradients_.push_back(
        {"gradients/" + variables_[v].name, SampleOf(gradient_parts_[v], variables_[v].cols())});
  }
  return {};
}

Status SummaryWriter::AfterRun(HookContext& context) {
  const StepReport& step = context.step();
  const bool waits = step.outcome.gradients == 0;
  if (!due_ || step.skipped || waits || step.outcome.global_step <= written_step_) return {};
  Write(step.outcome.global_step, step.loss, step.accuracy, /*last=*/false);
  return {};
}

Status SummaryWriter::AfterEvaluation(HookContext&, const EvaluationReport& report) {
  file_->Add({WallSeconds(), report.global_step,
              Summary{{"evaluation/loss", report.result.loss},
                      {"evaluation/accuracy", report.result.accuracy}}});
  return {};
}

Status SummaryWriter::End(HookContext& context) {
  const std::int64_t step = context.store().global_step();
  const bool off = next_step_ == kNever && next_ns_ == kNever && !due_;
  if (off || step <= written_step_) return {};
  if (counters_.last_step_ns.load(std::memory_order_relaxed) == 0) return {};  // there was no step
  histograms_due_ = options_.histogram_interval.count() > 0;
  gradients_.clear();  // those of a step that was not finished
  Write(step, counters_.loss.load(std::memory_order_relaxed),
        counters_.accuracy.load(std::memory_order_relaxed), /*last=*/true);
  return {};
}

void SummaryWriter::Write(std::int64_t global_step, double loss, double accuracy, bool last) {
  const std::int64_t now_ns = MonotonicNs();
  Summary summary = {
      {"loss", loss}, {"accuracy", accuracy}, {"learning_rate", options_.learning_rate}};
  AddRates(global_step, now_ns, last, &summary);
  if (histograms_due_) {
    AddHistograms(&summary);
    next_histograms_ns_ = After(now_ns, options_.histogram_interval);
  }
  file_->Add({WallSeconds(), global_step, std::move(summary)});
  written_step_ = global_step;
  written_ns_ = now_ns;
  due_ = false;
  next_step_ = options_.every_steps == 0 ? kNever : global_step + options_.every_steps;
  next_ns_ = After(now_ns, options_.interval);
  histograms_due_ = false;
}

void SummaryWriter::AddRates(std::int64_t global_step, std::int64_t now_ns, bool last,
                             Summary* summary) {
  if (written_step_ >= 0 && now_ns > written_ns_) {
    summary->push_back({"global_step/sec", 1e9 * static_cast<double>(global_step - written_step_) /
                                               static_cast<double>(now_ns - written_ns_)});
  }
  if (counted_ns_ != 0 && !last && now_ns < counted_ns_ + kCountEveryNs) return;
  const Counts before = std::exchange(counts_, ReadCounts());
  const std::int64_t since_ns = std::exchange(counted_ns_, now_ns);
  summary->push_back({"dropped", static_cast<double>(counts_.dropped)});
  if (since_ns == 0) return;
  if (counts_.pushes > before.pushes) {
    summary->push_back({"staleness", (counts_.staleness - before.staleness) /
                                         static_cast<double>(counts_.pushes - before.pushes)});
  }
  if (counts_.workers > 0 && now_ns > since_ns) {
    summary->push_back({"waiting", static_cast<double>(counts_.wait_ns - before.wait_ns) /
                                       (static_cast<double>(now_ns - since_ns) *
                                        static_cast<double>(counts_.workers))});
  }
}

void SummaryWriter::AddHistograms(Summary* summary) {
  // As they are after the update. None after a stop in a mode with rounds.
  if (const Result<ParamView> view = store_.Pull(PullMode::kView); view.ok()) {
    std::vector<std::vector<RowPart>> parts;
    layout_.Bind(*view, &parts);
    for (std::size_t v = 0; v < variables_.size(); ++v) {
      summary->push_back(
          {"variables/" + variables_[v].name, SampleOf(parts[v], variables_[v].cols())});
    }
  }
  for (SummaryValue& gradient : gradients_) summary->push_back(std::move(gradient));
  gradients_.clear();
}

// Relaxed loads: the workers go on meanwhile.
SummaryWriter::Counts SummaryWriter::ReadCounts() const {
  Counts counts;
  for (const WorkerCounters* const worker : options_.workers) {
    if (worker->first_step_ns.load(std::memory_order_relaxed) == 0) continue;
    ++counts.workers;
    counts.wait_ns += worker->wait_ns.load(std::memory_order_relaxed);
    counts.dropped += worker->dropped.load(std::memory_order_relaxed);
    const Histogram* const staleness = &worker->staleness;
    for (const BucketCount& bucket : Buckets({&staleness, 1})) {
      counts.pushes += bucket.count;
      counts.staleness +=
          0.5 * static_cast<double>(bucket.least + bucket.most) * static_cast<double>(bucket.count);
    }
  }
  return counts;
}

}  // namespace passel

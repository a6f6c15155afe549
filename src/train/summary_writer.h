// summary_writer.h - what TensorBoard shows of a training: written by its chief, between steps.
//
//   with every summary    loss, accuracy (of the chief's last batch), learning_rate,
//                         global_step/sec (of all workers, since the summary before)
//   a few times a second  of the workers that it is told to look at: staleness (mean) and waiting
//   at most               (share of their time), since they were told last; dropped (so far)
//   at times of their     histograms of variables/NAME and gradients/NAME (of the chief's gradient
//   own                   of that step; not of steps on GPUs)
//   at evaluations        evaluation/loss, evaluation/accuracy
//   at the start          the picture of the model (also as text, in graph.pbtxt), a table of its
//                         variables, and that a life of the training begins at this step
//   at the end            a last summary, and that it ends
//   before each of these  the checkpoints that are new, with their paths; who saves when the chief
//                         has ended tells of that itself (train/checkpoint_watch.h)
//
// The first summary is of the first step. A step whose gradient waits for others to be pushed with
// is in none. A step that none is due at pays two comparisons. At the others the worker's thread
// reads a few counters, and copies elements for the histograms: at most kMostSampled of a variable,
// in runs spread evenly over it. All else is done by the thread of the file (io/event_file.h),
// which nobody waits for.
//
// Threads    One, the worker's.
// Errors     None: whatever goes wrong is one warning, and training goes on.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/file.h"
#include "io/event_file.h"
#include "train/hook.h"
#include "train/model_graph.h"
#include "train/model_plan.h"
#include "train/summary_options.h"

namespace passel {

/// The elements of one variable that a histogram looks at.
inline constexpr std::size_t kMostSampled = std::size_t{1} << 18;

class SummaryWriter final : public Hook {
 public:
  /// Begins a file. `layout` and `store` outlive the writer. Null, after a warning, if it cannot be
  /// written.
  static std::unique_ptr<SummaryWriter> Create(const SummaryOptions& options,
                                               const ModelConfig& model, const ModelLayout& layout,
                                               ParameterStore& store,
                                               FileOps& ops = FileOps::Real());
  /// Ends the file; everything is in it then.
  ~SummaryWriter() override;
  SummaryWriter(const SummaryWriter&) = delete;
  SummaryWriter& operator=(const SummaryWriter&) = delete;

  /// Finds out whether the step is to be in a summary.
  Status BeforeRun(HookContext& context) override;
  /// Keeps what the histograms need of the gradient.
  Status BeforePush(HookContext& context, const GradientBuffer& gradient) override;
  Status AfterRun(HookContext& context) override;
  Status AfterEvaluation(HookContext& context, const EvaluationReport& report) override;
  /// A last summary, if there was a step since the one before.
  Status End(HookContext& context) override;

 private:
  /// Sums over the workers that are looked at.
  struct Counts {
    std::uint64_t wait_ns = 0, dropped = 0;
    double staleness = 0;  // sum over all pushes
    std::uint64_t pushes = 0;
    std::int64_t workers = 0;  // that have begun
  };

  SummaryWriter(const SummaryOptions& options, const ModelConfig& model, const ModelLayout& layout,
                ParameterStore& store);

  void Describe(const ModelConfig& model, FileOps& ops);
  void Write(std::int64_t global_step, double loss, double accuracy, bool last);
  void AddRates(std::int64_t global_step, std::int64_t now_ns, bool last, Summary* summary);
  void AddHistograms(Summary* summary);
  Counts ReadCounts() const;

  const SummaryOptions options_;
  const ModelLayout& layout_;
  ParameterStore& store_;
  const WorkerCounters& counters_;
  const std::vector<VariableSpec> variables_;
  std::unique_ptr<EventFile> file_;

  bool due_ = true;              // the step under way, or the next one, is in a summary
  bool histograms_due_ = false;  // and has histograms
  std::int64_t next_step_;       // the next one is due at this step
  std::int64_t next_ns_;         // or after this time
  std::int64_t next_histograms_ns_;
  std::int64_t written_step_ = -1, written_ns_ = 0;  // the last summary
  std::int64_t counted_ns_ = 0;                      // when counts_ was read; 0: never
  Counts counts_;
  Summary gradients_;                                        // kept for the summary of this step
  std::vector<std::vector<MutableRowPart>> gradient_parts_;  // of the gradient that is looked at
};

}  // namespace passel

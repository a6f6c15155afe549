// hook.h - what others may have done around the steps of a worker, without a change to its loop.
//
//   Begin()               once, before there is a session
//   AfterCreateSession()  the variables have values; once in each life of the worker
//   BeforeRun(), AfterRun()  before each step, and after it
//   AfterEvaluation()     when this worker has looked how good the values are
//   End()                 after the last step; not after an error
//
// Hooks are called one after the other, in the order in which they were given, on the thread of the
// worker: the time that they take is the step's. An error ends the worker with it; those that come
// later are not called any more then, and nobody's End() is.
//
// Threads    One thread at a time.

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "base/status.h"
#include "nn/model.h"
#include "store/parameter_store.h"
#include "train/evaluation.h"

namespace passel {

struct StepReport {
  std::int64_t local_step = 0;  ///< from 1, over all lives of this worker
  /// What became of the push. A step whose gradient waits for others to be pushed with has
  /// `gradients` 0, and applied.
  PushOutcome outcome;
  double loss = 0;      ///< of the batch, per example
  double accuracy = 0;  ///< of the batch
  /// The loss or the gradient is not finite and nothing was pushed (OnNan::kSkip): local_step is
  /// that of the next step, too.
  bool skipped = false;
};

struct EvaluationReport {
  std::int64_t global_step = 0;  ///< the multiple of WorkerOptions::evaluation_steps, or the last
  EvaluationSet set = EvaluationSet::kTest;
  TestResult result;
  bool at_end = false;  ///< after the last step, after End()
};

/// Says on which examples a batch is computed: `examples` holds what the sampler drew, indices of
/// the training set, and takes others. Called once for each batch, in their order; where steps are
/// computed ahead (EngineUse::steps_ahead), before the step that hands the batch out.
using FeedFunction = std::function<Status(std::span<std::uint32_t> examples)>;

/// What a hook may ask and do. Costs nothing to ask.
class HookContext {
 public:
  /// Waits so long, with the caller's errors: see Pause().
  using PauseFunction = std::function<Status(std::chrono::nanoseconds)>;

  /// `store` outlives it. `task`: "worker/1".
  HookContext(ParameterStore& store, std::string task, bool is_chief, PauseFunction pause)
      : store_(store),
        counters_(store.counters()),
        task_(std::move(task)),
        is_chief_(is_chief),
        pause_(std::move(pause)),
        global_step_(store.global_step()) {}

  /// In AfterRun() the number of this worker's own update; else that of the job, as this worker
  /// last saw it.
  std::int64_t global_step() const { return global_step_; }
  /// Steps of this worker over all its lives, with those that wait to be pushed.
  std::int64_t local_step() const { return local_step_; }
  /// The last step. Before the first one of this session all is 0.
  const StepReport& step() const { return step_; }
  double loss() const { return step_.loss; }
  double accuracy() const { return step_.accuracy; }

  const std::string& task() const { return task_; }
  bool is_chief() const { return is_chief_; }

  /// This worker's, as everyone who looks at the job sees them.
  const WorkerCounters& counters() const { return counters_; }
  /// Variables, mode, members, and the job's own global step as it is now.
  const ParameterStore& store() const { return store_; }
  /// Of the last pull, in the order of the model's variables; empty before the first. A view of
  /// values that others may be changing where WorkerOptions::pull says so.
  ParameterParts values() const { return values_; }

  /// This worker leaves after this step as one that is done. Others go on.
  void RequestStop() { stop_requested_ = true; }
  bool stop_requested() const { return stop_requested_; }

  /// Waits. Errors: kCancelled when the worker is to leave, or the job has made its last step,
  /// meanwhile: return it, the step is not made then; those of WorkerCallbacks::check.
  Status Pause(std::chrono::nanoseconds time) const { return pause_(time); }

  /// In AfterCreateSession(): from now on `feed` has the last word on each batch. One at most:
  /// kFailedPrecondition for a second one.
  Status SetFeed(FeedFunction feed) {
    if (feed_ != nullptr)
      return FailedPrecondition("a hook feeds this worker already: give it one feed");
    feed_ = std::move(feed);
    return {};
  }

  // For whoever runs the hooks.

  void BeginsStep(std::int64_t global_step, std::int64_t local_step) {
    global_step_ = global_step;
    local_step_ = local_step;
  }
  void Made(const StepReport& step, ParameterParts values) {
    step_ = step;
    values_ = values;
    global_step_ = step.outcome.global_step;
    local_step_ = step.local_step;
  }
  const FeedFunction& feed() const { return feed_; }

 private:
  ParameterStore& store_;
  const WorkerCounters& counters_;
  const std::string task_;
  const bool is_chief_;
  const PauseFunction pause_;
  std::int64_t global_step_;
  std::int64_t local_step_ = 0;
  StepReport step_;
  ParameterParts values_;
  bool stop_requested_ = false;
  FeedFunction feed_;
};

class Hook {
 public:
  virtual ~Hook() = default;
  // All of them (optional): nothing by default.
  virtual Status Begin() { return {}; }
  virtual Status AfterCreateSession(HookContext&) { return {}; }
  virtual Status BeforeRun(HookContext&) { return {}; }
  /// `gradient` is finite and about to be pushed: of this step, or of all that waited for it (see
  /// WorkerOptions::push_every). Not called for what an engine computes, whose gradients may be in
  /// the memory of a GPU. context.step() is the one before.
  virtual Status BeforePush(HookContext&, const GradientBuffer& /*gradient*/) { return {}; }
  virtual Status AfterRun(HookContext&) { return {}; }
  virtual Status AfterEvaluation(HookContext&, const EvaluationReport&) { return {}; }
  /// Rounds wait for this worker meanwhile, so that in `barrier` the values stay as they are.
  virtual Status End(HookContext&) { return {}; }
  /// Whether End() reads the job's values: a worker that is told to leave finishes the round that
  /// it has arrived at first, if that does not take long.
  virtual bool ReadsValuesAtEnd() const { return false; }
};

}  // namespace passel

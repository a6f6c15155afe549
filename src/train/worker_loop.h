// worker_loop.h - what a worker does all day: batch, pull, compute, push.
//
//   local step   one gradient of this worker, of one batch
//   push         what push_every local steps give: their mean (of a loss that is a sum, their sum),
//                as if their batches had been one; by default each is pushed by itself
//   global step  one update applied to the variables, whoever computed it
//
// A worker leaves when it observes global_step >= train_steps, when it has made so many steps of
// its own as local_steps or epochs allow, when a hook requests it, when the store is stopped, or
// when it is told to. By the
// first rule an asynchronous job of N workers applies at most N - 1 updates too many, and a job in
// rounds exactly as many as it should; by the second an asynchronous job applies exactly the sum of
// all pushes, the last of which takes what local steps are left. By the other rules what was not
// pushed is given up, and its batches are drawn again by the next life of this worker.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "cluster/worker_names.h"
#include "compute/step_engine.h"
#include "data/dataset.h"
#include "nn/model.h"
#include "store/parameter_store.h"
#include "train/evaluation.h"
#include "train/hook.h"
#include "train/model_plan.h"

namespace passel {

/// The limit of WorkerOptions::push_every.
inline constexpr int kMaxPushEvery = 1000;

/// Limits what `--pull auto` copies. Copying reads each line that others have changed
/// once, in one sweep; the passes over a view fetch lines again when others write meanwhile, and
/// hold up their writers. Values that do not fit a core's cache cost more to copy than that.
inline constexpr std::size_t kMostCopiedBytes = std::size_t{1} << 20;

enum class OnNan { kStop, kSkip };
/// Under kSkip: so many gradients in a row that are not finite end the worker. Values from which
/// none comes any more give none for ever, and no update brings the last step closer.
inline constexpr int kMaxSkipsInARow = 1000;

enum class Sampler {
  kNextBatch,  ///< every example once per epoch
  kRandom,     ///< independent batches
};

/// A stop rule that never stops.
inline constexpr std::int64_t kNoStepLimit = std::numeric_limits<std::int64_t>::max();

struct WorkerOptions {
  std::int64_t train_steps = 0;             ///< global steps, or kNoStepLimit
  std::int64_t local_steps = kNoStepLimit;  ///< of this worker, over all its lives
  std::int64_t epochs = kNoStepLimit;       ///< the same, in units of StepsPerEpoch() steps
  std::uint32_t batch_size = 100;
  /// Local steps of one push, at most kMaxPushEvery. All are computed on one pull: on one set of
  /// values where it copies, on what others make of them meanwhile where it is a view.
  int push_every = 1;
  std::uint64_t seed = 0;
  /// None: a copy in the async modes where several workers share at most kMostCopiedBytes of
  /// values, a view otherwise.
  std::optional<PullMode> pull;
  OnNan on_nan = OnNan::kStop;
  Sampler sampler = Sampler::kNextBatch;
  bool shard_data = false;  ///< this worker draws only from examples i mod N == worker
  int num_workers = 1;
  WorkerNames names = {};  ///< for messages
  /// For messages: after which a round goes on without a worker that was never started.
  std::chrono::nanoseconds start_wait = std::chrono::minutes(5);
  /// Which images Hook::AfterEvaluation() and WorkerResult::evaluation are about.
  EvaluationSet evaluation_set = EvaluationSet::kTest;
  bool evaluate_at_end = true;
  /// Evaluate whenever global_step reaches a multiple of this, once per multiple: in the async
  /// modes the worker whose update made it so, in the round modes the running worker with the
  /// lowest index. 0: only at the end.
  std::int64_t evaluation_steps = 0;
  /// Stragglers for experiments: worker `index` sleeps so long after each gradient it computes.
  struct SlowWorker {
    int index = 0;
    std::chrono::milliseconds delay{0};
  };
  std::vector<SlowWorker> slow_workers;
  /// When it is told to leave, others are to expect that it comes back.
  bool comes_back = false;
  /// How long one push may take: with a round, the time the others need.
  std::chrono::nanoseconds push_limit = std::chrono::minutes(15);
};

/// Whole batches among the examples that worker `worker` of options.num_workers draws from, of
/// `train_examples` in the training set.
std::int64_t StepsPerEpoch(const WorkerOptions& options, std::size_t train_examples, int worker);

/// Local steps after which it leaves; kNoStepLimit if neither `local_steps` nor `epochs` is set.
std::int64_t LocalStepLimit(const WorkerOptions& options, std::size_t train_examples, int worker);

enum class LeaveReason {
  kStepsReached,  ///< one of the two stop rules
  kHook,          ///< HookContext::RequestStop(): it is done as by a stop rule
  kStopped,
  kAsked,
};

struct WorkerResult {
  LeaveReason reason = LeaveReason::kStepsReached;
  std::int64_t global_step = 0;  ///< as observed when it left
  std::int64_t local_steps = 0;  ///< of this life
  std::int64_t dropped = 0;      ///< pushes that came too late for their round
  /// The result on evaluation_set, at its own end; none without evaluate_at_end, if it left because
  /// it was asked to (during the evaluation, too), if there are no such images, or if the variables
  /// never had values.
  std::optional<TestResult> evaluation;
};

/// What the surroundings of a worker do for it.
struct WorkerCallbacks {
  /// Called around its steps, in this order: train/hook.h. They outlive it.
  std::vector<Hook*> hooks{};
  /// Before values are looked at to evaluate, and when the last step is done: for values that a
  /// view shows late. An error ends the worker with it. May be empty.
  std::function<Status()> refresh_values{};
  /// Before each step, at least once a second while it waits for others, and between the batches of
  /// an evaluation. An error ends the worker with it, but for one after its last step; `*leave` set
  /// to true ends it after the current step, and an evaluation at once. May be empty.
  std::function<Status(bool* leave)> check{};
  /// Loss and gradient of a batch, in place of Model::LossAndGradient(). May be empty.
  std::function<Result<BatchResult>(const Batch&, ParameterParts, GradientParts)> compute{};
};

/// A step ahead takes a gradient slot, and the gradient that is pushed meanwhile takes one.
inline constexpr int kMostStepsAhead = 2;

/// A StepEngine that computes the gradients in place of the Model, which then only evaluates.
/// REQUIRES: push_every == 1.
struct EngineUse {
  StepEngine* engine = nullptr;  ///< null: none
  /// Its slots 0 to store_slots - 1 are the gradient slots of the store.
  int store_slots = 0;
  /// And this its slot store_slots, [shards]: for what the store lends from elsewhere.
  std::vector<std::span<const float>> scratch;
  /// In the modes that apply at once: so many steps are begun before this one's gradient is pushed.
  /// REQUIRES: 0 to kMostStepsAhead, and store_slots above it.
  int steps_ahead = 0;
  /// While a push is nothing but additions (ParameterStore::UpdateIsAddition()): have the step that
  /// computes a gradient make its update too, where the engine can. Not with steps ahead, under
  /// OnNan::kSkip (nobody can look at the gradient first), or by a slow worker (its gradients are
  /// to come late).
  bool update_in_step = false;
};

/// Trains on data.train until it is time to leave, with the hooks called around its steps; then
/// evaluates, if it is to, and leaves the store. Counters in the store are kept up to date at every
/// step, the data cursor among them: a worker that is started again goes on with the batch that
/// would have come. Errors: kDiverged, naming step and variable, for a gradient or loss that is not
/// finite (OnNan::kStop; after kMaxSkipsInARow of them kSkip too), of which nothing was pushed or,
/// if the step made the update itself, what is finite; and, unless it was asked to leave, for
/// values or a loss of the last evaluation that are not finite after the last step.
/// kInvalidArgument for a batch larger than the training set; the store's, above all kAborted when
/// this worker was evicted; those of the hooks.
Result<WorkerResult> RunWorker(const WorkerOptions& options, const WorkerCallbacks& callbacks,
                               Model& model, const ModelLayout& layout, const DataSplit& data,
                               ParameterStore& store, const EngineUse& engine = {});

}  // namespace passel

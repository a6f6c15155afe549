// worker_loop.h - what a worker does all day: batch, pull, compute, push.
//
//   local step   one gradient of this worker
//   global step  one update applied to the variables, whoever computed it
//
// A worker leaves when it observes global_step >= train_steps, when the store is stopped, or when
// it is told to. So an asynchronous job of N workers applies at most N - 1 updates too many; a job
// in rounds applies exactly as many as it should.

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/dataset.h"
#include "nn/model.h"
#include "store/parameter_store.h"
#include "train/model_plan.h"

namespace passel {

enum class OnNan { kStop, kSkip };
/// Under kSkip: so many gradients in a row that are not finite end the worker. Values from which
/// none comes any more give none for ever, and no update brings the last step closer.
inline constexpr int kMaxSkipsInARow = 1000;

enum class Sampler {
  kNextBatch,  ///< every example once per epoch
  kRandom,     ///< independent batches
};

struct WorkerOptions {
  std::int64_t train_steps = 0;  ///< global steps
  std::uint32_t batch_size = 100;
  std::uint64_t seed = 0;
  PullMode pull = PullMode::kView;
  OnNan on_nan = OnNan::kStop;
  Sampler sampler = Sampler::kNextBatch;
  bool shard_data = false;  ///< this worker draws only from examples i mod N == worker
  int num_workers = 1;
  /// Stragglers for experiments: worker `index` sleeps so long after each gradient it computes.
  struct SlowWorker {
    int index = 0;
    std::chrono::milliseconds delay{0};
  };
  std::vector<SlowWorker> slow_workers;
  /// How long one push may take: with a round, the time the others need.
  std::chrono::nanoseconds push_limit = std::chrono::minutes(15);
};

struct StepReport {
  std::int64_t local_step = 0;  ///< from 1
  PushOutcome outcome;
  double loss = 0;      ///< of the batch, per example
  double accuracy = 0;  ///< of the batch
};

enum class LeaveReason { kStepsReached, kStopped, kAsked };

struct WorkerResult {
  LeaveReason reason = LeaveReason::kStepsReached;
  std::int64_t global_step = 0;  ///< as observed when it left
  std::int64_t local_steps = 0;  ///< of this life
  std::int64_t dropped = 0;      ///< gradients that came too late for their round
};

/// What the surroundings of a worker may do between steps.
struct WorkerCallbacks {
  /// After each step. May be empty.
  std::function<void(const StepReport&)> on_step;
  /// Before each step and at least once a second while it waits for others. An error ends the
  /// worker with it; `*leave` set to true ends it after the current step. May be empty.
  std::function<Status(bool* leave)> check;
  /// Loss and gradient of a batch, in place of Model::LossAndGradient(). May be empty.
  std::function<Result<BatchResult>(const Batch&, ParameterParts, GradientParts)> compute;
};

/// Trains until it is time to leave; then evaluates on the test images, if there are any, and
/// leaves the store. Counters in the store are kept up to date at every step, the data cursor
/// among them: a worker that is started again goes on with the batch that would have come.
/// Errors: kInvalidArgument, naming step and variable, for a gradient or loss that is not finite
/// (OnNan::kStop; after kMaxSkipsInARow of them kSkip too), and for a batch larger than the
/// training set; the store's, above all kAborted when this worker was evicted.
Result<WorkerResult> RunWorker(const WorkerOptions& options, const WorkerCallbacks& callbacks,
                               Model& model, const ModelLayout& layout, const Dataset& data,
                               ParameterStore& store);

struct TestResult {
  double accuracy = 0;  ///< 0..1
  double loss = 0;      ///< mean cross-entropy over the test images
  double loss_sum = 0;  ///< the same, summed, as the reference programs print it
};
/// Over the test images, at the parameters `parts`. Errors: the backend's.
Result<TestResult> EvaluateTest(Model& model, const Dataset& data, ParameterParts parts);

}  // namespace passel

// hooks.h - the hooks that come with this project, with the defaults and words of those that the
// reference programs use.
//
//   StopAtStep        leaves at a global step
//   StepCounter       says how many global steps the job makes per second
//   Logging           says what it is told to, every so many steps of this worker
//   NanGuard          ends training, or fails it, when the loss is no number
//   FinalOps          something that is done once, after the last step
//   GlobalStepWaiter  lets this worker begin later than others
//   Feed              says on which examples each batch is computed
//   CheckpointSaver   saves at the start, by a timer, and at the end
//   SummarySaver      the same for what is written about training
//
// Those that write a timeline and files for TensorBoard: train/profiler_hook.h,
// train/summary_writer.h. Those that say something say it as the log
// does (base/log.h), unless they are given something else to write a line with.
//
// All errors here are kInvalidArgument. Functions that are given are called on the thread of the
// worker, and an error of theirs ends it.

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "train/hook.h"
#include "train/steps_timer.h"

namespace passel {

/// Writes a line, given without its end. Empty: the log does.
using LineFunction = std::function<void(std::string_view line)>;

/// Exactly one of the two; `num_steps` counts from the global step that the first session begins
/// at. Leaves once it observes that step, so that a job of N workers makes up to N - 1 more.
Result<std::unique_ptr<Hook>> MakeStopAtStep(std::optional<std::int64_t> num_steps,
                                             std::optional<std::int64_t> last_step);

struct StepCounterOptions {
  Interval every{.steps = 100};
  LineFunction write{};  ///< "global_step/sec: 852.887"
  /// The same as a number. May be empty.
  std::function<void(std::int64_t global_step, double per_second)> on_rate{};
};
Result<std::unique_ptr<Hook>> MakeStepCounter(StepCounterOptions options);

struct LoggedValue {
  std::string tag;
  std::function<double(const HookContext&)> value;
};
struct LoggingOptions {
  std::vector<LoggedValue> values{};  ///< in this order
  Interval every{};                   ///< in steps of this worker; may be none, if `at_end`
  bool at_end = false;                ///< once more in End()
  LineFunction write{};               ///< "loss = 0.5, accuracy = 1 (0.123 sec)"
};
Result<std::unique_ptr<Hook>> MakeLogging(LoggingOptions options);

/// Looks at the loss of each step. The worker itself fails at a loss or gradient that is not finite
/// before it pushes it (OnNan::kStop); this is for a worker that skips them (kSkip), and is to skip
/// none. With `fail` the error is kDiverged; without it the worker leaves as one that is done.
std::unique_ptr<Hook> MakeNanGuard(bool fail = true);

std::unique_ptr<Hook> MakeFinalOps(std::function<Status(HookContext&)> ops);

/// Before the first step: waits until the job's global step is at least `step`. In the modes with
/// rounds others wait for this worker meanwhile, so it can only wait for a step that was made.
std::unique_ptr<Hook> MakeGlobalStepWaiter(std::int64_t step);

std::unique_ptr<Hook> MakeFeed(FeedFunction feed);

/// Told of each checkpoint. All methods (optional): nothing by default.
class CheckpointListener {
 public:
  virtual ~CheckpointListener() = default;
  virtual void Begin() {}
  virtual void BeforeSave(std::int64_t /*step*/) {}
  /// True: the worker is to leave, as one that is done.
  virtual bool AfterSave(std::int64_t /*step*/) { return false; }
  virtual void End(std::int64_t /*step*/) {}
};

struct CheckpointSaverOptions {
  Interval every{.time = std::chrono::minutes(10)};
  std::string path{};  ///< for the line "Saving checkpoints for 100 into PATH."
  /// Saves the job as it is now; `step` is its global step. An error ends the worker: one that is
  /// to go on without a checkpoint says why, and returns OK.
  std::function<Status(std::int64_t step)> save{};
  std::vector<CheckpointListener*> listeners{};  ///< they outlive the hook
};
/// Saves when a session begins, then by the timer, and in End() if there are steps that no
/// checkpoint has.
Result<std::unique_ptr<Hook>> MakeCheckpointSaver(CheckpointSaverOptions options);

struct SummarySaverOptions {
  Interval every{.steps = 100};
  /// At the first step, then by the timer.
  std::function<Status(HookContext&)> write{};
  /// Before the first write. May be empty.
  std::function<Status(std::int64_t global_step)> start{};
  /// In End(). May be empty.
  std::function<Status()> flush{};
};
Result<std::unique_ptr<Hook>> MakeSummarySaver(SummarySaverOptions options);

}  // namespace passel

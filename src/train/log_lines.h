// log_lines.h - what a worker prints, line by line, in the words of the reference programs.
//
//   style           lines
//   none            nothing
//   task            those of dist-mnist and "worker=0, final accuracy = 0.97": for tasks by hand
//   dist-mnist      task, session, training; each step; the summed cross entropy at the end
//   monitored       of the chief: global_step/sec
//   async-softmax   a line with the loss every so many epochs; the accuracy at the end
//   k8s-adagrad     as dist-mnist, and accuracy and cross entropy at every evaluation
//   mnist-replica   those of dist-mnist in other words
//
// Where they say "Worker 0" or "worker=0", a chief task of its own is "Chief 0" and "chief=0": no
// two tasks of a job have one name.
//
// A printed global step is the number of the worker's own update, so that no two workers of an
// asynchronous job print the same one. A printed local step counts from 1 over all lives of the
// worker, so that the last ones of all workers add up to the global step.
//
// Threads    One thread at a time.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cluster/cluster_spec.h"
#include "train/hook.h"
#include "train/worker_loop.h"

namespace passel {

enum class LogStyle {
  kNone,
  kTask,
  kDistMnist,
  kMonitored,
  kAsyncSoftmax,
  kK8sAdagrad,
  kMnistReplica,
};

/// Errors: kInvalidArgument, listing the names.
Result<LogStyle> ParseLogStyle(std::string_view name);
/// "none, task, ...": for help.
std::string LogStyleNames();
/// Whether the lines are those of a program that this one stands in for.
bool ImitatesProgram(LogStyle style);
/// Whether Final() says something, so that a worker must evaluate at its end.
bool TellsOfFinalEvaluation(LogStyle style);

struct LogLineOptions {
  LogStyle style = LogStyle::kNone;
  TaskId task{"worker", 0};
  bool chief = false;
  /// Local steps between two lines about a step, at least 1. monitored: global steps.
  std::int64_t steps = 100;
  std::int64_t epochs = 0;                  ///< the same in epochs; 0: `steps` counts
  std::int64_t train_steps = kNoStepLimit;  ///< as in WorkerOptions
};

class LogLines : private Hook {
 public:
  /// `write` gets each line without its end, and sees to it that a reader has it at once.
  LogLines(const LogLineOptions& options, std::function<void(std::string_view line)> write);

  /// Local steps of this worker in an epoch, at least 1. REQUIRES: before the first Step() where
  /// lines are counted in epochs.
  void SetStepsPerEpoch(std::int64_t steps) { steps_per_epoch_ = steps; }

  void Task();
  void WorkerDevice(std::string_view device);
  /// `address`: "localhost:2223".
  void ExistingServer(std::string_view address);
  void SessionBegins();
  void SessionComplete();
  /// What makes the lines from the beginning of training to its end, if there are any. *this owns
  /// them, and stays where it is.
  std::vector<Hook*> Hooks();
  /// Times are wall clock seconds, durations seconds.
  void TrainingBegins(double time);
  void Step(const StepReport& step, double time);
  void Evaluation(const TestResult& result);
  void TrainingEnds(double time, double elapsed);
  /// The last lines; none about an evaluation that was not made.
  void Final(const WorkerResult& result);

 private:
  bool TellsOfTraining() const;
  template <typename... Args>
  void Write(std::string_view format, const Args&... args);

  Status AfterCreateSession(HookContext& context) override;
  Status AfterRun(HookContext& context) override;
  Status AfterEvaluation(HookContext& context, const EvaluationReport& report) override;
  Status End(HookContext& context) override;

  const LogLineOptions options_;
  const std::function<void(std::string_view)> write_;
  std::string title_;  // "Worker", "Chief"
  std::int64_t steps_per_epoch_ = 1;
  std::unique_ptr<Hook> rate_;  // monitored, of the chief
  std::int64_t begin_ns_ = 0;   // of training
};

}  // namespace passel

#include "job/conclusion.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "base/nvtx.h"
#include "base/output.h"
#include "base/subprocess.h"
#include "compute/cpu_backend.h"
#include "job/exit_code.h"
#include "job/run_page.h"
#include "job/saved_values.h"
#include "nn/model.h"

namespace passel::job {
namespace {

// How long nobody may read standard output before it is given up.
constexpr std::chrono::seconds kReaderPatience{5};
constexpr std::chrono::milliseconds kLeastPatience{100};

void Fail(const Status& status, JobReport* report) {
  LogError("{}", status.message());
  report->notes.push_back(status.message());
  if (report->exit_code == kExitDone) report->exit_code = kExitFailed;
}

// Multiplications above which an evaluation takes seconds on one core. Below, one thread gives the
// same bits wherever it runs.
constexpr double kLargeEvaluation = 2e10;

// The workers have ended: the threads that they had, as far as there are cores for them.
int ThreadsFor(const Conclusion& c, const ImageSet& images, const JobReport& report) {
  std::size_t parameters = 0;
  for (const VariableSpec& variable : ModelVariables(c.config.model)) {
    parameters += variable.elements();
  }
  if (static_cast<double>(parameters) * static_cast<double>(images.size()) < kLargeEvaluation) {
    return 1;
  }
  const std::size_t threads = report.status.workers.size() *
                              static_cast<std::size_t>(std::max(1, c.config.threads_per_worker));
  const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
  return static_cast<int>(std::clamp<std::size_t>(threads, 1, cores));
}

Result<std::unique_ptr<Backend>> EvaluationBackend(int threads) {
  CpuBackendOptions options;
  options.threads = threads;
  Result<std::unique_ptr<Backend>> backend = CreateCpuBackend(options);
  if (backend.ok() || threads == 1) return backend;
  LogInfo("evaluating with one thread: {}", backend.status().message());
  return CreateCpuBackend();
}

// kCancelled: by a signal, which is in the report then.
Result<TestResult> Evaluate(const Conclusion& c, const ImageSet& images, SignalEvents& signals,
                            Progress& progress, JobReport* report) {
  const nvtx::Range range(nvtx::Event::kEvaluate, report->status.global_step);
  PASSEL_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend,
                          EvaluationBackend(ThreadsFor(c, images, *report)));
  PASSEL_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model,
                          Model::Create(c.config.model, *backend, kEvaluationBatch));
  return EvaluateImages(*model, images, c.parts, [&](std::size_t done) -> Status {
    progress.Evaluating(done, images.size());
    const int signal = signals.Next();
    if (signal == 0 && c.end_by && c.end_by->Expired()) {
      return Cancelled("the evaluation was given up, so that the job ends within --grace");
    }
    if (signal == 0) return {};
    report->interrupted = true;
    if (report->exit_code == kExitDone) {
      report->exit_code = signal == SIGINT ? kExitInterrupted : kExitRestartMe;
    }
    return Cancelled(SignalName(signal) + " ended the evaluation");
  });
}

// False: it was given up.
bool EvaluateLastValues(const Conclusion& c, SignalEvents& signals, Progress& progress,
                        JobReport* report) {
  if (c.parts.empty() || report->test || !c.evaluate || c.data.test().size() == 0) return true;
  const Result<TestResult> test = Evaluate(c, c.data.test(), signals, progress, report);
  progress.Finish();
  if (test.status().code() == Code::kCancelled) {
    report->notes.push_back(test.status().message());
    return false;
  }
  if (!test.ok()) {
    Fail(test.status(), report);
  } else {
    report->test = *test;
    // A worker that found it has said so.
    const double guessing = std::log(static_cast<double>(c.config.model.classes));
    if (std::isfinite(test->loss) && test->loss > 2 * guessing) {
      report->notes.push_back(fmt::format(
          "the loss on the test images, {:.4f}, is worse than guessing would be ({:.4f}): training "
          "has diverged or has only begun; lower --learning_rate or make more steps",
          test->loss, guessing));
      LogWarning("{}", report->notes.back());
    }
    if (!std::isfinite(test->loss) && report->exit_code != kExitFailed) {
      Fail(Diverged("the loss on the test images is not finite after the last update: lower "
                    "--learning_rate"),
           report);
    }
  }
  return true;
}

// What the job ends with may be its best. The accuracy; nothing: nobody asks, or it was given up.
std::optional<double> ScoreLastValues(const Conclusion& c, SignalEvents& signals,
                                      Progress& progress, JobReport* report) {
  if (c.parts.empty() || !c.evaluate || !c.score) return {};
  const Result<DataSplit> split = SplitData(c.config, c.data);
  if (!split.ok() || split->validation.size() == 0) return {};
  const Result<TestResult> held_back = Evaluate(c, split->validation, signals, progress, report);
  progress.Finish();
  if (!held_back.ok()) {
    report->notes.push_back(held_back.status().message());
    return {};
  }
  if (!std::isfinite(held_back->loss)) return {};
  c.score(held_back->accuracy, report->values_step.value_or(report->status.global_step));
  return held_back->accuracy;
}

// True: there is a new file.
bool Save(const Conclusion& c, JobReport* report) {
  if (c.save.empty()) return false;
  if (c.parts.empty()) {
    report->notes.push_back(fmt::format(
        "nothing was saved to {}: the job ended before its variables were initialised", c.save));
    return false;
  }
  const std::int64_t step = report->values_step.value_or(report->status.global_step);
  const Status saved =
      SaveValues(c.save, c.config, c.parts, step,
                 report->test ? std::optional(report->test->accuracy) : std::nullopt);
  if (!saved.ok()) Fail(saved, report);
  return saved.ok();
}

std::chrono::nanoseconds PatienceUntil(const std::optional<Deadline>& end_by,
                                       std::chrono::nanoseconds most) {
  return end_by ? std::clamp(end_by->Remaining(), std::chrono::nanoseconds(kLeastPatience), most)
                : most;
}

// On standard output, before the report is written, so that exit code and report agree. A reader
// that has gone wanted no more; what a full disk swallows is lost.
void PrintResults(const std::string& text, const std::optional<Deadline>& end_by,
                  JobReport* report) {
  Write(Stream::kOut, text);
  const std::chrono::nanoseconds patience = PatienceUntil(end_by, kReaderPatience);
  const int error = FlushOutput(Stream::kOut, patience);
  if (error == 0 || error == EPIPE || error == EIO) return;
  if (error != ETIMEDOUT) {
    Fail(Internal(fmt::format("not everything could be printed: {}", std::strerror(error))),
         report);
    return;
  }
  report->notes.push_back(
      fmt::format("nobody read the results on standard output within {:g} s", ToSeconds(patience)));
  LogWarning("{}", report->notes.back());
}

}  // namespace

int Conclude(const Conclusion& c, SignalEvents& signals, Progress& progress, JobReport* report) {
  std::optional<double> held_back;
  if (EvaluateLastValues(c, signals, progress, report)) {
    held_back = ScoreLastValues(c, signals, progress, report);
  }
  const bool saved = Save(c, report);
  report->seconds = 1e-9 * static_cast<double>(MonotonicNs() - report->program_start_ns);
  std::string text;
  if (c.evaluator && report->test) {
    text = fmt::format(
        "final evaluation at global step {}: test accuracy {:.4f}, test loss {:.4f}{}\n",
        report->values_step.value_or(report->status.global_step), report->test->accuracy,
        report->test->loss,
        held_back ? fmt::format(", validation accuracy {:.4f}", *held_back) : "");
  }
  if (report->status.local_steps > 0) text += Summary(*report);
  if (saved) text += fmt::format("saved {}\n", c.save);
  PrintResults(text, c.end_by, report);
  // Before the report, which says so if there is no page.
  if (!c.page.empty()) {
    const Status made = MakeRunPage(c.page, *report, PatienceUntil(c.end_by, kPageLimit));
    if (!made.ok()) Fail(made, report);
  }
  if (!c.report.empty()) {
    if (const Status written = WriteReport(c.report, *report); !written.ok()) Fail(written, report);
  }
  return report->exit_code;
}

}  // namespace passel::job

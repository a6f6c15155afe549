#include "train/log_lines.h"

#include <fmt/core.h>

#include <utility>

#include "base/clock.h"
#include "train/hooks.h"

namespace passel {
namespace {

constexpr std::pair<std::string_view, LogStyle> kStyles[] = {
    {"none", LogStyle::kNone},
    {"task", LogStyle::kTask},
    {"dist-mnist", LogStyle::kDistMnist},
    {"monitored", LogStyle::kMonitored},
    {"async-softmax", LogStyle::kAsyncSoftmax},
    {"k8s-adagrad", LogStyle::kK8sAdagrad},
    {"mnist-replica", LogStyle::kMnistReplica},
};

// As Python prints it: the shortest text that reads back the same, and 1.0 rather than 1. The
// reference program keeps its loss and accuracy as float32, hence digits like 0.8865000009536743.
std::string PythonFloat32(double value) {
  std::string text = fmt::format("{}", static_cast<double>(static_cast<float>(value)));
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

}  // namespace

Result<LogStyle> ParseLogStyle(std::string_view name) {
  for (const auto& [known, style] : kStyles) {
    if (known == name) return style;
  }
  return InvalidArgument(
      fmt::format("--log_lines {} is not known: use one of {}", name, LogStyleNames()));
}

std::string LogStyleNames() {
  std::string names;
  for (const auto& [name, style] : kStyles) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
  }
  return names;
}

bool ImitatesProgram(LogStyle style) {
  return style != LogStyle::kNone && style != LogStyle::kTask;
}

bool TellsOfFinalEvaluation(LogStyle style) {
  return style != LogStyle::kNone && style != LogStyle::kMonitored;
}

LogLines::LogLines(const LogLineOptions& options, std::function<void(std::string_view)> write)
    : options_(options), write_(std::move(write)), title_(options.task.job) {
  if (!title_.empty() && title_[0] >= 'a' && title_[0] <= 'z') title_[0] += 'A' - 'a';
}

template <typename... Args>
void LogLines::Write(std::string_view format, const Args&... args) {
  write_(fmt::vformat(format, fmt::make_format_args(args...)));
}

bool LogLines::TellsOfTraining() const {
  return options_.style == LogStyle::kTask || options_.style == LogStyle::kDistMnist ||
         options_.style == LogStyle::kK8sAdagrad || options_.style == LogStyle::kMnistReplica;
}

void LogLines::Task() {
  if (!TellsOfTraining()) return;
  Write("job name = {}", options_.task.job);
  Write("task index = {}", options_.task.index);
}

void LogLines::WorkerDevice(std::string_view device) {
  if (options_.style != LogStyle::kTask && options_.style != LogStyle::kDistMnist) return;
  Write("worker_device: {}", device);
}

void LogLines::ExistingServer(std::string_view address) {
  if (!TellsOfTraining()) return;
  Write("Using existing server at: {}{}", ImitatesProgram(options_.style) ? "grpc://" : "",
        address);
}

void LogLines::SessionBegins() {
  if (!TellsOfTraining()) return;
  const bool replica = options_.style == LogStyle::kMnistReplica;
  if (options_.chief) {
    Write(replica ? "{} {}:initializing sess ..." : "{} {}: Initializing session...", title_,
          options_.task.index);
  } else {
    Write(replica ? "{} {}:Waiting for session to be initialized..."
                  : "{} {}: Waiting for session to be initialized...",
          title_, options_.task.index);
  }
}

void LogLines::SessionComplete() {
  if (!TellsOfTraining()) return;
  Write("{} {}: Session initialization complete.", title_, options_.task.index);
}

std::vector<Hook*> LogLines::Hooks() {
  switch (options_.style) {
    case LogStyle::kNone:
      return {};
    case LogStyle::kMonitored:
      if (!options_.chief) return {};
      // Every `steps` global steps or later: others make most of them.
      rate_ = MakeStepCounter({.every = {.steps = options_.steps}, .write = write_}).value();
      return {rate_.get()};
    default:
      return {this};
  }
}

Status LogLines::AfterCreateSession(HookContext&) {
  TrainingBegins(WallSeconds());
  begin_ns_ = MonotonicNs();
  return {};
}

Status LogLines::AfterRun(HookContext& context) {
  if (!context.step().skipped) Step(context.step(), WallSeconds());
  return {};
}

Status LogLines::AfterEvaluation(HookContext&, const EvaluationReport& report) {
  // Final() tells of the last one.
  if (!report.at_end) Evaluation(report.result);
  return {};
}

Status LogLines::End(HookContext&) {
  TrainingEnds(WallSeconds(), 1e-9 * static_cast<double>(MonotonicNs() - begin_ns_));
  return {};
}

void LogLines::TrainingBegins(double time) {
  if (!TellsOfTraining()) return;
  Write(options_.style == LogStyle::kMnistReplica ? "Training begin @ {:f}"
                                                  : "Training begins @ {:f}",
        time);
}

void LogLines::Step(const StepReport& step, double time) {
  const std::int64_t steps =
      options_.epochs > 0 ? options_.epochs * steps_per_epoch_ : options_.steps;
  if (options_.style == LogStyle::kNone || options_.style == LogStyle::kMonitored ||
      step.local_step % steps != 0) {
    return;
  }
  if (options_.style == LogStyle::kAsyncSoftmax) {
    // The epoch that this step belongs to, from 0.
    Write("{}={},epoch={},global_step={}, local_step={}, loss = {}", options_.task.job,
          options_.task.index, (step.local_step - 1) / steps_per_epoch_, step.outcome.global_step,
          step.local_step, PythonFloat32(step.loss));
    return;
  }
  Write(options_.style == LogStyle::kMnistReplica
            ? "{:f}: {} {}: training step {} done (global step： {})"
            : "{:f}: {} {}: training step {} done (global step: {})",
        time, options_.style == LogStyle::kMnistReplica ? options_.task.job : title_,
        options_.task.index, step.local_step, step.outcome.global_step);
}

void LogLines::Evaluation(const TestResult& result) {
  if (options_.style == LogStyle::kK8sAdagrad) {
    Write("acc: {:g}", result.accuracy);
    Write("cross entropy = {:g}", result.loss_sum);
  }
}

void LogLines::TrainingEnds(double time, double elapsed) {
  if (!TellsOfTraining()) return;
  Write("Training ends @ {:f}", time);
  Write(options_.style == LogStyle::kMnistReplica ? "Training elapsed time:{:f} s"
                                                  : "Training elapsed time: {:f} s",
        elapsed);
}

void LogLines::Final(const WorkerResult& result) {
  if (!result.evaluation) return;
  const TestResult& evaluation = *result.evaluation;
  const std::int64_t steps =
      options_.train_steps == kNoStepLimit ? result.global_step : options_.train_steps;
  switch (options_.style) {
    case LogStyle::kNone:
    case LogStyle::kMonitored:
      return;
    case LogStyle::kTask:
    case LogStyle::kDistMnist:
      Write("After {} training step(s), validation cross entropy = {:g}", steps,
            evaluation.loss_sum);
      break;
    case LogStyle::kMnistReplica:
      Write("After {} training steps,validation cross entropy = {:g}", steps, evaluation.loss_sum);
      break;
    case LogStyle::kK8sAdagrad:
      Evaluation(evaluation);
      break;
    case LogStyle::kAsyncSoftmax:
      Write("{}={}, final accuracy = {}", options_.task.job, options_.task.index,
            PythonFloat32(evaluation.accuracy));
      return;
  }
  if (options_.style == LogStyle::kTask) {
    Write("{}={}, final accuracy = {}", options_.task.job, options_.task.index,
          evaluation.accuracy);
  }
}

}  // namespace passel

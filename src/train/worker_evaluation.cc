#include "train/worker_evaluation.h"

#include <fmt/core.h>

#include <cmath>

#include "base/clock.h"
#include "base/log.h"
#include "base/nvtx.h"
#include "train/divergence.h"
#include "train/evaluation.h"
#include "train/gradient_source.h"

namespace passel {
namespace {

constexpr std::int64_t kFirstLineAfterNs = 2'000'000'000;
constexpr std::int64_t kNextLineAfterNs = 10'000'000'000;

}  // namespace

WorkerEvaluation::WorkerEvaluation(const WorkerEvaluationParts& parts)
    : parts_(parts),
      evaluated_(parts.options.evaluation_steps > 0
                     ? parts.store.global_step() / parts.options.evaluation_steps
                     : 0) {}

Status WorkerEvaluation::AfterPush(HookContext& context) {
  const std::int64_t every = parts_.options.evaluation_steps;
  if (every == 0) return {};
  std::int64_t step = context.global_step();
  if (IsRoundMode(parts_.store.mode())) {
    // A round belongs to several workers, and the one that evaluates may not see each of them.
    const std::int64_t multiple = parts_.store.global_step() / every;
    if (multiple == evaluated_) return {};
    evaluated_ = multiple;
    if (!Leads()) return {};
    step = multiple * every;
  } else {
    evaluated_ = step / every;
    if (step % every != 0) return {};
  }
  PASSEL_RETURN_IF_ERROR(LookAtValuesNow());
  PASSEL_ASSIGN_OR_RETURN(const TestResult result, Evaluate(false));
  return Tell(context, step, result, false);
}

bool WorkerEvaluation::Leads() const {
  for (const Member& m : parts_.store.membership()) {
    if (m.phase == Phase::kRunning) return m.worker == parts_.store.worker();
  }
  return false;
}

// If the store still gives them; else those of the last pull stay.
Status WorkerEvaluation::LookAtValuesNow() {
  if (parts_.callbacks.refresh_values) PASSEL_RETURN_IF_ERROR(parts_.callbacks.refresh_values());
  ParameterStore& store = parts_.store;
  if (Result<ParamView> view =
          store.Pull(PullModeFor(parts_.options, parts_.copy_pays, store.mode()));
      view.ok()) {
    parts_.layout.Bind(*view, parts_.params);
  }
  return {};
}

// kCancelled: asked to leave meanwhile. One that takes long is told of.
Result<TestResult> WorkerEvaluation::Evaluate(bool at_end) {
  const nvtx::Range range(nvtx::Event::kEvaluate, parts_.store.global_step());
  const ImageSet& images = ImagesOf(parts_.data, parts_.options.evaluation_set);
  std::int64_t next_log_ns = MonotonicNs() + kFirstLineAfterNs;
  return EvaluateImages(parts_.model, images, *parts_.params, [&](std::size_t done) -> Status {
    parts_.store.SayAlive();
    bool leave = false;
    const Status status = parts_.callbacks.check ? parts_.callbacks.check(&leave) : Status();
    // After the last step there is nothing any more that a missing peer could hinder.
    if (!status.ok() && !at_end) return status;
    if (leave) return Cancelled("asked to leave while evaluating");
    if (MonotonicNs() >= next_log_ns) {
      next_log_ns += kNextLineAfterNs;
      LogInfo("evaluating: {} of {} images are done", done, images.size());
    }
    return {};
  });
}

Status WorkerEvaluation::Tell(HookContext& context, std::int64_t step, const TestResult& result,
                              bool at_end) const {
  if (parts_.options.evaluation_set == EvaluationSet::kValidation) {
    KeepIfBest(parts_.store.counters().validation, result.accuracy, step);
  }
  const EvaluationReport report{step, parts_.options.evaluation_set, result, at_end};
  for (Hook* hook : parts_.callbacks.hooks) {
    PASSEL_RETURN_IF_ERROR(hook->AfterEvaluation(context, report));
  }
  return {};
}

Status WorkerEvaluation::CheckValues() {
  PASSEL_RETURN_IF_ERROR(LookAtValuesNow());
  if (parts_.params->empty()) return {};  // stopped before it could look
  const VariableSpec* spoilt = FindNonFinite(parts_.model.variables(), *parts_.params);
  return spoilt != nullptr ? NotFinite("the variable " + spoilt->name) : Status();
}

Status WorkerEvaluation::AtEnd(HookContext& context, WorkerResult* result) {
  const EvaluationSet set = parts_.options.evaluation_set;
  if (parts_.params->empty() || !parts_.options.evaluate_at_end ||
      ImagesOf(parts_.data, set).size() == 0) {
    return {};
  }
  const Result<TestResult> found = Evaluate(true);
  if (found.status().code() == Code::kCancelled) {
    if (result->reason != LeaveReason::kStopped) result->reason = LeaveReason::kAsked;
    return {};
  }
  if (!found.ok()) return found.status();
  const bool test = set == EvaluationSet::kTest;
  if (!std::isfinite(found->loss)) {
    return NotFinite(fmt::format("the loss on the {} images", test ? "test" : "validation"));
  }
  result->evaluation = *found;
  if (test) {
    parts_.store.counters().final_accuracy.store(found->accuracy, std::memory_order_relaxed);
  }
  return Tell(context, parts_.store.global_step(), *found, true);
}

Status WorkerEvaluation::NotFinite(const std::string& what) const {
  nvtx::Mark(nvtx::Event::kNotFinite, parts_.store.global_step());
  parts_.store.counters().not_finite_at.store(parts_.store.global_step() + 1,
                                              std::memory_order_release);
  const WhereDiverged where{parts_.options.names(parts_.store.worker()), 0,
                            parts_.store.global_step()};
  return NotFiniteAtTheEnd(where, what);
}

}  // namespace passel

// function_hook.h - a hook made of functions, each of which may be empty.

#pragma once

#include <functional>

#include "train/hook.h"

namespace passel::test {

struct FunctionHook final : Hook {
  std::function<void(const StepReport&)> on_step;  ///< not of steps that are skipped
  std::function<void(const EvaluationReport&)> on_evaluation;
  std::function<void()> on_end;

  Status AfterRun(HookContext& context) override {
    if (on_step && !context.step().skipped) on_step(context.step());
    return {};
  }
  Status AfterEvaluation(HookContext&, const EvaluationReport& report) override {
    if (on_evaluation) on_evaluation(report);
    return {};
  }
  Status End(HookContext&) override {
    if (on_end) on_end();
    return {};
  }
};

}  // namespace passel::test

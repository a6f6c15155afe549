#include "job/optimizer_settings.h"

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>

namespace passel::job {
namespace {

// The flag behind a field of OptimizerConfig: one flag may stand for the same field of several
// optimizers.
std::string FlagOf(std::string_view field) {
  constexpr std::pair<std::string_view, std::string_view> kFlags[] = {
      {"rmsprop_momentum", "momentum"},
      {"rmsprop_decay", "decay"},
      {"rmsprop_epsilon", "epsilon"},
      {"adam_beta1", "beta1"},
      {"adam_beta2", "beta2"},
      {"adam_epsilon", "epsilon"},
      {"initial_accumulator", "initial_accumulator_value"},
  };
  for (const auto& [name, flag] : kFlags) {
    if (name == field) return fmt::format("--{}", flag);
  }
  return fmt::format("--{}", field);
}

}  // namespace

Result<OptimizerConfig> CheckOptimizer(const JobSettings& flags) {
  PASSEL_ASSIGN_OR_RETURN(OptimizerConfig o, ParseOptimizer(flags.optimizer));
  // What trains the default model well; Adam's is TensorFlow's default.
  o.learning_rate = flags.learning_rate ? *flags.learning_rate
                    : o.kind == OptimizerKind::kAdam || o.kind == OptimizerKind::kRmsProp ? 0.001
                    : o.kind == OptimizerKind::kSgd                                       ? 0.1
                                                                                          : 0.05;
  const auto wrong = [&](const char* flag) {
    return InvalidArgument(
        fmt::format("{} has no meaning for --optimizer {}: omit it", flag, flags.optimizer));
  };
  const bool adam = o.kind == OptimizerKind::kAdam;
  const bool rmsprop = o.kind == OptimizerKind::kRmsProp;
  const bool ftrl = o.kind == OptimizerKind::kFtrl;
  if (flags.momentum) {
    if (rmsprop)
      o.rmsprop_momentum = *flags.momentum;
    else if (o.kind == OptimizerKind::kMomentum)
      o.momentum = *flags.momentum;
    else
      return wrong("--momentum");
  }
  if (flags.use_nesterov) {
    if (o.kind != OptimizerKind::kMomentum) return wrong("--use_nesterov");
    o.use_nesterov = 1;
  }
  if (flags.centered) {
    if (!rmsprop) return wrong("--centered");
    o.centered = 1;
  }
  if (flags.decay) {
    if (!rmsprop) return wrong("--decay");
    o.rmsprop_decay = *flags.decay;
  }
  if (flags.epsilon) {
    if (adam)
      o.adam_epsilon = *flags.epsilon;
    else if (rmsprop)
      o.rmsprop_epsilon = *flags.epsilon;
    else
      return wrong("--epsilon");
  }
  if (flags.beta1) {
    if (!adam) return wrong("--beta1");
    o.adam_beta1 = *flags.beta1;
  }
  if (flags.beta2) {
    if (!adam) return wrong("--beta2");
    o.adam_beta2 = *flags.beta2;
  }
  if (flags.initial_accumulator_value) {
    if (o.kind != OptimizerKind::kAdagrad && !ftrl) return wrong("--initial_accumulator_value");
    o.initial_accumulator = *flags.initial_accumulator_value;
  }
  if (!ftrl) {
    if (flags.l1) return wrong("--l1");
    if (flags.l2) return wrong("--l2");
    if (flags.l2_shrinkage) return wrong("--l2_shrinkage");
    if (flags.learning_rate_power) return wrong("--learning_rate_power");
  } else {
    if (flags.l1) o.l1 = *flags.l1;
    if (flags.l2) o.l2 = *flags.l2;
    if (flags.l2_shrinkage) o.l2_shrinkage = *flags.l2_shrinkage;
    if (flags.learning_rate_power) o.learning_rate_power = *flags.learning_rate_power;
  }
  PASSEL_RETURN_IF_ERROR(Validate(o, [&](std::string_view field, double value) {
    const std::string flag = FlagOf(field);
    return ShownParameter{flag, flags.typed.Show(flag, value)};
  }));
  return o;
}

}  // namespace passel::job

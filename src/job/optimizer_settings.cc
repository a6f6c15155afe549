#include "job/optimizer_settings.h"

#include <fmt/core.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "optim/hyper_flags.h"
#include "optim/optimizer_table.h"

namespace passel::job {
namespace {

// "--beta1" of "adam_beta1".
std::string FlagOf(std::string_view field) {
  for (const Hyperparameter& parameter : kHyperparameters) {
    if (parameter.name == field) return fmt::format("--{}", parameter.flag);
  }
  return fmt::format("--{}", field);
}

}  // namespace

Result<OptimizerConfig> CheckOptimizer(const JobSettings& flags) {
  PASSEL_ASSIGN_OR_RETURN(OptimizerConfig config, ParseOptimizer(flags.optimizer));
  config.learning_rate = RowOf(config.kind).learning_rate;
  for (std::size_t i = 0; i < kNumHyperFlags; ++i) {
    const HyperSetting& setting = flags.hyper[i];
    if (!setting.given()) continue;
    const Hyperparameter* const parameter = HyperparameterOf(config.kind, kHyperFlags[i].name);
    if (parameter == nullptr) {
      return InvalidArgument(fmt::format("--{} has no meaning for --optimizer {}: omit it",
                                         kHyperFlags[i].name, flags.optimizer));
    }
    parameter->field.Set(&config, setting.on ? 1 : *setting.number);
  }
  PASSEL_RETURN_IF_ERROR(Validate(config, [&](std::string_view field, double value) {
    const std::string flag = FlagOf(field);
    return ShownParameter{flag, flags.typed.Show(flag, value)};
  }));
  return config;
}

}  // namespace passel::job

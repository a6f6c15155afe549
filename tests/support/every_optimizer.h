// every_optimizer.h - for tests that look at all optimizers: a new one comes along by its row.

#pragma once

#include <vector>

#include "optim/optimizer.h"
#include "optim/optimizer_table.h"

namespace passel {

/// The defaults of each optimizer, and each with one of its switches on, or with another power of
/// the learning rate: together they take every rule of UpdateRules.
inline std::vector<OptimizerConfig> EveryOptimizer() {
  std::vector<OptimizerConfig> configs;
  for (const OptimizerRow& row : Optimizers()) {
    OptimizerConfig config;
    config.kind = row.kind;
    configs.push_back(config);
    for (const Hyperparameter& parameter : kHyperparameters) {
      if (!row.Uses(parameter.field)) continue;
      OptimizerConfig other = config;
      if (parameter.field.is_switch()) {
        parameter.field.Set(&other, 1);
      } else if (parameter.field == &OptimizerConfig::learning_rate_power) {
        other.learning_rate_power = -0.7;
      } else {
        continue;
      }
      configs.push_back(other);
    }
  }
  return configs;
}

}  // namespace passel

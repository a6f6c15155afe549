// The settings of the optimizer. Where nothing is said, its own default holds.

#include "job/settings_table.h"

namespace passel::job {

SettingGroup OptimizerGroup() {
  using S = JobSettings;
  return {"Optimizer",
          {{"optimizer", At<&S::optimizer>(),
            "sgd, momentum, nesterov, adagrad, rmsprop, adam or ftrl", InShortHelp()},
           {"learning_rate", At<&S::learning_rate>(),
            "Default: adam and rmsprop 0.001, sgd 0.1, others 0.05", InShortHelp()},
           {"momentum", At<&S::momentum>(), "momentum, rmsprop"},
           {"use_nesterov", At<&S::use_nesterov>(), "momentum"},
           {"decay", At<&S::decay>(), "rmsprop"},
           {"centered", At<&S::centered>(), "rmsprop"},
           {"epsilon", At<&S::epsilon>(), "adam, rmsprop"},
           {"beta1", At<&S::beta1>(), "adam"},
           {"beta2", At<&S::beta2>(), "adam"},
           {"initial_accumulator_value", At<&S::initial_accumulator_value>(), "adagrad, ftrl"},
           {"l1", At<&S::l1>(), "ftrl"},
           {"l2", At<&S::l2>(), "ftrl"},
           {"l2_shrinkage", At<&S::l2_shrinkage>(), "ftrl"},
           {"learning_rate_power", At<&S::learning_rate_power>(), "ftrl"}}};
}

}  // namespace passel::job

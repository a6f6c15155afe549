// The settings of the optimizer, as its own table has them (optim/optimizer_table.h). Where nothing
// is said, the optimizer's own default holds.

#include <cstddef>
#include <string>
#include <tuple>
#include <utility>

#include "job/settings_table.h"
#include "optim/hyper_flags.h"
#include "optim/optimizer.h"

namespace passel::job {
namespace {

// Where what was given for one of kHyperFlags is.
auto HyperAt(std::size_t index) {
  return [index](const SettingsView& view) -> SettingValue {
    JobSettings* const job = std::get<JobSettings*>(view);
    if (job == nullptr) return {};
    HyperSetting& setting = job->hyper[index];
    if (kHyperFlags[index].is_switch) return &setting.on;
    return &setting.number;
  };
}

}  // namespace

SettingGroup OptimizerGroup() {
  SettingGroup group{
      "Optimizer",
      {{"optimizer", At<&JobSettings::optimizer>(), OptimizerNames(), Mathematics(InShortHelp())}}};
  for (std::size_t i = 0; i < kNumHyperFlags; ++i) {
    SettingRow row{std::string(kHyperFlags[i].name), HyperAt(i),
                   OptimizersWith(kHyperFlags[i].name), Mathematics()};
    if (row.name == "learning_rate") {
      row.help = "Default: " + DefaultLearningRates();
      row.traits = Mathematics(InShortHelp());
    }
    group.rows.push_back(std::move(row));
  }
  return group;
}

}  // namespace passel::job

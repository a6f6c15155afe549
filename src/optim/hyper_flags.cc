#include "optim/hyper_flags.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

namespace passel {

const Hyperparameter* HyperparameterOf(OptimizerKind kind, std::string_view flag) {
  for (const Hyperparameter& parameter : kHyperparameters) {
    if (parameter.flag == flag && RowOf(kind).Uses(parameter.field)) return &parameter;
  }
  return nullptr;
}

std::string OptimizersWith(std::string_view flag) {
  std::vector<std::string_view> names;
  for (const OptimizerRow& row : Optimizers()) {
    if (HyperparameterOf(row.kind, flag) != nullptr) names.push_back(row.name);
  }
  std::ranges::sort(names);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string DefaultLearningRates() {
  std::map<std::string_view, double> rates;
  for (const OptimizerRow& row : Optimizers()) {
    rates[row.name] = row.learning_rate;
    if (!row.variant.empty()) rates[row.variant] = row.learning_rate;
  }
  struct Group {
    double rate;
    std::vector<std::string_view> names;
  };
  std::vector<Group> groups;  // by their first names
  for (const auto& [name, rate] : rates) {
    auto group = std::ranges::find(groups, rate, &Group::rate);
    if (group == groups.end()) group = groups.insert(group, {rate, {}});
    group->names.push_back(name);
  }
  const auto most =
      std::ranges::max_element(groups, {}, [](const Group& g) { return g.names.size(); });
  std::string text;
  for (const Group& group : groups) {
    if (&group != &*most) text += fmt::format("{} {}, ", Listed(group.names, "and"), group.rate);
  }
  return text + fmt::format("others {}", most->rate);
}

}  // namespace passel

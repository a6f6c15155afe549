#include "optim/optimizer.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <utility>

#include "base/check.h"
#include "optim/optimizer_table.h"

namespace passel {
namespace {

// Below kSmallest float32 has lost precision, and the updates flush to zero. The reciprocal of
// kLargest, and twice kLargest, are still normal floats.
constexpr double kSmallest = std::numeric_limits<float>::min();
constexpr double kLargest = 1 / kSmallest;

// "" if it is one, else what it must be.
std::string MustBe(HyperRange range, double value) {
  switch (range) {
    case HyperRange::kPositive:
      if (value >= kSmallest && value <= kLargest) return "";
      return fmt::format("above 0 and fit float32 (at least {:.3g}, at most {:.3g})", kSmallest,
                         kLargest);
    case HyperRange::kNotNegative:
      if (value >= 0 && value <= kLargest) return "";
      return fmt::format("0 or more and at most {:.3g}", kLargest);
    case HyperRange::kNotPositive:
      if (value <= 0 && value >= -kLargest) return "";
      return "0 or less and finite";
    case HyperRange::kShare:
      if (value >= 0 && static_cast<float>(value) < 1.0F) return "";
      return "at least 0 and below 1 in float32 (at most 0.99999994)";
    case HyperRange::kSwitch:
      if (value == 0 || value == 1) return "";
      return "0 or 1";
  }
  return "known";
}

// Refuses a value of a field that the optimizer does not use.
Status CheckUnused(const OptimizerConfig& config, const Hyperparameter& parameter) {
  const double value = parameter.field.Get(config);
  const double left_alone = parameter.field.Get(OptimizerConfig());
  if (value == left_alone) return {};
  std::vector<std::string_view> owners;
  for (const OptimizerRow& row : Optimizers()) {
    if (row.Uses(parameter.field)) owners.push_back(row.name);
  }
  return InvalidArgument(fmt::format("{} is a setting of {} only, got {} for {}: leave it at {}",
                                     parameter.name, Listed(owners, "and"), value,
                                     OptimizerName(config.kind), left_alone));
}

const SlotRow& SlotOf(const OptimizerConfig& config, int slot) {
  PASSEL_CHECK(slot >= 0 && slot < NumSlots(config), "no such slot");
  return RowOf(config.kind).slots[slot];
}

}  // namespace

Status Validate(const OptimizerConfig& config, const ShowParameter& show) {
  const auto kind = static_cast<std::size_t>(config.kind);
  if (kind >= Optimizers().size()) {
    return InvalidArgument(fmt::format("optimizer kind {} is not known: use 0 ({}) to {} ({})",
                                       kind, Optimizers().front().name, Optimizers().size() - 1,
                                       Optimizers().back().name));
  }
  for (const Hyperparameter& parameter : kHyperparameters) {
    if (!RowOf(config.kind).Uses(parameter.field)) {
      PASSEL_RETURN_IF_ERROR(CheckUnused(config, parameter));
      continue;
    }
    const double value = parameter.field.Get(config);
    const std::string must_be = MustBe(parameter.range, value);
    if (must_be.empty()) continue;
    const ShownParameter shown =
        show ? show(parameter.name, value)
             : ShownParameter{std::string(parameter.name), fmt::format("{}", value)};
    return InvalidArgument(fmt::format("{} must be {}, got {}: use, for example, {}", shown.name,
                                       must_be, shown.value,
                                       parameter.field.Get(OptimizerConfig())));
  }
  return {};
}

OptimizerConfig WithRates(OptimizerConfig config, const GroupRates& rates) {
  config.learning_rate = rates.learning_rate;
  if (RowOf(config.kind).Uses(&OptimizerConfig::weight_decay)) {
    config.weight_decay = rates.weight_decay;
  }
  return config;
}

GroupRates RatesOf(const OptimizerConfig& config) {
  const bool decays = RowOf(config.kind).Uses(&OptimizerConfig::weight_decay);
  return {config.learning_rate, decays ? config.weight_decay : 0};
}

Status Validate(const OptimizerConfig& config, int groups, std::span<const GroupRates> rates) {
  if (std::cmp_not_equal(rates.size(), groups)) {
    return InvalidArgument(
        fmt::format("the variables have {} groups, and rates of {} are given: "
                    "give those of all groups, in their order",
                    groups, rates.size()));
  }
  const OptimizerRow& row = RowOf(config.kind);
  const HyperRange rate = row.divides_by_rate ? HyperRange::kPositive : HyperRange::kNotNegative;
  for (std::size_t g = 0; g < rates.size(); ++g) {
    if (const std::string must_be = MustBe(rate, rates[g].learning_rate); !must_be.empty()) {
      return InvalidArgument(
          fmt::format("the learning rate of group {} must be {} for {}, got {}: set another", g,
                      must_be, row.name, rates[g].learning_rate));
    }
    const double decay = rates[g].weight_decay;
    if (!row.Uses(&OptimizerConfig::weight_decay) && decay != 0) {
      return InvalidArgument(
          fmt::format("the weight decay of group {} is {}, and {} has none: leave it at 0, or use "
                      "adamw",
                      g, decay, row.name));
    }
    if (const std::string must_be = MustBe(HyperRange::kNotNegative, decay); !must_be.empty()) {
      return InvalidArgument(fmt::format(
          "the weight decay of group {} must be {}, got {}: set another", g, must_be, decay));
    }
  }
  return {};
}

std::string Listed(const std::vector<std::string_view>& names, std::string_view last) {
  if (names.size() < 2) return std::string(names.empty() ? "" : names[0]);
  return fmt::format("{} {} {}", fmt::join(names.begin(), names.end() - 1, ", "), last,
                     names.back());
}

std::string_view OptimizerName(OptimizerKind kind) { return RowOf(kind).name; }

std::string OptimizerNames() {
  std::vector<std::string_view> names;
  for (const OptimizerRow& row : Optimizers()) {
    names.push_back(row.name);
    if (!row.variant.empty()) names.push_back(row.variant);
  }
  return Listed(names, "or");
}

Result<OptimizerKind> ParseOptimizerKind(std::string_view name) {
  const auto row = std::ranges::find(Optimizers(), name, &OptimizerRow::name);
  if (row != Optimizers().end()) return row->kind;
  return InvalidArgument(
      fmt::format("optimizer \"{:.64}\" is not known: use {}", name, OptimizerNames()));
}

Result<OptimizerConfig> ParseOptimizer(std::string_view name) {
  OptimizerConfig config;
  const auto row = std::ranges::find(Optimizers(), name, &OptimizerRow::variant);
  if (row != Optimizers().end() && !name.empty()) {
    config.kind = row->kind;
    row->variant_switch.Set(&config, 1);
    return config;
  }
  PASSEL_ASSIGN_OR_RETURN(config.kind, ParseOptimizerKind(name));
  return config;
}

int NumSlots(const OptimizerConfig& config) {
  return static_cast<int>(std::ranges::count_if(RowOf(config.kind).slots, [&](const SlotRow& slot) {
    return !slot.name.empty() && (slot.only_with.none() || slot.only_with.Get(config) != 0);
  }));
}

std::string_view SlotName(const OptimizerConfig& config, int slot) {
  return SlotOf(config, slot).name;
}

float SlotInitialValue(const OptimizerConfig& config, int slot) {
  const SlotRow& row = SlotOf(config, slot);
  return row.initial_is.none() ? row.initial : static_cast<float>(row.initial_is.Get(config));
}

bool NeedsWholeSlots(OptimizerKind kind) { return RowOf(kind).needs_whole_slots; }

}  // namespace passel

#include "optim/optimizer.h"

#include <fmt/core.h>

#include <limits>

#include "base/check.h"

namespace passel {
namespace {

constexpr OptimizerKind kAllKinds[] = {OptimizerKind::kSgd,     OptimizerKind::kMomentum,
                                       OptimizerKind::kAdagrad, OptimizerKind::kRmsProp,
                                       OptimizerKind::kAdam,    OptimizerKind::kFtrl};
constexpr const char* kNames = "sgd, momentum, nesterov, adagrad, rmsprop, adam or ftrl";

// Below kSmallest float32 has lost precision, and the updates flush to zero. The reciprocal of
// kLargest, and twice kLargest, are still normal floats.
constexpr double kSmallest = std::numeric_limits<float>::min();
constexpr double kLargest = 1 / kSmallest;

// The checks of one config, with what its messages need.
class Checks {
 public:
  Checks(const OptimizerConfig& config, const ShowParameter& show) : config_(config), show_(show) {}

  Status Positive(std::string_view field, double OptimizerConfig::*value) const {
    if (config_.*value >= kSmallest && config_.*value <= kLargest) return {};
    return Wrong(field, value,
                 fmt::format("above 0 and fit float32 (at least {:.3g}, at most {:.3g})", kSmallest,
                             kLargest));
  }
  Status NotNegative(std::string_view field, double OptimizerConfig::*value) const {
    if (config_.*value >= 0 && config_.*value <= kLargest) return {};
    return Wrong(field, value, fmt::format("0 or more and at most {:.3g}", kLargest));
  }
  // A share of the past that is kept: in [0, 1).
  Status Share(std::string_view field, double OptimizerConfig::*value) const {
    if (config_.*value >= 0 && static_cast<float>(config_.*value) < 1.0F) return {};
    return Wrong(field, value, "at least 0 and below 1 in float32 (at most 0.99999994)");
  }
  Status NotPositive(std::string_view field, double OptimizerConfig::*value) const {
    if (config_.*value <= 0 && config_.*value >= -kLargest) return {};
    return Wrong(field, value, "0 or less and finite");
  }

 private:
  Status Wrong(std::string_view field, double OptimizerConfig::*value,
               const std::string& limits) const {
    const ShownParameter shown =
        show_ ? show_(field, config_.*value)
              : ShownParameter{std::string(field), fmt::format("{}", config_.*value)};
    return InvalidArgument(fmt::format("{} must be {}, got {}: use, for example, {}", shown.name,
                                       limits, shown.value, OptimizerConfig{}.*value));
  }

  const OptimizerConfig& config_;
  const ShowParameter& show_;
};

Status CheckFlag(std::string_view name, std::uint8_t value, bool allowed, std::string_view owner) {
  if (value > 1) return InvalidArgument(fmt::format("{} must be 0 or 1, got {}", name, value));
  if (value == 0 || allowed) return {};
  return InvalidArgument(
      fmt::format("{} is a setting of {} only: unset it or use that optimizer", name, owner));
}

}  // namespace

Status Validate(const OptimizerConfig& config, const ShowParameter& show) {
  const Checks check(config, show);
  const OptimizerKind kind = config.kind;
  if (kind > OptimizerKind::kFtrl) {
    return InvalidArgument(fmt::format(
        "optimizer kind {} is not known: use 0 ({}) to {} ({})", static_cast<std::uint32_t>(kind),
        OptimizerName(OptimizerKind::kSgd), static_cast<std::uint32_t>(OptimizerKind::kFtrl),
        OptimizerName(OptimizerKind::kFtrl)));
  }
  PASSEL_RETURN_IF_ERROR(check.Positive("learning_rate", &OptimizerConfig::learning_rate));
  PASSEL_RETURN_IF_ERROR(
      CheckFlag("use_nesterov", config.use_nesterov, kind == OptimizerKind::kMomentum, "momentum"));
  PASSEL_RETURN_IF_ERROR(
      CheckFlag("centered", config.centered, kind == OptimizerKind::kRmsProp, "rmsprop"));
  if (kind != OptimizerKind::kFtrl &&
      (config.l1 != 0 || config.l2 != 0 || config.l2_shrinkage != 0)) {
    return InvalidArgument(
        fmt::format("l1, l2 and l2_shrinkage are settings of ftrl only, got {}, {} and {} for {}: "
                    "set them to 0 or use ftrl",
                    config.l1, config.l2, config.l2_shrinkage, OptimizerName(kind)));
  }
  switch (kind) {
    case OptimizerKind::kSgd:
      return {};
    case OptimizerKind::kMomentum:
      return check.Share("momentum", &OptimizerConfig::momentum);
    case OptimizerKind::kAdagrad:
      return check.Positive("initial_accumulator", &OptimizerConfig::initial_accumulator);
    case OptimizerKind::kRmsProp:
      PASSEL_RETURN_IF_ERROR(check.Share("rmsprop_momentum", &OptimizerConfig::rmsprop_momentum));
      PASSEL_RETURN_IF_ERROR(check.Share("rmsprop_decay", &OptimizerConfig::rmsprop_decay));
      return check.Positive("rmsprop_epsilon", &OptimizerConfig::rmsprop_epsilon);
    case OptimizerKind::kAdam:
      PASSEL_RETURN_IF_ERROR(check.Share("adam_beta1", &OptimizerConfig::adam_beta1));
      PASSEL_RETURN_IF_ERROR(check.Share("adam_beta2", &OptimizerConfig::adam_beta2));
      return check.Positive("adam_epsilon", &OptimizerConfig::adam_epsilon);
    case OptimizerKind::kFtrl:
      PASSEL_RETURN_IF_ERROR(
          check.Positive("initial_accumulator", &OptimizerConfig::initial_accumulator));
      PASSEL_RETURN_IF_ERROR(
          check.NotPositive("learning_rate_power", &OptimizerConfig::learning_rate_power));
      PASSEL_RETURN_IF_ERROR(check.NotNegative("l1", &OptimizerConfig::l1));
      PASSEL_RETURN_IF_ERROR(check.NotNegative("l2", &OptimizerConfig::l2));
      return check.NotNegative("l2_shrinkage", &OptimizerConfig::l2_shrinkage);
  }
  return {};
}

std::string_view OptimizerName(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kSgd:
      return "sgd";
    case OptimizerKind::kMomentum:
      return "momentum";
    case OptimizerKind::kAdagrad:
      return "adagrad";
    case OptimizerKind::kRmsProp:
      return "rmsprop";
    case OptimizerKind::kAdam:
      return "adam";
    case OptimizerKind::kFtrl:
      return "ftrl";
  }
  return "unknown";
}

Result<OptimizerKind> ParseOptimizerKind(std::string_view name) {
  for (const OptimizerKind kind : kAllKinds) {
    if (OptimizerName(kind) == name) return kind;
  }
  return InvalidArgument(fmt::format("optimizer \"{:.64}\" is not known: use {}", name, kNames));
}

Result<OptimizerConfig> ParseOptimizer(std::string_view name) {
  OptimizerConfig config;
  if (name == "nesterov") {
    config.kind = OptimizerKind::kMomentum;
    config.use_nesterov = 1;
    return config;
  }
  PASSEL_ASSIGN_OR_RETURN(config.kind, ParseOptimizerKind(name));
  return config;
}

int NumSlots(const OptimizerConfig& config) {
  switch (config.kind) {
    case OptimizerKind::kSgd:
      return 0;
    case OptimizerKind::kMomentum:
    case OptimizerKind::kAdagrad:
      return 1;
    case OptimizerKind::kRmsProp:
      return config.centered != 0 ? 3 : 2;
    case OptimizerKind::kAdam:
    case OptimizerKind::kFtrl:
      return 2;
  }
  PASSEL_CHECK(false, "the config was not validated");
}

std::string_view SlotName(const OptimizerConfig& config, int slot) {
  PASSEL_CHECK(slot >= 0 && slot < NumSlots(config), "no such slot");
  static constexpr std::string_view kMomentumNames[] = {"Momentum"};
  static constexpr std::string_view kAdagradNames[] = {"Adagrad"};
  static constexpr std::string_view kRmsPropNames[] = {"RMSProp", "RMSProp_1", "RMSProp_2"};
  static constexpr std::string_view kAdamNames[] = {"Adam", "Adam_1"};
  static constexpr std::string_view kFtrlNames[] = {"Ftrl", "Ftrl_1"};
  switch (config.kind) {
    case OptimizerKind::kSgd:
      break;
    case OptimizerKind::kMomentum:
      return kMomentumNames[slot];
    case OptimizerKind::kAdagrad:
      return kAdagradNames[slot];
    case OptimizerKind::kRmsProp:
      return kRmsPropNames[slot];
    case OptimizerKind::kAdam:
      return kAdamNames[slot];
    case OptimizerKind::kFtrl:
      return kFtrlNames[slot];
  }
  PASSEL_CHECK(false, "sgd has no slots");
}

float SlotInitialValue(const OptimizerConfig& config, int slot) {
  PASSEL_CHECK(slot >= 0 && slot < NumSlots(config), "no such slot");
  if (slot != 0) return 0.0F;
  switch (config.kind) {
    case OptimizerKind::kAdagrad:
    case OptimizerKind::kFtrl:
      return static_cast<float>(config.initial_accumulator);
    case OptimizerKind::kRmsProp:
      return 1.0F;
    case OptimizerKind::kSgd:
    case OptimizerKind::kMomentum:
    case OptimizerKind::kAdam:
      break;
  }
  return 0.0F;
}

bool NeedsWholeSlots(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kRmsProp:
    case OptimizerKind::kAdam:
    case OptimizerKind::kFtrl:
      return true;
    case OptimizerKind::kSgd:
    case OptimizerKind::kMomentum:
    case OptimizerKind::kAdagrad:
      break;
  }
  return false;
}

}  // namespace passel

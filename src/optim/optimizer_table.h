// optimizer_table.h - every optimizer and every hyper-parameter, a row each.
//
// A new optimizer is a number in OptimizerKind (optim/optimizer.h), a rule in
// optim/update_formulas.h, and a row in optimizer_table.cc; a hyper-parameter that no other has is
// a field of OptimizerConfig and a row below. Names, flags, checks, print_config, the plan's text,
// slots and the kernels of all processors follow from these.
//
// Thread safety: all functions are pure.

#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "optim/optimizer.h"
#include "optim/update_formulas.h"

namespace passel {

/// A field of OptimizerConfig: a number or a switch; or none.
class ConfigField {
 public:
  constexpr ConfigField() = default;
  constexpr ConfigField(double OptimizerConfig::*number) : number_(number) {}
  constexpr ConfigField(std::uint8_t OptimizerConfig::*on) : switch_(on) {}

  constexpr bool none() const { return number_ == nullptr && switch_ == nullptr; }
  constexpr bool is_switch() const { return switch_ != nullptr; }
  /// Its value in `config`; of a switch 0 or 1, were it written by us. REQUIRES: !none().
  constexpr double Get(const OptimizerConfig& config) const {
    return is_switch() ? config.*switch_ : config.*number_;
  }
  /// A switch is set by any value but 0. REQUIRES: !none().
  constexpr void Set(OptimizerConfig* config, double value) const {
    if (is_switch()) {
      config->*switch_ = value != 0 ? 1 : 0;
    } else {
      config->*number_ = value;
    }
  }
  friend constexpr bool operator==(const ConfigField&, const ConfigField&) = default;

 private:
  double OptimizerConfig::*number_ = nullptr;
  std::uint8_t OptimizerConfig::*switch_ = nullptr;
};

/// What a hyper-parameter may be. The updates run in float32, so a value counts as what it is after
/// rounding to float32. All are plain numbers, without a unit.
enum class HyperRange {
  kPositive,     ///< above 0, and a normal float as its reciprocal is
  kNotNegative,  ///< 0 or more
  kNotPositive,  ///< 0 or less
  kShare,        ///< of the past that is kept: at least 0 and below 1
  kSwitch,       ///< 0 or 1
};

/// A field of OptimizerConfig as users know it. Its default is the field's initial value.
struct Hyperparameter {
  ConfigField field;
  std::string_view name;  ///< of the field
  /// Without dashes. Several rows may have the same, if no optimizer uses two of them.
  std::string_view flag;
  HyperRange range;
};

inline constexpr Hyperparameter kHyperparameters[] = {
    {&OptimizerConfig::learning_rate, "learning_rate", "learning_rate", HyperRange::kPositive},
    {&OptimizerConfig::momentum, "momentum", "momentum", HyperRange::kShare},
    {&OptimizerConfig::rmsprop_momentum, "rmsprop_momentum", "momentum", HyperRange::kShare},
    {&OptimizerConfig::use_nesterov, "use_nesterov", "use_nesterov", HyperRange::kSwitch},
    {&OptimizerConfig::rmsprop_decay, "rmsprop_decay", "decay", HyperRange::kShare},
    {&OptimizerConfig::centered, "centered", "centered", HyperRange::kSwitch},
    {&OptimizerConfig::rmsprop_epsilon, "rmsprop_epsilon", "epsilon", HyperRange::kPositive},
    {&OptimizerConfig::adam_beta1, "adam_beta1", "beta1", HyperRange::kShare},
    {&OptimizerConfig::adam_beta2, "adam_beta2", "beta2", HyperRange::kShare},
    {&OptimizerConfig::adam_epsilon, "adam_epsilon", "epsilon", HyperRange::kPositive},
    {&OptimizerConfig::initial_accumulator, "initial_accumulator", "initial_accumulator_value",
     HyperRange::kPositive},
    {&OptimizerConfig::l1, "l1", "l1", HyperRange::kNotNegative},
    {&OptimizerConfig::l2, "l2", "l2", HyperRange::kNotNegative},
    {&OptimizerConfig::l2_shrinkage, "l2_shrinkage", "l2_shrinkage", HyperRange::kNotNegative},
    {&OptimizerConfig::learning_rate_power, "learning_rate_power", "learning_rate_power",
     HyperRange::kNotPositive},
    {&OptimizerConfig::weight_decay, "weight_decay", "weight_decay", HyperRange::kNotNegative},
};

/// A slot variable.
struct SlotRow {
  std::string_view name;
  float initial = 0;            ///< what every element starts at,
  ConfigField initial_is = {};  ///< or the field that says it
  ConfigField only_with = {};  ///< a switch without which there is no such slot; the last ones only
};

struct OptimizerRow {
  OptimizerKind kind;
  std::string_view name;
  std::string_view source;        ///< of the formula
  double learning_rate;           ///< what a job takes by default
  ConfigField uses[7] = {};       ///< beside learning_rate
  SlotRow slots[kMaxSlots] = {};  ///< those with a name
  bool needs_whole_slots = false;
  bool divides_by_rate = false;  ///< a learning rate of 0 is not possible
  bool counts_steps = false;     ///< the update depends on how many there were before it
  /// Fills in what the rule takes; `rate` is the learning rate already.
  void (*prepare)(const OptimizerConfig& config, std::int64_t t, StepScalars* scalars) = nullptr;
  /// A name for the optimizer with one of its switches on.
  std::string_view variant = {};
  ConfigField variant_switch = {};

  bool Uses(ConfigField field) const;
};

/// All of them: the row of a kind is at the kind's number.
std::span<const OptimizerRow> Optimizers();
/// REQUIRES: `kind` is one of them.
const OptimizerRow& RowOf(OptimizerKind kind);

}  // namespace passel

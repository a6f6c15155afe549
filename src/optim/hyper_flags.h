// hyper_flags.h - the flags of the optimizers' hyper-parameters, and what was given for them.
//
// What a flag stands for depends on the optimizer: --momentum is momentum's or rmsprop's.
//
// Thread safety: all functions are pure.

#pragma once

#include <array>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include "optim/optimizer.h"
#include "optim/optimizer_table.h"

namespace passel {

/// One of the flags that kHyperparameters names.
struct HyperFlag {
  std::string_view name;  ///< without dashes
  bool is_switch = false;
};
namespace hyper_flags_internal {
constexpr bool IsFirstOfItsFlag(std::size_t row) {
  for (std::size_t i = 0; i < row; ++i) {
    if (kHyperparameters[i].flag == kHyperparameters[row].flag) return false;
  }
  return true;
}
constexpr std::size_t CountFlags() {
  std::size_t count = 0;
  for (std::size_t i = 0; i < std::size(kHyperparameters); ++i) count += IsFirstOfItsFlag(i);
  return count;
}
}  // namespace hyper_flags_internal

inline constexpr std::size_t kNumHyperFlags = hyper_flags_internal::CountFlags();
/// Each once, in the order of the rows.
inline constexpr std::array<HyperFlag, kNumHyperFlags> kHyperFlags = [] {
  std::array<HyperFlag, kNumHyperFlags> flags;
  std::size_t next = 0;
  for (std::size_t i = 0; i < std::size(kHyperparameters); ++i) {
    if (!hyper_flags_internal::IsFirstOfItsFlag(i)) continue;
    flags[next++] = {kHyperparameters[i].flag, kHyperparameters[i].field.is_switch()};
  }
  return flags;
}();

/// What `flag` stands for with that optimizer; null where it has no meaning.
const Hyperparameter* HyperparameterOf(OptimizerKind kind, std::string_view flag);

/// The names of the optimizers to which `flag` means something, sorted: "adagrad, ftrl".
std::string OptimizersWith(std::string_view flag);

/// The default learning rates as a sentence has them: "adam and rmsprop 0.001, sgd 0.1, others
/// 0.05".
std::string DefaultLearningRates();

/// What was given for one of kHyperFlags: a number or a switch that is on.
struct HyperSetting {
  std::optional<double> number;
  bool on = false;

  bool given() const { return number.has_value() || on; }
};
/// One for each of kHyperFlags, in its order.
using HyperSettings = std::array<HyperSetting, kNumHyperFlags>;

}  // namespace passel

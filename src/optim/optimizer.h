// optimizer.h - which optimizer updates the values, and with which hyper-parameters.
//
// Names, defaults, slot variables and their order are those of TensorFlow 1.x (tf.train), so that
// a run, a checkpoint or a habit carries over; AdamW, which TensorFlow 1.x has not, is PyTorch's.
// The arithmetic is in optim/update_formulas.h, the rows of all optimizers and hyper-parameters are
// in optim/optimizer_table.h.
//
// Thread safety: all functions are pure.

#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/status.h"

namespace passel {

/// Stored in the arena and in checkpoints: never change a number, only add.
enum class OptimizerKind : std::uint32_t {
  kSgd = 0,
  kMomentum = 1,
  kAdagrad = 2,
  kRmsProp = 3,
  kAdam = 4,
  kFtrl = 5,
  kAdamW = 6,
};

/// More slot variables than any optimizer keeps: centered RMSProp has three.
inline constexpr int kMaxSlots = 3;

/// Groups of variables that have rates of their own.
inline constexpr int kMaxGroups = 16;

/// One optimizer with every hyper-parameter of all of them; each kind reads its own and Validate()
/// refuses a setting of another's that would be ignored. Which kinds read a field, and what it may
/// be, is in optim/optimizer_table.h. Plain bytes without padding: it may live in shared memory, be
/// compared with == and be hashed byte by byte.
struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::kSgd;
  std::uint8_t use_nesterov = 0;  ///< kMomentum: 1 looks one momentum step ahead
  std::uint8_t centered = 0;      ///< kRmsProp: 1 divides by the variance, not the mean square
  std::uint8_t reserved[2] = {0, 0};

  double learning_rate = 0.001;      ///< all; 0.001 is TensorFlow's default for Adam, its only one
  double momentum = 0.9;             ///< kMomentum: share of the old direction that is kept
  double rmsprop_momentum = 0.0;     ///< kRmsProp: the same
  double rmsprop_decay = 0.9;        ///< kRmsProp: rho, share of the old mean square that is kept
  double rmsprop_epsilon = 1e-10;    ///< kRmsProp: added under the root
  double adam_beta1 = 0.9;           ///< kAdam, kAdamW: share of the old first moment that is kept
  double adam_beta2 = 0.999;         ///< kAdam, kAdamW: share of the old second moment that is kept
  double adam_epsilon = 1e-8;        ///< kAdam: added to the root; kAdamW: to the corrected one
  double initial_accumulator = 0.1;  ///< kAdagrad, kFtrl: start of the sum of squares
  double learning_rate_power = -0.5;  ///< kFtrl: the rate falls with this power of the sum
  double l1 = 0.0;                    ///< kFtrl: L1 strength
  double l2 = 0.0;                    ///< kFtrl: L2 strength
  double l2_shrinkage = 0.0;          ///< kFtrl: L2 penalty on the gradient's side
  double weight_decay = 0.01;  ///< kAdamW: of the value, times the learning rate, is taken off

  friend bool operator==(const OptimizerConfig&, const OptimizerConfig&) = default;
};
static_assert(std::is_standard_layout_v<OptimizerConfig>);
static_assert(std::is_trivially_copyable_v<OptimizerConfig>);

/// The settings of OptimizerConfig that may change while a job trains, for each group.
struct GroupRates {
  double learning_rate = 0;
  double weight_decay = 0;  ///< kAdamW; others have none: 0
  friend bool operator==(const GroupRates&, const GroupRates&) = default;
};

/// `config` with these in their places. REQUIRES: Validate(config, groups, rates) is OK.
OptimizerConfig WithRates(OptimizerConfig config, const GroupRates& rates);

/// Those that `config` has.
GroupRates RatesOf(const OptimizerConfig& config);

/// How a message shows a hyper-parameter: by the name that the user knows, as the user wrote it.
struct ShownParameter {
  std::string name;
  std::string value;
};
/// Gets a field of OptimizerConfig, by its name there, and its value.
using ShowParameter = std::function<ShownParameter(std::string_view field, double value)>;

/// OK, or kInvalidArgument with the hyper-parameter, its value, what it may be and a value that
/// would do. The updates run in float32, so a value counts as what it is after rounding to float32.
/// Without `show` the fields are shown as they are.
Status Validate(const OptimizerConfig& config, const ShowParameter& show = nullptr);

/// OK if these can be the rates of `groups` groups, in order; a learning rate of 0 can where
/// nothing is divided by it. Errors: kInvalidArgument, naming group, value and limit.
Status Validate(const OptimizerConfig& config, int groups, std::span<const GroupRates> rates);

/// "sgd", "momentum", ...: the name in the optimizer's row.
std::string_view OptimizerName(OptimizerKind kind);

/// "sgd, momentum or adam" of the names and "or".
std::string Listed(const std::vector<std::string_view>& names, std::string_view last);

/// The names that ParseOptimizer() takes, as a sentence has them: "sgd, momentum, ... or ftrl".
std::string OptimizerNames();

/// The reverse of OptimizerName(). Errors: kInvalidArgument, listing the names.
Result<OptimizerKind> ParseOptimizerKind(std::string_view name);

/// A config with the defaults of `name`: those of ParseOptimizerKind() and the names of variants,
/// as "nesterov", which is momentum with use_nesterov. Errors: kInvalidArgument, listing the names.
Result<OptimizerConfig> ParseOptimizer(std::string_view name);

/// Slot variables per variable, 0 to kMaxSlots.
int NumSlots(const OptimizerConfig& config);

/// What TensorFlow appends to the variable's name and a '/', as in "hid_w/Adam_1": those of the
/// optimizer's row, in the order of the slots that the update formulas take.
/// REQUIRES: 0 <= slot < NumSlots(config).
std::string_view SlotName(const OptimizerConfig& config, int slot);

/// What every element of the slot variable starts at. REQUIRES: as SlotName().
float SlotInitialValue(const OptimizerConfig& config, int slot);

/// True if every update of an element must see its slots as one former update left them: the rule
/// divides by what it keeps. With slots of two updates that ran at the same time side by side its
/// step has no bound, and a mean square may fall below 0: NaN. The other rules add up, or divide by
/// a sum that includes this gradient's own square; losing an addition is the worst that can happen
/// to them.
bool NeedsWholeSlots(OptimizerKind kind);

}  // namespace passel

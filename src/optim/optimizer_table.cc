#include "optim/optimizer_table.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>

#include "base/check.h"

namespace passel {
namespace {

using Config = OptimizerConfig;

float Rounded(double x) { return static_cast<float>(x); }

// 1 - x^t without the cancellation that costs digits where x^t is close to 1.
double OneMinusPower(double x, std::int64_t t) {
  if (x == 0) return 1;
  return -std::expm1(static_cast<double>(t) * std::log(x));
}

void PrepareSgd(const Config&, std::int64_t, StepScalars* s) {
  s->rule = UpdateRules::Number<SgdRule>();
}

void PrepareMomentum(const Config& config, std::int64_t, StepScalars* s) {
  s->momentum = Rounded(config.momentum);
  if (config.use_nesterov == 0) {
    s->rule = UpdateRules::Number<MomentumRule>();
  } else {
    s->rule = UpdateRules::Number<NesterovRule>();
    s->rate_momentum = Rounded(config.learning_rate * config.momentum);
  }
}

void PrepareAdagrad(const Config&, std::int64_t, StepScalars* s) {
  s->rule = UpdateRules::Number<AdagradRule>();
}

void PrepareRmsProp(const Config& config, std::int64_t, StepScalars* s) {
  s->rule = config.centered != 0 ? UpdateRules::Number<CenteredRmsPropRule>()
                                 : UpdateRules::Number<RmsPropRule>();
  s->momentum = Rounded(config.rmsprop_momentum);
  s->one_minus_decay = Rounded(1 - config.rmsprop_decay);
  s->epsilon = Rounded(config.rmsprop_epsilon);
}

void PrepareAdam(const Config& config, std::int64_t t, StepScalars* s) {
  s->rule = UpdateRules::Number<AdamRule>();
  s->rate = Rounded(config.learning_rate * std::sqrt(OneMinusPower(config.adam_beta2, t)) /
                    OneMinusPower(config.adam_beta1, t));
  s->one_minus_beta1 = Rounded(1 - config.adam_beta1);
  s->one_minus_decay = Rounded(1 - config.adam_beta2);
  s->epsilon = Rounded(config.adam_epsilon);
}

void PrepareFtrl(const Config& config, std::int64_t, StepScalars* s) {
  s->rule = config.learning_rate_power == -0.5 ? UpdateRules::Number<FtrlRule>()
                                               : UpdateRules::Number<FtrlPowerRule>();
  s->inverse_rate = Rounded(1 / config.learning_rate);
  s->power = Rounded(-config.learning_rate_power);
  s->l1 = Rounded(config.l1);
  s->twice_l2 = Rounded(2 * config.l2);
  s->twice_shrinkage = Rounded(2 * config.l2_shrinkage);
}

// Adam as PyTorch writes it: epsilon joins the root of the second moment after the correction of
// its bias. Divided by that correction it is the rule of PrepareAdam() with an epsilon of its own
// for each step.
void PrepareAdamW(const Config& config, std::int64_t t, StepScalars* s) {
  PrepareAdam(config, t, s);
  s->rule = UpdateRules::Number<AdamWRule>();
  const double epsilon = config.adam_epsilon * std::sqrt(OneMinusPower(config.adam_beta2, t));
  // Neither leaves the normal floats, whatever the factors are: of padding the rule makes 0 / 0 or
  // 0 * infinity otherwise.
  s->epsilon = Rounded(std::max<double>(epsilon, std::numeric_limits<float>::min()));
  s->rate_decay = Rounded(std::min<double>(config.learning_rate * config.weight_decay,
                                           std::numeric_limits<float>::max()));
}

// In the order of the kinds.
constexpr OptimizerRow kOptimizers[] = {
    {
        .kind = OptimizerKind::kSgd,
        .name = "sgd",
        .source = "tf.train.GradientDescentOptimizer",
        .learning_rate = 0.1,
        .prepare = PrepareSgd,
    },
    {
        .kind = OptimizerKind::kMomentum,
        .name = "momentum",
        .source = "tf.train.MomentumOptimizer",
        .learning_rate = 0.05,
        .uses = {&Config::momentum, &Config::use_nesterov},
        .slots = {{.name = "Momentum"}},
        .prepare = PrepareMomentum,
        .variant = "nesterov",
        .variant_switch = &Config::use_nesterov,
    },
    {
        .kind = OptimizerKind::kAdagrad,
        .name = "adagrad",
        .source = "tf.train.AdagradOptimizer",
        .learning_rate = 0.05,
        .uses = {&Config::initial_accumulator},
        // The sum of squares.
        .slots = {{.name = "Adagrad", .initial_is = &Config::initial_accumulator}},
        .prepare = PrepareAdagrad,
    },
    {
        .kind = OptimizerKind::kRmsProp,
        .name = "rmsprop",
        .source = "tf.train.RMSPropOptimizer",
        .learning_rate = 0.001,
        .uses = {&Config::rmsprop_momentum, &Config::rmsprop_decay, &Config::rmsprop_epsilon,
                 &Config::centered},
        // Mean square, momentum; centered: mean square, mean gradient, momentum.
        .slots = {{.name = "RMSProp", .initial = 1},
                  {.name = "RMSProp_1"},
                  {.name = "RMSProp_2", .only_with = &Config::centered}},
        .needs_whole_slots = true,
        .prepare = PrepareRmsProp,
    },
    {
        .kind = OptimizerKind::kAdam,
        .name = "adam",
        .source = "tf.train.AdamOptimizer",
        .learning_rate = 0.001,
        .uses = {&Config::adam_beta1, &Config::adam_beta2, &Config::adam_epsilon},
        // First moment, second moment.
        .slots = {{.name = "Adam"}, {.name = "Adam_1"}},
        .needs_whole_slots = true,
        .counts_steps = true,
        .prepare = PrepareAdam,
    },
    {
        .kind = OptimizerKind::kFtrl,
        .name = "ftrl",
        .source = "tf.train.FtrlOptimizer",
        .learning_rate = 0.05,
        .uses = {&Config::initial_accumulator, &Config::learning_rate_power, &Config::l1,
                 &Config::l2, &Config::l2_shrinkage},
        // Sum of squares, linear.
        .slots = {{.name = "Ftrl", .initial_is = &Config::initial_accumulator}, {.name = "Ftrl_1"}},
        .needs_whole_slots = true,
        .divides_by_rate = true,
        .prepare = PrepareFtrl,
    },
    {
        .kind = OptimizerKind::kAdamW,
        .name = "adamw",
        .source = "torch.optim.AdamW",
        .learning_rate = 0.001,
        .uses = {&Config::adam_beta1, &Config::adam_beta2, &Config::adam_epsilon,
                 &Config::weight_decay},
        // First moment, second moment.
        .slots = {{.name = "AdamW"}, {.name = "AdamW_1"}},
        .needs_whole_slots = true,
        .counts_steps = true,
        .prepare = PrepareAdamW,
    },
};
static_assert(
    [] {
      for (std::size_t i = 0; i < std::size(kOptimizers); ++i) {
        if (static_cast<std::size_t>(kOptimizers[i].kind) != i) return false;
      }
      return true;
    }(),
    "RowOf() looks at the kind's number");

constexpr std::size_t Numbers() {
  return static_cast<std::size_t>(std::ranges::count_if(
      kHyperparameters, [](const Hyperparameter& p) { return !p.field.is_switch(); }));
}
static_assert(sizeof(OptimizerConfig) == 8 + Numbers() * sizeof(double),
              "every number of a config has a row, and there is no padding: it is hashed");

}  // namespace

bool OptimizerRow::Uses(ConfigField field) const {
  return field == &Config::learning_rate || std::ranges::find(uses, field) != std::end(uses);
}

std::span<const OptimizerRow> Optimizers() { return kOptimizers; }

const OptimizerRow& RowOf(OptimizerKind kind) {
  const auto number = static_cast<std::size_t>(kind);
  PASSEL_CHECK(number < std::size(kOptimizers), "the config was not validated");
  return kOptimizers[number];
}

}  // namespace passel

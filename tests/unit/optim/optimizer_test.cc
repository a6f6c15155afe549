#include "optim/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <new>
#include <string>
#include <vector>

#include "optim/optimizer_table.h"

namespace passel {
namespace {

using ::testing::HasSubstr;

OptimizerConfig Of(OptimizerKind kind) {
  OptimizerConfig config;
  config.kind = kind;
  return config;
}

std::vector<OptimizerKind> AllKinds() {
  std::vector<OptimizerKind> kinds;
  for (const OptimizerRow& row : Optimizers()) kinds.push_back(row.kind);
  return kinds;
}

TEST(OptimizerConfig, DefaultsAreThoseOfTensorFlow) {
  const OptimizerConfig config;
  EXPECT_EQ(config.rmsprop_decay, 0.9);
  EXPECT_EQ(config.rmsprop_momentum, 0.0);
  EXPECT_EQ(config.rmsprop_epsilon, 1e-10);
  EXPECT_EQ(config.adam_beta1, 0.9);
  EXPECT_EQ(config.adam_beta2, 0.999);
  EXPECT_EQ(config.adam_epsilon, 1e-8);
  EXPECT_EQ(config.learning_rate, 0.001);
  EXPECT_EQ(config.initial_accumulator, 0.1);
  EXPECT_EQ(config.learning_rate_power, -0.5);
  EXPECT_EQ(config.l1, 0.0);
  EXPECT_EQ(config.l2, 0.0);
  EXPECT_EQ(config.l2_shrinkage, 0.0);
}

TEST(OptimizerConfig, DefaultDecayIsThatOfPyTorch) {
  EXPECT_EQ(OptimizerConfig().weight_decay, 0.01);
}

TEST(OptimizerConfig, HasTheSameBytesWhateverTheMemoryHeldBefore) {
  alignas(OptimizerConfig) unsigned char a[sizeof(OptimizerConfig)];
  alignas(OptimizerConfig) unsigned char b[sizeof(OptimizerConfig)];
  std::memset(a, 0x5a, sizeof(a));
  std::memset(b, 0xa5, sizeof(b));
  new (a) OptimizerConfig();
  new (b) OptimizerConfig();
  EXPECT_EQ(std::memcmp(a, b, sizeof(a)), 0);
}

TEST(OptimizerConfig, EveryKindIsValidWithItsDefaults) {
  for (const OptimizerKind kind : AllKinds()) {
    EXPECT_TRUE(Validate(Of(kind)).ok()) << OptimizerName(kind);
  }
}

TEST(OptimizerConfig, NamesTheHyperParameterThatIsWrongAndItsValue) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  struct Case {
    OptimizerKind kind;
    double OptimizerConfig::*field;
    const char* name;
    std::vector<double> bad;
    std::vector<double> good;
  };
  const std::vector<double> not_positive = {0, -0.0, -1, nan, inf, -inf, 1e-50, 1e39};
  const std::vector<double> positive = {1e-30, 0.5, 1000};
  const std::vector<double> not_share = {-0.1, 1, 1.5, nan, inf, -inf, 1 - 1e-12};
  const std::vector<double> share = {0, 0.5, 0.9999};
  const std::vector<double> negative = {-1e-9, -1, nan, inf, -inf};
  const std::vector<double> not_negative = {0, 0.5, 100};
  const Case cases[] = {
      {OptimizerKind::kSgd, &OptimizerConfig::learning_rate, "learning_rate", not_positive,
       positive},
      {OptimizerKind::kFtrl, &OptimizerConfig::learning_rate, "learning_rate", not_positive,
       positive},
      {OptimizerKind::kMomentum, &OptimizerConfig::momentum, "momentum", not_share, share},
      {OptimizerKind::kAdagrad, &OptimizerConfig::initial_accumulator, "initial_accumulator",
       not_positive, positive},
      {OptimizerKind::kRmsProp, &OptimizerConfig::rmsprop_momentum, "rmsprop_momentum", not_share,
       share},
      {OptimizerKind::kRmsProp, &OptimizerConfig::rmsprop_decay, "rmsprop_decay", not_share, share},
      {OptimizerKind::kRmsProp, &OptimizerConfig::rmsprop_epsilon, "rmsprop_epsilon", not_positive,
       positive},
      {OptimizerKind::kAdam, &OptimizerConfig::adam_beta1, "adam_beta1", not_share, share},
      {OptimizerKind::kAdam, &OptimizerConfig::adam_beta2, "adam_beta2", not_share, share},
      {OptimizerKind::kAdam, &OptimizerConfig::adam_epsilon, "adam_epsilon", not_positive,
       positive},
      {OptimizerKind::kFtrl, &OptimizerConfig::initial_accumulator, "initial_accumulator",
       not_positive, positive},
      {OptimizerKind::kFtrl,
       &OptimizerConfig::learning_rate_power,
       "learning_rate_power",
       {0.1, 1, nan, inf, -inf},
       {0, -0.5, -0.7, -1}},
      {OptimizerKind::kFtrl, &OptimizerConfig::l1, "l1", negative, not_negative},
      {OptimizerKind::kFtrl, &OptimizerConfig::l2, "l2", negative, not_negative},
      {OptimizerKind::kFtrl, &OptimizerConfig::l2_shrinkage, "l2_shrinkage", negative,
       not_negative},
  };
  for (const Case& c : cases) {
    OptimizerConfig config = Of(c.kind);
    for (const double value : c.bad) {
      config.*c.field = value;
      const Status status = Validate(config);
      EXPECT_EQ(status.code(), Code::kInvalidArgument) << c.name << " = " << value;
      EXPECT_THAT(status.message(), ::testing::StartsWith(std::string(c.name) + " must"));
      EXPECT_THAT(status.message(), HasSubstr(", got "));
      EXPECT_THAT(status.message(), HasSubstr(": use, for example, "));
    }
    for (const double value : c.good) {
      config.*c.field = value;
      EXPECT_TRUE(Validate(config).ok()) << c.name << " = " << value;
    }
  }
}

TEST(OptimizerConfig, ShowsAFieldAsTheCallerKnowsIt) {
  OptimizerConfig config = Of(OptimizerKind::kAdam);
  config.adam_beta1 = 1e20;
  const Status status = Validate(config, [](std::string_view field, double value) {
    EXPECT_EQ(field, "adam_beta1");
    EXPECT_EQ(value, 1e20);
    return ShownParameter{"--beta1", "100000000000000000000"};
  });
  EXPECT_EQ(status.message(),
            "--beta1 must be at least 0 and below 1 in float32 (at most 0.99999994), got "
            "100000000000000000000: use, for example, 0.9");
}

TEST(OptimizerConfig, RefusesASettingThatTheOptimizerWouldIgnore) {
  for (const OptimizerKind kind : AllKinds()) {
    OptimizerConfig nesterov = Of(kind);
    nesterov.use_nesterov = 1;
    EXPECT_EQ(Validate(nesterov).ok(), kind == OptimizerKind::kMomentum) << OptimizerName(kind);
    OptimizerConfig centered = Of(kind);
    centered.centered = 1;
    EXPECT_EQ(Validate(centered).ok(), kind == OptimizerKind::kRmsProp) << OptimizerName(kind);
    for (const Hyperparameter& parameter : kHyperparameters) {
      if (parameter.field.is_switch()) continue;
      OptimizerConfig other = Of(kind);
      parameter.field.Set(&other, parameter.range == HyperRange::kNotPositive ? -0.02 : 0.02);
      EXPECT_EQ(Validate(other).ok(), RowOf(kind).Uses(parameter.field))
          << OptimizerName(kind) << ", " << parameter.name;
    }
  }
}

TEST(OptimizerConfig, NamesTheOptimizersWhoseSettingItIs) {
  OptimizerConfig config = Of(OptimizerKind::kSgd);
  config.initial_accumulator = 0.25;
  EXPECT_EQ(Validate(config).message(),
            "initial_accumulator is a setting of adagrad and ftrl only, got 0.25 for sgd: leave it "
            "at 0.1");
}

TEST(OptimizerConfig, RefusesBytesThatNoProgramOfOursWrote) {
  EXPECT_THAT(Validate(Of(static_cast<OptimizerKind>(99))).message(), HasSubstr("kind 99"));
  OptimizerConfig config = Of(OptimizerKind::kMomentum);
  config.use_nesterov = 2;
  EXPECT_THAT(Validate(config).message(), HasSubstr("use_nesterov must be 0 or 1, got 2"));
}

TEST(OptimizerName, IsParsedBackToItsKind) {
  for (const OptimizerKind kind : AllKinds()) {
    const Result<OptimizerKind> parsed = ParseOptimizerKind(OptimizerName(kind));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, kind);
    const Result<OptimizerConfig> config = ParseOptimizer(OptimizerName(kind));
    ASSERT_TRUE(config.ok());
    EXPECT_EQ(*config, Of(kind));
  }
}

TEST(OptimizerName, NesterovIsMomentumThatLooksAhead) {
  const Result<OptimizerConfig> config = ParseOptimizer("nesterov");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->kind, OptimizerKind::kMomentum);
  EXPECT_EQ(config->use_nesterov, 1);
  EXPECT_TRUE(Validate(*config).ok());
}

TEST(OptimizerName, UnknownNamesAreAnsweredWithTheKnownOnes) {
  for (const char* name : {"", "Adam", "adagrad2", "sgd "}) {
    EXPECT_THAT(ParseOptimizerKind(name).status().message(),
                HasSubstr("sgd, momentum, nesterov, adagrad, rmsprop, adam, ftrl or adamw"));
    EXPECT_EQ(ParseOptimizer(name).status().code(), Code::kInvalidArgument);
  }
}

TEST(Slots, HaveTheNamesAndInitialValuesOfTensorFlow) {
  struct Slot {
    const char* name;
    float initial;
  };
  const auto check = [](const OptimizerConfig& config, const std::vector<Slot>& slots) {
    ASSERT_EQ(NumSlots(config), static_cast<int>(slots.size())) << OptimizerName(config.kind);
    ASSERT_LE(NumSlots(config), kMaxSlots);
    for (int i = 0; i < NumSlots(config); ++i) {
      EXPECT_EQ(SlotName(config, i), slots[i].name);
      EXPECT_EQ(SlotInitialValue(config, i), slots[i].initial) << slots[i].name;
    }
  };
  check(Of(OptimizerKind::kSgd), {});
  check(Of(OptimizerKind::kMomentum), {{"Momentum", 0}});
  check(Of(OptimizerKind::kAdagrad), {{"Adagrad", 0.1F}});
  check(Of(OptimizerKind::kRmsProp), {{"RMSProp", 1}, {"RMSProp_1", 0}});
  OptimizerConfig centered = Of(OptimizerKind::kRmsProp);
  centered.centered = 1;
  check(centered, {{"RMSProp", 1}, {"RMSProp_1", 0}, {"RMSProp_2", 0}});
  check(Of(OptimizerKind::kAdam), {{"Adam", 0}, {"Adam_1", 0}});
  OptimizerConfig ftrl = Of(OptimizerKind::kFtrl);
  ftrl.initial_accumulator = 0.25;
  check(ftrl, {{"Ftrl", 0.25F}, {"Ftrl_1", 0}});
  check(Of(OptimizerKind::kAdamW), {{"AdamW", 0}, {"AdamW_1", 0}});
}

TEST(SlotsDeathTest, AskingForOneThatIsNotThereIsABug) {
  EXPECT_DEATH((void)SlotName(Of(OptimizerKind::kSgd), 0), "no such slot");
  EXPECT_DEATH((void)SlotInitialValue(Of(OptimizerKind::kAdam), 2), "no such slot");
}

}  // namespace
}  // namespace passel

// The rows of optimizers and hyper-parameters fit together, and the docs say what they say.

#include "optim/optimizer_table.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "optim/hyper_flags.h"

namespace passel {
namespace {

using ::testing::HasSubstr;

TEST(OptimizerTable, NoTwoOptimizersHaveTheSameName) {
  std::set<std::string_view> names;
  for (const OptimizerRow& row : Optimizers()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    if (row.variant.empty()) continue;
    EXPECT_TRUE(names.insert(row.variant).second) << row.variant;
  }
}

TEST(OptimizerTable, AFlagStandsForOneFieldOfAnOptimizer) {
  for (const OptimizerRow& row : Optimizers()) {
    std::set<std::string_view> flags;
    for (const Hyperparameter& parameter : kHyperparameters) {
      if (!row.Uses(parameter.field)) continue;
      EXPECT_TRUE(flags.insert(parameter.flag).second) << row.name << " --" << parameter.flag;
      EXPECT_EQ(HyperparameterOf(row.kind, parameter.flag), &parameter);
    }
  }
}

TEST(OptimizerTable, EveryHyperparameterIsOfSomeOptimizer) {
  for (const Hyperparameter& parameter : kHyperparameters) {
    bool used = false;
    for (const OptimizerRow& row : Optimizers()) used = used || row.Uses(parameter.field);
    EXPECT_TRUE(used) << parameter.name;
  }
}

TEST(OptimizerTable, SlotsWithANameComeFirst) {
  for (const OptimizerRow& row : Optimizers()) {
    for (int s = 1; s < kMaxSlots; ++s) {
      EXPECT_FALSE(row.slots[s - 1].name.empty() && !row.slots[s].name.empty()) << row.name;
    }
  }
}

TEST(ConfigField, ReadsAndWritesNumbersAndSwitches) {
  OptimizerConfig config;
  const ConfigField number(&OptimizerConfig::l1), on(&OptimizerConfig::centered);
  number.Set(&config, 0.5);
  on.Set(&config, 3);
  EXPECT_EQ(config.l1, 0.5);
  EXPECT_EQ(config.centered, 1);
  EXPECT_EQ(number.Get(config), 0.5);
  EXPECT_EQ(on.Get(config), 1);
  EXPECT_TRUE(on.is_switch());
  EXPECT_TRUE(ConfigField().none());
  EXPECT_NE(number, on);
}

TEST(HyperFlags, StandForWhatTheOptimizerKnows) {
  EXPECT_EQ(HyperparameterOf(OptimizerKind::kMomentum, "momentum")->name, "momentum");
  EXPECT_EQ(HyperparameterOf(OptimizerKind::kRmsProp, "momentum")->name, "rmsprop_momentum");
  EXPECT_EQ(HyperparameterOf(OptimizerKind::kAdam, "momentum"), nullptr);
  EXPECT_EQ(OptimizersWith("momentum"), "momentum, rmsprop");
  EXPECT_EQ(OptimizersWith("l1"), "ftrl");
}

TEST(HyperFlags, AreThereOnce) {
  std::set<std::string_view> names;
  for (const HyperFlag& flag : kHyperFlags) {
    EXPECT_TRUE(names.insert(flag.name).second) << flag.name;
  }
  for (const Hyperparameter& parameter : kHyperparameters) {
    EXPECT_EQ(names.count(parameter.flag), 1u) << parameter.flag;
  }
}

TEST(HyperFlags, TellTheDefaultRates) {
  EXPECT_EQ(DefaultLearningRates(), "adam, adamw and rmsprop 0.001, sgd 0.1, others 0.05");
}

// A row of the table in docs/optimizers.md.
std::string DocumentedRow(const OptimizerRow& row) {
  std::string names = fmt::format("`{}`", row.name);
  if (!row.variant.empty()) names += fmt::format(", `{}`", row.variant);
  std::string flags;
  for (const Hyperparameter& parameter : kHyperparameters) {
    if (parameter.flag == "learning_rate" || !row.Uses(parameter.field)) continue;
    flags += fmt::format("{}`--{}`", flags.empty() ? "" : ", ", parameter.flag);
    if (!parameter.field.is_switch()) {
      flags += fmt::format(" {}", parameter.field.Get(OptimizerConfig()));
    }
  }
  std::string slots;
  for (const SlotRow& slot : row.slots) {
    if (slot.name.empty()) continue;
    slots += fmt::format("{}`{}`", slots.empty() ? "" : ", ", slot.name);
  }
  return fmt::format("| {} | {} | {} | {} | `{}` |\n", names, row.learning_rate, flags, slots,
                     row.source);
}

TEST(OptimizerDocs, HaveEveryRow) {
  std::ifstream file(PASSEL_SOURCE_DIR "/docs/optimizers.md");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  for (const OptimizerRow& row : Optimizers()) EXPECT_THAT(text, HasSubstr(DocumentedRow(row)));
}

}  // namespace
}  // namespace passel

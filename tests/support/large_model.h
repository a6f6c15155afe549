// large_model.h - models that this machine has just not the memory for.

#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "base/memory_file.h"

namespace passel::testing {

/// --hidden_units of a model of two layers whose arena, for one worker and Adam, needs `share` of
/// the memory that is free now: values, two slot variables and a gradient.
inline std::string LayersThatNeed(double share) {
  const Result<MemoryBudget> budget = ReadMemoryBudget();
  EXPECT_TRUE(budget.ok());
  const double floats = share * static_cast<double>(budget->available_bytes) / (4 * sizeof(float));
  const auto units = static_cast<std::int64_t>(std::sqrt(floats));
  return fmt::format("--hidden_units={0},{0}", units);
}

/// For which a save finds no memory for its copy, of three quarters of that.
inline std::string LayersThatAreNotCopied() { return LayersThatNeed(0.72); }

}  // namespace passel::testing

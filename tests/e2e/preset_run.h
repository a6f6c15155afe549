// preset_run.h - one training run of a preset, and what it printed.

#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/program.h"

namespace passel::testing {

std::vector<std::string> Lines(const std::string& text);

/// Lines that match as a whole; `groups` gets what is in their parentheses.
std::size_t CountMatches(const std::string& text, const std::string& pattern,
                         std::vector<std::vector<std::string>>* groups = nullptr);

struct Training {
  Outcome outcome;
  nlohmann::json report;
};

/// Trains with --preset and what is given; checks that it ends with 0.
Training TrainPreset(Sandbox& sandbox, const std::string& preset, std::vector<std::string> more,
                     double seconds = 60);

}  // namespace passel::testing

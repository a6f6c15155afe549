// printed_config.h - what tests read from the output of --print_config.

#pragma once

#include <string>

#include "support/program.h"

namespace passel::testing {

/// "value  origin" of one setting of --print_config; "" if it is not there.
std::string SettingOf(const Outcome& outcome, const std::string& name);

}  // namespace passel::testing

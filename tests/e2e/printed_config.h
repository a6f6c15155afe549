// printed_config.h - what tests read from the output of --print_config, and the one error of a run.

#pragma once

#include <gtest/gtest.h>

#include <string>

#include "support/program.h"

namespace passel::testing {

/// "value  origin" of one setting of --print_config; "" if it is not there.
std::string SettingOf(const Outcome& outcome, const std::string& name);

/// The only error of a run that ended with `code`; checks that it is the only one.
std::string OnlyError(const Outcome& outcome, int code = 2);

}  // namespace passel::testing

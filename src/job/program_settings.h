// program_settings.h - the settings that mean something to a program that has its own data, model
// and loop (src/capi).

#pragma once

#include <string_view>

namespace passel::job {

/// `setting`: as in the table, without dashes.
bool MeansToProgram(std::string_view setting);

}  // namespace passel::job

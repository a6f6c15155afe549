// text.h - what the readers of this folder share: numbers, names of jobs.
//
// Thread safety: no state.

#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/text.h"  // who reads also quotes

namespace passel {

/// `text` without the spaces, tabs and line ends around it.
std::string_view Trim(std::string_view text);

/// 0 or a number without a leading zero, at most `max`. Nothing for anything else.
std::optional<int> ParseDecimal(std::string_view text, int max);

/// Whether `job` is a letter, then at most 31 letters, digits and underscores.
bool IsJobName(std::string_view job);

/// "1st", "2nd", "11th": how messages count the elements of a list.
std::string Ordinal(std::size_t number);

}  // namespace passel

// text.h - what the readers of this folder share: numbers, near names.
//
// Thread safety: no state.

#pragma once

#include <cstddef>
#include <optional>
#include <span>
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

/// The element of `known` that differs from `name` by the fewest letters inserted, removed,
/// replaced, or swapped with their neighbour ('-' is taken for '_'); the first of equals. Empty if
/// all differ by more than a third of the length of `name` (at least 1, at most 3).
std::string_view NearestName(std::string_view name, std::span<const std::string> known);

}  // namespace passel

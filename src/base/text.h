// text.h - cautious quoting of what others wrote, and what they may have meant.
//
// Thread safety: no state.

#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace passel {

/// For messages: in `quote`s, cut after 64 bytes, with everything but printable ASCII replaced.
std::string Quoted(std::string_view text, char quote = '"');

/// For messages: the first `max_bytes`, with everything but printable ASCII replaced by '?'.
std::string Printable(std::string_view text, std::size_t max_bytes);

/// The element of `known` that differs from `name` by the fewest letters inserted, removed,
/// replaced, or swapped with their neighbour ('-' is taken for '_'); the first of equals. Empty if
/// all differ by more than a third of the length of `name` (at least 1, at most 3).
std::string_view NearestName(std::string_view name, std::span<const std::string> known);

}  // namespace passel

// text.h - cautious quoting of what others wrote.
//
// Thread safety: no state.

#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace passel {

/// For messages: in `quote`s, cut after 64 bytes, with everything but printable ASCII replaced.
std::string Quoted(std::string_view text, char quote = '"');

/// For messages: the first `max_bytes`, with everything but printable ASCII replaced by '?'.
std::string Printable(std::string_view text, std::size_t max_bytes);

}  // namespace passel

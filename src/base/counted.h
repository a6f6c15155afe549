// counted.h - numbers of things, in sentences.
//
// Thread safety: no state.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace passel {

/// "1 step", "2 steps". REQUIRES: the plural of `noun` ends with one more s.
std::string Counted(std::uint64_t count, std::string_view noun);

}  // namespace passel

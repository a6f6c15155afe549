// bitmap_font.h - characters of 5 x 7 pixels, for numbers and short labels in pictures.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace passel {

inline constexpr std::size_t kGlyphWidth = 5;
inline constexpr std::size_t kGlyphHeight = 7;

/// Rows from the top; bit 4 is the leftmost pixel. Digits, capital letters (small ones look the
/// same) and " .,:%-/=()"; anything else is blank.
const std::array<std::uint8_t, kGlyphHeight>& Glyph(char c);

}  // namespace passel

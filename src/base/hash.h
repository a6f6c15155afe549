// hash.h - FNV-1a, 64 bits: a stable fingerprint of layouts and specifications. Not for secrets.

#pragma once

#include <cstdint>
#include <string_view>

namespace passel {

class Fnv1a {
 public:
  void AddByte(std::uint8_t byte) { value_ = (value_ ^ byte) * 0x100000001b3u; }
  /// Eight bytes, little-endian.
  void AddNumber(std::uint64_t number) {
    for (int shift = 0; shift < 64; shift += 8) AddByte(static_cast<std::uint8_t>(number >> shift));
  }
  /// Length first, so that ("ab","c") and ("a","bc") differ.
  void AddText(std::string_view text) {
    AddNumber(text.size());
    for (const char c : text) AddByte(static_cast<std::uint8_t>(c));
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325u;
};

}  // namespace passel

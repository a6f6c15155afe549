// crc32.h - the checksums of checked tensors, as io/checked_tensors.h has them. For src/io alone.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.h"

namespace passel::checked_internal {

inline constexpr std::string_view kOfMetadata = "crc32";
inline constexpr std::string_view kOfTensor = "crc32/";

class Crc32 {
 public:
  void Add(std::span<const std::byte> bytes);
  void Add(std::string_view text) { Add(std::as_bytes(std::span(text))); }
  /// Eight hexadecimal digits.
  std::string Text() const;

 private:
  std::uint32_t crc_ = 0;
};

/// Of a tensor before its data.
Crc32 BeginTensor(std::string_view name, DType dtype, std::span<const std::int64_t> shape);
/// Of all metadata but kOfMetadata.
std::string ChecksumOf(const SafetensorsMetadata& metadata);

}  // namespace passel::checked_internal

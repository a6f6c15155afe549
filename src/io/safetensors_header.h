// safetensors_header.h - what a safetensors file begins with: the rules that are the format's own.
//
// For src/io alone.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "io/safetensors.h"

namespace passel::safetensors_internal {

inline constexpr std::string_view kMetadataKey = "__metadata__";
inline constexpr std::size_t kLengthBytes = 8;  ///< the number N before the header

/// One entry as written.
struct HeaderEntry {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // bytes from the start of the tensor data
  std::uint64_t end = 0;
};

struct Header {
  std::vector<HeaderEntry> entries;  // in the order of their data
  SafetensorsMetadata metadata;
};

/// N, of a file of `file_bytes` bytes that begins with `begin`. Errors: as ParseSafetensors.
Result<std::size_t> HeaderBytes(std::span<const std::byte> begin, std::uint64_t file_bytes);

/// All rules of safetensors.h on the N bytes of a header that `data_bytes` bytes follow. Errors: as
/// ParseSafetensors.
Result<Header> ParseHeader(std::string_view text, std::uint64_t data_bytes);

/// Bytes of a tensor. Nothing if the product of the dimensions (those of 0 left out) times the
/// bytes of one element exceeds 64 bits, or if a dimension is negative.
std::optional<std::uint64_t> TensorBytes(std::span<const std::int64_t> shape, DType dtype);

/// What is wrong with a tensor name in UTF-8, as the end of a sentence; null if nothing.
const char* NameProblem(std::string_view name);

}  // namespace passel::safetensors_internal

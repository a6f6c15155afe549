// safetensors_header.h - the JSON header of a safetensors file: strict text parser and its pieces.
//
// Why not a JSON library: the strictness is in the spelling. A DOM keeps the last of two equal keys
// and forgets how a number was written; an event parser hands over decoded numbers (1.0, -0 and 20
// digits must be refused by spelling) and decides itself about byte order marks, NUL bytes and
// white space at the ends. The grammar here has three levels and no recursion, so a deeply nested
// header cannot exist in it. The tests compare it with a JSON library on every accepted input.
//
// For src/io alone.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "io/safetensors.h"

namespace passel::safetensors_internal {

/// One entry as written: dtype known, names and counts within limits, offsets not yet compared
/// with anything.
struct HeaderEntry {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // bytes from the start of the tensor data
  std::uint64_t end = 0;
};

struct Header {
  std::vector<HeaderEntry> entries;  // in the order of the text
  SafetensorsMetadata metadata;
};

/// Rules 1 to 4 of safetensors.h on the N bytes of the header.
/// Errors: as ParseSafetensors; the message names the byte within the header.
Result<Header> ParseHeader(std::string_view text);

/// Bytes of a tensor. Nothing if the product of the dimensions (those of 0 left out) times the
/// bits of one element exceeds 64 bits, if a dimension is negative, or if bits are left over.
std::optional<std::uint64_t> TensorBytes(std::span<const std::int64_t> shape, DType dtype);

/// Length of the valid UTF-8 sequence at the start of `text`, 0 if there is none; `code_point` is
/// set on success. Overlong forms, surrogates and values above U+10FFFF are not valid.
int DecodeUtf8(std::string_view text, std::uint32_t* code_point);

/// What is wrong with a tensor name, as the end of a sentence; null if nothing.
const char* NameProblem(std::string_view name);

}  // namespace passel::safetensors_internal

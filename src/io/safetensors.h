// safetensors.h - named tensors in one file, in the safetensors format; the reader is strict.
//
//   byte 0       8                      8 + N                          end of file
//   +------------+----------------------+------------------------------+
//   | N: u64 LE  | header: JSON, N bytes| tensors, little-endian,      |
//   |            | padded with spaces   | row-major, without a gap     |
//   +------------+----------------------+------------------------------+
//
//   {"__metadata__":{"key":"value"}, "name":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}
//
// A file from anywhere may be given to the reader. It takes nothing for granted and accepts less
// than the format allows, so that two programs can never read two meanings from one file:
//   1. The first header byte is '{'; after the last '}' only spaces; N <= 8 MiB.
//   2. Keys are unique at every level, after escapes are decoded. Text is valid UTF-8, without lone
//      surrogates. An entry holds exactly dtype, shape and data_offsets; metadata holds strings.
//      Dtypes are those of DType.
//   3. Numbers are integers without sign, fraction and exponent that fit in 64 bits.
//   4. At most 20,000 tensors, of rank <= 8, with names of <= 256 bytes without control characters.
//   5. Sorted by offset the tensors start at 0, touch each other and end at the end of the file;
//      each has exactly as many bytes as its shape and dtype say.
// Rank 0, dimensions of 0 and NaN values are legal.
//
// Thread safety: the functions share nothing.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/status.h"

namespace passel {

/// The element types of the format that are read and written here.
enum class DType : std::uint8_t { kU8, kF32, kF64, kI64 };

/// As spelled in a header, for example "F32".
std::string_view DTypeName(DType dtype);
/// The bytes of one element.
std::size_t DTypeBytes(DType dtype);
/// Nothing for any other name.
std::optional<DType> ParseDType(std::string_view name);

struct TensorView {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  /// Little-endian, row-major. Not necessarily aligned when read: use memcpy.
  std::span<const std::byte> data;
};

using SafetensorsMetadata = std::map<std::string, std::string>;

/// The limits of rules 1 and 4. The writer keeps them too. A checkpoint has up to four tensors for
/// each of 4,096 variables, with a checksum each.
inline constexpr std::size_t kSafetensorsMaxHeaderBytes = std::size_t{8} << 20;
inline constexpr std::size_t kSafetensorsMaxTensors = 20'000;
inline constexpr std::size_t kSafetensorsMaxRank = 8;
inline constexpr std::size_t kSafetensorsMaxNameBytes = 256;

/// A file that kept all rules, in memory of the caller's, into which the tensors point.
struct SafetensorsFile {
  /// Null if there is no such tensor.
  const TensorView* Find(std::string_view name) const;

  std::vector<TensorView> tensors;  ///< in the order of their data
  SafetensorsMetadata metadata;
};

/// Checks `file`, which must outlive the result and must not change meanwhile or afterwards.
/// io/tensor_file.h reads what is on a disk.
/// Errors: kDataLoss (cut off, corrupt, or not this format); kInvalidArgument (over one of the
/// limits of rules 1 and 4, which a well-formed file of somebody else may be).
Result<SafetensorsFile> ParseSafetensors(std::span<const std::byte> file);

/// The bytes that WriteSafetensors would write.
Result<std::vector<std::uint8_t>> SerializeSafetensors(std::span<const TensorView> tensors,
                                                       const SafetensorsMetadata& metadata);

/// Replaces `path` atomically (base/file.h). Data is ordered by element size, largest first, then
/// by name, and starts at a multiple of 8 bytes, so that every tensor is aligned in the file.
/// The same tensors and metadata always give the same bytes.
/// Errors: kInvalidArgument (something that the reader would refuse); those of WriteFileAtomically.
Status WriteSafetensors(const std::string& path, std::span<const TensorView> tensors,
                        const SafetensorsMetadata& metadata, FileOps& ops = FileOps::Real());

}  // namespace passel

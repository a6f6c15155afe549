// checked_tensors.h - a safetensors file that says in its metadata what it must hold.
//
//   "crc32/NAME"  of the tensor NAME: its name, dtype and shape as text, then its data
//   "crc32"       of all metadata but itself
//
// Each is the CRC-32 of zlib (polynomial 0xEDB88320 reflected, RFC 1952), eight hexadecimal
// digits. With the reader's own rules (io/safetensors.h) no single byte of such a file can change
// unseen. Other programs read it as any safetensors file.
//
// Thread safety: the functions share nothing.

#pragma once

#include <span>
#include <string>

#include "base/file.h"
#include "base/status.h"
#include "io/safetensors.h"

namespace passel {

/// As WriteSafetensors(). Errors: the same; kInvalidArgument for metadata whose key begins with
/// "crc32".
Status WriteCheckedTensors(const std::string& path, std::span<const TensorView> tensors,
                           const SafetensorsMetadata& metadata, FileOps& ops = FileOps::Real());

/// As ReadSafetensors(). Errors: the same; kDataLoss, naming what is missing or not as it was
/// written.
Result<SafetensorsFile> ReadCheckedTensors(const std::string& path,
                                           std::size_t max_bytes = std::size_t{4} << 30);

/// What ReadCheckedTensors() checks, of a file that was read already. Errors: kDataLoss.
Status CheckTensors(const SafetensorsFile& file);

}  // namespace passel

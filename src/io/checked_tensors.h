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
#include "io/tensor_file.h"

namespace passel {

/// As WriteSafetensors(). Errors: the same; kInvalidArgument for metadata whose key begins with
/// "crc32".
Status WriteCheckedTensors(const std::string& path, std::span<const TensorView> tensors,
                           const SafetensorsMetadata& metadata, FileOps& ops = FileOps::Real());

/// Whether the file says what it must hold.
bool HasChecksums(const TensorFile& file);

/// Reads all of it, and keeps nothing. Errors: those of TensorFile::Read(); kDataLoss, naming the
/// path and what is missing or not as it was written.
Status CheckTensors(const TensorFile& file);

/// The same, but of the data nothing is read: that they are all there, and that what the file says
/// of them is as it was written.
Status CheckDescription(const TensorFile& file);

/// TensorFile::Open() and CheckTensors().
Result<TensorFile> OpenCheckedTensors(const std::string& path);

}  // namespace passel

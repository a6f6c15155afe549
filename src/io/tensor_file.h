// tensor_file.h - a safetensors file (io/safetensors.h) that is read piece by piece, however large
// it is.
//
// What is read is what the file says at that time: files of ours are replaced, never written to,
// and one that is open stays what it was.
//
// Thread safety: the const functions may be called at the same time.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_descriptor.h"
#include "base/status.h"
#include "io/safetensors.h"
#include "io/safetensors_layout.h"

namespace passel {

class TensorFile {
 public:
  struct Tensor : TensorSpec {
    std::uint64_t begin = 0;  ///< bytes from the begin of the file
    std::uint64_t bytes = 0;
  };
  /// Reads the header and checks it against the size of the file. Errors: those of
  /// ParseSafetensors() and of the system, with the path before them.
  static Result<TensorFile> Open(const std::string& path);

  const std::string& path() const { return path_; }
  const SafetensorsMetadata& metadata() const { return metadata_; }
  /// What the metadata say for `key`; "" if nothing.
  const std::string& Word(std::string_view key) const;
  /// In the order of their data.
  const std::vector<Tensor>& tensors() const { return tensors_; }
  /// Null if there is no such tensor.
  const Tensor* Find(std::string_view name) const;

  /// Bytes [offset, offset + out.size()) of a tensor of this file, which has them.
  /// Errors: kDataLoss if the file was cut off since; those of the system.
  Status Read(const Tensor& tensor, std::uint64_t offset, std::span<std::byte> out) const;

 private:
  TensorFile() = default;
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) const;

  std::string path_;
  FileDescriptor fd_;
  SafetensorsMetadata metadata_;
  std::vector<Tensor> tensors_;
  std::vector<std::size_t> by_name_;  // indices of `tensors_`
};

}  // namespace passel

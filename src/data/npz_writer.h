// npz_writer.h - arrays of floats as NumPy keeps several: an npz file, which is a zip archive of
// npy arrays, here not compressed.
//
// libzip writes the container.
//
// Thread safety: the function shares nothing.

#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/status.h"

namespace passel {

struct NpzArray {
  std::string name;  ///< as numpy.load() has it, without ".npy"
  std::vector<std::uint64_t> shape;
  /// Fills `out` with the elements from `first` on. They are asked for in order, each once.
  std::function<Status(std::uint64_t first, std::span<float> out)> read;
};

/// Replaces `path` atomically. The same arrays always give the same bytes. Errors: those of
/// AtomicFile and of the arrays.
Status WriteNpz(const std::string& path, std::span<const NpzArray> arrays,
                FileOps& ops = FileOps::Real());

}  // namespace passel

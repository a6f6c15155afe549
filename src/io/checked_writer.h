// checked_writer.h - a file of checked tensors (io/checked_tensors.h) whose data come piece by
// piece: of values that are copied while others train, there is never a second copy in memory.
//
// The header comes first in the file and is written last: the checksums in it have a fixed length.
//
// Threads    One thread at a time.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "io/safetensors.h"
#include "io/safetensors_layout.h"

namespace passel {

class CheckedWriter {
 public:
  /// Makes the temporary file. Values of `metadata` that are known only at the end are there with
  /// the right number of bytes. Errors: as WriteCheckedTensors().
  static Result<CheckedWriter> Create(const std::string& path, std::vector<TensorSpec> tensors,
                                      const SafetensorsMetadata& metadata,
                                      FileOps& ops = FileOps::Real());
  CheckedWriter(CheckedWriter&&) noexcept;
  CheckedWriter& operator=(CheckedWriter&&) noexcept;
  /// Without Finish(): what `path` held is still there, and nothing else is left.
  ~CheckedWriter();

  /// The next bytes of tensor `index`. Pieces of several tensors may alternate, and be small: a few
  /// MiB are gathered until they are written. Errors: those of the file system; no call but the
  /// destructor's may follow. REQUIRES: not more than the tensor holds.
  Status Append(std::size_t index, std::span<const std::byte> data);

  /// Writes the header, with these values in place of those that were given, and replaces `path`.
  /// Errors: those of the file system, as WriteFileAtomically(). REQUIRES: all tensors are
  /// complete; values are as long as they were.
  Status Finish(const SafetensorsMetadata& late = {});

  /// Of the whole file, once it is finished.
  std::uint64_t bytes() const;

 private:
  struct State;
  explicit CheckedWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace passel

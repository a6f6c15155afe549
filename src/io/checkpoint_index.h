// checkpoint_index.h - the text file `checkpoint`, which says what checkpoints a folder has.
//
//   model_checkpoint_path: "model.ckpt-5000"
//   all_model_checkpoint_paths: "model.ckpt-4000"
//   all_model_checkpoint_paths: "model.ckpt-5000"
//   all_model_checkpoint_timestamps: 1766000000.5
//   all_model_checkpoint_timestamps: 1766000600.25
//   last_preserved_timestamp: 1766000000
//
// It has the words of TensorFlow's CheckpointState (a protobuf message as text), so that tools that
// look for the newest checkpoint of a folder find ours. The reader takes that and nothing else.
//
// Thread safety: no state.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace passel {

/// How good the values of a step were.
struct ValidationScore {
  double accuracy = 0;  ///< on the validation images, 0..1
  std::int64_t step = 0;
  bool operator==(const ValidationScore&) const = default;
};

struct CheckpointIndex {
  struct Entry {
    std::string name;     ///< "model.ckpt-5000"
    double saved_at = 0;  ///< seconds since 1970
    bool operator==(const Entry&) const = default;
  };
  std::vector<Entry> kept;    ///< oldest first; the last one is the newest
  double last_preserved = 0;  ///< seconds since 1970: when one was kept for good, or all began

  /// Of the index of the best: what made it that. A comment, so that others can read the file.
  std::optional<ValidationScore> score = {};

  const Entry* Find(std::string_view name) const;
  bool operator==(const CheckpointIndex&) const = default;
};

/// The most that are kept, and that an index may name.
inline constexpr std::size_t kMaxKeptCheckpoints = 1000;
inline constexpr std::int64_t kMaxCheckpointStep = 1'000'000'000'000'000;

/// "model.ckpt-5000".
std::string CheckpointName(std::int64_t step);
/// Its step; nothing for any other name. Leading zeros are read (TensorFlow can pad), not written.
std::optional<std::int64_t> StepOfCheckpoint(std::string_view name);

std::string ToText(const CheckpointIndex& index);
/// Errors: kDataLoss, naming the line. Names are checked with StepOfCheckpoint(), so none leads out
/// of the folder.
Result<CheckpointIndex> ParseCheckpointIndex(std::string_view text);

}  // namespace passel

// checkpoint_part.h - what one ps writes of a checkpoint: its shard, in a file of its own.
//
// Tensors, of the shard of part s:
//   "hid_w", or "hid_w/part_1" of a variable in parts   F32   the values
//   "hid_w/Adam", "hid_w/Adam_1", ...                   F32   slot variables, by TensorFlow's names
//   "ps/<s>/version", "ps/<s>/optimizer_step"           I64 []
// and of part 0 also
//   "global_step"                                       I64 []
//   "worker/clocks", "worker/local_steps"               I64 [workers]
//   "worker/cursors"                                    I64 [workers, 2]: epochs, index
//   "worker/batches"                                    I64 [4 + open], of shared data: how
//                                                       many, batch size, order, next, open ones
//   "beta1_power", "beta2_power"                        F32 []: Adam's, for other readers
// The metadata are those of the order and what train/checkpoint_words.h and io/checkpoint_folder.h
// say of a part. train/checkpoint_set.h reads it all again.
//
// Memory     One block of the shard, and some MiB that wait to be written; nothing but these MiB
//            where all of it lies in memory.
// Threads    WritePart() may run beside whatever its source lets change.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
#include "optim/optimizer.h"
#include "store/parameter_store.h"
#include "store/store_plan.h"
#include "train/checkpoint_words.h"

namespace passel::job {

/// What all parts of a set are told, but for `part`.
struct PartOrder {
  std::string folder;
  std::int64_t step = 0;  ///< of the set's name
  std::string save;       ///< a word that no other save has
  int part = 0;           ///< the shard
  int parts = 1;          ///< as many as the plan has shards
  Words metadata;         ///< AddWords(CheckpointWords)

  bool operator==(const PartOrder&) const = default;
};
std::string ToJson(const PartOrder& order);
/// Errors: kInvalidArgument for anything that ToJson() would not write of a valid order.
Result<PartOrder> PartOrderFromJson(const std::string& text);

/// The name of the optimizer and those of its slot variables.
OptimizerWords OptimizerWordsOf(const OptimizerConfig& optimizer);

/// Where the floats of a shard come from.
class PartSource {
 public:
  virtual ~PartSource() = default;
  /// Copies block `block` (StorePlan::block_floats) of the values into out[0] and of slot variable
  /// k into out[1 + k]. Blocks are asked for in rising order, each once. False: it may hold an
  /// update that is only half there. Errors: end the part.
  virtual Result<bool> ReadBlock(std::size_t block, std::span<float* const> out) = 0;

  /// Where all of it lies in memory and nobody changes what was checked: no block is asked for
  /// then, and nothing copied once more. CheckPiece() is called in between, for each piece of the
  /// values, and for nothing before each piece of a slot variable.
  struct Whole {
    std::vector<const float*> contents;  ///< values, slot variables, each float[floats]
    std::uint64_t mixed = 0;             ///< blocks of which ReadBlock() would return false
  };
  virtual const Whole* whole() const { return nullptr; }
  /// Before a piece of the values, and what slot variables have there, is read. Errors: end the
  /// part.
  virtual Status CheckPiece(std::span<const float> /*values*/) { return {}; }
  /// The first `floats` of each content are not read any more.
  virtual void DoneWith(std::size_t /*floats*/) {}
  /// After the last piece: whole()->mixed is known then, and so are words of the order that were
  /// not, which are as long as they were. Errors: end the part.
  virtual Status EndOfPieces(Words* /*late*/) { return {}; }
};

/// A copy of the shard that nobody changes.
class CopySource : public PartSource {
 public:
  /// `contents`: the values, then the slot variables, each float[floats], padding included. They
  /// outlive the source.
  CopySource(std::vector<const float*> contents, std::size_t floats, std::size_t block_floats);
  Result<bool> ReadBlock(std::size_t block, std::span<float* const> out) override;
  const Whole* whole() const override { return &whole_; }

 private:
  const Whole whole_;
  const std::size_t floats_, block_floats_;
};

struct PartWritten {
  std::uint64_t bytes = 0;  ///< of the file
  std::uint64_t blocks = 0, mixed = 0;
  double seconds = 0;
};

/// Writes the part to PartPath(). Of `progress` it takes the shard's own entry, which must be
/// there, and for part 0 the workers. On error the folder is as it was.
/// Errors: kInvalidArgument for an order that does not fit the plan; those of CheckedWriter and of
/// `source`.
Result<PartWritten> WritePart(const PartOrder& order, const StorePlan& plan,
                              const JobProgress& progress, PartSource& source,
                              FileOps& ops = FileOps::Real());

}  // namespace passel::job

// checkpoint_set.h - a checkpoint that is read: all parts as one, for a job of any number of ps and
// workers. job/checkpoint_part.h says which tensors there are.
//
// What belongs to which variable is known from the words of the model, from "slots" and from
// "rows/...", never from what a name looks like. Tensors that nobody knows are left alone.
//
// Memory     The headers of the parts: values are read when they are asked for.
// Threads    The const functions may be called at the same time.
// Errors     Each sentence names the checkpoint and, where it is about one, the tensor.

#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "io/tensor_file.h"
#include "nn/model_config.h"
#include "store/parameter_store.h"
#include "store/variable_table.h"
#include "train/checkpoint_words.h"

namespace passel {

class CheckpointSet {
 public:
  /// The set `name` ("model.ckpt-500") of a folder, once all of it was read and found whole.
  /// Errors: those of OpenCheckpoint(); kDataLoss if something is not there or contradicts the
  /// rest; kInvalidArgument for a format that is not known.
  static Result<CheckpointSet> Open(const std::string& folder, std::string_view name);
  /// A checkpoint in one part, whatever it is called. Errors: as Open(); kInvalidArgument for one
  /// part of several, and for a file that has values alone.
  static Result<CheckpointSet> OpenFile(const std::string& path);
  /// The newest set that is whole, by the index of the folder; a warning is logged for each that is
  /// not. For who only reads: nothing in the folder changes. Errors: kNotFound if there is none.
  static Result<CheckpointSet> OpenNewest(const std::string& folder);
  /// The one that the folder remembers as the best. Errors: as Open(); kNotFound if there is none.
  static Result<CheckpointSet> OpenBest(const std::string& folder);

  /// "train/model.ckpt-500", for sentences.
  const std::string& name() const { return name_; }
  std::int64_t global_step() const { return saved_.global_step; }
  const CheckpointWords& words() const { return words_; }
  const OptimizerWords& optimizer() const { return optimizer_; }
  /// Of part 0.
  const Words& metadata() const { return files_[0].metadata(); }
  /// The files that it is in, by part.
  const std::vector<TensorFile>& parts() const { return files_; }
  MixedBlocks mixed_blocks() const { return mixed_; }
  /// As it was saved: a shard for each part.
  const JobProgress& saved() const { return saved_; }
  /// For ParameterStore::Restore() of a job of that many shards. All of them had every update, but
  /// for those that were under way while the parts were copied; so all get the global step as their
  /// version (rounds count by it) and the lead's step of the optimizer.
  JobProgress ProgressOn(int shards) const;

  /// Of all rows of a variable, whatever pieces it was saved in; null: it has none of that name.
  const std::vector<std::int64_t>* ShapeOf(std::string_view variable) const;

  /// OK if a job of these variables and this optimizer can go on from here: then Fill() finds all
  /// that it is asked for. Errors: kInvalidArgument, naming what is different, not what to do.
  Status Check(const VariableTable& variables, const OptimizerWords& optimizer) const;

  /// The values of a variable or a piece of one (k = 0), or of the k-th slot variable of
  /// optimizer(), counted from 1. REQUIRES: k <= optimizer().slots.size(); out[piece.elements].
  /// Errors: kNotFound; kInvalidArgument for another shape; those of TensorFile::Read().
  Status Fill(const VariableInfo& piece, int k, std::span<float> out) const;

 private:
  struct Piece {
    std::int64_t first_row = 0, rows = 0;
    std::size_t file = 0;
    std::vector<const TensorFile::Tensor*> tensors;  // values, slot variables
  };
  struct Variable {
    std::vector<std::int64_t> shape;  // of all rows
    std::vector<Piece> pieces;        // by their rows, all of them
  };

  CheckpointSet() = default;
  static Result<CheckpointSet> Make(std::string name, std::vector<TensorFile> files);
  Status ReadWords();
  Status ReadProgress();
  Status ReadBatches();
  Status FindVariables();
  Status CheckRates(const VariableTable& variables) const;
  Status AddPiece(std::size_t file, const std::string& tensor, Variable* variable) const;
  Result<std::vector<std::int64_t>> Numbers(std::size_t file, const std::string& tensor,
                                            const std::vector<std::int64_t>& shape) const;
  std::string name_;
  std::vector<TensorFile> files_;  // by part
  CheckpointWords words_;
  OptimizerWords optimizer_;
  MixedBlocks mixed_;
  JobProgress saved_;
  std::map<std::string, Variable, std::less<>> variables_;
};

/// Whether `path` is a folder, names a set in one ("train/model.ckpt-500") or the best
/// ("train/best"), or is a file that says that it is part of a checkpoint.
bool NamesCheckpoint(const std::string& path);
/// The newest set of a folder that is whole, the set of that name, the best, or that file.
/// Errors: those of the function of CheckpointSet for it.
Result<CheckpointSet> OpenCheckpointAt(const std::string& path);

}  // namespace passel

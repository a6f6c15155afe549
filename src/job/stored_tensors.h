// stored_tensors.h - the variables of a checkpoint or of a saved model, each in one piece however
// many parts have it. Slot variables, which only a checkpoint has, are tensors like any other.
//
// Memory     Of a checkpoint the headers: values are read when they are asked for. Of a saved model
//            the values.
// Threads    The const functions may be called at the same time.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "nn/model_config.h"
#include "train/checkpoint_set.h"
#include "train/saved_model.h"

namespace passel::job {

class StoredTensors {
 public:
  struct Tensor {
    std::string name;  ///< "hid_w", or "hid_w/Adam" of a slot variable
    std::vector<std::int64_t> shape;
    std::size_t variable = 0;  ///< of ModelVariables()
    int slot = 0;              ///< 0: values; else one more than its place in the words

    std::int64_t rows() const { return shape.empty() ? 1 : shape[0]; }
    std::size_t columns() const {
      std::size_t columns = 1;
      for (std::size_t d = 1; d < shape.size(); ++d) columns *= static_cast<std::size_t>(shape[d]);
      return columns;
    }
    std::uint64_t elements() const { return static_cast<std::uint64_t>(rows()) * columns(); }
  };

  /// What LoadModel() takes: a folder, a checkpoint, a file. All of it was read once and found
  /// whole. Errors: those of OpenCheckpointAt() and LoadModel().
  static Result<StoredTensors> Open(const std::string& path);

  /// "train/model.ckpt-500", for sentences.
  const std::string& name() const { return name_; }
  /// Null: a saved model.
  const CheckpointSet* checkpoint() const { return set_ ? &*set_ : nullptr; }
  const ModelConfig& model() const { return set_ ? set_->words().model : saved_->config; }
  /// Of a checkpoint that of part 0.
  const std::map<std::string, std::string>& metadata() const {
    return set_ ? set_->metadata() : saved_->metadata;
  }
  /// The files that it is in, and their bytes; a file that is gone meanwhile has none.
  std::vector<std::string> files() const;
  std::uint64_t bytes() const;
  /// What it says of itself, as an object: the words of its metadata and, of a checkpoint, where
  /// its workers and parts were. Without what says how the file is made.
  Json Words() const;

  /// The values of all variables, in creation order, then their slot variables.
  const std::vector<Tensor>& tensors() const { return tensors_; }
  /// Null if there is none.
  const Tensor* Find(std::string_view name) const;
  /// The floats from `first` on, as many as `out` has. REQUIRES: the tensor has them. Errors: those
  /// of TensorFile::Read().
  Status Read(const Tensor& tensor, std::uint64_t first, std::span<float> out) const;
  /// The same in pieces, in order: `use` is called with each, and where it begins.
  Status ReadAll(const Tensor& tensor,
                 const std::function<Status(std::uint64_t, std::span<const float>)>& use) const;

 private:
  StoredTensors() = default;

  std::string name_;
  std::optional<CheckpointSet> set_;
  std::optional<SavedModel> saved_;
  std::vector<Tensor> tensors_;
};

/// Floats that are read at once.
inline constexpr std::size_t kFloatsAtOnce = std::size_t{1} << 20;

}  // namespace passel::job

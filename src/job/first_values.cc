#include "job/first_values.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "base/log.h"
#include "io/tensor_file.h"
#include "job/checkpoint_part.h"
#include "optim/update_kernels.h"

namespace passel::job {
namespace {

// The values of a file of any job, or of any program.
class InitFile {
 public:
  static Result<InitFile> Open(const std::string& path) {
    InitFile file;
    if (NamesCheckpoint(path)) {
      PASSEL_ASSIGN_OR_RETURN(CheckpointSet set, OpenCheckpointAt(path));
      file.set_.emplace(std::move(set));
    } else {
      PASSEL_ASSIGN_OR_RETURN(TensorFile tensors, TensorFile::Open(path));
      file.tensors_.emplace(std::move(tensors));
    }
    return file;
  }

  // Why it has no values for this piece, of a variable of so many rows, in a few words; "" if it
  // had, which are now in `out`. Errors: those of reading.
  Result<std::string> Fill(const VariableInfo& piece, std::int64_t rows,
                           std::span<float> out) const {
    const std::vector<std::int64_t>* there = set_ ? set_->ShapeOf(piece.logical) : nullptr;
    const TensorFile::Tensor* const tensor = set_ ? nullptr : tensors_->Find(piece.logical);
    if (tensor != nullptr) there = &tensor->shape;
    if (there == nullptr) return std::string("not there");
    if (tensor != nullptr && tensor->dtype != DType::kF32) return std::string("not float32");
    std::vector<std::int64_t> shape = piece.shape;
    if (!shape.empty()) shape[0] = rows;
    if (*there != shape) {
      return fmt::format("of shape [{}] rather than [{}]", fmt::join(*there, ", "),
                         fmt::join(shape, ", "));
    }
    if (set_) {
      PASSEL_RETURN_IF_ERROR(set_->Fill(piece, 0, out));
      return std::string();
    }
    const std::size_t row = shape.empty() || piece.shape[0] == 0
                                ? piece.elements
                                : piece.elements / static_cast<std::size_t>(piece.shape[0]);
    const std::uint64_t offset = static_cast<std::uint64_t>(piece.first_row) * row * sizeof(float);
    PASSEL_RETURN_IF_ERROR(tensors_->Read(*tensor, offset, std::as_writable_bytes(out)));
    return std::string();
  }

 private:
  InitFile() = default;
  std::optional<CheckpointSet> set_;  // or
  std::optional<TensorFile> tensors_;
};

// How many rows each variable has in all its pieces.
std::map<std::string, std::int64_t> RowsOfVariables(const VariableTable& table) {
  std::map<std::string, std::int64_t> rows;
  for (const VariableInfo& piece : table.all()) {
    if (!piece.shape.empty()) rows[piece.logical] += piece.shape[0];
  }
  return rows;
}

Status InitializeFromFile(const ModelConfig& model, const std::string& path,
                          const ModelLayout& layout, ParameterStore& store) {
  PASSEL_ASSIGN_OR_RETURN(const InitFile file, InitFile::Open(path));
  const VariableTable& table = layout.table();
  const std::map<std::string, std::int64_t> rows = RowsOfVariables(table);
  // All are read before the store is opened to everyone.
  std::vector<std::vector<float>> values(table.size());
  std::map<std::string, std::string> missing;  // by variable: why
  for (VarId id = 0; id < table.size(); ++id) {
    const VariableInfo& piece = table[id];
    values[id].resize(piece.elements);
    const auto all = rows.find(piece.logical);
    PASSEL_ASSIGN_OR_RETURN(const std::string why,
                            file.Fill(piece, all == rows.end() ? 0 : all->second, values[id]));
    if (!why.empty()) {
      missing[piece.logical] = why;
    } else if (!AllFinite(values[id].data(), values[id].size())) {
      LogWarning("--init {} has values of {} that are not finite: training will fail with them",
                 path, piece.name);
    }
  }
  std::size_t matched = 0;
  for (const auto& [variable, count] : rows) {
    const auto lacks = missing.find(variable);
    if (lacks == missing.end()) ++matched;
    LogInfo("--init {}: {}: {}", path, variable,
            lacks == missing.end() ? "taken from there"
                                   : lacks->second + ": has first values of its own");
  }
  if (matched == 0) {
    const auto& [variable, why] = *missing.begin();
    return InvalidArgument(fmt::format(
        "--init {} has values for none of the {} variables of this model ({}: {}): name another "
        "file, or make the model the same (--model, --hidden_units)",
        path, rows.size(), variable, why));
  }
  return store.Initialize([&](VarId id, std::span<float> out) {
    if (!missing.contains(table[id].logical)) {
      std::copy(values[id].begin(), values[id].end(), out.begin());
      return;
    }
    InitializeVariable(model, layout.variable_of(id), static_cast<std::size_t>(table[id].first_row),
                       out);
  });
}

}  // namespace

Status CheckCanGoOn(const CheckpointSet& from, const StorePlan& plan, bool of_program) {
  const Status fits = from.Check(plan.variables, OptimizerWordsOf(plan.optimizer));
  if (fits.ok()) return {};
  if (of_program) {
    return InvalidArgument(fmt::format(
        "{}; this job cannot go on from it: make variables and optimizer the same, or use another "
        "--checkpoint_dir",
        fits.message()));
  }
  return InvalidArgument(
      fmt::format("{}; this job cannot go on from it: make the settings the same, or take the "
                  "values alone with --init={} and another --checkpoint_dir",
                  fits.message(), from.name()));
}

Status RestoreFrom(const std::string& path, const OptimizerConfig& optimizer, int shards,
                   ParameterStore& store) {
  const VariableTable& table = store.variables();
  PASSEL_ASSIGN_OR_RETURN(const CheckpointSet set, OpenCheckpointAt(path));
  PASSEL_RETURN_IF_ERROR(set.Check(table, OptimizerWordsOf(optimizer)));
  // All is read before the store has any of it: a disk that fails leaves it as it is.
  const auto contents = static_cast<std::size_t>(1 + NumSlots(optimizer));
  std::vector<std::vector<float>> read(table.size() * contents);
  for (VarId id = 0; id < table.size(); ++id) {
    for (std::size_t k = 0; k < contents; ++k) {
      std::vector<float>& floats = read[id * contents + k];
      floats.resize(table[id].elements);
      PASSEL_RETURN_IF_ERROR(set.Fill(table[id], static_cast<int>(k), floats));
    }
  }
  return store.Restore(set.ProgressOn(shards), [&](VarId id, int k, std::span<float> out) {
    std::ranges::copy(read[id * contents + static_cast<std::size_t>(k)], out.begin());
  });
}

Status WriteFirstValues(const JobConfig& config, const std::string& resume_from,
                        const ModelLayout& layout, const OptimizerConfig& optimizer, int shards,
                        ParameterStore& store) {
  if (resume_from.empty()) {
    return config.checkpoints.init.empty()
               ? InitializeStore(config.model, layout, store)
               : InitializeFromFile(config.model, config.checkpoints.init, layout, store);
  }
  return RestoreFrom(resume_from, optimizer, shards, store);
}

}  // namespace passel::job

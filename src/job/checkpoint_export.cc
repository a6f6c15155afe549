#include "job/checkpoint_export.h"

#include <fmt/core.h>

#include <filesystem>

#include "base/text.h"
#include "data/npz_writer.h"
#include "io/checked_writer.h"
#include "io/checkpoint_files.h"
#include "io/checkpoint_folder.h"
#include "job/evaluation_data.h"
#include "job/output_path.h"
#include "train/model_words.h"

namespace passel::job {
namespace {

constexpr std::string_view kSafetensorsEnding = ".safetensors";
constexpr std::string_view kNpzEnding = ".npz";

// What a saved model says of itself, and no word of a checkpoint, which it is not.
SafetensorsMetadata WordsOfValues(const StoredTensors& stored) {
  const auto& from = stored.metadata();
  SafetensorsMetadata words;
  if (const std::optional<TrainedSplit> split = SplitOf(from)) AddSplit(*split, &words);
  for (const char* const key : {kStepKey, kModeKey, kOptimizerKey}) {
    if (const auto word = from.find(key); word != from.end()) words.insert(*word);
  }
  AddModelWords(stored.model(), &words);
  words[kFormatKey] = kSavedModelFormat;
  return words;
}

Status WriteAsSafetensors(const StoredTensors& stored,
                          const std::vector<const StoredTensors::Tensor*>& tensors,
                          const std::string& path) {
  std::vector<TensorSpec> specs;
  for (const auto* tensor : tensors) specs.push_back({tensor->name, DType::kF32, tensor->shape});
  PASSEL_ASSIGN_OR_RETURN(CheckedWriter writer,
                          CheckedWriter::Create(path, std::move(specs), WordsOfValues(stored)));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    PASSEL_RETURN_IF_ERROR(
        stored.ReadAll(*tensors[i], [&](std::uint64_t, std::span<const float> values) {
          return writer.Append(i, std::as_bytes(values));
        }));
  }
  return writer.Finish();
}

Status WriteAsNpz(const StoredTensors& stored,
                  const std::vector<const StoredTensors::Tensor*>& tensors,
                  const std::string& path) {
  std::vector<NpzArray> arrays;
  for (const auto* tensor : tensors) {
    arrays.push_back({tensor->name,
                      {tensor->shape.begin(), tensor->shape.end()},
                      [&stored, tensor](std::uint64_t first, std::span<float> out) {
                        return stored.Read(*tensor, first, out);
                      }});
  }
  return WriteNpz(path, arrays);
}

}  // namespace

Status CheckNoCheckpoint(const char* flag, const std::string& file,
                         const std::vector<std::string>& paths) {
  PASSEL_RETURN_IF_ERROR(CheckNoCheckpointFile(flag, file));
  for (const std::string& path : paths) {
    PASSEL_RETURN_IF_ERROR(CheckDifferentFiles(flag, file, "the checkpoint", path));
  }
  return {};
}

Status CheckExportPath(const std::string& path) {
  const std::string name = std::filesystem::path(path).filename().string();
  if (!name.ends_with(kSafetensorsEnding) && !name.ends_with(kNpzEnding)) {
    return InvalidArgument(
        fmt::format("{} ends with neither {} nor {}, which say the format: add one of them", path,
                    kSafetensorsEnding, kNpzEnding));
  }
  PASSEL_RETURN_IF_ERROR(CheckNoCheckpoint("the file", path, {}));
  return CheckOutputPath("the file", path);
}

Status ExportValues(const StoredTensors& stored, const std::string& path, Export what) {
  if (what == Export::kSlotsToo && stored.checkpoint() == nullptr) {
    return InvalidArgument(fmt::format(
        "{} is a saved model, which has no slot variables: omit --slots", stored.name()));
  }
  PASSEL_RETURN_IF_ERROR(CheckNoCheckpoint("the file", path, stored.files()));
  std::vector<const StoredTensors::Tensor*> tensors;
  for (const StoredTensors::Tensor& tensor : stored.tensors()) {
    if (tensor.slot == 0 || what == Export::kSlotsToo) tensors.push_back(&tensor);
  }
  return path.ends_with(kNpzEnding) ? WriteAsNpz(stored, tensors, path)
                                    : WriteAsSafetensors(stored, tensors, path);
}

}  // namespace passel::job

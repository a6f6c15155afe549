#include "job/stored_tensors.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/check.h"
#include "io/checkpoint_folder.h"
#include "store/variable_table.h"

namespace passel::job {
namespace {

// Words that differ from save to save, or say how the files are made.
bool SaysNothingOfTheJob(std::string_view key) {
  return key.starts_with("crc32") || key.starts_with(RowsKey("")) || key == kSaveKey ||
         key == kPartKey || key == kPartsKey || key == kMixedBlocksKey || key == kBegunWithKey;
}

// Those that are JSON, as such; others as they are.
Json WordAsJson(const std::string& text) {
  if (!text.starts_with('{')) return text;
  Result<Json> json = ParseJson("a word", text, kMaxJsonDepth);
  return json.ok() ? *std::move(json) : Json(text);
}

Json ProgressAsJson(const JobProgress& progress) {
  Json workers = Json::MakeList(), parts = Json::MakeList();
  for (const JobProgress::Worker& worker : progress.workers) {
    workers.Add({{"clock", worker.clock},
                 {"local_steps", worker.local_steps},
                 {"epochs", worker.cursor_epochs},
                 {"index", worker.cursor_index}});
  }
  for (const JobProgress::Shard& shard : progress.shards) {
    parts.Add({{"version", shard.version}, {"optimizer_step", shard.optimizer_step}});
  }
  Json json = {{"workers", std::move(workers)}, {"parts", std::move(parts)}};
  if (progress.batches.rules.examples == 0) return json;
  const JobProgress::Batches& batches = progress.batches;
  Json open = Json::MakeList();
  for (const std::uint64_t batch : batches.open) open.Add(batch);
  json["batches"] = {{"examples", batches.rules.examples},
                     {"batch_size", batches.rules.batch_size},
                     {"order", batches.rules.order},
                     {"next", batches.next},
                     {"open", std::move(open)}};
  return json;
}

}  // namespace

Result<StoredTensors> StoredTensors::Open(const std::string& path) {
  StoredTensors stored;
  stored.name_ = path;
  std::vector<std::string> slots;
  if (NamesCheckpoint(path)) {
    PASSEL_ASSIGN_OR_RETURN(stored.set_, OpenCheckpointAt(path));
    stored.name_ = stored.set_->name();
    slots = stored.set_->optimizer().slots;
  } else {
    PASSEL_ASSIGN_OR_RETURN(stored.saved_, LoadModel(path));
  }
  const std::vector<VariableSpec> specs = ModelVariables(stored.model());
  for (std::size_t k = 0; k <= slots.size(); ++k) {
    for (std::size_t i = 0; i < specs.size(); ++i) {
      stored.tensors_.push_back({k == 0 ? specs[i].name : SlotTensor(specs[i].name, slots[k - 1]),
                                 specs[i].shape, i, static_cast<int>(k)});
    }
  }
  return stored;
}

std::vector<std::string> StoredTensors::files() const {
  if (!set_) return {name_};
  std::vector<std::string> paths;
  for (const TensorFile& part : set_->parts()) paths.push_back(part.path());
  return paths;
}

std::uint64_t StoredTensors::bytes() const {
  std::uint64_t sum = 0;
  for (const std::string& path : files()) {
    std::error_code gone;
    const std::uintmax_t bytes = std::filesystem::file_size(path, gone);
    if (!gone) sum += bytes;
  }
  return sum;
}

Json StoredTensors::Words() const {
  Json words = Json::MakeObject();
  for (const auto& [key, value] : metadata()) {
    if (!SaysNothingOfTheJob(key)) words[key] = WordAsJson(value);
  }
  if (!set_) return words;
  words["mixed_blocks"] = set_->mixed_blocks().mixed;  // of all parts
  words["progress"] = ProgressAsJson(set_->saved());
  return words;
}

const StoredTensors::Tensor* StoredTensors::Find(std::string_view name) const {
  const auto found = std::ranges::find(tensors_, name, &Tensor::name);
  return found == tensors_.end() ? nullptr : &*found;
}

Status StoredTensors::Read(const Tensor& tensor, std::uint64_t first, std::span<float> out) const {
  PASSEL_CHECK(first <= tensor.elements() && out.size() <= tensor.elements() - first,
               "the tensor has these floats");
  if (saved_) {
    const auto from = saved_->values[tensor.variable].begin() + static_cast<std::ptrdiff_t>(first);
    std::copy(from, from + static_cast<std::ptrdiff_t>(out.size()), out.begin());
    return {};
  }
  if (out.empty()) return {};
  // A checkpoint gives whole rows.
  const std::size_t columns = tensor.columns();
  VariableInfo rows;
  rows.name = rows.logical = ModelVariables(model())[tensor.variable].name;
  rows.first_row = static_cast<std::int64_t>(first / columns);
  rows.shape = tensor.shape;
  const std::int64_t count =
      static_cast<std::int64_t>((first + out.size() + columns - 1) / columns) - rows.first_row;
  if (!rows.shape.empty()) rows.shape[0] = count;
  rows.elements = static_cast<std::size_t>(count) * columns;
  if (rows.elements == out.size()) return set_->Fill(rows, tensor.slot, out);
  std::vector<float> whole(rows.elements);
  PASSEL_RETURN_IF_ERROR(set_->Fill(rows, tensor.slot, whole));
  const auto from = whole.begin() + static_cast<std::ptrdiff_t>(first % columns);
  std::copy(from, from + static_cast<std::ptrdiff_t>(out.size()), out.begin());
  return {};
}

Status StoredTensors::ReadAll(
    const Tensor& tensor,
    const std::function<Status(std::uint64_t, std::span<const float>)>& use) const {
  std::vector<float> piece;
  for (std::uint64_t first = 0; first < tensor.elements(); first += piece.size()) {
    piece.resize(std::min<std::uint64_t>(kFloatsAtOnce, tensor.elements() - first));
    PASSEL_RETURN_IF_ERROR(Read(tensor, first, piece));
    PASSEL_RETURN_IF_ERROR(use(first, piece));
  }
  return {};
}

}  // namespace passel::job

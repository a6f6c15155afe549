#include "train/checkpoint_set.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "io/checked_tensors.h"
#include "io/checkpoint_files.h"
#include "io/checkpoint_folder.h"

namespace passel {
namespace {

Status Broken(const std::string& what) { return DataLoss(what + ": use another copy"); }

std::string InBrackets(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ","));
}

// A scalar is one row.
std::int64_t RowsIn(const std::vector<std::int64_t>& shape) { return shape.empty() ? 1 : shape[0]; }

std::vector<std::int64_t> WithRows(std::vector<std::int64_t> shape, std::int64_t rows) {
  if (!shape.empty()) shape[0] = rows;
  return shape;
}

// The variable that a piece belongs to, by its name as placement makes it.
std::string LogicalName(const std::string& piece) { return piece.substr(0, piece.rfind("/part_")); }

// The pieces of split variables in a file, by the variable.
std::map<std::string, std::vector<std::string>> PiecesIn(const TensorFile& file) {
  const std::string prefix = RowsKey("");
  std::map<std::string, std::vector<std::string>> pieces;
  const SafetensorsMetadata& words = file.metadata();
  for (auto word = words.lower_bound(prefix); word != words.end(); ++word) {
    if (!word->first.starts_with(prefix)) break;
    const std::string tensor = word->first.substr(prefix.size());
    pieces[LogicalName(tensor)].push_back(tensor);
  }
  return pieces;
}

}  // namespace

Result<CheckpointSet> CheckpointSet::Open(const std::string& folder, std::string_view name) {
  PASSEL_ASSIGN_OR_RETURN(std::vector<TensorFile> files, OpenCheckpoint(folder, name));
  return Make(InFolder(folder, name), std::move(files));
}

Result<CheckpointSet> CheckpointSet::OpenFile(const std::string& path) {
  PASSEL_ASSIGN_OR_RETURN(TensorFile file, TensorFile::Open(path));
  if (file.Word(kPartsKey).empty() || file.Word(kSaveKey).empty()) {
    return InvalidArgument(fmt::format(
        "{0} is no checkpoint, but a file of values{1}, without slot variables and steps to go on "
        "from: begin with the values by --init={0}",
        path, file.Word(kFormatKey) == kSavedModelFormat ? ", as --save writes it" : ""));
  }
  PASSEL_RETURN_IF_ERROR(CheckTensors(file));
  if (file.Word(kPartsKey) != "1") {
    return InvalidArgument(
        fmt::format("{} is part {} of {} of a checkpoint: name all of it, {}/model.ckpt-{}", path,
                    Printable(file.Word(kPartKey), 16), Printable(file.Word(kPartsKey), 16),
                    FolderAndName(path).first, Printable(file.Word(kStepKey), 20)));
  }
  std::vector<TensorFile> files;
  files.push_back(std::move(file));
  return Make(path, std::move(files));
}

Result<CheckpointSet> CheckpointSet::Make(std::string name, std::vector<TensorFile> files) {
  CheckpointSet set;
  set.name_ = std::move(name);
  set.files_ = std::move(files);
  for (const auto read :
       {&CheckpointSet::ReadWords, &CheckpointSet::ReadProgress, &CheckpointSet::FindVariables}) {
    if (const Status status = (set.*read)(); !status.ok()) return status.WithContext(set.name_);
  }
  return set;
}

Status CheckpointSet::ReadWords() {
  PASSEL_RETURN_IF_ERROR(CheckFormat(metadata()));
  if (files_[0].Word(kFormatKey) != kSavedModelFormat) {
    return Broken(fmt::format("the format is {}, not {}", Quoted(files_[0].Word(kFormatKey)),
                              kSavedModelFormat));
  }
  PASSEL_ASSIGN_OR_RETURN(words_, CheckpointFromWords(metadata()));
  PASSEL_ASSIGN_OR_RETURN(optimizer_, OptimizerFromWords(metadata()));
  for (const TensorFile& file : files_) {
    const auto mixed = ParseMixedBlocks(file.Word(kMixedBlocksKey));
    if (!mixed) {
      return Broken(fmt::format("{} says {} for \"{}\"", file.path(),
                                Quoted(file.Word(kMixedBlocksKey)), kMixedBlocksKey));
    }
    mixed_.mixed += mixed->mixed;
    mixed_.blocks += mixed->blocks;
  }
  return {};
}

Result<std::vector<std::int64_t>> CheckpointSet::Numbers(
    std::size_t file, const std::string& tensor, const std::vector<std::int64_t>& shape) const {
  const TensorFile::Tensor* const found = files_[file].Find(tensor);
  if (found == nullptr) return Broken(fmt::format("there is no tensor \"{}\"", tensor));
  if (found->dtype != DType::kI64 || found->shape != shape) {
    return Broken(fmt::format("tensor \"{}\" is {} of shape {}, not I64 of shape {}", tensor,
                              DTypeName(found->dtype), InBrackets(found->shape),
                              InBrackets(shape)));
  }
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(found->bytes) / sizeof(std::int64_t));
  PASSEL_RETURN_IF_ERROR(files_[file].Read(*found, 0, std::as_writable_bytes(std::span(numbers))));
  const auto negative = std::ranges::find_if(numbers, [](std::int64_t n) { return n < 0; });
  if (negative == numbers.end()) return numbers;
  return Broken(fmt::format("tensor \"{}\" has {}, and must not be below 0", tensor, *negative));
}

Status CheckpointSet::ReadProgress() {
  const std::int64_t workers = words_.places;
  PASSEL_ASSIGN_OR_RETURN(const auto step, Numbers(0, "global_step", {}));
  if (std::to_string(step[0]) != files_[0].Word(kStepKey)) {
    return Broken(fmt::format("the tensor \"global_step\" is {}, and the metadata say {}", step[0],
                              Quoted(files_[0].Word(kStepKey))));
  }
  saved_.global_step = step[0];
  PASSEL_ASSIGN_OR_RETURN(const auto clocks, Numbers(0, "worker/clocks", {workers}));
  PASSEL_ASSIGN_OR_RETURN(const auto cursors, Numbers(0, "worker/cursors", {workers, 2}));
  PASSEL_ASSIGN_OR_RETURN(const auto local_steps, Numbers(0, "worker/local_steps", {workers}));
  for (std::size_t k = 0; k < clocks.size(); ++k) {
    JobProgress::Worker& worker = saved_.workers.emplace_back();
    worker.clock = static_cast<std::uint64_t>(clocks[k]);
    worker.cursor_epochs = static_cast<std::uint64_t>(cursors[2 * k]);
    worker.cursor_index = static_cast<std::uint64_t>(cursors[2 * k + 1]);
    worker.local_steps = static_cast<std::uint64_t>(local_steps[k]);
  }
  PASSEL_RETURN_IF_ERROR(ReadBatches());
  Result<std::vector<GroupRates>> rates = RatesFromWords(metadata());
  if (!rates.ok()) return Broken(rates.status().message());
  saved_.rates = std::move(*rates);
  for (std::size_t s = 0; s < files_.size(); ++s) {
    PASSEL_ASSIGN_OR_RETURN(const auto version, Numbers(s, fmt::format("ps/{}/version", s), {}));
    PASSEL_ASSIGN_OR_RETURN(const auto optimizer,
                            Numbers(s, fmt::format("ps/{}/optimizer_step", s), {}));
    saved_.shards.push_back({static_cast<Version>(version[0]), optimizer[0]});
  }
  return {};
}

Status CheckpointSet::ReadBatches() {
  const std::string name = "worker/batches";
  const TensorFile::Tensor* const found = files_[0].Find(name);
  if (found == nullptr) return {};  // nothing is shared
  PASSEL_ASSIGN_OR_RETURN(const auto numbers, Numbers(0, name, found->shape));
  constexpr std::size_t kFirst = 4, kMost = std::size_t{kHeldBatches} * kMaxWorkers;
  if (found->shape.size() != 1 || numbers.size() < kFirst || numbers.size() > kFirst + kMost ||
      numbers[0] == 0 || numbers[1] == 0) {
    return Broken(fmt::format("tensor \"{}\" says of no data how they are shared", name));
  }
  JobProgress::Batches& batches = saved_.batches;
  const auto number = [&](std::size_t i) { return static_cast<std::uint64_t>(numbers[i]); };
  batches.rules = {number(0), number(1), number(2)};
  batches.next = number(3);
  for (std::size_t i = kFirst; i < numbers.size(); ++i) {
    if (number(i) >= batches.next) {
      return Broken(fmt::format("tensor \"{}\" has batch {} as open, and {} is the next", name,
                                number(i), batches.next));
    }
    batches.open.push_back(number(i));
  }
  return {};
}

Status CheckpointSet::FindVariables() {
  std::vector<std::map<std::string, std::vector<std::string>>> split;
  for (const TensorFile& file : files_) split.push_back(PiecesIn(file));
  for (const VariableSpec& spec : ModelVariables(words_.model)) {
    Variable& variable = variables_[spec.name];
    variable.shape = spec.shape;
    for (std::size_t f = 0; f < files_.size(); ++f) {
      std::vector<std::string> tensors;
      if (const auto pieces = split[f].find(spec.name); pieces != split[f].end()) {
        tensors = pieces->second;
      } else if (files_[f].Find(spec.name) != nullptr) {
        tensors = {spec.name};
      }
      for (const std::string& tensor : tensors) {
        PASSEL_RETURN_IF_ERROR(AddPiece(f, tensor, &variable));
      }
    }
    std::ranges::sort(variable.pieces, {}, &Piece::first_row);
    std::int64_t next = 0;
    for (const Piece& piece : variable.pieces) {
      if (piece.first_row != next) break;
      next += piece.rows;
    }
    if (variable.pieces.empty()) {
      return Broken(fmt::format("there is no tensor \"{}\"", spec.name));
    }
    const Piece& last = variable.pieces.back();
    if (next != RowsIn(spec.shape) || last.first_row + last.rows != next) {
      return Broken(fmt::format("the parts of \"{}\" have not all of its {} rows, each once",
                                spec.name, RowsIn(spec.shape)));
    }
  }
  return {};
}

// A tensor that has some rows of the variable, or all of them, and its slot variables.
Status CheckpointSet::AddPiece(std::size_t file, const std::string& tensor,
                               Variable* variable) const {
  Piece piece{0, RowsIn(variable->shape), file, {}};
  const std::int64_t all = piece.rows;
  if (const std::string& text = files_[file].Word(RowsKey(tensor)); !text.empty()) {
    const std::optional<RowsOf> rows = ParseRows(text);
    const TensorFile::Tensor* const values = files_[file].Find(tensor);
    if (!rows || values == nullptr || rows->all != all) {
      return Broken(fmt::format("{} says {} of the rows of \"{}\", which has {} in all",
                                files_[file].path(), Quoted(text), tensor, all));
    }
    piece.first_row = rows->first;
    piece.rows = RowsIn(values->shape);
  }
  const std::vector<std::int64_t> shape = WithRows(variable->shape, piece.rows);
  for (std::size_t k = 0; k <= optimizer_.slots.size(); ++k) {
    const std::string name = k == 0 ? tensor : SlotTensor(tensor, optimizer_.slots[k - 1]);
    const TensorFile::Tensor* const found = files_[file].Find(name);
    if (found == nullptr) return Broken(fmt::format("there is no tensor \"{}\"", name));
    if (found->dtype != DType::kF32 || found->shape != shape) {
      return Broken(fmt::format("tensor \"{}\" is {} of shape {}, not F32 of shape {}", name,
                                DTypeName(found->dtype), InBrackets(found->shape),
                                InBrackets(shape)));
    }
    piece.tensors.push_back(found);
  }
  variable->pieces.push_back(std::move(piece));
  return {};
}

JobProgress CheckpointSet::ProgressOn(int shards) const {
  JobProgress progress = saved_;
  progress.shards.assign(
      static_cast<std::size_t>(shards),
      {static_cast<Version>(saved_.global_step), saved_.shards[0].optimizer_step});
  return progress;
}

Status CheckpointSet::Check(const VariableTable& variables, const OptimizerWords& optimizer) const {
  std::map<std::string, std::vector<std::int64_t>> shapes;  // of the job
  for (const VariableInfo& v : variables.all()) {
    std::vector<std::int64_t>& shape = shapes[v.logical];
    if (shape.empty()) shape = v.shape;
    if (!shape.empty()) shape[0] = std::max(shape[0], v.first_row + v.shape[0]);
  }
  std::vector<std::string> differences;
  for (const auto& [name, shape] : shapes) {
    const auto here = variables_.find(name);
    if (here == variables_.end()) {
      differences.push_back(fmt::format("it has no \"{}\"", name));
    } else if (here->second.shape != shape) {
      differences.push_back(fmt::format("\"{}\" is {} there and {} in the job", name,
                                        InBrackets(here->second.shape), InBrackets(shape)));
    }
  }
  for (const auto& [name, variable] : variables_) {
    if (!shapes.contains(name)) {
      differences.push_back(fmt::format("the job has no \"{}\"", name));
    }
  }
  if (!differences.empty()) {
    constexpr std::size_t kShown = 4;
    const std::size_t shown = std::min(differences.size(), kShown);
    return InvalidArgument(fmt::format(
        "{} is of another model: {}{}", name_,
        fmt::join(differences.begin(), differences.begin() + static_cast<int>(shown), ", "),
        shown < differences.size() ? fmt::format(" and {} more", differences.size() - shown) : ""));
  }
  if (optimizer == optimizer_) return CheckRates(variables);
  const auto text = [](const OptimizerWords& words) {
    return words.slots.empty() ? words.name
                               : fmt::format("{} ({})", words.name, fmt::join(words.slots, ", "));
  };
  return InvalidArgument(fmt::format("{} has the slot variables of {}, the job needs those of {}",
                                     name_, text(optimizer_), text(optimizer)));
}

Status CheckpointSet::CheckRates(const VariableTable& variables) const {
  const std::size_t groups = saved_.rates.size();
  if (groups == 0 || std::cmp_equal(groups, variables.groups())) return {};
  return InvalidArgument(fmt::format("{} has the rates of {} groups of variables, the job has {}",
                                     name_, groups, variables.groups()));
}

const std::vector<std::int64_t>* CheckpointSet::ShapeOf(std::string_view variable) const {
  const auto found = variables_.find(variable);
  return found == variables_.end() ? nullptr : &found->second.shape;
}

Status CheckpointSet::Fill(const VariableInfo& piece, int k, std::span<float> out) const {
  PASSEL_CHECK(k >= 0 && static_cast<std::size_t>(k) <= optimizer_.slots.size(), "such a slot is");
  PASSEL_CHECK(out.size() == piece.elements, "room for the piece");
  const auto found = variables_.find(piece.logical);
  if (found == variables_.end()) {
    return NotFound(
        fmt::format("{} has no \"{}\": name a checkpoint of this model", name_, piece.logical));
  }
  const Variable& variable = found->second;
  const std::int64_t first = piece.first_row, rows = RowsIn(piece.shape);
  if (piece.shape != WithRows(variable.shape, rows) || first < 0 ||
      first > RowsIn(variable.shape) - rows) {
    return InvalidArgument(fmt::format(
        "\"{}\" of {} has the shape {}, which has no rows {} to {} of shape {}: name a checkpoint "
        "of this model",
        piece.logical, name_, InBrackets(variable.shape), first, first + rows,
        InBrackets(piece.shape)));
  }
  const std::size_t columns = rows == 0 ? 0 : piece.elements / static_cast<std::size_t>(rows);
  for (const Piece& from : variable.pieces) {
    const std::int64_t begin = std::max(first, from.first_row);
    const std::int64_t end = std::min(first + rows, from.first_row + from.rows);
    if (begin >= end) continue;
    const auto floats_of = [&](std::int64_t some) {
      return static_cast<std::size_t>(some) * columns;
    };
    PASSEL_RETURN_IF_ERROR(files_[from.file].Read(
        *from.tensors[static_cast<std::size_t>(k)],
        floats_of(begin - from.first_row) * sizeof(float),
        std::as_writable_bytes(out.subspan(floats_of(begin - first), floats_of(end - begin)))));
  }
  return {};
}

}  // namespace passel

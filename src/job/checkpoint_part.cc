#include "job/checkpoint_part.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/json_fields.h"
#include "io/checked_writer.h"
#include "io/checkpoint_folder.h"
#include "optim/optimizer_table.h"

namespace passel::job {
namespace {

constexpr std::size_t kMaxSaveWord = 64;  // bytes

// Which tensors a part has, and those of them that are known before the values.
class PartTensors {
 public:
  PartTensors(const PartOrder& order, const StorePlan& plan, const JobProgress& progress)
      : optimizer_(OptimizerWordsOf(plan.optimizer)) {
    for (const VariableInfo& v : plan.variables.all()) {
      if (v.shard != order.part) continue;
      variables_.push_back({&v, specs_.size()});
      specs_.push_back({v.name, DType::kF32, v.shape});
      for (const std::string& slot : optimizer_.slots) {
        specs_.push_back({SlotTensor(v.name, slot), DType::kF32, v.shape});
      }
    }
    const JobProgress::Shard& shard = progress.shards[static_cast<std::size_t>(order.part)];
    AddNumbers(fmt::format("ps/{}/version", order.part), {},
               {static_cast<std::int64_t>(shard.version)});
    AddNumbers(fmt::format("ps/{}/optimizer_step", order.part), {}, {shard.optimizer_step});
    if (order.part == 0) AddLead(order.step, plan.optimizer, progress);
  }

  struct Variable {
    const VariableInfo* info;
    std::size_t first;  // of its tensors: the values, then the slot variables
  };
  const std::vector<Variable>& variables() const { return variables_; }  // by their offsets
  const OptimizerWords& optimizer() const { return optimizer_; }
  const std::vector<TensorSpec>& specs() const { return specs_; }

  Status WriteNumbers(CheckedWriter& writer) const {
    for (const auto& [tensor, numbers] : numbers_) {
      PASSEL_RETURN_IF_ERROR(writer.Append(tensor, std::as_bytes(std::span(numbers))));
    }
    for (const auto& [tensor, power] : powers_) {
      PASSEL_RETURN_IF_ERROR(writer.Append(tensor, std::as_bytes(std::span(&power, 1))));
    }
    return {};
  }

 private:
  void AddNumbers(std::string name, std::vector<std::int64_t> shape,
                  std::vector<std::int64_t> numbers) {
    numbers_.emplace_back(specs_.size(), std::move(numbers));
    specs_.push_back({std::move(name), DType::kI64, std::move(shape)});
  }

  void AddBatches(const JobProgress::Batches& batches) {
    if (batches.rules.examples == 0) return;
    std::vector<std::int64_t> numbers;
    for (const std::uint64_t number :
         {batches.rules.examples, batches.rules.batch_size, batches.rules.order, batches.next}) {
      numbers.push_back(static_cast<std::int64_t>(number));
    }
    numbers.insert(numbers.end(), batches.open.begin(), batches.open.end());
    const auto size = static_cast<std::int64_t>(numbers.size());
    AddNumbers("worker/batches", {size}, std::move(numbers));
  }

  void AddLead(std::int64_t step, const OptimizerConfig& config, const JobProgress& progress) {
    AddNumbers("global_step", {}, {step});
    std::vector<std::int64_t> clocks, local_steps, cursors;
    for (const JobProgress::Worker& worker : progress.workers) {
      clocks.push_back(static_cast<std::int64_t>(worker.clock));
      local_steps.push_back(static_cast<std::int64_t>(worker.local_steps));
      cursors.push_back(static_cast<std::int64_t>(worker.cursor_epochs));
      cursors.push_back(static_cast<std::int64_t>(worker.cursor_index));
    }
    const auto workers = static_cast<std::int64_t>(progress.workers.size());
    AddNumbers("worker/clocks", {workers}, std::move(clocks));
    AddNumbers("worker/cursors", {workers, 2}, std::move(cursors));
    AddNumbers("worker/local_steps", {workers}, std::move(local_steps));
    AddBatches(progress.batches);
    if (!RowOf(config.kind).counts_steps) return;
    // TensorFlow's begin at beta and are multiplied after each update.
    const auto next = static_cast<double>(progress.shards[0].optimizer_step + 1);
    for (const auto& [name, beta] :
         {std::pair{"beta1_power", config.adam_beta1}, {"beta2_power", config.adam_beta2}}) {
      powers_.emplace_back(specs_.size(), static_cast<float>(std::pow(beta, next)));
      specs_.push_back({name, DType::kF32, {}});
    }
  }

  OptimizerWords optimizer_;
  std::vector<TensorSpec> specs_;
  std::vector<Variable> variables_;
  std::vector<std::pair<std::size_t, std::vector<std::int64_t>>> numbers_;  // tensor, contents
  std::vector<std::pair<std::size_t, float>> powers_;
};

SafetensorsMetadata MetadataOf(const PartOrder& order, const StorePlan& plan,
                               const JobProgress& progress, const PartTensors& tensors,
                               const MixedBlocks& blocks) {
  SafetensorsMetadata metadata = order.metadata;
  metadata[kSaveKey] = order.save;
  metadata[kPartKey] = std::to_string(order.part);
  metadata[kPartsKey] = std::to_string(order.parts);
  metadata[kStepKey] = std::to_string(order.step);
  metadata[kMixedBlocksKey] = ToText(blocks);
  AddWords(tensors.optimizer(), &metadata);
  if (order.part == 0) AddWords(progress.rates, &metadata);
  std::map<std::string_view, std::int64_t> rows;  // of variables in parts
  for (const VariableInfo& v : plan.variables.all()) {
    if (v.name != v.logical) rows[v.logical] += v.shape.empty() ? 1 : v.shape[0];
  }
  for (const PartTensors::Variable& variable : tensors.variables()) {
    const VariableInfo& v = *variable.info;
    if (v.name == v.logical) continue;
    metadata[RowsKey(v.name)] = ToText(RowsOf{v.first_row, rows.at(v.logical)});
  }
  return metadata;
}

Status CheckOrder(const PartOrder& order, const StorePlan& plan, const JobProgress& progress) {
  if (order.parts != plan.variables.shards() || order.part < 0 || order.part >= order.parts) {
    return InvalidArgument(
        fmt::format("part {} of {} is none of a checkpoint of {} shards: order one part of each",
                    order.part, order.parts, plan.variables.shards()));
  }
  PASSEL_CHECK(progress.shards.size() > static_cast<std::size_t>(order.part),
               "the progress of the shard is there");
  return {};
}

Status WriteBlocks(const PartTensors& tensors, std::size_t block_floats, PartSource& source,
                   CheckedWriter& writer, MixedBlocks* count) {
  const std::size_t contents = 1 + tensors.optimizer().slots.size();
  std::vector<float> memory(contents * block_floats);
  std::vector<float*> out;
  for (std::size_t k = 0; k < contents; ++k) out.push_back(memory.data() + k * block_floats);
  auto variable = tensors.variables().begin();
  for (std::size_t block = 0; block < count->blocks; ++block) {
    PASSEL_ASSIGN_OR_RETURN(const bool whole, source.ReadBlock(block, out));
    if (!whole) ++count->mixed;
    const std::size_t begin = block * block_floats, end = begin + block_floats;
    // All variables that have floats in this block; the last one may go on in the next.
    for (; variable != tensors.variables().end(); ++variable) {
      const VariableInfo& v = *variable->info;
      const std::size_t from = std::max(begin, v.offset);
      const std::size_t to = std::min(end, v.offset + v.elements);
      for (std::size_t k = 0; k < contents && from < to; ++k) {
        PASSEL_RETURN_IF_ERROR(writer.Append(
            variable->first + k,
            std::as_bytes(std::span<const float>(out[k] + (from - begin), to - from))));
      }
      if (v.offset + v.elements > end) break;
    }
  }
  return {};
}

// Large enough to be written without a copy, small enough to be given up soon.
constexpr std::size_t kWholePiece = std::size_t{1} << 21;  // floats

Status WriteWhole(const PartTensors& tensors, const PartSource::Whole& whole, PartSource& source,
                  CheckedWriter& writer) {
  for (const PartTensors::Variable& variable : tensors.variables()) {
    const VariableInfo& v = *variable.info;
    for (std::size_t begin = 0; begin < v.elements; begin += kWholePiece) {
      const std::size_t size = std::min(kWholePiece, v.elements - begin);
      for (std::size_t k = 0; k < whole.contents.size(); ++k) {
        const std::span<const float> piece(whole.contents[k] + v.offset + begin, size);
        PASSEL_RETURN_IF_ERROR(source.CheckPiece(k == 0 ? piece : std::span<const float>()));
        PASSEL_RETURN_IF_ERROR(writer.Append(variable.first + k, std::as_bytes(piece)));
      }
      source.DoneWith(v.offset + begin + size);
    }
  }
  return {};
}

}  // namespace

void JsonMembers(auto& members, JsonPart<PartOrder> auto& order) {
  members("folder", order.folder);
  members("step", order.step, static_cast<std::uint64_t>(kMaxCheckpointStep));
  members("save", order.save, kMaxSaveWord);
  members("part", order.part, kMaxCheckpointParts - 1);
  members("parts", order.parts, kMaxCheckpointParts);
  Json metadata = Json::MakeObject();
  for (const auto& [key, value] : order.metadata) metadata.AddMember(key, value);
  members("metadata", metadata);
  if constexpr (kReadsJson<decltype(members)>) {
    if (metadata.object() == nullptr) return members.Refuse("\"metadata\" must be an object");
    for (const auto& [key, value] : *metadata.object()) {
      if (value.text() == nullptr) return members.Refuse("all of \"metadata\" must be texts");
      order.metadata[key] = *value.text();
    }
    if (order.folder.empty()) members.Refuse("\"folder\" must name one");
    if (order.save.empty()) members.Refuse("\"save\" must be a word");
    if (order.part >= order.parts) members.Refuse("\"part\" must be less than \"parts\"");
  }
}

std::string ToJson(const PartOrder& order) { return JsonOf(order).Write(); }

Result<PartOrder> PartOrderFromJson(const std::string& text) {
  constexpr std::string_view kWhat = "the order to save";
  PASSEL_ASSIGN_OR_RETURN(const Json json, ParseJson(kWhat, text, 2));
  PartOrder order;
  PASSEL_RETURN_IF_ERROR(ReadJson(kWhat, json, &order));
  return order;
}

OptimizerWords OptimizerWordsOf(const OptimizerConfig& optimizer) {
  OptimizerWords words{std::string(OptimizerName(optimizer.kind)), {}};
  for (int slot = 0; slot < NumSlots(optimizer); ++slot) {
    words.slots.emplace_back(SlotName(optimizer, slot));
  }
  return words;
}

CopySource::CopySource(std::vector<const float*> contents, std::size_t floats,
                       std::size_t block_floats)
    : whole_{std::move(contents)}, floats_(floats), block_floats_(block_floats) {}

Result<bool> CopySource::ReadBlock(std::size_t block, std::span<float* const> out) {
  PASSEL_CHECK(out.size() == whole_.contents.size(),
               "the values and all slot variables are asked for");
  const std::size_t begin = block * block_floats_;
  const std::size_t size = std::min(block_floats_, floats_ - begin);
  for (std::size_t k = 0; k < out.size(); ++k) {
    std::memcpy(out[k], whole_.contents[k] + begin, size * sizeof(float));
  }
  return true;
}

Result<PartWritten> WritePart(const PartOrder& order, const StorePlan& plan,
                              const JobProgress& progress, PartSource& source, FileOps& ops) {
  PASSEL_RETURN_IF_ERROR(CheckOrder(order, plan, progress));
  const std::int64_t begin_ns = MonotonicNs();
  const PartTensors tensors(order, plan, progress);
  MixedBlocks count{0, plan.NumBlocks(order.part)};
  PASSEL_ASSIGN_OR_RETURN(
      CheckedWriter writer,
      CheckedWriter::Create(PartPath(order.folder, order.step, order.part, order.parts),
                            tensors.specs(), MetadataOf(order, plan, progress, tensors, count),
                            ops));
  PASSEL_RETURN_IF_ERROR(tensors.WriteNumbers(writer));

  Words late;
  if (const PartSource::Whole* whole = source.whole()) {
    PASSEL_RETURN_IF_ERROR(WriteWhole(tensors, *whole, source, writer));
    PASSEL_RETURN_IF_ERROR(source.EndOfPieces(&late));
    count.mixed = whole->mixed;
  } else {
    PASSEL_RETURN_IF_ERROR(WriteBlocks(tensors, plan.block_floats, source, writer, &count));
  }
  late[kMixedBlocksKey] = ToText(count);
  Failpoint("checkpoint.part");
  PASSEL_RETURN_IF_ERROR(writer.Finish(late));
  return PartWritten{writer.bytes(), count.blocks, count.mixed,
                     1e-9 * static_cast<double>(MonotonicNs() - begin_ns)};
}

}  // namespace passel::job

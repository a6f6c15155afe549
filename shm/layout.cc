#include "shm/layout.h"

#include <fmt/core.h>

#include <cstring>

#include "base/hash.h"

namespace passel::shm {
namespace {

constexpr std::uint64_t kMost = std::uint64_t{1} << 62;

// Adds up the parts; sticks at "too large".
class Allocator {
 public:
  std::uint64_t Take(std::uint64_t count, std::uint64_t bytes_each, std::uint64_t alignment) {
    end_ = (end_ + alignment - 1) / alignment * alignment;
    const std::uint64_t begin = end_;
    std::uint64_t bytes = 0;
    if (__builtin_mul_overflow(count, bytes_each, &bytes) || bytes > kMost - end_) {
      too_large_ = true;
    } else {
      end_ += bytes;
    }
    return begin;
  }
  std::uint64_t end() const { return end_; }
  bool too_large() const { return too_large_; }

 private:
  std::uint64_t end_ = 0;
  bool too_large_ = false;
};

void CopyText(char* out, std::size_t capacity, const std::string& text) {
  PASSEL_CHECK(text.size() < capacity, "text was checked before");
  std::memcpy(out, text.data(), text.size());
}

// Text in an array that may lack its NUL.
std::string ReadText(const char* text, std::size_t capacity) {
  return std::string(text, strnlen(text, capacity));
}

}  // namespace

std::uint64_t StructureHash() {
  Fnv1a hash;
  for (const std::size_t number : {sizeof(ArenaHeader),
                                   offsetof(ArenaHeader, replicas_to_aggregate),
                                   offsetof(ArenaHeader, offsets),
                                   offsetof(ArenaHeader, ready),
                                   sizeof(VariableRecord),
                                   sizeof(TaskSlot),
                                   offsetof(TaskSlot, arrival),
                                   offsetof(TaskSlot, counted_round),
                                   offsetof(TaskSlot, change_arrival),
                                   offsetof(TaskSlot, proposal),
                                   offsetof(TaskSlot, clock),
                                   offsetof(TaskSlot, counters),
                                   sizeof(WorkerCounters),
                                   offsetof(WorkerCounters, max_clock_lead),
                                   offsetof(WorkerCounters, staleness),
                                   sizeof(Histogram),
                                   sizeof(ShardState),
                                   offsetof(ShardState, decision),
                                   offsetof(ShardState, cohort),
                                   offsetof(ShardState, event),
                                   offsetof(ShardState, mode),
                                   sizeof(ModeState),
                                   offsetof(ShardState, device),
                                   sizeof(DeviceState),
                                   offsetof(ArenaHeader, schedule),
                                   sizeof(BlockState),
                                   sizeof(EventRing),
                                   sizeof(OptimizerConfig),
                                   sizeof(ProcessIdentity),
                                   static_cast<std::size_t>(kMaxWorkers),
                                   static_cast<std::size_t>(kMaxSlots)}) {
    hash.AddNumber(number);
  }
  return hash.value();
}

Result<Offsets> ComputeOffsets(const StorePlan& plan, int shard) {
  const std::uint64_t floats = plan.variables.ShardFloats(shard);
  const auto workers = static_cast<std::uint64_t>(plan.num_workers);
  const auto slots = static_cast<std::uint64_t>(NumSlots(plan.optimizer));
  constexpr std::uint64_t kPage = 4096;
  Allocator allocator;
  Offsets o{};
  allocator.Take(1, kHeaderBytes, 1);
  o.tasks = allocator.Take(workers, sizeof(TaskSlot), 128);
  o.variables = allocator.Take(plan.variables.size(), sizeof(VariableRecord), 128);
  o.values = allocator.Take(floats, sizeof(float), kPage);
  // Each slot variable and each gradient slot directly behind the one before.
  o.slots = allocator.Take(floats * slots, sizeof(float), kPage);
  o.gradients = allocator.Take(
      floats, sizeof(float) * workers * static_cast<std::uint64_t>(plan.gradient_slots), kPage);
  // In every mode: it may change to one with rounds.
  o.undo =
      allocator.Take(workers * (1 + slots), PieceFloats(plan.block_floats) * sizeof(float), 128);
  o.state = allocator.Take(1, sizeof(ShardState), 128);
  o.blocks = allocator.Take(plan.NumBlocks(shard), sizeof(BlockState), 128);
  o.events = allocator.Take(1, sizeof(EventRing), 128);
  o.end = allocator.end();
  if (allocator.too_large()) {
    return ResourceExhausted(fmt::format(
        "{} values with {} slot variables for {} workers do not fit an address space: use a "
        "smaller model or fewer workers",
        floats, slots, workers));
  }
  return o;
}

void WriteHeader(const StorePlan& plan, int shard, const Offsets& offsets,
                 const std::string& job_id, std::uint64_t cluster_hash, std::size_t size_bytes,
                 void* base) {
  auto* header = static_cast<ArenaHeader*>(base);
  header->magic = kArenaMagic;
  header->layout_version = kLayoutVersion;
  header->header_bytes = kHeaderBytes;
  header->structure_hash = StructureHash();
  header->plan_hash = plan.Hash();
  header->cluster_hash = cluster_hash;
  header->size_bytes = size_bytes;
  CopyText(header->job_id, sizeof header->job_id, job_id);
  header->shard = static_cast<std::uint32_t>(shard);
  header->num_shards = static_cast<std::uint32_t>(plan.variables.shards());
  header->mode = static_cast<std::uint32_t>(plan.mode);
  header->num_workers = static_cast<std::uint32_t>(plan.num_workers);
  header->gradient_slots = static_cast<std::uint32_t>(plan.gradient_slots);
  header->num_variables = static_cast<std::uint32_t>(plan.variables.size());
  header->replicas_to_aggregate = static_cast<std::uint32_t>(plan.replicas_to_aggregate);
  header->staleness_bound = static_cast<std::uint32_t>(plan.staleness_bound);
  header->on_device = plan.on_device ? 1 : 0;
  header->num_scheduled = static_cast<std::uint32_t>(plan.schedule.size());
  for (std::size_t i = 0; i < plan.schedule.size(); ++i) {
    const ScheduledMode& entry = plan.schedule[i];
    header->schedule[i] = {entry.step, static_cast<std::uint32_t>(entry.setting.mode),
                           static_cast<std::uint32_t>(entry.setting.replicas_to_aggregate),
                           static_cast<std::uint32_t>(entry.setting.staleness_bound), 0};
  }
  header->block_floats = plan.block_floats;
  header->optimizer = plan.optimizer;
  header->offsets = offsets;
  auto* record = reinterpret_cast<VariableRecord*>(static_cast<char*>(base) + offsets.variables);
  for (const VariableInfo& v : plan.variables.all()) {
    CopyText(record->name, sizeof record->name, v.name);
    CopyText(record->logical, sizeof record->logical, v.logical);
    record->rank = static_cast<std::uint32_t>(v.shape.size());
    for (std::size_t d = 0; d < v.shape.size(); ++d) record->shape[d] = v.shape[d];
    record->shard = static_cast<std::uint32_t>(v.shard);
    record->first_row = v.first_row;
    ++record;
  }
}

Result<CheckedHeader> ReadHeader(const void* base, std::size_t size_bytes) {
  if (size_bytes < kHeaderBytes) {
    return DataLoss(
        fmt::format("an arena has at least {} bytes, this one has {}", kHeaderBytes, size_bytes));
  }
  // Copied first: what was checked cannot change afterwards.
  alignas(ArenaHeader) std::byte copy[sizeof(ArenaHeader)];
  std::memcpy(copy, base, sizeof copy);
  const auto& header = *reinterpret_cast<const ArenaHeader*>(copy);
  if (header.magic != kArenaMagic) {
    return FailedPrecondition(
        fmt::format("this is not a passel arena: it begins with {:#018x}, not "
                    "{:#018x}",
                    header.magic, kArenaMagic));
  }
  if (header.layout_version != kLayoutVersion || header.structure_hash != StructureHash()) {
    return FailedPrecondition(fmt::format(
        "the arena was made by a build with layout {} ({:016x}), this build has layout {} "
        "({:016x}): start all tasks from the same build of passel",
        header.layout_version, header.structure_hash, kLayoutVersion, StructureHash()));
  }
  const auto corrupt = [](const std::string& what) {
    return DataLoss(fmt::format("the arena's header is not valid: {}", what));
  };
  if (header.header_bytes != kHeaderBytes || header.size_bytes != size_bytes) {
    return corrupt(fmt::format("it says {} bytes, the file has {}", header.size_bytes, size_bytes));
  }
  if (header.num_shards < 1 || header.num_shards > kMaxShards ||
      header.shard >= header.num_shards) {
    return corrupt(fmt::format("shard {} of {}", header.shard, header.num_shards));
  }
  if (header.mode > static_cast<std::uint32_t>(kLastMode)) {
    return corrupt(fmt::format("mode {}", header.mode));
  }
  if (header.num_scheduled > static_cast<std::uint32_t>(kMaxScheduledModes)) {
    return corrupt(fmt::format("a schedule of {} modes", header.num_scheduled));
  }
  if (header.num_workers > kMaxWorkers || header.gradient_slots > kMaxGradientSlots ||
      header.num_variables > kMaxVariables) {
    return corrupt(fmt::format("{} workers, {} gradient slots, {} variables", header.num_workers,
                               header.gradient_slots, header.num_variables));
  }
  if (header.offsets.variables > size_bytes ||
      header.num_variables > (size_bytes - header.offsets.variables) / sizeof(VariableRecord) ||
      header.offsets.variables % 128 != 0) {
    return corrupt(fmt::format("the variable table at {}", header.offsets.variables));
  }
  CheckedHeader result;
  std::vector<VariableInfo> variables;
  const auto* records = static_cast<const char*>(base) + header.offsets.variables;
  for (std::uint32_t i = 0; i < header.num_variables; ++i) {
    VariableRecord record;
    std::memcpy(&record, records + i * sizeof record, sizeof record);
    if (record.rank > kMaxRank || record.shard >= header.num_shards) {
      return corrupt(
          fmt::format("variable {} has rank {} on shard {}", i, record.rank, record.shard));
    }
    VariableInfo v;
    v.name = ReadText(record.name, sizeof record.name);
    v.logical = ReadText(record.logical, sizeof record.logical);
    v.shape.assign(record.shape, record.shape + record.rank);
    v.shard = static_cast<int>(record.shard);
    v.first_row = record.first_row;
    variables.push_back(std::move(v));
  }
  StorePlan& plan = result.plan;
  plan.mode = static_cast<Mode>(header.mode);
  plan.replicas_to_aggregate = static_cast<int>(header.replicas_to_aggregate);
  plan.staleness_bound = static_cast<int>(header.staleness_bound);
  if (header.on_device > 1) return corrupt(fmt::format("on_device {}", header.on_device));
  plan.on_device = header.on_device != 0;
  for (std::uint32_t i = 0; i < header.num_scheduled; ++i) {
    const ScheduleRecord& record = header.schedule[i];
    if (record.mode > static_cast<std::uint32_t>(kLastMode)) {
      return corrupt(fmt::format("mode {} in its schedule", record.mode));
    }
    ScheduledMode& entry = plan.schedule.emplace_back();
    entry.step = record.step;
    entry.setting = {static_cast<Mode>(record.mode), static_cast<int>(record.replicas_to_aggregate),
                     static_cast<int>(record.staleness_bound)};
  }
  plan.optimizer = header.optimizer;
  plan.num_workers = static_cast<int>(header.num_workers);
  plan.gradient_slots = static_cast<int>(header.gradient_slots);
  plan.block_floats = header.block_floats;
  Result<VariableTable> table =
      VariableTable::Build(std::move(variables), static_cast<int>(header.num_shards));
  if (!table.ok()) return corrupt(table.status().message());
  plan.variables = std::move(*table);
  if (Status status = plan.Validate(); !status.ok()) return corrupt(status.message());
  if (plan.Hash() != header.plan_hash) return corrupt("the plan does not match its hash");
  // The offsets follow from the plan: equality checks each of them against each of its limits.
  PASSEL_ASSIGN_OR_RETURN(result.offsets, ComputeOffsets(plan, static_cast<int>(header.shard)));
  if (!(result.offsets == header.offsets)) return corrupt("an offset is not where it must be");
  if (result.offsets.end > size_bytes) {
    return corrupt(
        fmt::format("{} bytes are needed, the file has {}", result.offsets.end, size_bytes));
  }
  result.shard = static_cast<int>(header.shard);
  result.job_id = ReadText(header.job_id, sizeof header.job_id);
  result.cluster_hash = header.cluster_hash;
  result.nonce = header.nonce;
  return result;
}

ShardMemory MapShard(void* base, const CheckedHeader& header) {
  const StorePlan& plan = header.plan;
  auto* bytes = static_cast<char*>(base);
  ShardMemory memory;
  memory.floats = plan.variables.ShardFloats(header.shard);
  memory.block_floats = plan.block_floats;
  memory.num_blocks = plan.NumBlocks(header.shard);
  memory.num_workers = plan.num_workers;
  memory.gradient_slots = plan.gradient_slots;
  memory.num_slots = NumSlots(plan.optimizer);
  memory.state = reinterpret_cast<ShardState*>(bytes + header.offsets.state);
  memory.tasks = reinterpret_cast<TaskSlot*>(bytes + header.offsets.tasks);
  memory.blocks = reinterpret_cast<BlockState*>(bytes + header.offsets.blocks);
  memory.events = reinterpret_cast<EventRing*>(bytes + header.offsets.events);
  memory.values = reinterpret_cast<float*>(bytes + header.offsets.values);
  for (int s = 0; s < memory.num_slots; ++s) {
    memory.slots[s] = reinterpret_cast<float*>(bytes + header.offsets.slots) +
                      static_cast<std::size_t>(s) * memory.floats;
  }
  memory.gradients = reinterpret_cast<float*>(bytes + header.offsets.gradients);
  memory.undo = reinterpret_cast<float*>(bytes + header.offsets.undo);
  return memory;
}

}  // namespace passel::shm

#include "shm/layout.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/hash.h"

namespace passel::shm {
namespace {

constexpr std::uint64_t kMost = std::uint64_t{1} << 62;

// Places the parts one behind the other, from `base` on; sticks at "too large".
class Parts {
 public:
  explicit Parts(void* base) : base_(reinterpret_cast<std::uintptr_t>(base)) {}

  /// T[count][times].
  template <typename T>
  T* Add(std::uint64_t count, std::uint64_t times = 1, std::uint64_t alignment = 128) {
    end_ = (end_ + alignment - 1) / alignment * alignment;
    const std::uint64_t begin = end_;
    std::uint64_t bytes = 0;
    if (__builtin_mul_overflow(count, times * sizeof(T), &bytes) || bytes > kMost - end_) {
      too_large_ = true;
    } else {
      end_ += bytes;
    }
    return reinterpret_cast<T*>(base_ + begin);
  }
  std::uint64_t end() const { return end_; }
  bool too_large() const { return too_large_; }

 private:
  const std::uintptr_t base_;
  std::uint64_t end_ = 0;
  bool too_large_ = false;
};

ShardMemory LayOut(const StorePlan& plan, int shard, Parts& parts) {
  constexpr std::uint64_t kPage = 4096;
  ShardMemory m = plan.ShapeOf(shard);
  const auto workers = static_cast<std::uint64_t>(m.num_workers);
  parts.Add<char>(kHeaderBytes);
  parts.Add<char>(ToJson(plan).size());
  m.tasks = parts.Add<TaskSlot>(workers);
  m.values = parts.Add<float>(m.floats, 1, kPage);
  // Each slot variable and each gradient slot directly behind the one before.
  for (int s = 0; s < m.num_slots; ++s) {
    m.slots[s] = parts.Add<float>(m.floats, 1, s == 0 ? kPage : sizeof(float));
  }
  m.gradients =
      parts.Add<float>(m.floats, workers * static_cast<std::uint64_t>(m.gradient_slots), kPage);
  // In every mode: it may change to one with rounds.
  m.undo = parts.Add<float>(PieceFloats(m.block_floats),
                            workers * static_cast<std::uint64_t>(1 + m.num_slots));
  m.state = parts.Add<ShardState>(1);
  m.blocks = parts.Add<BlockState>(m.num_blocks);
  m.events = parts.Add<EventRing>(1);
  return m;
}

}  // namespace

std::uint64_t StructureHash() {
  Fnv1a hash;
  const auto add = [&hash](auto... numbers) { (hash.AddNumber(numbers), ...); };
  add(sizeof(ArenaHeader), offsetof(ArenaHeader, plan_hash), offsetof(ArenaHeader, job_id),
      offsetof(ArenaHeader, ready));
  add(sizeof(TaskSlot), offsetof(TaskSlot, request), offsetof(TaskSlot, arrival),
      offsetof(TaskSlot, counted_round), offsetof(TaskSlot, change_arrival),
      offsetof(TaskSlot, overlapping), offsetof(TaskSlot, proposal), offsetof(TaskSlot, clock),
      offsetof(TaskSlot, counters), offsetof(TaskSlot, metrics), sizeof(MetricSlots),
      offsetof(TaskSlot, held));
  add(sizeof(WorkerCounters), offsetof(WorkerCounters, max_clock_lead),
      offsetof(WorkerCounters, staleness), sizeof(Histogram));
  add(sizeof(ShardState), offsetof(ShardState, decision), offsetof(ShardState, cohort),
      offsetof(ShardState, scale_wish), offsetof(ShardState, event), offsetof(ShardState, mode),
      offsetof(ShardState, device), offsetof(ShardState, batches), sizeof(BatchState),
      offsetof(BatchState, next), offsetof(BatchState, returned));
  add(sizeof(ModeState), offsetof(ModeState, starts), offsetof(ModeState, records),
      sizeof(DeviceState), sizeof(BlockState), offsetof(BlockState, overlaps), sizeof(EventRing),
      sizeof(ProcessIdentity), static_cast<std::size_t>(kMaxWorkers),
      static_cast<std::size_t>(kMaxSlots));
  return hash.value();
}

Result<std::uint64_t> ArenaBytes(const StorePlan& plan, int shard) {
  Parts parts(nullptr);
  const ShardMemory memory = LayOut(plan, shard, parts);
  if (!parts.too_large()) return parts.end();
  return ResourceExhausted(fmt::format(
      "{} values with {} slot variables for {} workers do not fit an address space: use a "
      "smaller model or fewer workers",
      memory.floats, memory.num_slots, memory.num_workers));
}

ShardMemory MapShard(const StorePlan& plan, int shard, void* base) {
  Parts parts(base);
  return LayOut(plan, shard, parts);
}

void WriteHeader(const StorePlan& plan, int shard, const std::string& job_id,
                 std::size_t size_bytes, void* base) {
  const std::string text = ToJson(plan);
  auto* header = static_cast<ArenaHeader*>(base);
  header->magic = kArenaMagic;
  header->layout_version = kLayoutVersion;
  header->structure_hash = StructureHash();
  header->size_bytes = size_bytes;
  header->shard = static_cast<std::uint32_t>(shard);
  header->plan_bytes = text.size();
  header->plan_hash = plan.Hash();
  PASSEL_CHECK(job_id.size() <= kMaxJobIdBytes, "the job id was checked before");
  std::memcpy(header->job_id, job_id.data(), job_id.size());
  std::memcpy(static_cast<char*>(base) + kHeaderBytes, text.data(), text.size());
}

Result<CheckedHeader> ReadHeader(const void* base, std::size_t size_bytes) {
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
  if (header.size_bytes != size_bytes) {
    return corrupt(fmt::format("it says {} bytes, the file has {}", header.size_bytes, size_bytes));
  }
  if (header.plan_bytes > std::min(kMaxPlanBytes, size_bytes - kHeaderBytes)) {
    return corrupt(fmt::format("a plan of {} bytes", header.plan_bytes));
  }
  const std::string text(static_cast<const char*>(base) + kHeaderBytes, header.plan_bytes);
  // It is the text that this build writes: what lies behind it begins where it ends.
  Result<StorePlan> plan = PlanFromJson(text);
  if (!plan.ok()) return corrupt(plan.status().message());
  if (plan->Hash() != header.plan_hash) return corrupt("the plan does not match its hash");
  if (header.shard >= static_cast<std::uint32_t>(plan->variables.shards())) {
    return corrupt(fmt::format("shard {} of {}", header.shard, plan->variables.shards()));
  }
  const auto shard = static_cast<int>(header.shard);
  PASSEL_ASSIGN_OR_RETURN(const std::uint64_t needed, ArenaBytes(*plan, shard));
  if (needed > size_bytes) {
    return corrupt(fmt::format("{} bytes are needed, the file has {}", needed, size_bytes));
  }
  return CheckedHeader{std::move(*plan),
                       shard,
                       {header.job_id, strnlen(header.job_id, sizeof header.job_id)},
                       header.nonce};
}

}  // namespace passel::shm

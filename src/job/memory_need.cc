#include "job/memory_need.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "nn/model.h"
#include "shm/layout.h"
#include "store/shard_buffer.h"

namespace passel::job {
namespace {

// Private memory of a process with its page tables, measured: 1.2 MiB of a ps; of a worker 1.5 MiB
// and what follows from its model.
constexpr std::uint64_t kPsBytes = 3 << 19;
constexpr std::uint64_t kWorkerBytes = 2 << 20;
// The matrix library packs blocks of so many rows, in each of two buffers.
constexpr std::uint64_t kPackedRows = 2 * 384;

std::uint64_t BytesOfProcess(const JobConfig& config, std::size_t batch) {
  std::size_t widest = config.model.inputs;
  for (const std::size_t width : config.model.hidden) widest = std::max(widest, width);
  return kWorkerBytes + kPackedRows * widest * sizeof(float) +
         Model::ActivationBytes(config.model, std::max(batch, kEvaluationBatch));
}

std::uint64_t BytesOfWorker(const JobConfig& config) {
  std::uint64_t bytes = BytesOfProcess(config, config.worker.batch_size);
  const auto towers = static_cast<std::size_t>(config.towers);
  if (towers > 1) {
    const std::size_t share = (config.worker.batch_size + towers - 1) / towers;
    bytes += towers * Model::ActivationBytes(config.model, share);
  }
  return bytes;
}

bool HasRounds(const StorePlan& plan) {
  return IsRoundMode(plan.mode.mode) ||
         std::ranges::any_of(plan.schedule, [](const ScheduledMode& change) {
           return IsRoundMode(change.setting.mode);
         });
}

std::vector<int> AllShards(const StorePlan& plan) {
  std::vector<int> shards(static_cast<std::size_t>(plan.variables.shards()));
  std::iota(shards.begin(), shards.end(), 0);
  return shards;
}

}  // namespace

Status CheckMemory(const StorePlan& plan, const JobConfig& config, const JobProcesses& processes) {
  PASSEL_ASSIGN_OR_RETURN(const MemoryBudget budget, ReadMemoryBudget());
  const double fraction = config.memory_fraction;
  std::uint64_t arenas = 0;
  for (int shard = 0; shard < plan.variables.shards(); ++shard) {
    PASSEL_ASSIGN_OR_RETURN(const std::uint64_t bytes, shm::ArenaBytes(plan, shard));
    arenas += bytes;
    const auto most =
        static_cast<std::uint64_t>(fraction * static_cast<double>(budget.available_bytes));
    if (fraction == 1 || bytes <= most) continue;
    return ResourceExhausted(fmt::format(
        "the arena of ps/{} needs {} bytes, --memory_fraction {} of what {} has free are {}: raise "
        "it, or use a smaller model or more ps",
        shard, bytes, fraction, budget.limit, most));
  }
  const auto ps = static_cast<std::uint64_t>(processes.ps);
  const auto workers = static_cast<std::uint64_t>(processes.workers);
  const std::uint64_t others = ps * kPsBytes + workers * BytesOfWorker(config) +
                               (processes.evaluator ? BytesOfProcess(config, 0) : 0);
  if (arenas + others <= budget.available_bytes) {
    return CheckSaveMemory(plan, config.checkpoints, AllShards(plan),
                           OfFreeMemory(arenas, config) + others, budget);
  }
  return ResourceExhausted(fmt::format(
      "the job needs {} bytes of memory beside its data, {} of them for {} parameters and about {} "
      "for {} workers, {} has {} bytes free: use a smaller model or batch or fewer workers, or "
      "raise the limit (in a container, its memory limit)",
      arenas + others, arenas, plan.variables.TotalElements(), others, workers, budget.limit,
      budget.available_bytes));
}

Status CheckWorkerMemory(const JobConfig& config) {
  PASSEL_ASSIGN_OR_RETURN(const MemoryBudget budget, ReadMemoryBudget());
  const std::uint64_t bytes = BytesOfWorker(config);
  if (bytes <= budget.available_bytes) return {};
  return ResourceExhausted(fmt::format(
      "this worker needs about {} bytes of memory for its computation, {} has {} bytes free: use a "
      "smaller model or batch, or raise the limit (in a container, its memory limit)",
      bytes, budget.limit, budget.available_bytes));
}

Status CheckSaveMemory(const StorePlan& plan, const CheckpointConfig& checkpoints,
                       std::span<const int> shards, std::uint64_t beside,
                       const MemoryBudget& budget) {
  const bool saves =
      !checkpoints.folder.empty() && (checkpoints.interval.count() > 0 || checkpoints.steps > 0);
  const bool rounds = HasRounds(plan);
  if (!saves || (!rounds && !checkpoints.consistent)) return {};
  std::uint64_t copied = 0;
  for (const int shard : shards) copied += ContentsBytes(plan.ShapeOf(shard));
  if (beside + copied <= budget.available_bytes) return {};
  return ResourceExhausted(fmt::format(
      "{} a checkpoint is copied to memory before it is written, which needs {} bytes beside {} of "
      "the job, and {} has {} bytes free: {}, save at the end alone (--save_secs=0), use a "
      "smaller model, or raise the limit (in a container, its memory limit)",
      rounds ? "in rounds" : "with --checkpoint_consistent", copied, beside, budget.limit,
      budget.available_bytes,
      rounds ? "use a mode without rounds" : "omit --checkpoint_consistent"));
}

std::uint64_t OfFreeMemory(std::uint64_t arena_bytes, const JobConfig& config) {
  return config.huge_pages == HugePages::kExplicit ? 0 : arena_bytes;
}

Status CheckSaveMemory(const StorePlan& plan, const JobConfig& config,
                       const std::function<bool(int shard)>& has_arena) {
  PASSEL_ASSIGN_OR_RETURN(const MemoryBudget budget, ReadMemoryBudget());
  std::uint64_t arenas = 0;
  for (int shard = 0; shard < plan.variables.shards(); ++shard) {
    if (has_arena(shard)) continue;
    PASSEL_ASSIGN_OR_RETURN(const std::uint64_t bytes, shm::ArenaBytes(plan, shard));
    arenas += bytes;
  }
  arenas = OfFreeMemory(arenas, config);
  // What does not fit at all is for the ps to say.
  if (arenas > budget.available_bytes) return {};
  return CheckSaveMemory(plan, config.checkpoints, AllShards(plan), arenas, budget);
}

}  // namespace passel::job

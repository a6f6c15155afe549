#include "job/memory_need.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/memory_file.h"
#include "nn/model.h"
#include "shm/layout.h"

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
  if (arenas + others <= budget.available_bytes) return {};
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

}  // namespace passel::job

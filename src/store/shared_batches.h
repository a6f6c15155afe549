// shared_batches.h - the batches of an epoch, each for one of the workers of a job.
//
// BatchState::next counts batches through all epochs: batch b is batch b mod per_epoch of epoch
// b / per_epoch. A worker holds what it was given, in words of its own slot, until a step of its
// own is counted or it finds nothing left. What a worker held when it died goes to its next life,
// or to whoever comes to the end of an epoch first. So each batch is given once if nobody dies, and
// at least once if somebody does:
//   a new one     in the own slot first, then `next` is raised by compare-and-swap. Who dies in
//                 between holds a batch that was not given, which its number says: not below `next`
//   another's     in the own slot first, then the other's word is cleared by compare-and-swap
//
// Threads    One per worker. Nobody waits.

#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/status.h"
#include "cluster/worker_names.h"
#include "store/batch_source.h"
#include "store/parameter_store.h"
#include "store/shard_memory.h"

namespace passel {

class SharedBatches final : public BatchSource {
 public:
  /// For a worker that runs. `end`: the first number that it does not want. Errors:
  /// kInvalidArgument, naming both, if the job shares something else.
  static Result<std::unique_ptr<SharedBatches>> Create(const ShardMemory& lead, int worker,
                                                       const BatchRules& rules, std::uint64_t end,
                                                       const WorkerNames& names = {});

  Result<std::optional<std::uint64_t>> Next() override;
  std::optional<int> StillHeldBy() override;
  void Done() override;

 private:
  SharedBatches(const ShardMemory& lead, int worker, std::uint32_t epoch, std::uint64_t per_epoch,
                std::uint64_t end)
      : lead_(lead), worker_(worker), epoch_(epoch), per_epoch_(per_epoch), end_(end) {}
  std::atomic<std::uint64_t>& Own(int place) const;
  std::uint64_t Given() const { return lead_.state->batches.next.load(std::memory_order_seq_cst); }
  int FreePlace();
  void LetGo(int place);
  std::uint64_t Hold(int place, std::uint64_t batch);
  std::optional<std::uint64_t> FromFormerLife();
  std::optional<std::uint64_t> FromReturned();
  std::optional<std::uint64_t> FromOthers();
  std::optional<std::uint64_t> TakeOver(std::atomic<std::uint64_t>& from, std::uint64_t word,
                                        std::uint64_t batch);

  const ShardMemory lead_;
  const int worker_;
  const std::uint32_t epoch_;  // of its life
  const std::uint64_t per_epoch_, end_;
  std::array<std::uint64_t, kHeldBatches> held_{};  // 0: not by us; else which it was, from 1
  std::uint64_t count_ = 0;
  bool none_returned_ = false;
};

/// What a checkpoint says of them. Never too little if the values are copied afterwards.
JobProgress::Batches BatchesOf(const ShardMemory& lead);
/// REQUIRES: a job that has not begun; at most kHeldBatches * kMaxWorkers are open.
void RestoreBatches(const ShardMemory& lead, const JobProgress::Batches& batches);

}  // namespace passel

#include "store/scale.h"

#include <fmt/core.h>

#include "base/event_word.h"
#include "store/membership.h"

namespace passel {

ScaleWord WishedScale(const ShardMemory& lead) {
  return ScaleWord::Unpack(lead.state->scale_wish.load(std::memory_order_seq_cst));
}

ScaleWord DoneScale(const ShardMemory& lead) {
  return ScaleWord::Unpack(lead.state->scale_done.load(std::memory_order_seq_cst));
}

int WantedWorkers(const ShardMemory& lead) {
  const ScaleWord wish = WishedScale(lead);
  return wish.number > 0 ? static_cast<int>(wish.workers) : lead.num_workers - lead.spare_workers;
}

Result<std::uint32_t> WishForWorkers(const ShardMemory& lead, std::int64_t workers) {
  if (workers < 1) {
    return InvalidArgument(
        fmt::format("a job has at least 1 worker, not {}: to end it use passel ctl stop", workers));
  }
  if (workers > lead.num_workers) {
    return InvalidArgument(fmt::format(
        "this job was started with memory for up to {} workers, not {}: use at most {}, or start "
        "it again with --max_workers {} (with --checkpoint_dir it goes on where it was)",
        lead.num_workers, workers, lead.num_workers, workers));
  }
  for (;;) {
    std::uint64_t seen = lead.state->scale_wish.load(std::memory_order_seq_cst);
    const ScaleWord wish = ScaleWord::Unpack(seen);
    bool ending = lead.state->stop.load(std::memory_order_seq_cst) != 0;
    for (int k = 0; k < lead.num_workers; ++k) ending |= StateOf(lead, k).phase == Phase::kDone;
    if (ending) {
      return FailedPrecondition(
          "the job is ending: its number of workers does not change any more");
    }
    if (DoneScale(lead).number != wish.number) {
      if (static_cast<std::int64_t>(wish.workers) == workers) return wish.number;
      return AlreadyExists(fmt::format(
          "the job is changing to {} workers at this moment: try again when it has", wish.workers));
    }
    const ScaleWord next{wish.number + 1, static_cast<std::uint32_t>(workers)};
    if (lead.state->scale_wish.compare_exchange_strong(seen, next.Pack(),
                                                       std::memory_order_seq_cst)) {
      return next.number;
    }
  }
}

void EndScaling(const ShardMemory& lead, const ScaleWord& wish) {
  lead.state->scale_done.store(wish.Pack(), std::memory_order_seq_cst);
  Notify(lead.state->event);
}

}  // namespace passel

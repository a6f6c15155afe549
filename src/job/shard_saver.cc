#include "job/shard_saver.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.h"
#include "cluster/json_message.h"
#include "job/checkpoint_part.h"
#include "store/consistent_copy.h"
#include "store/shard_snapshot.h"

namespace passel::job {
namespace {

// Whoever asked has given up long before, and cancels it.
constexpr std::chrono::hours kPartLimit{1};

constexpr std::string_view kCopyNames[] = {"met", "live", "settled"};

}  // namespace

std::string_view PartCopyName(PartCopy how) { return kCopyNames[static_cast<std::size_t>(how)]; }

PartState StateOfPart(const ShardMemory& shard, bool lead) {
  PartState state;
  for (std::size_t b = 0; b < shard.num_blocks && !state.claimed; ++b) {
    state.claimed = shard.blocks[b].claim.load(std::memory_order_acquire) != 0;
  }
  if (!state.claimed) state.round = TakeShardSnapshot(shard, lead, {}).exact_round;
  return state;
}

void ShardSaver::Cancel() {
  quit_.store(true, std::memory_order_relaxed);
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;  // who is at it looks at quit_
  save_.reset();
  busy_.store(false, std::memory_order_release);
}

SaveLimits ShardSaver::Limits() const { return {quit_, Deadline::After(kPartLimit)}; }

Result<Errand> ShardSaver::Answer(const Errand& errand,
                                  const std::shared_ptr<const shm::Arena>& arena) {
  const std::lock_guard lock(mutex_);
  PASSEL_ASSIGN_OR_RETURN(const auto ask, Field<std::string>(errand.json, "ask"));
  Result<Errand> answer = FailedPrecondition("a ps is not asked that for a save");
  if (ask == "save_begin") {
    answer = Begin(errand.json, arena);
  } else if (ask == "save_copy") {
    answer = Copy();
  } else if (ask == "save_write") {
    answer = Write(errand);
    save_.reset();
  } else if (ask == "save_forget") {
    save_.reset();
    answer = Errand{{{"ok", true}}, ""};
  }
  if (!answer.ok()) save_.reset();
  busy_.store(save_.has_value(), std::memory_order_release);
  return answer;
}

Result<Errand> ShardSaver::Begin(const Json& question,
                                 const std::shared_ptr<const shm::Arena>& arena) {
  save_.reset();
  quit_.store(false, std::memory_order_relaxed);
  busy_.store(true, std::memory_order_release);
  PASSEL_ASSIGN_OR_RETURN(const auto name, Field<std::string>(question, "how"));
  PASSEL_ASSIGN_OR_RETURN(const auto cohort, Field<std::uint64_t>(question, "cohort"));
  const auto how = std::ranges::find(kCopyNames, name);
  if (how == std::end(kCopyNames)) return DataLoss("a shard is not saved like that");
  if (folder_.empty()) {
    return FailedPrecondition("it has no --checkpoint_dir: start it with that of the others");
  }
  if (arena == nullptr || arena->memory().state->initialized.load(std::memory_order_acquire) == 0) {
    return FailedPrecondition("it has no values");
  }
  const ShardMemory& memory = arena->memory();
  if (memory.state->cohort.load(std::memory_order_relaxed) != cohort) {
    return FailedPrecondition("it has the values of another start of the job");
  }
  save_.emplace();
  save_->how = static_cast<PartCopy>(how - std::begin(kCopyNames));
  save_->arena = arena;
  if (save_->how == PartCopy::kMet) {
    Result<std::vector<ShardBuffer>> copy = MakeShardBuffers({&memory, 1}, /*slots=*/true);
    if (!copy.ok()) {
      return Status(copy.status().code(),
                    copy.status().message() + ": free some, or use a mode without rounds");
    }
    save_->copy = std::move(*copy);
  }
  save_->progress = ProgressOf({&memory, 1});
  if (save_->how == PartCopy::kLive) {
    PASSEL_RETURN_IF_ERROR(RunGivingWay([this] { return CopyLive(); }));
  }
  return Tell();
}

Status ShardSaver::CopyLive() {
  const ShardMemory& memory = save_->arena->memory();
  Result<std::vector<ShardBuffer>> copy =
      MakeShardBuffers({&memory, 1}, /*slots=*/true, kShareForLiveCopy);
  if (!copy.ok()) {
    LogDebug("{}: the part is written as it is read", copy.status().message());
    return {};
  }
  PASSEL_ASSIGN_OR_RETURN(save_->mixed,
                          CopyLiveShard(memory, copy->front().contents(), 1, Limits()));
  save_->copy = std::move(*copy);
  return {};
}

Result<Errand> ShardSaver::Copy() {
  if (!save_ || save_->how != PartCopy::kMet) return FailedPrecondition("no such save has begun");
  PASSEL_RETURN_IF_ERROR(Limits().Check());
  const ShardMemory& memory = save_->arena->memory();
  save_->progress = ProgressOf({&memory, 1});
  const std::vector<float*>& out = save_->copy.front().contents();
  CopyShards({&memory, 1}, {&out, 1}, CopyThreads());
  return Tell();
}

Errand ShardSaver::Tell() const {
  Errand answer{{{"ok", true}}, ""};
  if (save_->how == PartCopy::kLive) return answer;
  const PartState state = StateOfPart(save_->arena->memory(), /*lead=*/false);
  answer.json["claimed"] = state.claimed;
  if (state.round) answer.json["round"] = *state.round;
  return answer;
}

Result<Errand> ShardSaver::Write(const Errand& errand) {
  if (!save_) return FailedPrecondition("no save has begun");
  PASSEL_ASSIGN_OR_RETURN(PartOrder order, PartOrderFromJson(errand.bytes));
  PASSEL_ASSIGN_OR_RETURN(const auto exact, Field<bool>(errand.json, "exact"));
  order.folder = folder_;
  order.part = shard_;
  const StorePlan plan = save_->arena->plan();
  const ShardMemory& memory = save_->arena->memory();
  std::unique_ptr<PartSource> source;
  if (!save_->copy.empty()) {
    source = std::make_unique<CopySource>(save_->copy.front().read(), memory.floats,
                                          memory.block_floats, save_->mixed);
  } else if (exact) {
    source = std::make_unique<CopySource>(ContentsOf(memory), memory.floats, memory.block_floats);
  } else {
    source = MakeLiveSource(memory);
  }
  source = MakeCheckedSource(std::move(source), memory, Limits());
  JobProgress progress;
  progress.shards.resize(static_cast<std::size_t>(shard_) + 1);
  progress.shards.back() = save_->progress.shards.front();
  PartWritten written;
  const auto write = [&]() -> Status {
    PASSEL_ASSIGN_OR_RETURN(written, WritePart(order, plan, progress, *source));
    return {};
  };
  PASSEL_RETURN_IF_ERROR(save_->how == PartCopy::kSettled ? write() : RunGivingWay(write));
  return Errand{{{"ok", true}, {"bytes_written", written.bytes}}, ""};
}

}  // namespace passel::job

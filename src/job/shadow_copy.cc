#include "job/shadow_copy.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "store/membership.h"
#include "store/shadow.h"
#include "train/checkpoint_words.h"

namespace passel::job {
namespace {

constexpr std::chrono::milliseconds kLookEvery{5};

// Before its first update the values in the arenas are the job's.
bool IsOnDevice(const ShardMemory& lead) {
  return lead.state->device.arena.load(std::memory_order_acquire) != 0;
}

bool SomebodyMayRenew(const ShardMemory& lead) {
  return std::ranges::any_of(Membership(lead), [](const Member& m) { return MayCome(m.phase); });
}

class ShadowSource final : public CopySource {
 public:
  ShadowSource(std::vector<const float*> contents, const ShardMemory& shard, bool mixed,
               std::optional<std::int64_t> last_step)
      : CopySource(contents, shard.floats, shard.block_floats),
        whole_{std::move(contents), mixed ? shard.num_blocks : 0},
        last_step_(last_step) {}
  const Whole* whole() const override { return &whole_; }
  Status EndOfPieces(Words* late) override {
    if (last_step_) (*late)[kLastStepKey] = LastStepText(*last_step_);
    return {};
  }

 private:
  const Whole whole_;
  const std::optional<std::int64_t> last_step_;
};

}  // namespace

Result<std::int64_t> AwaitShadow(const ShardMemory& lead, std::int64_t step,
                                 const std::function<Status()>& check, Deadline deadline) {
  if (!IsOnDevice(lead)) return step;
  WishForShadow(lead, step);
  for (;;) {
    // Before the shadow: whoever ends has renewed it.
    const bool may_be_renewed = SomebodyMayRenew(lead);
    const std::int64_t there = ShadowStep(lead);
    if (there >= step) return step;
    if (!may_be_renewed) return there;
    PASSEL_RETURN_IF_ERROR(check());
    if (deadline.Expired()) {
      return DeadlineExceeded(fmt::format(
          "no worker has copied the values of global step {} from the memory of the GPU in time; "
          "their shadow is of step {}",
          step, there));
    }
    std::this_thread::sleep_for(kLookEvery);
  }
}

bool ShadowIsLast(const ShardMemory& lead) {
  if (!IsOnDevice(lead)) return true;
  const bool all_left = std::ranges::all_of(Membership(lead), [](const Member& m) {
    return m.phase == Phase::kDone || m.phase == Phase::kLeft || m.phase == Phase::kSpare;
  });
  const std::int64_t step = lead.state->global_step.load(std::memory_order_acquire);
  const ShadowSteps steps = ShadowReader(lead).Steps(step);
  return all_left && steps.first == step && steps.last == step;
}

void ShadowCopy::Copy() {
  Result<std::vector<ShardBuffer>> buffers =
      MakeShardBuffers(shards_, /*slots=*/true, kShareForLiveCopy, /*touch=*/false);
  if (!buffers.ok()) {
    LogDebug("{}: the shadow is written as it is read", buffers.status().message());
    return;
  }
  buffers_ = std::move(*buffers);
  std::vector<std::vector<float*>> out;
  for (const ShardBuffer& buffer : buffers_) out.push_back(buffer.contents());
  const ShardMemory& lead = shards_[0];
  const ShadowReader reader(lead);
  CopyShards(shards_, out, CopyThreads());
  const ShadowSteps steps = reader.Steps(lead.state->global_step.load(std::memory_order_acquire));
  end_ = CopyEnd{MonotonicNs(), steps.last};
  mixed_ = lead.num_workers > 1 || steps.first != steps.last;
}

std::unique_ptr<PartSource> ShadowCopy::SourceOf(std::size_t shard) const {
  const ShardMemory& memory = shards_[shard];
  return std::make_unique<ShadowSource>(
      buffers_.empty() ? ContentsOf(memory) : buffers_[shard].read(), memory, mixed_,
      end_ ? std::optional(end_->step) : std::nullopt);
}

}  // namespace passel::job

#include "job/checkpoint_source.h"

#include <chrono>
#include <utility>

#include "store/shard_reader.h"

namespace passel::job {
namespace {

constexpr std::chrono::seconds kBlockLimit{2};

class CheckedSource final : public PartSource {
 public:
  CheckedSource(std::unique_ptr<PartSource> source, const ShardMemory& shape, SaveLimits limits)
      : source_(std::move(source)), shape_(shape), limits_(std::move(limits)) {}
  Result<bool> ReadBlock(std::size_t block, std::span<float* const> out) override {
    PASSEL_RETURN_IF_ERROR(limits_.Check());
    const Result<bool> exact = source_->ReadBlock(block, out);
    if (!exact.ok()) return exact;
    float sum = 0;  // stays 0, or is NaN
    for (const float value : std::span(out[0], shape_.BlockSize(block))) sum += value * 0.0F;
    if (sum != 0) {
      return Diverged("the variables have values that are not finite: lower --learning_rate");
    }
    return exact;
  }

 private:
  const std::unique_ptr<PartSource> source_;
  const ShardMemory shape_;
  const SaveLimits limits_;
};

class LiveSource final : public PartSource {
 public:
  explicit LiveSource(const ShardMemory& memory) : reader_(memory) {}
  Result<bool> ReadBlock(std::size_t block, std::span<float* const> out) override {
    const Result<bool> exact = reader_.ReadBlock(block, out, Deadline::After(kBlockLimit));
    // Somebody sits on it: the copy may have a part of its update.
    if (exact.status().code() == Code::kDeadlineExceeded) return false;
    return exact;
  }

 private:
  const ShardReader reader_;
};

}  // namespace

Status SaveLimits::Check() const {
  if (alive) alive();
  if (quit.load(std::memory_order_relaxed)) return Cancelled("the job has ended meanwhile");
  if (!deadline.Expired()) return {};
  return DeadlineExceeded(
      "the time to end is over before it is written: raise --grace, or save more often");
}

std::unique_ptr<PartSource> MakeLiveSource(const ShardMemory& memory) {
  return std::make_unique<LiveSource>(memory);
}

std::unique_ptr<PartSource> MakeCheckedSource(std::unique_ptr<PartSource> source,
                                              const ShardMemory& shape, SaveLimits limits) {
  return std::make_unique<CheckedSource>(std::move(source), shape, std::move(limits));
}

}  // namespace passel::job

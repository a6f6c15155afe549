#include "job/checkpoint_source.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "base/give_way.h"
#include "base/nvtx.h"
#include "optim/update_kernels.h"
#include "store/shard_reader.h"

namespace passel::job {
namespace {

constexpr std::chrono::seconds kBlockLimit{2};

// Blocks that a thread takes at once, and floats that are worth one.
constexpr std::size_t kRun = 64;
constexpr std::size_t kWorthAThread = std::size_t{1} << 22;

class CheckedSource final : public PartSource {
 public:
  CheckedSource(std::unique_ptr<PartSource> source, const ShardMemory& shape, SaveLimits limits)
      : source_(std::move(source)), shape_(shape), limits_(std::move(limits)) {}
  Result<bool> ReadBlock(std::size_t block, std::span<float* const> out) override {
    const Result<bool> exact = source_->ReadBlock(block, out);
    if (!exact.ok()) return exact;
    PASSEL_RETURN_IF_ERROR(CheckPiece({out[0], shape_.BlockSize(block)}));
    return exact;
  }
  const Whole* whole() const override { return source_->whole(); }
  Status CheckPiece(std::span<const float> values) override {
    PASSEL_RETURN_IF_ERROR(limits_.Check());
    if (AllFinite(values.data(), values.size())) return {};
    return Diverged("the variables have values that are not finite: lower --learning_rate");
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
  if (quit.load(std::memory_order_relaxed)) return Cancelled("nobody waits for it any more");
  if (!deadline.Expired()) return {};
  return DeadlineExceeded(
      "the time to end is over before it is written: raise --grace, or save more often");
}

std::unique_ptr<PartSource> MakeLiveSource(const ShardMemory& memory) {
  return std::make_unique<LiveSource>(memory);
}

Result<std::vector<bool>> CopyLiveShard(const ShardMemory& memory, const std::vector<float*>& out,
                                        int threads, const SaveLimits& limits) {
  std::vector<char> mixed(memory.num_blocks);  // of several writers
  std::atomic<std::size_t> next{0};
  const auto copy = [&](const SaveLimits& until) -> Status {
    LiveSource source(memory);
    std::vector<float*> at(out.size());
    for (std::size_t begin; (begin = next.fetch_add(kRun)) < memory.num_blocks;) {
      const std::size_t end = std::min(begin + kRun, memory.num_blocks);
      for (std::size_t block = begin; block < end; ++block) {
        PASSEL_RETURN_IF_ERROR(until.Check());
        for (std::size_t k = 0; k < out.size(); ++k) at[k] = out[k] + memory.BlockBegin(block);
        PASSEL_ASSIGN_OR_RETURN(const bool whole, source.ReadBlock(block, at));
        mixed[block] = whole ? 0 : 1;
      }
    }
    return {};
  };
  SaveLimits silent = limits;
  silent.alive = {};  // it is for the thread that calls
  const std::size_t useful =
      std::min(static_cast<std::size_t>(threads), memory.floats / kWorthAThread + 1);
  std::vector<Status> found(useful);
  std::vector<std::thread> others;
  try {
    while (others.size() + 1 < useful) {
      others.emplace_back([&, i = others.size() + 1] { found[i] = copy(silent); });
    }
  } catch (const std::system_error&) {
    // No more threads for this user: the others copy all.
  }
  found[0] = copy(limits);
  for (std::thread& other : others) other.join();
  for (const Status& status : found) PASSEL_RETURN_IF_ERROR(status);
  return std::vector<bool>(mixed.begin(), mixed.end());
}

Status RunGivingWay(const std::function<Status()>& run) {
  Status status;
  try {
    std::thread([&] {
      nvtx::NameThread("checkpoints");
      GiveWay();
      try {
        status = run();
      } catch (const std::bad_alloc&) {
        status = ErrnoStatus(ENOMEM, "there is no memory for it");
      }
    }).join();
  } catch (const std::system_error&) {
    return run();  // no thread is left for it
  }
  return status;
}

std::unique_ptr<PartSource> MakeCheckedSource(std::unique_ptr<PartSource> source,
                                              const ShardMemory& shape, SaveLimits limits) {
  return std::make_unique<CheckedSource>(std::move(source), shape, std::move(limits));
}

}  // namespace passel::job

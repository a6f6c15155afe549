#include "job/checkpoint_source.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/give_way.h"
#include "base/nvtx.h"
#include "optim/update_kernels.h"
#include "store/shard_reader.h"
#include "train/checkpoint_words.h"

namespace passel::job {
namespace {

constexpr std::chrono::seconds kBlockLimit{2};

constexpr std::chrono::milliseconds kBetweenLooks{100};
// Blocks that are copied before who waits for them is told.
constexpr std::size_t kRun = 64;

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
    PASSEL_RETURN_IF_ERROR(source_->CheckPiece(values));
    if (AllFinite(values.data(), values.size())) return {};
    return Diverged("the variables have values that are not finite: lower --learning_rate");
  }
  void DoneWith(std::size_t floats) override { source_->DoneWith(floats); }
  Status EndOfPieces(Words* late) override { return source_->EndOfPieces(late); }

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

// Runs of blocks are taken in their order, by the helper and by who reads; floats are copied when
// all runs before them are.
class LiveCopy final : public PartSource {
 public:
  LiveCopy(const ShardMemory& memory, const ShardMemory* lead, ShardBuffer buffer,
           const SaveLimits& limits, CopyEnd* end)
      : memory_(memory),
        lead_(lead != nullptr ? *lead : ShardMemory()),
        buffer_(std::move(buffer)),
        limits_(limits),
        end_(end),
        source_(memory),
        whole_{buffer_.read()} {
    try {
      helper_ = std::thread([this] { Help(); });
    } catch (const std::system_error&) {
      // No thread is left for it: who reads copies.
    }
  }
  ~LiveCopy() override {
    {
      const std::lock_guard lock(mutex_);
      given_up_ = true;
    }
    if (helper_.joinable()) helper_.join();
  }

  Result<bool> ReadBlock(std::size_t block, std::span<float* const> out) override {
    return source_.ReadBlock(block, out);
  }
  const Whole* whole() const override { return &whole_; }
  Status CheckPiece(std::span<const float> values) override {
    if (values.empty()) return {};
    return Await(static_cast<std::size_t>(values.data() + values.size() - whole_.contents[0]));
  }
  // The copy goes on in the memory that is free again, which is cheaper than memory that is new.
  void DoneWith(std::size_t floats) override { buffer_.GiveBack(floats); }
  Status EndOfPieces(Words* late) override {
    PASSEL_RETURN_IF_ERROR(Await(memory_.floats));
    const std::lock_guard lock(mutex_);
    whole_.mixed = mixed_;
    *end_ = copied_all_;
    if (lead_.state != nullptr) (*late)[kLastStepKey] = LastStepText(copied_all_.step);
    return {};
  }

 private:
  bool AllTaken() const { return next_ >= memory_.num_blocks; }
  // Of each, from the begin on. Who asks copies nothing itself.
  std::size_t Copied() const {
    const std::size_t blocks = helped_.value_or(next_);
    return blocks >= memory_.num_blocks ? memory_.floats : memory_.BlockBegin(blocks);
  }

  // A helper that gets no processor is not waited for but with what it has begun.
  Status Await(std::size_t floats) {
    std::unique_lock lock(mutex_);
    while (failed_.ok() && Copied() < floats) {
      if (AllTaken()) {
        changed_.wait_for(lock, kBetweenLooks);
      } else {
        TakeRun(lock);
      }
      lock.unlock();
      PASSEL_RETURN_IF_ERROR(limits_.Check());
      lock.lock();
    }
    return failed_;
  }

  void Help() {
    nvtx::NameThread("checkpoints");
    if (GivesWay()) OnlyHelp();
    std::unique_lock lock(mutex_);
    while (!AllTaken() && failed_.ok() && !given_up_) {
      helped_ = next_;
      TakeRun(lock);
      helped_.reset();
      changed_.notify_all();
    }
  }

  // Copies the next one.
  void TakeRun(std::unique_lock<std::mutex>& lock) {
    const std::size_t begin = next_;
    next_ = std::min(begin + kRun, memory_.num_blocks);
    const std::size_t end = next_;
    lock.unlock();
    const Result<std::uint64_t> mixed = CopyRun(begin, end);
    CopyEnd now;
    now.ns = MonotonicNs();
    if (lead_.state != nullptr) now.step = lead_.state->global_step.load(std::memory_order_acquire);
    lock.lock();
    if (!mixed.ok()) failed_ = mixed.status();
    if (mixed.ok()) mixed_ += *mixed;
    if (now.ns > copied_all_.ns) copied_all_ = now;
  }

  Result<std::uint64_t> CopyRun(std::size_t begin, std::size_t end) {
    SaveLimits silent = limits_;
    silent.alive = {};  // it is for the thread that reads
    std::vector<float*> out = buffer_.contents();
    std::uint64_t mixed = 0;
    for (std::size_t block = begin; block < end; ++block) {
      PASSEL_RETURN_IF_ERROR(silent.Check());
      for (std::size_t k = 0; k < out.size(); ++k) {
        out[k] = buffer_.contents()[k] + memory_.BlockBegin(block);
      }
      PASSEL_ASSIGN_OR_RETURN(const bool whole, source_.ReadBlock(block, out));
      if (!whole) ++mixed;
    }
    return mixed;
  }

  const ShardMemory memory_, lead_;
  ShardBuffer buffer_;
  const SaveLimits limits_;
  CopyEnd* const end_;
  LiveSource source_;
  Whole whole_;
  std::mutex mutex_;  // for what follows
  std::condition_variable changed_;
  std::size_t next_ = 0;               // the first block that nobody has taken
  std::optional<std::size_t> helped_;  // the first block of those that the helper copies now
  std::uint64_t mixed_ = 0;
  CopyEnd copied_all_;
  Status failed_;
  bool given_up_ = false;
  std::thread helper_;  // last: it uses the rest
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

std::unique_ptr<PartSource> MakeLiveCopy(const ShardMemory& memory, const ShardMemory* lead,
                                         ShardBuffer buffer, const SaveLimits& limits,
                                         CopyEnd* end) {
  return std::make_unique<LiveCopy>(memory, lead, std::move(buffer), limits, end);
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

#include "job/checkpoint_save.h"

#include <fmt/core.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/atomic_word.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/memory_file.h"
#include "base/nvtx.h"
#include "job/checkpoint_part.h"
#include "job/first_values.h"
#include "job/saved_values.h"
#include "optim/update_kernels.h"
#include "store/meeting.h"
#include "store/mode_change.h"
#include "store/shard_snapshot.h"

namespace passel::job {
namespace {

// A worker in a long step is waited for so long; then this checkpoint is given up.
constexpr std::chrono::seconds kMeetingLimit{60};
// Another meeting or a change of the mode is under way.
constexpr std::chrono::milliseconds kMeetingPause{10};
// Of a copy that is renewed in between; well below Meeting::kLease.
constexpr std::chrono::milliseconds kRenewEvery{200};

std::string NewSaveWord() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

// The thread that calls gives way to those who train.
void GiveWay() { (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 10); }

std::vector<const float*> ContentsOf(const ShardMemory& memory) {
  std::vector<const float*> contents = {memory.values};
  for (int k = 0; k < memory.num_slots; ++k) contents.push_back(memory.slots[k]);
  return contents;
}

// Of values that nobody trains any more.
bool NothingIsHalfDone(std::span<const ShardMemory> shards) {
  const bool rounds = IsRoundMode(CurrentMode(shards[0]).setting.mode);
  std::optional<std::uint64_t> round;
  for (std::size_t s = 0; s < shards.size(); ++s) {
    for (std::size_t b = 0; b < shards[s].num_blocks; ++b) {
      if (shards[s].blocks[b].claim.load(std::memory_order_acquire) != 0) return false;
    }
    if (!rounds) continue;
    const std::optional<std::uint64_t> of_shard =
        TakeShardSnapshot(shards[s], /*lead=*/s == 0, {}).exact_round;
    if (!of_shard || (round && round != of_shard)) return false;
    round = of_shard;
  }
  return true;
}

// A copy of one shard.
struct ShardValues {
  explicit ShardValues(const ShardMemory& memory)
      : floats(memory.floats),
        memory_(std::make_unique<float[]>(  // touched here, so that nobody waits for that later
            floats * static_cast<std::size_t>(1 + memory.num_slots))) {
    for (int k = 0; k <= memory.num_slots; ++k) {
      contents.push_back(memory_.get() + static_cast<std::size_t>(k) * floats);
    }
  }
  void Take(const ShardMemory& memory, Meeting& meeting) const;

  std::vector<const float*> All() const { return {contents.begin(), contents.end()}; }

  std::size_t floats;
  std::vector<float*> contents;  // values, slot variables

 private:
  std::unique_ptr<float[]> memory_;
};

// In pieces, so that the meeting goes on.
void ShardValues::Take(const ShardMemory& memory, Meeting& meeting) const {
  constexpr std::size_t kPiece = std::size_t{1} << 22;
  const std::vector<const float*> from = ContentsOf(memory);
  Deadline renew = Deadline::After(kRenewEvery);
  for (std::size_t k = 0; k < contents.size(); ++k) {
    for (std::size_t begin = 0; begin < floats; begin += kPiece) {
      CopyValues(contents[k] + begin, from[k] + begin, std::min(kPiece, floats - begin));
      if (!renew.Expired()) continue;
      (void)meeting.Renew();  // End() says whether all was well
      renew = Deadline::After(kRenewEvery);
    }
  }
  EndOfCopy();
}

class OneSave {
 public:
  OneSave(const SavedJob& job, std::optional<AtEnd> at_end, const SaveLimits& limits,
          CheckpointFolder& folder)
      : job_(job), at_end_(at_end), limits_(limits), folder_(folder) {}

  Result<std::optional<std::int64_t>> Run(std::optional<std::int64_t> saved);

 private:
  Status CopyInMeeting();
  Status WriteParts(bool exact, std::span<const std::unique_ptr<PartSource>> sources);

  const SavedJob& job_;
  const std::optional<AtEnd> at_end_;
  const SaveLimits& limits_;
  CheckpointFolder& folder_;
  std::int64_t step_ = 0;
  JobProgress progress_;
  std::vector<ShardValues> copies_;  // of a meeting
};

Result<std::optional<std::int64_t>> OneSave::Run(std::optional<std::int64_t> saved) {
  const std::int64_t begin_ns = MonotonicNs();
  const bool quiet = at_end_ == AtEnd::kNobodyTrains;
  PASSEL_RETURN_IF_ERROR(CheckFreeSpace(folder_.path(), CheckpointBytes(job_.plan)));
  Failpoint("checkpoint.begin");
  // Who is at its own end cannot meet itself; where rounds wait for it nobody moves.
  const bool rounds = IsRoundMode(CurrentMode(job_.shards[0]).setting.mode);
  const bool meets = !at_end_ && (rounds || job_.config.checkpoints.consistent);
  if (meets) {
    PASSEL_RETURN_IF_ERROR(CopyInMeeting());
    if (step_ == saved) return saved;
  } else {
    step_ = job_.shards[0].state->global_step.load(std::memory_order_acquire);
    progress_ = ProgressOf(job_.shards);
    progress_.global_step = step_;
  }
  // What an index names stays as it is.
  if (folder_.index().Find(CheckpointName(step_)) != nullptr) return std::optional(step_);
  // Tasks that were killed may have left a round, or a push, half applied.
  const bool settled = !quiet || NothingIsHalfDone(job_.shards);
  if (!settled && rounds && saved) {
    LogWarning("no last checkpoint: tasks were killed in the middle of a round; the newest is {}",
               CheckpointName(*saved));
    return saved;
  }
  std::vector<std::unique_ptr<PartSource>> sources;
  for (std::size_t s = 0; s < job_.shards.size(); ++s) {
    const ShardMemory& shard = job_.shards[s];
    std::unique_ptr<PartSource> source = MakeLiveSource(shard);
    if (meets) {
      source = std::make_unique<CopySource>(copies_[s].All(), shard.floats, shard.block_floats);
    }
    SaveLimits limits = limits_;
    if (s != 0 || !at_end_) limits.alive = {};  // it is for the thread that calls
    sources.push_back(MakeCheckedSource(std::move(source), shard, std::move(limits)));
  }
  const int parts = static_cast<int>(job_.shards.size());
  Status written = WriteParts(meets || (quiet && settled), sources);
  Failpoint("checkpoint.written");
  if (written.ok()) written = folder_.Commit(step_, parts, WallSeconds(), /*best=*/false);
  if (!written.ok()) {
    if (folder_.index().Find(CheckpointName(step_)) == nullptr) {
      for (int part = 0; part < parts; ++part) {
        (void)::unlink(PartPath(folder_.path(), step_, part, parts).c_str());
      }
    }
    return written;
  }
  Failpoint("checkpoint.committed");
  LogInfo("saved checkpoint {} in {:.0f} ms", folder_.PathOf(CheckpointName(step_)),
          1e-6 * static_cast<double>(MonotonicNs() - begin_ns));
  return std::optional(step_);
}

Status OneSave::CopyInMeeting() {
  PASSEL_ASSIGN_OR_RETURN(const MemoryBudget budget, ReadMemoryBudget());
  const std::uint64_t bytes = CheckpointBytes(job_.plan);
  if (bytes > budget.available_bytes) {
    return ResourceExhausted(
        fmt::format("a copy of the variables needs {} bytes, and {} has {} free: free some, or use "
                    "a mode without rounds",
                    bytes, budget.limit, budget.available_bytes));
  }
  for (const ShardMemory& shard : job_.shards) copies_.emplace_back(shard);
  const Deadline limit = limits_.deadline.Sooner(kMeetingLimit);
  const auto quits = [this] { return limits_.quit.load(std::memory_order_relaxed); };
  for (;;) {
    Result<Meeting> meeting = Meeting::Call(job_.shards[0], job_.names);
    if (meeting.status().code() == Code::kAlreadyExists && !limit.Expired() && !quits()) {
      std::this_thread::sleep_for(kMeetingPause);
      continue;
    }
    if (!meeting.ok()) return meeting.status();
    for (;;) {
      const Result<std::int64_t> met = meeting->Await(limit.Sooner(kRenewEvery));
      if (met.ok()) {
        step_ = *met;
        break;
      }
      if (quits()) return Cancelled("the job has ended meanwhile");
      if (met.status().code() != Code::kDeadlineExceeded || limit.Expired()) return met.status();
    }
    Failpoint("checkpoint.met");
    progress_ = ProgressOf(job_.shards);
    for (std::size_t s = 0; s < copies_.size(); ++s) copies_[s].Take(job_.shards[s], *meeting);
    return meeting->End();
  }
}

Status OneSave::WriteParts(bool exact, std::span<const std::unique_ptr<PartSource>> sources) {
  const bool give_way = !at_end_;
  CheckpointMoment moment;
  moment.mode = CurrentMode(job_.shards[0]).setting;
  moment.ps = static_cast<int>(job_.shards.size());
  moment.workers = job_.plan.num_workers;
  moment.exact = exact;
  moment.settings = SettingsToKeep(job_.settings);
  PASSEL_ASSIGN_OR_RETURN(moment.data, ParseJson("data", job_.data.empty() ? "{}" : job_.data, 16));
  PartOrder order;
  order.folder = folder_.path();
  order.step = step_;
  order.save = NewSaveWord();
  order.parts = moment.ps;
  order.metadata = WordsOfCheckpoint(job_.config, moment);
  std::vector<Status> written(sources.size());
  const auto write = [&](std::size_t part) {
    PartOrder own = order;
    own.part = static_cast<int>(part);
    written[part] = WritePart(own, job_.plan, progress_, *sources[part]).status();
  };
  std::vector<std::thread> others;
  for (std::size_t part = give_way ? 0 : 1; part < sources.size(); ++part) {
    others.emplace_back([&write, part, give_way] {
      nvtx::NameThread("checkpoints");
      if (give_way) GiveWay();
      write(part);
    });
  }
  if (!give_way) write(0);
  for (std::thread& other : others) other.join();
  for (const Status& status : written) PASSEL_RETURN_IF_ERROR(status);
  return {};
}

}  // namespace

std::uint64_t CheckpointBytes(const StorePlan& plan) {
  std::uint64_t floats = 0;
  for (int shard = 0; shard < plan.variables.shards(); ++shard) {
    floats +=
        plan.variables.ShardFloats(shard) * static_cast<std::size_t>(1 + NumSlots(plan.optimizer));
  }
  return floats * sizeof(float) + (std::uint64_t{1} << 16);
}

Result<std::optional<std::int64_t>> SaveCheckpoint(const SavedJob& job,
                                                   std::optional<std::int64_t> saved,
                                                   std::optional<AtEnd> at_end,
                                                   const SaveLimits& limits,
                                                   CheckpointFolder& folder) {
  return OneSave(job, at_end, limits, folder).Run(saved);
}

}  // namespace passel::job

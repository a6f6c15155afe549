#include "job/checkpoint_saver.h"

#include <fmt/core.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <utility>

#include "base/atomic_word.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/memory_file.h"
#include "base/nvtx.h"
#include "job/first_values.h"
#include "job/saved_values.h"
#include "optim/update_kernels.h"
#include "store/meeting.h"
#include "store/mode_change.h"
#include "store/shard_reader.h"
#include "store/shard_snapshot.h"
#include "train/checkpoint_set.h"

namespace passel::job {
namespace {

// How often it looks whether enough steps were made.
constexpr std::chrono::milliseconds kLook{5};
constexpr std::chrono::milliseconds kIdle{200};
// A worker in a long step is waited for so long; then this checkpoint is given up.
constexpr std::chrono::seconds kMeetingLimit{60};
// Another meeting or a change of the mode is under way.
constexpr std::chrono::milliseconds kMeetingPause{10};
// Of a copy that is renewed in between; well below Meeting::kLease.
constexpr std::chrono::milliseconds kRenewEvery{200};
constexpr std::chrono::seconds kBlockLimit{2};
// After a save that failed, doubled with each.
constexpr std::chrono::seconds kPauseAfterError{2}, kMostPauseAfterError{300};
// Of one save; slow disks take minutes.
constexpr std::chrono::hours kSaveLimit{1};

std::string NewSaveWord() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

std::string Joined(const std::string& folder, const std::string& name) {
  return folder.ends_with('/') ? folder + name : folder + "/" + name;
}

// The thread that calls gives way to those who train.
void GiveWay() { (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 10); }

// What ends a part before its time.
struct Limits {
  const std::atomic<bool>& quit;
  Deadline deadline;
  std::function<void()> alive;  // called for each block; may be empty

  Status Check() const {
    if (alive) alive();
    if (quit.load(std::memory_order_relaxed)) return Cancelled("the job has ended meanwhile");
    if (!deadline.Expired()) return {};
    return DeadlineExceeded(
        "the time to end is over before it is written: raise --grace, or save more often");
  }
};

// Checks the blocks of another source: values that are not finite are worth no checkpoint.
class CheckedSource : public PartSource {
 public:
  CheckedSource(std::unique_ptr<PartSource> source, const ShardMemory& shape, const Limits& limits)
      : source_(std::move(source)), shape_(shape), limits_(limits) {}
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
  const ShardMemory& shape_;
  const Limits limits_;
};

// A shard that others may write.
class LiveSource : public PartSource {
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

}  // namespace

struct CheckpointSaver::Copy {
  explicit Copy(const ShardMemory& memory)
      : floats(memory.floats),
        memory_(std::make_unique<float[]>(  // touched here, so that nobody waits for that later
            floats * static_cast<std::size_t>(1 + memory.num_slots))) {
    for (int k = 0; k <= memory.num_slots; ++k) {
      contents.push_back(memory_.get() + static_cast<std::size_t>(k) * floats);
    }
  }
  void Take(const ShardMemory& memory, Meeting& meeting) const;

  std::size_t floats;
  std::vector<float*> contents;  // values, slot variables

 private:
  std::unique_ptr<float[]> memory_;
};

// In pieces, so that the meeting goes on.
void CheckpointSaver::Copy::Take(const ShardMemory& memory, Meeting& meeting) const {
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

CheckpointSaver::CheckpointSaver(const JobConfig& config, const JobSettings& settings,
                                 const StorePlan& plan, const std::string& data)
    : config_(config), settings_(settings), plan_(plan), data_(data) {}

CheckpointSaver::~CheckpointSaver() {
  quit_.store(true, std::memory_order_relaxed);
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Result<std::unique_ptr<CheckpointSaver>> CheckpointSaver::Open(const JobConfig& config,
                                                               const JobSettings& settings,
                                                               const StorePlan& plan,
                                                               const std::string& data,
                                                               bool begun) {
  std::unique_ptr<CheckpointSaver> saver(new CheckpointSaver(config, settings, plan, data));
  const CheckpointConfig& checkpoints = config.checkpoints;
  if (!checkpoints.folder.empty()) {
    PASSEL_ASSIGN_OR_RETURN(
        CheckpointFolder folder,
        CheckpointFolder::Own(checkpoints.folder, checkpoints.keep, WallSeconds()));
    saver->folder_.emplace(std::move(folder));
    if (begun) {
      const auto& kept = saver->folder_->index().kept;
      if (!kept.empty()) saver->saved_step_ = StepOfCheckpoint(kept.back().name);
      return saver;
    }
    PASSEL_RETURN_IF_ERROR(CheckFreeSpace(checkpoints.folder, saver->Bytes()));
  }
  if (!begun) PASSEL_RETURN_IF_ERROR(saver->ChooseBeginning());
  return saver;
}

Status CheckpointSaver::ChooseBeginning() {
  const CheckpointConfig& c = config_.checkpoints;
  std::optional<std::string> newest;
  if (folder_ && !c.ResumesFromPath()) {
    if (c.resume == kResumeNever && !folder_->index().kept.empty()) {
      return InvalidArgument(fmt::format(
          "{} has checkpoints, up to {}, and --resume never would mix two trainings there: name "
          "another --checkpoint_dir, remove them, or omit --resume",
          c.folder, folder_->index().kept.back().name));
    }
    std::vector<std::string> warnings;
    PASSEL_ASSIGN_OR_RETURN(newest, folder_->Newest(&warnings));
    for (const std::string& warning : warnings) LogWarning("{}", warning);
  }
  if (c.ResumesFromPath()) {
    resume_from_ = c.resume;
  } else if (newest) {
    resume_from_ = Joined(c.folder, *newest);
  }
  if (resume_from_.empty()) return {};
  PASSEL_ASSIGN_OR_RETURN(const CheckpointSet from, OpenCheckpointAt(resume_from_));
  // So that a newer one that comes meanwhile makes no difference.
  if (from.name() != resume_from_ && NamesCheckpoint(from.name())) resume_from_ = from.name();
  PASSEL_RETURN_IF_ERROR(CheckCanGoOn(from, plan_));
  std::string changed = ChangedMathematics(settings_, from.words().settings);
  if (from.words().workers != plan_.num_workers) {
    changed += fmt::format("{}{}{} workers (were {})", changed.empty() ? "" : ", ",
                           plan_.spare_workers > 0 ? "up to " : "", plan_.num_workers,
                           from.words().workers);
  }
  resumed_ = fmt::format("goes on from {}, global step {}{}{}", resume_from_, from.global_step(),
                         changed.empty() ? "" : "; unlike then: ", changed);
  resumed_step_ = from.global_step();
  for (const JobProgress::Worker& worker : from.saved().workers) {
    resumed_local_steps_ += worker.local_steps;
  }
  const std::int64_t target = config_.worker.train_steps;
  if (target != kNoStepLimit && from.global_step() >= target) {
    finished_ = fmt::format(
        "{} is of a job that is finished: its global step {} is not below --train_steps {}; raise "
        "that to go on, or name another --checkpoint_dir to begin anew",
        resume_from_, from.global_step(), target);
  }
  if (folder_ && folder_->index().Find(CheckpointName(from.global_step())) != nullptr) {
    saved_step_ = from.global_step();
  }
  return {};
}

void CheckpointSaver::TellOfBeginning() const {
  if (!resumed_.empty()) LogInfo("this job {}", resumed_);
  if (!finished_.empty()) LogWarning("{}", finished_);
}

void CheckpointSaver::Begin(std::vector<ShardMemory> shards, const WorkerNames& names) {
  if (!folder_ || thread_.joinable()) return;
  shards_ = std::move(shards);
  names_ = names;
  saved_ns_ = MonotonicNs();
  tried_step_ = saved_step_.value_or(0);
  thread_ = std::thread([this] { Run(); });
}

std::int64_t CheckpointSaver::Step() const {
  return shards_[0].state->global_step.load(std::memory_order_acquire);
}

bool CheckpointSaver::Due() const {
  const CheckpointConfig& c = config_.checkpoints;
  const std::int64_t step = Step();
  if (step == saved_step_) return false;
  if (c.steps > 0 && step >= tried_step_ + c.steps) return true;
  return c.interval.count() > 0 && MonotonicNs() - saved_ns_ >= c.interval.count();
}

void CheckpointSaver::Run() {
  nvtx::NameThread("checkpoints");
  std::chrono::nanoseconds pause = kPauseAfterError;
  std::int64_t not_before_ns = 0;
  bool first = !saved_step_.has_value();
  while (!quit_.load(std::memory_order_relaxed)) {
    if ((first || Due()) && MonotonicNs() >= not_before_ns) {
      first = false;
      const Status saved = Save(std::nullopt, Deadline::After(kSaveLimit));
      saved_ns_ = MonotonicNs();
      tried_step_ = Step();
      if (!saved.ok() && saved.code() != Code::kCancelled) {
        LogWarning(
            "no checkpoint was saved to {}: {}; training goes on, and another is tried when "
            "it is due, {} s from now at the earliest",
            config_.checkpoints.folder, saved.message(),
            std::chrono::duration_cast<std::chrono::seconds>(pause).count());
        not_before_ns = MonotonicNs() + pause.count();
        pause = std::min<std::chrono::nanoseconds>(2 * pause, kMostPauseAfterError);
      } else {
        pause = kPauseAfterError;
      }
    }
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, config_.checkpoints.steps > 0 ? kLook : kIdle,
                   [this] { return quit_.load(std::memory_order_relaxed); });
  }
}

Status CheckpointSaver::End(AtEnd at_end, Deadline deadline, const std::function<void()>& alive) {
  if (!thread_.joinable()) return {};
  {
    const std::lock_guard lock(mutex_);
    quit_.store(true, std::memory_order_relaxed);
  }
  wake_.notify_all();
  thread_.join();
  quit_.store(false, std::memory_order_relaxed);
  alive_ = alive;
  const Status saved = Step() == saved_step_ ? Status() : Save(at_end, deadline);
  if (saved.ok()) return {};
  return saved.WithContext(
      fmt::format("the last checkpoint was not saved to {}, where the newest is {}",
                  config_.checkpoints.folder, saved_step_ ? CheckpointName(*saved_step_) : "none"));
}

std::uint64_t CheckpointSaver::Bytes() const {
  std::uint64_t floats = 0;
  for (int shard = 0; shard < plan_.variables.shards(); ++shard) {
    floats += plan_.variables.ShardFloats(shard) *
              static_cast<std::size_t>(1 + NumSlots(plan_.optimizer));
  }
  return floats * sizeof(float) + (std::uint64_t{1} << 16);
}

Status CheckpointSaver::Save(std::optional<AtEnd> at_end, Deadline deadline) {
  const std::int64_t begin_ns = MonotonicNs();
  const bool quiet = at_end == AtEnd::kNobodyTrains;
  PASSEL_RETURN_IF_ERROR(CheckFreeSpace(config_.checkpoints.folder, Bytes()));
  Failpoint("checkpoint.begin");
  std::int64_t step = Step();
  JobProgress progress;
  std::vector<Copy> copies;
  std::vector<std::unique_ptr<PartSource>> sources;
  // Who is at its own end cannot meet itself; where rounds wait for it nobody moves.
  const bool rounds = IsRoundMode(CurrentMode(shards_[0]).setting.mode);
  const bool meets = !at_end && (rounds || config_.checkpoints.consistent);
  if (meets) {
    PASSEL_ASSIGN_OR_RETURN(copies, CopyInMeeting(deadline, &step, &progress));
    if (step == saved_step_) return {};
  } else {
    progress = ProgressOf(shards_);
    progress.global_step = step;
  }
  // What an index names stays as it is.
  if (folder_->index().Find(CheckpointName(step)) != nullptr) {
    saved_step_ = step;
    return {};
  }
  // Tasks that were killed may have left a round, or a push, half applied.
  const bool settled = !quiet || NothingIsHalfDone(shards_);
  if (!settled && rounds && saved_step_) {
    LogWarning("no last checkpoint: tasks were killed in the middle of a round; the newest is {}",
               CheckpointName(*saved_step_));
    return {};
  }
  for (std::size_t s = 0; s < shards_.size(); ++s) {
    const std::size_t floats = shards_[s].floats, block = shards_[s].block_floats;
    std::unique_ptr<PartSource> source;
    if (meets) {
      source = std::make_unique<CopySource>(
          std::vector<const float*>(copies[s].contents.begin(), copies[s].contents.end()), floats,
          block);
    } else {
      source = std::make_unique<LiveSource>(shards_[s]);
    }
    Limits limits{quit_, deadline, {}};
    if (s == 0 && at_end) limits.alive = alive_;  // this thread writes that part
    sources.push_back(std::make_unique<CheckedSource>(std::move(source), shards_[s], limits));
  }
  const int parts = static_cast<int>(shards_.size());
  Status written = WriteParts(step, meets || (quiet && settled), progress, sources, !at_end);
  Failpoint("checkpoint.written");
  if (written.ok()) written = folder_->Commit(step, parts, WallSeconds(), /*best=*/false);
  if (!written.ok()) {
    if (folder_->index().Find(CheckpointName(step)) == nullptr) {
      for (int part = 0; part < parts; ++part) {
        (void)::unlink(PartPath(config_.checkpoints.folder, step, part, parts).c_str());
      }
    }
    return written;
  }
  Failpoint("checkpoint.committed");
  saved_step_ = step;
  LogInfo("saved checkpoint {} in {:.0f} ms",
          Joined(config_.checkpoints.folder, CheckpointName(step)),
          1e-6 * static_cast<double>(MonotonicNs() - begin_ns));
  return {};
}

Result<std::vector<CheckpointSaver::Copy>> CheckpointSaver::CopyInMeeting(Deadline deadline,
                                                                          std::int64_t* step,
                                                                          JobProgress* progress) {
  PASSEL_ASSIGN_OR_RETURN(const MemoryBudget budget, ReadMemoryBudget());
  if (Bytes() > budget.available_bytes) {
    return ResourceExhausted(
        fmt::format("a copy of the variables needs {} bytes, and {} has {} free: free some, or use "
                    "a mode without rounds",
                    Bytes(), budget.limit, budget.available_bytes));
  }
  std::vector<Copy> copies;
  for (const ShardMemory& shard : shards_) copies.emplace_back(shard);
  const Deadline limit = deadline.Sooner(kMeetingLimit);
  for (;;) {
    Result<Meeting> meeting = Meeting::Call(shards_[0], names_);
    if (meeting.status().code() == Code::kAlreadyExists && !limit.Expired() &&
        !quit_.load(std::memory_order_relaxed)) {
      std::this_thread::sleep_for(kMeetingPause);
      continue;
    }
    if (!meeting.ok()) return meeting.status();
    for (;;) {
      const Result<std::int64_t> met = meeting->Await(limit.Sooner(kRenewEvery));
      if (met.ok()) {
        *step = *met;
        break;
      }
      if (quit_.load(std::memory_order_relaxed)) return Cancelled("the job has ended meanwhile");
      if (met.status().code() != Code::kDeadlineExceeded || limit.Expired()) return met.status();
    }
    Failpoint("checkpoint.met");
    *progress = ProgressOf(shards_);
    for (std::size_t s = 0; s < shards_.size(); ++s) copies[s].Take(shards_[s], *meeting);
    PASSEL_RETURN_IF_ERROR(meeting->End());
    return copies;
  }
}

Status CheckpointSaver::WriteParts(std::int64_t step, bool exact, const JobProgress& progress,
                                   std::span<const std::unique_ptr<PartSource>> sources,
                                   bool give_way) {
  CheckpointMoment moment;
  moment.mode = CurrentMode(shards_[0]).setting;
  moment.ps = static_cast<int>(shards_.size());
  moment.workers = plan_.num_workers;
  moment.exact = exact;
  moment.settings = SettingsToKeep(settings_);
  PASSEL_ASSIGN_OR_RETURN(moment.data, ParseJson("data", data_.empty() ? "{}" : data_, 16));
  PartOrder order;
  order.folder = config_.checkpoints.folder;
  order.step = step;
  order.save = NewSaveWord();
  order.parts = moment.ps;
  order.metadata = WordsOfCheckpoint(config_, moment);
  std::vector<Status> written(sources.size());
  const auto write = [&](std::size_t part) {
    PartOrder own = order;
    own.part = static_cast<int>(part);
    written[part] = WritePart(own, plan_, progress, *sources[part]).status();
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

}  // namespace passel::job

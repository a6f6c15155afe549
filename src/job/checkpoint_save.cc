#include "job/checkpoint_save.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <new>
#include <random>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/atomic_word.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/give_way.h"
#include "base/log.h"
#include "base/nvtx.h"
#include "cluster/json_message.h"
#include "cluster/patience.h"
#include "job/checkpoint_part.h"
#include "job/first_values.h"
#include "job/job_status.h"
#include "job/loss_check.h"
#include "job/other_parts.h"
#include "job/saved_values.h"
#include "job/shadow_copy.h"
#include "job/shard_saver.h"
#include "store/mode_change.h"
#include "store/scale.h"
#include "store/shadow.h"
#include "store/shard_buffer.h"
#include "store/shard_snapshot.h"
#include "train/checkpoint_words.h"

namespace passel::job {
namespace {

// A worker in a long step is waited for so long; then this checkpoint is given up.
constexpr std::chrono::seconds kMeetingLimit{60};
// Who is at its own end does not wait long for a worker that stands still.
constexpr std::chrono::seconds kShadowLimitAtEnd{10};
// To hear that a save is given up. At the end a disk is left behind soon after.
constexpr std::chrono::milliseconds kForgetLimit{5000}, kForgetLimitAtEnd{500};
// Until a folder shows what other hosts have put there: NFS has 60 s by default.
constexpr std::chrono::seconds kShownLimit{70}, kShownPause{1};

double Milliseconds(std::chrono::nanoseconds time) {
  return 1e-6 * static_cast<double>(time.count());
}

std::string NewSaveWord() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

// Of values that nobody trains any more.
bool NothingIsHalfDone(bool rounds, const std::vector<PartState>& parts) {
  return std::ranges::none_of(parts, [&](const PartState& part) {
    return part.claimed || (rounds && (!part.round || part.round != parts[0].round));
  });
}

class OneSave {
 public:
  OneSave(const SavedJob& job, std::optional<AtEnd> at_end, const SaveLimits& limits,
          CheckpointFolder& folder)
      : job_(job), at_end_(at_end), limits_(limits), folder_(folder) {}

  Result<SaveOutcome> Run(std::optional<std::int64_t> saved);
  void ForgetOthers();

 private:
  using Sources = std::vector<std::unique_ptr<PartSource>>;

  Result<bool> NothingIsHalfDone(bool rounds);
  std::uint64_t DecidedRound() const;
  Status CopyAtOneStep();
  Status TakeShadow();
  void MakeRoomForCopy();
  Status OrderOthers(PartCopy how);
  Result<std::vector<PartState>> AwaitOthers(std::chrono::nanoseconds limit);
  Sources MakeSources(bool settled);
  SaveLimits LimitsOf(std::size_t part) const;
  Status Write(bool exact);
  Status WriteParts(bool exact, const Sources& sources);
  Status Commit(int parts);
  void OnEachShard(const std::function<void(std::size_t shard)>& run) const;
  void Tell() const;

  const SavedJob& job_;
  const std::optional<AtEnd> at_end_;
  const SaveLimits& limits_;
  CheckpointFolder& folder_;
  std::int64_t step_ = 0;
  std::uint64_t decided_ = 0;  // DecidedRound() before it was looked whether anything is half done
  JobProgress progress_;
  std::vector<ShardBuffer> copies_;   // [shards]; none: the shards are read as they are
  std::vector<ShardBuffer> rooms_;    // [shards], for copies while others train; none: no copies
  std::optional<ShadowCopy> shadow_;  // in place of these, of values on a GPU
  std::vector<CopyEnd> ends_;         // [shards] of these
  SaveOutcome outcome_;
};

Result<SaveOutcome> OneSave::Run(std::optional<std::int64_t> saved) {
  outcome_.newest = saved;
  PASSEL_RETURN_IF_ERROR(CheckLosses(job_.shards[0], job_.names));
  PASSEL_RETURN_IF_ERROR(CheckFreeSpace(folder_.path(), CheckpointBytes(job_.plan)));
  Failpoint("checkpoint.begin");
  if (at_end_) Failpoint("checkpoint.end");
  const std::int64_t begin_ns = MonotonicNs();
  const bool quiet = at_end_ == AtEnd::kNobodyTrains;
  // Who is at its own end cannot meet itself; where rounds wait for it nobody moves.
  const bool rounds = IsRoundMode(CurrentMode(job_.shards[0]).setting.mode);
  const bool meets = !at_end_ && (rounds || job_.config.checkpoints.consistent);
  // Tasks that were killed may have left a round, or a push, half applied.
  bool settled = false;
  if (quiet) {
    decided_ = DecidedRound();
    PASSEL_ASSIGN_OR_RETURN(settled, NothingIsHalfDone(rounds));
  }
  if (meets) {
    PASSEL_RETURN_IF_ERROR(CopyAtOneStep());
  } else {
    step_ = job_.shards[0].state->global_step.load(std::memory_order_acquire);
    progress_ = ProgressOf(job_.shards);
    progress_.global_step = step_;
  }
  if (job_.plan.on_device && !meets && step_ != saved) PASSEL_RETURN_IF_ERROR(TakeShadow());
  if (step_ == saved) return outcome_;
  PASSEL_RETURN_IF_ERROR(folder_.CheckNameIsFree(step_));
  // This job has saved it, and heard of an error afterwards.
  if (folder_.index().Find(CheckpointName(step_)) != nullptr) {
    outcome_.newest = step_;
    return outcome_;
  }
  if (quiet && !settled && rounds && saved) {
    LogWarning("no last checkpoint: tasks were killed in the middle of a round; the newest is {}",
               CheckpointName(*saved));
    return outcome_;
  }
  const auto write = [&]() -> Status {
    if (shadow_ && !settled) {
      shadow_->Copy();
      if (const auto end = shadow_->end()) ends_.assign(job_.shards.size(), *end);
    } else if (!meets && !quiet) {
      PASSEL_RETURN_IF_ERROR(OrderOthers(PartCopy::kLive));  // who begin to copy at once
      MakeRoomForCopy();
      PASSEL_RETURN_IF_ERROR(AwaitOthers(kMeetingLimit).status());
    }
    std::int64_t copied_ns = MonotonicNs();
    PASSEL_RETURN_IF_ERROR(Write(meets || settled));
    for (const CopyEnd& end : ends_) copied_ns = std::max(copied_ns, end.ns);
    outcome_.copying = std::chrono::nanoseconds(copied_ns - begin_ns);
    outcome_.writing = std::chrono::nanoseconds(MonotonicNs() - copied_ns);
    return {};
  };
  PASSEL_RETURN_IF_ERROR(at_end_ ? write() : RunGivingWay(write));
  outcome_.newest = step_;
  outcome_.written = true;
  Tell();
  return outcome_;
}

Status OneSave::OrderOthers(PartCopy how) {
  if (job_.others == nullptr) return {};
  return job_.others->OrderBegin(how, job_.shards[0].state->cohort.load(std::memory_order_relaxed));
}

Result<std::vector<PartState>> OneSave::AwaitOthers(std::chrono::nanoseconds limit) {
  if (job_.others == nullptr) return std::vector<PartState>();
  return job_.others->AwaitStates([this] { return LimitsOf(0).Check(); },
                                  limits_.deadline.Sooner(limit));
}

// Nobody applies a round that is not decided.
std::uint64_t OneSave::DecidedRound() const {
  return Decision::Unpack(job_.shards[0].state->decision.load(std::memory_order_seq_cst)).round;
}

Result<bool> OneSave::NothingIsHalfDone(bool rounds) {
  PASSEL_RETURN_IF_ERROR(OrderOthers(PartCopy::kSettled));
  std::vector<PartState> parts;
  for (std::size_t s = 0; s < job_.shards.size(); ++s) {
    parts.push_back(StateOfPart(job_.shards[s], /*lead=*/s == 0));
  }
  PASSEL_ASSIGN_OR_RETURN(const std::vector<PartState> others, AwaitOthers(kMeetingLimit));
  parts.insert(parts.end(), others.begin(), others.end());
  return passel::job::NothingIsHalfDone(rounds, parts) &&
         (!job_.plan.on_device || ShadowIsLast(job_.shards[0]));
}

// It has all updates up to step_ then, or step_ is where it is.
Status OneSave::TakeShadow() {
  const auto check = [this] { return LimitsOf(0).Check(); };
  const Deadline limit = limits_.deadline.Sooner(at_end_ ? kShadowLimitAtEnd : kMeetingLimit);
  Result<std::int64_t> step = AwaitShadow(job_.shards[0], step_, check, limit);
  if (at_end_ && step.status().code() == Code::kDeadlineExceeded) {
    PASSEL_RETURN_IF_ERROR(check());
    step = ShadowStep(job_.shards[0]);
  }
  PASSEL_RETURN_IF_ERROR(step.status());
  if (*step < step_) {
    LogWarning(
        "no worker is there that copies the values of global step {} from the memory of the GPU: "
        "what is saved is their shadow of step {}",
        step_, *step);
    progress_.global_step = step_ = *step;
  }
  shadow_.emplace(job_.shards);
  return {};
}

Status OneSave::CopyAtOneStep() {
  Result<std::vector<ShardBuffer>> buffers = MakeShardBuffers(job_.shards, /*slots=*/true);
  if (!buffers.ok()) {
    return Status(buffers.status().code(),
                  buffers.status().message() + ": free some, or use a mode without rounds");
  }
  copies_ = std::move(*buffers);
  std::vector<std::vector<float*>> out;
  for (const ShardBuffer& copy : copies_) out.push_back(copy.contents());
  ConsistentCopyOptions options{job_.names, CopyThreads(), &limits_.quit};
  if (job_.plan.on_device) {
    options.before_copy = [this](std::int64_t step, const ConsistentCopyOptions::Between& between) {
      return AwaitShadow(job_.shards[0], step, between, limits_.deadline.Sooner(kMeetingLimit))
          .status();
    };
  }
  if (job_.others != nullptr) {
    // Their memory first, so that nobody waits for that.
    PASSEL_RETURN_IF_ERROR(OrderOthers(PartCopy::kMet));
    PASSEL_RETURN_IF_ERROR(AwaitOthers(kMeetingLimit).status());
    options.begin_others = [this] { return job_.others->OrderCopy(); };
    options.await_others = [this](const OtherParts::Between& between) -> Status {
      const Deadline limit = limits_.deadline.Sooner(kMeetingLimit);
      PASSEL_ASSIGN_OR_RETURN(const std::vector<PartState> others,
                              job_.others->AwaitStates(between, limit));
      const std::optional<std::uint64_t> round = StateOfPart(job_.shards[0], /*lead=*/true).round;
      for (const PartState& other : others) {
        if (round && other.round && other.round != round) {
          return Aborted(
              fmt::format("one ps is after round {}, another after {}", *round, *other.round));
        }
      }
      return {};
    };
  }
  PASSEL_ASSIGN_OR_RETURN(
      ConsistentCopy copy,
      CopyInMeeting(job_.shards, out, options, limits_.deadline.Sooner(kMeetingLimit)));
  step_ = copy.global_step;
  progress_ = std::move(copy.progress);
  outcome_.meeting = copy.cost;
  return {};
}

// Training does not wait for the disk, nor is the checkpoint of the time that the disk takes.
void OneSave::MakeRoomForCopy() {
  Result<std::vector<ShardBuffer>> buffers =
      MakeShardBuffers(job_.shards, /*slots=*/true, kShareForLiveCopy, /*touch=*/false);
  if (!buffers.ok()) {
    LogDebug("{}: it is written as it is read", buffers.status().message());
    return;
  }
  rooms_ = std::move(*buffers);
  ends_.resize(job_.shards.size());
}

SaveLimits OneSave::LimitsOf(std::size_t part) const {
  SaveLimits limits = limits_;
  if (part != 0 || !at_end_) limits.alive = {};  // it is for the thread that calls
  return limits;
}

OneSave::Sources OneSave::MakeSources(bool settled) {
  Sources sources;
  for (std::size_t s = 0; s < job_.shards.size(); ++s) {
    const ShardMemory& shard = job_.shards[s];
    std::unique_ptr<PartSource> source;
    if (!rooms_.empty()) {
      source = MakeLiveCopy(shard, &job_.shards[0], std::move(rooms_[s]), LimitsOf(s), &ends_[s]);
    } else if (shadow_ && !settled) {
      source = shadow_->SourceOf(s);
    } else if (copies_.empty() && settled) {  // nobody changes them
      source = std::make_unique<CopySource>(ContentsOf(shard), shard.floats, shard.block_floats);
    } else if (copies_.empty()) {
      source = MakeLiveSource(shard);
    } else {
      source = std::make_unique<CopySource>(copies_[s].read(), shard.floats, shard.block_floats);
    }
    sources.push_back(MakeCheckedSource(std::move(source), shard, LimitsOf(s)));
  }
  return sources;
}

Status OneSave::Write(bool exact) {
  const int parts = job_.plan.variables.shards();
  Status written = WriteParts(exact, MakeSources(/*settled=*/exact));
  Failpoint("checkpoint.written");
  EndOfCopy();
  if (written.ok() && at_end_ == AtEnd::kNobodyTrains && exact && DecidedRound() != decided_) {
    written = Aborted(
        "the worker for which it was to be saved no longer waits for that, and the others have "
        "made "
        "another round meanwhile");
  }
  if (written.ok()) written = CheckLosses(job_.shards[0], job_.names);
  if (written.ok()) written = Commit(parts);
  if (written.ok()) {
    Failpoint("checkpoint.committed");
    return {};
  }
  if (folder_.index().Find(CheckpointName(step_)) == nullptr) {
    ForgetOthers();
    folder_.GiveUp();
  }
  return written;
}

void OneSave::ForgetOthers() {
  if (job_.others == nullptr) return;
  job_.others->Forget(Deadline::After(at_end_ ? kForgetLimitAtEnd : kForgetLimit));
}

Status OneSave::Commit(int parts) {
  // A folder of NFS shows late what other hosts have put there.
  Patience patience(limits_.deadline.Sooner(kShownLimit));
  for (;;) {
    Status committed = folder_.Commit(step_, parts, WallSeconds());
    if (job_.others == nullptr || committed.code() != Code::kNotFound) return committed;
    PASSEL_RETURN_IF_ERROR(LimitsOf(0).Check());
    if (!patience.Again(kShownPause)) return committed;
  }
}

void OneSave::Tell() const {
  const MeetingCost& cost = outcome_.meeting;
  std::string cost_text;
  if (cost.held.count() > 0) {
    cost_text =
        fmt::format("; workers waited {:.1f} ms at most", Milliseconds(cost.gathering + cost.held));
  } else if (!ends_.empty()) {
    const auto last = std::ranges::max_element(ends_, {}, &CopyEnd::step);
    cost_text = fmt::format("; copied in {:.1f} ms, up to global step {}",
                            Milliseconds(outcome_.copying), last->step);
  }
  LogInfo("saved checkpoint {} in {:.0f} ms{}", folder_.PathOf(CheckpointName(step_)),
          Milliseconds(outcome_.copying + outcome_.writing), cost_text);
}

// The thread that calls takes the first: of a last checkpoint it tells that it is alive.
void OneSave::OnEachShard(const std::function<void(std::size_t shard)>& run) const {
  std::vector<std::thread> others;
  others.reserve(job_.shards.size());
  for (std::size_t s = 1; s < job_.shards.size(); ++s) {
    try {
      others.emplace_back([&run, s] {
        nvtx::NameThread("checkpoints");
        run(s);
      });
    } catch (const std::system_error&) {
      run(s);  // no thread is left for it
    }
  }
  run(0);
  for (std::thread& other : others) other.join();
}

Status OneSave::WriteParts(bool exact, const Sources& sources) {
  CheckpointMoment moment;
  moment.mode = CurrentMode(job_.shards[0]).setting;
  moment.ps = job_.plan.variables.shards();
  moment.workers = WantedWorkers(job_.shards[0]);
  progress_.workers.insert(progress_.workers.end(), job_.away.begin(), job_.away.end());
  moment.places = static_cast<int>(progress_.workers.size());
  moment.exact = exact;
  moment.settings = SettingsToKeep(job_.settings);
  PASSEL_ASSIGN_OR_RETURN(moment.data, ParseJson("data", job_.data.empty() ? "{}" : job_.data, 16));
  PartOrder order;
  order.folder = folder_.path();
  order.step = step_;
  order.save = NewSaveWord();
  folder_.BeginSave(step_, order.save);
  order.parts = moment.ps;
  order.metadata = WordsOfCheckpoint(job_.config, moment);
  if (!ends_.empty()) order.metadata[kLastStepKey] = LastStepText(0);  // until that is known
  const auto chief = static_cast<std::size_t>(job_.config.worker.names.chief);
  if (const std::string kernels =
          KernelsOf(job_.shards[0].tasks[chief].counters.device.load(std::memory_order_relaxed));
      !kernels.empty()) {
    order.metadata[kKernelsKey] = kernels;
  }
  if (!job_.begun_with.empty()) order.metadata[kBegunWithKey] = job_.begun_with;
  if (job_.others != nullptr) {
    PartOrder theirs = order;
    theirs.metadata.erase(kLastStepKey);  // they do not know it
    PASSEL_RETURN_IF_ERROR(job_.others->OrderWrite(ToJson(theirs), exact));
  }
  std::vector<Result<PartWritten>> written(sources.size(), PartWritten{});
  OnEachShard([&](std::size_t part) {
    PartOrder own = order;
    own.part = static_cast<int>(part);
    try {
      written[part] = WritePart(own, job_.plan, progress_, *sources[part]);
    } catch (const std::bad_alloc&) {
      written[part] = ErrnoStatus(ENOMEM, "there is no memory for it");
    }
  });
  for (const Result<PartWritten>& part : written) {
    PASSEL_RETURN_IF_ERROR(part.status());
    outcome_.bytes += part->bytes;
  }
  if (job_.others == nullptr) return {};
  PASSEL_ASSIGN_OR_RETURN(
      const std::vector<Json> others,
      job_.others->Await([this] { return LimitsOf(0).Check(); }, limits_.deadline));
  for (const Json& other : others) {
    PASSEL_ASSIGN_OR_RETURN(const auto bytes, Field<std::uint64_t>(other, "bytes_written"));
    outcome_.bytes += bytes;
  }
  return {};
}

}  // namespace

std::uint64_t CheckpointBytes(const StorePlan& plan) {
  std::uint64_t bytes = std::uint64_t{1} << 16;
  for (int shard = 0; shard < plan.variables.shards(); ++shard) {
    bytes += ContentsBytes(plan.ShapeOf(shard));
  }
  return bytes;
}

Result<SaveOutcome> SaveCheckpoint(const SavedJob& job, std::optional<std::int64_t> saved,
                                   std::optional<AtEnd> at_end, const SaveLimits& limits,
                                   CheckpointFolder& folder) {
  OneSave save(job, at_end, limits, folder);
  Result<SaveOutcome> outcome = save.Run(saved);
  save.ForgetOthers();  // of one that was not written
  return outcome;
}

}  // namespace passel::job

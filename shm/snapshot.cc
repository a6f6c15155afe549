#include "shm/snapshot.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/memory_file.h"
#include "cluster/patience.h"
#include "shm/layout.h"

namespace passel::shm {
namespace {

constexpr std::chrono::seconds kSameRoundLimit{1};

// Of meetings that are over before all is copied.
constexpr int kMeetings = 3;
// A ps that copies for longer is waited for, and the workers are told so.
constexpr std::chrono::milliseconds kTellEvery{500};

// So long the place of a ps may be empty before its job counts as ended.
constexpr std::chrono::seconds kGoneLimit{2};

}  // namespace

void Snapshot::Unmap::operator()(const float* values) const {
  ::munmap(const_cast<float*>(values), bytes);
}

class SnapshotTaker {
 public:
  SnapshotTaker(const std::string& job_id, Deadline deadline, JobIs begun = JobIs::kWanted)
      : job_(job_id), deadline_(deadline), met_(begun == JobIs::kBegun) {}

  Result<std::int64_t> Step() {
    PASSEL_ASSIGN_OR_RETURN(const ShardSnapshot now, AskUntilReady(0, /*values=*/false));
    return now.global_step;
  }

  Result<StorePlan> Plan() {
    PASSEL_RETURN_IF_ERROR(AskUntilReady(0, /*values=*/false).status());
    PASSEL_ASSIGN_OR_RETURN(RendezvousClient asker, RendezvousClient::Control(job_, 0, deadline_));
    return PlanFrom(asker);
  }

  Result<Snapshot> Take() {
    Deadline same_round = deadline_;
    for (bool first = true;; first = false) {
      PASSEL_ASSIGN_OR_RETURN(Snapshot snapshot, TakeAllShards());
      if (first) same_round = deadline_.Sooner(kSameRoundLimit);
      if (snapshot.exact() || !snapshot.lead_.rounds || same_round.Expired()) return snapshot;
    }
  }

  Result<Snapshot> TakeAtOneStep() {
    PASSEL_ASSIGN_OR_RETURN(const ShardSnapshot begun, AskUntilReady(0, /*values=*/false));
    for (int meeting = 1;; ++meeting) {
      Result<Snapshot> snapshot = ReadInMeeting();
      if (snapshot.ok()) snapshot->lead_.data = begun.data;
      if (snapshot.status().code() != Code::kAborted || meeting == kMeetings) return snapshot;
    }
  }

 private:
  Result<Snapshot> TakeAllShards() {
    Snapshot snapshot;
    for (int shard = 0, shards = 1; shard < shards; ++shard) {
      PASSEL_ASSIGN_OR_RETURN(ShardSnapshot part, AskUntilReady(shard));
      PASSEL_ASSIGN_OR_RETURN(StorePlan plan, ReadPlan(part.plan.get(), shard));
      const FileDescriptor values = std::move(part.values);
      part.plan.Reset();
      if (shard == 0) {
        shards = plan.variables.shards();
        snapshot.plan_ = std::move(plan);
        snapshot.lead_ = std::move(part);
        snapshot.exact_ = snapshot.lead_.exact_round.has_value();
      } else if (plan.Hash() != snapshot.plan_.Hash()) {
        return FailedPrecondition(fmt::format(
            "ps/{} and ps/0 of job {} hold different models: the job was started anew meanwhile, "
            "try again",
            shard, job_));
      } else if (part.exact_round != snapshot.lead_.exact_round) {
        snapshot.exact_ = false;
      }
      PASSEL_RETURN_IF_ERROR(Map(values.get(), shard, &snapshot));
    }
    if (snapshot.exact_) snapshot.lead_.last_global_step = snapshot.lead_.global_step;
    if (snapshot.exact_ || snapshot.plan_.variables.shards() == 1) return snapshot;
    // The other shards were copied after shard 0: how far training had come by then.
    PASSEL_ASSIGN_OR_RETURN(const ShardSnapshot end, AskUntilReady(0, /*values=*/false));
    snapshot.lead_.last_global_step =
        std::max(snapshot.lead_.last_global_step, end.last_global_step);
    return snapshot;
  }

  // All that takes time and is no copying comes before the workers meet.
  Result<Snapshot> ReadInMeeting() {
    Snapshot snapshot;
    PASSEL_ASSIGN_OR_RETURN(RendezvousClient asker, RendezvousClient::Control(job_, 0, deadline_));
    PASSEL_ASSIGN_OR_RETURN(snapshot.plan_, PlanFrom(asker));
    if (snapshot.plan_.on_device) {
      return FailedPrecondition(
          fmt::format("the values of job {} are in the memory of a GPU, and what is read is their "
                      "last copy in any case: omit --consistent",
                      job_));
    }
    std::vector<FileDescriptor> memory;
    for (int shard = 0; shard < snapshot.plan_.variables.shards(); ++shard) {
      PASSEL_ASSIGN_OR_RETURN(FileDescriptor fd, MakeMemory(shard, &snapshot));
      memory.push_back(std::move(fd));
    }
    PASSEL_ASSIGN_OR_RETURN(RendezvousClient lead, RendezvousClient::Control(job_, 0, deadline_));
    PASSEL_ASSIGN_OR_RETURN(snapshot.lead_.global_step, lead.Meet(deadline_));
    snapshot.lead_.last_global_step = snapshot.lead_.global_step;
    std::vector<RendezvousClient> others;
    for (std::size_t shard = 1; shard < memory.size(); ++shard) {
      PASSEL_ASSIGN_OR_RETURN(RendezvousClient client,
                              RendezvousClient::Control(job_, static_cast<int>(shard), deadline_));
      PASSEL_RETURN_IF_ERROR(client.BeginCopy(memory[shard].get(), deadline_));
      others.push_back(std::move(client));
    }
    PASSEL_RETURN_IF_ERROR(lead.BeginCopy(memory[0].get(), deadline_));
    PASSEL_RETURN_IF_ERROR(lead.CopyIsMade(deadline_));
    for (RendezvousClient& client : others) {
      Status made;
      while ((made = client.CopyIsMade(deadline_.Sooner(kTellEvery))).code() ==
                 Code::kDeadlineExceeded &&
             !deadline_.Expired()) {
        PASSEL_RETURN_IF_ERROR(lead.Meet(deadline_).status());
      }
      PASSEL_RETURN_IF_ERROR(made);
    }
    PASSEL_ASSIGN_OR_RETURN(snapshot.meeting_cost_, lead.GoOn(deadline_));
    snapshot.exact_ = true;
    return snapshot;
  }

  Result<StorePlan> PlanFrom(RendezvousClient& asker) {
    PASSEL_ASSIGN_OR_RETURN(const FileDescriptor text, asker.GetPlan(deadline_));
    if (!text.valid()) return Unavailable(fmt::format("job {} has begun anew: try again", job_));
    return ReadPlan(text.get(), 0);
  }

  Result<FileDescriptor> MakeMemory(int shard, Snapshot* snapshot) const {
    const std::size_t floats = snapshot->plan_.variables.ShardFloats(shard);
    PASSEL_ASSIGN_OR_RETURN(const MemoryBudget budget, ReadMemoryBudget());
    PASSEL_ASSIGN_OR_RETURN(
        MemoryFile file,
        CreateMemoryFile("passel.snapshot", std::max<std::size_t>(floats, 1) * sizeof(float),
                         HugePages::kOff, budget));
    PASSEL_RETURN_IF_ERROR(MapMemory(file.fd.get(), file.bytes, snapshot));
    return std::move(file.fd);
  }

  // Connects anew each time: a control connection is short.
  Result<ShardSnapshot> AskUntilReady(int shard, bool values = true) {
    Deadline gone = deadline_;  // sooner, once it is not there any more
    bool answered = false;
    std::string chief;
    bool there = true, late = false;
    Patience patience(deadline_);
    do {
      Result<RendezvousClient> client = RendezvousClient::Control(job_, shard, deadline_);
      Result<ShardSnapshot> answer =
          client.ok() ? client->GetSnapshot(values, deadline_) : client.status();
      const Code code = answer.status().code();
      if (code == Code::kNotFound && !met_) {
        return NotFound(fmt::format(
            "no job {} of this user is running on this host: passel ctl list shows all", job_));
      }
      late = code == Code::kDeadlineExceeded;
      if (late && !answered) {
        return DeadlineExceeded(
            fmt::format("ps/{} of job {} does not answer: is it stopped?", shard, job_));
      }
      if (!answer.ok() && !IsMissing(code)) return answer.status();
      const bool missing = !answer.ok() && !late;
      answered |= answer.ok();
      met_ = true;
      if (answer.ok() && answer->there) return answer;
      if (answer.ok() && !answer->chief.empty()) chief = ", " + answer->chief;
      // It ended just now, or is started again.
      if (missing && there) gone = deadline_.Sooner(kGoneLimit);
      there = !missing;
      if (missing && gone.Expired()) {
        return Unavailable(fmt::format("ps/{} of job {} is gone: the job has ended", shard, job_));
      }
    } while (!late && patience.Again());
    return DeadlineExceeded(fmt::format(
        "job {} has no values yet: its chief{} has not written the first ones; look at its log, "
        "or ask again later",
        job_, chief));
  }

  Result<StorePlan> ReadPlan(int fd, int shard) const {
    PASSEL_ASSIGN_OR_RETURN(const std::string text, ReadConstantFile(fd, kMaxPlanBytes));
    Result<StorePlan> plan = PlanFromJson(text);
    if (!plan.ok()) {
      return plan.status().WithContext(
          fmt::format("ps/{} of job {} is another build of passel", shard, job_));
    }
    if (shard >= plan->variables.shards()) {
      return DataLoss(fmt::format("ps/{} of job {} holds a model on {} ps", shard, job_,
                                  plan->variables.shards()));
    }
    return plan;
  }

  Status Map(int fd, int shard, Snapshot* snapshot) const {
    std::size_t bytes = 0;
    PASSEL_RETURN_IF_ERROR(CheckConstant(fd, &bytes));
    const std::size_t needed = snapshot->plan_.variables.ShardFloats(shard) * sizeof(float);
    if (bytes == 0 || bytes < needed) {
      return DataLoss(fmt::format("ps/{} of job {} handed over {} bytes of values, {} are needed",
                                  shard, job_, bytes, needed));
    }
    return MapMemory(fd, bytes, snapshot);
  }

  static Status MapMemory(int fd, std::size_t bytes, Snapshot* snapshot) {
    // Private: frameworks take any memory for writable.
    void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
    if (base == MAP_FAILED) return ErrnoStatus(errno, "cannot map the values of a job");
    snapshot->shard_values_.push_back(static_cast<const float*>(base));
    snapshot->mapped_.emplace_back(snapshot->shard_values_.back(), Snapshot::Unmap{bytes});
    return {};
  }

  const std::string job_;
  const Deadline deadline_;
  bool met_;  // the job was there
};

Result<Snapshot> TakeConsistentSnapshot(const std::string& job_id, Deadline deadline) {
  return SnapshotTaker(job_id, deadline).TakeAtOneStep();
}

Result<Snapshot> TakeSnapshot(const std::string& job_id, Deadline deadline) {
  return SnapshotTaker(job_id, deadline).Take();
}

Result<std::int64_t> StepOfJob(const std::string& job_id, JobIs begun, Deadline deadline) {
  return SnapshotTaker(job_id, deadline, begun).Step();
}

Result<StorePlan> PlanOfJob(const std::string& job_id, JobIs begun, Deadline deadline) {
  return SnapshotTaker(job_id, deadline, begun).Plan();
}

}  // namespace passel::shm

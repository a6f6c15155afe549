#include "job/job_observer.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/clock.h"
#include "base/log.h"
#include "cluster/patience.h"
#include "optim/update_kernels.h"
#include "store/membership.h"
#include "store/mode.h"
#include "store/shadow.h"
#include "store/shard_buffer.h"

namespace passel::job {
namespace {

// A task that listens answers at once; one that is stopped must not hold up the others for long.
constexpr std::chrono::milliseconds kAnswerLimit{500};
constexpr int kExactCopies = 50;

}  // namespace

JobObserver::JobObserver(const ObserverOptions& options, const JobToken& token)
    : options_(options),
      token_(token),
      ps_(static_cast<std::size_t>(options.num_shards)),
      arenas_(static_cast<std::size_t>(options.num_shards)),
      values_(static_cast<std::size_t>(options.num_shards)) {}

Result<std::unique_ptr<JobObserver>> JobObserver::Attach(const ObserverOptions& options,
                                                         const JobToken& token) {
  std::unique_ptr<JobObserver> job(new JobObserver(options, token));
  PASSEL_ASSIGN_OR_RETURN(job->identity_,
                          Listen(options.me.job_id, Role::kEvaluator, options.me.index));
  std::string task, problem;
  Patience patience(Deadline::After(options.start_wait), [&] {
    if (!job->HasArenas() && options.on_waiting) options.on_waiting(task);
  });
  do {
    PASSEL_RETURN_IF_ERROR(job->Look());
    problem = job->WhatIsMissing(&task);
    if (problem.empty()) return job;
    if (job->HasArenas() && job->Ended()) {
      return Unavailable("the job ended before its variables had values: look at the chief's log");
    }
  } while (patience.Again());
  return DeadlineExceeded(problem + ", or raise --start_wait");
}

bool JobObserver::HasArenas() const {
  return std::ranges::all_of(arenas_, [](const auto& arena) { return arena != nullptr; });
}

std::string JobObserver::WhatIsMissing(std::string* task) const {
  const std::string within = fmt::format("within {:g} s", ToSeconds(options_.start_wait));
  for (std::size_t shard = 0; shard < arenas_.size(); ++shard) {
    if (arenas_[shard]) continue;
    *task = ps_[shard].client ? options_.chief_name : fmt::format("ps/{}", shard);
    if (!ps_[shard].client) {
      return fmt::format("{} of job {} did not start {}: start it", *task, options_.me.job_id,
                         within);
    }
    return fmt::format("the chief, {}, did not propose its plan to ps/{} of job {} {}: start it",
                       *task, shard, options_.me.job_id, within);
  }
  for (const std::unique_ptr<shm::Arena>& arena : arenas_) {
    if (arena->memory().state->initialized.load(std::memory_order_acquire) != 0) continue;
    *task = options_.chief_name;
    return fmt::format("the chief, {}, has not initialised the variables {}: look at its log",
                       *task, within);
  }
  return "";
}

// Maps the arena of this ps, if it has one, unless it is mapped already.
Status JobObserver::CheckArena(int shard) {
  Ps& ps = ps_[static_cast<std::size_t>(shard)];
  PASSEL_ASSIGN_OR_RETURN(std::optional<FileDescriptor> fd,
                          ps.client->GetArena(false, Deadline::After(kAnswerLimit)));
  if (!fd) return {};  // not yet
  PASSEL_ASSIGN_OR_RETURN(
      shm::Arena arena,
      shm::Arena::AdoptFrom(fmt::format("ps/{}", shard), std::move(*fd), options_.me.job_id, shard,
                            shm::Arena::Access::kRead));
  std::unique_ptr<shm::Arena>& ours = arenas_[static_cast<std::size_t>(shard)];
  ps.arena_checked = true;
  if (ours && ours->nonce() == arena.nonce()) return {};
  const shm::Arena* const known = ours ? ours.get() : arenas_[0].get();
  if (known != nullptr && known->plan().Hash() != arena.plan().Hash()) {
    return FailedPrecondition(fmt::format(
        "job {} was started anew with another model or other settings: start the evaluator anew",
        options_.me.job_id));
  }
  if (ours) LogWarning("ps/{} has another arena: the job was begun anew", shard);
  ours = std::make_unique<shm::Arena>(std::move(arena));
  return {};
}

Status JobObserver::Look() {
  const bool attached = HasArenas();
  for (int shard = 0; shard < options_.num_shards; ++shard) {
    Ps& ps = ps_[static_cast<std::size_t>(shard)];
    // We have asked nothing, so readable means closed.
    if (ps.client && ps.client->Readable()) ps.client.reset();
    if (ps.client && ps.arena_checked) continue;
    const bool was_missing = ps.missing_since_ns != 0;
    if (!was_missing) ps.missing_since_ns = MonotonicNs();
    Status status;
    if (!ps.client) {
      Result<shm::RendezvousClient> client = shm::RendezvousClient::Connect(
          options_.me, Role::kPs, shard, &token_, Deadline::After(kAnswerLimit));
      status = client.status();
      if (client.ok()) ps.client.emplace(std::move(*client));
      ps.arena_checked = false;
    }
    if (status.ok()) status = CheckArena(shard);
    if (!status.ok()) {
      if (!IsMissing(status.code())) return status;
      ps.client.reset();
      if (attached && !was_missing && !Ended()) {
        LogInfo("ps/{} is gone; its values are still here", shard);
      }
    } else if (ps.arena_checked) {
      ps.missing_since_ns = 0;
      if (attached && was_missing) LogInfo("ps/{} is back", shard);
    }
  }
  return {};
}

std::chrono::nanoseconds JobObserver::MissingFor() const {
  std::int64_t longest = 0;
  const std::int64_t now = MonotonicNs();
  for (const Ps& ps : ps_) {
    if (ps.missing_since_ns != 0) longest = std::max(longest, now - ps.missing_since_ns);
  }
  return std::chrono::nanoseconds(longest);
}

bool JobObserver::Ended() const {
  const ShardMemory& lead = arenas_[0]->memory();
  if (!AllWorkersEnded(lead)) return false;
  // Else somebody died, and may be started again while the lead is there.
  return AllWorkersDone(lead) || Stopped() || !ps_[0].client;
}

bool JobObserver::Stopped() const {
  return arenas_[0]->memory().state->stop.load(std::memory_order_acquire) != 0;
}

std::int64_t JobObserver::global_step() const {
  return arenas_[0]->memory().state->global_step.load(std::memory_order_acquire);
}

Result<WatchedJob::Copied> JobObserver::CopyValues() {
  Copied copied;
  const int tries = plan().mode.traits().rounds ? kExactCopies : 1;
  for (int i = 0; i < tries; ++i) {
    const ShadowReader shadow(arenas_[0]->memory());
    copied.first_step = global_step();
    for (std::size_t shard = 0; shard < arenas_.size(); ++shard) {
      const ShardMemory& memory = arenas_[shard]->memory();
      values_[shard].resize(memory.floats);
      passel::CopyValues(values_[shard].data(), memory.values, memory.floats);
    }
    copied.last_step = global_step();
    if (plan().on_device) {
      const ShadowSteps steps = shadow.Steps(copied.last_step);
      copied = {steps.first, steps.last, steps.age_ns};
    }
    if (copied.first_step == copied.last_step) break;
  }
  return copied;
}

Result<WatchedJob::Copied> JobObserver::CopyValuesAtOneStep(Deadline deadline, MeetingCost* cost) {
  if (plan().on_device) {
    return FailedPrecondition("the values are in the memory of a GPU, and read is their last copy");
  }
  if (!ps_[0].client) return Unavailable("ps/0, which has the workers meet, is gone");
  shm::RendezvousClient& lead = *ps_[0].client;
  std::vector<ShardMemory> shards;
  std::vector<std::vector<float*>> out;
  for (std::size_t shard = 0; shard < arenas_.size(); ++shard) {
    shards.push_back(arenas_[shard]->memory());
    values_[shard].resize(shards.back().floats);  // touched, the first time
    out.push_back({values_[shard].data()});
  }
  const int threads = CopyThreads();
  Result<std::int64_t> step = lead.Meet(deadline);
  Status whole = step.status();
  if (whole.ok()) {
    CopyShards(shards, out, threads, [&lead] { (void)lead.Meet(Deadline::After(kAnswerLimit)); });
    Result<MeetingCost> paid = lead.GoOn(Deadline::After(kAnswerLimit));
    whole = paid.status();
    if (paid.ok()) *cost = *paid;
  }
  if (whole.ok()) return Copied{*step, *step, {}};
  // An answer may still be on its way; and without the connection they go on at once.
  if (whole.code() != Code::kAborted && whole.code() != Code::kFailedPrecondition) {
    ps_[0].client.reset();
  }
  return whole;
}

std::vector<const float*> JobObserver::values() const {
  std::vector<const float*> all;
  for (const std::vector<float>& shard : values_) all.push_back(shard.data());
  return all;
}

void JobObserver::TellScore(double accuracy, std::int64_t global_step) {
  if (!ps_[0].client) return;
  const Status told =
      ps_[0].client->TellScore(accuracy, global_step, Deadline::After(kAnswerLimit));
  if (!told.ok()) ps_[0].client.reset();
}

std::string JobObserver::DataJson() {
  if (!ps_[0].client) return "null";
  const Result<shm::ShardSnapshot> now =
      ps_[0].client->GetSnapshot(/*values=*/false, Deadline::After(std::chrono::seconds(5)));
  if (!now.ok()) ps_[0].client.reset();
  return now.ok() ? now->data : "null";
}

std::optional<FileDescriptor> JobObserver::GetData(const std::string& key) {
  if (!ps_[0].client) return std::nullopt;
  Result<std::optional<FileDescriptor>> fd =
      ps_[0].client->GetData(key, Deadline::After(std::chrono::seconds(5)));
  if (fd.ok()) return std::move(*fd);
  ps_[0].client.reset();
  return std::nullopt;
}

}  // namespace passel::job

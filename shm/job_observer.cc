#include "shm/job_observer.h"

#include <fmt/core.h>
#include <poll.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "optim/update_kernels.h"
#include "shm/protocol.h"
#include "store/membership.h"
#include "store/mode.h"
#include "store/shadow.h"

namespace passel::shm {
namespace {

constexpr std::chrono::nanoseconds kTellEvery = std::chrono::seconds(10);
constexpr std::chrono::milliseconds kTryAgain{20};
// A task that listens answers at once; one that is stopped must not hold up the others for long.
constexpr std::chrono::milliseconds kAnswerLimit{500};
constexpr int kExactCopies = 50;

// Nobody listens, or it ended while we spoke to it, or it does not answer in time.
bool IsMissing(Code code) {
  return code == Code::kNotFound || code == Code::kUnavailable || code == Code::kDeadlineExceeded;
}

}  // namespace

JobObserver::JobObserver(const ObserverOptions& options, const JobToken& token)
    : options_(options),
      token_(token),
      ps_(static_cast<std::size_t>(options.num_shards)),
      arenas_(static_cast<std::size_t>(options.num_shards)),
      values_(static_cast<std::size_t>(options.num_shards)),
      next_tell_ns_(MonotonicNs() + kTellEvery.count()) {}

Result<std::unique_ptr<JobObserver>> JobObserver::Attach(const ObserverOptions& options,
                                                         const JobToken& token) {
  std::unique_ptr<JobObserver> observer(new JobObserver(options, token));
  Result<FileDescriptor> name =
      ListenAbstract(EndpointName(options.job_id, Role::kEvaluator, options.index));
  if (name.status().code() == Code::kAlreadyExists) {
    return NameTaken(options.job_id, Role::kEvaluator, options.index);
  }
  if (!name.ok()) return name.status();
  observer->identity_ = std::move(*name);
  const Deadline deadline = Deadline::After(options.start_limit);
  for (int shard = 0; shard < options.num_shards; ++shard) {
    PASSEL_RETURN_IF_ERROR(observer->AwaitArena(shard, deadline));
  }
  PASSEL_RETURN_IF_ERROR(observer->AwaitFirstValues(deadline));
  return observer;
}

void JobObserver::TellIfDue(const std::string& missing) {
  if (MonotonicNs() < next_tell_ns_) return;
  next_tell_ns_ = MonotonicNs() + kTellEvery.count();
  if (options_.on_waiting) options_.on_waiting(missing);
}

Status JobObserver::Connect(int shard, Deadline deadline) {
  const Introduction me{options_.job_id, Role::kEvaluator, options_.index, options_.cluster_hash};
  Result<RendezvousClient> client =
      RendezvousClient::Connect(me, Role::kPs, shard, &token_, deadline.Sooner(kAnswerLimit));
  if (!client.ok()) return client.status();
  Ps& ps = ps_[static_cast<std::size_t>(shard)];
  ps.client.emplace(std::move(*client));
  ps.arena_checked = false;
  return {};
}

Status JobObserver::AwaitArena(int shard, Deadline deadline) {
  Ps& ps = ps_[static_cast<std::size_t>(shard)];
  for (;;) {
    Status status = ps.client ? Status() : Connect(shard, deadline);
    const bool connected = status.ok();
    if (connected) status = CheckArena(shard);
    if (status.ok() && ps.arena_checked) return {};
    if (!status.ok()) {
      if (!IsMissing(status.code())) return status;
      ps.client.reset();
    }
    if (deadline.Expired()) {
      return DeadlineExceeded(
          connected ? fmt::format("the chief, {}, did not propose its plan to ps/{} of job {} "
                                  "within {:g} s: start it, or raise --start_wait",
                                  options_.chief_name, shard, options_.job_id,
                                  ToSeconds(options_.start_limit))
                    : fmt::format("ps/{} of job {} did not start within {:g} s: start it, or raise "
                                  "--start_wait",
                                  shard, options_.job_id, ToSeconds(options_.start_limit)));
    }
    TellIfDue(connected ? options_.chief_name : fmt::format("ps/{}", shard));
    std::this_thread::sleep_for(kTryAgain);
  }
}

// Maps the arena of this ps, if it has one, unless it is mapped already.
Status JobObserver::CheckArena(int shard) {
  Ps& ps = ps_[static_cast<std::size_t>(shard)];
  bool need_plan = false;
  PASSEL_ASSIGN_OR_RETURN(std::optional<FileDescriptor> fd,
                          ps.client->GetArena(false, &need_plan, Deadline::After(kAnswerLimit)));
  if (!fd) return {};  // not yet
  PASSEL_ASSIGN_OR_RETURN(Arena arena, Arena::Adopt(std::move(*fd), Arena::Access::kRead));
  if (arena.job_id() != options_.job_id || arena.shard() != shard) {
    return FailedPrecondition(fmt::format("ps/{} handed over the arena of shard {} of job {}",
                                          shard, arena.shard(), arena.job_id()));
  }
  std::unique_ptr<Arena>& ours = arenas_[static_cast<std::size_t>(shard)];
  ps.arena_checked = true;
  if (ours && ours->nonce() == arena.nonce()) return {};
  const Arena* const known = ours ? ours.get() : arenas_[0].get();
  if (known != nullptr && known->plan().Hash() != arena.plan().Hash()) {
    return FailedPrecondition(fmt::format(
        "job {} was started anew with another model or other settings: start the evaluator anew",
        options_.job_id));
  }
  if (ours) LogWarning("ps/{} has another arena: the job was begun anew", shard);
  ours = std::make_unique<Arena>(std::move(arena));
  return {};
}

Status JobObserver::AwaitFirstValues(Deadline deadline) {
  const auto initialized = [](const std::unique_ptr<Arena>& arena) {
    return arena->memory().state->initialized.load(std::memory_order_acquire) != 0;
  };
  while (!std::all_of(arenas_.begin(), arenas_.end(), initialized)) {
    PASSEL_RETURN_IF_ERROR(Look());
    if (Ended()) {
      return Unavailable("the job ended before its variables had values: look at the chief's log");
    }
    if (deadline.Expired()) {
      return DeadlineExceeded(
          fmt::format("the chief, {}, has not initialised the variables within {:g} s: look at its "
                      "log, or raise --start_wait",
                      options_.chief_name, ToSeconds(options_.start_limit)));
    }
    std::this_thread::sleep_for(kTryAgain);
  }
  return {};
}

Status JobObserver::Look() {
  for (int shard = 0; shard < options_.num_shards; ++shard) {
    Ps& ps = ps_[static_cast<std::size_t>(shard)];
    if (ps.client) {
      // We have asked nothing, so readable means closed.
      pollfd entry{ps.client->fd(), POLLIN, 0};
      if (::poll(&entry, 1, 0) > 0) ps.client.reset();
    }
    if (ps.client && ps.arena_checked) continue;
    const bool was_missing = ps.missing_since_ns != 0;
    if (!was_missing) ps.missing_since_ns = MonotonicNs();
    Status status = ps.client ? Status() : Connect(shard, Deadline::After(kAnswerLimit));
    if (status.ok()) status = CheckArena(shard);
    if (status.ok() && ps.arena_checked) {
      ps.missing_since_ns = 0;
      if (was_missing) LogInfo("ps/{} is back", shard);
      continue;
    }
    if (status.ok()) continue;  // it has no arena yet
    if (!IsMissing(status.code())) return status;
    ps.client.reset();
    if (!was_missing && !Ended()) LogInfo("ps/{} is gone; its values are still here", shard);
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
  const std::vector<Member> members = Membership(lead);
  const bool all_done = std::all_of(members.begin(), members.end(),
                                    [](const Member& m) { return m.phase == Phase::kDone; });
  // Else somebody died, and may be started again while the lead is there.
  return all_done || Stopped() || !ps_[0].client;
}

bool JobObserver::Stopped() const {
  return arenas_[0]->memory().state->stop.load(std::memory_order_acquire) != 0;
}

std::int64_t JobObserver::global_step() const {
  return arenas_[0]->memory().state->global_step.load(std::memory_order_acquire);
}

JobObserver::Copied JobObserver::CopyValues() {
  Copied copied;
  const int tries = IsRoundMode(plan().mode) ? kExactCopies : 1;
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

std::vector<const float*> JobObserver::values() const {
  std::vector<const float*> all;
  for (const std::vector<float>& shard : values_) all.push_back(shard.data());
  return all;
}

std::string JobObserver::DataJson() {
  if (!ps_[0].client) return "null";
  const Result<std::string> text =
      ps_[0].client->GetStatus(Deadline::After(std::chrono::seconds(5)));
  if (!text.ok()) {
    ps_[0].client.reset();
    return "null";
  }
  const nlohmann::json status = nlohmann::json::parse(*text, nullptr, false);
  return status.is_object() ? status.value("data", nlohmann::json()).dump() : "null";
}

std::optional<FileDescriptor> JobObserver::GetData(const std::string& key) {
  if (!ps_[0].client) return std::nullopt;
  Result<std::optional<FileDescriptor>> fd =
      ps_[0].client->GetData(key, Deadline::After(std::chrono::seconds(5)));
  if (!fd.ok()) {
    ps_[0].client.reset();
    return std::nullopt;
  }
  return std::move(*fd);
}

}  // namespace passel::shm

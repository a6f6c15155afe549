#include "shm/ps_host.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/nvtx.h"
#include "shm/job_status.h"
#include "shm/shard_copy.h"
#include "store/membership.h"
#include "store/mode_change.h"
#include "store/shadow.h"

namespace passel::shm {
namespace {

// Workers without a connection to us (after a restart of the ps) are looked after this often.
constexpr std::chrono::milliseconds kProbeEvery{250};

constexpr std::chrono::nanoseconds kTellOfDelayEvery = std::chrono::seconds(10);

constexpr std::size_t kMaxDataFiles = 8;

// Of descriptions of data that are kept: two tell already that workers differ.
constexpr std::size_t kMaxDataTold = 2;

}  // namespace

PsHost::PsHost(const PsHostOptions& options, const JobToken& token, FileDescriptor listening,
               std::optional<Arena> arena)
    : options_(options),
      token_(token),
      arena_(std::move(arena)),
      arena_kept_(!options.supervised || arena_.has_value()),
      server_(std::move(listening), token, options.job_id, options.cluster_hash, *this),
      departures_(options.names) {
  if (!options.data.empty()) data_told_.push_back(options.data);
}

PsHost::~PsHost() = default;

PsHost::End PsHost::Serve(int stop_fd) {
  std::int64_t next_probe_ns = 0;
  std::int64_t nobody_since_ns = 0;
  const Deadline start = Deadline::After(options_.start_limit);
  std::int64_t next_log_ns = MonotonicNs() + kTellOfDelayEvery.count();
  for (;;) {
    std::vector<int> watched;
    for (const Link& link : links_) watched.push_back(link.client.fd());
    if (stop_fd >= 0) watched.push_back(stop_fd);
    const std::vector<int> ready =
        server_.Poll(-1, watched, Deadline::After(arena_ ? kProbeEvery : kProbeEvery * 4));
    for (const int fd : ready) {
      if (fd == stop_fd) return End::kStopped;
      const auto link = std::find_if(links_.begin(), links_.end(),
                                     [fd](const Link& l) { return l.client.fd() == fd; });
      if (link != links_.end()) ServeLink(link);
    }
    const std::int64_t now = MonotonicNs();
    if (!arena_) {
      if (options_.supervised) continue;
      if (stop_asked_) {
        server_.FailWaiting(Cancelled("the job was stopped before it began"));
        return End::kStoppedEarly;
      }
      if (start.Expired()) return End::kNobodyCame;
      if (now >= next_log_ns) {
        next_log_ns += kTellOfDelayEvery.count();
        LogInfo("ps/{} still waiting for the plan of the chief, {}", options_.shard,
                options_.names.chief_name);
      }
      continue;
    }
    if (now >= next_probe_ns) {
      next_probe_ns = now + std::chrono::nanoseconds(kProbeEvery).count();
      const nvtx::Range range(nvtx::Event::kWatch, options_.shard);
      LookAfterWorkers();
    }
    if (options_.supervised) continue;
    const ShardMemory& memory = arena_->memory();
    departures_.Look(memory);
    if (start.Expired() || Stopped()) GiveUpThoseWhoNeverCame();
    if (!AllWorkersEnded(memory)) {
      nobody_since_ns = 0;
      continue;
    }
    const std::vector<Member> members = Membership(memory);
    const bool all_done = std::all_of(members.begin(), members.end(),
                                      [](const Member& m) { return m.phase == Phase::kDone; });
    if (all_done) return End::kWorkersDone;
    // Some died, left or never came, and nobody is running. The job was stopped, or it waits.
    const bool stopped = memory.state->stop.load(std::memory_order_acquire) != 0;
    if (nobody_since_ns == 0) {
      nobody_since_ns = now;
      if (!stopped) {
        LogInfo("no worker is running ({}): waiting {} s for one to come back", DescribeWorkers(),
                std::chrono::duration_cast<std::chrono::seconds>(options_.rejoin_limit).count());
      }
    }
    if (stopped || now - nobody_since_ns > options_.rejoin_limit.count()) return End::kSomeDied;
  }
}

bool PsHost::Stopped() const {
  return stop_asked_ ||
         (arena_ && arena_->memory().state->stop.load(std::memory_order_acquire) != 0);
}

Status PsHost::Admit(const Peer& peer) {
  if (peer.role != Role::kWorker) return {};
  if (peer.index >= options_.num_workers) {
    return InvalidArgument(fmt::format("worker index {} is out of range: this job has {} workers",
                                       peer.index, options_.num_workers));
  }
  for (const Peer& other : workers_) {
    if (other.index != peer.index || other.identity == peer.identity) continue;
    if (ProbeLiveness(other.identity) == Liveness::kDead) continue;
    return RunsAlready(options_.names, peer.index, other.pid);
  }
  workers_.push_back(peer);
  return {};
}

int PsHost::ArenaFd(const Peer& peer) {
  if (!arena_ || (!arena_kept_ && peer.role != Role::kSupervisor)) return -1;
  if (peer.role != Role::kEvaluator) return arena_->fd();
  if (!arena_for_reading_.valid()) {
    const std::string path = fmt::format("/proc/self/fd/{}", arena_->fd());
    arena_for_reading_.Reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!arena_for_reading_.valid()) {
      LogWarning("no evaluator can watch: {}",
                 ErrnoStatus(errno, "cannot open the arena for reading").message());
    }
  }
  return arena_for_reading_.get();
}

void PsHost::ArenaIsKept(const Peer&) {
  Failpoint("ps.kept");
  if (arena_) arena_kept_ = true;
}

bool PsHost::WantsPlanFrom(const Peer& peer) {
  return !arena_ && peer.role == Role::kWorker && peer.index == options_.names.chief;
}

Status PsHost::AcceptPlan(const Peer& peer, const std::string& plan_json) {
  if (arena_) return {};  // the chief compares its plan with the arena's
  if (!WantsPlanFrom(peer)) {
    return PermissionDenied(fmt::format(
        "only the chief, {}, proposes a plan, not {}", options_.names.chief_name,
        peer.role == Role::kWorker ? options_.names(peer.index)
                                   : fmt::format("{}/{}", RoleName(peer.role), peer.index)));
  }
  PASSEL_ASSIGN_OR_RETURN(const StorePlan plan, PlanFromJson(plan_json));
  if (plan.num_workers != options_.num_workers || options_.shard >= plan.variables.shards()) {
    return InvalidArgument(fmt::format(
        "the chief plans for {} ps and {} workers, ps/{} knows {} workers: give all tasks the same "
        "lists of hosts",
        plan.variables.shards(), plan.num_workers, options_.shard, options_.num_workers));
  }
  PASSEL_ASSIGN_OR_RETURN(MemoryBudget budget, ReadMemoryBudget());
  if (options_.memory_fraction < 1) {
    budget.available_bytes = static_cast<std::uint64_t>(
        options_.memory_fraction * static_cast<double>(budget.available_bytes));
    budget.limit =
        fmt::format("--memory_fraction {} of {}", options_.memory_fraction, budget.limit);
  }
  nvtx::Range range(nvtx::Event::kCreateArena, options_.shard);
  PASSEL_ASSIGN_OR_RETURN(
      Arena arena,
      Arena::Create(plan, options_.shard,
{options_.job_id, options_.huge_pages}, budget));
  arena.Publish();
  range.Close();
  Failpoint("ps.published");
  if (!arena.huge_page_report().empty()) LogInfo("{}", arena.huge_page_report());
  LogDebug("arena of shard {}: {} bytes", options_.shard, arena.bytes());
  arena_ = std::move(arena);
  if (stop_asked_) Stop();  // it came before there was anything to stop
  return {};
}

void PsHost::KeepData(const std::string& key, FileDescriptor fd) {
  if (data_.size() < kMaxDataFiles || data_.contains(key)) data_[key] = std::move(fd);
}

int PsHost::DataFd(const std::string& key) {
  const auto found = data_.find(key);
  return found == data_.end() ? -1 : found->second.get();
}

Status PsHost::DataTold(const Peer& peer, const std::string& json) {
  if (peer.role != Role::kWorker) {
    return PermissionDenied("only a worker tells which data it trains on");
  }
  if (json.size() > kMaxDataText) {
    return InvalidArgument(fmt::format(
        "a description of data has at most {} bytes, this one has {}: use a shorter path",
        kMaxDataText, json.size()));
  }
  const auto known = std::find(data_told_.begin(), data_told_.end(), json);
  if (peer.index == options_.names.chief) {
    if (known != data_told_.end()) data_told_.erase(known);
    data_told_.insert(data_told_.begin(), json);
    if (data_told_.size() > kMaxDataTold) data_told_.pop_back();
  } else if (known == data_told_.end() && data_told_.size() < kMaxDataTold) {
    data_told_.push_back(json);
  }
  return {};
}

std::string PsHost::DataJson() const {
  if (data_told_.empty()) return "null";
  nlohmann::json data = nlohmann::json::parse(data_told_[0], nullptr, false);
  if (!data.is_object()) return "null";
  data["also"] = nlohmann::json::array();
  for (std::size_t i = 1; i < data_told_.size(); ++i) {
    data["also"].push_back(nlohmann::json::parse(data_told_[i], nullptr, false));
  }
  return data.dump();
}

void PsHost::PsIsHere(int) {}

Result<std::optional<ShardSnapshot>> PsHost::TakeSnapshot(bool values) {
  if (!arena_) return std::optional<ShardSnapshot>();
  const nvtx::Range range(nvtx::Event::kSnapshot, options_.shard);
  const ShardState& state = *arena_->memory().state;
  // Acquire: who sees the word sees the values.
  if (state.initialized.load(std::memory_order_acquire) == 0) {
    return std::optional<ShardSnapshot>();
  }
  ShardSnapshot snapshot;
  snapshot.stopped = Stopped();
  snapshot.data = DataJson();
  if (!values) {
    snapshot.global_step = snapshot.last_global_step =
        state.global_step.load(std::memory_order_acquire);
    return std::optional<ShardSnapshot>(std::move(snapshot));
  }
  if (!plan_.valid()) {
    const std::string text = ToJson(arena_->plan());
    PASSEL_ASSIGN_OR_RETURN(plan_, CreateConstantFile("passel.plan", text.data(), text.size()));
  }
  PASSEL_ASSIGN_OR_RETURN(const MemoryBudget budget, ReadMemoryBudget());
  const ShadowReader shadow(arena_->memory());
  PASSEL_ASSIGN_OR_RETURN(ShardCopy copy, CopyShard(*arena_, budget));
  snapshot.global_step = copy.global_step_before;
  snapshot.last_global_step = copy.global_step_after;
  if (arena_->plan().on_device && options_.shard == 0) {
    const ShadowSteps steps = shadow.Steps(copy.global_step_after);
    snapshot.global_step = steps.first;
    snapshot.last_global_step = steps.last;
    snapshot.shadow_age_ns = steps.age_ns;
  }
  snapshot.exact_round = copy.exact_round;
  snapshot.rounds = copy.rounds;
  snapshot.values = std::move(copy.values);
  snapshot.plan.Reset(::fcntl(plan_.get(), F_DUPFD_CLOEXEC, 0));
  if (!snapshot.plan.valid()) return ErrnoStatus(errno, "cannot hand over the plan");
  return std::optional<ShardSnapshot>(std::move(snapshot));
}

std::string PsHost::StatusJson() {
  nlohmann::json status = {{"job", options_.job_id},
                           {"ps", options_.shard},
                           {"pid", ::getpid()},
                           {"alone", options_.alone},
                           {"chief", options_.names.chief_name},
                           {"data", nlohmann::json::parse(DataJson(), nullptr, false)}};
  if (arena_) {
    status["arena"] = nlohmann::json::parse(DescribeJob(*arena_, options_.names));
  }
  return status.dump();
}

Result<std::uint32_t> PsHost::SetMode(const ModeSetting& setting) {
  if (options_.shard != 0) {
    return FailedPrecondition(
        fmt::format("the mode of a job is kept by ps/0, not by ps/{}: ask that", options_.shard));
  }
  if (!arena_) {
    return FailedPrecondition(fmt::format(
        "the job is starting: the chief, {}, has not proposed its plan yet; try again in "
        "a moment",
        options_.names.chief_name));
  }
  PASSEL_RETURN_IF_ERROR(arena_->plan().CheckMode(setting));
  Result<std::uint32_t> number = WishForMode(arena_->memory(), setting);
  if (number.ok()) nvtx::Mark(nvtx::Event::kModeWished, *number);
  Failpoint("ps.wished");
  return number;
}

void PsHost::Stop() {
  stop_asked_ = true;
  nvtx::Mark(nvtx::Event::kStopping, options_.shard);
  if (!arena_) return;
  arena_->memory().state->stop.store(1, std::memory_order_seq_cst);
  Notify(arena_->memory().state->event);
}

}  // namespace passel::shm

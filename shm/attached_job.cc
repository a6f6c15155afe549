#include "shm/attached_job.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/log.h"
#include "base/nvtx.h"
#include "shm/departures.h"
#include "store/in_process_store.h"
#include "store/membership.h"

namespace passel::shm {
namespace {

constexpr std::chrono::seconds kTellOfWaitEvery{10};

// Of a worker that nobody is to find: no role has this name.
std::string PrivateName(const std::string& job_id) {
  return fmt::format("passel.{}.{}.client.{}", ::getuid(), job_id, ::getpid());
}

// `shard`, and those after it that nobody has started either.
void TellOfMissingPs(const AttachOptions& options, int shard) {
  if (!options.on_waiting) return;
  options.on_waiting(fmt::format("ps/{}", shard));
  const Result<std::vector<FoundEndpoint>> endpoints = FindEndpoints();
  if (!endpoints.ok()) return;
  for (int other = shard + 1; other < options.num_shards; ++other) {
    const bool listens =
        std::any_of(endpoints->begin(), endpoints->end(), [&](const FoundEndpoint& e) {
          return e.job_id == options.job_id && e.role == Role::kPs && e.index == other;
        });
    if (!listens) options.on_waiting(fmt::format("ps/{}", other));
  }
}

Status NoAnswer(const AttachOptions& options, int shard) {
  return DeadlineExceeded(
      fmt::format("ps/{} of job {} did not answer within {:g} s: look at its log, or raise "
                  "--start_wait",
                  shard, options.job_id, ToSeconds(options.start_limit)));
}

// The first setting in which two plans differ, for a person.
std::string FirstDifference(const StorePlan& mine, const StorePlan& theirs) {
  const nlohmann::json a = nlohmann::json::parse(ToJson(mine)).flatten();
  const nlohmann::json b = nlohmann::json::parse(ToJson(theirs)).flatten();
  for (const auto& [key, value] : a.items()) {
    const auto other = b.find(key);
    if (other == b.end()) return fmt::format("{} is {} here and absent there", key, value.dump());
    if (*other != value) {
      return fmt::format("{} is {} here and {} there", key, value.dump(), other->dump());
    }
  }
  return "the chief has more variables";
}

}  // namespace

// The thread of a worker without a supervisor: serves its endpoint and watches the ps.
class AttachedJob::Attendant final : public RendezvousHandler {
 public:
  Attendant(const AttachOptions& options, const JobToken& token, FileDescriptor listening)
      : options_(options),
        server_(std::move(listening), token, options.job_id, options.cluster_hash, *this),
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        ps_fds_(static_cast<std::size_t>(options.num_shards), -1),
        missing_since_ns_(static_cast<std::size_t>(options.num_shards)),
        here_(static_cast<std::size_t>(options.num_shards)),
        arenas_(static_cast<std::size_t>(options.num_shards)),
        departures_(options.engine.names),
        thread_([this] { Run(); }) {}

  ~Attendant() override {
    quit_.store(true, std::memory_order_release);
    Wake();
    thread_.join();
  }

  // Until a ps says that it is here, or the deadline.
  void AwaitPs(Deadline deadline) {
    std::unique_lock lock(mutex_);
    const std::uint64_t seen = arrivals_;
    arrived_.wait_for(lock, deadline.Remaining(), [&] { return arrivals_ != seen; });
  }

  // A ps that comes back gets it from now on. `arena` outlives us.
  void Hold(const Arena& arena, std::size_t shard) {
    const std::lock_guard lock(mutex_);
    arenas_[shard] = &arena;
  }

  // From now on nothing is asked of these, so that readable means closed.
  void Watch(const std::vector<RendezvousClient>& ps) {
    {
      const std::lock_guard lock(mutex_);
      for (std::size_t s = 0; s < ps.size(); ++s) ps_fds_[s] = here_[s] ? -1 : ps[s].fd();
    }
    Wake();
  }

  void SetData(const std::string& json) {
    const std::lock_guard lock(mutex_);
    data_ = json;
  }

  std::chrono::nanoseconds MissingFor() const {
    std::int64_t longest = 0;
    const std::int64_t now = MonotonicNs();
    for (const auto& since : missing_since_ns_) {
      const std::int64_t ns = since.load(std::memory_order_relaxed);
      if (ns != 0) longest = std::max(longest, now - ns);
    }
    return std::chrono::nanoseconds(longest);
  }

 private:
  void Wake() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto put = ::write(wake_.get(), &one, sizeof one);
  }

  // This worker has left the arena of the shard, whose ps may end then: that is the job's end.
  // REQUIRES: mutex_ is held.
  bool DoneWith(std::size_t shard) const {
    if (arenas_[shard] == nullptr) return false;
    const Phase phase = StateOf(arenas_[shard]->memory(), options_.worker).phase;
    return phase == Phase::kDone || phase == Phase::kLeft;
  }

  // REQUIRES: mutex_ is held.
  void Miss(std::size_t shard) {
    missing_since_ns_[shard].store(MonotonicNs(), std::memory_order_relaxed);
    if (arenas_[shard] != nullptr && !DoneWith(shard)) {
      LogWarning("ps/{} is gone; training goes on in its arena", shard);
    }
  }

  void Run() {
    nvtx::NameThread(fmt::format("attendant of worker/{}", options_.worker));
    while (!quit_.load(std::memory_order_acquire)) {
      std::vector<int> watched;
      {
        const std::lock_guard lock(mutex_);
        for (const int fd : ps_fds_) {
          if (fd >= 0) watched.push_back(fd);
        }
      }
      const std::vector<int> ready =
          server_.Poll(wake_.get(), watched, Deadline::After(std::chrono::seconds(1)));
      std::uint64_t ignored;
      [[maybe_unused]] const auto got = ::read(wake_.get(), &ignored, sizeof ignored);
      const std::lock_guard lock(mutex_);
      for (std::size_t s = 0; s < ps_fds_.size(); ++s) {
        if (ps_fds_[s] < 0 || std::find(ready.begin(), ready.end(), ps_fds_[s]) == ready.end()) {
          continue;
        }
        ps_fds_[s] = -1;
        Miss(s);
      }
      if (arenas_[0] != nullptr && !DoneWith(0)) departures_.Look(arenas_[0]->memory());
    }
  }

  Status Admit(const Peer& peer) override {
    if (peer.role == Role::kWorker) {
      return AlreadyExists(
          fmt::format("worker/{} is running already as process {}", options_.worker, ::getpid()));
    }
    return {};
  }
  int ArenaFd(const Peer& peer) override {
    const std::lock_guard lock(mutex_);
    const auto shard = static_cast<std::size_t>(peer.index);
    if (peer.role != Role::kPs || shard >= arenas_.size() || arenas_[shard] == nullptr) return -1;
    return arenas_[shard]->fd();
  }
  bool WantsPlanFrom(const Peer&) override { return false; }
  Status AcceptPlan(const Peer&, const std::string&) override {
    return InvalidArgument("a worker takes no plan");
  }
  void ArenaIsKept(const Peer&) override {}
  void KeepData(const std::string&, FileDescriptor) override {}
  int DataFd(const std::string&) override { return -1; }
  Status DataTold(const Peer&, const std::string&) override {
    return InvalidArgument("a worker is told no data: tell a ps");
  }
  void PsIsHere(int shard) override {
    const auto index = static_cast<std::size_t>(shard);
    const std::lock_guard lock(mutex_);
    if (index < here_.size()) {
      if (missing_since_ns_[index].exchange(0, std::memory_order_relaxed) != 0) {
        LogInfo("ps/{} is back", shard);
      }
      here_[index] = true;
      ps_fds_[index] = -1;
    }
    ++arrivals_;
    arrived_.notify_all();
  }
  Result<std::optional<ShardSnapshot>> TakeSnapshot(bool) override {
    return InvalidArgument("a worker hands out no snapshot: ask a ps");
  }
  std::string StatusJson() override {
    const std::lock_guard lock(mutex_);
    nlohmann::json status;
    status["data"] = nlohmann::json::parse(data_, nullptr, false);
    return status.dump();
  }
  Result<std::uint32_t> SetMode(const ModeSetting&) override {
    return FailedPrecondition("a worker does not set the mode: ask ps/0");
  }
  void Stop() override {}
  void Gone(const Peer& peer) override {
    if (peer.role != Role::kPs) return;
    const auto index = static_cast<std::size_t>(peer.index);
    const std::lock_guard lock(mutex_);
    if (index >= here_.size() || !here_[index]) return;
    here_[index] = false;
    Miss(index);
  }

  const AttachOptions& options_;
  RendezvousServer server_;
  FileDescriptor wake_;
  mutable std::mutex mutex_;  // guards the next seven
  std::string data_ = "null";
  std::condition_variable arrived_;
  std::uint64_t arrivals_ = 0;
  std::vector<int> ps_fds_;                                  // [num_shards]; -1: not watched
  std::vector<std::atomic<std::int64_t>> missing_since_ns_;  // MonotonicNs(); 0: it is there
  std::vector<bool> here_;            // it has said so: its connection to us tells of its end
  std::vector<const Arena*> arenas_;  // [num_shards]; AttachedJob's, which outlive us; or null
  Departures departures_;             // of the lead; the thread's alone
  std::atomic<bool> quit_{false};
  std::thread thread_;  // last: it uses all of the above
};

AttachedJob::AttachedJob(const AttachOptions& options, const JobToken& token)
    : options_(options), token_(token), arenas_(static_cast<std::size_t>(options.num_shards)) {}

AttachedJob::~AttachedJob() = default;

Result<std::unique_ptr<AttachedJob>> AttachedJob::Connect(const AttachOptions& options,
                                                          const JobToken& token) {
  std::unique_ptr<AttachedJob> job(new AttachedJob(options, token));
  if (!options.supervised) {
    Result<FileDescriptor> listening = ListenAbstract(
        options.use_existing_servers ? PrivateName(options.job_id)
                                     : EndpointName(options.job_id, Role::kWorker, options.worker));
    if (listening.status().code() == Code::kAlreadyExists) {
      return NameTaken(options.job_id, Role::kWorker, options.worker,
                       options.engine.names(options.worker));
    }
    if (!listening.ok()) return listening.status();
    job->attendant_ =
        std::make_unique<Attendant>(job->options_, job->token_, std::move(*listening));
  }
  const Deadline deadline = Deadline::After(options.start_limit);
  std::int64_t next_log_ns = MonotonicNs() + std::chrono::nanoseconds(kTellOfWaitEvery).count();
  for (int shard = 0; shard < options.num_shards; ++shard) {
    PASSEL_RETURN_IF_ERROR(job->Meet(shard, next_log_ns, deadline));
  }
  return job;
}

Status AttachedJob::Meet(int shard, std::int64_t& next_log_ns, Deadline deadline) {
  const Introduction me{options_.job_id, Role::kWorker, options_.worker, options_.cluster_hash};
  for (;;) {
    Result<RendezvousClient> client =
        RendezvousClient::Connect(me, Role::kPs, shard, &token_, deadline);
    if (client.ok()) {
      ps_.push_back(std::move(*client));
      return {};
    }
    // Nobody listens yet, or a ps ended while we spoke to it.
    const Code code = client.status().code();
    if (code == Code::kDeadlineExceeded) return NoAnswer(options_, shard);
    if (code != Code::kNotFound && code != Code::kUnavailable) return client.status();
    if (deadline.Expired()) {
      return DeadlineExceeded(fmt::format(
          "ps/{} of job {} did not start within {:g} s: start it, or raise --start_wait", shard,
          options_.job_id, ToSeconds(options_.start_limit)));
    }
    if (MonotonicNs() >= next_log_ns) {
      next_log_ns += std::chrono::nanoseconds(kTellOfWaitEvery).count();
      TellOfMissingPs(options_, shard);
    }
    const Deadline turn = deadline.Sooner(std::chrono::seconds(1));
    if (attendant_ && !options_.use_existing_servers && code == Code::kNotFound) {
      attendant_->AwaitPs(turn);  // the ps says so as soon as it listens
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));  // its supervisor restarts it
    }
  }
}

Status AttachedJob::WaitForArenas() {
  if (has_arenas()) return {};
  const Deadline deadline = Deadline::After(options_.start_limit);
  for (std::size_t shard = 0; shard < ps_.size(); ++shard) {
    bool need_plan = false;
    Result<std::optional<FileDescriptor>> fd =
        ps_[shard].GetArena(true, &need_plan, deadline, kTellOfWaitEvery, [this] {
          if (options_.on_waiting) options_.on_waiting(options_.engine.names.chief_name);
        });
    if (fd.status().code() == Code::kDeadlineExceeded) {
      return DeadlineExceeded(
          fmt::format("the chief, {}, did not start, or ps/{} of job {} did not answer, "
                      "within {:g} s: look at their logs, or raise --start_wait",
                      options_.engine.names.chief_name, shard, options_.job_id,
                      ToSeconds(options_.start_limit)));
    }
    if (!fd.ok()) return fd.status();
    if (need_plan) return {};  // we are the chief, and it is ours to propose
    PASSEL_RETURN_IF_ERROR(Adopt(std::move(**fd), shard));
  }
  return {};
}

Status AttachedJob::Adopt(FileDescriptor fd, std::size_t shard) {
  PASSEL_ASSIGN_OR_RETURN(Arena arena, Arena::Adopt(std::move(fd)));
  if (arena.job_id() != options_.job_id || arena.shard() != static_cast<int>(shard)) {
    return FailedPrecondition(fmt::format("ps/{} handed over the arena of shard {} of job {}",
                                          shard, arena.shard(), arena.job_id()));
  }
  arenas_[shard] = std::make_unique<Arena>(std::move(arena));
  if (attendant_) attendant_->Hold(*arenas_[shard], shard);
  return {};
}

Result<std::optional<FileDescriptor>> AttachedJob::GetData(const std::string& key) {
  return ps_[0].GetData(key, Deadline::After(std::chrono::seconds(5)));
}

Status AttachedJob::OfferData(const std::string& key, int fd) {
  return ps_[0].OfferData(key, fd, Deadline::After(std::chrono::seconds(5)));
}

Status AttachedJob::TellData(const std::string& json) {
  PASSEL_CHECK(attendant_ != nullptr, "a supervisor tells the data");
  attendant_->SetData(json);
  return ps_[0].TellData(json, Deadline::After(std::chrono::seconds(5)));
}

void AttachedJob::KeepOffering(const std::string& key, FileDescriptor fd) {
  kept_[key] = std::move(fd);
  offered_ = false;
  OfferAgain();
}

void AttachedJob::OfferAgain() {
  pollfd entry{ps_[0].fd(), POLLIN, 0};
  // The ps sends nothing unasked, so readable means closed.
  if (::poll(&entry, 1, 0) > 0) {
    const Introduction me{options_.job_id, Role::kWorker, options_.worker, options_.cluster_hash};
    Result<RendezvousClient> client = RendezvousClient::Connect(
        me, Role::kPs, 0, &token_, Deadline::After(std::chrono::milliseconds(500)));
    if (!client.ok()) return;  // not there yet
    ps_[0] = std::move(*client);
    offered_ = false;
    if (attendant_ && has_arenas()) attendant_->Watch(ps_);
  }
  if (offered_) return;
  for (const auto& [key, fd] : kept_) {
    const Status offered =
        ps_[0].OfferData(key, fd.get(), Deadline::After(std::chrono::milliseconds(500)));
    if (!offered.ok()) return;
  }
  offered_ = true;
}

Result<std::unique_ptr<ParameterStore>> AttachedJob::Open(const StorePlan& plan) {
  PASSEL_RETURN_IF_ERROR(plan.Validate());
  if (!has_arenas()) {
    const std::string json = ToJson(plan);
    for (std::size_t shard = 0; shard < ps_.size(); ++shard) {
      if (arenas_[shard]) continue;
      // Reserving and clearing memory takes about a second a gigabyte.
      Result<FileDescriptor> fd =
          ps_[shard].ProposePlan(json, Deadline::After(options_.start_limit));
      if (fd.status().code() == Code::kDeadlineExceeded) {
        return NoAnswer(options_, static_cast<int>(shard));
      }
      if (!fd.ok()) return fd.status();
      PASSEL_RETURN_IF_ERROR(Adopt(std::move(*fd), shard));
    }
  }
  std::vector<ShardMemory> shards;
  for (const std::unique_ptr<Arena>& arena : arenas_) {
    if (arena->plan().Hash() != plan.Hash()) {
      return InvalidArgument(fmt::format(
          "{} was started with other settings than the chief: {}; give all workers the same flags",
          options_.engine.names(options_.worker), FirstDifference(plan, arena->plan())));
    }
    shards.push_back(arena->memory());
  }
  if (attendant_) attendant_->Watch(ps_);
  return OpenStore(plan, shards, options_.worker, SelfIdentity(), options_.engine);
}

std::chrono::nanoseconds AttachedJob::PsMissingFor() const {
  return attendant_ ? attendant_->MissingFor() : std::chrono::nanoseconds(0);
}

}  // namespace passel::shm

#include "shm/attached_job.h"

#include <fmt/core.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "base/clock.h"
#include "base/log.h"
#include "base/nvtx.h"
#include "cluster/json_message.h"
#include "store/caretaker.h"
#include "store/membership.h"
#include "store/open_store.h"

namespace passel::shm {
namespace {

// `shard`, and those after it that nobody has started either.
void TellOfMissingPs(const AttachOptions& options, int shard) {
  if (!options.on_waiting) return;
  options.on_waiting(fmt::format("ps/{}", shard));
  for (int other = shard + 1; other < options.num_shards; ++other) {
    if (options.elsewhere.contains(other)) continue;
    if (MayListen(options.me.job_id, Role::kPs, other)) continue;
    options.on_waiting(fmt::format("ps/{}", other));
  }
}

Status NoAnswer(const AttachOptions& options, int shard) {
  return DeadlineExceeded(
      fmt::format("ps/{} of job {} did not answer within {:g} s: look at its log, or raise "
                  "--start_wait",
                  shard, options.me.job_id, ToSeconds(options.start_wait)));
}

}  // namespace

// The thread of a worker without a supervisor: serves its endpoint and watches the ps.
class AttachedJob::Attendant final : public RendezvousHandler {
 public:
  Attendant(const AttachOptions& options, const JobToken& token, FileDescriptor listening)
      : options_(options),
        server_(std::move(listening), token, options.me, *this),
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        ps_(static_cast<std::size_t>(options.num_shards)),
        caretaker_(options.waits.names),
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
    ps_[shard].arena = &arena;
  }

  // They are about to be unmapped.
  void HoldNone() {
    const std::lock_guard lock(mutex_);
    for (Ps& ps : ps_) ps.arena = nullptr;
  }

  // From now on nothing is asked of these, so that readable means closed.
  void Watch(const std::map<int, RendezvousClient>& all) {
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [shard, client] : all) {
        Ps& ps = ps_[static_cast<std::size_t>(shard)];
        ps.fd = ps.here ? -1 : client.fd();
      }
    }
    Wake();
  }

  void SetData(Json data) {
    const std::lock_guard lock(mutex_);
    data_ = std::move(data);
  }

  std::chrono::nanoseconds MissingFor() const {
    std::int64_t longest = 0;
    const std::int64_t now = MonotonicNs();
    for (const Ps& ps : ps_) {
      const std::int64_t ns = ps.missing_since_ns.load(std::memory_order_relaxed);
      if (ns != 0) longest = std::max(longest, now - ns);
    }
    return std::chrono::nanoseconds(longest);
  }

 private:
  struct Ps {
    int fd = -1;        // -1: not watched
    bool here = false;  // it says so on a connection to us, which ends with it
    std::atomic<std::int64_t> missing_since_ns{0};  // MonotonicNs(); 0: it is there
    const Arena* arena = nullptr;                   // AttachedJob's, which outlives us
  };

  void Wake() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto put = ::write(wake_.get(), &one, sizeof one);
  }

  // This worker has left the arena of that ps, which may end then: that is the job's end.
  // REQUIRES: mutex_ is held.
  bool DoneWith(const Ps& ps) const {
    if (ps.arena == nullptr) return false;
    const Phase phase = StateOf(ps.arena->memory(), options_.me.index).phase;
    return phase == Phase::kDone || phase == Phase::kLeft;
  }

  // All leave then, the ps among them. REQUIRES: mutex_ is held.
  bool Stopped() const {
    const Arena* const lead = ps_[0].arena;
    return lead != nullptr && lead->memory().state->stop.load(std::memory_order_acquire) != 0;
  }

  // REQUIRES: mutex_ is held.
  void Miss(Ps& ps) {
    ps.missing_since_ns.store(MonotonicNs(), std::memory_order_relaxed);
    if (ps.arena != nullptr && !DoneWith(ps) && !Stopped()) {
      LogWarning("ps/{} is gone; training goes on in its arena", &ps - ps_.data());
    }
  }

  void Run() {
    nvtx::NameThread(fmt::format("attendant of worker/{}", options_.me.index));
    while (!quit_.load(std::memory_order_acquire)) {
      std::vector<int> watched{wake_.get()};
      {
        const std::lock_guard lock(mutex_);
        for (const Ps& ps : ps_) {
          if (ps.fd >= 0) watched.push_back(ps.fd);
        }
      }
      const std::vector<int> ready =
          server_.Poll(watched, Deadline::After(std::chrono::seconds(1)));
      std::uint64_t ignored;
      [[maybe_unused]] const auto got = ::read(wake_.get(), &ignored, sizeof ignored);
      const std::lock_guard lock(mutex_);
      for (Ps& ps : ps_) {
        if (ps.fd < 0 || std::ranges::find(ready, ps.fd) == ready.end()) continue;
        ps.fd = -1;
        Miss(ps);
      }
      if (ps_[0].arena != nullptr && !DoneWith(ps_[0]))
        caretaker_.TellDepartures(ps_[0].arena->memory());
    }
  }

  // That peer, if it is one of the ps.
  Ps* PsOf(const Peer& peer) {
    const auto index = static_cast<std::size_t>(peer.index);
    return peer.role == Role::kPs && index < ps_.size() ? &ps_[index] : nullptr;
  }

  Status Admit(const Peer& peer) override {
    if (peer.role != Role::kWorker) return {};
    return AlreadyExists(
        fmt::format("worker/{} is running already as process {}", options_.me.index, ::getpid()));
  }
  int ArenaFd(const Peer& peer) override {
    const std::lock_guard lock(mutex_);
    const Ps* const ps = PsOf(peer);
    return ps == nullptr || ps->arena == nullptr ? -1 : ps->arena->fd();
  }
  Status Answer(std::string_view request, const Peer& peer, Exchange& exchange) override {
    if (request == "arena") {
      exchange.waits = ArenaFd(peer) >= 0;  // whoever asks us does not wait for it
    } else if (request == "here") {
      PsIsHere(peer, exchange);
    } else {
      return FailedPrecondition("a worker does not answer that");
    }
    return {};
  }
  void PsIsHere(const Peer& peer, Exchange& exchange) {
    const std::lock_guard lock(mutex_);
    exchange.answer["data"] = data_;
    if (Ps* const ps = PsOf(peer)) {
      if (ps->missing_since_ns.exchange(0, std::memory_order_relaxed) != 0) {
        LogInfo("ps/{} is back", peer.index);
      }
      ps->here = true;
      ps->fd = -1;
    }
    ++arrivals_;
    arrived_.notify_all();
  }
  void Gone(const Peer& peer) override {
    const std::lock_guard lock(mutex_);
    Ps* const ps = PsOf(peer);
    if (ps == nullptr || !ps->here) return;
    ps->here = false;
    Miss(*ps);
  }

  const AttachOptions& options_;
  RendezvousServer server_;
  FileDescriptor wake_;
  mutable std::mutex mutex_;  // guards the next four
  Json data_;                 // null: not known yet
  std::condition_variable arrived_;
  std::uint64_t arrivals_ = 0;
  std::vector<Ps> ps_;   // [num_shards]
  Caretaker caretaker_;  // of the lead; the thread's alone
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
    FileDescriptor listening;  // none: nobody is to find it
    if (!options.use_existing_servers) {
      PASSEL_ASSIGN_OR_RETURN(listening, Listen(options.me.job_id, Role::kWorker, options.me.index,
                                                options.waits.names(options.me.index)));
    }
    job->attendant_ = std::make_unique<Attendant>(job->options_, job->token_, std::move(listening));
  }
  int shard = 0;
  Patience patience(Deadline::After(options.start_wait), [&] { TellOfMissingPs(options, shard); });
  for (; shard < options.num_shards; ++shard) {
    if (options.elsewhere.contains(shard)) continue;
    PASSEL_RETURN_IF_ERROR(job->Meet(shard, patience));
  }
  return job;
}

Status AttachedJob::Meet(int shard, Patience& patience) {
  for (;;) {
    Result<RendezvousClient> client =
        RendezvousClient::Connect(options_.me, Role::kPs, shard, &token_, patience.deadline());
    if (client.ok()) {
      ps_.emplace(shard, std::move(*client));
      return {};
    }
    const Code code = client.status().code();
    if (code == Code::kDeadlineExceeded) return NoAnswer(options_, shard);
    if (!IsMissing(code)) return client.status();
    // It says to us that it is here as soon as it listens; one that ended is started again.
    const bool tells = attendant_ && !options_.use_existing_servers && code == Code::kNotFound;
    if (tells) attendant_->AwaitPs(patience.deadline().Sooner(std::chrono::seconds(1)));
    if (!patience.Again(std::chrono::milliseconds(tells ? 0 : 10))) break;
  }
  return DeadlineExceeded(
      fmt::format("ps/{} of job {} did not start within {:g} s: start it, or raise --start_wait",
                  shard, options_.me.job_id, ToSeconds(options_.start_wait)));
}

Status AttachedJob::WaitForArenas() {
  if (has_arenas()) return {};
  const Deadline deadline = Deadline::After(options_.start_wait);
  for (auto& [shard, ps] : ps_) {
    bool need_plan = false;
    Result<std::optional<FileDescriptor>> fd = ps.GetArena(true, deadline, &need_plan, [this] {
      if (options_.on_waiting) options_.on_waiting(options_.waits.names.chief_name);
    });
    if (fd.status().code() == Code::kDeadlineExceeded) {
      return DeadlineExceeded(
          fmt::format("the chief, {}, did not start, or ps/{} of job {} did not answer, "
                      "within {:g} s: look at their logs, or raise --start_wait",
                      options_.waits.names.chief_name, shard, options_.me.job_id,
                      ToSeconds(options_.start_wait)));
    }
    if (!fd.ok()) return fd.status();
    if (need_plan) return {};  // we are the chief, and it is ours to propose
    if (!fd->has_value()) {
      return DataLoss(fmt::format("ps/{} has answered without its arena", shard));
    }
    PASSEL_RETURN_IF_ERROR(Adopt(std::move(**fd), static_cast<std::size_t>(shard)));
  }
  return {};
}

Status AttachedJob::Adopt(FileDescriptor fd, std::size_t shard) {
  PASSEL_ASSIGN_OR_RETURN(
      Arena arena, Arena::AdoptFrom(fmt::format("ps/{}", shard), std::move(fd), options_.me.job_id,
                                    static_cast<int>(shard)));
  arenas_[shard] = std::make_unique<Arena>(std::move(arena));
  if (attendant_) attendant_->Hold(*arenas_[shard], shard);
  return {};
}

Result<std::optional<FileDescriptor>> AttachedJob::GetData(const std::string& key) {
  return ps_.at(0).GetData(key, Deadline::After(std::chrono::seconds(5)));
}

Status AttachedJob::OfferData(const std::string& key, int fd) {
  return ps_.at(0).OfferData(key, fd, Deadline::After(std::chrono::seconds(5)));
}

Status AttachedJob::TellData(const std::string& json) {
  PASSEL_CHECK(attendant_ != nullptr, "a supervisor tells the data");
  PASSEL_ASSIGN_OR_RETURN(const Json data, ParseJson("what a worker trains on", json, 1));
  attendant_->SetData(data);
  const auto lead = ps_.find(0);
  if (lead == ps_.end()) return {};
  return lead->second.TellData(data, Deadline::After(std::chrono::seconds(5)));
}

void AttachedJob::KeepOffering(const std::string& key, FileDescriptor fd) {
  kept_[key] = std::move(fd);
  offered_ = false;
  OfferAgain();
}

void AttachedJob::OfferAgain() {
  const auto soon = [] { return Deadline::After(std::chrono::milliseconds(500)); };
  RendezvousClient& lead = ps_.at(0);
  if (lead.Readable()) {  // it sends nothing unasked: it is gone
    Result<RendezvousClient> client =
        RendezvousClient::Connect(options_.me, Role::kPs, 0, &token_, soon());
    if (!client.ok()) return;  // not there yet
    lead = std::move(*client);
    offered_ = false;
    if (attendant_ && has_arenas()) attendant_->Watch(ps_);
  }
  if (offered_) return;
  for (const auto& [key, fd] : kept_) {
    if (!lead.OfferData(key, fd.get(), soon()).ok()) return;
  }
  offered_ = true;
}

Status AttachedJob::MapArenas(const StorePlan& plan) {
  PASSEL_RETURN_IF_ERROR(plan.Validate());
  if (!has_arenas()) {
    const std::string json = ToJson(plan);
    for (auto& [shard, ps] : ps_) {
      const auto index = static_cast<std::size_t>(shard);
      if (arenas_[index]) continue;
      // Reserving and clearing memory takes about a second a gigabyte.
      Result<FileDescriptor> fd = ps.ProposePlan(json, Deadline::After(options_.start_wait));
      if (fd.status().code() == Code::kDeadlineExceeded) return NoAnswer(options_, shard);
      if (!fd.ok()) return fd.status();
      PASSEL_RETURN_IF_ERROR(Adopt(std::move(*fd), index));
    }
  }
  for (const std::unique_ptr<Arena>& arena : arenas_) {
    if (arena == nullptr) continue;
    if (arena->plan().Hash() != plan.Hash()) {
      return InvalidArgument(fmt::format(
          "{} was started with other settings than the chief, {}: {}; give all workers the same",
          options_.waits.names(options_.me.index), options_.waits.names.chief_name,
          FirstDifference(plan, arena->plan())));
    }
  }
  return {};
}

Result<std::unique_ptr<ParameterStore>> AttachedJob::Open(const StorePlan& plan) {
  PASSEL_RETURN_IF_ERROR(MapArenas(plan));
  std::vector<ShardMemory> shards;
  for (const std::unique_ptr<Arena>& arena : arenas_) shards.push_back(arena->memory());
  auto store = OpenStore(plan, shards, options_.me.index, SelfIdentity(), options_.waits);
  // After an error there may be more to ask of them.
  if (store.ok()) WatchPs();
  return store;
}

void AttachedJob::WatchPs() {
  if (attendant_) attendant_->Watch(ps_);
}

std::int64_t AttachedJob::StepsLeft() const {
  std::int64_t steps = 0;
  for (const std::unique_ptr<Arena>& arena : arenas_) {
    const ShardState& state = *arena->memory().state;
    if (state.initialized.load(std::memory_order_acquire) == 0) continue;
    // Of the lead; of the others only the updates.
    steps = std::max({steps, state.global_step.load(std::memory_order_acquire),
                      static_cast<std::int64_t>(state.version.load(std::memory_order_acquire))});
  }
  return steps;
}

Status AttachedJob::Renew(const StorePlan& plan) {
  std::set<int> with_values;
  for (const auto& [shard, ps] : ps_) {
    if (LookAtShard(arena(shard).memory()).initialized) with_values.insert(shard);
  }
  // Their memory is needed for the new ones.
  if (attendant_) attendant_->HoldNone();
  for (std::unique_ptr<Arena>& arena : arenas_) arena.reset();
  const std::string json = ToJson(plan);
  for (const int shard : with_values) {
    PASSEL_RETURN_IF_ERROR(
        ps_.at(shard).Renew(json, Deadline::After(options_.start_wait)).status());
  }
  return {};
}

void AttachedJob::GiveUp(const std::string& why) {
  const Deadline deadline = Deadline::After(std::chrono::seconds(2));
  for (auto& [shard, ps] : ps_) {
    const Status told = ps.GiveUp(why, deadline);
    if (!told.ok()) LogDebug("ps/{} was not told: {}", shard, told.message());
  }
}

std::chrono::nanoseconds AttachedJob::PsMissingFor() const {
  return attendant_ ? attendant_->MissingFor() : std::chrono::nanoseconds(0);
}

}  // namespace passel::shm

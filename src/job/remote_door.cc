#include "job/remote_door.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "cluster/host_lookup.h"
#include "cluster/patience.h"
#include "io/checkpoint_files.h"
#include "shm/layout.h"
#include "store/membership.h"

namespace passel::job {
namespace {

// Of a worker that has just made a pipe.
constexpr std::chrono::seconds kHelloLimit{5};
// Of ps/0 as it ends: it waits for guests, and for whoever owns the folder, before it saves.
constexpr std::chrono::seconds kSaverGone{15}, kSaverBegins{3};
constexpr std::chrono::milliseconds kLookForSaver{50};
// Of a part that is not wanted any more.
constexpr std::chrono::seconds kSaverEnds{1};
// Who has wished for a checkpoint hangs up when it has the answer.
constexpr std::chrono::seconds kWishersHear{1};
constexpr std::chrono::seconds kLookUpLimit{10};
constexpr std::chrono::seconds kLookUpPause{2};

// Those of the list's own entry that are addresses of this host.
Result<std::vector<TcpAddress>> AddressesToListen(const Task& task, const HostPort& own,
                                                  Deadline deadline) {
  Patience patience(deadline);
  Result<std::vector<TcpAddress>> found = LookUp(own, deadline.Sooner(kLookUpLimit));
  // A name service may learn of a host after it has begun.
  while (!found.ok() && IsMissing(found.status().code())) {
    LogWarning("{} looks for its own address: {}", task.id.ToString(), found.status().message());
    if (!patience.Again(kLookUpPause)) break;
    Result<std::vector<TcpAddress>> again = LookUp(own, deadline.Sooner(kLookUpLimit));
    if (again.status().code() != Code::kDeadlineExceeded) found = std::move(again);
  }
  if (!found.ok()) {
    const std::string why = fmt::format("{} cannot listen at {}: {}", task.id.ToString(),
                                        own.ToString(), found.status().message());
    return IsMissing(found.status().code()) ? DeadlineExceeded(why) : InvalidArgument(why);
  }
  if (std::ranges::all_of(*found, &TcpAddress::loopback)) {
    return InvalidArgument(fmt::format(
        "the lists name several hosts, but {} at {} is {} here, which no other host reaches: give "
        "all tasks a --ps_hosts with an address of this host that others know",
        task.id.ToString(), own.ToString(), found->front().ToString()));
  }
  const auto all = [](const TcpAddress& a) {
    return a.Numbers() == "0.0.0.0" || a.Numbers() == "::";
  };
  if (std::ranges::any_of(*found, all)) {
    return InvalidArgument(fmt::format(
        "{} at {} would listen at all addresses of this host, and no other host finds it there: "
        "give all tasks a --ps_hosts with one address of this host that others know",
        task.id.ToString(), own.ToString()));
  }
  std::vector<TcpAddress> ours;
  Status problem;
  for (const TcpAddress& address : *found) {
    if (address.loopback()) continue;
    const Result<FileDescriptor> socket = ListenTcp(address);
    if (socket.ok()) {
      ours.push_back(address);
    } else if (problem.ok() || socket.status().code() == Code::kAlreadyExists) {
      problem = socket.status();
    }
  }
  if (!ours.empty()) return ours;
  return InvalidArgument(fmt::format("{} cannot listen at {}, where the lists have it: {}",
                                     task.id.ToString(), own.ToString(), problem.message()));
}

}  // namespace

RemoteDoor::RemoteDoor(const Task& task, const std::string& checkpoints,
                       std::shared_ptr<SaveWishes> wishes)
    : task_(task),
      shard_(task.id.index),
      checkpoints_(checkpoints),
      wishes_(std::move(wishes)),
      saver_(task.id.index, checkpoints) {}

Result<std::unique_ptr<RemoteDoor>> RemoteDoor::Open(const Task& task,
                                                     const std::string& checkpoints,
                                                     std::shared_ptr<SaveWishes> wishes,
                                                     Deadline deadline) {
  PASSEL_ASSIGN_OR_RETURN(const HostPort own, task.spec.Address(task.id));
  std::unique_ptr<RemoteDoor> door(new RemoteDoor(task, checkpoints, std::move(wishes)));
  fabric::ControlServerOptions options;
  PASSEL_ASSIGN_OR_RETURN(options.listen, AddressesToListen(task, own, deadline));
  options.key = DoorKeyOf(task);
  TakeLease(task, &options);
  options.me = FactsOf(task, Role::kPs, task.id.index);
  options.roles = {Role::kWorker, Role::kPs, Role::kControl, Role::kEvaluator};
  options.bulk = task.network;
  PASSEL_ASSIGN_OR_RETURN(door->door_, fabric::ControlServer::Start(std::move(options), *door));
  std::string where;
  for (const TcpAddress& address : door->door_->addresses()) {
    where += (where.empty() ? "" : ", ") + address.ToString();
  }
  LogInfo("{} listens at {} for the workers of other hosts", task.id.ToString(), where);
  if (checkpoints.empty()) {
    LogInfo(
        "without --checkpoint_dir the values of {} are gone when it is killed, unless a worker "
        "of this host keeps them",
        task.id.ToString());
  }
  WarnOfClearText(task);
  return door;
}

RemoteDoor::~RemoteDoor() {
  if (wishes_) {
    wishes_->Close(Unavailable("ps/0 has ended"));
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kWishersHear, [this] { return wishers_.empty(); });
  }
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  saver_.Cancel();
  door_.reset();  // ends all pipes
  for (Talk& talk : talks_) talk.thread.join();
  LetGo();
}

void RemoteDoor::Look(const shm::Arena& arena) {
  if (served_ != nullptr && served_->arena->nonce() == arena.nonce()) return;
  LetGo();
  Result<shm::Arena> own =
      shm::Arena::Adopt(FileDescriptor(::fcntl(arena.fd(), F_DUPFD_CLOEXEC, 0)));
  if (!own.ok()) {
    LogDebug("ps/{} cannot map its arena again: {}", shard_, own.status().message());
    return;
  }
  auto served = std::make_unique<Served>(std::move(*own), task_.Names());
  fabric::ServerOptions options;
  options.quiet_limit = std::max(options.quiet_limit, LeaseOf(task_).lease);
  served->server.emplace(
      fabric::ServedShard{served->arena->plan(), shard_, served->arena->memory(), options});
  const std::lock_guard lock(mutex_);
  served_ = std::move(served);
  anew_ = false;
}

void RemoteDoor::BeganAnew() {
  const std::lock_guard lock(mutex_);
  anew_ = true;
}

void RemoteDoor::SayStopped() { door_->SayStopped(); }

void RemoteDoor::LetGo() {
  std::unique_ptr<Served> former;
  const std::lock_guard lock(mutex_);
  former = std::move(served_);
}

bool RemoteDoor::IsGuest(int worker) {
  const std::lock_guard lock(mutex_);
  return IsThere(worker);
}

// With the lock held. One of this host comes in for a question alone.
bool RemoteDoor::IsServed(int worker) const {
  const ShardMemory& memory = served_->arena->memory();
  const TaskState state = StateOf(memory, worker);
  return state.phase == Phase::kRunning && IsRepresented(memory, worker, state.epoch);
}

// With the lock held.
bool RemoteDoor::IsThere(int worker) const {
  return std::ranges::any_of(guests_,
                             [&](const auto& guest) { return guest.second->worker == worker; });
}

void RemoteDoor::AwaitGuests(Deadline deadline) {
  std::unique_lock lock(mutex_);
  over_ = true;
  changed_.wait_for(lock, deadline.Remaining(), [this] { return guests_.empty(); });
}

void RemoteDoor::AwaitEvaluators(Deadline deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, deadline.Remaining(), [this] { return watchers_.empty(); });
}

bool RemoteDoor::AwaitSaver(bool asked, Deadline deadline, const std::function<bool()>& hurry) {
  Deadline alone = Deadline::After(asked ? kSaverBegins : kSaverGone);
  bool seen = false;
  while (!deadline.Expired() && !hurry()) {
    std::unique_lock lock(mutex_);
    if (dismissed_) break;
    seen = seen || !savers_.empty();
    if (asked && seen && savers_.empty()) break;  // it has saved, and gone
    const bool waits = asked ? saver_.busy() : !savers_.empty();
    if (!waits && alone.Expired()) break;
    if (waits && !asked) alone = Deadline::After(kSaverGone);
    changed_.wait_for(lock, kLookForSaver);
  }
  saver_.Cancel();
  for (Patience patience(Deadline::After(kSaverEnds)); saver_.busy() && patience.Again();) {
  }
  return !saver_.busy();
}

Status RemoteDoor::Admit(std::uint64_t life, const fabric::TaskFacts& peer, fabric::TaskFacts*) {
  if (peer.role == Role::kPs) {
    if (peer.index != 0 || shard_ == 0) return FailedPrecondition("ps/0 saves, and no other ps");
    const std::lock_guard lock(mutex_);
    savers_.insert(life);
    dismissed_ = false;
    return {};
  }
  if (peer.role == Role::kControl) {
    const std::lock_guard lock(mutex_);
    askers_[life];
    return {};
  }
  if (peer.role == Role::kEvaluator) {
    LogInfo("{} has come in: it is sent copies of the values {}", peer.Name(),
            HowErrandsTravel(task_));
    const std::lock_guard lock(mutex_);
    watchers_.insert(life);
    return {};
  }
  if (peer.index >= task_.MostTrainers()) {
    return InvalidArgument(fmt::format("{} is out of range: this job has {} workers", peer.Name(),
                                       task_.MostTrainers()));
  }
  auto guest = std::make_shared<Guest>();
  guest->worker = peer.index;
  const std::lock_guard lock(mutex_);
  guests_[life] = std::move(guest);
  if (served_ != nullptr) served_->server->ConnectionBack(peer.index);
  return {};
}

void RemoteDoor::Serve(std::uint64_t life, const fabric::TaskFacts& peer,
                       std::unique_ptr<fabric::Pipe> pipe) {
  const std::lock_guard lock(mutex_);
  if (closing_) return;
  std::function<Result<Errand>(const Errand&)> answer;
  const auto guest = guests_.find(life);
  if (savers_.contains(life) && peer.purpose == fabric::Purpose::kErrand) {
    saver_.Cancel();  // what was asked by another pipe
    answer = [this](const Errand& errand) { return AnswerSaver(errand); };
  } else if (askers_.contains(life) && peer.purpose == fabric::Purpose::kErrand) {
    answer = [this, life](const Errand& errand) { return AnswerAsker(life, errand); };
  } else if (watchers_.contains(life) && peer.purpose == fabric::Purpose::kErrand) {
    answer = [this](const Errand& errand) { return AnswerWatcher(errand); };
  } else if (guest == guests_.end()) {
    return;
  } else {
    answer = [this, who = guest->second](const Errand& errand) { return Answer(*who, errand); };
  }
  if (peer.purpose == fabric::Purpose::kPipe) {
    // Until there is something to serve, it is closed, and another one is made.
    if (served_ != nullptr) {
      if (!std::exchange(guest->second->told, true)) {
        LogInfo("{} of another host has come in: parameters travel {}", task_.Names()(peer.index),
                HowItTravels(task_));
      }
      served_->server->Serve(std::move(pipe));
    } else if (anew_) {
      Talking([this, owned = std::shared_ptr<fabric::Pipe>(std::move(pipe))] {
        fabric::RefuseWhoComesBack(*owned, shard_, task_.spec.num_tasks("ps") > 1,
                                   !checkpoints_.empty(), Deadline::After(kHelloLimit));
      });
    }
    return;
  }
  Talking([this, answer, owned = std::shared_ptr<fabric::Pipe>(std::move(pipe))] {
    RunErrands(answer, *owned);
  });
}

// With the lock held.
void RemoteDoor::Talking(std::function<void()> talk_with) {
  for (auto talk = talks_.begin(); talk != talks_.end();) {
    const auto at = talk++;
    if (!at->over) continue;
    at->thread.join();
    talks_.erase(at);
  }
  Talk& talk = talks_.emplace_back();
  talk.thread = std::thread([this, &talk, with = std::move(talk_with)]() mutable {
    with();
    with = {};  // the pipe ends
    const std::lock_guard done(mutex_);
    talk.over = true;
  });
}

// With the lock held. Twice as many each time.
void RemoteDoor::TellOfLeftOpen() {
  const std::size_t left = task_.network == nullptr ? 0 : task_.network->left_open();
  if (left < tell_left_open_) return;
  while (tell_left_open_ <= left) tell_left_open_ *= 2;
  LogWarning(
      "{} connections over libfabric ended within a message, and each keeps some 11 descriptors "
      "and 10 MB of {} until it is started again; without --fabric_provider none does",
      left, task_.id.ToString());
}

void RemoteDoor::Gone(std::uint64_t life, const fabric::TaskFacts& peer, const Status& why) {
  LogDebug("{} is gone: {}", peer.Name(), why.message());
  std::shared_ptr<Guest> guest;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  if (savers_.erase(life) > 0) {
    saver_.Cancel();
    changed_.notify_all();
    return;
  }
  if (askers_.erase(life) > 0) {
    if (wishers_.erase(life) > 0) changed_.notify_all();
    return;
  }
  if (watchers_.erase(life) > 0) {
    changed_.notify_all();
    return;
  }
  const auto found = guests_.find(life);
  if (found == guests_.end()) return;
  guest = std::move(found->second);
  guests_.erase(found);
  TellOfLeftOpen();
  // Whose process has ended has no connection any more; one that lives makes another at once. Of
  // one that was silent before nobody knows. Who says that it ends has ended, and so it is told.
  changed_.notify_all();
  if (closing_ || served_ == nullptr || IsThere(guest->worker)) return;
  const bool served = IsServed(guest->worker);
  if (why.code() == Code::kCancelled) {
    if (served) served_->server->Left(guest->worker);
    return;
  }
  if (why.code() != Code::kDeadlineExceeded) served_->server->ConnectionEnded(guest->worker);
  if (!served) return;
  LogWarning("{} is gone: {}; if it is not back in time it counts as dead",
             task_.Names()(guest->worker), why.message());
}

}  // namespace passel::job

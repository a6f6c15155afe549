#include "fabric/control/control_server.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <list>
#include <random>
#include <utility>

#include "base/descriptor_limit.h"
#include "base/log.h"
#include "fabric/control/control_guest.h"
#include "fabric/control/failure_limit.h"
#include "fabric/control/linked_pipe.h"
#include "fabric/control/tcp_pipe.h"

namespace passel::fabric {
namespace {

// Without descriptors nobody can be let in, and the listening socket stays readable.
constexpr std::chrono::milliseconds kAcceptPause{100};
// A worker takes 4, 16 over libfabric (docs/fabric.md), and each of its pipes that breaks there in
// the middle of a bulk leaves 11 behind. The usual soft limit is 1,024.
constexpr std::uint64_t kDescriptors = 65'536;
// Of one peer, before the others have their turn.
constexpr int kFramesInTurn = 32;

std::uint64_t RandomLife() {
  std::random_device random;
  return (std::uint64_t{random()} << 32 | random()) | 1;  // not 0
}

}  // namespace

class ControlServer::Loop {
 public:
  Loop(ControlServerOptions options, ControlHandler& handler, std::vector<FileDescriptor> listening)
      : options_(std::move(options)),
        handler_(handler),
        listening_(std::move(listening)),
        failures_(options_.failures_per_second) {}

  void Run(int wake_fd) {
    while (Turn(wake_fd)) {
    }
    for (ControlGuest& guest : guests_) {
      if (guest.open()) (void)guest.channel()->Send(FrameKind::kBye, {}, Deadline::After({}));
      EndPipes(guest, Unavailable("this task has left"));
    }
    guests_.clear();
  }
  // From any thread; it is woken afterwards.
  void Quit() { quit_.store(true, std::memory_order_release); }
  void SayStopped() { stopped_.store(true, std::memory_order_release); }

 private:
  using Guests = std::list<ControlGuest>;

  // False: it is to stop.
  bool Turn(int wake_fd) {
    Deadline deadline = Deadline::At(std::min(unfinished_.due_ns(), refused_.due_ns()));
    const bool accepting = MonotonicNs() >= accept_after_ns_;
    if (!accepting) deadline = Deadline::At(std::min(deadline.at_ns(), accept_after_ns_));
    std::vector<pollfd> entries = {{wake_fd, POLLIN, 0}};
    for (const FileDescriptor& socket : listening_) {
      entries.push_back({accepting ? socket.get() : -1, POLLIN, 0});  // poll ignores -1
    }
    const std::size_t first = entries.size();
    for (const ControlGuest& guest : guests_) {
      entries.push_back({guest.fd(), POLLIN, 0});
      const Deadline next = guest.open() ? guest.liveness.Next() : guest.limit();
      deadline = Deadline::At(std::min(deadline.at_ns(), next.at_ns()));
    }
    if (::poll(entries.data(), entries.size(), more_ ? 0 : deadline.PollTimeoutMs()) < 0) {
      for (pollfd& entry : entries) entry.revents = 0;
    }
    if (quit_.load(std::memory_order_acquire)) return false;
    if (entries[0].revents != 0) {
      eventfd_t times = 0;
      (void)::eventfd_read(wake_fd, &times);
    }
    if (stopped_.load(std::memory_order_acquire) && !std::exchange(stop_told_, true)) {
      for (ControlGuest& guest : guests_) TellOfStop(guest);
    }
    const bool at_all = std::exchange(more_, false);
    std::size_t i = first;
    for (auto at = guests_.begin(); at != guests_.end(); ++i) {
      const auto guest = at++;
      if (guest->open()) {
        if (!at_all && entries[i].revents == 0 && !guest->liveness.Next().Expired()) continue;
        if (const Status why = Look(*guest); !why.ok()) End(guest, why);
      } else if (!Welcome(*guest, entries[i].revents != 0)) {
        guests_.erase(guest);
      }
    }
    for (std::size_t j = 1; j < first; ++j) {
      if (entries[j].revents != 0) AcceptFrom(entries[j].fd);
    }
    Tell();
    return true;
  }

  // A guest that has not been let in. False: it goes.
  bool Welcome(ControlGuest& guest, bool readable) {
    Result<bool> known = false;
    if (readable) known = guest.Advance();
    if (known.ok() && *known) return LetIn(guest);
    if (known.ok()) {
      if (!guest.limit().Expired()) return true;
      unfinished_.Count();
      last_unfinished_ = guest.from();
      return false;
    }
    const Code code = known.status().code();
    if (code == Code::kPermissionDenied || code == Code::kFailedPrecondition) {
      failures_.Failed(guest.network());
      refused_.Count();
      last_refused_ = guest.from();
    }
    LogDebug("refused {}: {}", guest.from().ToString(), known.status().message());
    return false;
  }

  // It has proved the token and its facts fit. False: it goes, or was handed over.
  bool LetIn(ControlGuest& guest) {
    const TaskFacts& peer = guest.peer();
    if (std::ranges::find(options_.roles, peer.role) == options_.roles.end()) {
      guest.Refuse(PermissionDenied(
          fmt::format("{} lets no {} in", options_.me.Name(), RoleName(peer.role))));
      return false;
    }
    TaskFacts mine = options_.me;
    if (peer.purpose != Purpose::kControl) return HandOver(guest, mine);
    guest.life = mine.life = RandomLife();
    if (const Status admitted = handler_.Admit(mine.life, peer, &mine); !admitted.ok()) {
      guest.Refuse(admitted);
      return false;
    }
    if (const Status told = guest.Accept(mine, options_.lease); !told.ok()) {
      handler_.Gone(guest.life, peer, told);
      return false;
    }
    const std::string differences = Differences(mine, peer);
    // Whoever only asks comes again and again.
    if (!differences.empty() && peer.role != Role::kControl)
      LogInfo("{} has {}", peer.Name(), differences);
    if (stop_told_) TellOfStop(guest);
    more_ = true;  // what it sent behind its facts may be read already
    return true;
  }

  // Who does not read it ends for another reason.
  static void TellOfStop(ControlGuest& guest) {
    if (guest.open()) (void)guest.channel()->SendJson({{"stopped", true}}, Deadline::After({}));
  }

  bool HandOver(ControlGuest& guest, TaskFacts& mine) {
    const TaskFacts& peer = guest.peer();
    const auto owner = std::ranges::find_if(guests_, [&](const ControlGuest& other) {
      return other.open() && other.life == peer.life && other.peer().role == peer.role &&
             other.peer().index == peer.index;
    });
    if (owner == guests_.end()) {
      guest.Refuse(NotFound(
          fmt::format("{} has no control connection to {}", peer.Name(), options_.me.Name())));
      return false;
    }
    std::erase_if(owner->pipes, [](const auto& pipe) { return pipe.expired(); });
    if (std::cmp_greater_equal(owner->pipes.size(), options_.most_pipes)) {
      guest.Refuse(ResourceExhausted(fmt::format("{} has {} pipes to {}, and may have {}",
                                                 peer.Name(), owner->pipes.size(),
                                                 options_.me.Name(), options_.most_pipes)));
      return false;
    }
    mine.life = peer.life;
    std::unique_ptr<BulkPipe> bulk;
    if (options_.bulk != nullptr && peer.purpose == Purpose::kPipe) {
      Result<std::unique_ptr<BulkPipe>> made =
          AnswerBulkPipe(*options_.bulk, guest.fd(), peer, &mine);
      if (!made.ok()) {
        guest.Refuse(made.status());
        return false;
      }
      bulk = std::move(*made);
    }
    if (!guest.Accept(mine, options_.lease).ok()) return false;
    owner->pipes.push_back(guest.channel());
    std::unique_ptr<Pipe> pipe;
    if (bulk != nullptr) {
      pipe = std::make_unique<LinkedPipe>(std::move(bulk), guest.channel());
    } else {
      pipe = std::make_unique<TcpPipe>(guest.channel());
    }
    handler_.Serve(peer.life, peer, std::move(pipe));
    return false;
  }

  // At one that is open. Errors: why it is gone.
  Status Look(ControlGuest& guest) {
    for (int frames = 0;; ++frames) {
      if (frames == kFramesInTurn) {
        more_ = true;
        break;
      }
      const Result<Frame> frame = guest.channel()->Receive(Deadline::After({}));
      if (!frame.ok()) {
        if (frame.status().code() == Code::kDeadlineExceeded) break;
        return frame.status();
      }
      guest.liveness.Heard();
      if (frame->kind == FrameKind::kBye) return Cancelled("it has left");
    }
    if (guest.liveness.Lost()) {
      return Unavailable(
          fmt::format("it has been silent for {:.3g} s", ToSeconds(guest.liveness.lease())));
    }
    if (!guest.liveness.BeatDue()) return {};
    guest.liveness.Said();
    // It fits into the kernel's buffer, unless the peer has long stopped reading.
    return guest.channel()->Send(FrameKind::kBeat, {}, Deadline::After({}));
  }

  void End(Guests::iterator guest, Status why) {
    const TaskFacts peer = guest->peer();
    const std::uint64_t life = guest->life;
    if (guest->liveness.Quiet()) why = DeadlineExceeded(why.message());
    EndPipes(*guest, why);
    guests_.erase(guest);
    handler_.Gone(life, peer, why);
  }

  static void EndPipes(ControlGuest& guest, const Status& why) {
    for (const auto& pipe : guest.pipes) {
      if (const std::shared_ptr<Channel> channel = pipe.lock()) channel->Shut(why);
    }
  }

  // The one that has been at the door longest, of that network if one is given. False: none is.
  bool DropOldest(const std::string* network) {
    const auto oldest = std::ranges::find_if(guests_, [&](const ControlGuest& guest) {
      return !guest.open() && (network == nullptr || guest.network() == *network);
    });
    if (oldest == guests_.end()) return false;
    guests_.erase(oldest);
    return true;
  }

  void AcceptFrom(int listening) {
    // Not more at once than there may be: whoever came before gets served in between.
    for (int accepted = 0; accepted < options_.most_pending; ++accepted) {
      Result<AcceptedTcp> connection = AcceptTcp(listening);
      if (!connection.ok()) {
        if (connection.status().code() == Code::kNotFound) return;
        if (DropOldest(nullptr)) continue;
        accept_after_ns_ = Deadline::After(kAcceptPause).at_ns();
        return;
      }
      const std::string network = connection->peer.Network();
      if (!failures_.MayTry(network)) {
        refused_.Count();
        last_refused_ = connection->peer;
        continue;
      }
      int pending = 0, of_network = 0;
      for (const ControlGuest& guest : guests_) {
        if (guest.open()) continue;
        ++pending;
        of_network += guest.network() == network;
      }
      if (of_network >= options_.most_pending_of_address) {
        DropOldest(&network);
      } else if (pending >= options_.most_pending) {
        DropOldest(nullptr);
      }
      guests_.emplace_back(std::move(*connection), options_.key, options_.me,
                           Deadline::After(options_.handshake_limit), options_.stall_limit);
    }
    more_ = true;
  }

  void Tell() {
    const std::int64_t now = MonotonicNs();
    if (const std::uint64_t count = unfinished_.Take(now); count > 0) {
      LogWarning(
          "dropped {} connections that did not finish their handshake in {:.3g} s, the last "
          "from {}",
          count, ToSeconds(options_.handshake_limit), last_unfinished_.ToString());
    }
    if (const std::uint64_t count = refused_.Take(now); count > 0) {
      LogWarning("refused {} connections that {} {}, the last from {}", count,
                 options_.key.insecure_no_auth
                     ? "were not opened with --insecure_no_auth, as this task of"
                     : "did not prove the job token of",
                 options_.me.job_id, last_refused_.ToString());
    }
  }

  const ControlServerOptions options_;
  ControlHandler& handler_;
  const std::vector<FileDescriptor> listening_;
  Guests guests_;  // oldest first
  FailureLimit failures_;
  std::atomic<bool> quit_{false}, stopped_{false};
  bool stop_told_ = false;
  std::int64_t accept_after_ns_ = 0;  // MonotonicNs(); descriptors were short
  bool more_ = false;                 // there is something to do without waiting
  // What a stranger can cause at any rate, and the last of each kind.
  EventTally unfinished_, refused_;
  TcpAddress last_unfinished_, last_refused_;
};

Result<std::unique_ptr<ControlServer>> ControlServer::Start(ControlServerOptions options,
                                                            ControlHandler& handler) {
  PASSEL_RETURN_IF_ERROR(options.key.Check());
  RaiseDescriptorLimit(kDescriptors);
  options.me.lease_ms = options.lease.lease_ms();
  if (options.listen.empty()) options.listen = {TcpAddress::Loopback(options.port)};
  std::vector<FileDescriptor> listening;
  std::vector<TcpAddress> addresses;
  for (const TcpAddress& address : options.listen) {
    PASSEL_ASSIGN_OR_RETURN(FileDescriptor socket, ListenTcp(address));
    PASSEL_ASSIGN_OR_RETURN(const TcpAddress bound, LocalAddress(socket.get()));
    listening.push_back(std::move(socket));
    addresses.push_back(bound);
  }
  if (options.key.insecure_no_auth) {
    LogWarning("{} lets everybody in who reaches {}: --insecure_no_auth", options.me.Name(),
               addresses.front().ToString());
  }
  FileDescriptor wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return ErrnoStatus(errno, "cannot create an eventfd");
  auto loop = std::make_unique<Loop>(std::move(options), handler, std::move(listening));
  return std::unique_ptr<ControlServer>(
      new ControlServer(std::move(loop), std::move(addresses), std::move(wake)));
}

ControlServer::ControlServer(std::unique_ptr<Loop> loop, std::vector<TcpAddress> addresses,
                             FileDescriptor wake)
    : loop_(std::move(loop)), addresses_(std::move(addresses)), wake_(std::move(wake)) {
  thread_ = std::thread([this] { loop_->Run(wake_.get()); });
}

void ControlServer::SayStopped() {
  loop_->SayStopped();
  (void)::eventfd_write(wake_.get(), 1);
}

ControlServer::~ControlServer() {
  loop_->Quit();
  (void)::eventfd_write(wake_.get(), 1);
  thread_.join();
}

}  // namespace passel::fabric

#include "shm/rendezvous_server.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "base/clock.h"
#include "base/log.h"
#include "base/nvtx.h"
#include "cluster/endpoint.h"
#include "cluster/json_message.h"
#include "shm/layout.h"

namespace passel::shm {
namespace {

// A peer that does not read a small answer at once is stuck or hostile.
Deadline AnswerLimit() { return Deadline::After(std::chrono::milliseconds(500)); }

// Without descriptors nobody can be let in, and the listening socket stays readable.
constexpr std::chrono::milliseconds kAcceptPause{100};

int MaxPending() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return RendezvousServer::kMaxPending;
  return static_cast<int>(std::clamp<rlim_t>(limit.rlim_cur / 4, 4, RendezvousServer::kMaxPending));
}

constexpr unsigned Bit(Role role) { return 1U << static_cast<unsigned>(role); }

constexpr unsigned kMembers = Bit(Role::kWorker) | Bit(Role::kPs) | Bit(Role::kSupervisor);
constexpr unsigned kReaders = kMembers | Bit(Role::kEvaluator);
constexpr unsigned kAnyone = kReaders | Bit(Role::kControl);

// Each request, who may ask it, and the one thing that it may say.
struct Request {
  std::string_view name;
  unsigned roles;
  std::string_view argument = {};
};
constexpr Request kRequests[] = {
    {"arena", kReaders, "wait"},
    {"plan", kMembers},
    {"renew", Bit(Role::kWorker)},
    {"give_up", Bit(Role::kWorker), "why"},
    {"offer_data", kMembers, "key"},
    {"get_data", kReaders, "key"},
    {"tell_data", Bit(Role::kWorker), "about"},
    {"tell_score", Bit(Role::kEvaluator), "score"},
    {"here", Bit(Role::kPs)},
    {"kept", Bit(Role::kSupervisor)},
    {"status", kAnyone},
    {"snapshot", kAnyone, "values"},
    {"get_plan", kAnyone},
    {"meet", kAnyone},
    {"go_on", kAnyone},
    {"set_mode", kAnyone, "mode"},
    {"scale", kAnyone, "workers"},
    {"stop", kAnyone, "failure"},
};

}  // namespace

struct RendezvousServer::Connection {
  enum class State { kHello, kProof, kOpen };
  FileDescriptor socket;
  State state = State::kHello;
  Peer peer;
  std::string transcript;  // what the proofs are over
  Deadline handshake_limit = Deadline::After(kHandshakeLimit);
  bool waits_for_arena = false;
  std::string_view asks_again = {};  // another request that has no answer yet; "": none

  // A control connection is open at once, on its uid alone.
  bool Proven() const { return state == State::kOpen && peer.role != Role::kControl; }
};

RendezvousServer::RendezvousServer(FileDescriptor listening, const JobToken& token,
                                   const Introduction& me, RendezvousHandler& handler)
    : listening_(std::move(listening)),
      handshake_(token, me, {kLayoutVersion, StructureHash()}),
      handler_(handler),
      max_pending_(MaxPending()),
      uid_is_enough_(CheckUidIsEnough()) {}

RendezvousServer::~RendezvousServer() = default;

std::vector<int> RendezvousServer::Poll(const std::vector<int>& watch_fds, Deadline deadline) {
  std::vector<pollfd> entries;
  const bool accepting = MonotonicNs() >= accept_after_ns_;
  if (!accepting) deadline = Deadline::At(std::min(deadline.at_ns(), accept_after_ns_));
  for (const EventTally* tally : {&unfinished_, &foreign_, &failed_accepts_}) {
    deadline = Deadline::At(std::min(deadline.at_ns(), tally->due_ns()));
  }
  entries.push_back({accepting ? listening_.get() : -1, POLLIN, 0});  // poll ignores -1
  for (const int fd : watch_fds) entries.push_back({fd, POLLIN, 0});
  const std::size_t first_connection = entries.size();
  for (const Connection& c : connections_) {
    entries.push_back({c.socket.get(), POLLIN, 0});
    if (!c.Proven()) {
      deadline = Deadline::At(std::min(deadline.at_ns(), c.handshake_limit.at_ns()));
    }
  }
  std::vector<int> ready;
  if (::poll(entries.data(), entries.size(), deadline.PollTimeoutMs()) < 0) return ready;
  for (std::size_t i = 1; i < first_connection; ++i) {
    if (entries[i].revents != 0) ready.push_back(entries[i].fd);
  }
  std::size_t i = first_connection;
  for (auto c = connections_.begin(); c != connections_.end(); ++i) {
    bool keep = true;
    if (entries[i].revents != 0) keep = Serve(*c);
    if (keep && !c->Proven() && c->handshake_limit.Expired()) {
      if (c->state != Connection::State::kOpen) {
        unfinished_.Count();
        last_unfinished_ = c->peer.pid;
      }
      keep = false;
    }
    const auto served = c++;
    if (!keep) Drop(served);
  }
  ServeWaiting();
  if (entries[0].revents != 0) Accept();
  Tell();
  return ready;
}

void RendezvousServer::Tell() {
  const std::int64_t now = MonotonicNs();
  if (const std::uint64_t count = unfinished_.Take(now); count > 0) {
    LogWarning(
        "dropped {} connections that did not finish their handshake in {} s, the last of "
        "process {}",
        count, kHandshakeLimit.count(), last_unfinished_);
  }
  if (const std::uint64_t count = foreign_.Take(now); count > 0) {
    LogWarning("refused {} connections of other users, the last of process {}, user {}", count,
               last_foreign_.pid, last_foreign_.uid);
  }
  if (const std::uint64_t count = failed_accepts_.Take(now); count > 0) {
    LogWarning("could not accept connections {} times, since {}; trying again every {} ms", count,
               last_failure_, kAcceptPause.count());
  }
}

void RendezvousServer::Drop(std::list<Connection>::iterator connection) {
  const bool proven = connection->Proven();
  const Peer peer = connection->peer;
  connections_.erase(connection);
  handler_.Closed(peer.connection);
  if (proven) handler_.Gone(peer);
}

void RendezvousServer::Accept() {
  const auto unproven = [](const Connection& c) { return !c.Proven(); };
  // Not more at once than there may be: whoever came before gets served in between.
  for (int accepted = 0; accepted < max_pending_; ++accepted) {
    Result<FileDescriptor> socket = AcceptConnection(listening_.get());
    if (!socket.ok()) {
      if (socket.status().code() == Code::kNotFound) return;
      const auto oldest = std::ranges::find_if(connections_, unproven);
      if (oldest != connections_.end()) {
        Drop(oldest);
        continue;
      }
      failed_accepts_.Count();
      last_failure_ = socket.status().message();
      accept_after_ns_ = Deadline::After(kAcceptPause).at_ns();
      return;
    }
    const Result<PeerCredentials> who = GetPeerCredentials(socket->get());
    if (!who.ok()) continue;
    if (who->uid != ::getuid()) {
      foreign_.Count();
      last_foreign_ = *who;
      continue;
    }
    if (std::ranges::count_if(connections_, unproven) >= max_pending_) {
      const auto oldest = std::ranges::find_if(connections_, unproven);
      LogDebug("dropped process {}: {} connections have proved nothing", oldest->peer.pid,
               max_pending_);
      Drop(oldest);
    }
    Connection& c = connections_.emplace_back();
    c.socket = std::move(*socket);
    c.peer.pid = who->pid;
    c.peer.connection = ++last_connection_;
  }
}

// False: the connection is over.
bool RendezvousServer::Serve(Connection& c) {
  const nvtx::Range range(nvtx::Event::kServe, c.peer.pid);
  const Status status = HandleRequest(c);
  if (status.ok()) return true;
  if (status.code() == Code::kUnavailable) return false;  // gone; nothing to tell
  // Best effort, then it is dropped.
  (void)SendJson(c.socket.get(), ErrorJson(status), {}, AnswerLimit());
  LogDebug("refused {} (process {}): {}", NameOf(c.peer), c.peer.pid, status.message());
  return c.state == Connection::State::kOpen && status.code() != Code::kDataLoss &&
         status.code() != Code::kDeadlineExceeded;
}

Status RendezvousServer::HandleRequest(Connection& c) {
  const int fd = c.socket.get();
  // poll(2) said there is something.
  PASSEL_ASSIGN_OR_RETURN(JsonMessage m,
                          ReceiveJson(fd, Deadline::After(std::chrono::milliseconds(0))));
  if (c.state == Connection::State::kHello) {
    PASSEL_ASSIGN_OR_RETURN(const std::string challenge,
                            handshake_.Challenge(m.text, &c.peer, &c.transcript));
    const bool control = c.peer.role == Role::kControl;
    if (control) PASSEL_RETURN_IF_ERROR(uid_is_enough_);
    c.state = control ? Connection::State::kOpen : Connection::State::kProof;
    return SendText(fd, challenge, {}, AnswerLimit());
  }
  if (c.state == Connection::State::kProof) {
    PASSEL_RETURN_IF_ERROR(handshake_.CheckAnswer(m.text, c.transcript));
    c.transcript.clear();
    PASSEL_RETURN_IF_ERROR(handler_.Admit(c.peer));
    c.state = Connection::State::kOpen;
    return SendJson(fd, {{"ok", true}}, {}, AnswerLimit());
  }
  std::string name;
  JsonReader members = ReadMessage(m.json);
  members("ask", name);
  if (!c.asks_again.empty()) return DataLoss("a request came before the last one had its answer");
  const auto* request = std::ranges::find(kRequests, name, &Request::name);
  if (request == std::end(kRequests)) return DataLoss("a request was not understood");
  if ((request->roles & Bit(c.peer.role)) == 0) {
    return PermissionDenied(
        fmt::format("a task of role {} may not ask for {}", RoleName(c.peer.role), request->name));
  }
  Exchange exchange;
  members.IfAny(request->argument, exchange.argument);
  PASSEL_RETURN_IF_ERROR(AsDataLoss(members.Finish()));
  exchange.request_fds = std::move(m.fds);
  PASSEL_RETURN_IF_ERROR(handler_.Answer(request->name, c.peer, exchange));
  if (exchange.reads) c.handshake_limit = Deadline::After(kReadLimit);
  if (exchange.waits) {  // ServeWaiting() does it
    c.waits_for_arena = !exchange.reads;
    c.asks_again = exchange.reads ? request->name : "";
    return {};
  }
  return SendJson(fd, exchange.answer, exchange.fds, AnswerLimit());
}

void RendezvousServer::AnswerAgain(Connection& c) {
  Exchange exchange;
  const Status status = handler_.Answer(c.asks_again, c.peer, exchange);
  if (status.ok() && exchange.waits) return;
  c.asks_again = {};
  (void)SendJson(c.socket.get(), status.ok() ? exchange.answer : ErrorJson(status), exchange.fds,
                 AnswerLimit());
}

void RendezvousServer::ServeWaiting() {
  for (Connection& c : connections_) {
    if (!c.asks_again.empty()) AnswerAgain(c);
    const int fds[] = {c.waits_for_arena ? handler_.ArenaFd(c.peer) : -1};
    if (fds[0] < 0) continue;
    c.waits_for_arena = false;
    // A peer that cannot take its answer shows up in the next Poll().
    (void)SendJson(c.socket.get(), {{"ok", true}}, fds, AnswerLimit());
  }
}

void RendezvousServer::FailWaiting(const Status& status) {
  for (Connection& c : connections_) {
    if (!c.waits_for_arena) continue;
    c.waits_for_arena = false;
    (void)SendJson(c.socket.get(), ErrorJson(status), {}, AnswerLimit());
  }
}

}  // namespace passel::shm

#include "fabric/control/control_connection.h"

#include <fmt/core.h>
#include <poll.h>

#include <algorithm>

#include "base/tcp_socket.h"
#include "cluster/json_message.h"
#include "fabric/control/linked_pipe.h"
#include "fabric/control/tcp_pipe.h"

namespace passel::fabric {
namespace {

// Of a connection that is made again.
constexpr std::chrono::milliseconds kFirstPause{50}, kLongestPause{500};
constexpr std::chrono::seconds kKeepLimit{1};

std::string PeerName(const ControlOptions& options) {
  return fmt::format("{}/{} at {}", RoleName(options.peer_role), options.peer_index,
                     options.address.ToString());
}

Status SendAll(int fd, std::span<const std::uint8_t> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    PASSEL_ASSIGN_OR_RETURN(const std::size_t sent, SendNow(fd, bytes));
    bytes = bytes.subspan(sent);
    if (sent == 0 && !AwaitReady(fd, POLLOUT, deadline)) {
      return DeadlineExceeded("it does not read");
    }
  }
  return {};
}

Status ReceiveAll(int fd, std::span<std::uint8_t> into, Deadline deadline) {
  while (!into.empty()) {
    PASSEL_ASSIGN_OR_RETURN(const std::size_t came, ReceiveNow(fd, into));
    into = into.subspan(came);
    if (came == 0 && !AwaitReady(fd, POLLIN, deadline)) {
      return DeadlineExceeded("it does not answer");
    }
  }
  return {};
}

bool SaysStopped(std::span<const std::uint8_t> text) {
  const Result<Json> said = ParseMessage({reinterpret_cast<const char*>(text.data()), text.size()});
  return said.ok() && FieldOr(*said, "stopped", false).ok() && *FieldOr(*said, "stopped", false);
}

Status CheckPeer(const ControlOptions& options, const TaskFacts& peer) {
  if (peer.role != options.peer_role || peer.index != options.peer_index) {
    return FailedPrecondition(
        fmt::format("it is {} of job {}: check --ps_hosts", peer.Name(), peer.job_id));
  }
  return CheckFacts(options.me, peer);
}

// Handshake and introduction over a fresh socket.
Result<std::unique_ptr<Channel>> Introduce(const ControlOptions& options, const TaskFacts& me,
                                           FileDescriptor socket, Deadline deadline,
                                           TaskFacts* peer) {
  const TcpClientHandshake handshake(options.key, {me.job_id, me.role, me.index});
  PASSEL_RETURN_IF_ERROR(SendAll(socket.get(), handshake.hello(), deadline));
  AnswerBytes answer;
  PASSEL_RETURN_IF_ERROR(ReceiveAll(socket.get(), answer, deadline));
  StreamKeys keys;
  PASSEL_ASSIGN_OR_RETURN(const KeyedHash proof, handshake.Prove(answer, &keys));
  PASSEL_RETURN_IF_ERROR(SendAll(socket.get(), proof, deadline));
  auto channel = std::make_unique<Channel>(std::move(socket), keys, options.stall_limit);
  PASSEL_RETURN_IF_ERROR(channel->SendJson(FactsJson(me), deadline));
  PASSEL_ASSIGN_OR_RETURN(const Json said, channel->ReceiveJson(deadline));
  PASSEL_RETURN_IF_ERROR(ErrorOf(said));
  PASSEL_ASSIGN_OR_RETURN(*peer, FactsFromJson(said));
  PASSEL_RETURN_IF_ERROR(CheckPeer(options, *peer));
  SetSilenceLimit(channel->fd(), Agreed(options.lease, peer->lease()).kernel_limit());
  return channel;
}

Result<std::unique_ptr<Channel>> Dial(const ControlOptions& options, const TaskFacts& me,
                                      Deadline deadline, TaskFacts* peer) {
  PASSEL_RETURN_IF_ERROR(options.key.Check());
  if (me.index < 0 || me.index > kMaxIndex || me.job_id.size() > kMaxJobId) {
    return InvalidArgument(fmt::format(
        "{} of job {} is no task: an index is 0 to {}, and a job id has at most {} characters",
        me.Name(), me.job_id, kMaxIndex, kMaxJobId));
  }
  const auto dial = [&]() -> Result<std::unique_ptr<Channel>> {
    PASSEL_ASSIGN_OR_RETURN(const std::vector<TcpAddress> addresses,
                            LookUp(options.address, deadline, options.resolver));
    PASSEL_ASSIGN_OR_RETURN(FileDescriptor socket, ConnectTcp(addresses, deadline));
    return Introduce(options, me, std::move(socket), deadline.Sooner(options.handshake_limit),
                     peer);
  };
  Result<std::unique_ptr<Channel>> channel = dial();
  if (!channel.ok()) return channel.status().WithContext(PeerName(options));
  return channel;
}

}  // namespace

Result<std::unique_ptr<ControlConnection>> ControlConnection::Open(ControlOptions options,
                                                                   Deadline deadline) {
  options.me.purpose = Purpose::kControl;
  options.me.life = 0;
  options.me.lease_ms = options.lease.lease_ms();
  TaskFacts peer;
  PASSEL_ASSIGN_OR_RETURN(std::unique_ptr<Channel> channel,
                          Dial(options, options.me, deadline, &peer));
  return std::unique_ptr<ControlConnection>(
      new ControlConnection(std::move(options), std::move(channel), std::move(peer)));
}

ControlConnection::ControlConnection(ControlOptions options, std::unique_ptr<Channel> channel,
                                     TaskFacts peer)
    : options_(std::move(options)), channel_(std::move(channel)), peer_(std::move(peer)) {
  thread_ = std::thread([this] { Run(); });
}

ControlConnection::~ControlConnection() {
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  (void)channel_->Send(FrameKind::kBye, {}, Deadline::After({}));
  channel_->Shut(Unavailable("this task has left"));
  thread_.join();
}

Status ControlConnection::status() const {
  const std::lock_guard lock(mutex_);
  return gone_;
}

Result<std::unique_ptr<Pipe>> ControlConnection::MakePipe(Deadline deadline, Purpose purpose) {
  PASSEL_RETURN_IF_ERROR(status());
  TaskFacts me = options_.me;
  me.purpose = purpose;
  me.life = peer_.life;
  std::unique_ptr<BulkPipe> bulk;
  if (options_.bulk != nullptr && purpose == Purpose::kPipe) {
    PASSEL_ASSIGN_OR_RETURN(bulk, OfferBulkPipe(*options_.bulk, channel_->fd(), &me));
  }
  TaskFacts peer;
  PASSEL_ASSIGN_OR_RETURN(std::shared_ptr<Channel> channel, Dial(options_, me, deadline, &peer));
  if (bulk != nullptr) PASSEL_RETURN_IF_ERROR(JoinAnswered(*bulk, me, peer));
  {
    const std::lock_guard lock(mutex_);
    if (!gone_.ok()) return gone_;
    std::erase_if(pipes_, [](const auto& pipe) { return pipe.expired(); });
    pipes_.push_back(channel);
  }
  if (bulk == nullptr) {
    if (purpose == Purpose::kPipe) channel->PollFor(options_.spin);
    return std::unique_ptr<Pipe>(std::make_unique<TcpPipe>(std::move(channel)));
  }
  return std::unique_ptr<Pipe>(std::make_unique<LinkedPipe>(std::move(bulk), std::move(channel)));
}

void ControlConnection::Run() {
  Liveness liveness(Agreed(options_.lease, peer_.lease()));
  for (;;) {
    if (liveness.BeatDue()) {
      // It fits into the kernel's buffer, unless the other side has long stopped reading.
      if (const Status sent = channel_->Send(FrameKind::kBeat, {}, Deadline::After({}));
          !sent.ok()) {
        return End(sent);
      }
      liveness.Said();
    }
    const Result<Frame> frame = channel_->Receive(liveness.Next());
    if (frame.ok()) {
      liveness.Heard();
      if (frame->kind == FrameKind::kBye) return End(Unavailable("it has left"));
      if (frame->kind == FrameKind::kText && SaysStopped(frame->payload) && options_.stopped) {
        options_.stopped();
      }
    } else if (frame.status().code() != Code::kDeadlineExceeded) {
      return End(frame.status());
    } else if (liveness.Lost()) {
      return End(
          Unavailable(fmt::format("it has been silent for {:.3g} s", ToSeconds(liveness.lease()))));
    }
  }
}

void ControlConnection::End(const Status& why) {
  std::vector<std::weak_ptr<Channel>> pipes;
  const Status gone = Unavailable(fmt::format("{} is gone: {}", PeerName(options_), why.message()));
  {
    const std::lock_guard lock(mutex_);
    gone_ = leaving_ ? Unavailable("this task has left") : gone;
    pipes.swap(pipes_);
    channel_->Shut(gone);
    for (const auto& pipe : pipes) {
      if (const std::shared_ptr<Channel> channel = pipe.lock()) channel->Shut(gone_);
    }
    if (leaving_) return;
  }
  if (options_.gone) options_.gone(gone);
}

ControlLine::ControlLine(ControlOptions options) : options_(std::move(options)) {
  options_.gone = [this, also = std::move(options_.gone)](const Status& why) {
    if (also) also(why);
    const std::lock_guard lock(keep_mutex_);
    lost_ = true;
    keep_changed_.notify_all();
  };
  keeper_ = std::thread([this] { KeepUp(); });
}

ControlLine::~ControlLine() {
  {
    const std::lock_guard lock(keep_mutex_);
    leaving_ = true;
    keep_changed_.notify_all();
  }
  keeper_.join();
  connection_.reset();  // its thread may be telling that it is gone
}

void ControlLine::KeepUp() {
  std::unique_lock lock(keep_mutex_);
  std::chrono::nanoseconds pause = kFirstPause;
  for (;;) {
    keep_changed_.wait(lock, [this] { return lost_ || leaving_; });
    keep_changed_.wait_for(lock, pause, [this] { return leaving_; });
    if (leaving_) return;
    lost_ = false;
    lock.unlock();
    const Status made = Connect(Deadline::After(kKeepLimit));
    lock.lock();
    // Who refuses us does not change its mind.
    const bool may_come =
        made.code() == Code::kUnavailable || made.code() == Code::kDeadlineExceeded;
    lost_ = lost_ || may_come;
    pause = may_come ? std::min<std::chrono::nanoseconds>(2 * pause, kLongestPause) : kFirstPause;
  }
}

Status ControlLine::Connect(Deadline deadline) {
  const std::lock_guard lock(mutex_);
  return ConnectLocked(deadline);
}

Status ControlLine::ConnectLocked(Deadline deadline) {
  if (connection_ != nullptr && connection_->status().ok()) return {};
  connection_.reset();
  PASSEL_ASSIGN_OR_RETURN(connection_, ControlConnection::Open(options_, deadline));
  if (was_there_ && options_.back) options_.back();
  was_there_ = true;
  return {};
}

Result<std::unique_ptr<Pipe>> ControlLine::MakePipe(Purpose purpose, Deadline deadline) {
  const std::lock_guard lock(mutex_);
  PASSEL_RETURN_IF_ERROR(ConnectLocked(deadline));
  Result<std::unique_ptr<Pipe>> pipe = connection_->MakePipe(deadline, purpose);
  // A ps that does not know this connection has been started again.
  if (!pipe.ok() && pipe.status().code() == Code::kNotFound) connection_.reset();
  return pipe;
}

Connector MakeTcpConnector(std::shared_ptr<ControlLine> line) {
  return [line = std::move(line)](Deadline deadline) {
    return line->MakePipe(Purpose::kPipe, deadline);
  };
}

Connector MakeTcpConnector(ControlOptions options) {
  return MakeTcpConnector(std::make_shared<ControlLine>(std::move(options)));
}

}  // namespace passel::fabric

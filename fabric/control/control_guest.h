// control_guest.h - one connection to the door of a ps, from its first byte on.
//
// Thread safety: none; one thread at a time. Nothing here waits.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/tcp_socket.h"
#include "fabric/control/channel.h"
#include "fabric/control/liveness.h"
#include "fabric/control/task_facts.h"
#include "fabric/control/tcp_handshake.h"

namespace passel::fabric {

/// What the guest is doing.
enum class GuestState { kHello, kProof, kFacts, kOpen };

class ControlGuest {
 public:
  ControlGuest(AcceptedTcp accepted, const DoorKey& key, const TaskFacts& me, Deadline limit,
               std::chrono::nanoseconds stall_limit);

  /// Goes on with what has come, at most until the peer's facts are known. True once they are.
  /// Errors: it is over. kPermissionDenied and kFailedPrecondition: it has failed to prove itself,
  /// and has been told that it is refused.
  Result<bool> Advance();
  /// Its facts are known: it may stay, and is told so. `lease` is ours.
  Status Accept(const TaskFacts& mine, const LeaseOptions& lease);
  /// It may not.
  void Refuse(const Status& why);

  int fd() const { return channel_ ? channel_->fd() : socket_.get(); }
  bool open() const { return state_ == GuestState::kOpen; }
  const TcpAddress& from() const { return from_; }
  const std::string& network() const { return network_; }
  /// For its handshake.
  Deadline limit() const { return limit_; }
  const TaskFacts& peer() const { return peer_; }
  const std::shared_ptr<Channel>& channel() const { return channel_; }

  std::uint64_t life = 0;
  Liveness liveness{{}};                      ///< of one that is open
  std::vector<std::weak_ptr<Channel>> pipes;  ///< that belong to it

 private:
  Status Hello();
  Status Proof();
  Result<bool> Facts();

  FileDescriptor socket_;
  const TcpAddress from_;
  const std::string network_;
  const TaskFacts& me_;
  const Deadline limit_;
  const std::chrono::nanoseconds stall_limit_;
  GuestState state_ = GuestState::kHello;
  TcpServerHandshake handshake_;
  HelloBytes hello_{};
  KeyedHash proof_{};
  std::size_t got_ = 0;  // bytes of hello_, then of proof_
  std::shared_ptr<Channel> channel_;
  TaskFacts peer_;
};

}  // namespace passel::fabric

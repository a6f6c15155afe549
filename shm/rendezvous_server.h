// rendezvous_server.h - the listening side of a task: one thread, one poll loop, no waiting for
// any single peer.
//
// A peer of another uid is refused before a byte is read; one of our pid namespace that says it is
// another process than it is, at its hello. A peer that does not finish its handshake in 5 s, that
// sends what is not understood or does not read its answers, is dropped. At most 64 connections,
// and a quarter of the descriptors this process may have, have proved nothing (handshakes, control
// connections); above that, or when descriptors run short, the oldest of them goes. A control
// connection ends after 5 s, one that reads in a meeting after 90 s. A handshake
// takes less than a millisecond, so a crowd of idle connections keeps no honest task out. Log lines
// about refusals come at most once in ten seconds.

#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/log.h"
#include "base/status.h"
#include "base/unix_socket.h"
#include "cluster/handshake.h"
#include "cluster/job_token.h"

namespace passel {
struct Exchange;  // cluster/json_message.h
}

namespace passel::shm {

/// What the task behind the server does. Called from Poll() only.
class RendezvousHandler {
 public:
  virtual ~RendezvousHandler() = default;
  /// After its proof. An error refuses the peer.
  virtual Status Admit(const Peer& peer) = 0;
  /// The arena this peer asks for: of our shard, or of its own if it is a ps. -1: none yet, or not
  /// for this peer yet.
  virtual int ArenaFd(const Peer& peer) = 0;
  /// One of the requests of shm/rendezvous_client.h, from a peer that may ask it. Errors:
  /// kFailedPrecondition when this task does not answer it.
  virtual Status Answer(std::string_view request, const Peer& peer, Exchange& exchange) = 0;
  /// An admitted peer is gone.
  virtual void Gone(const Peer& peer) = 0;
  /// A connection is over, of whomever it was.
  virtual void Closed(std::uint64_t /*connection*/) {}
};

class RendezvousServer {
 public:
  static constexpr std::chrono::seconds kHandshakeLimit{5};
  static constexpr std::chrono::seconds kReadLimit{90};
  static constexpr int kMaxPending = 64;  ///< fewer where descriptors are few

  /// `listening` comes from Listen(), or is none; `handler` outlives the server.
  RendezvousServer(FileDescriptor listening, const JobToken& token, const Introduction& me,
                   RendezvousHandler& handler);
  ~RendezvousServer();

  /// Serves what has come, waiting for it until `deadline` or until one of `watch_fds` is readable.
  /// Returns those that are readable or closed.
  std::vector<int> Poll(const std::vector<int>& watch_fds, Deadline deadline);

  /// Everyone who waits for an arena gets this error.
  void FailWaiting(const Status& status);

 private:
  struct Connection;
  bool Serve(Connection& connection);
  Status HandleRequest(Connection& connection);
  void ServeWaiting();
  void AnswerAgain(Connection& connection);
  void Accept();
  void Tell();
  void Drop(std::list<Connection>::iterator connection);

  FileDescriptor listening_;
  const ServerHandshake handshake_;
  RendezvousHandler& handler_;
  std::list<Connection> connections_;  // oldest first
  std::uint64_t last_connection_ = 0;
  const int max_pending_;
  const Status uid_is_enough_;        // of a control connection
  std::int64_t accept_after_ns_ = 0;  // MonotonicNs(); descriptors were short
  // What a stranger can cause at any rate, and the last of each kind.
  EventTally unfinished_, foreign_, failed_accepts_;
  pid_t last_unfinished_ = 0;
  PeerCredentials last_foreign_;
  std::string last_failure_;
};

}  // namespace passel::shm

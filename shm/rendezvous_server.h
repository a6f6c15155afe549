// rendezvous_server.h - the listening side of a task: one thread, one poll loop, no waiting for
// any single peer.
//
// A peer of another uid is refused before a byte is read; one of our pid namespace that says it is
// another process than it is, at its hello. A peer that does not finish its handshake in 5 s, that
// sends what is not understood or does not read its answers, is dropped. At most 64 connections,
// and a quarter of the descriptors this process may have, have proved nothing (handshakes, control
// connections); above that, or when descriptors run short, the oldest of them goes. A handshake
// takes less than a millisecond, so a crowd of idle connections keeps no honest task out. Log lines
// about refusals come at most once in ten seconds.

#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/log.h"
#include "base/status.h"
#include "base/unix_socket.h"
#include "cluster/job_token.h"
#include "shm/protocol.h"
#include "store/mode.h"

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
  /// Whether this peer is to propose the plan.
  virtual bool WantsPlanFrom(const Peer& peer) = 0;
  /// OK without a change when there is an arena already.
  virtual Status AcceptPlan(const Peer& peer, const std::string& plan_json) = 0;
  /// The supervisor holds the arena.
  virtual void ArenaIsKept(const Peer& peer) = 0;
  virtual void KeepData(const std::string& key, FileDescriptor fd) = 0;
  virtual int DataFd(const std::string& key) = 0;
  /// A worker trains on this: a JSON object. An error refuses it.
  virtual Status DataTold(const Peer& peer, const std::string& json) = 0;
  virtual void PsIsHere(int shard) = 0;
  /// Of our shard; without the descriptors unless `values`. nullopt: there are no values yet.
  virtual Result<std::optional<ShardSnapshot>> TakeSnapshot(bool values) = 0;
  /// A JSON object.
  virtual std::string StatusJson() = 0;
  /// Asks for another mode of the job. Returns its number.
  virtual Result<std::uint32_t> SetMode(const ModeSetting& setting) = 0;
  virtual void Stop() = 0;
  /// An admitted peer is gone.
  virtual void Gone(const Peer& peer) = 0;
};

class RendezvousServer {
 public:
  static constexpr std::chrono::seconds kHandshakeLimit{5};
  static constexpr int kMaxPending = 64;  ///< fewer where descriptors are few

  /// `listening` comes from ListenAbstract(); `handler` outlives the server.
  RendezvousServer(FileDescriptor listening, const JobToken& token, std::string job_id,
                   std::uint64_t cluster_hash, RendezvousHandler& handler);
  ~RendezvousServer();

  /// Serves what has come, waiting for it until `deadline` or until `wake_fd` (if not -1) or one of
  /// `watch_fds` is readable. Returns the watched descriptors that are readable or closed.
  std::vector<int> Poll(int wake_fd, const std::vector<int>& watch_fds, Deadline deadline);

  /// Call when the arena has come into being otherwise than by AcceptPlan(): answers who waits.
  void ArenaIsHere();
  /// Everyone who waits for an arena gets this error.
  void FailWaiting(const Status& status);

 private:
  struct Connection;
  bool Serve(Connection& connection);
  Status HandleHello(Connection& connection, std::string text);
  Status HandleRequest(Connection& connection);
  Status SendArena(Connection& connection);
  Status SendSnapshot(Connection& connection, bool values);
  void Accept();
  void Tell();
  void Drop(std::list<Connection>::iterator connection);
  /// The one that has proved nothing for the longest time; end() if there is none.
  std::list<Connection>::iterator OldestUnproven(int* count);

  FileDescriptor listening_;
  const JobToken token_;
  const std::string job_id_;
  const std::uint64_t cluster_hash_;
  RendezvousHandler& handler_;
  std::list<Connection> connections_;  // oldest first
  const int max_pending_;
  const Status uid_is_enough_;  // of a control connection
  const std::string clocks_;    // ClockOffsets()
  const std::uint64_t pid_namespace_;
  std::int64_t accept_after_ns_ = 0;  // MonotonicNs(); descriptors were short
  // What a stranger can cause at any rate, and the last of each kind.
  EventTally unfinished_, foreign_, failed_accepts_;
  pid_t last_unfinished_ = 0;
  PeerCredentials last_foreign_;
  std::string last_failure_;
};

}  // namespace passel::shm

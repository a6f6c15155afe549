// control_connection.h - a task's own end of its connection to a task on another host.
//
// One control connection for each ps: it says who we are, carries the heartbeats of both sides, and
// knows first that the other side is gone. Pipes (pipe.h) belong to it: when it ends they end, with
// its reason.
//
// Threads    Any. Each control connection has a thread of its own.
// Errors     In one sentence, with the name and the address of the other task.

#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cluster/host_lookup.h"
#include "fabric/bulk_network.h"
#include "fabric/control/channel.h"
#include "fabric/control/liveness.h"
#include "fabric/control/task_facts.h"

namespace passel::fabric {

struct ControlOptions {
  HostPort address;  ///< of the other task; looked up for each connection
  Role peer_role = Role::kPs;
  int peer_index = 0;
  DoorKey key;
  TaskFacts me;
  LeaseOptions lease;
  std::chrono::nanoseconds handshake_limit = std::chrono::seconds(5);
  std::chrono::nanoseconds stall_limit = std::chrono::seconds(5);
  HostResolver resolver = ResolveBySystem;
  /// Of a pipe over its own connection: Channel::PollFor().
  std::chrono::nanoseconds spin{0};
  /// What carries the messages of Purpose::kPipe; null: their own connection, sealed.
  std::shared_ptr<BulkNetwork> bulk;
  /// Called once, from the thread of the connection, when the other side is gone; not when this
  /// side ends it. It must neither destroy the connection nor use its connector.
  std::function<void(const Status& why)> gone;
  /// Called, likewise, when the other side says that the job was stopped.
  std::function<void()> stopped;
  /// Called by a ControlLine that reaches the other side after it was gone. It must not use the
  /// line.
  std::function<void()> back;
};

class ControlConnection {
 public:
  /// Errors: kUnavailable: nobody is reached; kPermissionDenied: another token or job;
  /// kFailedPrecondition: what may not differ differs, or it is another task; kDeadlineExceeded;
  /// kInvalidArgument: there is no token; what the other side refuses us for.
  static Result<std::unique_ptr<ControlConnection>> Open(ControlOptions options, Deadline deadline);
  /// Says that we leave.
  ~ControlConnection();
  ControlConnection(const ControlConnection&) = delete;
  ControlConnection& operator=(const ControlConnection&) = delete;

  /// What the other side says of itself, and to us alone: its address, our tags.
  const TaskFacts& peer() const { return peer_; }
  /// OK while the other side lives; then why it is gone. Errors: kUnavailable.
  Status status() const;
  /// Another connection to the same task. Errors: as Open().
  Result<std::unique_ptr<Pipe>> MakePipe(Deadline deadline, Purpose purpose = Purpose::kPipe);

 private:
  ControlConnection(ControlOptions options, std::unique_ptr<Channel> channel, TaskFacts peer);
  void Run();
  void End(const Status& why);

  const ControlOptions options_;
  const std::unique_ptr<Channel> channel_;
  const TaskFacts peer_;
  mutable std::mutex mutex_;
  Status gone_;
  bool leaving_ = false;
  std::vector<std::weak_ptr<Channel>> pipes_;
  std::thread thread_;
};

/// A control connection that is made when it is needed. One that has ended is made again at once,
/// by a thread of its own: the other side is to hear soon that this one lives. Threads: any.
class ControlLine {
 public:
  /// `options.gone` is called for each connection that ends.
  explicit ControlLine(ControlOptions options);
  ~ControlLine();
  ControlLine(const ControlLine&) = delete;
  ControlLine& operator=(const ControlLine&) = delete;
  /// Errors: as ControlConnection::Open().
  Status Connect(Deadline deadline);
  Result<std::unique_ptr<Pipe>> MakePipe(Purpose purpose, Deadline deadline);

 private:
  Status ConnectLocked(Deadline deadline);
  void KeepUp();

  ControlOptions options_;
  std::mutex mutex_;
  std::unique_ptr<ControlConnection> connection_;  // under mutex_
  bool was_there_ = false;                         // likewise

  std::mutex keep_mutex_;  // after mutex_
  std::condition_variable keep_changed_;
  bool lost_ = false, leaving_ = false;  // under keep_mutex_
  std::thread keeper_;
};

/// Makes pipes for a session over `line`, which lives as long as a copy of what this returns.
Connector MakeTcpConnector(std::shared_ptr<ControlLine> line);
/// The same over a line of its own.
Connector MakeTcpConnector(ControlOptions options);

}  // namespace passel::fabric

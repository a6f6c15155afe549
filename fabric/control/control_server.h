// control_server.h - the door of a ps: tasks of other hosts come in by TCP.
//
// One thread and one poll loop serve all control connections, and wait for no single peer. Who does
// not finish the handshake in time, sends what is not understood or does not read is dropped. Of
// those that have not proved anything there are only so many, in all and from one address (IPv6:
// one /64): where one more comes the oldest goes, so that a crowd of idle connections keeps no
// honest task out. Who failed too often is not let in for a moment, and is told nothing but that it
// is refused.
//
// Threads    Any, but for the handler, which is called by the one thread.

#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/file_descriptor.h"
#include "base/status.h"
#include "base/tcp_socket.h"
#include "fabric/bulk_network.h"
#include "fabric/control/liveness.h"
#include "fabric/control/task_facts.h"
#include "fabric/control/tcp_handshake.h"

namespace passel::fabric {

/// What the task behind the door does. Its calls return soon.
class ControlHandler {
 public:
  virtual ~ControlHandler() = default;
  /// `peer` has proved the token, and its facts fit. What is added to our facts for it alone: the
  /// address of the data plane, tags. `life` tells this connection from all others. Errors: the
  /// peer is refused with them.
  virtual Status Admit(std::uint64_t life, const TaskFacts& peer, TaskFacts* mine) = 0;
  /// A pipe of a peer that was admitted; `peer.purpose` says what for.
  virtual void Serve(std::uint64_t life, const TaskFacts& peer, std::unique_ptr<Pipe> pipe) = 0;
  /// An admitted peer is gone, or has left; its pipes end. kDeadlineExceeded: it was silent before,
  /// so perhaps the network alone is gone.
  virtual void Gone(std::uint64_t life, const TaskFacts& peer, const Status& why) = 0;
};

struct ControlServerOptions {
  /// Where to listen; nothing: on `port` of loopback alone.
  std::vector<TcpAddress> listen;
  std::uint16_t port = 0;  ///< 0: one that is free
  DoorKey key;
  TaskFacts me;
  /// What carries the messages of Purpose::kPipe; null: their own connection, sealed.
  std::shared_ptr<BulkNetwork> bulk;
  /// Who may come in.
  std::vector<Role> roles = {Role::kWorker, Role::kEvaluator};
  LeaseOptions lease;
  std::chrono::nanoseconds stall_limit = std::chrono::seconds(5);
  std::chrono::nanoseconds handshake_limit = std::chrono::seconds(5);
  int most_pending = 64;
  int most_pending_of_address = 32;
  int failures_per_second = 3;  ///< of one address
  int most_pipes = 32;          ///< of one control connection, at a time
};

class ControlServer {
 public:
  /// Errors: those of ListenTcp(); kInvalidArgument without a token.
  static Result<std::unique_ptr<ControlServer>> Start(ControlServerOptions options,
                                                      ControlHandler& handler);
  /// Tells all that this task leaves. The handler is not called any more.
  ~ControlServer();
  /// Tells all that are in, and who comes in from then on, that the job was stopped.
  void SayStopped();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  /// Where it listens, in the order of the options.
  const std::vector<TcpAddress>& addresses() const { return addresses_; }

 private:
  class Loop;
  ControlServer(std::unique_ptr<Loop> loop, std::vector<TcpAddress> addresses, FileDescriptor wake);

  const std::unique_ptr<Loop> loop_;
  const std::vector<TcpAddress> addresses_;
  const FileDescriptor wake_;  // eventfd
  std::thread thread_;
};

}  // namespace passel::fabric

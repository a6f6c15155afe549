// channel.h - one connection between two hosts after its handshake: sealed frames over a socket.
//
// Threads    Send() and SendMessage() from any number of threads, at the same time as one that
//            receives. Receive() by one thread at a time. Shut() by any.
// Errors     kUnavailable, with the reason: the connection is over for good. kDeadlineExceeded.
// Waits      End at their deadline. A frame that has begun to come, or to go, may stand still for
//            the stall limit; then the connection ends.

#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/json.h"
#include "base/status.h"
#include "fabric/control/frames.h"
#include "fabric/control/tcp_handshake.h"

namespace passel::fabric {

class Channel {
 public:
  Channel(FileDescriptor socket, const StreamKeys& keys,
          std::chrono::nanoseconds stall_limit = std::chrono::seconds(5));

  /// For so long after something came or went who receives polls before it sleeps; zero: it sleeps
  /// at once. REQUIRES: nobody uses it yet.
  void PollFor(std::chrono::nanoseconds spin) { spin_ = spin; }

  int fd() const { return socket_.get(); }
  std::chrono::nanoseconds stall_limit() const { return stall_limit_; }

  /// Returns when the kernel has it. What it does not take by the deadline ends the connection.
  Status Send(FrameKind kind, std::span<const std::uint8_t> payload, Deadline deadline);
  Status SendJson(const Json& json, Deadline deadline);
  /// A frame of kind kMessage, and `bulk` behind it in frames of kind kBulk, with nothing between.
  Status SendMessage(std::span<const std::uint8_t> message, std::span<const std::uint8_t> bulk);

  /// The next frame. Its payload is valid until the next call.
  Result<Frame> Receive(Deadline deadline);
  /// The next frame, which is of kind kText. Errors: kDataLoss for another one.
  Result<Json> ReceiveJson(Deadline deadline);

  /// Ends it: all waits end soon with `why`, unless it is over already.
  void Shut(const Status& why);

 private:
  void NoteTraffic();
  bool Polls() const;
  Status Flush(Deadline deadline, bool stalls_only);
  Status Over(const Status& why);

  const FileDescriptor socket_;
  const std::chrono::nanoseconds stall_limit_;
  std::chrono::nanoseconds spin_{0};
  std::atomic<std::int64_t> traffic_ns_{0};  // MonotonicNs(); kept only where spin_ is not zero
  std::atomic<bool> over_{false};
  std::mutex why_mutex_;
  Status why_;  // under why_mutex_

  std::mutex sending_;  // before why_mutex_
  FrameSealer sealer_;
  std::vector<std::uint8_t> outbox_;

  FrameOpener opener_;  // of the one that receives
  std::int64_t partial_since_ns_ = 0;
};

/// Bulk in one frame.
inline constexpr std::size_t kBulkFrameBytes = 16'384;

}  // namespace passel::fabric

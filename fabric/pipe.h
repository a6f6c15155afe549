// pipe.h - messages between one worker and one ps: all that this folder wants of a network.
//
// A message is a small header and a bulk of floats of any size. The bulk is sent from the memory
// where it is and read into the memory where it belongs, so that a carrier need not copy it.
//
// A message arrives whole or not at all. It may be lost, arrive late, twice, or after one that was
// sent later: who uses a pipe repeats what is not answered and knows a repetition when it sees one.
//
// Threads    Send() from any number of threads, at the same time as one that receives. Receive()
//            and what belongs to it by one thread at a time.
// Errors     kUnavailable: the connection is gone for good. kDeadlineExceeded.
// Waits      Those for a message end at their deadline. One that has begun takes as long as it
//            moves; when it stands still for stall_limit() the connection ends.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"

namespace passel::fabric {

inline constexpr std::size_t kMaxHeaderBytes = 16384;

/// A message whose bulk has not been read.
struct Arrival {
  std::vector<std::uint8_t> header;
  std::size_t bulk_floats = 0;
};

class Pipe {
 public:
  virtual ~Pipe() = default;

  /// How long a message that has begun may stand still; a header may take no longer as a whole.
  virtual std::chrono::nanoseconds stall_limit() const { return std::chrono::seconds(5); }

  /// Returns when `header` and `bulk` may be written again. REQUIRES: header is not empty, and at
  /// most kMaxHeaderBytes.
  virtual Status Send(std::span<const std::uint8_t> header, std::span<const float> bulk) = 0;
  /// The next message. What is left of the bulk of the last one is skipped, which may take until
  /// the deadline, and go on with the next call.
  virtual Result<Arrival> Receive(Deadline deadline) = 0;
  /// The next part of the bulk of the message received last: so many floats as there are before
  /// the deadline. The next call goes on behind them. REQUIRES: so much is left of it.
  virtual Result<std::size_t> ReadSome(std::span<float> into, Deadline deadline) = 0;

  /// All of `into`. kCancelled once `go_on`, which is asked every now and then unless it is empty,
  /// says no: the pipe may be at its end then. A carrier that receives into memory of the caller
  /// has its own; after any error nothing writes into `into` any more.
  virtual Status ReadBulk(std::span<float> into, const std::function<bool()>& go_on);
  Status ReadBulk(std::span<float> into) { return ReadBulk(into, {}); }
};

/// Makes another pipe to the same ps.
using Connector = std::function<Result<std::unique_ptr<Pipe>>(Deadline)>;

}  // namespace passel::fabric

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
// Waits      All end at their deadline, or shortly after it for a message that has begun.

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
/// How long a message may take once it has begun to leave or to arrive: both sides receive at all
/// times.
inline constexpr std::chrono::seconds kMessageLimit{5};

/// A message whose bulk has not been read.
struct Arrival {
  std::vector<std::uint8_t> header;
  std::size_t bulk_floats = 0;
};

class Pipe {
 public:
  virtual ~Pipe() = default;

  /// Returns when `header` and `bulk` may be written again. After kDeadlineExceeded nothing was
  /// sent. REQUIRES: header is not empty, and at most kMaxHeaderBytes.
  virtual Status Send(std::span<const std::uint8_t> header, std::span<const float> bulk,
                      Deadline deadline) = 0;
  /// The next message. What is left of the bulk of the last one is skipped.
  virtual Result<Arrival> Receive(Deadline deadline) = 0;
  /// The next part of the bulk of the message received last. REQUIRES: so much is left of it.
  virtual Status ReadBulk(std::span<float> into, Deadline deadline) = 0;
};

/// Makes another pipe to the same ps.
using Connector = std::function<Result<std::unique_ptr<Pipe>>(Deadline)>;

}  // namespace passel::fabric

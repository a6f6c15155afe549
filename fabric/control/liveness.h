// liveness.h - who says something in time, and who is not heard any more. On the monotonic clock
// alone, so that a test may set it.
//
// A connection that ends is noticed at once. This is for the one that does not end: a cable that
// was pulled, a host that stands still.
//
// Thread safety: none; one thread at a time.

#pragma once

#include <algorithm>
#include <chrono>

#include "base/deadline.h"

namespace passel::fabric {

struct LeaseOptions {
  /// Who is silent for so long is gone.
  std::chrono::nanoseconds lease = std::chrono::seconds(15);
  /// Who has said nothing for so long says that it lives.
  std::chrono::nanoseconds beat = std::chrono::seconds(3);

  int lease_ms() const {
    return static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(lease).count());
  }
  /// For the kernel, which is to notice it after us.
  std::chrono::nanoseconds kernel_limit() const { return lease + beat; }
  /// After which a message that stands still ends its pipe. Not before the lease: what is pulled
  /// for less is to cost time alone. Nor much sooner than others notice anything.
  std::chrono::nanoseconds stall_limit() const {
    return std::max<std::chrono::nanoseconds>(lease, std::chrono::seconds(5));
  }
  static LeaseOptions Of(std::chrono::nanoseconds lease) { return {lease, lease / 5}; }
};

/// What both ends of a connection go by: the shorter lease. `theirs` is 0 where it is not known.
inline LeaseOptions Agreed(const LeaseOptions& mine, std::chrono::nanoseconds theirs) {
  constexpr std::chrono::milliseconds kLeast{200};  // nobody can be made to beat all the time
  if (theirs.count() == 0 || theirs >= mine.lease) return mine;
  const std::chrono::nanoseconds lease = std::max<std::chrono::nanoseconds>(theirs, kLeast);
  return {lease, std::min(mine.beat, lease / 5)};
}

class Liveness {
 public:
  explicit Liveness(const LeaseOptions& options) : options_(options) {}

  std::chrono::nanoseconds lease() const { return options_.lease; }
  void Heard() { heard_ns_ = MonotonicNs(); }
  void Said() { said_ns_ = MonotonicNs(); }
  bool BeatDue() const { return BeatAt().Expired(); }
  bool Lost() const { return LostAt().Expired(); }
  /// Whether it has missed a beat: an end of the connection may be the network's then, not its own.
  bool Quiet() const { return MonotonicNs() - heard_ns_ > 2 * options_.beat.count(); }
  /// When one of the two may become true.
  Deadline Next() const { return Deadline::At(std::min(BeatAt().at_ns(), LostAt().at_ns())); }

 private:
  Deadline BeatAt() const { return Deadline::At(said_ns_ + options_.beat.count()); }
  Deadline LostAt() const { return Deadline::At(heard_ns_ + options_.lease.count()); }

  LeaseOptions options_;
  std::int64_t heard_ns_ = MonotonicNs();
  std::int64_t said_ns_ = MonotonicNs();
};

}  // namespace passel::fabric

#include "store/consistent_copy.h"

#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/failpoint.h"
#include "store/meeting.h"
#include "store/shard_buffer.h"
#include "store/shard_snapshot.h"

namespace passel {
namespace {

// Another meeting or a change of the mode is under way.
constexpr std::chrono::milliseconds kMeetingPause{10};
// While it waits for workers it looks so often whether it is wanted.
constexpr std::chrono::milliseconds kLookEvery{200};

bool NotWanted(const ConsistentCopyOptions& options) {
  return options.quit != nullptr && options.quit->load(std::memory_order_relaxed);
}

Status NoMore() { return Cancelled("the job has ended meanwhile"); }

Result<Meeting> CallMeeting(const ShardMemory& lead, const ConsistentCopyOptions& options,
                            Deadline deadline) {
  for (;;) {
    Result<Meeting> meeting = Meeting::Call(lead, options.names);
    if (meeting.status().code() != Code::kAlreadyExists || deadline.Expired()) return meeting;
    if (NotWanted(options)) return NoMore();
    std::this_thread::sleep_for(kMeetingPause);
  }
}

}  // namespace

Result<ConsistentCopy> CopyInMeeting(std::span<const ShardMemory> shards,
                                     std::span<const std::vector<float*>> out,
                                     const ConsistentCopyOptions& options, Deadline deadline) {
  PASSEL_ASSIGN_OR_RETURN(Meeting meeting, CallMeeting(shards[0], options, deadline));
  ConsistentCopy copy;
  const std::int64_t call_ns = MonotonicNs();
  for (;;) {
    const Result<std::int64_t> met = meeting.Await(deadline.Sooner(kLookEvery));
    if (met.ok()) {
      copy.global_step = *met;
      break;
    }
    if (NotWanted(options)) return NoMore();
    if (met.status().code() != Code::kDeadlineExceeded || deadline.Expired()) return met.status();
  }
  const std::int64_t met_ns = MonotonicNs();
  Failpoint("copy.met");
  const auto between = [&] { return NotWanted(options) ? NoMore() : meeting.Renew(); };
  if (options.before_copy) {
    PASSEL_RETURN_IF_ERROR(options.before_copy(copy.global_step, between));
  }
  copy.progress = ProgressOf(shards);
  if (options.begin_others) PASSEL_RETURN_IF_ERROR(options.begin_others());
  // End() says whether it was held all the while.
  CopyShards(shards, out, options.threads, [&meeting] { (void)meeting.Renew(); });
  if (options.await_others) {
    PASSEL_RETURN_IF_ERROR(options.await_others(between));
  }
  PASSEL_RETURN_IF_ERROR(meeting.End());
  copy.cost = {std::chrono::nanoseconds(met_ns - call_ns),
               std::chrono::nanoseconds(MonotonicNs() - met_ns)};
  return copy;
}

}  // namespace passel

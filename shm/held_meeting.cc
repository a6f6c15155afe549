#include "shm/held_meeting.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/failpoint.h"

namespace passel::shm {
namespace {

// A worker in a long step is waited for so long.
constexpr std::chrono::seconds kGatherLimit{60};
// The least time between two meetings, and how much longer it is than the last one was.
constexpr std::chrono::milliseconds kLeastRest{100};
constexpr std::int64_t kRestFactor = 4;
// How often it is looked whether all workers have met.
constexpr std::chrono::nanoseconds kGatherPause = std::chrono::milliseconds(1);

Status NotTheirs() { return Aborted("nobody meets for this reader: ask for it first"); }

}  // namespace

Result<std::optional<std::int64_t>> HeldMeeting::Ask(const ShardMemory& lead,
                                                     std::uint64_t reader) {
  const std::int64_t now = MonotonicNs();
  if (meeting_ && reader_ != reader) return std::optional<std::int64_t>();
  if (!meeting_) {
    asked_in_vain_ = true;
    if (now < rest_until_ns_) return std::optional<std::int64_t>();
    Result<Meeting> called = Meeting::Call(lead, names_);
    if (called.status().code() == Code::kAlreadyExists) return std::optional<std::int64_t>();
    asked_in_vain_ = false;
    if (!called.ok()) return called.status();
    meeting_.emplace(std::move(*called));
    reader_ = reader;
    call_ns_ = now;
    met_ns_ = 0;
  }
  if (met_ns_ != 0) {
    const Status held = meeting_->Renew();
    if (held.ok()) return std::optional(step_);
    Over();
    return held;
  }
  const Result<std::int64_t> met = meeting_->Await(Deadline::At(now));
  if (met.ok()) {
    met_ns_ = MonotonicNs();
    step_ = *met;
    Failpoint("ps.met");
    return std::optional(step_);
  }
  const bool late = now - call_ns_ > std::chrono::nanoseconds(kGatherLimit).count();
  if (met.status().code() == Code::kDeadlineExceeded && !late) return std::optional<std::int64_t>();
  Over();
  return met.status();
}

Result<MeetingCost> HeldMeeting::GoOn(std::uint64_t reader) {
  if (!meeting_ || reader_ != reader || met_ns_ == 0) return NotTheirs();
  const Status whole = meeting_->End();
  const MeetingCost cost{std::chrono::nanoseconds(met_ns_ - call_ns_),
                         std::chrono::nanoseconds(MonotonicNs() - met_ns_)};
  Over();
  if (!whole.ok()) return whole;
  return cost;
}

void HeldMeeting::Closed(std::uint64_t reader) {
  if (meeting_ && reader_ == reader) Over();
}

void HeldMeeting::LetGo() {
  if (meeting_) Over();
}

void HeldMeeting::Renew() {
  if (meeting_ && met_ns_ != 0) (void)meeting_->Renew();  // GoOn() says whether it is held
}

Deadline HeldMeeting::NextLook(Deadline latest) {
  const bool gathers = meeting_ && met_ns_ == 0;
  if (!std::exchange(asked_in_vain_, false) && !gathers) return latest;
  const std::chrono::nanoseconds rest(gathers ? 0 : rest_until_ns_ - MonotonicNs());
  return latest.Sooner(std::max(kGatherPause, rest));
}

void HeldMeeting::Over() {
  meeting_.reset();
  const std::int64_t now = MonotonicNs();
  rest_until_ns_ =
      now + std::max(std::chrono::nanoseconds(kLeastRest).count(), kRestFactor * (now - call_ns_));
}

}  // namespace passel::shm

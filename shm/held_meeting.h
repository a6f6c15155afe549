// held_meeting.h - the meeting of the workers (store/meeting.h) that a ps holds for who reads their
// values and may write none: one reader after the other.
//
//   Ask(c), Ask(c), ...   until all have met; then each is a sign of life of the reader
//   GoOn(c)               or Closed(c): the workers go on
//
// A reader that is gone holds nobody up; one that says nothing, no longer than Meeting::kLease.
// After each meeting the workers train for four times as long as it took, but for a tenth of a
// second at least: whoever reads as often as it can costs them a fifth of their time, and the
// numbers of their modes (ModeWord::kMaxNumber) last for a day.
//
// Threads    One thread.

#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "base/deadline.h"
#include "base/status.h"
#include "cluster/worker_names.h"
#include "store/consistent_copy.h"
#include "store/meeting.h"
#include "store/shard_memory.h"

namespace passel::shm {

class HeldMeeting {
 public:
  explicit HeldMeeting(WorkerNames names) : names_(std::move(names)) {}

  /// The connection `reader` wants them to meet. Returns the global step once all have, and again
  /// as long as they wait; nothing: not yet, or others read; ask again. Errors: kAborted: it was
  /// silent for too long, they have gone on; those of Meeting.
  Result<std::optional<std::int64_t>> Ask(const ShardMemory& lead, std::uint64_t reader);
  /// What was read is of one step if this is OK. Errors: kAborted: they went on before.
  Result<MeetingCost> GoOn(std::uint64_t reader);
  void Closed(std::uint64_t reader);
  /// The memory of the job is about to go: no meeting of it is held any more.
  void LetGo();
  /// In the middle of a long copy for the reader.
  void Renew();

  /// When those who wait Ask() again: in a millisecond while all come, who do so soon, or when the
  /// workers have trained for long enough; `latest` if nobody has waited since the last call.
  Deadline NextLook(Deadline latest);

 private:
  void Over();

  const WorkerNames names_;
  std::optional<Meeting> meeting_;
  std::uint64_t reader_ = 0;  // whose it is
  std::int64_t call_ns_ = 0, met_ns_ = 0;
  std::int64_t step_ = 0;
  std::int64_t rest_until_ns_ = 0;
  bool asked_in_vain_ = false;  // since the last NextLook(), and not because others read
};

}  // namespace passel::shm

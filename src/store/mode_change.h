// mode_change.h - the mode of a job may change while it runs, between two steps.
//
//   wish      somebody asks for a mode: a ps for `passel ctl`, or a worker for the schedule. One
//             wish at a time; it is never taken back. But a worker that has not arrived makes a
//             meeting the change that the schedule has
//   last step rounds: the decision of the next round says that it is the last one in this mode, so
//             every worker takes part in it. Others: the step each worker is in
//   arrive    every worker says that it has ended its last step, and waits (Lead::AwaitChange)
//   publish   whoever sees that all who run have arrived prepares what the next mode starts from,
//             and makes the wish the current mode, with one compare-and-swap
//
// A meeting (store/meeting.h) is a wish for the mode in force, whose publication waits until its
// caller lets go.
//
// What is prepared is only raised, or agreed on by compare-and-swap: it may be done by several, and
// by one that sleeps until all of it is history. A worker that dies is not waited for; one that
// joins before the change is published makes the compare-and-swap fail and is waited for. So a
// death at any point leaves the one mode or the other.
//
// Everything here is about the lead shard.

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "store/parameter_store.h"
#include "store/shard_memory.h"

namespace passel {

/// Memory order: sequentially consistent.
ModeWord CurrentMode(const ShardMemory& lead);

/// Its number alone. Memory order: sequentially consistent.
inline std::uint32_t CurrentModeNumber(const ShardMemory& lead) {
  return ModeWord::NumberOf(lead.state->mode.current.load(std::memory_order_seq_cst));
}

/// True while a wish is not fulfilled. Memory order: sequentially consistent.
inline bool AModeIsWished(const ShardMemory& lead) {
  // The wish first: one that is fulfilled in between is not one above the current mode any more.
  const std::uint64_t wish = lead.state->mode.wish.load(std::memory_order_seq_cst);
  return ModeWord::NumberOf(wish) == CurrentModeNumber(lead) + 1;
}

/// The wish for another mode that is not fulfilled yet: a meeting is none.
std::optional<ModeWord> WishedMode(const ShardMemory& lead);

/// Whether somebody may wish for a change from `current` on. `wish` was read before that. Errors:
/// kFailedPrecondition when the job is ending; kAlreadyExists while `wish` is not fulfilled;
/// kResourceExhausted after ModeWord::kMaxNumber changes.
Status CheckNothingIsWished(const ShardMemory& lead, const ModeWord& current, const ModeWord& wish);

/// Asks for a mode. Returns its number: it is in force once CurrentMode() has that number or a
/// larger one. Nothing is done if it is in force, or asked for, already.
/// Errors: kInvalidArgument for a setting that is not valid; those of CheckNothingIsWished() while
/// another wish is not fulfilled, named, or workers meet.
Result<std::uint32_t> WishForMode(const ShardMemory& lead, const ModeSetting& setting);

/// As the schedule of the plan has it: asks for its next entry if that begins at `step` or before.
void WishForScheduledMode(const ShardMemory& lead, const std::vector<ScheduledMode>& schedule,
                          std::uint64_t step);

/// Workers that run, or are about to, and have not ended their last step before mode `number`.
std::vector<Member> MissingAtChange(const ShardMemory& lead, std::uint32_t number);

struct PastMode {
  std::uint32_t number = 0;  ///< of the change: meetings are counted, though not listed
  ModeSetting setting;
  std::int64_t since = 0;  ///< the global step at which it began
};
/// The modes of the job so far, in order, the one in force last; of more than
/// ModeState::kRecords the last ones. May be empty while the mode changes. For people.
std::vector<PastMode> ModesSoFar(const ShardMemory& lead);

}  // namespace passel

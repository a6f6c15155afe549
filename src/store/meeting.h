// meeting.h - everyone waits between two steps while somebody who is no worker copies the values.
//
//   Result<Meeting> meeting = Meeting::Call(lead);
//   Result<std::int64_t> step = meeting->Await(deadline);   // nobody is in a step any more
//   ... copy all shards; meeting->Renew() at least every second ...
//   Status whole = meeting->End();                          // OK: nobody has moved meanwhile
//
// In any mode: a meeting is a change of the mode to the one in force (store/mode_change.h) whose
// publication is held back by a word beside the wish, the hold. So all that makes changes safe
// holds here: who runs arrives after its last step, who dies is not waited for, who joins arrives
// before its first step. Training computes what it would have computed without; clocks (ssp) stay.
// If the schedule has another mode from this step on, the meeting becomes that change: it is in
// force when the meeting ends.
//
// The hold is a lease: it counts until a time that its caller moves on with each Renew(). A caller
// that dies costs the job no more than kLease. Who waits for the end of a hold that is out of date
// ends it, by a compare-and-swap: so End() knows.
//
// Threads    One Meeting is used by one thread, which is no worker's: that would wait for itself.

#pragma once

#include <chrono>
#include <cstdint>
#include <utility>

#include "base/deadline.h"
#include "base/status.h"
#include "cluster/worker_names.h"
#include "store/shard_memory.h"

namespace passel {

class Meeting {
 public:
  /// How long the workers wait for a caller that does not Renew().
  static constexpr std::chrono::seconds kLease{2};

  /// Asks all workers of the job to meet after the step that they are in. `lead` outlives the
  /// meeting. Errors: kAlreadyExists while the mode changes or others meet, and until those who
  /// run have made a step since they last met: try again;
  /// kFailedPrecondition before the values are initialised and when the job is ending;
  /// kResourceExhausted after ModeWord::kMaxNumber changes.
  static Result<Meeting> Call(const ShardMemory& lead, WorkerNames names = {});

  Meeting(Meeting&& other) noexcept
      : lead_(other.lead_),
        names_(std::move(other.names_)),
        number_(other.number_),
        hold_(std::exchange(other.hold_, 0)) {}
  Meeting& operator=(Meeting&&) = delete;
  /// Lets go, as End().
  ~Meeting();

  /// Until all workers that run have arrived, or none runs. Returns the global step: from here on
  /// to End() no value, slot variable or counter of an update changes. Renews the hold meanwhile,
  /// and marks who is dead. Memory order: acquire, of all that the workers have done.
  /// Errors: kDeadlineExceeded, naming who is missing (may be called again); kAborted: the hold has
  /// lapsed.
  Result<std::int64_t> Await(Deadline deadline);

  /// The hold counts for kLease from now on. Errors: kAborted: it has lapsed.
  Status Renew();

  /// The workers go on. Memory order: release, of all that was read before. Errors: kAborted: the
  /// hold had lapsed, and they went on before: what was read is not of one step.
  Status End();

 private:
  Meeting(const ShardMemory& lead, WorkerNames names, std::uint32_t number, std::uint64_t hold)
      : lead_(lead), names_(std::move(names)), number_(number), hold_(hold) {}
  bool AllAreHere() const;
  bool IsPublished() const;

  const ShardMemory lead_;
  const WorkerNames names_;
  const std::uint32_t number_;  // of the change
  std::uint64_t hold_;          // the word as we wrote it; 0: we have let go
};

/// True while change `number` of the mode is held back by a meeting. Ends a hold that is out of
/// date. Memory order: sequentially consistent.
bool IsHeldBack(const ShardMemory& lead, std::uint32_t number);

}  // namespace passel

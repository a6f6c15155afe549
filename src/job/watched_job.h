// watched_job.h - a running job as an evaluator sees it: it reads, and disturbs nobody.
//
// Thread safety: one thread at a time.

#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/status.h"
#include "store/consistent_copy.h"
#include "store/store_plan.h"

namespace passel::job {

class WatchedJob {
 public:
  virtual ~WatchedJob() = default;

  virtual const StorePlan& plan() const = 0;

  /// Looks after the connections: notices a ps that is gone, and one that is back. Waits for
  /// nobody longer than some seconds. Call it a few times a second.
  /// Errors: kFailedPrecondition when the job was started anew with another plan.
  virtual Status Look() = 0;
  /// How long the ps that has been gone longest is gone; zero while all are there.
  virtual std::chrono::nanoseconds MissingFor() const = 0;

  /// Every worker has ended, and nobody is left who could start one again.
  virtual bool Ended() const = 0;
  /// Somebody asked the workers to leave.
  virtual bool Stopped() const = 0;
  virtual std::int64_t global_step() const = 0;

  /// The global step before and after the values were copied. Equal: round modes give exactly
  /// that step's values; lock-free modes mix in what was being applied.
  /// Where the values are a shadow (StorePlan::on_device), those of the shadow, and its age.
  struct Copied {
    std::int64_t first_step = 0, last_step = 0;
    std::optional<std::int64_t> shadow_age_ns = {};
  };
  /// Copies the values of all shards. In the round modes it is tried a few times, until no round
  /// falls into the copy. Errors: kUnavailable, kDeadlineExceeded: a ps is gone.
  virtual Result<Copied> CopyValues() = 0;
  /// Copies them exactly after one step, in any mode: the workers wait between two steps meanwhile.
  /// `cost` gets what they waited. Errors: kUnavailable without ps/0; kFailedPrecondition where
  /// they cannot meet, or where the values are a shadow; those of RendezvousClient::Meet() and
  /// GoOn(). values() are then as before, or of no one step.
  virtual Result<Copied> CopyValuesAtOneStep(Deadline deadline, MeetingCost* cost) = 0;
  /// The last copy: per shard, laid out as in the arena. REQUIRES: CopyValues() was called.
  virtual std::vector<const float*> values() const = 0;

  /// Says to ps/0 how good the values of that step are on validation images; a ps that is gone does
  /// not hear it.
  virtual void TellScore(double accuracy, std::int64_t global_step) = 0;

  /// What the job trains on, of ps/0, as "data" in a status (shm/rendezvous_client.h): JSON;
  /// "null": not known, or the ps is gone.
  virtual std::string DataJson() = 0;
  /// From ps/0; nullopt if nobody has offered it here, or the ps is gone.
  virtual std::optional<FileDescriptor> GetData(const std::string& key) = 0;
};

}  // namespace passel::job

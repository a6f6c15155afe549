// job_observer.h - how an evaluator watches a running job: it maps the arenas for reading only.
//
// It is no worker: nobody waits for it, rounds do not count it, and since its descriptors are
// read-only it cannot change a byte. Killing it affects no other task.
//
// A ps that dies is looked for again; meanwhile the mappings stay, and training with them. The end
// of the job is read from the arena: an observer sees the last values even if every other task is
// gone by then.
//
// Thread safety: one thread at a time.

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/status.h"
#include "shm/arena.h"
#include "shm/rendezvous_client.h"

namespace passel::job {

struct ObserverOptions {
  Introduction me;
  int num_shards = 1;
  std::string chief_name = "worker/0";
  /// How long to wait for the ps tasks, for the chief's plan and for the first values.
  std::chrono::nanoseconds start_wait = std::chrono::minutes(5);
  /// Every 10 s, with the one that is waited for: "ps/0". May be empty.
  std::function<void(const std::string& task)> on_waiting = {};
};

class JobObserver {
 public:
  /// Waits until the variables have their first values. Errors: kDeadlineExceeded, naming who is
  /// missing; kAlreadyExists when this evaluator is running already; as
  /// shm::RendezvousClient::Connect().
  static Result<std::unique_ptr<JobObserver>> Attach(const ObserverOptions& options,
                                                     const JobToken& token);

  const StorePlan& plan() const { return arenas_[0]->plan(); }

  /// Looks after the connections: notices a ps that is gone, and one that is back. Waits for
  /// nobody longer than a second. Call it a few times a second.
  /// Errors: kFailedPrecondition when the job was started anew with another plan.
  Status Look();
  /// How long the ps that has been gone longest is gone; zero while all are there.
  std::chrono::nanoseconds MissingFor() const;

  /// Every worker has ended, and nobody is left who could start one again.
  bool Ended() const;
  /// Somebody asked the workers to leave.
  bool Stopped() const;
  std::int64_t global_step() const;

  /// The global step before and after the values were copied. Equal: round modes give exactly
  /// that step's values; lock-free modes mix in what was being applied.
  /// Where the values are a shadow (StorePlan::on_device), those of the shadow, and its age.
  struct Copied {
    std::int64_t first_step = 0, last_step = 0;
    std::optional<std::int64_t> shadow_age_ns = {};
  };
  /// Copies the values of all shards. In the round modes up to 50 times, until no round falls into
  /// the copy.
  Copied CopyValues();
  /// Copies them exactly after one step, in any mode: the workers wait between two steps meanwhile.
  /// `cost` gets what they waited. Errors: kUnavailable without ps/0; kFailedPrecondition where
  /// they cannot meet, or where the values are a shadow; those of RendezvousClient::Meet() and
  /// GoOn(). values() are then as before, or of no one step.
  Result<Copied> CopyValuesAtOneStep(Deadline deadline, MeetingCost* cost);
  /// The last copy: per shard, laid out as in the arena. REQUIRES: CopyValues() was called.
  std::vector<const float*> values() const;

  /// Says to ps/0 how good the values of that step are on validation images; a ps that is gone does
  /// not hear it.
  void TellScore(double accuracy, std::int64_t global_step);

  /// What the job trains on, of ps/0, as "data" in a status (shm/rendezvous_client.h): JSON;
  /// "null": not known, or the ps is gone.
  std::string DataJson();

  /// From ps/0; nullopt if nobody has offered it, or the ps is gone.
  std::optional<FileDescriptor> GetData(const std::string& key);

 private:
  struct Ps {
    std::optional<shm::RendezvousClient> client;  // nothing: it is gone
    std::int64_t missing_since_ns = 0;            // MonotonicNs()
    bool arena_checked = false;                   // that it has the arena we have mapped
  };
  explicit JobObserver(const ObserverOptions& options, const JobToken& token);
  Status CheckArena(int shard);
  bool HasArenas() const;
  /// One sentence, and who it is; empty when there are values.
  std::string WhatIsMissing(std::string* task) const;

  const ObserverOptions options_;
  const JobToken token_;
  FileDescriptor identity_;                          // holds the name of this evaluator
  std::vector<Ps> ps_;                               // [num_shards]
  std::vector<std::unique_ptr<shm::Arena>> arenas_;  // [num_shards]
  std::vector<std::vector<float>> values_;           // [num_shards][floats of the shard]
};

}  // namespace passel::job

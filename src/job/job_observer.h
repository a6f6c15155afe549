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
#include "job/watched_job.h"
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

class JobObserver final : public WatchedJob {
 public:
  /// Waits until the variables have their first values. Errors: kDeadlineExceeded, naming who is
  /// missing; kAlreadyExists when this evaluator is running already; as
  /// shm::RendezvousClient::Connect().
  static Result<std::unique_ptr<JobObserver>> Attach(const ObserverOptions& options,
                                                     const JobToken& token);

  const StorePlan& plan() const override { return arenas_[0]->plan(); }
  Status Look() override;
  std::chrono::nanoseconds MissingFor() const override;
  bool Ended() const override;
  bool Stopped() const override;
  std::int64_t global_step() const override;
  Result<Copied> CopyValues() override;
  Result<Copied> CopyValuesAtOneStep(Deadline deadline, MeetingCost* cost) override;
  std::vector<const float*> values() const override;
  void TellScore(double accuracy, std::int64_t global_step) override;
  std::string DataJson() override;
  std::optional<FileDescriptor> GetData(const std::string& key) override;

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

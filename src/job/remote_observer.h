// remote_observer.h - how an evaluator watches a job whose ps are on another host: it asks them, by
// the sealed control connections, for copies of their values. It reads, and cannot write.
//
// A ps that ends waits some seconds for it: so it sees the last values, unless one evaluation takes
// longer.

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "job/remote_job.h"
#include "job/task.h"
#include "job/watched_job.h"

namespace passel::job {

class RemoteObserver final : public WatchedJob {
 public:
  /// Null: all ps are on this host. Else waits until the variables have their first values. `task`
  /// outlives it. REQUIRES: task.several_hosts. Errors: kDeadlineExceeded, naming who is missing;
  /// those of RemoteJob::ConnectIfElsewhere().
  static Result<std::unique_ptr<WatchedJob>> AttachIfElsewhere(const Task& task,
                                                               const RemoteJobOptions& options);

  const StorePlan& plan() const override { return *plan_; }
  Status Look() override;
  std::chrono::nanoseconds MissingFor() const override;
  bool Ended() const override { return seen_.ended && (seen_.done || seen_.stopped); }
  bool Stopped() const override { return seen_.stopped; }
  std::int64_t global_step() const override { return seen_.global_step; }
  Result<Copied> CopyValues() override;
  /// Nobody waits for who is elsewhere: kFailedPrecondition.
  Result<Copied> CopyValuesAtOneStep(Deadline deadline, MeetingCost* cost) override;
  std::vector<const float*> values() const override;
  void TellScore(double accuracy, std::int64_t global_step) override;
  std::string DataJson() override;
  std::optional<FileDescriptor> GetData(const std::string&) override { return std::nullopt; }

 private:
  struct Seen {
    bool initialized = false, ended = false, done = false, stopped = false;
    std::int64_t global_step = 0;
  };
  explicit RemoteObserver(const Task& task) : task_(task) {}
  Result<bool> GetPlan();
  Status LookNow();
  Result<std::optional<std::uint64_t>> CopyShard(int shard, Copied* copied);

  const Task& task_;
  std::unique_ptr<RemoteJob> job_;
  std::optional<StorePlan> plan_;
  Seen seen_;                               // of ps/0
  std::int64_t next_look_ns_ = 0;           // MonotonicNs()
  std::int64_t missing_since_ns_ = 0;       // the same; 0: ps/0 answers
  std::vector<std::vector<float>> values_;  // [shards]
};

}  // namespace passel::job

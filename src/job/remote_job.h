// remote_job.h - how a worker meets ps tasks of which some are on other hosts, and opens the store
// that they lend.
//
// Whether a ps is on this host its abstract socket says, never an address. The worker shares the
// memory of those (shm/attached_job.h), and reaches the others by TCP.
//
// Threads    One at a time.

#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "fabric/client.h"
#include "fabric/control/control_connection.h"
#include "job/remote_errand.h"
#include "job/task.h"
#include "shm/attached_job.h"
#include "shm/layout.h"
#include "store/metrics.h"
#include "store/open_store.h"
#include "store/parameter_store.h"
#include "store/store_plan.h"

namespace passel::job {

struct RemoteJobOptions {
  shm::AttachOptions attach;  ///< for those of this host; its times and names for all
  std::chrono::nanoseconds ps_wait;
  Role role = Role::kWorker;  ///< or kEvaluator, which has no store
};

class RemoteJob {
 public:
  /// Null: all ps are on this host. `task` outlives it. REQUIRES: task.several_hosts. Errors:
  /// kDeadlineExceeded, naming the ps that nobody answers for; kPermissionDenied and
  /// kFailedPrecondition of ControlConnection::Open().
  static Result<std::unique_ptr<RemoteJob>> ConnectIfElsewhere(const Task& task,
                                                               const RemoteJobOptions& options);

  /// A ps has said that the job was stopped: all that is asked ends with kCancelled.
  bool Stopped() const { return stopped_->load(std::memory_order_acquire); }
  /// "ps/1 at b:2222, ps/2 at c:2222": those that are elsewhere.
  std::string Elsewhere() const;
  /// "ps/0": those that share their memory; "": none.
  std::string Here() const;

  /// One question of job/remote_errand.h; the answer has at most `most` bytes. Errors: what the ps
  /// says; kUnavailable and kDeadlineExceeded, naming it.
  Result<Errand> AskPs(int shard, const Json& question, std::size_t most, Deadline deadline) {
    return Ask(shard, question, {}, deadline, most);
  }

  /// The same of ps/0, which is asked again while it is gone, for ps_wait at most.
  Result<Errand> AskLead(const Json& question);
  /// Once, for a second, also of a job that was stopped.
  Status TellLead(const Json& question);
  /// The memory of ps/0, where that is here, after AgreeOnPlan(); else null.
  const ShardMemory* LeadHere() const { return IsHere(0) ? &here_->arena(0).memory() : nullptr; }

  /// Tells ps/0, where that is here with AgreeOnPlan(), which data this worker trains on, a JSON
  /// object. Errors: kFailedPrecondition: other contents than those of another worker.
  Status TellData(const std::string& json);
  /// All ps have this plan, or get it from us if we are the chief: else it is waited for. Maps the
  /// arenas that are here. Errors: kInvalidArgument when `plan` differs from theirs;
  /// kDeadlineExceeded; kUnavailable: one of those ended meanwhile, and it may be called again.
  Status AgreeOnPlan(const StorePlan& plan);
  /// All ps have values of one beginning, or none has any. Errors: kDataLoss, naming one that has
  /// lost its own.
  Status CheckOneBeginning();
  /// What that one has. Errors: those of AskPs().
  Result<ShardBeginning> BeginningOf(int shard);
  /// Steps whose updates some ps had then.
  std::int64_t StepsLeft() const { return steps_left_; }
  /// Of the chief: an arena of that plan in place of each that there is; AgreeOnPlan() follows.
  /// Errors: kFailedPrecondition, naming a worker that still trains.
  Status Renew(const StorePlan& plan);
  /// As AttachedJob::GiveUp(), of all ps.
  void GiveUp(const std::string& why);
  /// Outlives what it returns. Errors: those of fabric::OpenRemoteStore().
  Result<std::unique_ptr<ParameterStore>> Open(const StorePlan& plan, bool prefetch);
  /// Of the chief: how far the job is to go; 0: without end.
  Status TellTarget(std::int64_t steps);

  /// Of this worker, for whoever asks ps/0. Takes a second at most.
  Status TellMetrics(const std::vector<Metric>& metrics);

  /// OK if all ps that save see what this task writes to `folder`: the --checkpoint_dir of all is
  /// the same one. Makes it. Errors: kInvalidArgument, naming the ps; those of the file system.
  Status CheckFolder(const std::string& folder);

  /// How long the ps that has been gone longest is gone; zero while all are there.
  std::chrono::nanoseconds PsMissingFor() const;

 private:
  static constexpr std::size_t kMostBytes = shm::kMaxPlanBytes;
  struct Ps {
    HostPort address;
    bool elsewhere = false;
    std::shared_ptr<fabric::ControlLine> line;
    std::unique_ptr<fabric::Pipe> errands;
  };

  RemoteJob(const Task& task, const RemoteJobOptions& options);
  Status Find(int shard, Deadline deadline);
  std::shared_ptr<fabric::ControlLine> MakeLine(int shard) const;
  Status Attach();
  bool IsHere(std::size_t shard) const { return !ps_[shard].elsewhere; }
  Result<Errand> Ask(int shard, const Json& question, std::string_view bytes, Deadline deadline,
                     std::size_t most = kMostBytes);
  Result<Errand> AskOnce(int shard, const Json& question, std::string_view bytes, Deadline deadline,
                         std::size_t most, bool though_stopped = false);
  std::string NameOf(int shard) const;
  Result<Errand> AskOfArena(int shard, const Json& question);
  Result<std::optional<StorePlan>> PlanOf(int shard);
  Status CheckSeen(const std::string& folder, const std::string& file);

  const Task& task_;
  const RemoteJobOptions options_;
  // Also of the threads of the connections.
  const std::shared_ptr<std::atomic<bool>> stopped_ = std::make_shared<std::atomic<bool>>(false);
  std::vector<Ps> ps_;
  std::string about_data_;                  // for ps/0, where that is here
  std::unique_ptr<shm::AttachedJob> here_;  // null: no ps is here
  std::int64_t steps_left_ = 0;
  std::function<fabric::MessageCount()> count_;  // of the store that is open
};

}  // namespace passel::job

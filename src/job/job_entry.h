// job_entry.h - how a worker task gets its store: it meets the ps of its job, gets the data, agrees
// on a plan, and waits until the variables have values. The chief gives them these.
//
// If a ps has lost its values and others have not, the chief has all begin anew with a checkpoint,
// and the other workers wait for that; without one the job ends.
//
// Threads    One at a time.

#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/deadline.h"
#include "base/status.h"
#include "job/checkpoint_saver.h"
#include "job/job_config.h"
#include "job/remote_job.h"
#include "job/shared_data.h"
#include "job/task.h"
#include "shm/attached_job.h"
#include "store/parameter_store.h"
#include "store/store_plan.h"
#include "train/log_lines.h"
#include "train/model_plan.h"

namespace passel::job {

class JobEntry {
 public:
  /// All of it outlives this. `config` is fitted to the data.
  JobEntry(const Task& task, JobConfig& config, LogLines& log);

  /// Until there is a store. Errors: those of AttachedJob and RemoteJob; kInternal, of which all
  /// tasks of the job hear, if values are lost for good.
  Status Join(bool has_gpu, Deadline start);
  /// Until the variables have values; a chief by hand saves from now on. After Join().
  Status AwaitModel(Deadline start);

  const shm::AttachOptions& options() const { return options_; }
  /// The ps of this host and their arenas; null: see remote().
  shm::AttachedJob* job() const { return job_.get(); }
  /// In its place, if some ps are on other hosts; else null.
  RemoteJob* remote() const { return remote_.get(); }
  /// Of a chief by hand that has all arenas; else null.
  CheckpointSaver* checkpoints() const { return checkpoints_.get(); }
  ParameterStore& store() const { return *store_; }
  const Dataset& data() const { return data_->data(); }
  const ModelLayout& layout() const { return *layout_; }

 private:
  bool supervised() const { return task_.flags.supervised; }
  Status JoinElsewhere(bool has_gpu, Deadline start);
  Status AgreeElsewhere(const StorePlan& plan, Deadline start);
  Status ChooseRemoteBeginning(const StorePlan& plan);
  Status Attach();
  Result<StorePlan> PlanOfJob();
  Result<std::unique_ptr<CheckpointSaver>> OpenCheckpoints(const StorePlan& plan, bool begun);
  Status GoBack(const StorePlan& plan, const Status& loss);
  Status GiveUp(const Status& lost);
  bool HaveValues() const;
  void BeginCheckpoints();

  const Task& task_;
  JobConfig& config_;
  LogLines& log_;
  const shm::AttachOptions options_;
  bool server_told_ = false;
  std::string about_data_;  // ToJson(JobData); empty under a supervisor
  std::unique_ptr<shm::AttachedJob> job_;
  std::unique_ptr<RemoteJob> remote_;
  bool values_lost_ = false;  // of a ps; the chief goes back to a checkpoint
  std::string resume_from_;
  std::unique_ptr<CheckpointSaver> checkpoints_;
  std::unique_ptr<ParameterStore> store_;
  std::optional<SharedData> data_;
  std::optional<ModelLayout> layout_;
};

}  // namespace passel::job

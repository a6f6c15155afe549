// worker_start.h - how a worker task attaches to its job, gets its data, and waits until the job
// has values; and what is to be said where these are lost.

#pragma once

#include <string>

#include "base/deadline.h"
#include "base/status.h"
#include "job/job_config.h"
#include "job/remote_job.h"
#include "job/shared_data.h"
#include "job/task.h"
#include "shm/attached_job.h"
#include "store/parameter_store.h"

namespace passel::job {

shm::AttachOptions AttachOptionsOf(const Task& task, const JobConfig& config);

/// The training data: of the supervisor, of another task of this host, else loaded and offered to
/// those. `about` gets what is to be told of it, unless the supervisor does. Errors: those of
/// SharedData::Load() and of the job.
Result<SharedData> GetData(const Task& task, const JobConfig& config, shm::AttachedJob& job,
                           std::string* about);

/// Errors: kInvalidArgument, naming what cannot be done by messages.
Status CheckRemote(const Task& task, const JobConfig& config, bool has_gpu, const RemoteJob& job);

/// The sentence for values of which a part is lost, `loss`, with what the user can do: `folder` is
/// the --checkpoint_dir, "": none. kInternal.
Status JobIsLost(const Status& loss, const std::string& folder);

/// Until the chief has initialised the variables, and others let this task begin. Says every 10 s
/// whom it waits for. Errors: kDeadlineExceeded, naming them; those of the store.
Status AwaitFirstValues(const Task& task, const JobConfig& config, Deadline deadline,
                        ParameterStore& store);

}  // namespace passel::job

#include "job/worker_start.h"

#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/nvtx.h"
#include "base/subprocess.h"
#include "io/checkpoint_files.h"
#include "io/checkpoint_folder.h"

namespace passel::job {

shm::AttachOptions AttachOptionsOf(const Task& task, const JobConfig& config) {
  shm::AttachOptions options;
  options.me = {task.job_id, Role::kWorker, task.Trainer(), task.spec.Hash()};
  options.use_existing_servers = task.flags.existing_servers;
  options.num_shards = task.spec.num_tasks("ps");
  options.supervised = task.flags.supervised;
  options.start_wait = std::chrono::nanoseconds(config.start_wait_ns);
  options.on_waiting = TellsOfWaiting(config);
  options.waits =
      MakeWaitOptions(config, task.MostTrainers(), static_cast<int>(UsableCpus().size()));
  options.waits.names = task.Names();
  return options;
}

Result<SharedData> GetData(const Task& task, const JobConfig& config, shm::AttachedJob& job,
                           std::string* about) {
  if (task.flags.data_fd >= 0) return SharedData::Map(FileDescriptor(::dup(task.flags.data_fd)));
  PASSEL_ASSIGN_OR_RETURN(const ChosenData chosen, ChooseData(task.job));
  PASSEL_ASSIGN_OR_RETURN(std::optional<FileDescriptor> fd, job.GetData(chosen.key));
  Result<SharedData> data =
      fd ? SharedData::Map(std::move(*fd)) : SharedData::Load(chosen.dir, chosen.options);
  PASSEL_RETURN_IF_ERROR(data.status());
  if (!fd) PASSEL_RETURN_IF_ERROR(job.OfferData(chosen.key, data->fd()));
  *about = ToJson(DescribeData(chosen, data->data(), config));
  return data;
}

Status CheckRemote(const Task& task, const JobConfig& config, bool has_gpu, const RemoteJob& job) {
  const std::string who =
      fmt::format("{} is on another host than {}", task.Names()(task.Trainer()), job.Elsewhere());
  if (config.on_device) {
    return InvalidArgument(who + ": --arena device is for one host; omit it");
  }
  if (has_gpu) {
    return InvalidArgument(who + ": a GPU trains on parameters of its own host; give --device cpu");
  }
  return {};
}

Status JobIsLost(const Status& loss, const std::string& folder) {
  const auto index = ReadCheckpointIndex(folder);
  if (folder.empty()) {
    return Internal(loss.message() +
                    ": without --checkpoint_dir there is nothing to go back to, and the job is "
                    "lost; start it anew, with --checkpoint_dir to lose less the next time");
  }
  if (!index.ok()) {
    return Internal(fmt::format("{}: all tasks end, since {}; mend that and start the job anew",
                                loss.message(), index.status().message()));
  }
  if (index->kept.empty()) {
    return Internal(
        fmt::format("{}: {} has no checkpoint to go back to, and the job is lost; start it anew",
                    loss.message(), folder));
  }
  return Internal(fmt::format("{}: all tasks end; start it anew, and the job goes on from {}",
                              loss.message(), InFolder(folder, index->kept.back().name)));
}

Status AwaitFirstValues(const Task& task, const JobConfig& config, Deadline deadline,
                        ParameterStore& store) {
  const nvtx::Range range(nvtx::Event::kAwaitValues, task.Trainer());
  const std::int64_t begin = MonotonicNs();
  for (;;) {
    const Status status = store.WaitUntilInitialized(deadline.Sooner(std::chrono::seconds(10)));
    if (status.code() != Code::kDeadlineExceeded) return status;
    // It waits for others: a change of the mode, a round, slower ones.
    if (store.initialized()) {
      if (deadline.Expired()) return status.WithContext("this task cannot begin");
      LogInfo("Waiting for the others to let this task begin: {}", status.message());
      continue;
    }
    if (deadline.Expired()) {
      return DeadlineExceeded(fmt::format(
          "the chief, {}, has not initialised the variables within {:g} s of this task's start "
          "(the last {:.1f} s were spent on waiting for that): start it with the same lists of "
          "hosts, or raise --start_wait",
          task.Names().chief_name, 1e-9 * static_cast<double>(config.start_wait_ns),
          1e-9 * static_cast<double>(MonotonicNs() - begin)));
    }
    LogInfo("Waiting for model to be ready. {} has not initialised the variables yet",
            task.Names().chief_name);
  }
}

}  // namespace passel::job

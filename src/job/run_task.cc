#include "job/run_task.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/log.h"
#include "base/nvtx.h"
#include "job/devices.h"
#include "job/evaluator_task.h"
#include "job/ps_of_ranks.h"
#include "job/ps_task.h"
#include "job/worker_task.h"
#include "train/model_plan.h"

namespace passel::job {
namespace {

// What can be said of the flags before anything is waited for, and before anything is printed.
Status CheckTask(const Task& task, const ResolvedConfig& resolved, const JobConfig& config) {
  if (task.flags.existing_servers && !resolved.distributed) {
    return InvalidArgument(
        "--existing_servers needs a cluster, and none is named: give --ps_hosts, --worker_hosts, "
        "--job_name and --task_index");
  }
  if (task.flags.existing_servers &&
      (resolved.task->job == "ps" || resolved.task->job == "evaluator")) {
    return InvalidArgument(
        fmt::format("--existing_servers is for tasks that train, and {} does not: omit it",
                    resolved.task->ToString()));
  }
  PASSEL_RETURN_IF_ERROR(CheckDevices(task.flags.devices, task.job.typed, resolved));
  // Nobody knows how many ps there are in a cluster that is seen in part.
  if (resolved.partial) return {};
  if (resolved.distributed) {
    const ClusterSpec& cluster = resolved.cluster;
    PASSEL_RETURN_IF_ERROR(CheckSlowWorkers(
        config, std::max(task.flags.max_workers.value_or(0), cluster.num_tasks("worker") +
                                                                 cluster.num_tasks("chief") +
                                                                 cluster.num_tasks("master"))));
    if (task.flags.max_workers.value_or(0) > cluster.num_tasks("worker")) {
      PASSEL_RETURN_IF_ERROR(CheckMayJoin(config));
    }
  }
  return CheckPins(config.model, std::max(1, resolved.cluster.num_tasks("ps")), config.placement);
}

}  // namespace

Result<JobConfig> CheckTaskSettings(const Task& task, const ResolvedConfig& resolved) {
  PASSEL_RETURN_IF_ERROR(StartLog(task.job));
  PASSEL_ASSIGN_OR_RETURN(
      JobConfig config,
      CheckJobSettings(task.job,
                       task.flags.supervised ? JobSettingsOf::kOther : JobSettingsOf::kTaskByHand));
  PASSEL_RETURN_IF_ERROR(CheckTask(task, resolved, config));
  return config;
}

int RunTask(Task& task, const ResolvedConfig& resolved, JobConfig& config) {
  if (const Status status = PrepareTask(resolved, &task); !status.ok()) return FailTask(status);
  SetLogName(task.id.ToString());
  nvtx::NameThread(task.id.ToString());
  if (!task.flags.supervised) {
    nvtx::WarnIfMissing();  // of a supervised task the supervisor has said it
    LogInfo("{}", resolved.Announcement());
  }
  if (resolved.starts_ps) {
    Result<PsOfRanks> ps = PsOfRanks::Start(resolved);
    return ps.ok() ? ps->AwaitEnd(RunWorkerTask(task, config)) : FailTask(ps.status());
  }
  if (task.id.job != "ps" && task.id.job != "evaluator") return RunWorkerTask(task, config);
  MakeLogLines(config, task.id, false).Task();
  return task.id.job == "ps" ? RunPsTask(task, config) : RunEvaluatorTask(task, config);
}

}  // namespace passel::job

#include "job/join_place.h"

#include <fmt/core.h>

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/counted.h"
#include "base/log.h"
#include "cluster/device.h"
#include "cluster/endpoint.h"
#include "cluster/patience.h"
#include "job/ask_jobs.h"
#include "job/far_job.h"
#include "job/remote_facts.h"
#include "job/status_view.h"

namespace passel::job {
namespace {

constexpr std::chrono::seconds kPlaceLimit{5};

// Of this host, or where the lists have it: `far` names it then.
Result<Json> StatusOf(const Task& task, Deadline deadline, std::optional<FarJob>* far) {
  far->reset();
  Result<Json> here = AskJob(task.job_id, deadline);
  if (here.ok() || !task.several_hosts || !IsMissing(here.status().code())) return here;
  PASSEL_ASSIGN_OR_RETURN(const HostPort lead, task.spec.Address({"ps", 0}));
  *far = FarJob{task.job_id, {lead}, DoorKeyOf(task)};
  return StatusOfFar(**far, deadline);
}

Result<ArenaView> PlacesOf(const Task& task, Deadline deadline, std::optional<FarJob>* far) {
  const std::string& job = task.job_id;
  Patience patience(deadline, [&job] { LogInfo("Waiting for job {} to begin", job); });
  for (;;) {
    const Result<Json> status = StatusOf(task, deadline.Sooner(kPlaceLimit), far);
    if (status.ok()) {
      PASSEL_ASSIGN_OR_RETURN(StatusView view, ReadStatus(job, *status));
      if (view.arena) return std::move(*view.arena);
    } else if (!IsMissing(status.status().code())) {
      return status.status();
    }
    if (patience.Again(std::chrono::milliseconds(100))) continue;
    return DeadlineExceeded(fmt::format(
        "job {} has not begun within --start_wait: start its ps and workers, with the same lists "
        "of hosts, before others join",
        job));
  }
}

// Of several that join at once each takes another: of this host the kernel sees to it, of several
// hosts ps/0. Nothing: others hold all of them.
Result<std::optional<int>> Hold(const std::vector<int>& free, const std::optional<FarJob>& far,
                                Task* task) {
  if (far && !free.empty()) {
    Result<FarPlace> place = ReserveFarPlace(*far, free, Deadline::After(kPlaceLimit));
    if (place.status().code() == Code::kResourceExhausted) return std::optional<int>();
    PASSEL_RETURN_IF_ERROR(place.status());
    task->far_place = std::move(place->holds);
    return std::optional(place->worker);
  }
  for (const int k : free) {
    Result<FileDescriptor> place = ReservePlace(task->job_id, k);
    if (place.status().code() == Code::kAlreadyExists) continue;
    PASSEL_RETURN_IF_ERROR(place.status());
    task->place = std::move(*place);
    return std::optional(k);
  }
  return std::optional<int>();
}

}  // namespace

Status TakeFreePlace(Task* task) {
  const Deadline deadline = Deadline::After(
      std::chrono::nanoseconds(static_cast<std::int64_t>(1e9 * task->job.start_wait)));
  std::optional<FarJob> far;
  PASSEL_ASSIGN_OR_RETURN(const ArenaView places, PlacesOf(*task, deadline, &far));
  const int most = places.max_workers;
  if (task->flags.max_workers.value_or(most) != most) {
    return InvalidArgument(
        fmt::format("job {} was started with --max_workers {}, not {}: omit it, it is the job's",
                    task->job_id, most, *task->flags.max_workers));
  }
  if (task->job.shard_data && most > task->NumTrainers()) {
    return InvalidArgument(
        fmt::format("--shard_data gives each worker a part of the examples for good, and job {} "
                    "lets up to {} workers join and leave: omit it",
                    task->job_id, most));
  }
  task->flags.max_workers = most;
  if (task->flags.task_index) return {};
  std::set<std::string> held, over;
  for (const WorkerView& place : places.workers) {
    const bool ended = place.phase == "dead" || place.phase == "left" || place.phase == "evicted" ||
                       place.phase == "never started";
    (ended ? over : held).insert(place.task);
  }
  const int listed = task->NumTrainers();
  std::vector<int> free;
  for (int k = listed; k < most; ++k) {
    if (!held.contains(TaskId{"worker", k}.ToString())) free.push_back(k);
  }
  // The chief comes back as itself.
  for (int k = 1; k < listed; ++k) {
    if (over.contains(TaskId{"worker", k}.ToString())) free.push_back(k);
  }
  PASSEL_ASSIGN_OR_RETURN(const std::optional<int> index, Hold(free, far, task));
  if (!index) {
    return ResourceExhausted(
        fmt::format("job {} has places for {}, and all are taken: end one, or start the "
                    "job again with a larger --max_workers (with --checkpoint_dir it goes on where "
                    "it was)",
                    task->job_id, Counted(static_cast<std::uint64_t>(most), "worker")));
  }
  task->id.index = *index;
  if (task->gpu) {
    PASSEL_ASSIGN_OR_RETURN(task->gpu, GpuOfTask(*index, task->flags.devices.num_gpus));
  }
  LogInfo("joins job {} as {}", task->job_id, task->id.ToString());
  return {};
}

}  // namespace passel::job

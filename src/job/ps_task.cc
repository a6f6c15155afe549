#include "job/ps_task.h"

#include <fmt/core.h>

#include <csignal>
#include <optional>

#include "base/log.h"
#include "base/subprocess.h"
#include "job/exit_code.h"
#include "job/job_status.h"
#include "job/signals.h"
#include "job/stragglers.h"
#include "shm/ps_host.h"
#include "train/server_lines.h"

namespace passel::job {

int RunPsTask(Task& task, const JobConfig& config) {
  Result<SignalEvents> signals = SignalEvents::Create();
  if (!signals.ok()) return FailTask(signals.status());
  const int shard = task.id.index;
  FileDescriptor listening(task.flags.listen_fd);
  if (!listening.valid()) {
    Result<FileDescriptor> socket = Listen(task.job_id, Role::kPs, shard);
    if (!socket.ok()) return FailTask(socket.status());
    listening = std::move(*socket);
  }
  std::optional<shm::Arena> former;
  if (task.flags.arena_fd >= 0) {
    Result<shm::Arena> arena = shm::Arena::Adopt(FileDescriptor(task.flags.arena_fd));
    if (!arena.ok()) return FailTask(arena.status());
    former = std::move(*arena);
  }
  shm::PsHostOptions options;
  options.me = {task.job_id, Role::kPs, shard, task.spec.Hash()};
  options.num_workers = task.MostTrainers();
  options.names = task.Names();
  options.huge_pages = config.huge_pages;
  options.memory_fraction = config.memory_fraction;
  options.supervised = task.flags.supervised;
  options.data = task.flags.job_data;
  options.describe = DescribeJob;
  options.start_wait = std::chrono::nanoseconds(config.start_wait_ns);
  Stragglers stragglers(config.stall_limit_ns);
  Status failure;
  if (!task.flags.supervised && shard == 0) {
    options.look_on = [&](const ShardMemory& memory) {
      failure = LookAfterStragglers(memory, config, options.names, &stragglers);
      return failure.ok();
    };
  }
  shm::PsHost host(options, task.token, std::move(listening), std::move(former));
  if (!task.flags.supervised) {
    const Status met =
        host.MeetWorkers(Deadline::After(std::chrono::nanoseconds(config.start_wait_ns)));
    if (!met.ok()) return FailTask(met);
    if (TellsOfServers(config.log_style)) {
      LogServer(task, config);
    } else {
      LogInfo("{} of job {} is ready for its workers", task.id.ToString(), task.job_id);
    }
  }
  const shm::PsHost::End end = host.Serve(signals->fd());
  switch (end) {
    case shm::PsHost::End::kWorkersDone:
    case shm::PsHost::End::kFewerDone:
    case shm::PsHost::End::kNobodyDone:
      RemoveToken(task);
      // Ctrl-C reaches all tasks of a terminal: the workers may have left before we saw it.
      if (host.Stopped() || (!task.flags.supervised && signals->Next() == SIGINT)) {
        LogInfo("the job was stopped: {}", host.DescribeWorkers());
        return kExitInterrupted;
      }
      if (end == shm::PsHost::End::kWorkersDone) {
        LogInfo("all workers are done");
        return kExitDone;
      }
      if (end == shm::PsHost::End::kFewerDone) {
        LogWarning("the job finished with fewer workers than it began with: {}",
                   host.DescribeWorkers());
        return kExitDone;
      }
      LogWarning("no worker is running any more: {}", host.DescribeWorkers());
      return kExitFailed;
    case shm::PsHost::End::kStoppedEarly:
      RemoveToken(task);
      LogInfo("the job was stopped before it began");
      return kExitInterrupted;
    case shm::PsHost::End::kNobodyCame:
      RemoveToken(task);
      return FailTask(DeadlineExceeded(
          fmt::format("the chief, {}, did not propose its plan within {:g} s: start it, or "
                      "raise --start_wait",
                      task.Names().chief_name, 1e-9 * static_cast<double>(config.start_wait_ns))));
    case shm::PsHost::End::kStopped:
      break;
  }
  if (!failure.ok()) {
    host.StopJob();
    RemoveToken(task);
    return FailTask(failure);
  }
  const int signal = signals->Next();
  if (task.flags.supervised) return kExitDone;
  if (signal == SIGINT) {
    host.StopJob();
    RemoveToken(task);
    LogInfo("stopped by Ctrl-C; the workers leave after their current step");
    return kExitInterrupted;
  }
  LogInfo("ended by {}; the workers keep the arena for a ps that comes back", SignalName(signal));
  return kExitRestartMe;
}

}  // namespace passel::job

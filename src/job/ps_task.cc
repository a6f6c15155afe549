#include "job/ps_task.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/subprocess.h"
#include "cluster/json_message.h"
#include "io/checkpoint_files.h"
#include "job/disk_call.h"
#include "job/exit_code.h"
#include "job/far_job.h"
#include "job/grace.h"
#include "job/job_keeper.h"
#include "job/job_status.h"
#include "job/memory_need.h"
#include "job/other_parts.h"
#include "job/remote_door.h"
#include "job/remote_facts.h"
#include "job/save_wishes.h"
#include "job/signals.h"
#include "job/stragglers.h"
#include "job/task_report.h"
#include "shm/layout.h"
#include "shm/ps_host.h"
#include "store/membership.h"
#include "train/server_lines.h"

namespace passel::job {
namespace {

// Workers that are told to leave do so after their step; if the ps alone is told to go, they stay.
constexpr std::chrono::seconds kGuestsLimit{5};
// They may be in the middle of an evaluation.
constexpr std::chrono::seconds kEvaluatorsLimit{15};
constexpr std::chrono::seconds kWorkersLimit{10}, kWorkersLimitOnSigterm{2};
// As long as signals let it.
constexpr std::chrono::seconds kSaveLimit{600};
// For an answer of ps/0 to travel.
constexpr std::chrono::seconds kHeardLimit{1};
constexpr std::chrono::milliseconds kLookForSignals{50};
// Of another ps than ps/0 that is told to go, until that holds its values: it looks for them within
// a second, unless it is stopped.
constexpr std::chrono::seconds kLeadLimit{10};

// False if there is something that should have been saved.
bool SaveLast(JobKeeper& keeper, const shm::PsHost& host, bool chief_is_here, int signal,
              std::chrono::nanoseconds limit_when_asked, SignalEvents& signals) {
  if (host.arena() == nullptr) return true;
  keeper.Look(*host.arena(), chief_is_here, host.DataTold());
  const Status saved =
      keeper.SaveLast({Deadline::After(signal == SIGTERM ? kWorkersLimitOnSigterm : kWorkersLimit),
                       Deadline::After(signal == 0 ? kSaveLimit : limit_when_asked),
                       limit_when_asked, signal != 0, [&signals] { return signals.Next() != 0; }});
  if (!saved.ok()) LogError("{}", saved.message());
  return saved.ok();
}

// Of another ps than ps/0 that is told to go while the others stay: has ps/0 lead a save, of which
// this one writes its part. False: it has made none.
bool HaveLeadSave(const Task& task, const std::string& folder, std::chrono::nanoseconds limit,
                  const std::function<bool()>& hurry) {
  const auto ask = [&]() -> Result<Json> {
    PASSEL_ASSIGN_OR_RETURN(const HostPort lead, task.spec.Address({"ps", 0}));
    const FarJob job{task.job_id, {lead}, DoorKeyOf(task)};
    const Json question = SaveQuestion(NewWishNumber(), std::nullopt, limit, limit, task.id.index);
    DiskCall<Result<Json>> call([job, question, deadline = Deadline::After(limit + kHeardLimit)] {
      return AskFar(job, 0, question, deadline);
    });
    while (!call.Done(kLookForSignals)) {
      if (hurry()) return Cancelled("it was told so again");
    }
    return call.Take();
  };
  const Result<Json> said = ask();
  Result<std::optional<std::int64_t>> step =
      said.ok() ? SavedStep(*said) : Result<std::optional<std::int64_t>>(said.status());
  if (step.ok() && !*step) step = DeadlineExceeded("ps/0 has not saved it in time");
  if (step.ok()) {
    LogInfo("ps/0 has saved checkpoint {} with the part of {}",
            InFolder(folder, CheckpointName(**step)), task.id.ToString());
  } else {
    LogWarning(
        "no checkpoint was saved before {} goes, and what it has gone through since the newest one "
        "in {} is lost unless a worker keeps its arena: {}",
        task.id.ToString(), folder, step.status().message());
  }
  return step.ok();
}

// Of a job whose ps are on several hosts: ps/0 may be about to save the part of this one. False:
// the disk hangs, and `door` has a thread that waits for it.
bool AwaitSaver(const Task& task, const std::string& folder, RemoteDoor& door, int signal,
                bool has_values, SignalEvents& signals) {
  const bool asked = signal != 0 && signal != SIGINT;
  const std::chrono::nanoseconds limit = GraceForTasks(task.flags.grace);
  const Deadline end = Deadline::After(asked         ? limit
                                       : signal == 0 ? kSaveLimit
                                                     : limit + kWorkersLimit);
  bool hurry = false;
  const auto hurries = [&] { return hurry = hurry || signals.Next() != 0; };
  if (asked && has_values && HaveLeadSave(task, folder, limit, hurries)) hurry = true;
  return door.AwaitSaver(asked, end, hurries);
}

// Of the arena, by a ps that may come back.
std::string WhatIsLeft(const shm::PsHost& host, int shard, const JobConfig& config) {
  if (host.arena() == nullptr) return "the job has not begun";
  const ShardMemory& memory = host.arena()->memory();
  if (memory.state->initialized.load(std::memory_order_acquire) == 0) {
    return "its variables have no values yet, so nothing is lost";
  }
  (void)MarkDeadByKernel(memory);
  const bool kept = std::ranges::any_of(Membership(memory), [&](const Member& member) {
    return (member.phase == Phase::kRunning || member.phase == Phase::kJoining) &&
           !IsRepresented(memory, member.worker, member.epoch);
  });
  if (kept) return "the workers keep the arena for a ps that comes back";
  if (shard != 0) return "no worker is left that keeps the arena";
  const std::string& folder = config.checkpoints.folder;
  return folder.empty() ? "no worker is left that keeps the arena, so its values are gone"
                        : fmt::format(
                              "no worker is left that keeps the arena: the job goes on "
                              "from what {} has",
                              folder);
}

// Of a job on several hosts each ps, or ps/0 for all of its host, copies what it saves.
Status CheckSaveMemoryOf(const Task& task, const JobConfig& config, const StorePlan& plan,
                         const MemoryBudget& budget) {
  PASSEL_ASSIGN_OR_RETURN(const HostPort own, task.spec.Address(task.id));
  std::vector<int> shards;  // of this host
  for (int shard = 0; shard < plan.variables.shards(); ++shard) {
    const Result<HostPort> address = task.spec.Address({"ps", shard});
    if (address.ok() && address->host == own.host) shards.push_back(shard);
  }
  PASSEL_ASSIGN_OR_RETURN(const std::uint64_t arena, shm::ArenaBytes(plan, task.id.index));
  const std::uint64_t taken = OfFreeMemory(arena, config);
  if (taken > budget.available_bytes) return {};  // which is said in its own words
  return CheckSaveMemory(plan, config.checkpoints, shards, taken, budget);
}

std::string FewerWorkers(const shm::PsHost& host) {
  return fmt::format("the job finished with fewer workers than it began with: {}",
                     host.DescribeWorkers());
}

struct PsEnd {
  shm::PsHost::End end;
  int signal = 0;        // that ended it
  Status failure;        // of the job
  bool goes_on = false;  // its next start does, from a checkpoint
};

// Says how it ends, and returns the exit code.
int EndPsTask(Task& task, const JobConfig& config, const shm::PsHost& host, const PsEnd& how,
              SignalEvents& signals) {
  switch (how.end) {
    case shm::PsHost::End::kWorkersDone:
    case shm::PsHost::End::kFewerDone:
    case shm::PsHost::End::kNobodyDone:
      RemoveToken(task);
      // Ctrl-C reaches all tasks of a terminal: the workers may have left before we saw it.
      if (host.Stopped() || (!task.flags.supervised && signals.Next() == SIGINT)) {
        LogInfo("the job was stopped: {}", host.DescribeWorkers());
        return kExitInterrupted;
      }
      if (how.end == shm::PsHost::End::kWorkersDone) {
        LogInfo("all workers are done");
        return kExitDone;
      }
      if (how.end == shm::PsHost::End::kFewerDone) {
        LogWarning("{}", FewerWorkers(host));
        return kExitDone;
      }
      LogWarning("no worker is running any more: {}", host.DescribeWorkers());
      // Of a node that was drained they come back later, to what was saved.
      return how.goes_on ? kExitRestartMe : kExitFailed;
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
    case shm::PsHost::End::kGivenUp:
      RemoveToken(task);
      return FailTask(host.given_up());
    case shm::PsHost::End::kStopped:
      break;
  }
  if (!how.failure.ok()) {
    RemoveToken(task);
    return FailTask(how.failure);
  }
  if (task.flags.supervised) return kExitDone;
  if (how.signal == SIGINT) {
    RemoveToken(task);
    LogInfo("stopped by Ctrl-C; the workers leave after their current step");
    return kExitInterrupted;
  }
  LogInfo("ended by {}; {}", SignalName(how.signal), WhatIsLeft(host, task.id.index, config));
  return kExitRestartMe;
}

}  // namespace

int RunPsTask(Task& task, const JobConfig& config) {
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
  options.same_data = task.several_hosts;
  options.hears_of_failures = task.several_hosts && shard == 0;
  if (config.worker.shard_data) {
    options.fixed_workers = "--shard_data gives each a part of the examples for good";
  }
  options.data = task.flags.job_data;
  options.describe = DescribeJob;
  options.start_wait = std::chrono::nanoseconds(config.start_wait_ns);
  const std::chrono::nanoseconds limit_when_asked = GraceForTasks(task.flags.grace);
  const std::shared_ptr<SaveWishes> wishes = shard == 0 ? std::make_shared<SaveWishes>() : nullptr;
  std::unique_ptr<RemoteDoor> door;
  if (task.several_hosts && !task.flags.supervised) {
    options.fits = [&](const StorePlan& plan, const MemoryBudget& budget) {
      return CheckSaveMemoryOf(task, config, plan, budget);
    };
    Result<std::unique_ptr<RemoteDoor>> opened =
        RemoteDoor::Open(task, config.checkpoints.folder, wishes,
                         Deadline::After(std::chrono::nanoseconds(config.start_wait_ns)));
    if (!opened.ok()) return FailTask(opened.status());
    door = std::move(*opened);
  }
  Result<SignalEvents> signals = SignalEvents::Create();
  if (!signals.ok()) return FailTask(signals.status());
  Stragglers stragglers(config.stall_limit_ns);
  std::optional<TaskReport> report;
  if (!task.flags.report.empty()) report.emplace(task, config);
  Status failure;
  std::optional<JobKeeper> keeper;  // of ps/0 by hand
  const shm::PsHost* self = nullptr;
  // One of another host has no arena to save.
  const auto chief_is_here = [&] {
    return self->IsConnected(options.names.chief) && !(door && door->IsGuest(options.names.chief));
  };
  if (door) {
    options.look_on = [&](const ShardMemory&) {
      door->Look(*self->arena());
      return true;
    };
    options.let_go = [&door] { door->LetGo(); };
  }
  if (!task.flags.supervised && shard == 0) {
    keeper.emplace(task, config, wishes);
    options.look_on = [&](const ShardMemory& memory) {
      if (door) door->Look(*self->arena());
      keeper->Look(*self->arena(), chief_is_here(), self->DataTold());
      if (report) report->Look(memory);
      failure = LookAfterStragglers(memory, config, options.names, &stragglers);
      return failure.ok();
    };
    options.held = [&keeper](int other) { return keeper->ArenaOf(other); };
    options.let_go = [&keeper, &door] {
      keeper->LetGo();
      if (door) door->LetGo();
    };
  }
  shm::PsHost host(options, task.token, std::move(listening), std::move(former));
  self = &host;
  if (!task.flags.supervised) {
    const Status met =
        host.MeetWorkers(Deadline::After(std::chrono::nanoseconds(config.start_wait_ns)));
    if (!met.ok()) return FailTask(met);
    if (door && host.arena() == nullptr) door->BeganAnew();
    if (TellsOfServers(config.log_style)) {
      LogServer(task, config);
    } else {
      LogInfo("{} of job {} is ready for its workers", task.id.ToString(), task.job_id);
    }
  }
  const shm::PsHost::End end = host.Serve(signals->fd());
  const int signal = end == shm::PsHost::End::kStopped && failure.ok() ? signals->Next() : 0;
  if (!task.flags.supervised && (signal == SIGINT || !failure.ok())) host.StopJob();
  // They hear how it ended; if this ps alone is told to go, they wait for its next life.
  const bool job_ends = end != shm::PsHost::End::kStopped || signal == SIGINT || !failure.ok();
  if (door && job_ends && (host.Stopped() || signal == SIGINT)) door->SayStopped();
  const Deadline evaluators = Deadline::After(kEvaluatorsLimit);
  if (door && job_ends) door->AwaitGuests(Deadline::After(kGuestsLimit));
  const bool given_up = end == shm::PsHost::End::kGivenUp;
  const bool saved = !keeper || given_up ||
                     SaveLast(*keeper, host, chief_is_here(), signal, limit_when_asked, *signals);
  if (keeper && job_ends) keeper->DismissOthers();
  const bool separate = EachPsWritesItsPart(task);
  // At the job's end, too: ps/0 may not have fetched it, and save what the chief has not.
  if (shard > 0 && !task.flags.supervised && !separate && !given_up) {
    host.AwaitLead(signals->fd(), Deadline::After(kLeadLimit));
  }
  const bool writes = shard > 0 && door && host.arena() != nullptr && separate && !given_up;
  const std::string& folder = config.checkpoints.folder;
  if (writes && !folder.empty() &&
      !AwaitSaver(task, folder, *door, signal,
                  host.arena()->memory().state->initialized.load(std::memory_order_acquire) != 0,
                  *signals)) {
    LogWarning("{} has not answered in time, and is left to itself", folder);
    (void)door.release();
  }
  if (door && job_ends) door->AwaitEvaluators(evaluators);
  // Of another ps than ps/0 that one knows it.
  const bool saves = !folder.empty() && (!keeper || keeper->goes_on());
  int code = EndPsTask(task, config, host, {end, signal, failure, saves}, *signals);
  if (code == kExitDone && !saved) code = kExitFailed;
  if (!report || host.arena() == nullptr) return code;
  const std::string note = end == shm::PsHost::End::kFewerDone ? FewerWorkers(host) : "";
  const Status written = report->Write(*host.arena(), host.DataTold(), note, code);
  if (!written.ok()) {
    LogError("{}", written.message());
    if (code == kExitDone) code = kExitFailed;
  }
  return code;
}

}  // namespace passel::job

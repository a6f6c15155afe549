// supervisor.h - one command, a whole job: starts ps and workers, looks after them, ends cleanly.
//
// The supervisor never trains and is on the path of no update. It binds the sockets of the ps
// tasks, so workers can connect before a ps is up; it holds every arena, before any worker does, so
// a ps that is killed is started again on the same one; it reads progress straight from the arena.
//
// Who dies          What follows
//   worker          The others go on. It is started again if max_restarts allows. The chief also
//                   while the variables have no first values: nobody else writes them.
//   ps              It is started again, unless it dies again and again at its start.
//   either          By an exit code that another life would end with, too: job/restart_policy.h.
//   the last worker The job is over: it failed unless one had reached the last step.
//   evaluator       Nothing: it only reads.
//   supervisor      The kernel kills everyone (PR_SET_PDEATHSIG).
//   a program that is no task of ours (SupervisorOptions::program): as a worker, but every exit
//   code
//                   from 1 to 128 ends the job.
//   nobody          A job whose variables have no first values after start_wait has failed.
// Of a job on several hosts (SupervisorOptions::part) it starts the tasks of its host, by hand: the
// ps look after the job, and hold the arenas. It reads that of ps/0 where it is here.
// A task that has failed for good ends the job on every host: ps/0 is told which, and tells others.
// Whoever is scaled away (store/scale.h) has left: that is no death, and nobody is missed.
// A worker that makes no step and does not end although another one is done is killed after
// stall_limit (or what on_stall says); likewise all that are left, if another one is gone for good.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/status.h"
#include "base/subprocess.h"
#include "cluster/cluster_spec.h"
#include "cluster/job_token.h"
#include "cluster/launch_plan.h"
#include "job/arena_fetcher.h"
#include "job/cluster_part.h"
#include "job/device_settings.h"
#include "job/failure_watch.h"
#include "job/job_config.h"
#include "job/job_status.h"
#include "job/life_log.h"
#include "job/oom_watch.h"
#include "job/output_relay.h"
#include "job/progress.h"
#include "job/restart_policy.h"
#include "job/shared_data.h"
#include "job/signals.h"
#include "job/stragglers.h"
#include "shm/arena.h"

namespace passel::job {

struct SupervisorOptions {
  std::string job_id;
  int ps = 1;
  int workers = 2;               ///< at first
  int max_workers = 2;           ///< the most, with those that are started later
  LaunchPlan plan;               ///< where each task runs, of all workers
  bool gpu_or_cpu = false;       ///< a worker that cannot use its GPU goes on on the CPU
  int max_restarts = 0;          ///< of each worker, within restart_window
  double restart_window = 3600;  ///< seconds; 0: the whole job
  bool evaluator = false;
  std::string data;                   ///< ToJson(JobData), for those who ask the job
  DeviceSettings devices;             ///< of the workers
  double grace = 25;                  ///< seconds from the wish to end to the end
  std::int64_t program_start_ns = 0;  ///< MonotonicNs() from which times of lives are counted
  /// The chief begins with this checkpoint; "": with first values.
  std::string resume_from;
  /// Called once, when all variables have values: with the memory of all shards. May be empty.
  std::function<void(const std::vector<ShardMemory>&)> on_values = {};
  /// What workers are instead of tasks of ours: this program with its arguments, the first one a
  /// path. It joins by src/capi. Empty: tasks of ours.
  std::vector<std::string> program = {};
  /// With program: the tasks of this host, in place of `ps` and `workers`, which then count those
  /// that the plan has. Outlives the supervisor. Null: all tasks are of this host.
  const ClusterPart* part = nullptr;
  /// Each task of this host has a file in it with what it prints; "": none.
  std::string output_dir = {};
  std::vector<std::string> program_settings = {};  ///< "NAME=VALUE", for src/capi/run_settings.h
};

/// How a job ended.
struct JobOutcome {
  int exit_code = 0;
  bool interrupted = false;               ///< by a signal or by `passel ctl stop`
  std::vector<std::string> notes;         ///< sentences about what did not go as planned
  std::vector<std::string> worker_exits;  ///< [max_workers] "exited with 0", ...
  LifeLog lives;
  bool pinned = false;
  /// Somebody has told the job to go, and may kill it some time after this.
  std::optional<Deadline> end_by;
};

class Supervisor {
 public:
  /// `data`: of tasks of ours; null where workers are another program.
  Supervisor(const SupervisorOptions& options, const JobSettings& flags, const JobConfig& config,
             const SharedData* data, SignalEvents& signals);
  ~Supervisor();

  /// Starts everything. Errors: kAlreadyExists when the job id is in use.
  Status Start();
  /// Until the last worker has ended. `progress` is told every 250 ms.
  JobOutcome Run(Progress& progress);

  /// The arenas, in order of their shards; empty if the job never got so far. They outlive the
  /// tasks.
  std::vector<const shm::Arena*> arenas() const;

 private:
  struct Child {
    std::string job;  // "ps", "worker" or "evaluator"
    int index = 0;
    int place = 0;  // among those of its kind on this host
    TaskId id;      // as the lists have it: a chief of its own is a "worker" here
    std::optional<Subprocess> process;
    std::optional<ExitState> last_exit;
    std::string end;  // how that was, in words; of a worker
    int starts = 0;
    std::int64_t started_ns = 0;            // MonotonicNs(): this life of it
    std::uint64_t steps_before = 0;         // of a worker, in the lives before this one
    std::optional<RestartPolicy> restarts;  // of a worker or a ps
    std::int64_t start_at_ns = 0;           // MonotonicNs() at which its next life begins; 0: none
    bool gone = false;                      // it ended and is not started again
    bool stalled = false;                   // we have killed it, since it did not answer
    bool wanted = true;                     // of a worker: the job is to have it
    bool too_late = false;                  // it was ended with the job, before its first step
    std::int64_t leave_by_ns = 0;  // MonotonicNs(): asked to leave until then; 0: it is not
    FileDescriptor errors;         // a pipe: why its last life failed, in its own words
    std::string Name() const { return id.ToString(); }
  };

  Status StartChild(Child& child);
  Child& AddChild(TaskId id, int index, int place);
  Status MakeSockets();
  Result<FileDescriptor> OutputFileOf(const Child& child) const;
  void CheckChief();
  TaskSettings TaskOf(const Child& child) const;
  void StartAgain(Child& child);
  void StartThoseWhoseTimeHasCome();
  int PollTimeoutMs() const;
  bool PlanRestart(Child& child, int most);
  bool IsProgram(const Child& child) const;
  void BecomeProgram(const Child& child, double spin_us, SpawnOptions* spawn) const;
  void AddPlace(const Child& child, SpawnOptions* spawn) const;
  void HandleExit(Child& child, const ExitState& exit);
  void HandleWorkerExit(Child& child, const ExitState& exit);
  void HandlePsExit(Child& child, const ExitState& exit);
  bool HandlePsOfPart(Child& child, const ExitState& exit);
  void HandleEvaluatorExit(Child& child, const ExitState& exit);
  void FailAfterStop(const Child& child, const ExitState& exit, int job_code);
  void AddDeath(const Child& child, const ExitState& exit, const std::string& cause);
  std::string AfterFirstDeath() const;
  int IndexOf(const Child& child) const;
  double SinceStart() const;
  void HandleSignal(int signal);
  void StopOnRequest();
  void FetchArenas();
  void TellOfValues();
  bool HaveArenas() const;
  bool Initialized() const;
  bool ComputedOnGpu(const Child& worker) const;
  std::uint64_t StepsOf(const Child& worker) const;
  bool MadeProgress(const Child& child) const;
  bool WasEvicted(const Child& worker) const;
  void MarkDeadEverywhere(const Child& worker);
  std::string ReadErrors(Child& child);
  void Scale();
  void BeginScaling(int workers);
  bool ScalingIsOver() const;
  void HandleLeaving(Child& child);
  void KillStragglers();
  void CheckStart();
  void SetStopFlag();
  void AskToStop(const std::string& failure);
  void TakeStop();
  void EndWithFailureOf(const std::string& another_host);
  void FetchFromLead();
  void TakeStopFromLead(const ExitState& exit);
  bool StopFlag() const;
  static void End(Subprocess& process);
  void BeginStopping(int exit_code, bool interrupted);
  void KillAll();
  void LeaveBehind(Child& child, Deadline deadline);
  void LookAtTheClock();
  Deadline AfterKilling() const;
  bool AnyLeft(const std::string& job) const;
  void EndOthers();
  void Conclude();

  const SupervisorOptions options_;
  const JobSettings& flags_;
  const JobConfig& config_;
  const SharedData* const data_;
  SignalEvents& signals_;
  ClusterSpec spec_;
  std::string ps_hosts_, worker_hosts_;
  JobToken token_;
  FileDescriptor token_file_;
  std::unique_ptr<OutputRelay> output_;              // of all children
  std::vector<FileDescriptor> listening_;            // [ps]
  std::vector<Child> children_;                      // ps first
  std::vector<std::unique_ptr<shm::Arena>> arenas_;  // [ps]; null until it is there
  std::unique_ptr<ArenaFetcher> fetcher_;
  std::thread asking_;                         // ps/0 of another host to stop the job
  std::optional<FailureWatch> failure_watch_;  // with options_.part
  std::string failure_;  // likewise, for the other hosts: of the task whose death ends the job
  OomWatch oom_;
  int num_cpus_ = 1;
  JobOutcome outcome_;
  bool stopping_ = false;
  bool stopped_on_request_ = false;  // by `passel ctl stop`, or by the program
  bool stop_heard_ = false;          // of ps/0 on another host
  bool lead_told_ = false;           // ps/0 knows of the failure that ends the job
  int stop_asks_left_ = 3;           // of TakeStop()
  Result<ClusterPart::Stop> lead_stopped_ = ClusterPart::Stop();  // what that said last
  std::int64_t ask_lead_at_ns_ = 0;                               // not before
  bool killed_ = false;
  std::int64_t kill_at_ns_ = 0;
  std::int64_t leave_at_ns_ =
      0;  // MonotonicNs(): whom SIGKILL has not ended by then is left behind
  std::int64_t start_limit_ns_ = 0;  // MonotonicNs() at which the variables must have values
  bool any_worker_done_ = false;
  bool chief_ended_ = false;  // a program that gave no first values
  bool values_told_ = false;
  std::uint32_t scale_seen_ = 0;  // number of the last wish for workers that was begun with
  Stragglers stragglers_;
};

}  // namespace passel::job

// `passel task`: one task of a cluster, in its own terminal, container, or under a supervisor.

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <optional>

#include "base/clock.h"
#include "base/log.h"
#include "base/subprocess.h"
#include "cluster/cluster_spec.h"
#include "compute/cpu_backend.h"
#include "data/locate.h"
#include "shm/attached_job.h"
#include "shm/ps_host.h"
#include "tools/passel/commands.h"
#include "tools/passel/exit_code.h"
#include "tools/passel/job_flags.h"
#include "tools/passel/output_path.h"
#include "tools/passel/shared_data.h"
#include "tools/passel/signals.h"
#include "tools/passel/task_flags.h"
#include "train/saved_model.h"
#include "train/worker_loop.h"

namespace passel {
namespace {

// What a pipe takes as a whole.
constexpr std::size_t kMaxErrorBytes = 4000;

struct Task {
  TaskFlags flags;
  JobFlags job;
  ClusterSpec spec;
  TaskId id;
  std::string job_id;
  std::string token_file;  // "" if it is not ours to remove
  shm::JobToken token;
};

// $XDG_RUNTIME_DIR/passel, or /tmp/passel-<uid>, of mode 0700 and ours.
Result<std::string> RuntimeDirectory() {
  const char* base = std::getenv("XDG_RUNTIME_DIR");
  const std::string dir = base != nullptr && *base != '\0'
                              ? std::string(base) + "/passel"
                              : fmt::format("/tmp/passel-{}", ::getuid());
  if (::mkdir(dir.c_str(), 0700) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno,
                       fmt::format("cannot create {} for the job token; use --token_file", dir));
  }
  struct stat info;
  if (::lstat(dir.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != ::getuid() ||
      (info.st_mode & 077) != 0) {
    return PermissionDenied(fmt::format(
        "{} is not a directory of mode 0700 of this user: remove it, or use --token_file", dir));
  }
  return dir;
}

Status Prepare(Task* task) {
  PASSEL_ASSIGN_OR_RETURN(
      task->spec, ClusterSpec::FromHostLists(task->flags.ps_hosts, task->flags.worker_hosts));
  PASSEL_RETURN_IF_ERROR(task->spec.Validate());
  PASSEL_ASSIGN_OR_RETURN(task->id,
                          ResolveTask(task->spec, task->flags.job_name, task->flags.task_index));
  for (const auto& [job, tasks] : task->spec.jobs()) {
    for (const auto& [index, address] : tasks) {
      if (IsLocalHost(address.host)) continue;
      return InvalidArgument(fmt::format(
          "{}/{} is at {}, which is not this machine: this build joins tasks of one host only; use "
          "localhost addresses",
          job, index, address.ToString()));
    }
  }
  task->job_id = task->flags.job_id.empty() ? JobIdFromSpec(task->spec) : task->flags.job_id;
  PASSEL_RETURN_IF_ERROR(ValidateJobId(task->job_id));
  if (task->spec.num_tasks("ps") > kMaxShards || task->spec.num_tasks("worker") > kMaxWorkers) {
    return InvalidArgument(fmt::format("a job has at most {} ps and {} workers, not {} and {}",
                                       kMaxShards, kMaxWorkers, task->spec.num_tasks("ps"),
                                       task->spec.num_tasks("worker")));
  }
  std::string path = task->flags.token_file;
  if (path.empty()) {
    PASSEL_ASSIGN_OR_RETURN(const std::string dir, RuntimeDirectory());
    path = fmt::format("{}/{}.token", dir, task->job_id);
    task->token_file = path;
  }
  PASSEL_ASSIGN_OR_RETURN(task->token, shm::JobToken::ReadOrCreate(path));
  return {};
}

// Under a supervisor the sentence goes to it: it knows which of several is the first.
int Fail(const Status& status, int error_fd = -1) {
  const std::string text = status.message().substr(0, kMaxErrorBytes);
  if (error_fd < 0 || ::write(error_fd, text.data(), text.size()) < 0) LogError("{}", text);
  return ExitCodeFor(status);
}

void RemoveToken(const Task& task) {
  if (task.id.index == 0 && !task.token_file.empty()) ::unlink(task.token_file.c_str());
}

// --- ps --------------------------------------------------------------------------------------

int RunPs(Task& task, const JobConfig& config) {
  Result<SignalEvents> signals = SignalEvents::Create();
  if (!signals.ok()) return Fail(signals.status());
  const int shard = task.id.index;
  FileDescriptor listening(task.flags.listen_fd);
  if (!listening.valid()) {
    Result<FileDescriptor> socket =
        ListenAbstract(shm::EndpointName(task.job_id, shm::Role::kPs, shard));
    if (socket.status().code() == Code::kAlreadyExists) {
      return Fail(shm::NameTaken(task.job_id, shm::Role::kPs, shard));
    }
    if (!socket.ok()) return Fail(socket.status());
    listening = std::move(*socket);
  }
  std::optional<shm::Arena> former;
  if (task.flags.arena_fd >= 0) {
    Result<shm::Arena> arena = shm::Arena::Adopt(FileDescriptor(task.flags.arena_fd));
    if (!arena.ok()) return Fail(arena.status());
    former = std::move(*arena);
  }
  shm::PsHostOptions options;
  options.job_id = task.job_id;
  options.shard = shard;
  options.num_workers = task.spec.num_tasks("worker");
  options.cluster_hash = task.spec.Hash();
  options.huge_pages = config.huge_pages;
  options.supervised = task.flags.supervised;
  options.start_limit = std::chrono::nanoseconds(config.start_wait_ns);
  shm::PsHost host(options, task.token, std::move(listening), std::move(former));
  if (!task.flags.supervised) {
    const Status met =
        host.MeetWorkers(Deadline::After(std::chrono::nanoseconds(config.start_wait_ns)));
    if (!met.ok()) return Fail(met);
    LogInfo("Started server with target: grpc://{}", task.spec.Address(task.id)->ToString());
  }
  const shm::PsHost::End end = host.Serve(signals->fd());
  switch (end) {
    case shm::PsHost::End::kWorkersDone:
    case shm::PsHost::End::kSomeDied:
      RemoveToken(task);
      if (host.Stopped()) {
        LogInfo("the job was stopped: {}", host.DescribeWorkers());
        return kExitInterrupted;
      }
      if (end == shm::PsHost::End::kWorkersDone) {
        LogInfo("all workers are done");
        return kExitDone;
      }
      LogWarning("no worker is running any more: {}", host.DescribeWorkers());
      return host.AnyWorkerDone() ? kExitDone : kExitFailed;
    case shm::PsHost::End::kStoppedEarly:
      RemoveToken(task);
      LogInfo("the job was stopped before it began");
      return kExitInterrupted;
    case shm::PsHost::End::kNobodyCame:
      RemoveToken(task);
      return Fail(DeadlineExceeded(
          fmt::format("the chief, worker/0, did not propose its plan within {:g} s: start it, or "
                      "raise --start_wait",
                      1e-9 * static_cast<double>(config.start_wait_ns))));
    case shm::PsHost::End::kStopped:
      break;
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

// --- worker ----------------------------------------------------------------------------------

int ExitCodeOfSignal(int signal) { return signal == SIGINT ? kExitInterrupted : kExitRestartMe; }

// Before training there is nothing to finish, and waits for other tasks are long: a signal ends the
// worker at once. Afterwards the first SIGINT or SIGTERM asks to leave after the current step, the
// second ends at once.
std::atomic<bool> g_training{false};
std::atomic<int> g_signal{0};
void OnSignal(int signal) {
  if (!g_training.load(std::memory_order_relaxed)) ::_exit(ExitCodeOfSignal(signal));
  int none = 0;
  if (!g_signal.compare_exchange_strong(none, signal)) {
    ::signal(signal, SIG_DFL);
    ::raise(signal);
  }
}

Result<SharedData> GetData(const Task& task, shm::AttachedJob& job) {
  if (task.flags.data_fd >= 0) return SharedData::Map(FileDescriptor(::dup(task.flags.data_fd)));
  LocateOptions where;
  where.data_dir = task.job.data_dir;
  PASSEL_ASSIGN_OR_RETURN(const DataLocation location, LocateData(where));
  LogInfo("{}", location.why);
  PASSEL_ASSIGN_OR_RETURN(const std::string key, DataKey(location.dir));
  PASSEL_ASSIGN_OR_RETURN(std::optional<FileDescriptor> fd, job.GetData(key));
  if (fd) return SharedData::Map(std::move(*fd));
  PASSEL_ASSIGN_OR_RETURN(SharedData data, SharedData::Load(location.dir));
  PASSEL_RETURN_IF_ERROR(job.OfferData(key, data.fd()));
  return data;
}

class WorkerTask {
 public:
  WorkerTask(Task& task, JobConfig& config) : task_(task), config_(config) {}

  Result<WorkerResult> Run() {
    const bool chief = task_.id.index == 0;
    const int workers = task_.spec.num_tasks("worker");
    shm::AttachOptions options;
    options.job_id = task_.job_id;
    options.worker = task_.id.index;
    options.num_shards = task_.spec.num_tasks("ps");
    options.cluster_hash = task_.spec.Hash();
    options.supervised = task_.flags.supervised;
    options.start_limit = std::chrono::nanoseconds(config_.start_wait_ns);
    options.engine = MakeEngineOptions(config_, workers, static_cast<int>(UsableCpus().size()));
    if (chief) {
      Say("Worker {}: Initializing session...", task_.id.index);
    } else {
      Say("Worker {}: Waiting for session to be initialized...", task_.id.index);
    }
    const Deadline start = Deadline::After(options.start_limit);
    std::unique_ptr<shm::AttachedJob> job;
    std::unique_ptr<ParameterStore> store;
    std::optional<SharedData> data;
    for (;;) {
      const Status status = Attach(options, &job, &data, &store);
      if (status.ok()) break;
      // A ps died while we spoke to it: its next life, or an error in time, answers.
      if (status.code() != Code::kUnavailable || start.Expired()) return status;
      job.reset();
    }
    PASSEL_ASSIGN_OR_RETURN(const ModelLayout layout,
                            ModelLayout::Make(config_.model, store->variables()));
    if (chief && !store->initialized()) {
      PASSEL_RETURN_IF_ERROR(InitializeStore(config_.model, layout, *store));
    }
    PASSEL_RETURN_IF_ERROR(store->WaitUntilInitialized(start));
    Say("Worker {}: Session initialization complete.", task_.id.index);

    CpuBackendOptions compute;
    compute.threads = config_.threads_per_worker;
    PASSEL_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, CreateCpuBackend(compute));
    constexpr std::size_t kEvaluationBatch = 500;
    PASSEL_ASSIGN_OR_RETURN(
        const std::unique_ptr<Model> model,
        Model::Create(config_.model, *backend,
                      std::max<std::size_t>(config_.worker.batch_size, kEvaluationBatch)));
    config_.worker.num_workers = workers;
    WorkerCallbacks callbacks;
    callbacks.check = [&](bool* leave) -> Status {
      *leave = g_signal.load(std::memory_order_relaxed) != 0;
      const auto missing = job->PsMissingFor();
      if (missing.count() > config_.ps_wait_ns && missing.count() > 0) {
        return Unavailable(
            fmt::format("a ps has been gone for {:.1f} s and none came back: start "
                        "it and this worker again, or raise --ps_wait",
                        1e-9 * static_cast<double>(missing.count())));
      }
      return {};
    };
    if (!task_.flags.supervised) {
      callbacks.on_step = [this](const StepReport& step) { PrintStep(step); };
    }
    g_training.store(true, std::memory_order_relaxed);
    Say("Training begins @ {:f}", WallSeconds());
    const std::int64_t begin = MonotonicNs();
    PASSEL_ASSIGN_OR_RETURN(const WorkerResult result, RunWorker(config_.worker, callbacks, *model,
                                                                 layout, data->data(), *store));
    Say("Training ends @ {:f}", WallSeconds());
    Say("Training elapsed time: {:f} s", 1e-9 * static_cast<double>(MonotonicNs() - begin));
    if (!task_.flags.supervised) {
      PASSEL_RETURN_IF_ERROR(PrintTest(*model, layout, *data, *job));
    }
    return result;
  }

 private:
  Status Attach(const shm::AttachOptions& options, std::unique_ptr<shm::AttachedJob>* job,
                std::optional<SharedData>* data, std::unique_ptr<ParameterStore>* store) {
    PASSEL_ASSIGN_OR_RETURN(*job, shm::AttachedJob::Connect(options, task_.token));
    PASSEL_RETURN_IF_ERROR((*job)->WaitForArenas());
    if (!data->has_value()) {
      PASSEL_ASSIGN_OR_RETURN(SharedData loaded, GetData(task_, **job));
      data->emplace(std::move(loaded));
      PASSEL_RETURN_IF_ERROR(FitToData((*data)->data(), &config_));
    }
    PASSEL_ASSIGN_OR_RETURN(const StorePlan plan,
                            MakePlan(config_, options.num_shards, task_.spec.num_tasks("worker")));
    PASSEL_ASSIGN_OR_RETURN(*store, (*job)->Open(plan));
    return {};
  }

  template <typename... Args>
  void Say(fmt::format_string<Args...> format, Args&&... args) {
    if (task_.flags.supervised) return;
    fmt::print("{}\n", fmt::format(format, std::forward<Args>(args)...));
    std::fflush(stdout);
  }

  void PrintStep(const StepReport& step) {
    if (step.local_step % task_.flags.log_step_count_steps != 0) return;
    Say("{:f}: Worker {}: training step {} done (global step: {})", WallSeconds(), task_.id.index,
        step.local_step, step.outcome.global_step);
  }

  Status PrintTest(Model& model, const ModelLayout& layout, const SharedData& data,
                   const shm::AttachedJob& job) {
    std::vector<const float*> values;
    for (int shard = 0; shard < layout.table().shards(); ++shard) {
      values.push_back(job.arena(shard).memory().values);
    }
    std::vector<std::vector<RowPart>> parts;
    layout.Bind(values, &parts);
    PASSEL_ASSIGN_OR_RETURN(const TestResult test, EvaluateTest(model, data.data(), parts));
    Say("After {} training step(s), validation cross entropy = {:g}", config_.worker.train_steps,
        test.loss_sum);
    Say("worker={}, final accuracy = {}", task_.id.index, test.accuracy);
    if (task_.flags.save.empty() || task_.id.index != 0) return {};
    PASSEL_RETURN_IF_ERROR(
        SaveModel(task_.flags.save, config_.model, parts,
                  {{"global_step", std::to_string(job.arena(0).memory().state->global_step.load(
                                       std::memory_order_acquire))}}));
    Say("Saved {}", task_.flags.save);
    return {};
  }

  Task& task_;
  JobConfig& config_;
};

int RunWorkerTask(Task& task, JobConfig& config) {
  struct sigaction action {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM}) ::sigaction(signal, &action, nullptr);
  const Result<WorkerResult> result = WorkerTask(task, config).Run();
  if (!result.ok()) {
    // Stopped before it could begin: the supervisor or the user knows why.
    if (result.status().code() == Code::kCancelled) return kExitInterrupted;
    return Fail(result.status(), task.flags.error_fd);
  }
  if (result->reason == LeaveReason::kAsked) return ExitCodeOfSignal(g_signal.load());
  return result->reason == LeaveReason::kStopped ? kExitInterrupted : kExitDone;
}

int RunTask(Task& task) {
  Result<JobConfig> config = CheckJobFlags(task.job);
  if (!config.ok()) return Fail(config.status());
  if (!task.flags.save.empty()) {
    if (const Status status = CheckOutputPath("--save", task.flags.save); !status.ok()) {
      return Fail(status);
    }
  }
  if (const Status status = Prepare(&task); !status.ok()) return Fail(status);
  if (task.flags.log_step_count_steps < 1) {
    return Fail(InvalidArgument(fmt::format("--log_step_count_steps is at least 1, not {}",
                                            task.flags.log_step_count_steps)));
  }
  SetLogName(task.id.ToString());
  if (!task.flags.supervised) {
    fmt::print("job name = {}\ntask index = {}\n", task.id.job, task.id.index);
    std::fflush(stdout);
  }
  return task.id.job == "ps" ? RunPs(task, *config) : RunWorkerTask(task, *config);
}

}  // namespace

void AddTaskCommand(CLI::App& app, Run* run) {
  auto task = std::make_shared<Task>();
  CLI::App* command = app.add_subcommand(
      "task", "Run one task of a cluster, a ps or a worker, in its own terminal or container");
  TaskFlags& f = task->flags;
  command->add_option("--job_name", f.job_name, "ps or worker")->group("Task");
  command->add_option("--task_index", f.task_index, "Which one, from 0; worker 0 is the chief")
      ->group("Task");
  command->add_option("--ps_hosts", f.ps_hosts, "host:port,... of all ps, the same for every task")
      ->group("Task");
  command
      ->add_option("--worker_hosts", f.worker_hosts,
                   "host:port,... of all workers. Addresses name tasks; no port is opened")
      ->group("Task");
  command->add_option("--job_id", f.job_id, "Default: made from the two lists of hosts")
      ->group("Task");
  command
      ->add_option("--token_file", f.token_file,
                   "32 secret bytes that the tasks share; the first task makes the file")
      ->group("Task");
  command->add_option("--save", f.save, "worker 0: write the variables to this .safetensors file")
      ->group("Task");
  command
      ->add_option("--log_step_count_steps", f.log_step_count_steps,
                   "Print every so many local steps")
      ->group("Task")
      ->capture_default_str();
  // For children of a supervisor.
  command->add_flag("--supervised", f.supervised)->group("");
  command->add_option("--listen_fd", f.listen_fd)->group("");
  command->add_option("--arena_fd", f.arena_fd)->group("");
  command->add_option("--data_fd", f.data_fd)->group("");
  command->add_option("--error_fd", f.error_fd)->group("");
  AddJobFlags(*command, &task->job);
  command->callback([task, run] { *run = [task] { return RunTask(*task); }; });
}

}  // namespace passel

#include "job/supervisor.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/check.h"
#include "base/clock.h"
#include "base/descriptor_limit.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/memory_file.h"
#include "base/nvtx.h"
#include "cluster/endpoint.h"
#include "job/exit_code.h"
#include "job/settings_table.h"
#include "store/membership.h"

namespace passel::job {
namespace {

constexpr std::chrono::milliseconds kTick{250};
constexpr std::chrono::seconds kStartSlack{2};
constexpr std::int64_t kSteadyNs = 1'000'000'000;

// A task takes four here: the pipes of its output, that of its errors, its pidfd.
constexpr std::uint64_t kDescriptorsOfTask = 4, kOtherDescriptors = 128;

}  // namespace

Supervisor::Supervisor(const SupervisorOptions& options, const JobSettings& flags,
                       const JobConfig& config, const SharedData* data, SignalEvents& signals)
    : options_(options),
      flags_(flags),
      config_(config),
      data_(data),
      signals_(signals),
      stragglers_(config.stall_limit_ns) {}

Supervisor::~Supervisor() {
  KillAll();
  if (asking_.joinable()) asking_.join();
}

// Addresses are identifiers on one host: no port is opened.
Status Supervisor::MakeSockets() {
  const auto hosts = [](int count, int first_port) {
    std::string list;
    for (int i = 0; i < count; ++i) {
      list += fmt::format("{}localhost:{}", i == 0 ? "" : ",", first_port + i);
    }
    return list;
  };
  ps_hosts_ = hosts(options_.ps, 2222);
  worker_hosts_ = hosts(options_.workers, 3222);
  PASSEL_ASSIGN_OR_RETURN(spec_, ClusterSpec::FromHostLists(ps_hosts_, worker_hosts_));
  for (int shard = 0; shard < options_.ps; ++shard) {
    PASSEL_ASSIGN_OR_RETURN(FileDescriptor socket, Listen(options_.job_id, Role::kPs, shard));
    listening_.push_back(std::move(socket));
  }
  token_ = JobToken::Generate();
  PASSEL_ASSIGN_OR_RETURN(token_file_, CreateConstantFile("passel.token", token_.bytes().data(),
                                                          token_.bytes().size()));
  arenas_.resize(static_cast<std::size_t>(options_.ps));
  start_limit_ns_ =
      Deadline::After(std::chrono::nanoseconds(config_.start_wait_ns) + kStartSlack).at_ns();
  return {};
}

Supervisor::Child& Supervisor::AddChild(TaskId id, int index, int place) {
  const auto window_ns = static_cast<std::int64_t>(options_.restart_window * 1e9);
  Child& child = children_.emplace_back();
  child.job = id.job == "ps" || id.job == "evaluator" ? id.job : "worker";
  child.index = index;
  child.place = place;
  child.id = std::move(id);
  child.wanted = child.job != "worker" || options_.part != nullptr || index < options_.workers;
  child.restarts.emplace(std::chrono::nanoseconds(window_ns),
                         child.job == "ps" ? RestartPolicy::Counts::kFruitlessInARow
                                           : RestartPolicy::Counts::kAllLives);
  return child;
}

Status Supervisor::Start() {
  if (options_.part == nullptr) PASSEL_RETURN_IF_ERROR(MakeSockets());
  // For hundreds of tasks the usual soft limit is too low.
  const auto tasks = static_cast<std::uint64_t>(options_.ps + options_.max_workers + 1);
  RaiseDescriptorLimit(kDescriptorsOfTask * tasks + kOtherDescriptors);
  PASSEL_ASSIGN_OR_RETURN(output_, OutputRelay::Create());
  num_cpus_ = static_cast<int>(UsableCpus().size());
  outcome_.pinned = options_.plan.binding == Binding::kCore;
  if (options_.part != nullptr) {
    const Task& task = options_.part->task;
    outcome_.worker_exits.assign(static_cast<std::size_t>(task.MostTrainers()), "on another host");
    int ps = 0, workers = 0;
    for (const TaskId& id : options_.part->tasks) {
      const bool is_ps = id.job == "ps";
      AddChild(id, is_ps ? id.index : options_.part->TrainerOf(id), is_ps ? ps++ : workers++);
    }
  } else {
    outcome_.worker_exits.assign(static_cast<std::size_t>(options_.max_workers), "did not start");
    for (int i = 0; i < options_.ps; ++i) AddChild({"ps", i}, i, i);
    for (int i = 0; i < options_.max_workers; ++i) AddChild({"worker", i}, i, i);
    if (options_.evaluator) AddChild({"evaluator", 0}, 0, 0);
  }
  for (Child& child : children_) {
    if (!child.wanted) continue;
    PASSEL_RETURN_IF_ERROR(StartChild(child));
    Failpoint("supervisor.started_child");
  }
  if (options_.part != nullptr) {
    FetchFromLead();
    failure_watch_.emplace(*options_.part);
  } else {
    fetcher_ = std::make_unique<ArenaFetcher>(options_.job_id, options_.ps, spec_.Hash(), token_,
                                              config_.start_wait_ns);
  }
  return {};
}

TaskSettings Supervisor::TaskOf(const Child& child) const {
  if (options_.part != nullptr) return options_.part->SettingsOf(child.id);
  TaskSettings task;
  task.supervised = true;
  task.job_name = child.job;
  task.task_index = child.index;
  task.ps_hosts = ps_hosts_;
  task.worker_hosts = worker_hosts_;
  if (options_.max_workers > options_.workers) task.max_workers = options_.max_workers;
  task.job_id = options_.job_id;
  task.token_file = fmt::format("/proc/self/fd/{}", token_file_.get());
  return task;
}

Status Supervisor::StartChild(Child& child) {
  const bool ps = child.job == "ps";
  SpawnOptions spawn;
  TaskSettings task = TaskOf(child);
  const auto inherit = [&spawn](int fd) {
    spawn.inherited_fds.push_back(fd);
    return fd;
  };
  const auto index = static_cast<std::size_t>(child.index);
  if (token_file_.valid()) inherit(token_file_.get());
  if (ps && options_.part == nullptr) {
    task.job_data = options_.data;
    task.listen_fd = inherit(listening_[index].get());
    if (arenas_[index]) task.arena_fd = inherit(arenas_[index]->fd());
  } else if (data_ != nullptr) {
    task.data_fd = inherit(data_->fd());
  }
  if (child.job == "worker") {
    task.restarted = child.starts > 0;
    task.had_gpu = child.starts > 0 && ComputedOnGpu(child);
    task.devices = options_.devices;
    task.resume_from = options_.resume_from;
    task.checkpoint_folder = config_.checkpoints.folder;
  }
  JobSettings flags = flags_;
  // A pinned worker sees one core: what the job has is decided here.
  const WaitOptions waits = MakeWaitOptions(config_, options_.max_workers, num_cpus_);
  flags.spin_us = static_cast<double>(waits.spin.count()) * 1e-3;
  const std::string cannot = "cannot start " + child.Name();
  Result<FileDescriptor> copy = OutputFileOf(child);
  if (!copy.ok()) return copy.status().WithContext(cannot);
  const Result<OutputRelay::Ends> output =
      output_->Open(IndexOf(child),
                    IsProgram(child) && (options_.max_workers > 1 || options_.part != nullptr)
                        ? child.Name() + ": "
                        : std::string(),
                    std::move(*copy));
  if (!output.ok()) return output.status().WithContext(cannot);
  // Where the ps is a task by hand, standard output is the program's alone.
  spawn.out = ps && options_.part != nullptr ? output->err() : output->out.get();
  spawn.err = output->err();
  // As main() wants it: a child need not execute itself again.
  spawn.environment.emplace_back("OPENBLAS_NUM_THREADS=1");
  int pipe_fds[2];
  if (::pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) != 0) {
    return ErrnoStatus(errno, "cannot create a pipe").WithContext(cannot);
  }
  child.errors.Reset(pipe_fds[0]);
  const FileDescriptor errors_write(pipe_fds[1]);
  if (options_.part == nullptr) task.error_fd = inherit(errors_write.get());
  if (IsProgram(child)) {
    spawn.inherited_fds.clear();
    BecomeProgram(child, *flags.spin_us, &spawn);
  } else {
    spawn.arguments = {"task"};
    // By hand a ps may be who saves.
    const bool saves = ps && options_.part != nullptr;
    for (std::string& argument : ToArguments(ViewOf(flags, &task.devices, &task), saves)) {
      spawn.arguments.push_back(std::move(argument));
    }
    AddPlace(child, &spawn);
  }
  const nvtx::Range range(nvtx::Event::kStartTask, child.index);
  Result<Subprocess> process = Subprocess::Spawn(spawn);
  if (!process.ok()) return process.status().WithContext(cannot);
  child.process.emplace(std::move(*process));
  ++child.starts;
  child.started_ns = MonotonicNs();
  child.steps_before = StepsOf(child);
  outcome_.lives.Add(TaskStart{child.Name(), child.starts, SinceStart()});
  LogDebug("{} is process {}", child.Name(), child.process->pid());
  return {};
}

// What the plan has for it: processors before exec, the device by UUID.
void Supervisor::AddPlace(const Child& child, SpawnOptions* spawn) const {
  const TaskPlan* const place = options_.plan.Find(child.job, child.place);
  PASSEL_CHECK(place != nullptr, "every task has a place");
  spawn->cpus = place->processors;
  spawn->environment.insert(spawn->environment.end(), place->environment.begin(),
                            place->environment.end());
  if (!place->device) {
    spawn->arguments.emplace_back("--device=cpu");
    return;
  }
  // It sees one device, so that of --device auto can be no other.
  spawn->arguments.push_back(options_.gpu_or_cpu ? "--device=auto"
                                                 : "--device=cuda:" + place->device->uuid);
}

JobOutcome Supervisor::Run(Progress& progress) {
  // By hand a ps ends by itself, when the workers of all hosts have ended.
  while (AnyLeft("worker") || (options_.part != nullptr && AnyLeft("ps"))) {
    std::vector<pollfd> entries;
    entries.push_back({signals_.fd(), POLLIN, 0});
    for (const Child& child : children_) {
      if (child.process) entries.push_back({child.process->pidfd(), POLLIN, 0});
    }
    ::poll(entries.data(), entries.size(), PollTimeoutMs());
    for (int signal; (signal = signals_.Next()) != 0;) HandleSignal(signal);
    FetchArenas();
    for (Child& child : children_) {
      if (!child.process) continue;
      const std::optional<ExitState> exit = child.process->TryReap();
      if (!exit) continue;
      child.process.reset();
      child.last_exit = exit;
      HandleExit(child, *exit);
    }
    if (HaveArenas()) {
      const nvtx::Range range(nvtx::Event::kWatch);
      const JobStatus status = ReadJobStatus(arenas_[0]->memory());
      if (status.stopped && !stopping_) TakeStop();
      progress.Update(status);
      TellOfValues();
      Scale();
    }
    if (failure_watch_) EndWithFailureOf(failure_watch_->Heard());
    LookAtTheClock();
    StartThoseWhoseTimeHasCome();
    CheckStart();
    CheckChief();
    KillStragglers();
  }
  FetchArenas();  // a job that ended faster than we looked
  TellOfValues();
  if (failure_watch_) {
    EndWithFailureOf(
        failure_watch_->Finish((!stopping_ || stopped_on_request_) && !options_.part->HasLead()));
  }
  const nvtx::Range range(nvtx::Event::kEndTasks);
  stopping_ = true;
  EndOthers();
  Conclude();
  return outcome_;
}

// Those that are to be started again are not gone.
bool Supervisor::AnyLeft(const std::string& job) const {
  return std::ranges::any_of(children_, [&](const Child& c) {
    return c.job == job && (c.process.has_value() || c.start_at_ns != 0);
  });
}

// A first look at the arenas soon, then in peace; but a task that is to be started is not late.
int Supervisor::PollTimeoutMs() const {
  Deadline next = Deadline::After(HaveArenas() ? kTick : std::chrono::milliseconds(20));
  for (const Child& child : children_) {
    if (child.start_at_ns != 0 && child.start_at_ns < next.at_ns()) {
      next = Deadline::At(child.start_at_ns);
    }
  }
  return next.PollTimeoutMs();
}

void Supervisor::StartThoseWhoseTimeHasCome() {
  for (Child& child : children_) {
    if (child.start_at_ns != 0 && MonotonicNs() >= child.start_at_ns) StartAgain(child);
  }
}

void Supervisor::StartAgain(Child& child) {
  child.start_at_ns = 0;
  nvtx::Mark(nvtx::Event::kTaskRestarted, child.index);
  const bool ps = child.job == "ps";
  if (ps && child.index == 0 && options_.part != nullptr) FetchFromLead();
  const Status status = StartChild(child);
  if (status.ok()) return;
  child.gone = true;
  outcome_.notes.push_back(status.message());
  LogError("{}", status.message());
  if (!ps) MarkDeadEverywhere(child);
  if (ps || options_.part != nullptr || (child.index == 0 && !Initialized()))
    BeginStopping(kExitFailed, false);
}

void Supervisor::FetchArenas() {
  if (!fetcher_) return;
  const bool finished = fetcher_->Finished();
  fetcher_->Take(&arenas_);
  if (arenas_[0] && stopping_) SetStopFlag();
  for (const Child& child : children_) {
    if (child.job == "worker" && child.gone) MarkDeadEverywhere(child);
  }
  if (!finished) return;
  fetcher_.reset();
  if (!arenas_[0]->huge_page_report().empty()) LogInfo("{}", arenas_[0]->huge_page_report());
}

void Supervisor::TellOfValues() {
  if (values_told_ || !options_.on_values || !Initialized()) return;
  values_told_ = true;
  std::vector<ShardMemory> shards;
  for (const auto& arena : arenas_) shards.push_back(arena->memory());
  options_.on_values(shards);
}

bool Supervisor::HaveArenas() const {
  return !arenas_.empty() &&
         std::all_of(arenas_.begin(), arenas_.end(), [](const auto& a) { return a != nullptr; });
}

bool Supervisor::Initialized() const {
  return HaveArenas() && std::all_of(arenas_.begin(), arenas_.end(), [](const auto& a) {
           return a->memory().state->initialized.load(std::memory_order_acquire) != 0;
         });
}

// For the relay of its output.
int Supervisor::IndexOf(const Child& child) const {
  return static_cast<int>(&child - children_.data());
}

double Supervisor::SinceStart() const {
  return 1e-9 * static_cast<double>(MonotonicNs() - options_.program_start_ns);
}

// In the life before, as it wrote itself.
bool Supervisor::ComputedOnGpu(const Child& worker) const {
  if (arenas_.empty() || arenas_[0] == nullptr) return false;
  const TaskSlot& slot = arenas_[0]->memory().tasks[worker.index];
  return DeviceOf(slot.counters.device.load(std::memory_order_relaxed)) == 2;
}

// Of all its lives, as it counts itself.
std::uint64_t Supervisor::StepsOf(const Child& worker) const {
  if (worker.job != "worker" || arenas_.empty() || arenas_[0] == nullptr) return 0;
  const WorkerCounters& counters = arenas_[0]->memory().tasks[worker.index].counters;
  return counters.local_steps.load(std::memory_order_relaxed);
}

// In the life that has just ended. Nobody counts what a ps does once its arena is there, but its
// start, and what makes it fail there, takes less than a second.
bool Supervisor::MadeProgress(const Child& child) const {
  if (child.job != "ps") return StepsOf(child) > child.steps_before;
  const bool has_arena =
      options_.part != nullptr || arenas_[static_cast<std::size_t>(child.index)] != nullptr;
  return has_arena && MonotonicNs() - child.started_ns >= kSteadyNs;
}

std::vector<const shm::Arena*> Supervisor::arenas() const {
  std::vector<const shm::Arena*> all;
  if (!HaveArenas()) return all;
  for (const auto& arena : arenas_) all.push_back(arena.get());
  return all;
}

void Supervisor::MarkDeadEverywhere(const Child& worker) {
  if (options_.part != nullptr) return;  // the ps see to it
  for (const auto& arena : arenas_) {
    if (!arena) continue;
    const TaskState state = StateOf(arena->memory(), worker.index);
    MarkDead(arena->memory(), worker.index, state.epoch);
    // It died before it could join: rounds need not wait for it.
    if (worker.gone || !worker.wanted) GiveUpExpecting(arena->memory(), worker.index);
  }
}

}  // namespace passel::job

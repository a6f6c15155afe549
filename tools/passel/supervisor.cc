#include "tools/passel/supervisor.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/memory_file.h"
#include "base/unix_socket.h"
#include "shm/protocol.h"
#include "shm/rendezvous_client.h"
#include "store/membership.h"
#include "tools/passel/exit_code.h"

namespace passel {
namespace {

constexpr int kMaxPsStarts = 100;
// Of a chief that is killed again and again before it has written the first values.
constexpr int kMaxChiefStarts = 5;
constexpr std::chrono::milliseconds kTick{250};
constexpr std::chrono::seconds kStartSlack{2};

}  // namespace

// Asks every ps for its arena, in a thread of its own: the supervisor waits for nobody. A ps hands
// its arena to others only after this has it.
class Supervisor::ArenaFetcher {
 public:
  ArenaFetcher(const std::string& job_id, int shards, std::uint64_t cluster_hash,
               const shm::JobToken& token, std::int64_t limit_ns)
      : introduction_{job_id, shm::Role::kSupervisor, 0, cluster_hash},
        shards_(shards),
        token_(token),
        deadline_(Deadline::After(std::chrono::nanoseconds(limit_ns))),
        done_(static_cast<std::size_t>(shards)),
        thread_([this] { Run(); }) {}
  ~ArenaFetcher() {
    quit_.store(true, std::memory_order_relaxed);
    thread_.join();
  }

  // Moves what has come since the last call into `arenas`, [shards].
  void Take(std::vector<std::unique_ptr<shm::Arena>>* arenas) {
    const std::lock_guard lock(mutex_);
    for (std::size_t shard = 0; shard < done_.size(); ++shard) {
      if (done_[shard]) (*arenas)[shard] = std::move(done_[shard]);
    }
  }
  // True once every ps knows that its arena is kept.
  bool Finished() const { return finished_.load(std::memory_order_acquire); }

 private:
  void Run() {
    for (int shard = 0; shard < shards_; ++shard) {
      while (!Fetch(shard).ok()) {
        // The ps died, or was slow: its next life answers. Other errors are the chief's to report.
        if (deadline_.Expired() || quit_.load(std::memory_order_relaxed)) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    }
    finished_.store(true, std::memory_order_release);
  }

  Status Fetch(int shard) {
    const Deadline turn = deadline_.Sooner(std::chrono::milliseconds(500));
    PASSEL_ASSIGN_OR_RETURN(
        shm::RendezvousClient client,
        shm::RendezvousClient::Connect(introduction_, shm::Role::kPs, shard, &token_, turn));
    bool need_plan = false;
    PASSEL_ASSIGN_OR_RETURN(std::optional<FileDescriptor> fd,
                            client.GetArena(true, &need_plan, turn));
    if (!fd) return Unavailable("no arena yet");
    PASSEL_ASSIGN_OR_RETURN(shm::Arena arena, shm::Arena::Adopt(std::move(*fd)));
    {
      // Before the ps learns of it: should it die right then, its next life starts on this arena.
      const std::lock_guard lock(mutex_);
      done_[static_cast<std::size_t>(shard)] = std::make_unique<shm::Arena>(std::move(arena));
    }
    return client.SayKept(turn);
  }

  const shm::Introduction introduction_;
  const int shards_;
  const shm::JobToken token_;
  const Deadline deadline_;
  std::mutex mutex_;                               // guards done_
  std::vector<std::unique_ptr<shm::Arena>> done_;  // [shards]; null: none since the last Take()
  std::atomic<bool> finished_{false};
  std::atomic<bool> quit_{false};
  std::thread thread_;
};

Supervisor::Supervisor(const SupervisorOptions& options, const JobFlags& flags,
                       const JobConfig& config, const SharedData& data, SignalEvents& signals)
    : options_(options), flags_(flags), config_(config), data_(data), signals_(signals) {}

Supervisor::~Supervisor() { KillAll(); }

Status Supervisor::Start() {
  // Addresses are identifiers on one host: no port is opened.
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
    Result<FileDescriptor> socket =
        ListenAbstract(shm::EndpointName(options_.job_id, shm::Role::kPs, shard));
    if (socket.status().code() == Code::kAlreadyExists) {
      return shm::NameTaken(options_.job_id, shm::Role::kPs, shard);
    }
    if (!socket.ok()) return socket.status();
    listening_.push_back(std::move(*socket));
  }
  token_ = shm::JobToken::Generate();
  PASSEL_ASSIGN_OR_RETURN(token_file_, CreateConstantFile("passel.token", token_.bytes().data(),
                                                          token_.bytes().size()));
  start_limit_ns_ =
      Deadline::After(std::chrono::nanoseconds(config_.start_wait_ns) + kStartSlack).at_ns();
  cpus_ = UsableCpus();
  outcome_.pinned = options_.pin && options_.workers <= static_cast<int>(cpus_.size());
  outcome_.worker_exits.assign(static_cast<std::size_t>(options_.workers), "did not start");
  arenas_.resize(static_cast<std::size_t>(options_.ps));
  const auto add_children = [this](const char* job, int count) {
    for (int i = 0; i < count; ++i) {
      Child& child = children_.emplace_back();
      child.job = job;
      child.index = i;
    }
  };
  add_children("ps", options_.ps);
  add_children("worker", options_.workers);
  for (Child& child : children_) {
    PASSEL_RETURN_IF_ERROR(StartChild(child));
    Failpoint("supervisor.started_child");
  }
  fetcher_ = std::make_unique<ArenaFetcher>(options_.job_id, options_.ps, spec_.Hash(), token_,
                                            config_.start_wait_ns);
  return {};
}

Status Supervisor::StartChild(Child& child) {
  const bool ps = child.job == "ps";
  SpawnOptions spawn;
  spawn.arguments = {"task",
                     "--supervised",
                     "--job_name=" + child.job,
                     fmt::format("--task_index={}", child.index),
                     "--ps_hosts=" + ps_hosts_,
                     "--worker_hosts=" + worker_hosts_,
                     "--job_id=" + options_.job_id,
                     fmt::format("--token_file=/proc/self/fd/{}", token_file_.get())};
  spawn.inherited_fds.push_back(token_file_.get());
  const auto index = static_cast<std::size_t>(child.index);
  if (ps) {
    spawn.arguments.push_back(fmt::format("--listen_fd={}", listening_[index].get()));
    spawn.inherited_fds.push_back(listening_[index].get());
    if (arenas_[index]) {
      spawn.arguments.push_back(fmt::format("--arena_fd={}", arenas_[index]->fd()));
      spawn.inherited_fds.push_back(arenas_[index]->fd());
    }
  } else {
    spawn.arguments.push_back(fmt::format("--data_fd={}", data_.fd()));
    spawn.inherited_fds.push_back(data_.fd());
    if (outcome_.pinned) spawn.cpus = {cpus_[index]};
  }
  JobFlags flags = flags_;
  // A pinned worker sees one core: what the job has is decided here.
  const EngineOptions engine =
      MakeEngineOptions(config_, options_.workers, static_cast<int>(cpus_.size()));
  flags.spin_us = static_cast<double>(engine.spin.count()) * 1e-3;
  for (std::string& argument : ToArguments(flags)) spawn.arguments.push_back(std::move(argument));
  // OpenBLAS starts its threads when it is loaded, before any flag is read.
  spawn.environment.push_back(
      fmt::format("OPENBLAS_NUM_THREADS={}", ps ? 1 : config_.threads_per_worker));
  int pipe_fds[2];
  if (::pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) != 0) {
    return ErrnoStatus(errno, "cannot create a pipe");
  }
  child.errors.Reset(pipe_fds[0]);
  const FileDescriptor errors_write(pipe_fds[1]);
  spawn.arguments.push_back(fmt::format("--error_fd={}", errors_write.get()));
  spawn.inherited_fds.push_back(errors_write.get());
  Result<Subprocess> process = Subprocess::Spawn(spawn);
  if (!process.ok()) return process.status().WithContext("cannot start " + child.Name());
  child.process.emplace(std::move(*process));
  ++child.starts;
  LogDebug("{} is process {}", child.Name(), child.process->pid());
  return {};
}

JobOutcome Supervisor::Run(Progress& progress) {
  while (AnyRunning("worker")) {
    std::vector<pollfd> entries;
    entries.push_back({signals_.fd(), POLLIN, 0});
    for (const Child& child : children_) {
      if (child.process) entries.push_back({child.process->pidfd(), POLLIN, 0});
    }
    // A first look at the arenas soon, then in peace.
    const auto tick = HaveArenas() ? kTick : std::chrono::milliseconds(20);
    ::poll(entries.data(), entries.size(), static_cast<int>(tick.count()));
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
      const shm::JobStatus status = shm::ReadJobStatus(*arenas_[0]);
      if (status.stopped && !stopping_) {
        outcome_.notes.emplace_back("the job was stopped on request");
        BeginStopping(kExitInterrupted, true);
      }
      progress.Update(status);
    }
    if (stopping_ && !killed_ && MonotonicNs() >= kill_at_ns_) {
      outcome_.notes.push_back(
          fmt::format("tasks that did not end within {} s were killed", options_.grace));
      KillAll();
    }
    CheckStart();
    KillStragglers();
  }
  FetchArenas();  // a job that ended faster than we looked
  EndPs();
  bool any_done = false;
  int lost = 0;
  for (const Child& child : children_) {
    if (child.job != "worker") continue;
    if (child.last_exit) {
      outcome_.worker_exits[static_cast<std::size_t>(child.index)] = child.last_exit->ToString();
    }
    const bool done = child.last_exit && !child.last_exit->signalled && child.last_exit->code == 0;
    any_done |= done;
    lost += !done;
  }
  if (outcome_.exit_code == 0 && lost > 0 && !outcome_.interrupted) {
    if (any_done) {
      outcome_.notes.push_back(fmt::format("the job finished with {} of its {} workers",
                                           options_.workers - lost, options_.workers));
    } else {
      outcome_.exit_code = kExitFailed;
      outcome_.notes.emplace_back("no worker is left: training did not reach --train_steps");
    }
  }
  return outcome_;
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

bool Supervisor::HaveArenas() const {
  return !arenas_.empty() &&
         std::all_of(arenas_.begin(), arenas_.end(), [](const auto& a) { return a != nullptr; });
}

bool Supervisor::Initialized() const {
  return HaveArenas() && std::all_of(arenas_.begin(), arenas_.end(), [](const auto& a) {
           return a->memory().state->initialized.load(std::memory_order_acquire) != 0;
         });
}

std::vector<const shm::Arena*> Supervisor::arenas() const {
  std::vector<const shm::Arena*> all;
  if (!HaveArenas()) return all;
  for (const auto& arena : arenas_) all.push_back(arena.get());
  return all;
}

void Supervisor::HandleExit(Child& child, const ExitState& exit) {
  if (child.job == "ps") {
    HandlePsExit(child, exit);
  } else {
    HandleWorkerExit(child, exit);
  }
}

void Supervisor::HandleWorkerExit(Child& child, const ExitState& exit) {
  FetchArenas();
  const bool done = !exit.signalled && exit.code == kExitDone;
  const bool stopped = !exit.signalled && exit.code == kExitInterrupted;  // see Run()
  if (done && done_since_ns_ == 0) done_since_ns_ = MonotonicNs();
  const std::string why = ReadErrors(child);
  const bool failed = !exit.signalled && (exit.code == kExitUsage || exit.code == kExitFailed);
  const bool missing_chief = child.index == 0 && !Initialized();
  const bool again = !done && !stopping_ && !stopped && !failed && !child.gone &&
                     (child.starts <= options_.max_restarts ||
                      (missing_chief && exit.signalled && child.starts < kMaxChiefStarts));
  child.gone = !again;
  // It may have died before it could leave. After a clean end this changes nothing.
  MarkDeadEverywhere(child);
  if (done || stopping_ || stopped) return;
  std::string what = fmt::format("{} {}", child.Name(), exit.ToString());
  if (!why.empty()) what += ": " + why;
  outcome_.notes.push_back(what);
  if (failed) {
    // The first to fail says why; the others fail for the same reason, or are told to stop.
    if (!why.empty()) LogError("{}", why);
    BeginStopping(exit.code, false);
    return;
  }
  if (!again && missing_chief) {
    LogError("{}; without the chief the variables get no first values: giving up", what);
    BeginStopping(kExitFailed, false);
    return;
  }
  LogWarning("{}{}", what,
             again                  ? "; starting it again"
             : AnyRunning("worker") ? "; the others go on"
                                    : "");
  if (!again) return;
  if (const Status status = StartChild(child); !status.ok()) {
    child.gone = true;
    outcome_.notes.push_back(status.message());
    LogError("{}", status.message());
    MarkDeadEverywhere(child);
    if (missing_chief) BeginStopping(kExitFailed, false);
  }
}

// Why the last life of this task failed, in its own words.
std::string Supervisor::ReadErrors(Child& child) {
  std::string text(4096, '\0');
  const ssize_t got =
      child.errors.valid() ? ::read(child.errors.get(), text.data(), text.size()) : 0;
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text;
}

// The tasks have the same limit and know better whom they waited for: they come first.
void Supervisor::CheckStart() {
  if (start_limit_ns_ == 0 || MonotonicNs() < start_limit_ns_) return;
  start_limit_ns_ = 0;
  if (stopping_ || Initialized()) return;
  const std::string what = fmt::format(
      "the chief, worker/0, has not initialised the variables within {:g} s: look at "
      "the lines above, or raise --start_wait",
      1e-9 * static_cast<double>(config_.start_wait_ns));
  outcome_.notes.push_back(what);
  LogError("{}", what);
  BeginStopping(kExitFailed, false);
}

// The others are done: what a worker computes now nobody needs.
void Supervisor::KillStragglers() {
  if (done_since_ns_ == 0 || stopping_ || MonotonicNs() - done_since_ns_ < config_.stall_limit_ns) {
    return;
  }
  for (Child& child : children_) {
    if (child.job != "worker" || !child.process || child.gone) continue;
    child.gone = true;
    LogWarning("{} does not end {:g} s after the first worker was done (--stall_limit): killing it",
               child.Name(), 1e-9 * static_cast<double>(config_.stall_limit_ns));
    child.process->Signal(SIGKILL);
  }
}

void Supervisor::HandlePsExit(Child& child, const ExitState& exit) {
  if (stopping_) return;
  if (!exit.signalled && exit.code == kExitUsage) {
    outcome_.notes.push_back(fmt::format("{} {}", child.Name(), exit.ToString()));
    BeginStopping(kExitUsage, false);
    return;
  }
  FetchArenas();  // what it had handed to us before it died
  const std::string what = fmt::format("{} {}", child.Name(), exit.ToString());
  outcome_.notes.push_back(what);
  if (child.starts >= kMaxPsStarts) {
    LogError("{}; it was started {} times: giving up", what, child.starts);
    BeginStopping(kExitFailed, false);
    return;
  }
  LogWarning("{}; starting it again{}", what,
             arenas_[static_cast<std::size_t>(child.index)] ? " on the same arena" : "");
  ++outcome_.ps_restarts;
  if (const Status status = StartChild(child); !status.ok()) {
    LogError("{}", status.message());
    BeginStopping(kExitFailed, false);
  }
}

void Supervisor::HandleSignal(int signal) {
  if (stopping_ && outcome_.interrupted) {
    LogWarning("{} again: ending at once", SignalName(signal));
    KillAll();
    return;
  }
  LogInfo("{}: ending after the current step; once more to end at once", SignalName(signal));
  BeginStopping(signal == SIGINT ? kExitInterrupted : kExitRestartMe, true);
}

void Supervisor::BeginStopping(int exit_code, bool interrupted) {
  if (!stopping_) {
    stopping_ = true;
    kill_at_ns_ = MonotonicNs() + static_cast<std::int64_t>(options_.grace * 1e9);
  }
  // A failure after a wish to end does not change the answer to the wish, and the other way round.
  if (outcome_.exit_code == 0) outcome_.exit_code = exit_code;
  outcome_.interrupted |= interrupted;
  if (!arenas_.empty() && arenas_[0]) SetStopFlag();
  for (Child& child : children_) {
    if (child.job == "worker" && child.process) End(*child.process);
  }
}

void Supervisor::SetStopFlag() {
  arenas_[0]->memory().state->stop.store(1, std::memory_order_seq_cst);
  Notify(arenas_[0]->memory().state->event);
}

// A process that somebody stopped would not notice.
void Supervisor::End(Subprocess& process) {
  process.Signal(SIGTERM);
  process.Signal(SIGCONT);
}

void Supervisor::MarkDeadEverywhere(const Child& worker) {
  for (const auto& arena : arenas_) {
    if (!arena) continue;
    const TaskState state = StateOf(arena->memory(), worker.index);
    MarkDead(arena->memory(), worker.index, state.epoch);
    // It died before it could join: rounds need not wait for it.
    if (worker.gone) GiveUpExpecting(arena->memory(), worker.index);
  }
}

bool Supervisor::AnyRunning(const std::string& job) const {
  return std::any_of(children_.begin(), children_.end(),
                     [&](const Child& c) { return c.job == job && c.process.has_value(); });
}

void Supervisor::KillAll() {
  killed_ = true;
  for (Child& child : children_) {
    if (child.process) child.process->Signal(SIGKILL);
  }
}

void Supervisor::EndPs() {
  stopping_ = true;
  for (Child& child : children_) {
    if (child.process) End(*child.process);
  }
  const Deadline deadline = Deadline::After(std::chrono::seconds(5));
  for (Child& child : children_) {
    if (!child.process) continue;
    if (!child.process->Reap(deadline).ok()) {
      LogWarning("{} (process {}) does not end: killing it", child.Name(), child.process->pid());
    }
    child.process.reset();  // kills and reaps what is left
  }
}

}  // namespace passel

#include "tools/passel/supervisor.h"

#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
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
constexpr std::chrono::milliseconds kTick{250};

}  // namespace

// Asks every ps for its arena, in a thread of its own: the supervisor waits for nobody.
class Supervisor::ArenaFetcher {
 public:
  ArenaFetcher(const std::string& job_id, int shards, std::uint64_t cluster_hash,
               const shm::JobToken& token, std::int64_t limit_ns)
      : introduction_{job_id, shm::Role::kSupervisor, 0, cluster_hash},
        shards_(shards),
        token_(token),
        deadline_(Deadline::After(std::chrono::nanoseconds(limit_ns))),
        thread_([this] { Run(); }) {}
  ~ArenaFetcher() {
    quit_.store(true, std::memory_order_relaxed);
    thread_.join();
  }

  // All of them, once.
  std::vector<std::unique_ptr<shm::Arena>> Take() {
    const std::lock_guard lock(mutex_);
    return std::move(done_);
  }

 private:
  void Run() {
    std::vector<std::unique_ptr<shm::Arena>> arenas;
    for (int shard = 0; shard < shards_; ++shard) {
      while (!quit_.load(std::memory_order_relaxed)) {
        Result<shm::Arena> arena = Fetch(shard);
        if (arena.ok()) {
          arenas.push_back(std::make_unique<shm::Arena>(std::move(*arena)));
          break;
        }
        // The ps died, or was slow: its next life answers. Other errors are the chief's to report.
        if (deadline_.Expired()) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      if (quit_.load(std::memory_order_relaxed)) return;
    }
    const std::lock_guard lock(mutex_);
    done_ = std::move(arenas);
  }

  Result<shm::Arena> Fetch(int shard) {
    const Deadline turn = deadline_.Sooner(std::chrono::milliseconds(500));
    PASSEL_ASSIGN_OR_RETURN(
        shm::RendezvousClient client,
        shm::RendezvousClient::Connect(introduction_, shm::Role::kPs, shard, &token_, turn));
    bool need_plan = false;
    PASSEL_ASSIGN_OR_RETURN(std::optional<FileDescriptor> fd,
                            client.GetArena(true, &need_plan, turn));
    if (!fd) return Unavailable("no arena yet");
    return shm::Arena::Adopt(std::move(*fd));
  }

  const shm::Introduction introduction_;
  const int shards_;
  const shm::JobToken token_;
  const Deadline deadline_;
  std::mutex mutex_;  // guards done_
  std::vector<std::unique_ptr<shm::Arena>> done_;
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
      return AlreadyExists(fmt::format(
          "job {} is running already: stop it (passel ctl stop {}) or use another --job_id",
          options_.job_id, options_.job_id));
    }
    if (!socket.ok()) return socket.status();
    listening_.push_back(std::move(*socket));
  }
  token_ = shm::JobToken::Generate();
  PASSEL_ASSIGN_OR_RETURN(token_file_, CreateConstantFile("passel.token", token_.bytes().data(),
                                                          token_.bytes().size()));
  cpus_ = UsableCpus();
  outcome_.pinned = options_.pin && options_.workers <= static_cast<int>(cpus_.size());
  outcome_.worker_exits.assign(static_cast<std::size_t>(options_.workers), "did not start");
  for (int i = 0; i < options_.ps; ++i) children_.push_back({"ps", i, {}, {}, 0});
  for (int i = 0; i < options_.workers; ++i) children_.push_back({"worker", i, {}, {}, 0});
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
    if (!arenas_.empty()) {
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
  Result<Subprocess> process = Subprocess::Spawn(spawn);
  if (!process.ok()) return process.status().WithContext("cannot start " + child.Name());
  child.process.emplace(std::move(*process));
  ++child.starts;
  LogDebug("{} is process {}", child.Name(), child.process->pid());
  return {};
}

JobOutcome Supervisor::Run(Progress& progress) {
  while (AnyRunning("worker") || (!stopping_ && fetcher_ == nullptr && arenas_.empty())) {
    std::vector<pollfd> entries;
    entries.push_back({signals_.fd(), POLLIN, 0});
    for (const Child& child : children_) {
      if (child.process) entries.push_back({child.process->pidfd(), POLLIN, 0});
    }
    // A first look at the arenas soon, then in peace.
    const auto tick = arenas_.empty() ? std::chrono::milliseconds(20) : kTick;
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
    if (!arenas_.empty()) {
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
  if (!fetcher_ || !arenas_.empty()) return;
  arenas_ = fetcher_->Take();
  if (arenas_.empty()) return;
  fetcher_.reset();
  if (!arenas_[0]->huge_page_report().empty()) LogInfo("{}", arenas_[0]->huge_page_report());
}

void Supervisor::HandleExit(Child& child, const ExitState& exit) {
  if (child.job == "ps") {
    HandlePsExit(child, exit);
  } else {
    HandleWorkerExit(child, exit);
  }
}

void Supervisor::HandleWorkerExit(Child& child, const ExitState& exit) {
  const bool done = !exit.signalled && exit.code == kExitDone;
  // It may have died before it could leave. After a clean end this changes nothing.
  MarkDeadEverywhere(child.index);
  if (done || stopping_) return;
  if (!exit.signalled && exit.code == kExitInterrupted) return;  // the stop flag is set: see Run()
  if (!exit.signalled && (exit.code == kExitUsage || exit.code == kExitFailed)) {
    // It said why itself.
    BeginStopping(exit.code, false);
    return;
  }
  const bool again = child.starts <= options_.max_restarts;
  const std::string what = fmt::format("{} {}", child.Name(), exit.ToString());
  LogWarning("{}{}", what, again ? "; starting it again" : "; the others go on");
  outcome_.notes.push_back(what);
  if (!again) return;
  if (const Status status = StartChild(child); !status.ok()) {
    outcome_.notes.push_back(status.message());
    LogError("{}", status.message());
  }
}

void Supervisor::HandlePsExit(Child& child, const ExitState& exit) {
  if (stopping_) return;
  if (!exit.signalled && exit.code == kExitUsage) {
    BeginStopping(kExitUsage, false);
    return;
  }
  const std::string what = fmt::format("{} {}", child.Name(), exit.ToString());
  outcome_.notes.push_back(what);
  if (child.starts >= kMaxPsStarts) {
    LogError("{}; it was started {} times: giving up", what, child.starts);
    BeginStopping(kExitFailed, false);
    return;
  }
  LogWarning("{}; starting it again{}", what, arenas_.empty() ? "" : " on the same arena");
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
  if (!arenas_.empty()) {
    arenas_[0]->memory().state->stop.store(1, std::memory_order_seq_cst);
    Notify(arenas_[0]->memory().state->event);
  }
  for (Child& child : children_) {
    if (child.job == "worker" && child.process) child.process->Signal(SIGTERM);
  }
}

void Supervisor::MarkDeadEverywhere(int worker) {
  for (const auto& arena : arenas_) {
    const TaskState state = StateOf(arena->memory(), worker);
    MarkDead(arena->memory(), worker, state.epoch);
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
    if (child.process) child.process->Signal(SIGTERM);
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

// How a program's worker comes into its job.

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/nvtx.h"
#include "base/process_identity.h"
#include "base/text.h"
#include "capi/worker.h"
#include "cluster/placement.h"
#include "job/memory_need.h"
#include "job/remote_facts.h"
#include "job/worker_start.h"
#include "store/metrics.h"
#include "store/open_store.h"

namespace passel::capi {
namespace {

// Until a ps that died while we spoke to it is asked again.
constexpr std::chrono::milliseconds kJoinAgain{50};

// Names and shapes; what they come to is for the table to check.
Status CheckVariables(std::span<const Variable> variables) {
  if (variables.empty() || variables.size() > kMaxVariables) {
    return InvalidArgument(
        fmt::format("a job has 1 to {} variables, not {}: describe them in the "
                    "array that passel_open() takes",
                    kMaxVariables, variables.size()));
  }
  for (std::size_t i = 0; i < variables.size(); ++i) {
    const Variable& v = variables[i];
    if (v.name.empty() || v.name.size() > kMaxNameBytes) {
      return InvalidArgument(
          fmt::format("the name of variable {} has 1 to {} bytes, not {}: give it another", i,
                      kMaxNameBytes, v.name.size()));
    }
    const std::string name = Printable(v.name, kMaxNameBytes);
    if (v.shape.size() > kMaxRank) {
      return InvalidArgument(
          fmt::format("variable \"{}\" has at most {} dimensions, not {}: join some of them", name,
                      kMaxRank, v.shape.size()));
    }
    for (const std::int64_t dimension : v.shape) {
      if (dimension >= 1) continue;
      return InvalidArgument(
          fmt::format("variable \"{}\" has the shape [{}], and every dimension is 1 or more: omit "
                      "what is empty",
                      name, fmt::join(v.shape, ", ")));
    }
    const auto same = [&](const Variable& other) { return other.name == v.name; };
    if (const auto first = std::ranges::find_if(variables, same); &*first != &v) {
      return InvalidArgument(
          fmt::format("variables {} and {} are both named \"{}\": give each "
                      "another name",
                      &*first - variables.data(), i, name));
    }
  }
  return {};
}

// Each one as a whole on one of the ps.
Result<VariableTable> Place(std::span<const Variable> variables, int shards,
                            PlacementStrategy strategy) {
  std::vector<PlacementVariable> to_place;
  for (const Variable& v : variables) to_place.push_back({v.name, v.shape, sizeof(float)});
  PASSEL_ASSIGN_OR_RETURN(const std::vector<VariablePart> placed,
                          PlaceVariables(to_place, shards, strategy, Partitioner::None()));
  std::vector<VariableInfo> infos(variables.size());
  for (const VariablePart& part : placed) {
    const auto i = static_cast<std::size_t>(part.variable);
    infos[i].name = infos[i].logical = variables[i].name;
    infos[i].shape = variables[i].shape;
    infos[i].shard = part.ps;
    infos[i].group = variables[i].group;
  }
  return VariableTable::Build(std::move(infos), shards);
}

}  // namespace

Result<std::unique_ptr<Worker>> Worker::Open(std::span<const std::string> settings,
                                             std::span<const Variable> variables) {
  PASSEL_RETURN_IF_ERROR(CheckVariables(variables));
  PASSEL_ASSIGN_OR_RETURN(Settings read, ReadSettings(settings));
  std::unique_ptr<Worker> worker(new Worker(std::move(read)));
  PASSEL_RETURN_IF_ERROR(worker->is_alone() ? worker->JoinAlone(variables)
                                            : worker->JoinOthers(variables));
  return worker;
}

Status Worker::JoinAlone(std::span<const Variable> variables) {
  const job::JobConfig& config = settings_.config;
  PASSEL_ASSIGN_OR_RETURN(VariableTable table, Place(variables, 1, config.placement.strategy));
  PASSEL_ASSIGN_OR_RETURN(const StorePlan plan, job::MakePlan(config, std::move(table), 1, 1));
  PASSEL_RETURN_IF_ERROR(job::CheckSaveMemory(plan, config, [](int) { return false; }));
  PASSEL_ASSIGN_OR_RETURN(checkpoints_, Checkpoints::Open(settings_, plan, /*begun=*/false));
  PASSEL_ASSIGN_OR_RETURN(arena_, job::OwnArena::Make(job_id(), plan, config.huge_pages, ""));
  PASSEL_ASSIGN_OR_RETURN(store_, OpenStore(plan, {&arena_->memory(), 1}, 0, SelfIdentity(),
                                            job::MakeWaitOptions(config, 1, 1)));
  job::TellOfJob(job::TargetOf(config), *arena_->memory().state);
  return {};
}

Status Worker::JoinOthers(std::span<const Variable> variables) {
  const job::Task& task = settings_.task;
  const job::JobConfig& config = settings_.config;
  const shm::AttachOptions options = job::AttachOptionsOf(task, config);
  places_ = task.MostTrainers();
  PASSEL_ASSIGN_OR_RETURN(VariableTable table,
                          Place(variables, options.num_shards, config.placement.strategy));
  PASSEL_ASSIGN_OR_RETURN(const StorePlan plan,
                          job::MakePlan(config, std::move(table), task.NumTrainers(), places_));
  const nvtx::Range range(nvtx::Event::kAttach, task.Trainer());
  if (task.several_hosts && !task.flags.supervised) {
    PASSEL_ASSIGN_OR_RETURN(remote_,
                            job::RemoteJob::ConnectIfElsewhere(
                                task, {options, std::chrono::nanoseconds(config.ps_wait_ns)}));
  }
  return remote_ ? JoinElsewhere(plan, Deadline::After(options.start_wait))
                 : JoinHere(plan, options);
}

Status Worker::JoinHere(const StorePlan& plan, const shm::AttachOptions& options) {
  bool lost = false;  // of the ps
  const auto join = [&]() -> Status {
    PASSEL_ASSIGN_OR_RETURN(job_, shm::AttachedJob::Connect(options, settings_.task.token));
    PASSEL_RETURN_IF_ERROR(job_->WaitForArenas());
    // What is wrong with them is said before the job begins.
    if (is_chief() && !checkpoints_) {
      if (!job_->has_arenas()) {
        PASSEL_RETURN_IF_ERROR(job::CheckSaveMemory(
            plan, settings_.config, [this](int shard) { return job_->has_arena(shard); }));
      }
      PASSEL_ASSIGN_OR_RETURN(checkpoints_, Checkpoints::Open(settings_, plan, HaveValues()));
    }
    Result<std::unique_ptr<ParameterStore>> opened = job_->Open(plan);
    lost = opened.status().code() == Code::kDataLoss;
    PASSEL_RETURN_IF_ERROR(opened.status());
    store_ = std::move(*opened);
    return {};
  };
  const Deadline start = Deadline::After(options.start_wait);
  Status joined = join();
  // A ps died while we spoke to it: its next life, or an error in time, answers.
  while (joined.code() == Code::kUnavailable && !start.Expired()) {
    job_.reset();
    std::this_thread::sleep_for(kJoinAgain);
    joined = join();
  }
  if (lost) {
    joined = job::JobIsLost(joined, settings_.config.checkpoints.folder);
    job_->GiveUp(joined.message());
  }
  PASSEL_RETURN_IF_ERROR(joined);
  if (is_chief()) {
    job::TellOfJob(job::TargetOf(settings_.config), *job_->arena(0).memory().state);
  }
  return {};
}

// By messages, where the ps are not here.
Status Worker::JoinElsewhere(const StorePlan& plan, Deadline start) {
  const job::Task& task = settings_.task;
  const job::JobConfig& config = settings_.config;
  metrics_ = std::make_unique<MetricSlots>();
  PASSEL_RETURN_IF_ERROR(job::CheckRemote(task, config, /*has_gpu=*/false, *remote_));
  LogInfo("{} is on another host than {}: parameters travel {}", task.Names()(task.Trainer()),
          remote_->Elsewhere(), job::HowItTravels(task));
  if (!remote_->Here().empty()) {
    LogInfo("{} shares the memory of {}", task.Names()(task.Trainer()), remote_->Here());
  }
  const auto agree = [&] {
    const Status agreed = remote_->AgreeOnPlan(plan);
    return agreed.ok() ? remote_->CheckOneBeginning() : agreed;
  };
  Status lost = agree();
  // As in JoinHere().
  while (lost.code() == Code::kUnavailable && !start.Expired()) {
    std::this_thread::sleep_for(kJoinAgain);
    lost = agree();
  }
  const auto give_up = [&](Status why) {
    if (why.code() != Code::kDataLoss) return why;
    why = job::JobIsLost(why, config.checkpoints.folder);
    remote_->GiveUp(why.message());
    return why;
  };
  PASSEL_RETURN_IF_ERROR(give_up(lost));
  if (is_chief()) PASSEL_RETURN_IF_ERROR(remote_->TellTarget(job::TargetOf(config)));
  Result<std::unique_ptr<ParameterStore>> opened = remote_->Open(plan, config.prefetch);
  PASSEL_RETURN_IF_ERROR(give_up(opened.status()));
  store_ = std::move(*opened);
  if (!is_chief() || store_->initialized()) return {};
  const auto choose = [&]() -> Status {
    const std::string& folder = config.checkpoints.folder;
    if (!folder.empty()) PASSEL_RETURN_IF_ERROR(remote_->CheckFolder(folder));
    PASSEL_ASSIGN_OR_RETURN(checkpoints_, Checkpoints::Open(settings_, plan, /*begun=*/false));
    return {};
  };
  Status chosen = choose();
  if (!chosen.ok()) (void)store_->LeaveForNow();
  return chosen;
}

}  // namespace passel::capi

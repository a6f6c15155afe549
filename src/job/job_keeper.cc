#include "job/job_keeper.h"

#include <fcntl.h>
#include <fmt/core.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/file_descriptor.h"
#include "base/log.h"
#include "cluster/patience.h"
#include "io/checkpoint_folder.h"
#include "shm/rendezvous_client.h"
#include "store/membership.h"
#include "train/model_plan.h"

namespace passel::job {
namespace {

// Of one look at another ps, which answers at once unless it is stopped; and until the next one.
constexpr std::chrono::milliseconds kFetchLimit{100};
constexpr std::chrono::seconds kFetchAgain{1};
// At the end there is more time.
constexpr std::chrono::seconds kLastFetchLimit{2};
// From the last step of a chief to its exit, as a rule.
constexpr std::chrono::seconds kChiefLimit{2};
// A chief that is started again at once finds the folder free.
constexpr std::chrono::seconds kStandInAfter{1};
constexpr std::chrono::seconds kOpenAgain{60};

std::int64_t Rows(const VariableTable& table, const std::string& variable) {
  std::int64_t rows = 0;
  for (const VariableInfo& piece : table.all()) {
    if (piece.logical == variable) rows += piece.shape[0];
  }
  return rows;
}

// The sizes that other tasks know from the data.
Status FitToPlan(const StorePlan& plan, ModelConfig* model) {
  ModelConfig shape = *model;
  shape.inputs = shape.classes = 2;  // any that are valid
  PASSEL_RETURN_IF_ERROR(shape.Validate());
  const std::vector<VariableSpec> variables = ModelVariables(shape);
  model->inputs = static_cast<std::size_t>(Rows(plan.variables, variables.front().name));
  model->classes = static_cast<std::size_t>(Rows(plan.variables, variables.back().name));
  PASSEL_RETURN_IF_ERROR(model->Validate());
  return ModelLayout::Make(*model, plan.variables).status();
}

std::uint64_t CohortOf(const ShardMemory& memory) {
  if (memory.state->initialized.load(std::memory_order_acquire) == 0) return 0;
  return memory.state->cohort.load(std::memory_order_relaxed);
}

}  // namespace

JobKeeper::JobKeeper(const Task& task, const JobConfig& config)
    : task_(task),
      config_(config),
      held_(static_cast<std::size_t>(std::max(1, task.spec.num_tasks("ps")))) {
  config_.checkpoints.job = task.job_id;
}

void JobKeeper::Look(const shm::Arena& own, bool chief_is_here, const std::string& data) {
  if (chief_is_here) saver_.reset();
  data_ = data;
  if (CohortOf(own.memory()) == 0) return;
  Hold(own);
  StandIn(chief_is_here);
}

int JobKeeper::ArenaOf(int shard) const {
  const auto s = static_cast<std::size_t>(shard);
  return s < held_.size() && held_[s] ? held_[s]->fd() : -1;
}

void JobKeeper::LetGo() {
  saver_.reset();
  for (auto& arena : held_) arena.reset();
  cohort_ = 0;
}

bool JobKeeper::HoldsAll(std::uint64_t cohort) const {
  return std::ranges::all_of(
      held_, [&](const auto& arena) { return arena && CohortOf(arena->memory()) == cohort; });
}

void JobKeeper::Hold(const shm::Arena& own) {
  const std::uint64_t cohort = CohortOf(own.memory());
  if (cohort == cohort_ && HoldsAll(cohort)) return;
  if (cohort != cohort_) {
    LetGo();  // the chief has begun anew: it is of before
    FileDescriptor fd(::fcntl(own.fd(), F_DUPFD_CLOEXEC, 0));
    Result<shm::Arena> lead = shm::Arena::Adopt(std::move(fd));
    if (!lead.ok()) return LogDebug("ps/0 cannot map its arena again: {}", lead.status().message());
    held_[0] = std::make_unique<shm::Arena>(std::move(*lead));
    cohort_ = cohort;
  }
  const std::int64_t now = MonotonicNs();
  if (now < next_fetch_ns_) return;
  next_fetch_ns_ = now + std::chrono::nanoseconds(kFetchAgain).count();
  const Deadline turn = Deadline::After(kFetchLimit);
  for (std::size_t s = 1; s < held_.size(); ++s) {
    if (held_[s]) continue;
    const Status fetched = Fetch(static_cast<int>(s), turn);
    if (!fetched.ok()) LogDebug("the arena of ps/{} is not held yet: {}", s, fetched.message());
  }
}

// As a supervisor asks for it.
Status JobKeeper::Fetch(int shard, Deadline deadline) {
  const Introduction me{task_.job_id, Role::kSupervisor, 0, task_.spec.Hash()};
  PASSEL_ASSIGN_OR_RETURN(
      shm::RendezvousClient client,
      shm::RendezvousClient::Connect(me, Role::kPs, shard, &task_.token, deadline));
  PASSEL_ASSIGN_OR_RETURN(std::optional<FileDescriptor> fd, client.GetArena(false, deadline));
  if (!fd) return Unavailable("it has none");
  PASSEL_ASSIGN_OR_RETURN(
      shm::Arena arena,
      shm::Arena::AdoptFrom(fmt::format("ps/{}", shard), std::move(*fd), task_.job_id, shard));
  if (CohortOf(arena.memory()) != cohort_) return Unavailable("it has lost its values");
  held_[static_cast<std::size_t>(shard)] = std::make_unique<shm::Arena>(std::move(arena));
  return {};
}

bool JobKeeper::ChiefIsGone(const ShardMemory& lead) const {
  const int chief = task_.Names().chief;
  const TaskState state = StateOf(lead, chief);
  if (IsRepresented(lead, chief, state.epoch)) return true;  // it has no arena to save from
  if (MayCome(state.phase)) return false;
  // It may have left, and save or evaluate at its end.
  return state.epoch == 0 ||
         ProbeLiveness(LoadIdentity(lead.tasks[chief], state.epoch)) == Liveness::kDead;
}

bool JobKeeper::SomebodyTrains(const ShardMemory& lead) const {
  return std::ranges::any_of(Membership(lead), [](const Member& member) {
    return member.phase == Phase::kRunning || member.phase == Phase::kJoining;
  });
}

std::vector<ShardMemory> JobKeeper::Shards() const {
  std::vector<ShardMemory> shards;
  for (const auto& arena : held_) shards.push_back(arena->memory());
  return shards;
}

Result<std::unique_ptr<CheckpointSaver>> JobKeeper::OpenSaver(bool wait) const {
  JobConfig config = config_;
  const StorePlan& plan = held_[0]->plan();
  PASSEL_RETURN_IF_ERROR(FitToPlan(plan, &config.model));
  if (!wait) config.start_wait_ns = 0;
  return CheckpointSaver::Open(config, task_.job, plan, data_, /*begun=*/true);
}

void JobKeeper::StandIn(bool chief_is_here) {
  if (config_.checkpoints.folder.empty() || saver_ || !HoldsAll(cohort_)) return;
  const ShardMemory& lead = held_[0]->memory();
  const std::int64_t now = MonotonicNs();
  if (chief_is_here || !ChiefIsGone(lead) || !SomebodyTrains(lead)) {
    gone_since_ns_ = 0;
    return;
  }
  if (gone_since_ns_ == 0) gone_since_ns_ = now;
  if (now - gone_since_ns_ < std::chrono::nanoseconds(kStandInAfter).count()) return;
  if (now < next_open_ns_) return;
  next_open_ns_ = now + std::chrono::nanoseconds(kOpenAgain).count();
  Result<std::unique_ptr<CheckpointSaver>> saver = OpenSaver(/*wait=*/false);
  if (!saver.ok()) {
    return LogWarning("nobody saves checkpoints while {} is gone: {}", task_.Names().chief_name,
                      saver.status().message());
  }
  LogInfo("{} is {}: checkpoints are saved by ps/0 until it is back", task_.Names().chief_name,
          IsRepresented(lead, task_.Names().chief, StateOf(lead, task_.Names().chief).epoch)
              ? "on another host"
              : "gone");
  saver_ = std::move(*saver);
  saver_->Begin(Shards(), task_.Names());
}

Status JobKeeper::SaveLast(Deadline workers, Deadline limit, const std::function<bool()>& enough) {
  if (config_.checkpoints.folder.empty() || !held_[0]) return {};
  const ShardMemory& lead = held_[0]->memory();
  for (;;) {
    (void)MarkDeadByKernel(lead);
    if (!SomebodyTrains(lead)) break;
    if (!ChiefIsGone(lead)) return {};  // it saves
    if (workers.Expired() || enough()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const bool others_train = SomebodyTrains(lead);
  const std::int64_t step = lead.state->global_step.load(std::memory_order_acquire);
  std::string newest = NewestCheckpoint();
  // It may be saving that, or be about to exit.
  for (Patience patience(Deadline::After(kChiefLimit));
       newest != CheckpointName(step) && !ChiefIsGone(lead) && patience.Again();) {
    newest = NewestCheckpoint();
  }
  if (ChiefIsGone(lead)) newest = NewestCheckpoint();
  if (newest == CheckpointName(step)) return {};
  const std::string missing = FetchMissing();
  if (!missing.empty()) {
    LogWarning(
        "no checkpoint of global step {} was saved to {}, where the newest is {}: the values of {}",
        step, config_.checkpoints.folder, newest, missing);
    return {};
  }
  if (!saver_) {
    Result<std::unique_ptr<CheckpointSaver>> saver = OpenSaver(/*wait=*/true);
    if (!saver.ok()) {
      // It saves itself, and takes longer than we wait.
      if (saver.status().code() == Code::kDeadlineExceeded && !ChiefIsGone(lead)) return {};
      return saver.status().WithContext(
          fmt::format("no checkpoint of global step {} was saved", step));
    }
    saver_ = std::move(*saver);
  }
  return saver_->SaveOnce(Shards(), task_.Names(),
                          others_train ? std::nullopt : std::optional(AtEnd::kNobodyTrains), limit);
}

std::string JobKeeper::NewestCheckpoint() const {
  const Result<CheckpointIndex> index = ReadCheckpointIndex(config_.checkpoints.folder);
  return index.ok() && !index->kept.empty() ? index->kept.back().name : "none";
}

// "ps/1 are not here: why"; "" if all are held.
std::string JobKeeper::FetchMissing() {
  const Deadline deadline = Deadline::After(kLastFetchLimit);
  for (std::size_t s = 1; s < held_.size(); ++s) {
    if (held_[s]) continue;
    const Status fetched = Fetch(static_cast<int>(s), deadline);
    if (!fetched.ok()) return fmt::format("ps/{} are not here: {}", s, fetched.message());
  }
  return {};
}

}  // namespace passel::job

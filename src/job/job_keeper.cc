#include "job/job_keeper.h"

#include <fcntl.h>
#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/file_descriptor.h"
#include "base/log.h"
#include "shm/rendezvous_client.h"
#include "store/membership.h"
#include "train/model_plan.h"

namespace passel::job {
namespace {

// Of one look at another ps, which answers at once unless it is stopped; and until the next one.
constexpr std::chrono::milliseconds kFetchLimit{100};
constexpr std::chrono::seconds kFetchAgain{1};
// A chief that is started again at once finds the folder free.
constexpr std::chrono::seconds kStandInAfter{1};
constexpr std::chrono::seconds kOpenAgain{60};
// Of a disk, until somebody is told that it does not answer.
constexpr std::chrono::seconds kOpenLimit{10};
// Of a saver that is to leave while the job is served.
constexpr std::chrono::milliseconds kLeaveSoon{50};

std::int64_t Rows(const VariableTable& table, const std::string& variable) {
  std::int64_t rows = 0;
  for (const VariableInfo& piece : table.all()) {
    if (piece.logical == variable) rows += piece.shape[0];
  }
  return rows;
}

// By names and ranks.
bool IsOf(const std::vector<VariableSpec>& model, const VariableTable& table) {
  std::size_t found = 0;
  for (const VariableSpec& spec : model) {
    const auto same = [&](const VariableInfo& v) {
      return v.logical == spec.name && v.shape.size() == spec.shape.size();
    };
    const auto pieces = static_cast<std::size_t>(std::ranges::count_if(table.all(), same));
    if (pieces == 0) return false;
    found += pieces;
  }
  return found == table.size();
}

// The sizes that other tasks know from the data. Other variables are a program's own.
Status FitToPlan(const StorePlan& plan, ModelConfig* model) {
  ModelConfig shape = *model;
  shape.inputs = shape.classes = 2;  // any that are valid
  PASSEL_RETURN_IF_ERROR(shape.Validate());
  const std::vector<VariableSpec> variables = ModelVariables(shape);
  if (!IsOf(variables, plan.variables)) {
    *model = OwnModel(plan.variables);
    return {};
  }
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

JobKeeper::JobKeeper(const Task& task, const JobConfig& config, std::shared_ptr<SaveWishes> wishes)
    : task_(task),
      config_(config),
      held_(static_cast<std::size_t>(std::max(1, task.spec.num_tasks("ps")))),
      wishes_(std::move(wishes)) {
  config_.checkpoints.job = task.job_id;
  if (!config_.checkpoints.folder.empty() && EachPsWritesItsPart(task)) {
    others_ = std::make_shared<OtherParts>(task);
  }
}

JobKeeper::~JobKeeper() {
  Retire(Deadline::After({}));
  for (std::unique_ptr<StandIn>& former : retired_) {
    if (!former->saver->Leave(Deadline::After({}))) (void)former.release();  // its thread needs it
  }
}

void JobKeeper::Look(const shm::Arena& own, bool chief_is_here, const std::string& data) {
  chief_is_here = chief_is_here && !others_;  // it has not all arenas, and saves nothing
  if (chief_is_here) Retire(Deadline::After(kLeaveSoon));
  data_ = data;
  if (CohortOf(own.memory()) == 0) return RefuseWishes(FailedPrecondition("ps/0 has no values"));
  Hold(own);
  if (config_.checkpoints.folder.empty()) {
    return RefuseWishes(FailedPrecondition("ps/0 has no --checkpoint_dir"));
  }
  if (!LastRetiredIsGone()) return;
  const bool has_all = others_ != nullptr || HoldsAll(cohort_);
  const bool wished = has_all && !stand_in_ && wishes_ && wishes_->Pending();
  if (wished && !opening_) next_open_ns_ = 0;
  const bool needed = IsNeeded(chief_is_here) || wished;
  if (opening_ && opening_->Done()) {
    if (needed) BeginStandIn();
    opening_.reset();
  } else if (needed) {
    OpenStandIn();
  }
}

void JobKeeper::RefuseWishes(const Status& why) {
  if (!wishes_) return;
  while (const auto wish = wishes_->Pending()) wishes_->Answer(wish->number, why);
}

int JobKeeper::ArenaOf(int shard) const {
  const auto s = static_cast<std::size_t>(shard);
  return s < held_.size() && held_[s] ? held_[s]->fd() : -1;
}

void JobKeeper::LetGo() {
  Retire(Deadline::After(kLeaveLimit));
  for (auto& arena : held_) arena.reset();
  cohort_ = 0;
}

void JobKeeper::Retire(Deadline deadline) {
  if (!stand_in_) return;
  if (!stand_in_->saver->Leave(deadline)) retired_.push_back(std::move(stand_in_));
  stand_in_.reset();
}

bool JobKeeper::LastRetiredIsGone() {
  std::erase_if(retired_, [](const std::unique_ptr<StandIn>& former) {
    return former->saver->Leave(Deadline::After({}));
  });
  return retired_.empty();
}

bool JobKeeper::HoldsAll(std::uint64_t cohort) const {
  return std::ranges::all_of(
      held_, [&](const auto& arena) { return arena && CohortOf(arena->memory()) == cohort; });
}

void JobKeeper::Hold(const shm::Arena& own) {
  const std::uint64_t cohort = CohortOf(own.memory());
  if (cohort == cohort_ && HoldsAll(cohort)) return;
  Failpoint("keeper.hold");
  if (cohort != cohort_) {
    LetGo();  // the chief has begun anew: it is of before
    FileDescriptor fd(::fcntl(own.fd(), F_DUPFD_CLOEXEC, 0));
    Result<shm::Arena> lead = shm::Arena::Adopt(std::move(fd));
    if (!lead.ok()) return LogDebug("ps/0 cannot map its arena again: {}", lead.status().message());
    held_[0] = std::make_shared<shm::Arena>(std::move(*lead));
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
  held_[static_cast<std::size_t>(shard)] = std::make_shared<shm::Arena>(std::move(arena));
  return {};
}

// It has not the arenas of all shards.
bool JobKeeper::ChiefNeverSaves(const ShardMemory& lead) const {
  const int chief = task_.Names().chief;
  return others_ != nullptr || IsRepresented(lead, chief, StateOf(lead, chief).epoch);
}

bool JobKeeper::ChiefIsGone(const ShardMemory& lead) const {
  if (ChiefNeverSaves(lead)) return true;
  const int chief = task_.Names().chief;
  const TaskState state = StateOf(lead, chief);
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
  if (others_) return {held_[0]->memory()};
  std::vector<ShardMemory> shards;
  for (const auto& arena : held_) shards.push_back(arena->memory());
  return shards;
}

Result<JobKeeper::Opening> JobKeeper::BeginOpening(bool wait) const {
  JobConfig config = config_;
  const StorePlan plan = held_[0]->plan();
  PASSEL_RETURN_IF_ERROR(FitToPlan(plan, &config.model));
  if (!wait) config.start_wait_ns = 0;
  return Opening([config, plan, settings = task_.job, data = data_] {
    return CheckpointSaver::Open(config, settings, plan, data, /*begun=*/true);
  });
}

// The chief is gone for long enough, others train, and nobody stands in yet.
bool JobKeeper::IsNeeded(bool chief_is_here) {
  if (stand_in_ || !held_[0] || (!others_ && !HoldsAll(cohort_))) return false;
  const ShardMemory& lead = held_[0]->memory();
  if (chief_is_here || !ChiefIsGone(lead) || !SomebodyTrains(lead)) {
    gone_since_ns_ = 0;
    return false;
  }
  if (ChiefNeverSaves(lead)) return true;
  const std::int64_t now = MonotonicNs();
  if (gone_since_ns_ == 0) gone_since_ns_ = now;
  return now - gone_since_ns_ >= std::chrono::nanoseconds(kStandInAfter).count();
}

void JobKeeper::OpenStandIn() {
  const std::int64_t now = MonotonicNs();
  if (opening_) {
    if (now - opening_since_ns_ < std::chrono::nanoseconds(kOpenLimit).count()) return;
    opening_since_ns_ = std::numeric_limits<std::int64_t>::max();  // it is told once
    return LogWarning("nobody saves checkpoints while {} is gone: {} has not answered for {} s",
                      task_.Names().chief_name, config_.checkpoints.folder, kOpenLimit.count());
  }
  if (now < next_open_ns_) return;
  next_open_ns_ = now + std::chrono::nanoseconds(kOpenAgain).count();
  opening_since_ns_ = now;
  Result<Opening> opening = BeginOpening(/*wait=*/false);
  if (opening.ok()) {
    opening_.emplace(std::move(*opening));
  } else {
    NobodySaves(opening.status());
  }
}

void JobKeeper::NobodySaves(const Status& why) {
  RefuseWishes(why);
  LogWarning("nobody saves checkpoints while {} {}: {}", task_.Names().chief_name,
             ChiefNeverSaves(held_[0]->memory()) ? "reaches the ps by messages" : "is gone",
             why.message());
}

void JobKeeper::BeginStandIn() {
  Result<std::unique_ptr<CheckpointSaver>> saver = opening_->Take();
  if (!saver.ok()) return NobodySaves(saver.status());
  next_open_ns_ = 0;  // the next one need not wait
  if (ChiefNeverSaves(held_[0]->memory())) {
    LogInfo("checkpoints are saved by ps/0: {} reaches the ps by messages",
            task_.Names().chief_name);
  } else {
    LogInfo("{} is gone: checkpoints are saved by ps/0 until it is back", task_.Names().chief_name);
  }
  StandInWith(std::move(*saver));
  stand_in_->saver->Begin(Shards(), task_.Names());
}

void JobKeeper::StandInWith(std::unique_ptr<CheckpointSaver> saver) {
  saver->SaveWith(others_);
  saver->Heed(wishes_);
  stand_in_ = std::make_unique<StandIn>(StandIn{held_, std::move(saver), WallSeconds()});
}

}  // namespace passel::job

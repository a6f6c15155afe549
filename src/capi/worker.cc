#include "capi/worker.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/denormals.h"
#include "base/nvtx.h"
#include "base/process_identity.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "cluster/placement.h"
#include "job/worker_start.h"
#include "store/metrics.h"
#include "store/open_store.h"

namespace passel::capi {
namespace {

// A wait looks so often whether the ps are there.
constexpr std::chrono::milliseconds kWaitTurn{500};
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
  }
  return VariableTable::Build(std::move(infos), shards);
}

WorkerNames NamesOf(const Settings& settings) {
  return settings.alone ? WorkerNames{} : settings.task.Names();
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
  const auto join = [&]() -> Status {
    PASSEL_ASSIGN_OR_RETURN(job_, shm::AttachedJob::Connect(options, task.token));
    PASSEL_RETURN_IF_ERROR(job_->WaitForArenas());
    // What is wrong with them is said before the job begins.
    if (is_chief() && !checkpoints_) {
      PASSEL_ASSIGN_OR_RETURN(checkpoints_, Checkpoints::Open(settings_, plan, HaveValues()));
    }
    PASSEL_ASSIGN_OR_RETURN(store_, job_->Open(plan));
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
  PASSEL_RETURN_IF_ERROR(joined);
  if (is_chief()) job::TellOfJob(job::TargetOf(config), *job_->arena(0).memory().state);
  return {};
}

Status Worker::Initialize(const float* const* values, Deadline deadline) {
  PASSEL_RETURN_IF_ERROR(CheckNoPush("passel_initialize()"));
  if (is_chief() && !store_->initialized()) {
    const VariableTable& table = store_->variables();
    for (VarId id = 0; values != nullptr && id < table.size(); ++id) {
      if (values[id] == nullptr) continue;
      const std::span<const float> given(values[id], table[id].elements);
      const auto bad = std::ranges::find_if(given, [](float f) { return !std::isfinite(f); });
      if (bad == given.end()) continue;
      return Diverged(fmt::format(
          "the first value {} of variable \"{}\" is {}, so nothing was written: give finite values",
          bad - given.begin(), Printable(table[id].name, kMaxNameBytes), *bad));
    }
    const nvtx::Range range(nvtx::Event::kInitialize, index());
    const auto fill = [&](VarId id, std::span<float> out) {
      if (values == nullptr || values[id] == nullptr) {
        std::ranges::fill(out, 0.F);
      } else {
        std::copy_n(values[id], out.size(), out.begin());
      }
    };
    PASSEL_RETURN_IF_ERROR(checkpoints_->resumes() ? checkpoints_->Restore(*store_)
                                                   : store_->Initialize(fill));
  }
  const Status there = job::AwaitFirstValues(settings_.task, settings_.config, deadline, *store_);
  if (there.code() == Code::kDeadlineExceeded && !store_->initialized()) {
    return DeadlineExceeded(
        fmt::format("the chief, {}, has not initialised the variables in time: start it, and call "
                    "passel_initialize() again",
                    settings_.task.Names().chief_name));
  }
  PASSEL_RETURN_IF_ERROR(there);
  if (checkpoints_ && !initialized_) {
    checkpoints_->Begin(Shards(), NamesOf(settings_));
    summaries_ = Summaries::Create(settings_.config.summaries, Lead());
  }
  initialized_ = true;
  return {};
}

std::vector<ShardMemory> Worker::Shards() const {
  if (arena_) return {arena_->memory()};
  std::vector<ShardMemory> shards;
  for (int shard = 0; shard < store_->variables().shards(); ++shard) {
    shards.push_back(job_->arena(shard).memory());
  }
  return shards;
}

bool Worker::HaveValues() const {
  if (!job_->has_arenas()) return false;
  for (int shard = 0; shard < settings_.task.spec.num_tasks("ps"); ++shard) {
    const ShardState& state = *job_->arena(shard).memory().state;
    if (state.initialized.load(std::memory_order_acquire) == 0) return false;
  }
  return true;
}

// In mode barrier the values stay those of one round until this worker pushes.
Others Worker::OthersNow() const {
  if (is_alone()) return Others::kNone;
  return store_->mode() == Mode::kBarrier && !ticket_ ? Others::kWait : Others::kTrain;
}

Result<std::int64_t> Worker::Save(Deadline deadline) {
  if (!initialized_) {
    return FailedPrecondition(
        "the variables have no values yet: call passel_initialize() before passel_save()");
  }
  PASSEL_RETURN_IF_ERROR(CheckNoPush("passel_save()"));
  if (!checkpoints_) {
    return FailedPrecondition(
        fmt::format("the chief, {}, makes the checkpoints of this job: call passel_save() there",
                    settings_.task.Names().chief_name));
  }
  pulled_ = false;
  view_.reset();
  gradient_.reset();
  return checkpoints_->Save(OthersNow(), *store_, deadline);
}

Status Worker::Sample(const Sampling& sampling) {
  if (!initialized_) {
    return FailedPrecondition(
        "the variables have no values yet: call passel_initialize() before passel_sample()");
  }
  PASSEL_RETURN_IF_ERROR(CheckNoPush("passel_sample()"));
  PASSEL_ASSIGN_OR_RETURN(sampler_, Sampler::Create(Lead(), index(), sampling, NamesOf(settings_)));
  store_->OnStep([this] { sampler_->Done(); });
  return {};
}

Result<Sampler::Batch> Worker::NextBatch() {
  if (!sampler_) {
    return FailedPrecondition(
        "no data are shared yet: call passel_sample() before passel_next_batch()");
  }
  PASSEL_RETURN_IF_ERROR(CheckNoPush("passel_next_batch()"));
  if (stopped()) return Sampler::Batch();
  return sampler_->Next();
}

Status Worker::ShowMetric(std::string_view name, double value) {
  PASSEL_RETURN_IF_ERROR(SetMetric(Lead().tasks[index()].metrics, name, value));
  // What passel's own models show.
  if (name == "loss") store_->counters().loss.store(value, std::memory_order_relaxed);
  if (name == "accuracy") store_->counters().accuracy.store(value, std::memory_order_relaxed);
  return {};
}

Status Worker::Leave() {
  summaries_.reset();
  Status saved;
  if (checkpoints_ && initialized_) saved = checkpoints_->End(OthersNow(), *store_);
  const bool hangs = checkpoints_ && checkpoints_->hangs();
  checkpoints_.reset();
  const Status left = store_->Leave();
  if (hangs) {  // what saves there reads the arenas until the process ends
    (void)arena_.release();
    (void)job_.release();
  }
  return left.ok() ? saved : left;
}

Status Worker::CheckNoPush(const char* what) const {
  if (!ticket_) return {};
  return FailedPrecondition(
      fmt::format("the last push has no outcome yet: call passel_wait() before {}", what));
}

Status Worker::CheckPs() const {
  if (!job_) return {};
  const auto missing = job_->PsMissingFor();
  if (missing.count() == 0 || missing.count() <= settings_.config.ps_wait_ns) return {};
  return Unavailable(
      fmt::format("a ps has been gone for {:.1f} s and none came back: start it and this worker "
                  "again, or raise "
                  "the setting ps_wait",
                  1e-9 * static_cast<double>(missing.count())));
}

Status Worker::CheckVariable(std::size_t variable) const {
  if (variable < num_variables()) return {};
  return InvalidArgument(
      fmt::format("there is no variable {}: the job has 0 to {}", variable, num_variables() - 1));
}

Status Worker::Pull(std::optional<PullMode> mode) {
  if (!initialized_) {
    return FailedPrecondition(
        "the variables have no values yet: call passel_initialize() before passel_pull()");
  }
  PASSEL_RETURN_IF_ERROR(CheckNoPush("passel_pull()"));
  PASSEL_RETURN_IF_ERROR(CheckPs());
  WorkerCounters& counters = store_->counters();
  if (counters.first_step_ns.load(std::memory_order_relaxed) == 0) {
    counters.first_step_ns.store(MonotonicNs(), std::memory_order_relaxed);
  }
  pulled_ = false;
  view_.reset();
  PASSEL_ASSIGN_OR_RETURN(
      view_,
      store_->Pull(mode.value_or(IsRoundMode(store_->mode()) ? PullMode::kView : PullMode::kCopy)));
  pulled_ = true;
  return {};
}

Result<std::span<const float>> Worker::Values(std::size_t variable) const {
  PASSEL_RETURN_IF_ERROR(CheckVariable(variable));
  if (!view_) {
    return FailedPrecondition("nothing was pulled: call passel_pull() before passel_values()");
  }
  return view_->values(static_cast<VarId>(variable));
}

Result<std::span<float>> Worker::Gradient(std::size_t variable) {
  PASSEL_RETURN_IF_ERROR(CheckVariable(variable));
  if (!initialized_) {
    return FailedPrecondition(
        "the variables have no values yet: call passel_initialize() before passel_gradient()");
  }
  PASSEL_RETURN_IF_ERROR(CheckNoPush("passel_gradient()"));
  if (!gradient_) gradient_ = store_->LendGradient();
  return gradient_->values(static_cast<VarId>(variable));
}

Status Worker::Push(Deadline deadline) {
  PASSEL_RETURN_IF_ERROR(CheckNoPush("the next passel_push()"));
  if (!pulled_) {
    return FailedPrecondition(
        "nothing was pulled since the last push, so the gradient is of no known values: call "
        "passel_pull() before passel_push()");
  }
  if (!gradient_) {
    return FailedPrecondition(
        "no gradient was asked for since the last push: call passel_gradient() and fill it before "
        "passel_push()");
  }
  std::string variable;
  if (!store_->GradientIsFinite(*gradient_, &variable)) {
    return Diverged(fmt::format(
        "worker/{}: the gradient of variable \"{}\" has a NaN or an infinity at global step {}, so "
        "it was not pushed: overwrite it and push again, or lower the learning rate",
        index(), Printable(variable, kMaxNameBytes), store_->global_step()));
  }
  const FlushDenormals flush;
  const nvtx::Range range(nvtx::Event::kPush, index());
  pulled_ = false;
  const GradientBuffer gradient = *std::exchange(gradient_, std::nullopt);
  PASSEL_ASSIGN_OR_RETURN(ticket_, store_->Push(gradient, view_->stamp(), deadline));
  return {};
}

Result<PushOutcome> Worker::Wait(Deadline deadline) {
  if (!ticket_) {
    return FailedPrecondition("nothing was pushed: call passel_push() before passel_wait()");
  }
  const FlushDenormals flush;  // it may apply a round
  const nvtx::Range range(nvtx::Event::kWait, index());
  for (;;) {
    const Result<PushOutcome> outcome = store_->Wait(*ticket_, deadline.Sooner(kWaitTurn));
    if (outcome.status().code() == Code::kDeadlineExceeded) {
      PASSEL_RETURN_IF_ERROR(CheckPs());
      if (!deadline.Expired()) continue;
      std::vector<std::string> awaited;
      const WorkerNames names = settings_.task.Names();
      for (const Member& member : store_->WaitingFor()) awaited.push_back(names(member.worker));
      if (awaited.empty()) return outcome;
      return DeadlineExceeded(fmt::format("{}: waiting for {}; call passel_wait() again",
                                          outcome.status().message(), fmt::join(awaited, ", ")));
    }
    ticket_.reset();
    if (outcome.ok()) {
      store_->counters().last_step_ns.store(MonotonicNs(), std::memory_order_relaxed);
      if (summaries_) summaries_->Look(outcome->global_step);
    }
    return outcome;
  }
}

}  // namespace passel::capi

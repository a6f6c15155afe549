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
#include "base/log.h"
#include "base/nvtx.h"
#include "base/text.h"
#include "base/wait_check.h"
#include "job/remote_batches.h"
#include "job/worker_start.h"
#include "store/metrics.h"
#include "store/scale.h"
#include "store/shared_batches.h"

namespace passel::capi {
namespace {

// A wait looks so often whether the ps are there.
constexpr std::chrono::milliseconds kWaitTurn{500};
// Between two looks whether the last batches of others are done, or theirs no more.
constexpr std::chrono::milliseconds kBatchTurn{10}, kFarBatchTurn{100};

}  // namespace

Status Worker::Initialize(const float* const* values, const GivenState* state, Deadline deadline) {
  PASSEL_RETURN_IF_ERROR(CheckNoPush("passel_initialize()"));
  if (is_chief() && !store_->initialized()) {
    const VariableTable& table = store_->variables();
    const OptimizerConfig& optimizer = settings_.config.optimizer;
    if (state != nullptr) PASSEL_RETURN_IF_ERROR(CheckState(*state, table, optimizer));
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
    restored_ = checkpoints_->resumes();
    PASSEL_RETURN_IF_ERROR(restored_          ? checkpoints_->Restore(*store_)
                           : state != nullptr ? BeginWith(values, *state, optimizer, *store_)
                                              : store_->Initialize(fill));
    wrote_values_ = true;
  }
  const Status there = job::AwaitFirstValues(settings_.task, settings_.config, deadline, *store_);
  if (there.code() == Code::kDeadlineExceeded && !store_->initialized()) {
    return DeadlineExceeded(
        fmt::format("the chief, {}, has not initialised the variables in time: start it, and call "
                    "passel_initialize() again",
                    settings_.task.Names().chief_name));
  }
  PASSEL_RETURN_IF_ERROR(there);
  if (!initialized_) BeginHere();
  initialized_ = true;
  return {};
}

// What the chief does beside training.
void Worker::BeginHere() {
  if (remote_) {
    checkpoints_.reset();  // the ps save from here on
  } else if (checkpoints_) {
    checkpoints_->Begin(Shards(), Names());
  }
  if (!is_chief()) return;
  const ShardMemory* const lead = remote_ ? remote_->LeadHere() : &Lead();
  summaries_ = Summaries::Create(
      settings_.config.summaries, store_->global_step(),
      lead != nullptr ? MetricsOfAll(*lead) : [this](Summary* summary) {
        for (const Metric& m : ReadMetrics(*metrics_)) summary->push_back({m.name, m.value});
      });
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
  const bool elsewhere = remote_ && is_chief();
  if (!checkpoints_ && !elsewhere) {
    return FailedPrecondition(
        fmt::format("the chief, {}, makes the checkpoints of this job: call passel_save() there",
                    settings_.task.Names().chief_name));
  }
  pulled_ = false;
  view_.reset();
  gradient_.reset();
  if (elsewhere) return SaveElsewhere(settings_, OthersNow(), *store_, deadline);
  return checkpoints_->Save(OthersNow(), *store_, deadline);
}

Result<Worker::FirstValues> Worker::Beginning() {
  if (!initialized_) {
    return FailedPrecondition(
        "the variables have no values yet: call passel_initialize() before passel_beginning()");
  }
  ShardBeginning lead;
  if (remote_) {
    PASSEL_ASSIGN_OR_RETURN(lead, remote_->BeginningOf(0));
  } else {
    lead = LookAtShard(Lead());
  }
  return FirstValues{lead.cohort, lead.restored_step, wrote_values_, wrote_values_ && restored_};
}

Result<const OptimizerState*> Worker::ReadState() {
  if (!initialized_) {
    return FailedPrecondition(
        "the variables have no values yet: call passel_initialize() before "
        "passel_read_optimizer_state()");
  }
  PASSEL_RETURN_IF_ERROR(CheckNoPush("passel_read_optimizer_state()"));
  if (remote_) {
    return FailedPrecondition(fmt::format(
        "this worker is on another host than {}, and slot variables do not travel: read the state "
        "of the optimizer in a worker on the host of all ps, or in a checkpoint",
        remote_->Elsewhere()));
  }
  state_.reset();
  state_ = OptimizerState::Read(store_->variables(), settings_.config.optimizer, Shards());
  return &*state_;
}

Status Worker::SetRates(std::span<const GroupRates> rates) {
  if (!initialized_) {
    return FailedPrecondition(
        "the variables have no values yet: call passel_initialize() before passel_set_rates()");
  }
  PASSEL_RETURN_IF_ERROR(CheckNoPush("passel_set_rates()"));
  return store_->SetRates(rates);
}

Status Worker::Sample(const Sampling& sampling) {
  if (!initialized_) {
    return FailedPrecondition(
        "the variables have no values yet: call passel_initialize() before passel_sample()");
  }
  PASSEL_RETURN_IF_ERROR(CheckNoPush("passel_sample()"));
  const auto share = [this](const BatchRules& rules,
                            std::uint64_t end) -> Result<std::unique_ptr<BatchSource>> {
    if (remote_ && remote_->LeadHere() == nullptr) {
      PASSEL_ASSIGN_OR_RETURN(
          std::unique_ptr<BatchSource> batches,
          job::RemoteBatches::Create(*remote_, rules, end, [this] { store_->SayAlive(); }));
      return batches;
    }
    const ShardMemory& lead = remote_ ? *remote_->LeadHere() : Lead();
    PASSEL_ASSIGN_OR_RETURN(std::unique_ptr<BatchSource> batches,
                            SharedBatches::Create(lead, index(), rules, end, Names()));
    return batches;
  };
  PASSEL_ASSIGN_OR_RETURN(sampler_, Sampler::Create(sampling, share));
  store_->OnStep([this] { sampler_->Done(); });
  return {};
}

Result<Sampler::Batch> Worker::NextBatch() {
  if (!sampler_) {
    return FailedPrecondition(
        "no data are shared yet: call passel_sample() before passel_next_batch()");
  }
  PASSEL_RETURN_IF_ERROR(CheckNoPush("passel_next_batch()"));
  std::optional<int> holder;  // of a batch that comes back if he dies
  Deadline patience = Deadline::After({});
  while (!stopped()) {
    PASSEL_ASSIGN_OR_RETURN(const Sampler::Batch batch, sampler_->Next());
    if (!batch.examples.empty() || !MayWaitForBatches()) return batch;
    const std::optional<int> by = sampler_->StillHeldBy();
    if (!by) return batch;
    if (by != std::exchange(holder, by)) {
      patience = Deadline::After(std::chrono::nanoseconds(settings_.config.stall_limit_ns));
    }
    if (patience.Expired()) {
      LogWarning(
          "{} has had its last batch for {:g} s (stall_limit) and not made a step: not waiting "
          "for it any more",
          Names()(*by), 1e-9 * static_cast<double>(settings_.config.stall_limit_ns));
      return batch;
    }
    // In between others may meet, or change the mode.
    store_->SayAlive();
    const Status met = store_->WaitUntilInitialized(Deadline::After(kBatchTurn));
    if (met.code() == Code::kCancelled) break;
    if (met.code() != Code::kDeadlineExceeded) PASSEL_RETURN_IF_ERROR(met);
    if (WaitIsOver()) return DeadlineExceeded("a wait for the last batches of others was ended");
    std::this_thread::sleep_for(remote_ ? kFarBatchTurn : kBatchTurn);
  }
  return Sampler::Batch();
}

// In the modes with rounds, and in ssp, those who have batches would wait for this worker.
bool Worker::MayWaitForBatches() const {
  const Mode mode = store_->mode();
  return !is_alone() && (mode == Mode::kHogwild || mode == Mode::kLocked) && !MayReturn();
}

Status Worker::ShowMetric(std::string_view name, double value) {
  if (remote_) {
    PASSEL_RETURN_IF_ERROR(SetMetric(*metrics_, name, value));
    metrics_new_ = true;
  } else {
    PASSEL_RETURN_IF_ERROR(SetMetric(Lead().tasks[index()].metrics, name, value));
  }
  // What passel's own models show.
  if (name == "loss") {
    store_->counters().loss.store(value, std::memory_order_relaxed);
    loss_is_finite_ = std::isfinite(value);
    SayFinite(loss_is_finite_);
  }
  if (name == "accuracy") store_->counters().accuracy.store(value, std::memory_order_relaxed);
  return {};
}

// What others save is judged by it. Release: as in train/worker_loop.cc.
void Worker::SayFinite(bool finite) {
  store_->counters().not_finite_at.store(finite ? 0 : store_->global_step() + 1,
                                         std::memory_order_release);
}

Status Worker::CheckNoPush(const char* what) const {
  if (!ticket_) return {};
  return FailedPrecondition(
      fmt::format("the last push has no outcome yet: call passel_wait() before {}", what));
}

Status Worker::CheckPs() const {
  if (!job_ && !remote_) return {};
  const auto missing = remote_ ? remote_->PsMissingFor() : job_->PsMissingFor();
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

Status Worker::CheckPulled() const {
  PASSEL_RETURN_IF_ERROR(CheckNoPush("the next passel_push()"));
  if (pulled_) return {};
  return FailedPrecondition(
      "nothing was pulled since the last push, so the gradient is of no known values: call "
      "passel_pull() before passel_push()");
}

Status Worker::Push(Deadline deadline) {
  PASSEL_RETURN_IF_ERROR(CheckPulled());
  if (!gradient_) {
    return FailedPrecondition(
        "no gradient was asked for since the last push: call passel_gradient() and fill it before "
        "passel_push()");
  }
  return PushThat(*gradient_, deadline);
}

Status Worker::PushFrom(const float* const* gradients, Deadline deadline) {
  PASSEL_RETURN_IF_ERROR(CheckPulled());
  return PushThat(store_->UseGradient(gradients), deadline);
}

Status Worker::PushThat(GradientBuffer gradient, Deadline deadline) {
  std::string variable;
  if (!store_->GradientIsFinite(gradient, &variable)) {
    SayFinite(false);
    return Diverged(fmt::format(
        "worker/{}: the gradient of variable \"{}\" has a NaN or an infinity at global step {}, so "
        "it was not pushed: overwrite it and push again, or lower the learning rate",
        index(), Printable(variable, kMaxNameBytes), store_->global_step()));
  }
  const FlushDenormals flush;
  const nvtx::Range range(nvtx::Event::kPush, index());
  pulled_ = false;
  gradient_.reset();
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
      if (remote_ && MonotonicNs() >= metrics_at_ns_) SendMetrics();
      store_->counters().last_step_ns.store(MonotonicNs(), std::memory_order_relaxed);
      if (loss_is_finite_) SayFinite(true);
      if (summaries_) summaries_->Look(outcome->global_step);
    }
    return outcome;
  }
}

}  // namespace passel::capi

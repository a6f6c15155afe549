// worker.h - one worker whose model and loop are the program's: what passel.h says, in C++.
//
// The order of calls is checked here, so that no order of them reaches the store that it does not
// know. One thread at a time, but for the functions at the end.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "capi/checkpoints.h"
#include "capi/optimizer_state.h"
#include "capi/sampler.h"
#include "capi/settings.h"
#include "capi/summaries.h"
#include "job/own_arena.h"
#include "job/remote_job.h"
#include "shm/attached_job.h"
#include "store/parameter_store.h"

namespace passel::capi {

struct Variable {
  std::string name;
  std::vector<std::int64_t> shape;
  int group = 0;
};

class Worker {
 public:
  /// Joins the job. Errors: those of passel_open().
  static Result<std::unique_ptr<Worker>> Open(std::span<const std::string> settings,
                                              std::span<const Variable> variables);

  const std::string& job_id() const { return settings_.task.job_id; }
  int index() const { return store_->worker(); }
  int places() const { return places_; }
  bool is_chief() const { return settings_.alone || settings_.task.is_chief; }
  bool is_alone() const { return settings_.alone; }
  std::size_t num_variables() const { return store_->variables().size(); }
  std::size_t elements(std::size_t variable) const {
    return store_->variables()[static_cast<VarId>(variable)].elements;
  }

  /// `values`: null, or a pointer for each variable. `state`: null, or with what it begins.
  Status Initialize(const float* const* values, const GivenState* state, Deadline deadline);
  struct FirstValues {
    std::uint64_t number = 0;  ///< ShardState::cohort
    std::int64_t global_step = 0;
    bool is_own = false;            ///< this process wrote them
    bool is_of_checkpoint = false;  ///< and took them there
  };
  /// Errors: those of RemoteJob::BeginningOf().
  Result<FirstValues> Beginning();
  /// Valid until the next call, and as long as this worker.
  Result<const OptimizerState*> ReadState();
  /// nullopt: a view in rounds, a copy elsewhere.
  Status Pull(std::optional<PullMode> mode);
  Result<std::span<const float>> Values(std::size_t variable) const;
  Result<std::span<float>> Gradient(std::size_t variable);
  Status Push(Deadline deadline);
  /// Of all variables.
  Status PushFrom(const float* const* gradients, Deadline deadline);
  Result<PushOutcome> Wait(Deadline deadline);
  /// Errors: those of ParameterStore::SetRates().
  Status SetRates(std::span<const GroupRates> rates);
  /// From now on this worker takes its batches from the job's. Errors: those of Sampler::Create().
  Status Sample(const Sampling& sampling);
  Result<Sampler::Batch> NextBatch();
  void SayAlive() { store_->SayAlive(); }
  /// Errors: those of SetMetric(). Of a worker on another host than ps/0 it travels later.
  Status ShowMetric(std::string_view name, double value);
  /// Saves a checkpoint now and returns its global step. What was pulled and lent is void.
  Result<std::int64_t> Save(Deadline deadline);
  /// After the last checkpoint. The store is closed, whatever is returned.
  Status Leave();

  // From any thread.
  std::int64_t global_step() const { return store_->global_step(); }
  Mode mode() const { return store_->mode(); }
  void Stop() { store_->Stop(); }
  bool stopped() const { return store_->stopped(); }

 private:
  explicit Worker(Settings settings) : settings_(std::move(settings)) {}
  Status JoinAlone(std::span<const Variable> variables);
  Status JoinOthers(std::span<const Variable> variables);
  Status JoinHere(const StorePlan& plan, const shm::AttachOptions& options);
  Status JoinElsewhere(const StorePlan& plan, Deadline start);
  void BeginHere();
  bool MayWaitForBatches() const;
  bool MayReturn() const;
  bool IsLastOfAll() const;
  void SendMetrics();
  void SayFinite(bool finite);
  Status CheckVariable(std::size_t variable) const;
  Status CheckNoPush(const char* what) const;
  Status CheckPulled() const;
  Status PushThat(GradientBuffer gradient, Deadline deadline);
  Status CheckPs() const;
  const ShardMemory& Lead() const { return arena_ ? arena_->memory() : job_->arena(0).memory(); }
  WorkerNames Names() const { return settings_.alone ? WorkerNames{} : settings_.task.Names(); }
  std::vector<ShardMemory> Shards() const;
  bool HaveValues() const;
  Others OthersNow() const;

  Settings settings_;
  int places_ = 1;
  std::unique_ptr<job::OwnArena> arena_;    // alone
  std::unique_ptr<shm::AttachedJob> job_;   // with others
  std::unique_ptr<job::RemoteJob> remote_;  // in its place: some ps are on other hosts
  std::unique_ptr<ParameterStore> store_;   // on one of these
  // Of the chief; before the arenas are unmapped. Where those are on other hosts, the ps save, and
  // this one only says with what the job begins.
  std::unique_ptr<Checkpoints> checkpoints_;
  std::unique_ptr<MetricSlots> metrics_;  // with remote_: what ps/0 is to hear
  std::unique_ptr<Summaries> summaries_;  // of the chief, and reads these; null: none are written
  bool metrics_new_ = false;              // since it was told
  bool loss_is_finite_ = true;            // as it was shown
  std::int64_t metrics_at_ns_ = 0;        // not before, of MonotonicNs()
  std::unique_ptr<Sampler> sampler_;
  std::optional<OptimizerState> state_;  // that was read last
  bool initialized_ = false;
  bool wrote_values_ = false, restored_ = false;
  bool pulled_ = false;            // since the last push
  std::optional<ParamView> view_;  // of the last pull
  std::optional<GradientBuffer> gradient_;
  std::optional<Ticket> ticket_;  // of a push that is not waited for
};

}  // namespace passel::capi

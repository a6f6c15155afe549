#include "train/gradient_source.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/nvtx.h"
#include "store/shard_memory.h"

namespace passel {
namespace {

constexpr std::chrono::seconds kStepTurn{1};
// A step takes microseconds to milliseconds: an engine that needs so long is stuck.
constexpr std::chrono::minutes kEngineLimit{5};
// Whoever leaves has less patience.
constexpr std::chrono::seconds kDrainLimit{10};
static_assert(kMostStepsAhead + 1 == kMaxGradientSlots, "a slot each, and one that is pushed");

// None: the last round was completed since the caller looked.
Result<std::optional<ParamView>> PullForStep(const GradientSourceParts& parts) {
  PASSEL_ASSIGN_OR_RETURN(
      const ParamView view,
      parts.store.Pull(PullModeFor(parts.options, parts.copy_pays, parts.store.mode())));
  parts.layout.Bind(view, parts.params);
  if (IsRoundMode(parts.store.mode()) &&
      view.version() >= static_cast<Version>(parts.options.train_steps)) {
    return std::optional<ParamView>();
  }
  return std::optional<ParamView>(view);
}

std::int64_t NextLocalStep(const GradientSourceParts& parts) {
  return static_cast<std::int64_t>(
             parts.store.counters().local_steps.load(std::memory_order_relaxed)) +
         1;
}

class DirectGradients final : public GradientSource {
 public:
  DirectGradients(const GradientSourceParts& parts, Model& model, const GradientBuffer& addend)
      : parts_(parts), model_(model), addend_(addend) {}

  Result<std::optional<ComputedGradient>> Next(int waiting) override {
    const std::int64_t begin = MonotonicNs();
    const std::int64_t local_step = NextLocalStep(parts_) + waiting;
    ComputedGradient step;
    if (waiting > 0) {
      step.stamp = stamp_;
      step.gradient = addend_;
    } else {
      const nvtx::Range pull_range(nvtx::Event::kPull, local_step);
      PASSEL_ASSIGN_OR_RETURN(const std::optional<ParamView> view, PullForStep(parts_));
      if (!view) return std::optional<ComputedGradient>();
      step.stamp = stamp_ = view->stamp();
      step.gradient = parts_.store.LendGradient();
    }
    const std::int64_t pulled = MonotonicNs();
    const nvtx::Range compute_range(nvtx::Event::kCompute, local_step);
    parts_.layout.Bind(step.gradient, &gradients_);
    PASSEL_ASSIGN_OR_RETURN(const auto indices, parts_.batches.Next());
    const Batch batch{parts_.train, indices};
    step.cursor = parts_.batches.cursor();
    step.examples = batch.indices.size();
    const auto& compute = parts_.callbacks.compute;
    PASSEL_ASSIGN_OR_RETURN(step.batch,
                            compute ? compute(batch, *parts_.params, gradients_)
                                    : model_.LossAndGradient(batch, *parts_.params, gradients_));
    step.pull_ns = pulled - begin;
    step.compute_ns = MonotonicNs() - pulled;
    return std::optional<ComputedGradient>(step);
  }

  Result<int> Drain() override { return 0; }

 private:
  const GradientSourceParts parts_;
  Model& model_;
  const GradientBuffer addend_;
  std::uint32_t stamp_ = 0;  // of the last pull
  std::vector<std::vector<MutableRowPart>> gradients_;
};

class EngineGradients final : public GradientSource {
 public:
  EngineGradients(const GradientSourceParts& parts, const EngineUse& use)
      : parts_(parts), use_(use), mode_changes_(parts.store.mode_changes()) {
    PASSEL_CHECK(use.engine != nullptr && use.engine->max_in_flight() >= 1, "an engine computes");
    PASSEL_CHECK(use.steps_ahead >= 0 && use.steps_ahead <= kMostStepsAhead &&
                     use.steps_ahead < use.store_slots,
                 "a gradient slot for each step ahead, and one for what is pushed");
    under_way_.reserve(kMostStepsAhead + 1);
  }
  ~EngineGradients() override {
    // The engine must not write into slots that the store takes back.
    if (const auto drained = Drain(); !drained.ok()) LogWarning("{}", drained.status().message());
  }

  Result<std::optional<ComputedGradient>> Next(int waiting) override {
    PASSEL_CHECK(waiting == 0, "an engine's gradients are pushed one by one");
    if (parts_.store.mode_changes() != mode_changes_) {
      // Buffers that were lent before are void: their batches are computed again.
      if (!under_way_.empty()) {
        const BatchSource::Cursor first = under_way_.front().before;
        PASSEL_CHECK(!under_way_.front().result.updated, "a push ends before the mode changes");
        PASSEL_RETURN_IF_ERROR(Drain().status());
        parts_.batches.Restore(first);
      }
      mode_changes_ = parts_.store.mode_changes();
    }
    while (under_way_.size() < StepsUnderWay()) {
      PASSEL_ASSIGN_OR_RETURN(const bool started, Start());
      if (!started) break;
    }
    if (under_way_.empty()) return std::optional<ComputedGradient>();
    return FinishOldest();
  }

  Result<int> Drain() override {
    const Deadline deadline = Deadline::After(kDrainLimit);
    int ended = 0;
    while (!under_way_.empty()) {
      bool finite = true;
      const Result<BatchResult> finished = use_.engine->Finish(deadline, &finite);
      if (!finished.ok()) {
        Abandon();
        return finished.status();
      }
      Step step = under_way_.front();
      under_way_.erase(under_way_.begin());
      step.result.finite = finite;
      if (!step.result.updated) continue;
      PASSEL_RETURN_IF_ERROR(EndUpdate(&step.result));
      ended += finite ? 1 : 0;
    }
    return ended;
  }

 private:
  struct Step {
    ComputedGradient result;
    BatchSource::Cursor before;  // of its batch
    int engine_slot = 0;
    std::int64_t started_ns = 0;
  };

  // With the one that is waited for.
  std::size_t StepsUnderWay() const {
    return IsRoundMode(parts_.store.mode()) ? 1 : static_cast<std::size_t>(use_.steps_ahead) + 1;
  }

  // Whether the next step is to make its update too.
  bool UpdatesInStep() const {
    return use_.update_in_step && use_.steps_ahead == 0 && parts_.options.on_nan == OnNan::kStop &&
           use_.engine->can_update() && parts_.store.UpdateIsAddition();
  }

  // False: there is nothing to start.
  Result<bool> Start() {
    const std::int64_t begin = MonotonicNs();
    const std::int64_t local_step =
        NextLocalStep(parts_) + static_cast<std::int64_t>(under_way_.size());
    // The first thing that a launch does is to copy the values.
    const nvtx::Range pull_range(nvtx::Event::kPull, local_step);
    PASSEL_ASSIGN_OR_RETURN(const std::optional<ParamView> view, PullForStep(parts_));
    if (!view) return false;
    Step step;
    step.before = parts_.batches.cursor();
    step.result.stamp = view->stamp();
    step.result.gradient = parts_.store.LendGradient();
    // The store's private buffer is not one of the slots that the engine was created with.
    step.engine_slot = std::min(step.result.gradient.slot(), use_.store_slots);
    PASSEL_ASSIGN_OR_RETURN(const std::span<const std::uint32_t> indices, parts_.batches.Next());
    step.result.examples = indices.size();
    step.result.cursor = parts_.batches.cursor();
    float rate = 0;
    step.result.updated = UpdatesInStep();
    if (step.result.updated) {
      PASSEL_RETURN_IF_ERROR(parts_.store.BeginUpdate(&rate));
      Failpoint("update.begun");
    }
    step.started_ns = MonotonicNs();
    step.result.pull_ns = step.started_ns - begin;
    under_way_.push_back(step);
    {
      const nvtx::Range launch_range(nvtx::Event::kLaunch, local_step);
      const Status started = step.result.updated
                                 ? use_.engine->StartUpdate(indices, step.engine_slot, rate)
                                 : use_.engine->Start(indices, step.engine_slot);
      if (!started.ok()) return Lost(started, local_step);
    }
    if (step.result.updated) Failpoint("update.started");
    return true;
  }

  Result<std::optional<ComputedGradient>> FinishOldest() {
    const std::int64_t local_step = NextLocalStep(parts_);
    nvtx::Range compute_range(nvtx::Event::kCompute, local_step);
    nvtx::Range await_range(nvtx::Event::kAwaitDevice, local_step);
    const Deadline deadline = Deadline::After(kEngineLimit);
    for (;;) {
      bool finite = true;
      const Result<BatchResult> finished = use_.engine->Finish(deadline.Sooner(kStepTurn), &finite);
      if (finished.ok()) {
        await_range.Close();
        Step step = under_way_.front();
        under_way_.erase(under_way_.begin());
        step.result.batch = *finished;
        step.result.finite = finite;
        if (step.engine_slot == use_.store_slots) CopyFromScratch(step.result.gradient);
        const std::int64_t now = MonotonicNs();
        // If two steps overlap, the second counts from the end of the first.
        step.result.compute_ns = now - std::max(step.started_ns, last_finish_ns_);
        last_finish_ns_ = now;
        if (step.result.updated) {
          compute_range.Close();
          const nvtx::Range push_range(nvtx::Event::kPush, local_step);
          PASSEL_RETURN_IF_ERROR(EndUpdate(&step.result));
        }
        return std::optional<ComputedGradient>(step.result);
      }
      if (finished.status().code() != Code::kDeadlineExceeded) {
        return Lost(finished.status(), local_step);
      }
      bool leave = false;
      if (parts_.callbacks.check) PASSEL_RETURN_IF_ERROR(parts_.callbacks.check(&leave));
      if (leave) return Cancelled("asked to leave while the device computes");
      if (deadline.Expired()) {
        nvtx::Mark(nvtx::Event::kDeviceFailed, local_step);
        return Unavailable(
            fmt::format("{}: the device has not finished a step within {} s, so it is taken "
                        "for stuck: look at its driver's messages (dmesg) and start this worker "
                        "again",
                        parts_.options.names(parts_.store.worker()),
                        std::chrono::seconds(kEngineLimit).count()));
      }
    }
  }

  // Ends the update of a step that is done.
  Status EndUpdate(ComputedGradient* step) {
    step->left_out = use_.engine->left_out();
    if (!*step->finite) {
      parts_.store.GiveUpUpdate();
      return {};
    }
    PASSEL_ASSIGN_OR_RETURN(step->ticket, parts_.store.EndUpdate(step->stamp));
    // Whatever comes now: this batch has been pushed.
    SaveCursor(step->cursor, parts_.store.counters());
    return {};
  }

  // Nothing of what the engine was given will come back.
  void Abandon() {
    for (const Step& step : under_way_) {
      if (step.result.updated) parts_.store.GiveUpUpdate();
    }
    under_way_.clear();
  }

  // The engine is of no use after this.
  Status Lost(const Status& why, std::int64_t local_step) {
    nvtx::Mark(nvtx::Event::kDeviceFailed, local_step);
    Abandon();
    return why;
  }

  void CopyFromScratch(const GradientBuffer& to) const {
    const VariableTable& table = parts_.store.variables();
    for (VarId id = 0; id < table.size(); ++id) {
      const VariableInfo& v = table[id];
      const std::span<const float> from = use_.scratch[static_cast<std::size_t>(v.shard)];
      std::copy_n(from.data() + v.offset, v.elements, to.values(id).data());
    }
  }

  const GradientSourceParts parts_;
  const EngineUse use_;
  std::uint32_t mode_changes_;
  std::vector<Step> under_way_;  // oldest first
  std::int64_t last_finish_ns_ = 0;
};

}  // namespace

PullMode PullModeFor(const WorkerOptions& options, bool copy_pays, Mode mode) {
  if (options.pull) return *options.pull;
  return copy_pays && !IsRoundMode(mode) ? PullMode::kCopy : PullMode::kView;
}

bool CopyPays(const ParameterStore& store) {
  std::size_t bytes = 0;
  for (const VariableInfo& v : store.variables().all()) bytes += v.elements * sizeof(float);
  return bytes <= kMostCopiedBytes && store.membership().size() > 1;
}

std::unique_ptr<GradientSource> MakeDirectGradients(const GradientSourceParts& parts, Model& model,
                                                    const GradientBuffer& addend) {
  return std::make_unique<DirectGradients>(parts, model, addend);
}

std::unique_ptr<GradientSource> MakeEngineGradients(const GradientSourceParts& parts,
                                                    const EngineUse& use) {
  return std::make_unique<EngineGradients>(parts, use);
}

}  // namespace passel

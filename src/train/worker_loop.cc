#include "train/worker_loop.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/denormals.h"
#include "base/failpoint.h"
#include "base/histogram.h"
#include "base/log.h"
#include "base/nvtx.h"
#include "train/batch_source.h"
#include "train/divergence.h"
#include "train/gradient_source.h"
#include "train/gradient_sum.h"

namespace passel {
namespace {

constexpr std::chrono::seconds kWaitTurn{1};
constexpr std::int64_t kLogWaitEveryNs = 10'000'000'000;
constexpr std::int64_t kLogEvaluationAfterNs = 2'000'000'000;
constexpr std::chrono::milliseconds kSleepTurn{20};
// One that waits for a stopped worker has no end in sight.
constexpr std::chrono::seconds kLastRoundLimit{10};

std::string ListOf(const std::vector<Member>& members, const WorkerNames& names) {
  std::string list;
  for (const Member& m : members) {
    list += fmt::format("{}{}", list.empty() ? "" : ", ", names(m.worker));
    if (m.phase == Phase::kExpected) list += " (not started)";
  }
  return list;
}

class Worker {
 public:
  Worker(const WorkerOptions& options, const WorkerCallbacks& callbacks, Model& model,
         const ModelLayout& layout, const DataSplit& data, ParameterStore& store,
         BatchSource batches, const EngineUse& engine)
      : options_(options),
        callbacks_(callbacks),
        model_(model),
        layout_(layout),
        data_(data),
        store_(store),
        counters_(store.counters()),
        batches_(std::move(batches)),
        local_step_limit_(LocalStepLimit(options, data.train.size(), store.worker())),
        // An engine copies the values itself.
        copy_pays_(engine.engine == nullptr && CopyPays(store)),
        evaluated_(options.evaluation_steps > 0 ? store.global_step() / options.evaluation_steps
                                                : 0) {
    for (const WorkerOptions::SlowWorker& slow : options.slow_workers) {
      if (slow.index == store.worker()) delay_ += slow.delay;
    }
    const GradientSourceParts parts{
        options_,   callbacks_,
        layout_,    store_,
        batches_,   {data.train.images.data(), data.train.labels.data(), data.train.size()},
        copy_pays_, &params_};
    PASSEL_CHECK(options.push_every >= 1 && options.push_every <= kMaxPushEvery &&
                     (options.push_every == 1 || engine.engine == nullptr),
                 "push_every is out of range, or an engine would have to add up");
    if (options.push_every > 1) sum_.emplace(store.variables());
    EngineUse use = engine;
    use.update_in_step &= delay_.count() == 0;
    source_ = engine.engine != nullptr
                  ? MakeEngineGradients(parts, use)
                  : MakeDirectGradients(parts, model_, sum_ ? sum_->addend() : GradientBuffer());
  }

  Result<WorkerResult> Run() {
    for (;;) {
      bool leave = false;
      if (callbacks_.check) PASSEL_RETURN_IF_ERROR(callbacks_.check(&leave));
      result_.global_step = store_.global_step();
      if (result_.global_step >= options_.train_steps || NextLocalStep() > local_step_limit_) {
        return Leave(LeaveReason::kStepsReached);
      }
      if (store_.stopped()) return Leave(LeaveReason::kStopped);
      if (leave) return Leave(LeaveReason::kAsked);
      const Status status = Step();
      // Stop() may come at any point of a step; what was pushed stands.
      if (status.code() == Code::kCancelled) continue;
      if (status.code() == Code::kAborted) nvtx::Mark(nvtx::Event::kFencedOff, store_.worker());
      if (!status.ok()) return status;
    }
  }

 private:
  Status Step() {
    const std::int64_t begin = MonotonicNs();
    if (counters_.first_step_ns.load(std::memory_order_relaxed) == 0) {
      counters_.first_step_ns.store(begin, std::memory_order_relaxed);
    }
    const std::int64_t local_step = NextLocalStep();
    const nvtx::Range step_range(nvtx::Event::kStep, local_step);
    PASSEL_ASSIGN_OR_RETURN(const std::optional<ComputedGradient> next, source_->Next(waiting_));
    if (!next) return {};
    const std::int64_t computed = MonotonicNs();
    Failpoint("worker.computed");
    PASSEL_RETURN_IF_ERROR(PlayStraggler());
    const auto examples = static_cast<double>(next->examples);
    StepReport report;
    report.local_step = local_step;
    report.loss = model_.config().loss == LossReduction::kSum ? next->batch.loss / examples
                                                              : next->batch.loss;
    report.accuracy = static_cast<double>(next->batch.correct) / examples;
    PASSEL_ASSIGN_OR_RETURN(bool finite, CheckFinite(*next));
    if (finite && waiting_ > 0) {
      PASSEL_ASSIGN_OR_RETURN(finite, AddToPush());
    }
    Increment(counters_.pull_ns, static_cast<std::uint64_t>(next->pull_ns));
    Increment(counters_.compute_ns,
              static_cast<std::uint64_t>(next->compute_ns + MonotonicNs() - computed));
    if (!finite) {
      nvtx::Mark(nvtx::Event::kGradientSkipped, local_step);
      Increment(counters_.skipped);
      // Behind batches that wait to be pushed the next life begins with the first of them.
      if (waiting_ == 0) SaveCursor(next->cursor, counters_);
      return {};
    }
    if (!sum_failed_) skips_in_a_row_ = 0;
    if (waiting_ == 0) {
      push_ = *next;
      push_steps_ = next->updated ? 1
                                  : std::min<std::int64_t>(options_.push_every,
                                                           local_step_limit_ - LocalSteps());
    }
    push_.cursor = next->cursor;
    return ++waiting_ < push_steps_ ? Keep(report) : Push(report);
  }

  // The gradient of this step waits for others to be pushed with.
  Status Keep(StepReport& report) {
    store_.SayAlive();
    report.outcome.applied = true;
    report.outcome.gradients = 0;
    report.outcome.global_step = store_.global_step();
    if (callbacks_.on_step) callbacks_.on_step(report);
    return {};
  }

  // Pushes the gradients of all steps that wait, the last of which is this one.
  Status Push(StepReport& report) {
    const int steps = std::exchange(waiting_, 0);
    sum_failed_ = false;
    skips_in_a_row_ = 0;
    const std::int64_t local_step = report.local_step;
    const Deadline deadline = Deadline::After(options_.push_limit);
    Ticket ticket = push_.ticket;
    if (!push_.updated) {
      const nvtx::Range push_range(nvtx::Event::kPush, local_step);
      PASSEL_ASSIGN_OR_RETURN(ticket, store_.Push(push_.gradient, push_.stamp, deadline));
    }
    // The store has counted one of them.
    Increment(counters_.local_steps, static_cast<std::uint64_t>(steps - 1));
    PASSEL_ASSIGN_OR_RETURN(report.outcome, AwaitOutcome(ticket, deadline, local_step));
    SayWhoNeverCame();
    SaveCursor(push_.cursor, counters_);
    counters_.loss.store(report.loss, std::memory_order_relaxed);
    counters_.accuracy.store(report.accuracy, std::memory_order_relaxed);
    counters_.last_step_ns.store(MonotonicNs(), std::memory_order_relaxed);
    if (!report.outcome.applied) {
      result_.dropped += report.outcome.gradients;
      nvtx::Mark(nvtx::Event::kGradientDropped, local_step);
    }
    result_.local_steps += steps;
    if (callbacks_.on_step) callbacks_.on_step(report);
    return EvaluateIfDue(report.outcome);
  }

  Result<PushOutcome> AwaitOutcome(Ticket ticket, Deadline deadline, std::int64_t local_step) {
    const Mode mode = store_.mode();
    if (!TraitsOf(mode).rounds && !TraitsOf(mode).bounded) return WaitFor(ticket, deadline);
    const nvtx::Range range(nvtx::Event::kWait, local_step);
    return WaitFor(ticket, deadline);
  }

  // The gradient of this step to what waits to be pushed; the last addition makes the mean of it.
  // False: the sum is not finite, so all of it is to be skipped.
  Result<bool> AddToPush() {
    const bool last = waiting_ + 1 == push_steps_;
    const bool mean = model_.config().loss == LossReduction::kMean;
    sum_->AddTo(push_.gradient, last && mean ? static_cast<float>(push_steps_) : 1.F);
    if (!last) return true;
    ComputedGradient whole = push_;
    whole.finite.reset();
    PASSEL_ASSIGN_OR_RETURN(const bool finite, CheckFinite(whole));
    if (finite) return true;
    sum_failed_ = true;
    Increment(counters_.skipped, static_cast<std::uint64_t>(std::exchange(waiting_, 0)));
    return false;
  }

  // The steps of this worker, over all its lives: what was pushed.
  std::int64_t LocalSteps() const {
    return static_cast<std::int64_t>(counters_.local_steps.load(std::memory_order_relaxed));
  }

  std::int64_t NextLocalStep() const { return LocalSteps() + waiting_ + 1; }

  Status EvaluateIfDue(const PushOutcome& outcome) {
    const std::int64_t every = options_.evaluation_steps;
    if (every == 0) return {};
    std::int64_t step = outcome.global_step;
    if (IsRoundMode(store_.mode())) {
      // A round belongs to several workers, and the one that evaluates may not see each of them.
      const std::int64_t multiple = store_.global_step() / every;
      if (multiple == evaluated_) return {};
      evaluated_ = multiple;
      if (!LeadsEvaluation()) return {};
      step = multiple * every;
    } else {
      evaluated_ = step / every;
      if (step % every != 0) return {};
    }
    PASSEL_RETURN_IF_ERROR(LookAtValuesNow());
    PASSEL_ASSIGN_OR_RETURN(const TestResult result, Evaluate());
    if (callbacks_.on_evaluation) callbacks_.on_evaluation(step, result);
    return {};
  }

  bool LeadsEvaluation() const {
    for (const Member& m : store_.membership()) {
      if (m.phase == Phase::kRunning) return m.worker == store_.worker();
    }
    return false;
  }

  // Rounds wait for all workers of the job and go on without one that was never started. Whoever
  // goes on says so, once. Looks only while somebody may still come, or have been given up.
  void SayWhoNeverCame() {
    if (all_came_ || !IsRoundMode(store_.mode())) return;
    const std::vector<Member> members = store_.membership();
    const auto running = std::count_if(members.begin(), members.end(),
                                       [](const Member& m) { return m.phase == Phase::kRunning; });
    all_came_ = true;
    for (const Member& m : members) {
      if (m.epoch > 0) continue;
      if (m.phase == Phase::kExpected) all_came_ = false;
      if (m.phase != Phase::kEvicted) continue;
      if (std::find(never_came_.begin(), never_came_.end(), m.worker) != never_came_.end())
        continue;
      never_came_.push_back(m.worker);
      LogWarning(
          "{} did not start within {:g} s (--start_wait): training goes on without it, {} of "
          "{} workers are in the rounds now",
          options_.names(m.worker), 1e-9 * static_cast<double>(options_.start_wait.count()),
          running, members.size());
    }
  }

  // If the store still gives them; else those of the last pull stay.
  Status LookAtValuesNow() {
    if (callbacks_.refresh_values) PASSEL_RETURN_IF_ERROR(callbacks_.refresh_values());
    if (Result<ParamView> view = store_.Pull(PullModeFor(options_, copy_pays_, store_.mode()));
        view.ok()) {
      layout_.Bind(*view, &params_);
    }
    return {};
  }

  // kCancelled: asked to leave meanwhile. One that takes long is told of.
  Result<TestResult> Evaluate() {
    const nvtx::Range range(nvtx::Event::kEvaluate, store_.global_step());
    const ImageSet& images = ImagesOf(data_, options_.evaluation_set);
    std::int64_t next_log_ns = MonotonicNs() + kLogEvaluationAfterNs;
    return EvaluateImages(model_, images, params_, [&](std::size_t done) -> Status {
      store_.SayAlive();
      bool leave = false;
      const Status status = callbacks_.check ? callbacks_.check(&leave) : Status();
      // After the last step there is nothing any more that a missing peer could hinder.
      if (!status.ok() && !training_ended_) return status;
      if (leave) return Cancelled("asked to leave while evaluating");
      if (MonotonicNs() >= next_log_ns) {
        next_log_ns += kLogWaitEveryNs;
        LogInfo("evaluating: {} of {} images are done", done, images.size());
      }
      return {};
    });
  }

  // In turns, so that a long delay holds up nobody who wants us to leave.
  Status PlayStraggler() {
    const Deadline end = Deadline::After(delay_);
    while (delay_.count() > 0 && !end.Expired()) {
      bool leave = false;
      if (callbacks_.check) PASSEL_RETURN_IF_ERROR(callbacks_.check(&leave));
      if (leave || store_.stopped()) return Cancelled("asked to leave while playing a straggler");
      std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(end.Remaining(), kSleepTurn));
    }
    return {};
  }

  // False: to be skipped.
  Result<bool> CheckFinite(const ComputedGradient& step) {
    std::string variable = "a variable";
    const double loss = step.batch.loss;
    // What computed the gradient may have looked; the name of the variable is only known here.
    const bool known = step.finite.has_value() && *step.finite;
    if (std::isfinite(loss) &&
        (known || (!step.updated && store_.GradientIsFinite(step.gradient, &variable)))) {
      return true;
    }
    const bool skip = options_.on_nan == OnNan::kSkip;
    if (skip && ++skips_in_a_row_ < kMaxSkipsInARow) return false;
    nvtx::Mark(nvtx::Event::kNotFinite, NextLocalStep());
    if (step.updated && std::isfinite(loss)) {
      const auto& parts = layout_.parts()[step.left_out.variable];
      return LeftOutOfUpdate(Here(), store_.variables()[parts.front()].logical,
                             step.left_out.elements);
    }
    if (skip) return NothingButSkips(Here(), skips_in_a_row_);
    return NotFiniteSoNotPushed(
        Here(), std::isfinite(loss) ? "the gradient of " + variable : std::string("the loss"));
  }

  WhereDiverged Here() const {
    return {options_.names(store_.worker()), result_.local_steps + waiting_ + 1,
            store_.global_step()};
  }

  // In turns, so that whoever is waited for gets named and the surroundings get a say.
  Result<PushOutcome> WaitFor(Ticket ticket, Deadline deadline) {
    std::int64_t next_log_ns = 0;
    for (;;) {
      Result<PushOutcome> outcome = store_.Wait(ticket, deadline.Sooner(kWaitTurn));
      if (outcome.ok() || outcome.status().code() != Code::kDeadlineExceeded) return outcome;
      bool leave = false;
      if (callbacks_.check) PASSEL_RETURN_IF_ERROR(callbacks_.check(&leave));
      // The others may apply the round at any time: it counts our gradient.
      if (leave && callbacks_.before_leave && IsRoundMode(store_.mode())) {
        if (!last_round_) last_round_ = Deadline::After(kLastRoundLimit);
        leave = last_round_->Expired();
      }
      if (leave) return Cancelled("asked to leave while waiting for others");
      // Who is waited for may be done with all its steps, and evaluating.
      if (store_.global_step() >= options_.train_steps) return Cancelled("all steps are done");
      if (deadline.Expired()) return outcome;
      const std::int64_t now = MonotonicNs();
      if (next_log_ns == 0) next_log_ns = now + kLogWaitEveryNs;
      if (now < next_log_ns) continue;
      next_log_ns += kLogWaitEveryNs;
      LogInfo("still waiting for {} at global step {}", ListOf(store_.WaitingFor(), options_.names),
              store_.global_step());
    }
  }

  Result<WorkerResult> Leave(LeaveReason reason) {
    result_.reason = reason;
    PASSEL_ASSIGN_OR_RETURN(const int ended, source_->Drain());
    if (ended > 0) {
      result_.local_steps += ended;
      result_.global_step = store_.global_step();
    }
    training_ended_ = true;
    if (callbacks_.on_training_end) callbacks_.on_training_end();
    if (reason != LeaveReason::kAsked) {
      PASSEL_RETURN_IF_ERROR(LookAtTheEnd());
    } else if (callbacks_.refresh_values) {
      PASSEL_RETURN_IF_ERROR(callbacks_.refresh_values());
    }
    if (callbacks_.before_leave) PASSEL_RETURN_IF_ERROR(callbacks_.before_leave());
    Failpoint("worker.before_leave");
    const bool for_now = result_.reason == LeaveReason::kAsked && options_.comes_back;
    PASSEL_RETURN_IF_ERROR(for_now ? store_.LeaveForNow() : store_.Leave());
    Failpoint("worker.left");
    return result_;
  }

  // Whether the last update left numbers, and how good they are.
  Status LookAtTheEnd() {
    PASSEL_RETURN_IF_ERROR(LookAtValuesNow());
    if (params_.empty()) return {};  // stopped before it could look
    if (const VariableSpec* spoilt = FindNonFinite(model_.variables(), params_)) {
      return SayDivergedAtTheEnd("the variable " + spoilt->name);
    }
    const EvaluationSet set = options_.evaluation_set;
    if (!options_.evaluate_at_end || ImagesOf(data_, set).size() == 0) return {};
    const Result<TestResult> result = Evaluate();
    if (result.status().code() == Code::kCancelled) {
      if (result_.reason == LeaveReason::kStepsReached) result_.reason = LeaveReason::kAsked;
      return {};
    }
    if (!result.ok()) return result.status();
    const bool test = set == EvaluationSet::kTest;
    if (!std::isfinite(result->loss)) {
      return SayDivergedAtTheEnd(
          fmt::format("the loss on the {} images", test ? "test" : "validation"));
    }
    result_.evaluation = *result;
    if (test) counters_.final_accuracy.store(result->accuracy, std::memory_order_relaxed);
    return {};
  }

  Status SayDivergedAtTheEnd(const std::string& what) const {
    nvtx::Mark(nvtx::Event::kNotFinite, store_.global_step());
    return NotFiniteAtTheEnd(Here(), what);
  }

  const WorkerOptions& options_;
  const WorkerCallbacks& callbacks_;
  Model& model_;
  const ModelLayout& layout_;
  const DataSplit& data_;
  ParameterStore& store_;
  WorkerCounters& counters_;
  BatchSource batches_;
  const std::int64_t local_step_limit_;
  const bool copy_pays_;
  std::int64_t evaluated_;  // round modes: multiples of evaluation_steps seen so far
  std::vector<std::vector<RowPart>> params_;  // of the last pull
  std::optional<GradientSum> sum_;            // if push_every > 1
  std::unique_ptr<GradientSource> source_;
  int waiting_ = 0;              // local steps whose gradients are summed up in push_.gradient
  std::int64_t push_steps_ = 1;  // that so many will be
  ComputedGradient push_;        // of the first of them, with the cursor behind the last
  std::chrono::milliseconds delay_{0};
  int skips_in_a_row_ = 0;
  std::optional<Deadline> last_round_;  // told to leave in it
  bool training_ended_ = false;
  bool sum_failed_ = false;      // since the last push: finite gradients alone end no row of skips
  bool all_came_ = false;        // or it was said who never will
  std::vector<int> never_came_;  // of whom it was said
  WorkerResult result_;
};

}  // namespace

std::int64_t StepsPerEpoch(const WorkerOptions& options, std::size_t train_examples, int worker) {
  return SamplerFor(options, train_examples, worker).ShardSize() / options.batch_size;
}

std::int64_t LocalStepLimit(const WorkerOptions& options, std::size_t train_examples, int worker) {
  if (options.epochs == kNoStepLimit) return options.local_steps;
  const std::int64_t steps = StepsPerEpoch(options, train_examples, worker);
  const std::int64_t of_epochs = options.epochs > kNoStepLimit / std::max<std::int64_t>(1, steps)
                                     ? kNoStepLimit
                                     : options.epochs * steps;
  return std::min(options.local_steps, of_epochs);
}

Result<WorkerResult> RunWorker(const WorkerOptions& options, const WorkerCallbacks& callbacks,
                               Model& model, const ModelLayout& layout, const DataSplit& data,
                               ParameterStore& store, const EngineUse& engine) {
  const FlushDenormals flush;  // this thread computes and applies
  PASSEL_ASSIGN_OR_RETURN(BatchSource batches, BatchSource::Make(options, data.train.size(),
                                                                 store.counters(), store.worker()));
  return Worker(options, callbacks, model, layout, data, store, std::move(batches), engine).Run();
}

}  // namespace passel

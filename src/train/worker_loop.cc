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
#include "train/absent_workers.h"
#include "train/batch_source.h"
#include "train/divergence.h"
#include "train/gradient_source.h"
#include "train/gradient_sum.h"
#include "train/worker_evaluation.h"

namespace passel {
namespace {

constexpr std::chrono::seconds kWaitTurn{1};
// Of who shows its values to others now and then, and is to do it while all wait, too.
constexpr std::chrono::milliseconds kWaitTurnOfShadow{50};
constexpr std::int64_t kLogWaitEveryNs = 10'000'000'000;
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
        store_(store),
        counters_(store.counters()),
        batches_(std::move(batches)),
        local_step_limit_(LocalStepLimit(options, data.train.size(), store.worker())),
        engine_computes_(engine.engine != nullptr),
        // An engine copies the values itself.
        copy_pays_(!engine_computes_ && CopyPays(store)),
        context_(store, options.names(store.worker()), store.worker() == options.names.chief,
                 [this](std::chrono::nanoseconds time) { return PauseForHook(time); }),
        wait_turn_(callbacks.refresh_values ? std::chrono::nanoseconds(kWaitTurnOfShadow)
                                            : std::chrono::nanoseconds(kWaitTurn)),
        evaluation_({options, callbacks, model, layout, data, store, copy_pays_, &params_}),
        absent_(options, store) {
    for (const Hook* hook : callbacks.hooks) reads_at_end_ |= hook->ReadsValuesAtEnd();
    for (const WorkerOptions::SlowWorker& slow : options.slow_workers) {
      if (slow.index == store.worker()) delay_ += slow.delay;
    }
    const GradientSourceParts parts{
        options_,   callbacks_,
        layout_,    store_,
        batches_,   {data.train.images.data(), data.train.labels.data(), data.train.size()},
        copy_pays_, &params_};
    PASSEL_CHECK(options.push_every >= 1 && options.push_every <= kMaxPushEvery &&
                     (options.push_every == 1 || !engine_computes_),
                 "push_every is out of range, or an engine would have to add up");
    if (options.push_every > 1) sum_.emplace(store.variables());
    EngineUse use = engine;
    use.update_in_step &= delay_.count() == 0;
    source_ = engine_computes_
                  ? MakeEngineGradients(parts, use)
                  : MakeDirectGradients(parts, model_, sum_ ? sum_->addend() : GradientBuffer());
  }

  Result<WorkerResult> Run() {
    PASSEL_RETURN_IF_ERROR(EachHook([](Hook& hook) { return hook.Begin(); }));
    PASSEL_RETURN_IF_ERROR(EachHook([&](Hook& hook) { return hook.AfterCreateSession(context_); }));
    batches_.SetFeed(context_.feed());
    for (;;) {
      bool leave = false;
      if (callbacks_.check) PASSEL_RETURN_IF_ERROR(callbacks_.check(&leave));
      result_.global_step = store_.global_step();
      if (result_.global_step >= options_.train_steps || NextLocalStep() > local_step_limit_) {
        return Leave(LeaveReason::kStepsReached);
      }
      if (store_.stopped()) return Leave(LeaveReason::kStopped);
      if (leave) return Leave(LeaveReason::kAsked);
      if (context_.stop_requested()) return Leave(LeaveReason::kHook);
      const Status status = Step();
      // Stop() may come at any point of a step; what was pushed stands.
      if (status.code() == Code::kCancelled) continue;
      if (status.code() == Code::kAborted) nvtx::Mark(nvtx::Event::kFencedOff, store_.worker());
      if (!status.ok()) return status;
    }
  }

 private:
  template <typename Call>
  Status EachHook(const Call& call) {
    for (Hook* hook : callbacks_.hooks) PASSEL_RETURN_IF_ERROR(call(*hook));
    return {};
  }

  Status Step() {
    context_.BeginsStep(result_.global_step, NextLocalStep() - 1);
    PASSEL_RETURN_IF_ERROR(EachHook([&](Hook& hook) { return hook.BeforeRun(context_); }));
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
      report.skipped = true;
      report.outcome.global_step = store_.global_step();
      return Made(report);
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
    return Made(report);
  }

  Status Made(const StepReport& report) {
    context_.Made(report, params_);
    return EachHook([&](Hook& hook) { return hook.AfterRun(context_); });
  }

  // Pushes the gradients of all steps that wait, the last of which is this one.
  Status Push(StepReport& report) {
    const int steps = std::exchange(waiting_, 0);
    sum_failed_ = false;
    skips_in_a_row_ = 0;
    const std::int64_t local_step = report.local_step;
    const Deadline deadline = Deadline::After(options_.push_limit);
    Ticket ticket = push_.ticket;
    if (!engine_computes_) {
      PASSEL_RETURN_IF_ERROR(
          EachHook([&](Hook& hook) { return hook.BeforePush(context_, push_.gradient); }));
    }
    if (!push_.updated) {
      const nvtx::Range push_range(nvtx::Event::kPush, local_step);
      store_.SayCursor(push_.cursor.epochs_completed, push_.cursor.index);
      PASSEL_ASSIGN_OR_RETURN(ticket, store_.Push(push_.gradient, push_.stamp, deadline));
    }
    // The store has counted one of them.
    Increment(counters_.local_steps, static_cast<std::uint64_t>(steps - 1));
    PASSEL_ASSIGN_OR_RETURN(report.outcome, AwaitOutcome(ticket, deadline, local_step));
    absent_.LookAfterPush();
    counters_.not_finite_at.store(0, std::memory_order_relaxed);
    counters_.loss.store(report.loss, std::memory_order_relaxed);
    counters_.accuracy.store(report.accuracy, std::memory_order_relaxed);
    counters_.last_step_ns.store(MonotonicNs(), std::memory_order_relaxed);
    if (!report.outcome.applied) {
      result_.dropped += report.outcome.gradients;
      nvtx::Mark(nvtx::Event::kGradientDropped, local_step);
    }
    result_.local_steps += steps;
    PASSEL_RETURN_IF_ERROR(Made(report));
    return evaluation_.AfterPush(context_);
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

  Status PlayStraggler() { return delay_.count() > 0 ? Pause(delay_) : Status(); }

  // In turns, so that a long delay holds up nobody who wants us to leave.
  Status Pause(std::chrono::nanoseconds time) {
    const Deadline end = Deadline::After(time);
    while (!end.Expired()) {
      bool leave = false;
      if (callbacks_.check) PASSEL_RETURN_IF_ERROR(callbacks_.check(&leave));
      if (leave || store_.stopped()) return Cancelled("asked to leave in a pause");
      std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(end.Remaining(), kSleepTurn));
    }
    return {};
  }

  // Unlike a straggler it does not look as if it stood still.
  Status PauseForHook(std::chrono::nanoseconds time) {
    const Deadline end = Deadline::After(time);
    do {
      store_.SayAlive();
      if (store_.global_step() >= options_.train_steps) return Cancelled("all steps are done");
      PASSEL_RETURN_IF_ERROR(Pause(std::min<std::chrono::nanoseconds>(end.Remaining(), kWaitTurn)));
    } while (!end.Expired());
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
    // Release: who sees values that this worker could not use sees that it could not.
    counters_.not_finite_at.store(store_.global_step() + 1, std::memory_order_release);
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
      Result<PushOutcome> outcome = store_.Wait(ticket, deadline.Sooner(wait_turn_));
      if (outcome.ok() || outcome.status().code() != Code::kDeadlineExceeded) return outcome;
      bool leave = false;
      if (callbacks_.check) PASSEL_RETURN_IF_ERROR(callbacks_.check(&leave));
      // The others may apply the round at any time: it counts our gradient.
      if (leave && reads_at_end_ && IsRoundMode(store_.mode())) {
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
      // None: who knows has not said so.
      const std::vector<Member> waiting_for = store_.WaitingFor();
      LogInfo("still waiting for {} at global step {}",
              waiting_for.empty() ? "ps/0" : ListOf(waiting_for, options_.names),
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
    // One that is asked to leave may leave values that are not finite to others.
    if (reason != LeaveReason::kAsked) {
      PASSEL_RETURN_IF_ERROR(evaluation_.CheckValues());
    } else if (callbacks_.refresh_values) {
      PASSEL_RETURN_IF_ERROR(callbacks_.refresh_values());
    }
    context_.BeginsStep(result_.global_step, LocalSteps());
    PASSEL_RETURN_IF_ERROR(EachHook([&](Hook& hook) { return hook.End(context_); }));
    if (reason != LeaveReason::kAsked) {
      PASSEL_RETURN_IF_ERROR(evaluation_.AtEnd(context_, &result_));
    }
    Failpoint("worker.before_leave");
    const bool for_now = result_.reason == LeaveReason::kAsked && options_.comes_back;
    PASSEL_RETURN_IF_ERROR(for_now ? store_.LeaveForNow() : store_.Leave());
    Failpoint("worker.left");
    return result_;
  }

  const WorkerOptions& options_;
  const WorkerCallbacks& callbacks_;
  Model& model_;
  const ModelLayout& layout_;
  ParameterStore& store_;
  WorkerCounters& counters_;
  BatchSource batches_;
  const std::int64_t local_step_limit_;
  const bool engine_computes_;
  const bool copy_pays_;
  std::vector<std::vector<RowPart>> params_;  // of the last pull
  HookContext context_;
  const std::chrono::nanoseconds wait_turn_;
  WorkerEvaluation evaluation_;
  std::optional<GradientSum> sum_;  // if push_every > 1
  std::unique_ptr<GradientSource> source_;
  int waiting_ = 0;              // local steps whose gradients are summed up in push_.gradient
  std::int64_t push_steps_ = 1;  // that so many will be
  ComputedGradient push_;        // of the first of them, with the cursor behind the last
  std::chrono::milliseconds delay_{0};
  int skips_in_a_row_ = 0;
  std::optional<Deadline> last_round_;  // told to leave in it
  bool reads_at_end_ = false;           // a hook does
  bool sum_failed_ = false;  // since the last push: finite gradients alone end no row of skips
  AbsentWorkers absent_;
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

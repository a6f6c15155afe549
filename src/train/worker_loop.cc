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
#include "base/log.h"
#include "base/nvtx.h"
#include "data/samplers.h"
#include "store/histogram.h"

namespace passel {
namespace {

constexpr std::chrono::seconds kWaitTurn{1};
constexpr std::int64_t kLogWaitEveryNs = 10'000'000'000;
constexpr std::chrono::milliseconds kSleepTurn{20};

SamplerOptions SamplerFor(const WorkerOptions& options, std::size_t train_examples, int worker) {
  SamplerOptions sampler;
  sampler.num_examples = static_cast<std::uint32_t>(train_examples);
  sampler.seed = options.seed;
  sampler.worker = static_cast<std::uint32_t>(worker);
  if (options.shard_data) {
    sampler.num_shards = static_cast<std::uint32_t>(options.num_workers);
    sampler.shard = static_cast<std::uint32_t>(worker);
  }
  return sampler;
}

// Either sampler behind one pair of calls; the cursor is two integers in the store's counters.
class BatchSource {
 public:
  static Result<BatchSource> Make(const WorkerOptions& options, const DataSplit& data,
                                  WorkerCounters& counters, int worker) {
    const SamplerOptions sampler = SamplerFor(options, data.train.size(), worker);
    if (options.batch_size < 1 || options.batch_size > sampler.ShardSize()) {
      return InvalidArgument(
          fmt::format("a batch has 1 to {} examples here, not {}: change --batch_size",
                      sampler.ShardSize(), options.batch_size));
    }
    BatchSource source(counters, options.batch_size);
    const std::uint64_t epochs = counters.cursor_epochs.load(std::memory_order_relaxed);
    const std::uint64_t index = counters.cursor_index.load(std::memory_order_relaxed);
    if (options.sampler == Sampler::kRandom) {
      PASSEL_ASSIGN_OR_RETURN(RandomBatchSampler random,
                              RandomBatchSampler::Create(sampler, options.batch_size));
      source.random_ = std::make_unique<RandomBatchSampler>(std::move(random));
      source.random_->Restore(index);
    } else {
      source.next_batch_ = std::make_unique<NextBatchSampler>(sampler);
      source.next_batch_->Restore({epochs, index});
    }
    return source;
  }

  std::span<const std::uint32_t> Next() {
    if (random_) {
      random_->Next(indices_);
    } else {
      next_batch_->Next(indices_);
    }
    return indices_;
  }

  // After the batch has been pushed.
  void SaveCursor() {
    const NextBatchSampler::Cursor cursor =
        random_ ? NextBatchSampler::Cursor{0, random_->cursor()} : next_batch_->cursor();
    counters_->cursor_epochs.store(cursor.epochs_completed, std::memory_order_relaxed);
    counters_->cursor_index.store(cursor.index, std::memory_order_relaxed);
  }

 private:
  BatchSource(WorkerCounters& counters, std::size_t batch_size)
      : counters_(&counters), indices_(batch_size) {}
  WorkerCounters* counters_;
  std::vector<std::uint32_t> indices_;  // [batch_size]
  std::unique_ptr<NextBatchSampler> next_batch_;
  std::unique_ptr<RandomBatchSampler> random_;
};

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
         BatchSource source)
      : options_(options),
        callbacks_(callbacks),
        model_(model),
        layout_(layout),
        data_(data),
        store_(store),
        counters_(store.counters()),
        source_(std::move(source)),
        train_{data.train.images.data(), data.train.labels.data(), data.train.size()},
        local_step_limit_(LocalStepLimit(options, data.train.size(), store.worker())),
        evaluated_(options.evaluation_steps > 0 ? store.global_step() / options.evaluation_steps
                                                : 0) {
    for (const WorkerOptions::SlowWorker& slow : options.slow_workers) {
      if (slow.index == store.worker()) delay_ += slow.delay;
    }
  }

  Result<WorkerResult> Run() {
    for (;;) {
      bool leave = false;
      if (callbacks_.check) PASSEL_RETURN_IF_ERROR(callbacks_.check(&leave));
      result_.global_step = store_.global_step();
      if (result_.global_step >= options_.train_steps || LocalSteps() >= local_step_limit_) {
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
    const std::int64_t local_step = LocalSteps() + 1;
    const nvtx::Range step_range(nvtx::Event::kStep, local_step);
    nvtx::Range pull_range(nvtx::Event::kPull, local_step);
    PASSEL_ASSIGN_OR_RETURN(const ParamView view,
                            store_.Pull(Selection::Everything(), options_.pull));
    layout_.Bind(view, &params_);
    pull_range.Close();
    // The last round was completed since we looked: nobody comes to the next one.
    if (IsRoundMode(store_.mode()) &&
        view.version() >= static_cast<Version>(options_.train_steps)) {
      return {};
    }
    const std::int64_t pulled = MonotonicNs();

    nvtx::Range compute_range(nvtx::Event::kCompute, local_step);
    const GradientBuffer gradient = store_.LendGradient();
    layout_.Bind(gradient, &gradients_);
    const Batch batch{train_, source_.Next()};
    PASSEL_ASSIGN_OR_RETURN(const BatchResult computed,
                            callbacks_.compute
                                ? callbacks_.compute(batch, params_, gradients_)
                                : model_.LossAndGradient(batch, params_, gradients_));
    Failpoint("worker.computed");
    PASSEL_RETURN_IF_ERROR(PlayStraggler());
    const auto batch_size = static_cast<double>(batch.indices.size());
    StepReport report;
    report.loss =
        model_.config().loss == LossReduction::kSum ? computed.loss / batch_size : computed.loss;
    report.accuracy = static_cast<double>(computed.correct) / batch_size;
    PASSEL_ASSIGN_OR_RETURN(const bool finite, CheckFinite(computed.loss, gradient));
    compute_range.Close();
    const std::int64_t done = MonotonicNs();
    Increment(counters_.pull_ns, static_cast<std::uint64_t>(pulled - begin));
    Increment(counters_.compute_ns, static_cast<std::uint64_t>(done - pulled));
    if (!finite) {
      nvtx::Mark(nvtx::Event::kGradientSkipped, local_step);
      Increment(counters_.skipped);
      source_.SaveCursor();
      return {};
    }
    skips_in_a_row_ = 0;

    const Deadline deadline = Deadline::After(options_.push_limit);
    nvtx::Range push_range(nvtx::Event::kPush, local_step);
    PASSEL_ASSIGN_OR_RETURN(const Ticket ticket, store_.Push(gradient, view.stamp(), deadline));
    push_range.Close();
    std::optional<nvtx::Range> wait_range;
    if (WaitsForOthers(store_.mode())) wait_range.emplace(nvtx::Event::kWait, local_step);
    PASSEL_ASSIGN_OR_RETURN(report.outcome, WaitFor(ticket, deadline));
    wait_range.reset();
    SayWhoNeverCame();
    source_.SaveCursor();
    counters_.loss.store(report.loss, std::memory_order_relaxed);
    counters_.accuracy.store(report.accuracy, std::memory_order_relaxed);
    counters_.last_step_ns.store(MonotonicNs(), std::memory_order_relaxed);
    if (!report.outcome.applied) {
      result_.dropped += report.outcome.gradients;
      nvtx::Mark(nvtx::Event::kGradientDropped, local_step);
    }
    ++result_.local_steps;
    report.local_step = LocalSteps();
    if (callbacks_.on_step) callbacks_.on_step(report);
    return EvaluateIfDue(report.outcome);
  }

  static bool WaitsForOthers(Mode mode) { return IsRoundMode(mode) || mode == Mode::kSsp; }

  std::int64_t LocalSteps() const {
    return static_cast<std::int64_t>(counters_.local_steps.load(std::memory_order_relaxed));
  }

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
    LookAtValuesNow();
    PASSEL_ASSIGN_OR_RETURN(const TestResult result, Evaluate(options_.evaluation_set));
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
          options_.names(m.worker), 1e-9 * static_cast<double>(options_.start_limit.count()),
          running, members.size());
    }
  }

  // If the store still gives them; else those of the last pull stay.
  void LookAtValuesNow() {
    if (Result<ParamView> view = store_.Pull(Selection::Everything(), options_.pull); view.ok()) {
      layout_.Bind(*view, &params_);
    }
  }

  Result<TestResult> Evaluate(EvaluationSet set) {
    const nvtx::Range range(nvtx::Event::kEvaluate, store_.global_step());
    return EvaluateImages(model_, ImagesOf(data_, set), params_);
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
  Result<bool> CheckFinite(double loss, const GradientBuffer& gradient) {
    std::string variable = "the loss";
    if (std::isfinite(loss) && store_.GradientIsFinite(gradient, &variable)) return true;
    const bool skip = options_.on_nan == OnNan::kSkip;
    if (skip && ++skips_in_a_row_ < kMaxSkipsInARow) return false;
    nvtx::Mark(nvtx::Event::kNotFinite, LocalSteps() + 1);
    const std::string what = std::isfinite(loss) ? "the gradient of " + variable : "the loss";
    if (skip) {
      return InvalidArgument(
          fmt::format("{}: {} gradients in a row were not finite, the last at global step {}, so "
                      "training cannot go on: lower --learning_rate",
                      options_.names(store_.worker()), skips_in_a_row_, store_.global_step()));
    }
    return InvalidArgument(fmt::format(
        "{}: {} is not finite at local step {} (global step {}), so it was not pushed: "
        "lower --learning_rate (or use --on_nan skip)",
        options_.names(store_.worker()), what, result_.local_steps + 1, store_.global_step()));
  }

  // In turns, so that whoever is waited for gets named and the surroundings get a say.
  Result<PushOutcome> WaitFor(Ticket ticket, Deadline deadline) {
    std::int64_t next_log_ns = 0;
    for (;;) {
      Result<PushOutcome> outcome = store_.Wait(ticket, deadline.Sooner(kWaitTurn));
      if (outcome.ok() || outcome.status().code() != Code::kDeadlineExceeded) return outcome;
      bool leave = false;
      if (callbacks_.check) PASSEL_RETURN_IF_ERROR(callbacks_.check(&leave));
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
    if (callbacks_.on_training_end) callbacks_.on_training_end();
    if (reason != LeaveReason::kAsked) PASSEL_RETURN_IF_ERROR(EvaluateAtTheEnd());
    Failpoint("worker.before_leave");
    PASSEL_RETURN_IF_ERROR(store_.Leave());
    return result_;
  }

  Status EvaluateAtTheEnd() {
    LookAtValuesNow();
    if (params_.empty()) return {};  // stopped before it could look
    if (data_.test.size() > 0) {
      PASSEL_ASSIGN_OR_RETURN(const TestResult test, Evaluate(EvaluationSet::kTest));
      counters_.final_accuracy.store(test.accuracy, std::memory_order_relaxed);
      if (options_.evaluation_set == EvaluationSet::kTest) result_.evaluation = test;
    }
    if (options_.evaluation_set == EvaluationSet::kValidation && data_.validation.size() > 0) {
      PASSEL_ASSIGN_OR_RETURN(result_.evaluation, Evaluate(EvaluationSet::kValidation));
    }
    return {};
  }

  const WorkerOptions& options_;
  const WorkerCallbacks& callbacks_;
  Model& model_;
  const ModelLayout& layout_;
  const DataSplit& data_;
  ParameterStore& store_;
  WorkerCounters& counters_;
  BatchSource source_;
  const Examples train_;
  const std::int64_t local_step_limit_;
  std::int64_t evaluated_;  // round modes: multiples of evaluation_steps seen so far
  std::vector<std::vector<RowPart>> params_;
  std::vector<std::vector<MutableRowPart>> gradients_;
  std::chrono::milliseconds delay_{0};
  int skips_in_a_row_ = 0;
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
                               ParameterStore& store) {
  const FlushDenormals flush;  // this thread computes and applies
  PASSEL_ASSIGN_OR_RETURN(BatchSource source,
                          BatchSource::Make(options, data, store.counters(), store.worker()));
  return Worker(options, callbacks, model, layout, data, store, std::move(source)).Run();
}

}  // namespace passel

#include "train/hooks.h"

#include <fmt/core.h>

#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace passel {
namespace {

constexpr int kLooksBeforeWarning = 20;
constexpr std::int64_t kStepsBetweenWaitLines = 1000;
constexpr std::chrono::milliseconds kWaiterTurn{500};

LineFunction OrLog(LineFunction write) {
  if (write) return write;
  return [](std::string_view line) { LogInfo("{}", line); };
}

class StopAtStep final : public Hook {
 public:
  StopAtStep(std::optional<std::int64_t> num_steps, std::optional<std::int64_t> last_step)
      : num_steps_(num_steps), last_step_(last_step) {}

  Status AfterCreateSession(HookContext& context) override {
    const std::int64_t now = context.store().global_step();
    if (!last_step_) last_step_ = now + *num_steps_;
    if (now < *last_step_) return {};
    LogInfo("The global step is {} already, and training is to stop at {}: nothing is left to do",
            now, *last_step_);
    context.RequestStop();
    return {};
  }

  Status AfterRun(HookContext& context) override {
    if (context.global_step() >= *last_step_) context.RequestStop();
    return {};
  }

 private:
  const std::optional<std::int64_t> num_steps_;
  std::optional<std::int64_t> last_step_;
};

class StepCounter final : public Hook {
 public:
  StepCounter(StepCounterOptions options, const StepsTimer& timer)
      : write_(OrLog(std::move(options.write))),
        on_rate_(std::move(options.on_rate)),
        timer_(timer) {}

  Status AfterRun(HookContext& context) override {
    const std::int64_t step = context.global_step();
    if (timer_.IsDue(step)) {
      const std::optional<StepsTimer::Elapsed> passed = timer_.Fire(step);
      if (passed && passed->seconds > 0) {
        Tell(step, static_cast<double>(passed->steps) / passed->seconds);
      }
    }
    // A gradient that waits for others to be pushed with changes nothing yet.
    if (context.step().outcome.gradients > 0) LookWhetherItRises(step);
    return {};
  }

 private:
  void Tell(std::int64_t step, double rate) {
    write_(fmt::format("global_step/sec: {:g}", rate));
    if (on_rate_) on_rate_(step, rate);
  }

  void LookWhetherItRises(std::int64_t step) {
    const std::int64_t before = std::exchange(last_step_, step);
    if (step != before) {
      unchanged_ = 0;
    } else if (++unchanged_ % kLooksBeforeWarning == 0) {
      LogWarning(
          "It seems that global step has not been increased. Current value (could be stable): {} "
          "vs previous value: {}. The last {} gradients of this worker changed nothing: see "
          "dropped and skipped in its status",
          step, before, unchanged_);
    }
  }

  const LineFunction write_;
  const std::function<void(std::int64_t, double)> on_rate_;
  StepsTimer timer_;
  std::int64_t last_step_ = -1;
  std::int64_t unchanged_ = 0;
};

class Logging final : public Hook {
 public:
  /// `timer`: none, only at the end.
  Logging(LoggingOptions options, std::optional<StepsTimer> timer)
      : values_(std::move(options.values)),
        at_end_(options.at_end),
        write_(OrLog(std::move(options.write))),
        timer_(timer) {}

  Status AfterRun(HookContext& context) override {
    if (timer_ && timer_->IsDue(iterations_)) {
      const std::optional<StepsTimer::Elapsed> passed = timer_->Fire(iterations_);
      write_(passed ? fmt::format("{} ({:.3f} sec)", Text(context), passed->seconds)
                    : Text(context));
    }
    ++iterations_;
    return {};
  }

  Status End(HookContext& context) override {
    if (at_end_) write_(Text(context));
    return {};
  }

 private:
  std::string Text(const HookContext& context) const {
    std::string text;
    for (const LoggedValue& logged : values_) {
      text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", logged.tag, logged.value(context));
    }
    return text;
  }

  const std::vector<LoggedValue> values_;
  const bool at_end_;
  const LineFunction write_;
  std::optional<StepsTimer> timer_;
  std::int64_t iterations_ = 0;  // of this worker, in this life
};

class NanGuard final : public Hook {
 public:
  explicit NanGuard(bool fail) : fail_(fail) {}

  Status AfterRun(HookContext& context) override {
    const StepReport& step = context.step();
    if (!std::isnan(step.loss) && !step.skipped) return {};
    const bool loss = !std::isfinite(step.loss);
    const std::string what = loss ? fmt::format("Model diverged with loss = {}.", Name(step.loss))
                                  : "Model diverged with a gradient that is not finite.";
    if (!fail_) {
      LogWarning("{}", what);
      context.RequestStop();
      return {};
    }
    LogError("{}", what);
    return Diverged(
        fmt::format("{}: {} during training, at local step {} (global step {}): lower "
                    "--learning_rate",
                    context.task(), loss ? Name(step.loss) + " loss" : "such a gradient",
                    step.local_step, context.global_step()));
  }

 private:
  static std::string Name(double loss) { return std::isnan(loss) ? "NaN" : "infinite"; }

  const bool fail_;
};

class FinalOps final : public Hook {
 public:
  explicit FinalOps(std::function<Status(HookContext&)> ops) : ops_(std::move(ops)) {}
  Status End(HookContext& context) override { return ops_(context); }
  bool ReadsValuesAtEnd() const override { return true; }

 private:
  const std::function<Status(HookContext&)> ops_;
};

class GlobalStepWaiter final : public Hook {
 public:
  explicit GlobalStepWaiter(std::int64_t step) : step_(step) {}

  Status BeforeRun(HookContext& context) override {
    if (begun_) return {};
    std::int64_t told = 0;
    if (step_ > 0) LogInfo("Waiting for global step {} before starting training.", step_);
    for (;;) {
      const std::int64_t now = context.store().global_step();
      if (now >= step_) break;
      if (now - told > kStepsBetweenWaitLines) {
        told = now;
        LogInfo("Waiting for global step {} before starting training. Current step is {}.", step_,
                now);
      }
      PASSEL_RETURN_IF_ERROR(context.Pause(kWaiterTurn));
    }
    begun_ = true;
    return {};
  }

 private:
  const std::int64_t step_;
  bool begun_ = false;
};

class Feed final : public Hook {
 public:
  explicit Feed(FeedFunction feed) : feed_(std::move(feed)) {}
  Status AfterCreateSession(HookContext& context) override { return context.SetFeed(feed_); }

 private:
  const FeedFunction feed_;
};

class CheckpointSaver final : public Hook {
 public:
  CheckpointSaver(CheckpointSaverOptions options, const StepsTimer& timer)
      : path_(std::move(options.path)),
        save_(std::move(options.save)),
        listeners_(std::move(options.listeners)),
        timer_(timer) {}

  Status Begin() override {
    for (CheckpointListener* listener : listeners_) listener->Begin();
    return {};
  }
  Status AfterCreateSession(HookContext& context) override { return Save(context); }
  Status AfterRun(HookContext& context) override {
    return timer_.IsDue(context.global_step()) ? Save(context) : Status();
  }
  Status End(HookContext& context) override {
    const std::int64_t step = context.store().global_step();
    if (step != timer_.last_step()) PASSEL_RETURN_IF_ERROR(Save(context));
    for (CheckpointListener* listener : listeners_) listener->End(step);
    return {};
  }
  bool ReadsValuesAtEnd() const override { return true; }

 private:
  Status Save(HookContext& context) {
    const std::int64_t step = context.store().global_step();
    timer_.Fire(step);
    for (CheckpointListener* listener : listeners_) listener->BeforeSave(step);
    LogInfo("Saving checkpoints for {} into {}.", step, path_);
    PASSEL_RETURN_IF_ERROR(save_(step));
    for (CheckpointListener* listener : listeners_) {
      if (!listener->AfterSave(step)) continue;
      LogInfo("A listener of checkpoints requested that training be stopped, at global step {}",
              step);
      context.RequestStop();
    }
    return {};
  }

  const std::string path_;
  const std::function<Status(std::int64_t)> save_;
  const std::vector<CheckpointListener*> listeners_;
  StepsTimer timer_;
};

class SummarySaver final : public Hook {
 public:
  SummarySaver(SummarySaverOptions options, const StepsTimer& timer)
      : options_(std::move(options)), timer_(timer) {}

  Status AfterRun(HookContext& context) override {
    const std::int64_t step = context.global_step();
    if (!timer_.IsDue(step)) return {};
    const bool first = !timer_.Fire(step).has_value();
    if (first && options_.start) PASSEL_RETURN_IF_ERROR(options_.start(step));
    return options_.write(context);
  }
  Status End(HookContext&) override { return options_.flush ? options_.flush() : Status(); }

 private:
  const SummarySaverOptions options_;
  StepsTimer timer_;
};

}  // namespace

Result<std::unique_ptr<Hook>> MakeStopAtStep(std::optional<std::int64_t> num_steps,
                                             std::optional<std::int64_t> last_step) {
  if (!num_steps && !last_step) {
    return InvalidArgument("One of num_steps or last_step must be specified.");
  }
  if (num_steps && last_step) {
    return InvalidArgument("Only one of num_steps or last_step can be specified.");
  }
  if (num_steps.value_or(0) < 0 || last_step.value_or(0) < 0) {
    return InvalidArgument(fmt::format("training cannot stop at or after {} steps: use 0 or more",
                                       num_steps ? *num_steps : *last_step));
  }
  return std::unique_ptr<Hook>(std::make_unique<StopAtStep>(num_steps, last_step));
}

Result<std::unique_ptr<Hook>> MakeStepCounter(StepCounterOptions options) {
  PASSEL_ASSIGN_OR_RETURN(const StepsTimer timer, StepsTimer::Make(options.every));
  return std::unique_ptr<Hook>(std::make_unique<StepCounter>(std::move(options), timer));
}

Result<std::unique_ptr<Hook>> MakeLogging(LoggingOptions options) {
  if (options.every.steps < 0) {
    return InvalidArgument(fmt::format("invalid every_n_iter={}.", options.every.steps));
  }
  std::optional<StepsTimer> timer;
  const bool none = options.every.steps == 0 && options.every.time.count() == 0;
  if (!none || !options.at_end) {
    const Result<StepsTimer> made = StepsTimer::Make(options.every);
    if (!made.ok()) {
      return InvalidArgument(
          "either at_end and/or exactly one of every_n_iter and every_n_secs must be provided.");
    }
    timer = *made;
  }
  return std::unique_ptr<Hook>(std::make_unique<Logging>(std::move(options), timer));
}

std::unique_ptr<Hook> MakeNanGuard(bool fail) { return std::make_unique<NanGuard>(fail); }

std::unique_ptr<Hook> MakeFinalOps(std::function<Status(HookContext&)> ops) {
  PASSEL_CHECK(ops != nullptr, "something is to be done");
  return std::make_unique<FinalOps>(std::move(ops));
}

std::unique_ptr<Hook> MakeGlobalStepWaiter(std::int64_t step) {
  return std::make_unique<GlobalStepWaiter>(step);
}

std::unique_ptr<Hook> MakeFeed(FeedFunction feed) {
  PASSEL_CHECK(feed != nullptr, "a feed says what is fed");
  return std::make_unique<Feed>(std::move(feed));
}

Result<std::unique_ptr<Hook>> MakeCheckpointSaver(CheckpointSaverOptions options) {
  PASSEL_CHECK(options.save != nullptr, "a saver saves");
  PASSEL_ASSIGN_OR_RETURN(const StepsTimer timer, StepsTimer::Make(options.every));
  return std::unique_ptr<Hook>(std::make_unique<CheckpointSaver>(std::move(options), timer));
}

Result<std::unique_ptr<Hook>> MakeSummarySaver(SummarySaverOptions options) {
  PASSEL_CHECK(options.write != nullptr, "a saver writes");
  PASSEL_ASSIGN_OR_RETURN(const StepsTimer timer, StepsTimer::Make(options.every));
  return std::unique_ptr<Hook>(std::make_unique<SummarySaver>(std::move(options), timer));
}

}  // namespace passel

#include "job/mode_settings.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/text.h"
#include "job/flag_checks.h"

namespace passel::job {
namespace {

// "1:20ms"
Result<WorkerOptions::SlowWorker> ParseSlowWorker(const std::string& text) {
  WorkerOptions::SlowWorker slow;
  const char* const end = text.data() + text.size();
  std::int64_t ms = 0;
  const auto [colon, bad_index] = std::from_chars(text.data(), end, slow.index);
  if (bad_index == std::errc() && slow.index >= 0 && colon != end && *colon == ':') {
    const auto [unit, bad_delay] = std::from_chars(colon + 1, end, ms);
    if (bad_delay == std::errc() && std::string(unit, end) == "ms" && ms >= 1 && ms <= 600'000) {
      slow.delay = std::chrono::milliseconds(ms);
      return slow;
    }
  }
  return InvalidArgument(fmt::format(
      "--slow_worker {} is not understood: use INDEX:DELAYms with a delay of 1 to 600000 "
      "milliseconds, e.g. 1:20ms",
      text));
}

// "0:barrier,2000:replicas=3"
Result<std::vector<ScheduledMode>> ParseSchedule(const std::string& text) {
  std::vector<ScheduledMode> schedule;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    const std::string_view entry = std::string_view(text).substr(begin, comma - begin);
    begin = comma + 1;
    ScheduledMode& scheduled = schedule.emplace_back();
    const char* const end = entry.data() + entry.size();
    const auto [colon, error] = std::from_chars(entry.data(), end, scheduled.step);
    if (error != std::errc() || colon == end || *colon != ':' || scheduled.step < 0 ||
        scheduled.step > kMaxScheduledStep) {
      return InvalidArgument(
          fmt::format("--mode_schedule: \"{}\" is not understood: use STEP:MODE with a global step "
                      "of 0 to {}, e.g. 2000:hogwild",
                      entry, kMaxScheduledStep));
    }
    const Result<ModeSetting> setting =
        ParseModeSetting(std::string_view(colon + 1, static_cast<std::size_t>(end - colon - 1)));
    if (!setting.ok()) return setting.status().WithContext("--mode_schedule");
    scheduled.setting = *setting;
    if (schedule.size() > 1 && scheduled.step <= schedule[schedule.size() - 2].step) {
      return InvalidArgument(
          fmt::format("--mode_schedule names rising global steps, not {} after {}: sort them",
                      scheduled.step, schedule[schedule.size() - 2].step));
    }
  }
  return schedule;
}

std::array<ModeNumber, 2> NumbersOf(const JobSettings& f) {
  return {
      {{"replicas_to_aggregate", f.replicas_to_aggregate}, {"staleness_bound", f.staleness_bound}}};
}

// What names the first mode, beside a schedule: "--mode ssp", "--sync_replicas"; "" if nothing
// does.
std::string FirstModeFlag(const JobSettings& f) {
  if (f.mode) return "--mode " + *f.mode;
  return f.sync_replicas ? "--sync_replicas" : "";
}

// The entry of step 0 is the first mode and leaves the schedule.
Status TakeFirstMode(const JobSettings& f, JobConfig* config) {
  const ModeSetting first = config->mode_schedule.front().setting;
  const std::string flag = FirstModeFlag(f);
  if (!flag.empty() && first.mode != config->mode.mode) {
    return InvalidArgument(fmt::format(
        "{} begins with mode {}, --mode_schedule {} with {}: omit one of them, or begin the "
        "schedule at a later step",
        flag, config->mode.traits().name, f.mode_schedule, first.ToString()));
  }
  for (const ModeNumber& number : NumbersOf(f)) {
    if (!number.value) continue;
    return InvalidArgument(
        fmt::format("--{} is for a job without a mode at step 0 of --mode_schedule ({}): write the "
                    "number there, as in 0:replicas=3 or 0:ssp=5",
                    number.flag, f.mode_schedule));
  }
  config->mode_of_schedule = true;
  config->mode = first;
  config->mode_schedule.erase(config->mode_schedule.begin());
  return {};
}

// Every mode of the job, also of its schedule, must be one without rounds.
Status CheckPrefetch(const JobSettings& f, JobConfig* config) {
  config->prefetch = f.prefetch;
  if (!f.prefetch) return {};
  std::vector<ModeSetting> modes = {config->mode};
  for (const ScheduledMode& entry : config->mode_schedule) modes.push_back(entry.setting);
  for (const ModeSetting& mode : modes) {
    if (!mode.traits().rounds) continue;
    return InvalidArgument(
        fmt::format("--prefetch computes a step while the last gradient travels, and in {} a step "
                    "begins with the values that all gradients have made: omit it, or use --mode "
                    "{}",
                    mode.traits().name, ModeNames(/*rounds=*/false)));
  }
  return {};
}

}  // namespace

Status TakeNumbers(std::span<const ModeNumber> given, ModeSetting* setting) {
  for (const ModeNumber& number : given) {
    if (!number.value) continue;
    const ModeTraits& traits = setting->traits();
    if (traits.flag != number.flag) {
      const auto* const owner = std::ranges::find(kModes, number.flag, &ModeTraits::flag);
      return InvalidArgument(fmt::format("--{} has no meaning in mode {}: use mode {}, or omit it",
                                         number.flag, traits.name, owner->name));
    }
    PASSEL_RETURN_IF_ERROR(
        CheckRange(fmt::format("--{}", number.flag), *number.value, traits.least, traits.most));
    setting->number = static_cast<int>(*number.value);
  }
  return {};
}

Status CheckModeSettings(const JobSettings& f, JobConfig* config) {
  if (f.sync_replicas && f.mode && *f.mode != "barrier" && *f.mode != "replicas") {
    return InvalidArgument(
        fmt::format("--sync_replicas asks for barrier or replicas, --mode for {}: omit one of them",
                    Printable(*f.mode, 64)));
  }
  PASSEL_ASSIGN_OR_RETURN(config->mode.mode, ParseMode(ModeOf(f)));
  config->mode.number = config->mode.traits().omitted;
  if (!f.mode_schedule.empty()) {
    PASSEL_ASSIGN_OR_RETURN(config->mode_schedule, ParseSchedule(f.mode_schedule));
  }
  if (!config->mode_schedule.empty() && config->mode_schedule.front().step == 0) {
    PASSEL_RETURN_IF_ERROR(TakeFirstMode(f, config));
  } else {
    PASSEL_RETURN_IF_ERROR(TakeNumbers(NumbersOf(f), &config->mode));
  }
  if (config->mode_schedule.size() > static_cast<std::size_t>(kMaxScheduledModes)) {
    return InvalidArgument(
        fmt::format("--mode_schedule has at most {} changes of mode, not {}: omit some of them",
                    kMaxScheduledModes, config->mode_schedule.size()));
  }
  PASSEL_RETURN_IF_ERROR(CheckPrefetch(f, config));
  for (const std::string& text : f.slow_worker) {
    PASSEL_ASSIGN_OR_RETURN(const WorkerOptions::SlowWorker slow, ParseSlowWorker(text));
    for (const WorkerOptions::SlowWorker& known : config->worker.slow_workers) {
      if (known.index != slow.index) continue;
      return InvalidArgument(
          fmt::format("--slow_worker names worker/{} twice, with {} ms and with {} ms: give it one "
                      "delay",
                      slow.index, known.delay.count(), slow.delay.count()));
    }
    config->worker.slow_workers.push_back(slow);
  }
  return {};
}

}  // namespace passel::job

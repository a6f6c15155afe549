#include "job/effective_settings.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "cluster/cluster_spec.h"
#include "optim/hyper_flags.h"

namespace passel::job {
namespace {

class Effective {
 public:
  explicit Effective(ResolvedConfig* resolved) : resolved_(*resolved) {}

  // Changes a setting that nobody made.
  void Default(std::string_view name, std::string value, std::string origin) {
    Setting* const setting = Find(name);
    if (setting != nullptr && setting->source == Source::kDefault) {
      Set(setting, std::move(value), std::move(origin));
    }
  }
  // Changes a setting that has another value than the one in force.
  void Force(std::string_view name, const std::string& value, std::string origin) {
    Setting* const setting = Find(name);
    if (setting != nullptr && setting->value != value) Set(setting, value, std::move(origin));
  }
  bool Made(std::string_view name) {
    const Setting* const setting = Find(name);
    return setting != nullptr && setting->value != "0" && !setting->value.empty();
  }

 private:
  Setting* Find(std::string_view name) {
    const auto found = std::find_if(resolved_.settings.begin(), resolved_.settings.end(),
                                    [&](const Setting& s) { return s.name == name; });
    return found == resolved_.settings.end() ? nullptr : &*found;
  }
  static void Set(Setting* setting, std::string value, std::string origin) {
    // A preset's default is a value, not the absence of one.
    if (setting->source == Source::kDefault && setting->origin != "default") return;
    setting->value = std::move(value);
    setting->origin = std::move(origin);
  }

  ResolvedConfig& resolved_;
};

std::string Number(double value) { return fmt::format("{}", value); }

void ShowMode(const JobConfig& config, int trainers, Effective* show) {
  const std::string mode(config.mode.traits().name);
  const bool scheduled = config.mode_of_schedule;
  show->Force("mode", mode,
              scheduled ? "follows from --mode_schedule" : "follows from --sync_replicas");
  for (const ModeTraits& traits : kModes) {
    if (traits.flag.empty()) continue;
    if (traits.flag != config.mode.traits().flag) {
      show->Default(traits.flag, "-", fmt::format("not used in mode {}", mode));
      continue;
    }
    const ModeSetting in_force = config.mode.For(trainers);
    show->Default(traits.flag, std::to_string(in_force.number),
                  in_force != config.mode ? "default: the number of workers"
                  : scheduled             ? "follows from --mode_schedule"
                                          : "default");
  }
}

void ShowOptimizer(const JobSettings& flags, const OptimizerConfig& o, Effective* show) {
  const std::string of = fmt::format("default of --optimizer {}", flags.optimizer);
  const std::string not_used = fmt::format("not used by --optimizer {}", flags.optimizer);
  for (const HyperFlag& flag : kHyperFlags) {
    const Hyperparameter* const parameter = HyperparameterOf(o.kind, flag.name);
    if (parameter == nullptr) {
      show->Default(flag.name, "-", not_used);
      continue;
    }
    const double value = parameter->field.Get(o);
    show->Default(flag.name, flag.is_switch ? (value != 0 ? "true" : "false") : Number(value), of);
  }
}

// The default of --train_steps gives way to the other stop rules.
void ShowStopRule(Effective* show) {
  for (const char* rule : {"epochs", "local_steps"}) {
    if (show->Made(rule)) show->Default("train_steps", "0", fmt::format("default with --{}", rule));
  }
}

}  // namespace

void ShowEffective(const JobSettings& flags, const JobConfig& config, int cores,
                   ResolvedConfig* resolved) {
  Effective show(resolved);
  const ClusterSpec& spec = resolved->cluster;
  const int chiefs = spec.num_tasks("chief") + spec.num_tasks("master");
  const int trainers = resolved->distributed ? spec.num_tasks("worker") + chiefs : 1;
  ShowMode(config, trainers, &show);
  ShowOptimizer(flags, config.optimizer, &show);
  ShowStopRule(&show);
  if (config.model.kind != ModelKind::kMlp) {
    show.Default("hidden_units", "-", fmt::format("not used by --model {}", flags.model));
  }
  if (flags.log_lines.empty()) {
    show.Default("log_lines", resolved->distributed ? "task" : "none",
                 resolved->distributed ? "default of a task" : "default without a cluster");
  }
  const WaitOptions waits = MakeWaitOptions(config, trainers, cores);
  show.Default("spin_us", Number(static_cast<double>(waits.spin.count()) * 1e-3),
               fmt::format("default with workers: {}, cores: {}", trainers, cores));
  if (flags.source.data_dir.empty()) show.Default("data_dir", "", "default: searched for");
  if (!resolved->distributed) {
    show.Default("job_id", "", "default: job-<process id>");
  } else if (!resolved->partial && spec.num_tasks("ps") > 0) {
    show.Default("job_id", JobIdFromSpec(spec), "follows from the address of ps 0");
  }
}

}  // namespace passel::job

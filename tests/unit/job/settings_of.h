// settings_of.h - settings as a command line gives them, for tests of what is said of them. Whether
// the program's own parser takes a flag is for tests of the program.

#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "job/train_settings.h"

namespace passel::job::testing {

/// Where the value of a flag goes.
using Target = std::variant<std::string*, std::vector<std::string>*, bool*, int*, std::int64_t*,
                            double*, std::optional<std::string>*, std::optional<int>*,
                            std::optional<std::int64_t>*, std::optional<double>*>;

inline std::map<std::string, Target> TargetsOf(TrainSettings& s) {
  JobSettings& j = s.job;
  std::map<std::string, Target> targets = {
      {"--ps", &s.ps},
      {"--workers", &s.workers},
      {"--max_restarts", &s.max_restarts},
      {"--grace", &s.grace},
      {"--evaluator", &s.evaluator},
      {"--save", &s.save},
      {"--report", &s.report},
      {"--config", &s.config},
      {"--job_id", &s.job_id},
      {"--device", &s.devices.device},
      {"--num_gpus", &s.devices.num_gpus},
      {"--per_process_gpu_memory_fraction", &s.devices.per_process_gpu_memory_fraction},
      {"--gpus", &s.launch.gpus},
      {"--workers_per_gpu", &s.launch.workers_per_gpu},
      {"--bind", &s.launch.bind},
      {"--topology", &s.launch.topology},
      {"--dry_run", &s.launch.dry_run},
      {"--data_dir", &j.source.data_dir},
      {"--fake_data", &j.source.fake_data},
      {"--download_url", &j.source.download_url},
      {"--batch_size", &j.batch_size},
      {"--sampler", &j.sampler},
      {"--shard_data", &j.shard_data},
      {"--train_examples", &j.train_examples},
      {"--validation_size", &j.validation_size},
      {"--model", &j.model},
      {"--hidden_units", &j.hidden_units},
      {"--loss", &j.loss},
      {"--optimizer", &j.optimizer},
      {"--mode", &j.mode},
      {"--sync_replicas", &j.sync_replicas},
      {"--replicas_to_aggregate", &j.replicas_to_aggregate},
      {"--staleness_bound", &j.staleness_bound},
      {"--mode_schedule", &j.mode_schedule},
      {"--slow_worker", &j.slow_worker},
      {"--train_steps", &j.train_steps},
      {"--epochs", &j.epochs},
      {"--local_steps", &j.local_steps},
      {"--push_every", &j.push_every},
      {"--pull", &j.pull},
      {"--on_nan", &j.on_nan},
      {"--eval_interval", &j.eval_interval},
      {"--eval_steps", &j.eval_steps},
      {"--worker_eval_set", &j.worker_eval_set},
      {"--worker_eval_steps", &j.worker_eval_steps},
      {"--log_lines", &j.log_lines},
      {"--log_step_count_steps", &j.log_step_count_steps},
      {"--log_epochs", &j.log_epochs},
      {"--placement", &j.placement},
      {"--partitioner", &j.partitioner},
      {"--global_step", &j.global_step},
      {"--global_step_bytes", &j.global_step_bytes},
      {"--pin_variable", &j.pin_variable},
      {"--threads_per_worker", &j.threads_per_worker},
      {"--towers", &j.towers},
      {"--overlap", &j.overlap},
      {"--steps_ahead", &j.steps_ahead},
      {"--math", &j.math},
      {"--arena", &j.arena},
      {"--shadow_interval", &j.shadow_interval},
      {"--huge_pages", &j.huge_pages},
      {"--memory_fraction", &j.memory_fraction},
      {"--spin_us", &j.spin_us},
      {"--on_stall", &j.on_stall},
      {"--stall_limit", &j.stall_limit},
      {"--start_wait", &j.start_wait},
      {"--ps_wait", &j.ps_wait},
      {"--log_level", &j.log_level},
      {"--log_format", &j.log_format},
      {"--log_file", &j.log_file}};
  for (std::size_t i = 0; i < kNumHyperFlags; ++i) {
    Target& target = targets["--" + std::string(kHyperFlags[i].name)];
    if (kHyperFlags[i].is_switch) {
      target = &j.hyper[i].on;
    } else {
      target = &j.hyper[i].number;
    }
  }
  return targets;
}

template <typename T>
void SetTo(const std::string& text, T* target) {
  if constexpr (std::is_same_v<T, bool>) {
    *target = true;
  } else if constexpr (std::is_integral_v<T>) {
    *target = static_cast<T>(std::stoll(text));
  } else if constexpr (std::is_floating_point_v<T>) {
    *target = std::stod(text);
  } else {
    *target = text;
  }
}
template <typename T>
void SetTo(const std::string& text, std::optional<T>* target) {
  SetTo(text, &target->emplace());
}
inline void SetTo(const std::string& text, std::vector<std::string>* target) {
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    target->push_back(text.substr(begin, comma - begin));
    begin = comma + 1;
  }
}

/// Gives the settings what `flags`, each --name=value or --name, say.
inline void Give(const std::vector<std::string>& flags, TrainSettings* settings) {
  const std::map<std::string, Target> targets = TargetsOf(*settings);
  for (const std::string& flag : flags) {
    const std::size_t equals = flag.find('=');
    const std::string name = flag.substr(0, equals);
    const std::string text = equals == std::string::npos ? "" : flag.substr(equals + 1);
    const auto target = targets.find(name);
    ASSERT_NE(target, targets.end()) << flag;
    std::visit([&](auto* value) { SetTo(text, value); }, target->second);
    settings->job.typed.Keep(name, text);
    if (name == "--workers") settings->workers_given = true;
    if (name == "--num_gpus") settings->devices.num_gpus_given = true;
  }
}

}  // namespace passel::job::testing

#include "job/job_settings.h"

#include <fmt/core.h>

#include <cstddef>

namespace passel::job {

std::string ModeOf(const JobSettings& f) {
  if (!f.sync_replicas) return f.mode.value_or("hogwild");
  return f.replicas_to_aggregate || f.mode == "replicas" ? "replicas" : "barrier";
}

std::vector<std::string> ToArguments(const JobSettings& f) {
  std::vector<std::string> arguments;
  const auto add = [&](const char* name, const auto& value) {
    arguments.push_back(fmt::format("{}={}", name, value));
  };
  if (!f.source.data_dir.empty()) add("--data_dir", f.source.data_dir);
  if (f.source.fake_data) arguments.emplace_back("--fake_data");
  add("--csv_train_limit", f.csv_train_limit);
  add("--csv_test_limit", f.csv_test_limit);
  add("--batch_size", f.batch_size);
  add("--sampler", f.sampler);
  if (f.shard_data) arguments.emplace_back("--shard_data");
  add("--train_examples", f.train_examples);
  add("--validation_size", f.validation_size);
  add("--model", f.model);
  add("--hidden_units", f.hidden_units);
  add("--loss", f.loss);
  add("--seed", f.seed);
  add("--optimizer", f.optimizer);
  const auto add_if_set = [&](const char* name, const std::optional<double>& value) {
    if (value) add(name, *value);  // fmt prints the shortest text that reads back the same
  };
  for (std::size_t i = 0; i < kNumHyperFlags; ++i) {
    const std::string flag = fmt::format("--{}", kHyperFlags[i].name);
    if (f.hyper[i].on) arguments.push_back(flag);
    add_if_set(flag.c_str(), f.hyper[i].number);
  }
  if (f.mode || f.sync_replicas) add("--mode", ModeOf(f));
  if (f.replicas_to_aggregate) add("--replicas_to_aggregate", *f.replicas_to_aggregate);
  if (f.staleness_bound) add("--staleness_bound", *f.staleness_bound);
  if (!f.mode_schedule.empty()) add("--mode_schedule", f.mode_schedule);
  for (const std::string& slow : f.slow_worker) add("--slow_worker", slow);
  if (f.train_steps) add("--train_steps", *f.train_steps);
  add("--epochs", f.epochs);
  add("--local_steps", f.local_steps);
  add("--push_every", f.push_every);
  add("--pull", f.pull);
  add("--on_nan", f.on_nan);
  add("--eval_interval", f.eval_interval);
  add("--eval_steps", f.eval_steps);
  add("--worker_eval_set", f.worker_eval_set);
  add("--worker_eval_steps", f.worker_eval_steps);
  if (!f.log_lines.empty()) add("--log_lines", f.log_lines);
  add("--log_step_count_steps", f.log_step_count_steps);
  add("--log_epochs", f.log_epochs);
  add("--placement", f.placement);
  add("--partitioner", f.partitioner);
  add("--global_step", f.global_step);
  add("--global_step_bytes", f.global_step_bytes);
  for (const std::string& pin : f.pin_variable) add("--pin_variable", pin);
  add("--threads_per_worker", f.threads_per_worker);
  add("--towers", f.towers);
  if (f.overlap) arguments.emplace_back("--overlap");
  if (f.steps_ahead) add("--steps_ahead", *f.steps_ahead);
  add("--math", f.math);
  add("--arena", f.arena);
  add("--shadow_interval", f.shadow_interval);
  if (!f.cuda_graphs) arguments.emplace_back("--nocuda_graphs");
  if (!f.fused_update) arguments.emplace_back("--nofused_update");
  add("--huge_pages", f.huge_pages);
  add("--memory_fraction", f.memory_fraction);
  add_if_set("--spin_us", f.spin_us);
  add("--stall_limit", f.stall_limit);
  add("--on_stall", f.on_stall);
  add("--start_wait", f.start_wait);
  add("--ps_wait", f.ps_wait);
  add("--log_level", f.log_level);
  add("--log_format", f.log_format);
  if (!f.log_file.empty()) add("--log_file", f.log_file);
  return arguments;
}

}  // namespace passel::job

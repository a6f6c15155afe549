// resolve_inputs.h - flags, environment and file of a test, resolved.

#pragma once

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/resolve.h"

namespace passel::testing {

/// Inputs that a test fills in and resolves.
struct Inputs {
  std::vector<Flag> flags{{"job_name"}, {"task_index"}, {"ps_hosts"}, {"worker_hosts"}};
  std::map<std::string, std::string> environment;
  std::optional<std::string> file;
  bool gpu_per_worker = false;
  bool more_workers = false, joins = false;

  Flag& Find(const std::string& name) {
    for (Flag& flag : flags) {
      if (flag.name == name) return flag;
    }
    flags.push_back({name});
    return flags.back();
  }
  Inputs& Give(const std::string& name, const std::string& value) {
    Find(name).given = true;
    Find(name).value = value;
    return *this;
  }
  Inputs& Default(const std::string& name, const std::string& value,
                  FlagType type = FlagType::kText) {
    Find(name).value = value;
    Find(name).type = type;
    return *this;
  }
  Inputs& Env(const std::string& name, const std::string& value) {
    environment[name] = value;
    return *this;
  }
  Inputs& Task(const std::string& job, const std::string& index) {
    return Give("job_name", job).Give("task_index", index);
  }
  Inputs& TfConfig(const std::string& document) { return Env("TF_CONFIG", document); }
  Inputs& File(const std::string& text) {
    file = text;
    return *this;
  }

  Result<ResolvedConfig> Resolve(int visible_gpus = 0) const {
    ResolveInputs inputs;
    inputs.visible_gpus = [visible_gpus] { return visible_gpus; };
    inputs.flags = flags;
    inputs.more_workers = more_workers;
    inputs.joins = joins;
    inputs.environment = [this](const std::string& name) -> std::optional<std::string> {
      const auto found = environment.find(name);
      if (found == environment.end()) return std::nullopt;
      return found->second;
    };
    inputs.config_path = "train.yaml";
    inputs.config_text = file;
    inputs.gpu_per_worker = gpu_per_worker;
    return passel::Resolve(inputs);
  }
  /// That there is no error is part of the test.
  Result<ResolvedConfig> Resolved(int visible_gpus = 0) const {
    Result<ResolvedConfig> config = Resolve(visible_gpus);
    EXPECT_TRUE(config.ok()) << config.status().ToString();
    return config;
  }
  std::string Error() const {
    const auto config = Resolve();
    EXPECT_FALSE(config.ok());
    return config.status().message();
  }
};

inline std::string Value(const ResolvedConfig& config, std::string_view name) {
  const Setting* setting = config.Find(name);
  return setting ? setting->value + " <- " + setting->origin : "none";
}

/// The flags of three tasks by hand.
inline Inputs ThreeTasks(const std::string& job, const std::string& index) {
  return Inputs().Task(job, index).Give("ps_hosts", "p:1").Give("worker_hosts", "w:1,w:2");
}

}  // namespace passel::testing

// What every source says (resolve.h has their order).

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "cluster/resolve_internal.h"
#include "cluster/text.h"

namespace passel {
namespace {

constexpr std::array<const char*, kKeys> kTaskVariables{"JOB_NAME", "TASK_INDEX", "PS_HOSTS",
                                                        "WORKER_HOSTS"};

class SourceReader {
 public:
  explicit SourceReader(const ResolveInputs& inputs) : inputs_(inputs) {}

  Result<Sources> Run() {
    if (const auto text = Environment("TF_CONFIG")) {
      PASSEL_ASSIGN_OR_RETURN(out_.tf_config, ParseTfConfig(*text));
    }
    if (inputs_.config_text) {
      std::vector<FileFlag> known;
      for (const Flag& flag : inputs_.flags) {
        if (flag.in_file) known.push_back({flag.name, flag.type});
      }
      PASSEL_ASSIGN_OR_RETURN(out_.file,
                              ParseConfigFile(inputs_.config_path, *inputs_.config_text, known));
    }
    AddTfConfig();
    for (int key = 0; key < kKeys; ++key) {
      const Flag* const flag = FindFlag(kKeyNames[key]);
      if (flag && flag->given) {
        Add(key, Source::kFlag, fmt::format("flag --{}", flag->name), flag->value);
      }
    }
    AddTaskEnvironment();
    for (const auto& [key, name] : {std::pair(kPsHosts, "PS_KEY"), {kWorkerHosts, "WORKER_KEY"}}) {
      if (auto value = Environment(name)) {
        Add(key, Source::kHostKeys, fmt::format("environment {}", name), std::move(*value));
      }
    }
    for (int key = 0; key < kKeys; ++key) {
      if (const auto found = out_.file.values.find(kKeyNames[key]);
          found != out_.file.values.end()) {
        Add(key, Source::kFile, out_.FileOrigin(found->second), found->second.text);
      }
    }
    PASSEL_RETURN_IF_ERROR(AddRanks());
    for (int key = 0; key < kKeys; ++key) {
      const Flag* const flag = FindFlag(kKeyNames[key]);
      Add(key, Source::kDefault, flag ? flag->default_origin : "default",
          flag && !flag->given ? flag->value : "");
    }
    return std::move(out_);
  }

 private:
  std::optional<std::string> Environment(const char* name) const {
    if (!inputs_.environment) return std::nullopt;
    std::optional<std::string> value = inputs_.environment(name);
    // Values from files often end with a line feed.
    if (value) value = std::string(Trim(*value));
    return value;
  }

  void AddTfConfig() {
    const TfConfig& tf = out_.tf_config;
    if (!tf.task_type.empty()) {
      Add(kJobName, Source::kTfConfig, "TF_CONFIG task.type", tf.task_type);
    }
    if (tf.task_index) {
      Add(kTaskIndex, Source::kTfConfig, "TF_CONFIG task.index", std::to_string(*tf.task_index));
    }
    out_.section = tf.sparse_cluster ? "TF_CONFIG sparseCluster" : "TF_CONFIG cluster";
    if (out_.TfCluster()) {
      Add(kPsHosts, Source::kTfConfig, out_.section + ".ps", HostsText(tf.cluster, "ps"));
      Add(kWorkerHosts, Source::kTfConfig, out_.section + ".worker",
          HostsText(tf.cluster, "worker"));
    }
    if (tf.unknown_keys.empty()) return;
    std::string keys;
    for (const std::string& key : tf.unknown_keys) keys += (keys.empty() ? "" : ", ") + key;
    out_.warnings.push_back(fmt::format("TF_CONFIG has keys that are not used here: {}", keys));
  }

  void AddTaskEnvironment() {
    std::array<std::optional<std::string>, kKeys> values;
    std::string present, missing;
    for (int key = 0; key < kKeys; ++key) {
      values[key] = Environment(kTaskVariables[key]);
      std::string& list = values[key] ? present : missing;
      list += (list.empty() ? "" : ", ") + std::string(kTaskVariables[key]);
    }
    if (missing.empty()) {
      for (int key = 0; key < kKeys; ++key) {
        Add(key, Source::kTaskEnvironment, fmt::format("environment {}", kTaskVariables[key]),
            std::move(*values[key]));
      }
    } else if (!present.empty() && present != "JOB_NAME") {
      // JOB_NAME alone means something else in many build systems.
      out_.warnings.push_back(
          fmt::format("the environment has {} but not {}: they are not used, since a cluster "
                      "needs all four",
                      present, missing));
    }
  }

  // The last of those that can name a cluster: a process that torchrun has started may well be told
  // another one.
  Status AddRanks() {
    if (out_.TfCluster()) return {};
    for (const auto& candidates : out_.candidates) {
      if (!candidates.empty()) return {};
    }
    std::string missing;
    PASSEL_ASSIGN_OR_RETURN(
        std::optional<Ranks> ranks,
        ReadRanks([this](const char* name) { return Environment(name); }, &missing));
    if (!missing.empty()) {
      out_.warnings.push_back(fmt::format(
          "the environment has RANK and WORLD_SIZE but not {}: they are not used", missing));
    }
    // One alone needs nobody else.
    if (!ranks || ranks->world_size == 1) return {};
    Add(kJobName, Source::kRanks, "environment RANK", "worker");
    Add(kTaskIndex, Source::kRanks, "environment RANK", std::to_string(ranks->rank));
    Add(kPsHosts, Source::kRanks, "environment MASTER_ADDR, MASTER_PORT", ranks->ps_hosts);
    Add(kWorkerHosts, Source::kRanks, "environment WORLD_SIZE", ranks->worker_hosts);
    out_.ranks = std::move(ranks);
    return {};
  }

  void Add(int key, Source source, std::string origin, std::string value) {
    out_.candidates[key].push_back({source, std::move(origin), std::move(value)});
  }

  const Flag* FindFlag(std::string_view name) const {
    const auto found = std::find_if(inputs_.flags.begin(), inputs_.flags.end(),
                                    [&](const Flag& flag) { return flag.name == name; });
    return found == inputs_.flags.end() ? nullptr : &*found;
  }

  const ResolveInputs& inputs_;
  Sources out_;
};

}  // namespace

std::string Sources::FileOrigin(const FileValue& value) const {
  return fmt::format("file {}:{}", file.path, value.line);
}

Result<Sources> ReadSources(const ResolveInputs& inputs) { return SourceReader(inputs).Run(); }

std::string HostsText(const ClusterSpec& spec, std::string_view job) {
  const auto tasks = spec.jobs().find(job);
  if (tasks == spec.jobs().end()) return {};
  const bool gaps = tasks->second.rbegin()->first >= static_cast<int>(tasks->second.size());
  std::string text;
  for (const auto& [index, address] : tasks->second) {
    if (!text.empty()) text += ',';
    if (gaps) text += fmt::format("{}=", index);
    text += address.ToString();
  }
  return text;
}

}  // namespace passel

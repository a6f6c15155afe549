#include "cluster/resolve.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <utility>

#include "cluster/device.h"
#include "cluster/text.h"
#include "cluster/tf_config.h"

namespace passel {
namespace {

enum Key { kJobName, kTaskIndex, kPsHosts, kWorkerHosts, kKeys };
constexpr std::array<const char*, kKeys> kKeyNames{"job_name", "task_index", "ps_hosts",
                                                   "worker_hosts"};
constexpr std::array<const char*, kKeys> kTaskVariables{"JOB_NAME", "TASK_INDEX", "PS_HOSTS",
                                                        "WORKER_HOSTS"};

/// `value` of a source, as one of several for the same setting.
struct Candidate {
  Source source;
  std::string origin;
  std::string value;
};

bool FromEnvironment(Source source) {
  return source == Source::kTfConfig || source == Source::kTaskEnvironment ||
         source == Source::kHostKeys;
}

/// The same text for host lists that mean the same.
std::string Canonical(Key key, const std::string& value) {
  if (key != kPsHosts && key != kWorkerHosts) return value;
  const Result<std::vector<HostPort>> hosts = ParseHostList(value);
  if (!hosts.ok()) return value;
  std::string text;
  for (const HostPort& host : *hosts) text += host.ToString() + ",";
  return text;
}

Status WithOrigin(const Status& status, const std::string& origin) {
  return Status(status.code(), fmt::format("{} ({})", status.message(), Printable(origin, 256)));
}

/// "h:1,h:2", or "0=h:1,5=h:2" if the indices have a gap.
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

/// An integer as a flag has it. Errors: kInvalidArgument.
Result<int> ParseInt(std::string_view name, const Candidate& from) {
  int value = 0;
  const char* const end = from.value.data() + from.value.size();
  const auto [stop, error] = std::from_chars(from.value.data(), end, value);
  if (error == std::errc() && stop == end) return value;
  return InvalidArgument(fmt::format("{} must be an integer, not {} ({})", name, Quoted(from.value),
                                     Printable(from.origin, 256)));
}

bool Trains(std::string_view job) { return job == "worker" || job == "chief" || job == "master"; }

class Resolver {
 public:
  explicit Resolver(const ResolveInputs& inputs) : inputs_(inputs) {}

  Status Run() {
    PASSEL_RETURN_IF_ERROR(ReadSources());
    for (int key = 0; key < kKeys; ++key) Choose(static_cast<Key>(key));
    DropFileSingleTasks();
    if (NamesACluster()) {
      config_.distributed = true;
      PASSEL_RETURN_IF_ERROR(BuildCluster());
    }
    AddSettings();
    return ChooseDevice();
  }

  ResolvedConfig Take() { return std::move(config_); }

 private:
  std::optional<std::string> Environment(const char* name) const {
    if (!inputs_.environment) return std::nullopt;
    std::optional<std::string> value = inputs_.environment(name);
    // Values from files often end with a line feed.
    if (value) value = std::string(Trim(*value));
    return value;
  }

  Status ReadSources() {
    if (const auto text = Environment("TF_CONFIG")) {
      PASSEL_ASSIGN_OR_RETURN(tf_config_, ParseTfConfig(*text));
    }
    if (inputs_.config_text) {
      std::vector<FileFlag> known;
      for (const Flag& flag : inputs_.flags) {
        if (flag.in_file) known.push_back({flag.name, flag.type});
      }
      PASSEL_ASSIGN_OR_RETURN(file_,
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
      if (const auto found = file_.values.find(kKeyNames[key]); found != file_.values.end()) {
        Add(key, Source::kFile, FileOrigin(found->second), found->second.text);
      }
    }
    for (int key = 0; key < kKeys; ++key) {
      const Flag* const flag = FindFlag(kKeyNames[key]);
      Add(key, Source::kDefault, flag ? flag->default_origin : "default",
          flag && !flag->given ? flag->value : "");
    }
    return {};
  }

  void AddTfConfig() {
    const TfConfig& tf = tf_config_;
    if (!tf.task_type.empty()) {
      Add(kJobName, Source::kTfConfig, "TF_CONFIG task.type", tf.task_type);
    }
    if (tf.task_index) {
      Add(kTaskIndex, Source::kTfConfig, "TF_CONFIG task.index", std::to_string(*tf.task_index));
    }
    section_ = tf.sparse_cluster ? "TF_CONFIG sparseCluster" : "TF_CONFIG cluster";
    if (TfCluster()) {
      Add(kPsHosts, Source::kTfConfig, section_ + ".ps", HostsText(tf.cluster, "ps"));
      Add(kWorkerHosts, Source::kTfConfig, section_ + ".worker", HostsText(tf.cluster, "worker"));
    }
    if (tf.unknown_keys.empty()) return;
    std::string keys;
    for (const std::string& key : tf.unknown_keys) keys += (keys.empty() ? "" : ", ") + key;
    config_.warnings.push_back(fmt::format("TF_CONFIG has keys that are not used here: {}", keys));
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
      config_.warnings.push_back(
          fmt::format("the environment has {} but not {}: they are not used, since a cluster "
                      "needs all four",
                      present, missing));
    }
  }

  void Add(int key, Source source, std::string origin, std::string value) {
    candidates_[key].push_back({source, std::move(origin), std::move(value)});
  }

  const Flag* FindFlag(std::string_view name) const {
    const auto found = std::find_if(inputs_.flags.begin(), inputs_.flags.end(),
                                    [&](const Flag& flag) { return flag.name == name; });
    return found == inputs_.flags.end() ? nullptr : &*found;
  }

  std::string FileOrigin(const FileValue& value) const {
    return fmt::format("file {}:{}", file_.path, value.line);
  }

  bool TfCluster() const { return !tf_config_.cluster.jobs().empty(); }

  /// The first candidate wins; warns if it comes from the environment and others disagree.
  void Choose(Key key) {
    const Candidate& winner = candidates_[key].front();
    if (!FromEnvironment(winner.source)) return;
    std::string others;
    for (const Candidate& other : candidates_[key]) {
      if (other.source == Source::kDefault ||
          Canonical(key, other.value) == Canonical(key, winner.value)) {
        continue;
      }
      others += fmt::format("{}{} = {}", others.empty() ? "" : ", ", Printable(other.origin, 256),
                            Quoted(other.value));
    }
    if (others.empty()) return;
    config_.warnings.push_back(fmt::format("{} = {} wins over {}: remove one of them",
                                           winner.origin, Quoted(winner.value), others));
  }

  const Candidate& Chosen(Key key) const { return candidates_[key].front(); }

  /// A chief of the file belongs to the host lists of the file, not to others.
  void DropFileSingleTasks() {
    if (file_.single_tasks.empty()) return;
    if (!TfCluster() && Chosen(kPsHosts).source == Source::kFile &&
        Chosen(kWorkerHosts).source == Source::kFile) {
      return;
    }
    for (const auto& [job, value] : file_.single_tasks) {
      config_.warnings.push_back(
          fmt::format("{}: cluster.{} is not used, since the ps and worker hosts do not both come "
                      "from the file",
                      Printable(FileOrigin(value), 256), job));
    }
    file_.single_tasks.clear();
  }

  bool NamesACluster() {
    const bool in_tf_config = Chosen(kJobName).source == Source::kTfConfig;
    if (TfCluster()) {
      // One task alone needs nobody else; an evaluator watches it from outside.
      const auto& jobs = tf_config_.cluster.jobs();
      const bool alone = jobs.size() == 1 && jobs.begin()->second.size() == 1 &&
                         Trains(jobs.begin()->first) && !tf_config_.partial;
      return !alone ||
             (!Chosen(kJobName).value.empty() && Chosen(kJobName).value != jobs.begin()->first);
    }
    const auto named = [&](Key key) {
      return Chosen(key).source != Source::kDefault || !Chosen(key).value.empty();
    };
    if (named(kPsHosts) || named(kWorkerHosts)) return true;
    // Some platforms name the task of a job that has no other.
    if (in_tf_config && Trains(Chosen(kJobName).value) &&
        (Chosen(kTaskIndex).value.empty() || Chosen(kTaskIndex).value == "0")) {
      config_.warnings.push_back(
          fmt::format("TF_CONFIG names the task {} but no cluster: it trains on this machine alone",
                      Chosen(kJobName).value));
      return false;
    }
    // A default task index says nothing: there is one in programs that have no other default.
    return named(kJobName) || Chosen(kTaskIndex).source != Source::kDefault;
  }

  Status BuildCluster() {
    const std::string& job = Chosen(kJobName).value;
    const Candidate& index_from = Chosen(kTaskIndex);
    if (job.empty()) return InvalidArgument("Must specify an explicit `job_name`");
    if (index_from.value.empty()) return InvalidArgument("Must specify an explicit `task_index`");
    PASSEL_ASSIGN_OR_RETURN(const int index, ParseInt("the task index", index_from));
    if (TfCluster()) {
      config_.cluster = tf_config_.cluster;
    } else {
      PASSEL_RETURN_IF_ERROR(AddHosts(kPsHosts, "ps"));
      PASSEL_RETURN_IF_ERROR(AddHosts(kWorkerHosts, "worker"));
      for (const auto& [name, value] : file_.single_tasks) {
        PASSEL_RETURN_IF_ERROR(AddHost(name, 0, value.text, FileOrigin(value)));
      }
    }
    config_.partial = tf_config_.partial;
    const ClusterSpec& spec = config_.cluster;
    if (job == "evaluator" && spec.num_tasks(job) == 0) {
      if (index != 0) {
        return WithOrigin(
            InvalidArgument(fmt::format(
                "There must be at most one 'evaluator' job, with index 0, not {}", index)),
            index_from.origin);
      }
      config_.task = TaskId{job, index};
    } else {
      Result<TaskId> task = ResolveTask(spec, job, index);
      if (!task.ok()) {
        const bool no_job = spec.num_tasks(job) == 0;
        return WithOrigin(task.status(), no_job ? Chosen(kJobName).origin : index_from.origin);
      }
      config_.task = std::move(*task);
      PASSEL_ASSIGN_OR_RETURN(const HostPort address, spec.Address(*config_.task));
      config_.target = "grpc://" + address.ToString();
    }
    if (!tf_config_.session_master.empty()) config_.target = tf_config_.session_master;
    config_.is_chief = spec.IsChief(*config_.task);
    // An evaluator trains nothing: it reads what whatever cluster has saved.
    if (job == "evaluator" || config_.partial) return {};
    const Status valid = spec.Validate();
    return valid.ok() || !TfCluster() ? valid : WithOrigin(valid, section_);
  }

  Status AddHosts(Key key, const char* job) {
    const Candidate& from = Chosen(key);
    if (from.value.empty()) {
      return InvalidArgument(fmt::format("Must specify an explicit `{}`", kKeyNames[key]));
    }
    const Result<std::vector<HostPort>> hosts = ParseHostList(from.value);
    if (!hosts.ok()) return WithOrigin(hosts.status(), from.origin);
    for (std::size_t i = 0; i < hosts->size(); ++i) {
      const Status added = config_.cluster.Add(job, static_cast<int>(i), (*hosts)[i]);
      if (!added.ok()) return WithOrigin(added, from.origin);
    }
    return {};
  }

  Status AddHost(std::string_view job, int index, const std::string& text,
                 const std::string& origin) {
    const Result<HostPort> host = ParseHostPort(text);
    if (!host.ok()) return WithOrigin(host.status(), origin);
    const Status added = config_.cluster.Add(job, index, *host);
    return added.ok() ? added : WithOrigin(added, origin);
  }

  void AddSetting(std::string name, const Candidate& from) {
    config_.settings.push_back({std::move(name), from.value, from.source, from.origin});
  }

  void AddSettings() {
    for (int key = 0; key < kKeys; ++key) {
      AddSetting(kKeyNames[key], Chosen(static_cast<Key>(key)));
    }
    for (const auto& [job, tasks] : config_.cluster.jobs()) {
      if (job == "ps" || job == "worker") continue;
      const auto in_file = file_.single_tasks.find(job);
      AddSetting("cluster." + job,
                 in_file != file_.single_tasks.end()
                     ? Candidate{Source::kFile, FileOrigin(in_file->second), in_file->second.text}
                     : Candidate{Source::kTfConfig, section_ + "." + job,
                                 HostsText(config_.cluster, job)});
    }
    for (const auto& [name, value] : {std::pair("environment", &tf_config_.environment),
                                      {"rpc_layer", &tf_config_.rpc_layer},
                                      {"session_master", &tf_config_.session_master}}) {
      if (!value->empty()) {
        AddSetting(name, {Source::kTfConfig, fmt::format("TF_CONFIG {}", name), *value});
      }
    }
    for (const Flag& flag : inputs_.flags) {
      if (std::find(kKeyNames.begin(), kKeyNames.end(), flag.name) != kKeyNames.end()) continue;
      const auto in_file = file_.values.find(flag.name);
      if (flag.given) {
        AddSetting(flag.name, {Source::kFlag, fmt::format("flag --{}", flag.name), flag.value});
      } else if (in_file != file_.values.end()) {
        AddSetting(flag.name, {Source::kFile, FileOrigin(in_file->second), in_file->second.text});
      } else {
        AddSetting(flag.name, {Source::kDefault, flag.default_origin, flag.value});
      }
    }
  }

  Status ChooseDevice() {
    const Setting* const setting = config_.Find("num_gpus");
    const bool known = setting && !setting->value.empty();
    int num_gpus = 0;
    if (known) {
      PASSEL_ASSIGN_OR_RETURN(
          num_gpus, ParseInt("--num_gpus", {setting->source, setting->origin, setting->value}));
    }
    const int index = config_.task ? config_.task->index : 0;
    PASSEL_ASSIGN_OR_RETURN(const std::optional<int> gpu, GpuOfTask(index, num_gpus));
    if (inputs_.gpu_per_worker && config_.distributed) {
      PASSEL_RETURN_IF_ERROR(CheckGpuPerWorker(num_gpus, config_.cluster.num_tasks("worker")));
    }
    if (config_.task && !Trains(config_.task->job)) return {};
    config_.gpu = gpu;
    if (!config_.task) return {};
    Device device;
    device.job = config_.task->job;
    device.task = index;
    if (known) {
      device.type = gpu ? Device::Type::kGpu : Device::Type::kCpu;
      device.index = gpu.value_or(0);
    }
    config_.worker_device = device.ToString();
    return {};
  }

  const ResolveInputs& inputs_;
  TfConfig tf_config_;
  std::string section_;  // where TF_CONFIG's cluster stands
  ConfigFile file_;
  std::array<std::vector<Candidate>, kKeys> candidates_;  // by precedence, the default last
  ResolvedConfig config_;
};

}  // namespace

Result<ResolvedConfig> Resolve(const ResolveInputs& inputs) {
  Resolver resolver(inputs);
  const Status status = resolver.Run();
  ResolvedConfig config = resolver.Take();
  if (status.ok()) return config;
  // What is missing may be there, but not count: the warnings know.
  if (!status.message().starts_with("Must specify an explicit") || config.warnings.empty()) {
    return status;
  }
  std::string why;
  for (const std::string& warning : config.warnings) why += (why.empty() ? "" : "; ") + warning;
  return InvalidArgument(fmt::format("{} ({})", status.message(), why));
}

}  // namespace passel

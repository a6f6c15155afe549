#include "cluster/resolve.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "cluster/device.h"
#include "cluster/resolve_internal.h"
#include "cluster/text.h"

namespace passel {
namespace {

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
    PASSEL_ASSIGN_OR_RETURN(sources_, ReadSources(inputs_));
    config_.warnings = std::move(sources_.warnings);
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
  /// The first candidate wins; warns if it comes from the environment and others disagree.
  void Choose(Key key) {
    const Candidate& winner = sources_.candidates[key].front();
    if (!FromEnvironment(winner.source)) return;
    std::string others;
    for (const Candidate& other : sources_.candidates[key]) {
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

  const Candidate& Chosen(Key key) const { return sources_.candidates[key].front(); }

  /// A chief of the file belongs to the host lists of the file, not to others.
  void DropFileSingleTasks() {
    if (sources_.file.single_tasks.empty()) return;
    if (!sources_.TfCluster() && Chosen(kPsHosts).source == Source::kFile &&
        Chosen(kWorkerHosts).source == Source::kFile) {
      return;
    }
    for (const auto& [job, value] : sources_.file.single_tasks) {
      config_.warnings.push_back(
          fmt::format("{}: cluster.{} is not used, since the ps and worker hosts do not both come "
                      "from the file",
                      Printable(sources_.FileOrigin(value), 256), job));
    }
    sources_.file.single_tasks.clear();
  }

  bool NamesACluster() {
    const bool in_tf_config = Chosen(kJobName).source == Source::kTfConfig;
    if (sources_.TfCluster()) {
      // One task alone needs nobody else; an evaluator watches it from outside.
      const auto& jobs = sources_.tf_config.cluster.jobs();
      const bool alone = jobs.size() == 1 && jobs.begin()->second.size() == 1 &&
                         Trains(jobs.begin()->first) && !sources_.tf_config.partial;
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
    if (inputs_.joins) return true;
    // A default task index says nothing: there is one in programs that have no other default.
    return named(kJobName) || Chosen(kTaskIndex).source != Source::kDefault;
  }

  Status BuildCluster() {
    std::string job = Chosen(kJobName).value;
    const Candidate& index_from = Chosen(kTaskIndex);
    if (inputs_.joins && job.empty()) job = "worker";
    const bool any_index = inputs_.joins && index_from.value.empty();
    if (inputs_.joins && job != "worker") {
      return InvalidArgument(fmt::format(
          "--join is for workers, not for {}: omit it, or use --job_name worker", Quoted(job)));
    }
    if (job.empty()) return InvalidArgument("Must specify an explicit `job_name`");
    if (index_from.value.empty() && !any_index) {
      return InvalidArgument("Must specify an explicit `task_index`");
    }
    int index = 0;
    if (!any_index) {
      PASSEL_ASSIGN_OR_RETURN(index, ParseInt("the task index", index_from));
    }
    if (sources_.TfCluster()) {
      config_.cluster = sources_.tf_config.cluster;
    } else {
      PASSEL_RETURN_IF_ERROR(AddHosts(kPsHosts, "ps"));
      PASSEL_RETURN_IF_ERROR(AddHosts(kWorkerHosts, "worker"));
      for (const auto& [name, value] : sources_.file.single_tasks) {
        PASSEL_RETURN_IF_ERROR(AddHost(name, 0, value.text, sources_.FileOrigin(value)));
      }
    }
    config_.partial = sources_.tf_config.partial;
    const ClusterSpec& spec = config_.cluster;
    if (job == "evaluator" && spec.num_tasks(job) == 0) {
      if (index != 0) {
        return WithOrigin(
            InvalidArgument(fmt::format(
                "There must be at most one 'evaluator' job, with index 0, not {}", index)),
            index_from.origin);
      }
      config_.task = TaskId{job, index};
    } else if (const int listed = spec.num_tasks("worker");
               job == "worker" && listed > 0 &&
               (any_index || (inputs_.more_workers && index >= listed))) {
      config_.task = TaskId{job, any_index ? listed : index};
    } else {
      Result<TaskId> task = ResolveTask(spec, job, index);
      if (!task.ok()) {
        const bool no_job = spec.num_tasks(job) == 0;
        return WithOrigin(task.status(), no_job ? Chosen(kJobName).origin : index_from.origin);
      }
      config_.task = std::move(*task);
      PASSEL_ASSIGN_OR_RETURN(const HostPort address, spec.Address(*config_.task));
      config_.target = address.ToString();
    }
    if (!sources_.tf_config.session_master.empty())
      config_.target = sources_.tf_config.session_master;
    config_.is_chief = spec.IsChief(*config_.task);
    config_.starts_ps = sources_.ranks && sources_.ranks->rank == 0;
    // An evaluator trains nothing: it reads what whatever cluster has saved.
    if (job == "evaluator" || config_.partial) return {};
    const Status valid = spec.Validate();
    return valid.ok() || !sources_.TfCluster() ? valid : WithOrigin(valid, sources_.section);
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
      const auto in_file = sources_.file.single_tasks.find(job);
      AddSetting(
          "cluster." + job,
          in_file != sources_.file.single_tasks.end()
              ? Candidate{Source::kFile, sources_.FileOrigin(in_file->second), in_file->second.text}
              : Candidate{Source::kTfConfig, sources_.section + "." + job,
                          HostsText(config_.cluster, job)});
    }
    for (const auto& [name, value] : {std::pair("environment", &sources_.tf_config.environment),
                                      {"rpc_layer", &sources_.tf_config.rpc_layer},
                                      {"session_master", &sources_.tf_config.session_master}}) {
      if (!value->empty()) {
        AddSetting(name, {Source::kTfConfig, fmt::format("TF_CONFIG {}", name), *value});
      }
    }
    for (const Flag& flag : inputs_.flags) {
      if (std::find(kKeyNames.begin(), kKeyNames.end(), flag.name) != kKeyNames.end()) continue;
      const auto in_file = sources_.file.values.find(flag.name);
      if (flag.given) {
        AddSetting(flag.name, {Source::kFlag, fmt::format("flag --{}", flag.name), flag.value});
      } else if (in_file != sources_.file.values.end()) {
        AddSetting(flag.name,
                   {Source::kFile, sources_.FileOrigin(in_file->second), in_file->second.text});
      } else {
        AddSetting(flag.name, {Source::kDefault, flag.default_origin, flag.value});
      }
    }
  }

  // Ranks of a host share its GPUs, one each while there are enough.
  void CountGpusOfRanks() {
    if (!sources_.ranks || !inputs_.visible_gpus) return;
    for (Setting& setting : config_.settings) {
      if (setting.name != "num_gpus" || setting.source != Source::kDefault ||
          setting.origin != "default") {
        continue;
      }
      const int gpus = std::min(inputs_.visible_gpus(), sources_.ranks->world_size);
      if (gpus <= 0) return;
      setting.value = std::to_string(gpus);
      setting.source = Source::kRanks;
      setting.origin = "environment LOCAL_RANK";
    }
  }

  Status ChooseDevice() {
    CountGpusOfRanks();
    const Setting* const setting = config_.Find("num_gpus");
    const bool known = setting && !setting->value.empty();
    int num_gpus = 0;
    if (known) {
      PASSEL_ASSIGN_OR_RETURN(
          num_gpus, ParseInt("--num_gpus", {setting->source, setting->origin, setting->value}));
    }
    const int index = config_.task ? config_.task->index : 0;
    PASSEL_ASSIGN_OR_RETURN(
        const std::optional<int> gpu,
        GpuOfTask(sources_.ranks ? sources_.ranks->local_rank : index, num_gpus));
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
  Sources sources_;
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

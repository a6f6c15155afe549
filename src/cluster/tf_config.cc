#include "cluster/tf_config.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/json.h"
#include "cluster/text.h"

namespace passel {
namespace {

// root > cluster > job > index
constexpr int kTfConfigDepth = 4;
constexpr std::size_t kMaxUnknownKeys = 16;
constexpr std::string_view kJobs[] = {"chief", "evaluator", "master", "ps", "worker"};

bool IsKnownJob(std::string_view job) { return std::ranges::find(kJobs, job) != std::end(kJobs); }

Status NamingOrigin(const Status& status, std::string_view origin) {
  return Status(status.code(), fmt::format("{} (in TF_CONFIG {})", status.message(), origin));
}

class TfConfigReader {
 public:
  Status Read(const Json& root) {
    if (root.object() == nullptr) {
      return InvalidArgument(
          fmt::format("TF_CONFIG must be a JSON object, not {}: write {{\"cluster\": ..., "
                      "\"task\": ...}}",
                      KindOf(root)));
    }
    const Json* cluster = nullptr;
    const Json* task = nullptr;
    for (const auto& [key, value] : *root.object()) {
      if (key == "cluster" || key == "sparseCluster") {
        if (value.is_null()) continue;
        if (cluster) {
          return InvalidArgument(
              "TF_CONFIG has both \"cluster\" and \"sparseCluster\": keep one of them");
        }
        cluster = &value;
        section_ = key;
      } else if (key == "task") {
        if (!value.is_null()) task = &value;
      } else if (key == "environment") {
        PASSEL_RETURN_IF_ERROR(ReadText(key, value, &config_.environment));
      } else if (key == "rpc_layer") {
        PASSEL_RETURN_IF_ERROR(ReadText(key, value, &config_.rpc_layer));
      } else if (key == "session_master") {
        PASSEL_RETURN_IF_ERROR(ReadText(key, value, &config_.session_master));
      } else {
        NoteUnknown(key);
      }
    }
    config_.sparse_cluster = section_ == "sparseCluster";
    if (task) PASSEL_RETURN_IF_ERROR(ReadTask(*task));
    if (cluster) PASSEL_RETURN_IF_ERROR(ReadCluster(*cluster));
    return CheckTask();
  }

  TfConfig Take() { return std::move(config_); }

 private:
  // "an array", "the value null"
  static std::string KindOf(const Json& value) {
    const std::string_view article = value.list() || value.object() ? "an"
                                     : value.is_null()              ? "the value"
                                                                    : "a";
    return fmt::format("{} {}", article, value.type_name());
  }

  void NoteUnknown(const std::string& key) {
    if (config_.unknown_keys.size() < kMaxUnknownKeys) {
      config_.unknown_keys.push_back(Printable(key, 64));
    }
  }

  static Status ReadText(std::string_view key, const Json& value, std::string* out) {
    if (value.is_null()) return {};
    if (value.text() == nullptr) {
      return InvalidArgument(fmt::format("TF_CONFIG {} must be a string, not {}: put it in quotes",
                                         key, KindOf(value)));
    }
    const std::string& text = *value.text();
    if (text.size() > 1024 || Printable(text, text.size()) != text) {
      return InvalidArgument(fmt::format(
          "TF_CONFIG {} of {} bytes is not allowed: use at most 1024 printable ASCII characters",
          key, text.size()));
    }
    *out = text;
    return {};
  }

  Status ReadTask(const Json& task) {
    if (task.object() == nullptr) {
      return InvalidArgument(
          fmt::format("TF_CONFIG task must be an object, not {}: write "
                      "{{\"type\": \"worker\", \"index\": 0}}",
                      KindOf(task)));
    }
    for (const auto& [key, value] : *task.object()) {
      if (key == "type") {
        if (value.is_null()) continue;
        PASSEL_RETURN_IF_ERROR(ReadText("task.type", value, &config_.task_type));
        if (config_.task_type.empty()) {
          return InvalidArgument("Must specify an explicit `job_name`");
        }
        if (!IsKnownJob(config_.task_type)) {
          return InvalidArgument(fmt::format(
              "Unrecognized task_type: {}, valid task types are: \"chief\", \"worker\", "
              "\"evaluator\" and \"ps\". (in TF_CONFIG task.type)",
              Quoted(config_.task_type, '\'')));
        }
      } else if (key == "index") {
        PASSEL_RETURN_IF_ERROR(ReadIndex(value));
      } else {
        NoteUnknown("task." + key);
      }
    }
    return {};
  }

  Status ReadIndex(const Json& value) {
    if (value.is_null()) return {};
    if (const std::string* const text = value.text()) {
      if (text->empty()) return InvalidArgument("Must specify an explicit `task_index`");
      config_.task_index = ParseDecimal(*text, ClusterSpec::kMaxTaskIndex);
    } else if (const auto index = value.As<int>();
               index && *index >= 0 && *index <= ClusterSpec::kMaxTaskIndex) {
      config_.task_index = index;
    }
    if (config_.task_index) return {};
    const bool compound = value.list() || value.object();
    return InvalidArgument(fmt::format(
        "TF_CONFIG task.index must be an integer, or a string of digits, from 0 to {}, not {}",
        ClusterSpec::kMaxTaskIndex, compound ? KindOf(value) : Printable(value.Write(), 64)));
  }

  Status ReadCluster(const Json& cluster) {
    if (cluster.object() == nullptr) {
      return InvalidArgument(fmt::format(
          "`cluster` must be a dictionary mapping one or more job names to lists of network "
          "addresses, or a `ClusterDef` protocol buffer, not {} (in TF_CONFIG {})",
          KindOf(cluster), section_));
    }
    for (const auto& [job, tasks] : *cluster.object()) {
      if (!IsKnownJob(job)) {
        return InvalidArgument(fmt::format(
            "Disallowed task type found in cluster spec. Allowed types are chief, evaluator, "
            "master, ps and worker, not {} (in TF_CONFIG {})",
            Quoted(job), section_));
      }
      if (tasks.list() != nullptr) {
        PASSEL_RETURN_IF_ERROR(ReadList(job, *tasks.list()));
      } else if (tasks.object() != nullptr) {
        PASSEL_RETURN_IF_ERROR(ReadMap(job, *tasks.object()));
      } else if (!tasks.is_null()) {
        return TasksProblem(job, KindOf(tasks));
      }
    }
    const ClusterSpec& spec = config_.cluster;
    for (const std::string_view job : {"chief", "master", "evaluator"}) {
      if (spec.num_tasks(job) > 1) {
        return InvalidArgument(
            fmt::format("There must be at most one '{0}' job. TF_CONFIG {1}.{0} has {2} tasks: "
                        "keep one",
                        job, section_, spec.num_tasks(job)));
      }
    }
    if (spec.num_tasks("chief") + spec.num_tasks("master") > 1) {
      return InvalidArgument(fmt::format(
          "There must be at most one 'chief' job. TF_CONFIG {} has a chief and a master, which are "
          "two names of it: keep one",
          section_));
    }
    PASSEL_RETURN_IF_ERROR(spec.CheckSingleTasks());
    // A ps with dynamic workers sees no worker.
    const bool sees_both = spec.num_tasks("ps") > 0 && spec.num_tasks("worker") > 0;
    config_.partial = !spec.dense() || (config_.sparse_cluster && !sees_both);
    return {};
  }

  Status TasksProblem(std::string_view job, std::string_view actual) const {
    return InvalidArgument(
        fmt::format("The tasks for job '{0}' must be a list or a dictionary from integers to "
                    "strings. TF_CONFIG {1}.{0} is or has {2}",
                    job, section_, actual));
  }

  Status ReadList(const std::string& job, const Json::List& tasks) {
    // A ps with dynamic workers sees a list of itself alone, at place 0 whatever its index.
    const bool only_itself = config_.sparse_cluster && job == "ps" && tasks.size() == 1 &&
                             config_.task_type == "ps" && config_.task_index;
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      if (i > std::size_t{ClusterSpec::kMaxTaskIndex}) {
        return InvalidArgument(fmt::format("TF_CONFIG {}.{} has {} tasks: a job has at most {}",
                                           section_, job, tasks.size(),
                                           ClusterSpec::kMaxTaskIndex + 1));
      }
      const int index = only_itself ? *config_.task_index : static_cast<int>(i);
      PASSEL_RETURN_IF_ERROR(AddTask(job, index, tasks[i], Ordinal(i + 1) + " host"));
    }
    return {};
  }

  Status ReadMap(const std::string& job, const Json::Object& tasks) {
    for (const auto& [key, address] : tasks) {
      const std::optional<int> index = ParseDecimal(key, ClusterSpec::kMaxTaskIndex);
      if (!index) {
        return TasksProblem(
            job, fmt::format("the index {}: use 0 to {}", Quoted(key), ClusterSpec::kMaxTaskIndex));
      }
      PASSEL_RETURN_IF_ERROR(AddTask(job, *index, address, "host with the index " + key));
    }
    return {};
  }

  /// `which`: "2nd host".
  Status AddTask(const std::string& job, int index, const Json& address, const std::string& which) {
    const auto with_origin = [&](const Status& status) {
      return Status(status.code(), fmt::format("{} (the {} of TF_CONFIG {}.{})", status.message(),
                                               which, section_, job));
    };
    if (address.text() == nullptr) {
      return TasksProblem(job,
                          fmt::format("{} as the {}: write \"host:port\"", KindOf(address), which));
    }
    Result<HostPort> parsed = ParseHostPort(*address.text());
    if (!parsed.ok()) return with_origin(parsed.status());
    const Status added = config_.cluster.Add(job, index, std::move(*parsed));
    return added.ok() ? added : with_origin(added);
  }

  /// What can be said of the task from TF_CONFIG alone.
  Status CheckTask() const {
    const std::string& type = config_.task_type;
    const ClusterSpec& spec = config_.cluster;
    if (type.empty()) return {};
    const auto tasks = spec.jobs().find(type);
    int last = 0;
    if (tasks != spec.jobs().end()) {
      last = tasks->second.rbegin()->first;
    } else if (type != "evaluator") {
      if (spec.jobs().empty() && !config_.sparse_cluster) return {};
      std::string known;
      for (const auto& [job, addresses] : spec.jobs()) known += (known.empty() ? "" : ", ") + job;
      return InvalidArgument(
          fmt::format("`task_type` {} not found in cluster_spec. TF_CONFIG {} has {}",
                      Quoted(type, '\''), section_, known.empty() ? "no tasks" : known));
    }
    if (!config_.task_index) return {};
    if (*config_.task_index > last) {
      return InvalidArgument(fmt::format(
          "The `task_id` {} exceeds the maximum id of {}. TF_CONFIG task.index is at most {}",
          *config_.task_index, type, last));
    }
    if (tasks == spec.jobs().end()) return {};
    const Result<HostPort> address = spec.Address({type, *config_.task_index});
    return address.ok() ? Status() : NamingOrigin(address.status(), "task.index");
  }

  TfConfig config_;
  std::string section_ = "cluster";
};

}  // namespace

Result<TfConfig> ParseTfConfig(std::string_view text) {
  if (text.size() > kMaxTfConfigBytes) {
    return ResourceExhausted(
        fmt::format("TF_CONFIG has {} bytes, more than the {} bytes allowed: make it shorter",
                    text.size(), kMaxTfConfigBytes));
  }
  text = Trim(text);
  if (text.empty()) return TfConfig();
  PASSEL_ASSIGN_OR_RETURN(const Json document, ParseJson("TF_CONFIG", text, kTfConfigDepth));
  TfConfigReader reader;
  PASSEL_RETURN_IF_ERROR(reader.Read(document));
  return reader.Take();
}

}  // namespace passel

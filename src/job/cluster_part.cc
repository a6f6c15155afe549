#include "job/cluster_part.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <map>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "cluster/host_lookup.h"
#include "cluster/json_message.h"
#include "cluster/resolve.h"
#include "job/ask_jobs.h"
#include "job/far_job.h"
#include "job/grace.h"
#include "job/remote_errand.h"
#include "job/remote_facts.h"
#include "shm/rendezvous_client.h"

namespace passel::job {
namespace {

constexpr std::chrono::seconds kNameLimit{5};

// Not the variables of ranks: rank 0 would start a ps beside ours.
constexpr auto kEnvironment = std::to_array<std::string_view>(
    {"TF_CONFIG", "JOB_NAME", "TASK_INDEX", "PS_HOSTS", "WORKER_HOSTS", "PS_KEY", "WORKER_KEY"});

std::optional<std::string> OfEnvironment(const std::string& name) {
  if (std::ranges::find(kEnvironment, name) == kEnvironment.end()) return std::nullopt;
  const char* const value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

// With a task that nobody has named: the lists alone count then.
Result<ResolvedConfig> ResolveLists(const TaskSettings& given, bool any_task) {
  std::vector<Flag> flags(4);
  flags[0] = {"job_name", FlagType::kText, given.job_name, !given.job_name.empty()};
  flags[1] = {"task_index", FlagType::kInteger,
              given.task_index ? std::to_string(*given.task_index) : "",
              given.task_index.has_value()};
  flags[2] = {"ps_hosts", FlagType::kText, given.ps_hosts, !given.ps_hosts.empty()};
  flags[3] = {"worker_hosts", FlagType::kText, given.worker_hosts, !given.worker_hosts.empty()};
  if (any_task) {
    flags[0].value = "worker";
    flags[1].value = "0";
  }
  ResolveInputs inputs;
  inputs.flags = flags;
  inputs.environment = OfEnvironment;
  return Resolve(inputs);
}

bool IsHere(const HostPort& address) {
  if (IsLocalHost(address.host)) return true;
  const Result<std::vector<TcpAddress>> found = LookUp(address, Deadline::After(kNameLimit));
  if (!found.ok()) LogDebug("{}: {}", address.host, found.status().message());
  return found.ok() &&
         std::ranges::any_of(*found, [](const TcpAddress& a) { return IsLocalHost(a.Numbers()); });
}

Result<std::vector<TaskId>> TasksOfThisHost(const ClusterSpec& cluster) {
  std::vector<TaskId> tasks;
  std::map<std::string, bool> here;  // each host is looked up once
  for (const char* job : {"ps", "chief", "master", "worker"}) {
    const auto found = cluster.jobs().find(job);
    if (found == cluster.jobs().end()) continue;
    for (const auto& [index, address] : found->second) {
      if (!here.contains(address.host)) here[address.host] = IsHere(address);
      if (here[address.host]) tasks.push_back({job, index});
    }
  }
  if (!tasks.empty()) return tasks;
  return InvalidArgument(fmt::format(
      "no task of the lists is on this host ({}): run it on the hosts that they name, or name the "
      "task with --job_name and --task_index",
      cluster.CanonicalText()));
}

}  // namespace

int ClusterPart::Count(bool ps) const {
  return static_cast<int>(
      std::ranges::count_if(tasks, [&](const TaskId& id) { return (id.job == "ps") == ps; }));
}

bool ClusterPart::HasLead() const {
  return std::ranges::find(tasks, TaskId{"ps", 0}) != tasks.end();
}

int ClusterPart::TrainerOf(const TaskId& id) const {
  return id.job == "worker" ? id.index : task.Names().chief;
}

TaskSettings ClusterPart::SettingsOf(const TaskId& id) const {
  TaskSettings settings;
  settings.job_id = task.job_id;
  settings.token_file = task.flags.token_file;
  settings.insecure_no_auth = task.flags.insecure_no_auth;
  settings.lease = task.flags.lease;
  settings.fabric_spin_us = task.flags.fabric_spin_us;
  // Who has started it kills it when that is over.
  settings.grace = ToSeconds(GraceForTasks(task.flags.grace));
  if (in_environment) return settings;
  settings.job_name = id.job;
  settings.task_index = id.index;
  settings.ps_hosts = task.flags.ps_hosts;
  settings.worker_hosts = task.flags.worker_hosts;
  return settings;
}

std::string ClusterPart::LinesOf(const TaskId& id) const {
  const TaskSettings settings = SettingsOf(id);
  std::string lines = fmt::format("job_id={}\n", settings.job_id);
  if (!settings.token_file.empty()) lines += fmt::format("token_file={}\n", settings.token_file);
  if (settings.insecure_no_auth) lines += "insecure_no_auth=true\n";
  if (settings.lease != TaskSettings().lease) lines += fmt::format("lease={}\n", settings.lease);
  if (settings.fabric_spin_us)
    lines += fmt::format("fabric_spin_us={}\n", *settings.fabric_spin_us);
  if (in_environment) return lines;
  return lines + fmt::format("job_name={}\ntask_index={}\nps_hosts={}\nworker_hosts={}\n", id.job,
                             id.index, settings.ps_hosts, settings.worker_hosts);
}

std::string ClusterPart::FailureOf(const TaskId& id, const std::string& how) const {
  const Result<HostPort> address = task.spec.Address(id);
  return fmt::format(
      "{} on {} {} and ended the job: its traceback, or what else it said, is in the output there",
      id.ToString(), address.ok() ? address->host : "another host", how);
}

Status ClusterPart::StopJob(const std::string& failure, Deadline deadline) const {
  if (HasLead() || !task.several_hosts) {
    PASSEL_ASSIGN_OR_RETURN(shm::RendezvousClient ps,
                            shm::RendezvousClient::Control(task.job_id, 0, deadline));
    return ps.Stop(deadline, failure);
  }
  PASSEL_ASSIGN_OR_RETURN(const HostPort lead, task.spec.Address({"ps", 0}));
  const FarJob job{task.job_id, {lead}, DoorKeyOf(task)};
  return AskFar(job, 0, {{"ask", "stop"}, {"failure", failure}}, deadline).status();
}

Result<ClusterPart::Stop> ClusterPart::HowItStopped(Deadline deadline) const {
  Result<Json> status = NotFound("");
  if (task.several_hosts && !HasLead()) {
    PASSEL_ASSIGN_OR_RETURN(const HostPort lead, task.spec.Address({"ps", 0}));
    status = StatusOfFar({task.job_id, {lead}, DoorKeyOf(task)}, deadline);
  } else {
    status = AskJob(task.job_id, deadline);
  }
  PASSEL_RETURN_IF_ERROR(status.status());
  Stop stop;
  PASSEL_ASSIGN_OR_RETURN(stop.failure, FieldOr(*status, "failure", std::string()));
  stop.failure = Printable(stop.failure, kMostFailureBytes);
  const Json* const arena = status->Find("arena");
  if (arena == nullptr && stop.failure.empty()) {
    return NotFound("the job has not begun, or is over");
  }
  stop.stopped = true;
  if (arena != nullptr) {
    PASSEL_ASSIGN_OR_RETURN(stop.stopped, FieldOr(*arena, "stopped", false));
  }
  return stop;
}

Result<std::optional<ClusterPart>> FindClusterPart(const TaskSettings& flags,
                                                   const JobSettings& job, bool counts_given) {
  Result<ResolvedConfig> resolved = ResolveLists(flags, /*any_task=*/false);
  const bool named = resolved.ok();
  if (!named) {
    // What it lacks may be a task: nobody has named one.
    Result<ResolvedConfig> lists = ResolveLists(flags, /*any_task=*/true);
    PASSEL_RETURN_IF_ERROR(lists.status());
    for (const char* of_task : {"job_name", "task_index"}) {
      if (lists->Find(of_task)->source != Source::kDefault) return resolved.status();
    }
    resolved = std::move(lists);
  }
  if (!resolved->distributed) {
    if (flags.token_file.empty() && !flags.insecure_no_auth) return std::optional<ClusterPart>();
    return InvalidArgument(fmt::format(
        "--{} is for a job on several hosts: name them with --ps_hosts and --worker_hosts, or omit "
        "it",
        flags.token_file.empty() ? "insecure_no_auth" : "token_file"));
  }
  if (counts_given) {
    return InvalidArgument(
        "the lists say how many ps and workers there are: omit --ps, --workers and --max_workers, "
        "or the lists");
  }
  ClusterPart part;
  part.warnings = resolved->warnings;
  part.task.flags = flags;
  part.task.job = job;
  if (named) {
    part.tasks = {*resolved->task};
    if (part.tasks[0].job == "evaluator") {
      return InvalidArgument(
          "passel run starts ps and workers, no evaluator: start that with passel task");
    }
  } else {
    PASSEL_RETURN_IF_ERROR(resolved->CheckComplete());
    PASSEL_ASSIGN_OR_RETURN(part.tasks, TasksOfThisHost(resolved->cluster));
    resolved->task = part.tasks[0];
    resolved->is_chief = resolved->cluster.IsChief(part.tasks[0]);
  }
  const Setting* const name = resolved->Find("job_name");
  part.in_environment =
      named && (name->source == Source::kTfConfig || name->source == Source::kTaskEnvironment);
  part.task.flags.ps_hosts = resolved->Find("ps_hosts")->value;
  part.task.flags.worker_hosts = resolved->Find("worker_hosts")->value;
  PASSEL_RETURN_IF_ERROR(PrepareTask(*resolved, &part.task));
  return std::optional(std::move(part));
}

}  // namespace passel::job

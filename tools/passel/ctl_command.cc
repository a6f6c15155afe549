// `passel ctl`: finds the running jobs of this user, shows one, changes its mode, stops it.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <vector>

#include "base/log.h"
#include "shm/rendezvous_client.h"
#include "store/mode.h"
#include "tools/passel/commands.h"
#include "tools/passel/exit_code.h"
#include "tools/passel/find_job.h"
#include "tools/passel/flag_checks.h"

namespace passel {
namespace {

using Json = nlohmann::json;

Deadline Limit() { return Deadline::After(std::chrono::seconds(5)); }

Result<shm::RendezvousClient> ConnectTo(const std::string& job) {
  shm::Introduction me;
  me.job_id = job;
  me.role = shm::Role::kControl;
  return shm::RendezvousClient::Connect(me, shm::Role::kPs, 0, nullptr, Limit());
}

Result<Json> StatusOf(const std::string& job) {
  PASSEL_ASSIGN_OR_RETURN(shm::RendezvousClient client, ConnectTo(job));
  PASSEL_ASSIGN_OR_RETURN(const std::string text, client.GetStatus(Limit()));
  Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return DataLoss("the ps answered something that is no status");
  return json;
}

Status List() {
  PASSEL_ASSIGN_OR_RETURN(const auto jobs, FindJobs());
  if (jobs.empty()) {
    fmt::print("no job of this user is running on this host\n");
    return {};
  }
  fmt::print("{:<32} {:>3} {:>7} {:>9} {:>12}\n", "JOB", "PS", "WORKERS", "MODE", "GLOBAL STEP");
  for (const auto& [job, ps] : jobs) {
    const Result<Json> status = StatusOf(job);
    if (!status.ok()) {
      fmt::print("{:<32} {:>3}  {}\n", job, ps, status.status().message());
    } else if (!status->contains("arena")) {
      fmt::print("{:<32} {:>3}  starting\n", job, ps);
    } else {
      const Json& arena = (*status)["arena"];
      fmt::print("{:<32} {:>3} {:>7} {:>9} {:>12}\n", job, ps, arena.at("workers").size(),
                 arena.at("mode").get<std::string>(), arena.at("global_step").get<std::int64_t>());
    }
  }
  return {};
}

// "changing to mode barrier: worker/1 has not ended its last step in the old one"
std::string DescribeChange(const Json& changing) {
  std::string workers;
  for (const Json& task : changing.at("waits_for")) {
    workers += fmt::format("{}{}", workers.empty() ? "" : ", ", task.get<std::string>());
  }
  const std::string text =
      fmt::format("changing to mode {}", changing.at("mode").get<std::string>());
  if (workers.empty()) return text;
  return fmt::format("{}: waiting for {} to end the last step in the old one", text, workers);
}

Status Show(const std::string& named, bool json) {
  PASSEL_ASSIGN_OR_RETURN(const std::string job, ChooseJob(named));
  PASSEL_ASSIGN_OR_RETURN(const Json status, StatusOf(job));
  if (json) {
    fmt::print("{}\n", status.dump(2));
    return {};
  }
  fmt::print("job {}, ps/0 is process {}\n", job, status.value("pid", 0));
  if (!status.contains("arena")) {
    fmt::print("starting: the chief, {}, has not proposed its plan yet\n",
               status.value("chief", std::string("worker/0")));
    return {};
  }
  const Json& a = status["arena"];
  fmt::print("mode {}, optimizer {}, {} parameters on {} ps, arena of ps/0 {} bytes\n",
             a.at("mode").get<std::string>(), a.at("optimizer").get<std::string>(),
             a.at("parameters").get<std::uint64_t>(), a.at("shards").get<int>(),
             a.at("bytes").get<std::uint64_t>());
  fmt::print("global step {}, local steps {}{}\n", a.at("global_step").get<std::int64_t>(),
             a.at("local_steps").get<std::uint64_t>(),
             a.at("stopped").get<bool>() ? ", stopping" : "");
  if (a.at("shadow").is_object()) {
    const Json& shadow = a.at("shadow");
    fmt::print("the parameters are on the GPU; {}\n",
               shadow.at("age_seconds").is_null()
                   ? std::string("their shadow in the arena has the first values")
                   : fmt::format("their shadow in the arena is of step {}, {:.1f} s old",
                                 shadow.at("global_step").get<std::int64_t>(),
                                 shadow.at("age_seconds").get<double>()));
  }
  if (a.at("modes").size() > 1) {
    std::string modes;
    for (const Json& m : a.at("modes")) {
      modes += fmt::format("{}{} from step {} on", modes.empty() ? "" : ", ",
                           m.at("mode").get<std::string>(), m.at("since").get<std::int64_t>());
    }
    fmt::print("modes so far: {}\n", modes);
  }
  if (a.at("changing").is_object()) fmt::print("{}\n", DescribeChange(a.at("changing")));
  for (const Json& w : a.at("workers")) {
    fmt::print("{} {}{}, process {}, {} local steps, loss {:.4f}, last heard of {:.1f} s ago\n",
               w.at("task").get<std::string>(), w.at("phase").get<std::string>(),
               w.at("device") == "gpu" ? " on a GPU" : "", w.at("pid").get<int>(),
               w.at("local_steps").get<std::uint64_t>(), w.at("loss").get<double>(),
               w.at("heartbeat_age_seconds").get<double>());
  }
  return {};
}

struct SetModeFlags {
  std::vector<std::string> words;  // [JOB] MODE
  std::optional<int> replicas_to_aggregate, staleness_bound;
  double wait = 30;  // seconds
  TypedNumbers typed;
};

Result<ModeSetting> WantedMode(const SetModeFlags& flags) {
  PASSEL_ASSIGN_OR_RETURN(ModeSetting setting, ParseModeSetting(flags.words.back()));
  if (flags.replicas_to_aggregate) {
    if (*flags.replicas_to_aggregate == 0) {  // which stands for the default elsewhere
      return InvalidArgument(
          fmt::format("--replicas_to_aggregate is 1 to {}, not 0: use 1 or more, or "
                      "leave it away for one gradient of each worker",
                      kMaxReplicasToAggregate));
    }
    setting.replicas_to_aggregate = *flags.replicas_to_aggregate;
  }
  if (flags.staleness_bound) setting.staleness_bound = *flags.staleness_bound;
  if (setting.mode != Mode::kSsp && flags.staleness_bound) {
    return InvalidArgument(
        fmt::format("--staleness_bound has no meaning in mode {}: use ssp, or leave it away",
                    ModeName(setting.mode)));
  }
  PASSEL_RETURN_IF_ERROR(setting.Validate());
  return setting;
}

// The change itself is the workers' doing; this asks for it and looks on. A ps that is started
// again in between is asked again: a wish that stands already is not made twice.
Status SetMode(const SetModeFlags& flags) {
  PASSEL_ASSIGN_OR_RETURN(const ModeSetting setting, WantedMode(flags));
  PASSEL_RETURN_IF_ERROR(CheckRange("--wait", flags.wait, 0.1, 1e6, flags.typed, " s"));
  PASSEL_ASSIGN_OR_RETURN(const std::string job,
                          ChooseJob(flags.words.size() > 1 ? flags.words.front() : ""));
  const Deadline deadline =
      Deadline::After(std::chrono::nanoseconds(static_cast<std::int64_t>(flags.wait * 1e9)));
  std::optional<std::uint32_t> number;
  std::string waits_for;
  for (;;) {
    Status problem;
    if (!number) {
      Result<shm::RendezvousClient> client = ConnectTo(job);
      problem = client.status();
      if (client.ok()) {
        const Result<std::uint32_t> asked = client->SetMode(setting, Limit());
        problem = asked.status();
        if (asked.ok()) number = *asked;
      }
      const bool passes = problem.ok() || problem.code() == Code::kUnavailable ||
                          problem.code() == Code::kNotFound ||
                          problem.code() == Code::kAlreadyExists;
      if (!passes) return problem;
    } else if (const Result<Json> status = StatusOf(job);
               status.ok() && status->contains("arena")) {
      const Json& a = (*status)["arena"];
      if (a.at("mode_number").get<std::uint32_t>() >= *number) {
        fmt::print("job {}: mode {} since global step {}\n", job,
                   a.at("modes").back().at("mode").get<std::string>(),
                   a.at("mode_since").get<std::int64_t>());
        return {};
      }
      if (a.at("stopped").get<bool>()) {
        return FailedPrecondition(fmt::format("job {} is ending: its mode did not change", job));
      }
      if (a.at("changing").is_object()) waits_for = DescribeChange(a.at("changing"));
    } else {
      problem = status.status();
    }
    const auto jobs = FindJobs();
    if (problem.code() == Code::kNotFound && jobs.ok() && !jobs->contains(job)) {
      return NotFound(number ? fmt::format("job {} ended before its mode changed", job)
                             : problem.message());
    }
    if (deadline.Expired()) {
      if (!number) return problem;
      return DeadlineExceeded(
          fmt::format("job {} was asked, and the wish stands, but it took more than {:g} s: it is "
                      "{}; see passel "
                      "ctl status {}",
                      job, flags.wait, waits_for, job));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

Status Stop(const std::string& named) {
  PASSEL_ASSIGN_OR_RETURN(const std::string job, ChooseJob(named));
  PASSEL_ASSIGN_OR_RETURN(shm::RendezvousClient client, ConnectTo(job));
  PASSEL_RETURN_IF_ERROR(client.Stop(Limit()));
  fmt::print("job {} ends after the current step\n", job);
  return {};
}

int Finish(const Status& status) {
  if (!status.ok()) LogError("{}", status.message());
  std::fflush(stdout);
  return ExitCodeFor(status);
}

}  // namespace

void AddCtlCommand(CLI::App& app, Run* run) {
  CLI::App* ctl =
      app.add_subcommand("ctl", "List, show, change and stop the running jobs of this user");
  ctl->require_subcommand(1);
  CLI::App* list = ctl->add_subcommand("list", "All running jobs of this user on this host");
  list->callback([run] { *run = [] { return Finish(List()); }; });
  struct Flags {
    std::string job;
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* status = ctl->add_subcommand("status", "One job: progress, workers, events");
  status->add_option("job", flags->job, "Job id; may be left away if one job is running");
  status->add_flag("--json", flags->json, "Everything, as JSON");
  status->callback(
      [flags, run] { *run = [flags] { return Finish(Show(flags->job, flags->json)); }; });
  auto wanted = std::make_shared<SetModeFlags>();
  CLI::App* set_mode = ctl->add_subcommand(
      "set-mode", "Change the mode of a running job between two steps, without losing an update");
  set_mode
      ->add_option("mode", wanted->words,
                   "[JOB] MODE: hogwild, locked, barrier, replicas or ssp. JOB may be left away if "
                   "one job is running")
      ->option_text("[JOB] MODE")
      ->required()
      ->expected(1, 2);
  set_mode->add_option("--replicas_to_aggregate", wanted->replicas_to_aggregate,
                       "replicas: gradients per update. Default: the number of workers");
  set_mode->add_option("--staleness_bound", wanted->staleness_bound,
                       "ssp: steps a worker may be ahead of the slowest. Default: 3");
  wanted->typed.Keep(
      set_mode
          ->add_option("--wait", wanted->wait,
                       "Seconds to wait until every worker has ended its last step in the old mode")
          ->capture_default_str());
  set_mode->callback([wanted, run] { *run = [wanted] { return Finish(SetMode(*wanted)); }; });
  CLI::App* stop = ctl->add_subcommand("stop", "Ask a job to end after the current step");
  stop->add_option("job", flags->job, "Job id; may be left away if one job is running");
  stop->callback([flags, run] { *run = [flags] { return Finish(Stop(flags->job)); }; });
}

}  // namespace passel

// `passel ctl`: finds the running jobs of this user, shows one, changes its mode, stops it.

#include <fmt/format.h>

#include <array>
#include <ctime>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/log.h"
#include "cluster/patience.h"
#include "job/ask_jobs.h"
#include "job/find_job.h"
#include "job/flag_checks.h"
#include "job/mode_settings.h"
#include "shm/rendezvous_client.h"
#include "store/mode.h"
#include "tools/passel/commands.h"
#include "tools/passel/flags.h"

namespace passel {
namespace {

using Json = nlohmann::json;

Deadline Limit() { return Deadline::After(std::chrono::seconds(5)); }

// list and status answer within a second, with what has answered until then.
Deadline AnswerLimit() { return Deadline::After(std::chrono::milliseconds(700)); }

// The ps is of another build of passel.
Status NoStatus(const std::string& job) {
  return DataLoss(fmt::format(
      "ps/0 of job {} answered something else than a status: use the passel ctl of its build",
      job));
}

// "20000", or "-" where another rule ends the job or nobody has said it yet.
std::string Target(const Json& arena) {
  const Json& step = arena.at("target_step");
  return step.is_null() ? "-" : fmt::format("{}", step.get<std::int64_t>());
}

// In the local zone, with the offset from UTC: "2026-11-21 17:04:05 +0100"; "-" before it is known.
std::string Started(const Json& arena) {
  if (arena.at("started").is_null()) return "-";
  const auto seconds = static_cast<std::time_t>(arena.at("started").get<double>());
  std::tm local{};
  std::array<char, 64> text{};
  if (::localtime_r(&seconds, &local) == nullptr ||
      std::strftime(text.data(), text.size(), "%F %T %z", &local) == 0) {
    return "-";
  }
  return text.data();
}

// Where its images come from; "" if it has not said so.
std::string DataDirectory(const Json& status) {
  const auto data = status.find("data");
  return data == status.end() || !data->is_object() ? "" : data->value("directory", std::string());
}

// "ps/1, ps/2"
std::string Silent(const job::JobAnswer& job) {
  return fmt::format("{}", fmt::join(job.silent, ", "));
}

// The line of a job that has answered.
std::string Summary(const Json& status) {
  const Json& a = status.at("arena");
  const std::string data = DataDirectory(status);
  return fmt::format("{:>7} {:>9} {:>12} {:>12} {:>9.0f} {:<25} {}", a.at("workers").size(),
                     a.at("mode").get<std::string>(), a.at("global_step").get<std::int64_t>(),
                     Target(a), a.at("steps_per_second").get<double>(), Started(a),
                     data.empty() ? "-" : data);
}

// A job without a ps.
bool IsAlone(const Json& status) { return status.value("alone", false); }

// JSON has null for what is not finite.
double NumberOrNan(const Json& value) {
  return value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

// Every job has a line, and the jobs that answer are shown whatever the others do.
Status List(bool json) {
  PASSEL_ASSIGN_OR_RETURN(const std::vector<job::JobAnswer> jobs, job::AskJobs("", AnswerLimit()));
  if (json) {
    Json all = Json::array();
    for (const job::JobAnswer& job : jobs) {
      all.push_back({{"job", job.job}, {"ps", job.ps}, {"silent", job.silent}});
      if (job.status.ok()) all.back()["status"] = Json::parse(*job.status);
      if (!job.status.ok()) all.back()["error"] = job.status.status().message();
    }
    fmt::print("{}\n", all.dump(2));
    return {};
  }
  if (jobs.empty()) {
    fmt::print("no job of this user is running on this host\n");
    return {};
  }
  fmt::print("{:<32} {:>3} {:>7} {:>9} {:>12} {:>12} {:>9} {:<25} {}\n", "JOB", "PS", "WORKERS",
             "MODE", "GLOBAL STEP", "OF", "STEPS/S", "STARTED", "DATA");
  for (const job::JobAnswer& job : jobs) {
    std::string line;
    const Json status = job.status.ok() ? Json::parse(*job.status) : Json::object();
    if (!job.status.ok()) {
      line = " " + job.status.status().message();
    } else if (!status.contains("arena")) {
      line = " starting";
    } else {
      try {
        line = Summary(status);
      } catch (const Json::exception&) {
        line = " " + NoStatus(job.job).message();
      }
    }
    fmt::print("{:<32} {:>3} {}\n", job.job, IsAlone(status) ? 0 : job.ps, line);
    if (!job.silent.empty()) fmt::print("{:<32}      no answer from {}\n", "", Silent(job));
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

void Print(const job::JobAnswer& job) {
  const Json status = Json::parse(*job.status);
  const bool alone = IsAlone(status);
  fmt::print("job {}, {} process {}\n", job.job, alone ? "one" : "ps/0 is", status.value("pid", 0));
  if (!job.silent.empty()) fmt::print("no answer from {}\n", Silent(job));
  if (const std::string data = DataDirectory(status); !data.empty()) fmt::print("data {}\n", data);
  if (!status.contains("arena")) {
    fmt::print("starting: the chief, {}, has not proposed its plan yet\n",
               status.value("chief", std::string("worker/0")));
    return;
  }
  const Json& a = status["arena"];
  fmt::print("started {}\n", Started(a));
  fmt::print("mode {}, optimizer {}, {} parameters on {} ps, arena of {} bytes\n",
             a.at("mode").get<std::string>(), a.at("optimizer").get<std::string>(),
             a.at("parameters").get<std::uint64_t>(), alone ? 0 : a.at("shards").get<int>(),
             a.at("bytes").get<std::uint64_t>());
  const std::string target = Target(a);
  fmt::print("global step {}{}, local steps {}, {:.0f} steps/s since the first{}\n",
             a.at("global_step").get<std::int64_t>(), target == "-" ? "" : " of " + target,
             a.at("local_steps").get<std::uint64_t>(), a.at("steps_per_second").get<double>(),
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
               w.at("local_steps").get<std::uint64_t>(), NumberOrNan(w.at("loss")),
               w.at("heartbeat_age_seconds").get<double>());
  }
}

Status Show(const std::string& named, bool json) {
  const Deadline limit = AnswerLimit();
  PASSEL_ASSIGN_OR_RETURN(const std::string chosen, job::ChooseJob(named));
  PASSEL_ASSIGN_OR_RETURN(const std::vector<job::JobAnswer> jobs, job::AskJobs(chosen, limit));
  if (jobs.empty()) return NotFound(fmt::format("job {} ended just now", chosen));
  const job::JobAnswer& job = jobs.front();
  if (!job.status.ok()) return job.status.status();
  if (json) {
    Json status = Json::parse(*job.status);
    status["silent"] = job.silent;
    fmt::print("{}\n", status.dump(2));
    return {};
  }
  try {
    Print(job);
  } catch (const Json::exception&) {
    return NoStatus(job.job);
  }
  return {};
}

struct SetModeFlags {
  std::vector<std::string> words;  // [JOB] MODE
  std::optional<std::int64_t> replicas_to_aggregate, staleness_bound;
  double wait = 30;  // seconds
  job::TypedNumbers typed;
};

Result<ModeSetting> WantedMode(const SetModeFlags& flags) {
  PASSEL_ASSIGN_OR_RETURN(ModeSetting setting, ParseModeSetting(flags.words.back()));
  const job::ModeNumber numbers[] = {{"replicas_to_aggregate", flags.replicas_to_aggregate},
                                     {"staleness_bound", flags.staleness_bound}};
  PASSEL_RETURN_IF_ERROR(job::TakeNumbers(numbers, &setting));
  return setting;
}

// The change itself is the workers' doing; this asks for it and looks on. A ps that is started
// again in between is asked again: a wish that stands already is not made twice.
Status SetMode(const SetModeFlags& flags) {
  PASSEL_ASSIGN_OR_RETURN(const ModeSetting setting, WantedMode(flags));
  PASSEL_RETURN_IF_ERROR(job::CheckRange("--wait", flags.wait, 0.1, 1e6, flags.typed, " s"));
  PASSEL_ASSIGN_OR_RETURN(const std::string job,
                          job::ChooseJob(flags.words.size() > 1 ? flags.words.front() : ""));
  Patience patience(
      Deadline::After(std::chrono::nanoseconds(static_cast<std::int64_t>(flags.wait * 1e9))));
  std::optional<std::uint32_t> number;
  std::string waits_for;
  for (;;) {
    Status problem;
    if (!number) {
      Result<shm::RendezvousClient> client = shm::RendezvousClient::Control(job, 0, Limit());
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
    } else if (const Result<std::string> text = job::AskJob(job, Limit()); !text.ok()) {
      problem = text.status();
    } else if (const Json status = Json::parse(*text); status.contains("arena")) {
      const Json& a = status["arena"];
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
    }
    const auto jobs = job::FindJobs();
    if (problem.code() == Code::kNotFound && jobs.ok() && !jobs->contains(job)) {
      return NotFound(number ? fmt::format("job {} ended before its mode changed", job)
                             : problem.message());
    }
    if (!patience.Again()) {
      if (!number) return problem;
      return DeadlineExceeded(
          fmt::format("job {} was asked, and the wish stands, but it took more than {:g} s: it is "
                      "{}; see passel "
                      "ctl status {}",
                      job, flags.wait, waits_for, job));
    }
  }
}

Status Stop(const std::string& named) {
  PASSEL_ASSIGN_OR_RETURN(const std::string job, job::ChooseJob(named));
  PASSEL_ASSIGN_OR_RETURN(shm::RendezvousClient client,
                          shm::RendezvousClient::Control(job, 0, Limit()));
  PASSEL_RETURN_IF_ERROR(client.Stop(Limit()));
  fmt::print("job {} ends after the current step\n", job);
  return {};
}

}  // namespace

void AddCtlCommand(Command& program) {
  Command ctl =
      program.AddCommand("ctl", "List, show, change and stop the running jobs of this user");
  ctl.NeedsCommand();
  Command list = ctl.AddCommand("list", "All running jobs of this user on this host");
  struct Flags {
    std::string job;
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  list.AddSwitch("--json", &flags->json, "Everything, as JSON");
  list.OnRun([flags] { return FinishCommand(List(flags->json)); });
  Command status = ctl.AddCommand("status", "One job: progress, workers, events");
  status.Add("job", &flags->job, "Job id; may be omitted if one job is running");
  status.AddSwitch("--json", &flags->json, "Everything, as JSON");
  status.OnRun([flags] { return FinishCommand(Show(flags->job, flags->json)); });
  auto wanted = std::make_shared<SetModeFlags>();
  Command set_mode = ctl.AddCommand(
      "set-mode", "Change the mode of a running job between two steps, without losing an update");
  set_mode
      .Add("mode", &wanted->words,
           fmt::format("[JOB] MODE: {}. JOB may be omitted if one job is running",
                       ModeNames(/*rounds=*/true)))
      .ShowAs("[JOB] MODE")
      .Required()
      .Takes(1, 2);
  set_mode.Add("--replicas_to_aggregate", &wanted->replicas_to_aggregate,
               "replicas: gradients per update. Default: the number of workers");
  set_mode.Add("--staleness_bound", &wanted->staleness_bound,
               "ssp: steps a worker may be ahead of the slowest. Default: 3");
  set_mode
      .Add("--wait", &wanted->wait,
           "Seconds to wait until every worker has ended its last step in the old mode")
      .ShowDefault()
      .KeepTyped(&wanted->typed);
  set_mode.OnRun([wanted] { return FinishCommand(SetMode(*wanted)); });
  Command stop = ctl.AddCommand("stop", "Ask a job to end after the current step");
  stop.Add("job", &flags->job, "Job id; may be omitted if one job is running");
  stop.OnRun([flags] { return FinishCommand(Stop(flags->job)); });
}

}  // namespace passel

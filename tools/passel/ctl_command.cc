// `passel ctl`: finds the running jobs of this user, shows one, changes its mode, stops it.

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <vector>

#include "base/local_time.h"
#include "base/log.h"
#include "base/text.h"
#include "cluster/patience.h"
#include "job/ask_jobs.h"
#include "job/flag_checks.h"
#include "job/job_access.h"
#include "job/mode_settings.h"
#include "job/status_view.h"
#include "store/mode.h"
#include "tools/passel/commands.h"
#include "tools/passel/flags.h"

namespace passel {
namespace {

constexpr const char* kJobHelp = "Job id; may be omitted if one job is running, or with --ps_hosts";

Deadline Limit() { return Deadline::After(std::chrono::seconds(5)); }

// list and status answer within a second, with what has answered until then.
Deadline AnswerLimit() { return Deadline::After(std::chrono::milliseconds(700)); }

// Those of a program of its own are its metrics.
std::string Results(const job::WorkerView& worker) {
  std::string text;
  if (worker.metrics.object() == nullptr || worker.metrics.object()->empty()) {
    return fmt::format("loss {:.4f}", worker.loss);
  }
  for (const auto& [name, value] : *worker.metrics.object()) {
    const std::optional<double> number = value.As<double>();
    const std::string* const other = value.text();  // of what is not finite
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", Printable(name, 64),
                        number             ? fmt::format("{:.6g}", *number)
                        : other != nullptr ? Printable(*other, 64)
                                           : "nan");
  }
  return text;
}

// "20000", or "-" where another rule ends the job or nobody has said it yet.
std::string Target(const job::ArenaView& arena) {
  return arena.target_step ? fmt::format("{}", *arena.target_step) : "-";
}

// "-" before it is known.
std::string Started(const job::ArenaView& arena) {
  return arena.started ? LocalTimeText(*arena.started) : "-";
}

// "ps/1, ps/2"
std::string Silent(const job::JobAnswer& job) {
  return fmt::format("{}", fmt::join(job.silent, ", "));
}

// The line of a job that has answered.
std::string Summary(const job::StatusView& status) {
  if (!status.arena) return " starting";
  const job::ArenaView& a = *status.arena;
  const std::string& data = status.data.directory;
  return fmt::format("{:>7} {:>9} {:>12} {:>12} {:>9.0f} {:<25} {}", a.workers.size(), a.mode,
                     a.global_step, Target(a), a.steps_per_second, Started(a),
                     data.empty() ? "-" : data);
}

// Every job has a line, and the jobs that answer are shown whatever the others do.
Status List(const job::FarJobFlags& where, bool json) {
  PASSEL_ASSIGN_OR_RETURN(const auto access, job::OpenJobAccess(where));
  PASSEL_ASSIGN_OR_RETURN(const std::vector<job::JobAnswer> jobs,
                          access->AskAll("", AnswerLimit()));
  if (json) {
    Json all = Json::MakeList();
    for (const job::JobAnswer& job : jobs) {
      Json& told = *all.Add({{"job", job.job}, {"ps", job.ps}, {"silent", job.silent}});
      if (job.status.ok()) told["status"] = *job.status;
      if (!job.status.ok()) told["error"] = job.status.status().message();
    }
    fmt::print("{}\n", all.Write(2));
    return {};
  }
  if (jobs.empty()) {
    fmt::print("no job of this user is running on this host\n");
    return {};
  }
  fmt::print("{:<32} {:>3} {:>7} {:>9} {:>12} {:>12} {:>9} {:<25} {}\n", "JOB", "PS", "WORKERS",
             "MODE", "GLOBAL STEP", "OF", "STEPS/S", "STARTED", "DATA");
  for (const job::JobAnswer& job : jobs) {
    const Result<job::StatusView> status =
        job.status.ok() ? job::ReadStatus(job.job, *job.status) : job.status.status();
    fmt::print("{:<32} {:>3} {}\n", job.job, status.ok() && status->alone ? 0 : job.ps,
               status.ok() ? Summary(*status) : " " + status.status().message());
    if (!job.silent.empty()) fmt::print("{:<32}      no answer from {}\n", "", Silent(job));
  }
  return {};
}

// "changing to mode barrier: worker/1 has not ended its last step in the old one"
std::string DescribeChange(const job::ChangeView& changing) {
  const std::string text = fmt::format("changing to mode {}", changing.mode);
  if (changing.waits_for.empty()) return text;
  return fmt::format("{}: waiting for {} to end the last step in the old one", text,
                     fmt::join(changing.waits_for, ", "));
}

// "learning rates 0.01 (weight decay 0.1), 0.001, of the groups in turn"
std::string DescribeRates(const std::vector<job::RatesView>& rates) {
  std::string text;
  for (const job::RatesView& group : rates) {
    if (!text.empty()) text += ", ";
    text += fmt::format("{:.6g}", group.learning_rate);
    if (group.weight_decay != 0) text += fmt::format(" (weight decay {:.6g})", group.weight_decay);
  }
  return rates.size() == 1 ? "learning rate " + text
                           : fmt::format("learning rates {}, of the groups in turn", text);
}

void Print(const job::JobAnswer& job, const job::StatusView& status) {
  fmt::print("job {}, {} process {}\n", job.job, status.alone ? "one" : "ps/0 is", status.pid);
  if (!job.silent.empty()) fmt::print("no answer from {}\n", Silent(job));
  if (!status.data.directory.empty()) fmt::print("data {}\n", status.data.directory);
  if (!status.arena) {
    fmt::print("starting: the chief, {}, has not proposed its plan yet\n", status.chief);
    return;
  }
  const job::ArenaView& a = *status.arena;
  fmt::print("started {}\n", Started(a));
  fmt::print("mode {}, optimizer {}, {} parameters on {} ps, arena of {} bytes\n", a.mode,
             a.optimizer, a.parameters, status.alone ? 0 : a.shards, a.bytes);
  if (!a.rates.empty()) fmt::print("{}\n", DescribeRates(a.rates));
  fmt::print("global step {}{}, local steps {}, {:.0f} steps/s since the first{}\n", a.global_step,
             a.target_step ? " of " + Target(a) : "", a.local_steps, a.steps_per_second,
             a.stopped ? ", stopping" : "");
  if (a.shadow) {
    fmt::print("the parameters are on the GPU; {}\n",
               !a.shadow->age_seconds
                   ? std::string("their shadow in the arena has the first values")
                   : fmt::format("their shadow in the arena is of step {}, {:.1f} s old",
                                 a.shadow->global_step, *a.shadow->age_seconds));
  }
  if (a.modes.size() > 1) {
    std::string modes;
    for (const job::ModeView& m : a.modes) {
      modes += fmt::format("{}{} from step {} on", modes.empty() ? "" : ", ", m.mode, m.since);
    }
    fmt::print("modes so far: {}\n", modes);
  }
  if (a.changing) fmt::print("{}\n", DescribeChange(*a.changing));
  for (const job::WorkerView& w : a.workers) {
    fmt::print("{} {}{}, process {}, {} local steps, {}, last heard of {:.1f} s ago\n", w.task,
               w.phase, w.device == "gpu" ? " on a GPU" : "", w.pid, w.local_steps, Results(w),
               w.heartbeat_age_seconds);
  }
}

Status Show(const job::FarJobFlags& where, bool json) {
  const Deadline limit = AnswerLimit();
  PASSEL_ASSIGN_OR_RETURN(const auto access, job::OpenJobAccess(where));
  PASSEL_ASSIGN_OR_RETURN(const std::string chosen, access->Choose(where.job_id));
  PASSEL_ASSIGN_OR_RETURN(const std::vector<job::JobAnswer> jobs, access->AskAll(chosen, limit));
  if (jobs.empty()) return NotFound(fmt::format("job {} ended just now", chosen));
  const job::JobAnswer& job = jobs.front();
  if (!job.status.ok()) return job.status.status();
  if (json) {
    Json status = *job.status;
    status["silent"] = job.silent;
    fmt::print("{}\n", status.Write(2));
    return {};
  }
  PASSEL_ASSIGN_OR_RETURN(const job::StatusView status, job::ReadStatus(job.job, *job.status));
  Print(job, status);
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
Status SetMode(job::FarJobFlags where, const SetModeFlags& flags) {
  PASSEL_ASSIGN_OR_RETURN(const ModeSetting setting, WantedMode(flags));
  PASSEL_RETURN_IF_ERROR(job::CheckRange("--wait", flags.wait, 0.1, 1e6, flags.typed, " s"));
  if (flags.words.size() > 1) where.job_id = flags.words.front();
  PASSEL_ASSIGN_OR_RETURN(const auto access, job::OpenJobAccess(where));
  PASSEL_ASSIGN_OR_RETURN(const std::string job, access->Choose(where.job_id));
  Patience patience(
      Deadline::After(std::chrono::nanoseconds(static_cast<std::int64_t>(flags.wait * 1e9))));
  std::optional<std::uint32_t> number;
  std::string waits_for;
  for (;;) {
    Status problem;
    if (!number) {
      const Result<std::uint32_t> asked = access->SetMode(job, setting, Limit());
      problem = asked.status();
      if (asked.ok()) number = *asked;
      const bool passes = problem.ok() || problem.code() == Code::kUnavailable ||
                          problem.code() == Code::kNotFound ||
                          problem.code() == Code::kAlreadyExists;
      if (!passes) return problem;
    } else if (const Result<Json> answer = access->Ask(job, Limit()); !answer.ok()) {
      problem = answer.status();
    } else {
      PASSEL_ASSIGN_OR_RETURN(const job::StatusView status, job::ReadStatus(job, *answer));
      if (status.arena && status.arena->mode_number >= *number && !status.arena->modes.empty()) {
        fmt::print("job {}: mode {} since global step {}\n", job, status.arena->modes.back().mode,
                   status.arena->mode_since);
        return {};
      }
      if (status.arena && status.arena->stopped) {
        return FailedPrecondition(fmt::format("job {} is ending: its mode did not change", job));
      }
      if (status.arena && status.arena->changing) {
        waits_for = DescribeChange(*status.arena->changing);
      }
    }
    if (problem.code() == Code::kNotFound && !access->Runs(job)) {
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

Status Stop(const job::FarJobFlags& where) {
  PASSEL_ASSIGN_OR_RETURN(const auto access, job::OpenJobAccess(where));
  PASSEL_ASSIGN_OR_RETURN(const std::string job, access->Choose(where.job_id));
  PASSEL_RETURN_IF_ERROR(access->Stop(job, Limit()));
  fmt::print("job {} ends after the current step\n", job);
  return {};
}

}  // namespace

void AddFarJobFlags(Command& command, job::FarJobFlags* flags) {
  command
      .Add("--ps_hosts", &flags->ps_hosts,
           "A job whose ps are on other hosts: host:port,... of them, as its tasks have it")
      .Group("Other hosts");
  command.Add("--token_file", &flags->token_file, "With --ps_hosts: the token of the job, a copy")
      .Group("Other hosts");
  command
      .Add("--job_id", &flags->job_id,
           "With --ps_hosts: the name of the job, if its tasks were given one")
      .Group("Other hosts");
  command
      .AddSwitch("--insecure_no_auth", &flags->insecure_no_auth,
                 "With --ps_hosts: the job has no token")
      .Group("Other hosts");
}

void AddCtlCommand(Command& program) {
  Command ctl =
      program.AddCommand("ctl", "List, show, change and stop the running jobs of this user");
  ctl.NeedsCommand();
  Command list = ctl.AddCommand("list", "All running jobs of this user on this host");
  struct Flags {
    job::FarJobFlags where;
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  AddFarJobFlags(list, &flags->where);
  list.AddSwitch("--json", &flags->json, "Everything, as JSON");
  list.OnRun([flags] { return FinishCommand(List(flags->where, flags->json)); });
  Command status = ctl.AddCommand("status", "One job: progress, workers, events");
  status.Add("job", &flags->where.job_id, kJobHelp);
  AddFarJobFlags(status, &flags->where);
  status.AddSwitch("--json", &flags->json, "Everything, as JSON");
  status.OnRun([flags] { return FinishCommand(Show(flags->where, flags->json)); });
  auto wanted = std::make_shared<SetModeFlags>();
  Command set_mode = ctl.AddCommand(
      "set-mode", "Change the mode of a running job between two steps, without losing an update");
  set_mode
      .Add("mode", &wanted->words,
           fmt::format(
               "[JOB] MODE: {}. JOB may be omitted if one job is running, or with --ps_hosts",
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
  AddFarJobFlags(set_mode, &flags->where);
  set_mode.OnRun([wanted, flags] { return FinishCommand(SetMode(flags->where, *wanted)); });
  AddScaleCommand(ctl);
  Command stop = ctl.AddCommand("stop", "Ask a job to end after the current step");
  stop.Add("job", &flags->where.job_id, kJobHelp);
  AddFarJobFlags(stop, &flags->where);
  stop.OnRun([flags] { return FinishCommand(Stop(flags->where)); });
}

}  // namespace passel

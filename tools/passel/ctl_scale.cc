// `passel ctl scale`: another number of workers for a job that trains.

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>

#include "cluster/patience.h"
#include "job/flag_checks.h"
#include "job/job_access.h"
#include "job/status_view.h"
#include "tools/passel/commands.h"

namespace passel {
namespace {

struct ScaleFlags {
  job::FarJobFlags where;
  std::int64_t workers = 0;
  double wait = 60;  // seconds
  job::TypedNumbers typed;
};

Deadline AnswerInTime() { return Deadline::After(std::chrono::seconds(5)); }

// What has come of it, now that the supervisor has seen to it. A worker that is done was there.
Status SayWhoIsIn(const std::string& job, std::int64_t wanted, const job::ArenaView& arena) {
  std::int64_t in = 0;
  std::string others;
  for (std::int64_t k = 0; k < wanted; ++k) {
    const std::string name = fmt::format("worker/{}", k);
    std::string phase = "did not join";
    for (const job::WorkerView& worker : arena.workers) {
      if (worker.task == name) phase = worker.phase;
    }
    const bool there = phase == "running" || phase == "done";
    in += there;
    if (!there) others += fmt::format("{}{} ({})", others.empty() ? "" : ", ", name, phase);
  }
  if (in == wanted) {
    fmt::print("job {}: {} worker{}\n", job, wanted, wanted == 1 ? "" : "s");
    return {};
  }
  return Internal(
      fmt::format("job {} has {} of {} workers, without {}: its output says why; ask for {} again "
                  "to start them again",
                  job, in, wanted, others, wanted));
}

// The supervisor starts and ends workers; this asks for it and looks on. A ps that is started
// again in between is asked again.
Status Scale(const ScaleFlags& flags) {
  PASSEL_RETURN_IF_ERROR(job::CheckRange("--wait", flags.wait, 0.1, 1e6, flags.typed, " s"));
  PASSEL_ASSIGN_OR_RETURN(const auto access, job::OpenJobAccess(flags.where));
  PASSEL_ASSIGN_OR_RETURN(const std::string job, access->Choose(flags.where.job_id));
  Patience patience(
      Deadline::After(std::chrono::nanoseconds(static_cast<std::int64_t>(flags.wait * 1e9))));
  std::optional<std::uint32_t> number;
  for (;;) {
    Status problem;
    if (!number) {
      const Result<std::uint32_t> asked = access->Scale(job, flags.workers, AnswerInTime());
      problem = asked.status();
      if (asked.ok()) number = *asked;
      // Another change may be under way.
      if (!problem.ok() && !IsMissing(problem.code()) && problem.code() != Code::kAlreadyExists) {
        return problem;
      }
    } else if (const Result<Json> answer = access->Ask(job, AnswerInTime()); !answer.ok()) {
      problem = answer.status();
    } else {
      PASSEL_ASSIGN_OR_RETURN(const job::StatusView status, job::ReadStatus(job, *answer));
      if (status.arena && status.arena->scale_number >= *number) {
        return SayWhoIsIn(job, flags.workers, *status.arena);
      }
      if (status.arena && status.arena->stopped) {
        return FailedPrecondition(
            fmt::format("job {} is ending: its number of workers does not change any more", job));
      }
    }
    if (problem.code() == Code::kNotFound && !access->Runs(job)) {
      return NotFound(number
                          ? fmt::format("job {} ended before it had {} workers", job, flags.workers)
                          : problem.message());
    }
    if (!patience.Again()) {
      if (!number) return problem;
      return DeadlineExceeded(
          fmt::format("job {} was asked for {} workers, and the wish stands, but it took more than "
                      "{:g} s: see passel ctl status {}",
                      job, flags.workers, flags.wait, job));
    }
  }
}

}  // namespace

void AddScaleCommand(Command& ctl) {
  auto flags = std::make_shared<ScaleFlags>();
  Command scale = ctl.AddCommand("scale", "Start or end workers of a job while it trains");
  scale.Add("job", &flags->where.job_id,
            "Job id; may be omitted if one job is running, or with --ps_hosts");
  scale
      .Add("--workers", &flags->workers,
           "How many the job is to have: 1 up to its --max_workers. Those with the highest index "
           "leave first, each after its step")
      .Required();
  scale.Add("--wait", &flags->wait, "Seconds to wait until they have joined or left")
      .ShowDefault()
      .KeepTyped(&flags->typed);
  AddFarJobFlags(scale, &flags->where);
  scale.OnRun([flags] { return FinishCommand(Scale(*flags)); });
}

}  // namespace passel

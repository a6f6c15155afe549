// `passel ctl`: finds the running jobs of this user, shows one, stops one.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "shm/rendezvous_client.h"
#include "tools/passel/commands.h"
#include "tools/passel/exit_code.h"
#include "tools/passel/find_job.h"

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

Status Show(const std::string& named, bool json) {
  PASSEL_ASSIGN_OR_RETURN(const std::string job, ChooseJob(named));
  PASSEL_ASSIGN_OR_RETURN(const Json status, StatusOf(job));
  if (json) {
    fmt::print("{}\n", status.dump(2));
    return {};
  }
  fmt::print("job {}, ps/0 is process {}\n", job, status.value("pid", 0));
  if (!status.contains("arena")) {
    fmt::print("starting: the chief has not proposed its plan yet\n");
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
  for (const Json& w : a.at("workers")) {
    fmt::print(
        "worker/{} {}, process {}, {} local steps, loss {:.4f}, last heard of {:.1f} s ago\n",
        w.at("index").get<int>(), w.at("phase").get<std::string>(), w.at("pid").get<int>(),
        w.at("local_steps").get<std::uint64_t>(), w.at("loss").get<double>(),
        w.at("heartbeat_age_seconds").get<double>());
  }
  return {};
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
  CLI::App* ctl = app.add_subcommand("ctl", "List, show and stop the running jobs of this user");
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
  CLI::App* stop = ctl->add_subcommand("stop", "Ask a job to end after the current step");
  stop->add_option("job", flags->job, "Job id; may be left away if one job is running");
  stop->callback([flags, run] { *run = [flags] { return Finish(Stop(flags->job)); }; });
}

}  // namespace passel

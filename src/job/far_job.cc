#include "job/far_job.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/cpu_isa.h"
#include "cluster/json_message.h"
#include "fabric/control/control_connection.h"
#include "fabric/wire.h"
#include "job/ask_jobs.h"
#include "job/remote_errand.h"
#include "job/run_info.h"

namespace passel::job {
namespace {

// A status has some hundred bytes for each worker.
constexpr std::size_t kMostText = std::size_t{8} << 20;

Result<Json> AskAndKeep(const FarJob& job, int shard, const Json& question, Deadline deadline,
                        std::unique_ptr<fabric::ControlConnection>* kept) {
  fabric::ControlOptions options;
  options.address = job.ps[static_cast<std::size_t>(shard)];
  options.peer_index = shard;
  options.key = job.key;
  options.me.job_id = job.job_id;
  options.me.role = Role::kControl;
  options.me.wire = fabric::kProtocolVersion;
  options.me.build = Version();
  options.me.processor = CpuIsaName(ChosenCpuIsa());
  const auto ask = [&]() -> Result<Errand> {
    Result<std::unique_ptr<fabric::ControlConnection>> connection =
        fabric::ControlConnection::Open(options, deadline);
    if (connection.status().code() == Code::kUnavailable) {
      return NotFound(connection.status().message());
    }
    PASSEL_RETURN_IF_ERROR(connection.status());
    *kept = std::move(*connection);
    PASSEL_ASSIGN_OR_RETURN(const std::unique_ptr<fabric::Pipe> pipe,
                            (*kept)->MakePipe(deadline, fabric::Purpose::kErrand));
    PASSEL_RETURN_IF_ERROR(SendErrand(*pipe, question));
    return ReceiveErrand(*pipe, kMostText, deadline);
  };
  Result<Errand> answer = ask();
  if (answer.status().code() == Code::kDeadlineExceeded) {
    return DeadlineExceeded(
        fmt::format("{} of job {} does not answer: it may be stopped (kill -CONT), or the machine "
                    "or the network is overloaded; try again",
                    NameOfPs(job, shard), job.job_id));
  }
  PASSEL_RETURN_IF_ERROR(answer.status());
  PASSEL_RETURN_IF_ERROR(ErrorOf(answer->json));
  Json said = std::move(answer->json);
  if (!answer->bytes.empty()) said["text"] = answer->bytes;
  return said;
}

}  // namespace

std::string NameOfPs(const FarJob& job, int shard) {
  return fmt::format("ps/{} at {}", shard, job.ps[static_cast<std::size_t>(shard)].ToString());
}

Result<FarJob> NameFarJob(const FarJobFlags& flags) {
  FarJob job;
  PASSEL_ASSIGN_OR_RETURN(job.ps, ParseHostList(flags.ps_hosts));
  job.job_id = flags.job_id;
  if (job.job_id.empty()) {
    ClusterSpec spec;
    PASSEL_RETURN_IF_ERROR(spec.Add("ps", 0, job.ps.front()));
    job.job_id = JobIdFromSpec(spec);
  }
  PASSEL_RETURN_IF_ERROR(ValidateJobId(job.job_id));
  job.key.insecure_no_auth = flags.insecure_no_auth;
  if (flags.insecure_no_auth) return job;
  if (flags.token_file.empty()) {
    return InvalidArgument(
        "--ps_hosts asks a job by its port, which takes its token: give --token_file FILE, a copy "
        "of the one that its tasks have, or --insecure_no_auth where they have that");
  }
  PASSEL_ASSIGN_OR_RETURN(job.key.token, JobToken::Read(flags.token_file));
  return job;
}

Result<Json> AskFar(const FarJob& job, int shard, const Json& question, Deadline deadline) {
  std::unique_ptr<fabric::ControlConnection> connection;  // ends with the answer
  return AskAndKeep(job, shard, question, deadline, &connection);
}

Result<FarPlace> ReserveFarPlace(const FarJob& job, const std::vector<int>& workers,
                                 Deadline deadline) {
  std::unique_ptr<fabric::ControlConnection> connection;
  PASSEL_ASSIGN_OR_RETURN(
      const Json said,
      AskAndKeep(job, 0,
                 {{"ask", "reserve"}, {"workers", Json::List(workers.begin(), workers.end())}},
                 deadline, &connection));
  FarPlace place;
  PASSEL_ASSIGN_OR_RETURN(place.worker, Field<int>(said, "worker"));
  if (std::ranges::find(workers, place.worker) == workers.end()) {
    return DataLoss(fmt::format("{} gives a place that was not asked for", NameOfPs(job, 0)));
  }
  place.holds = std::move(connection);
  return place;
}

Result<Json> StatusOfFar(const FarJob& job, Deadline deadline) {
  PASSEL_ASSIGN_OR_RETURN(const Json said, AskFar(job, 0, {{"ask", "status"}}, deadline));
  PASSEL_ASSIGN_OR_RETURN(const auto text, Field<std::string>(said, "text"));
  Result<Json> status = ParseJson("a status", text, kStatusDepth);
  if (status.ok() && status->object() != nullptr) return status;
  return DataLoss(
      fmt::format("{} answered something that is no status: it is of another build of passel",
                  NameOfPs(job, 0)));
}

}  // namespace passel::job

#include "job/job_access.h"

#include <fmt/core.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "cluster/json_message.h"
#include "cluster/patience.h"
#include "job/find_job.h"
#include "shm/rendezvous_client.h"

namespace passel::job {
namespace {

class JobsHere final : public JobAccess {
 public:
  Result<std::string> Choose(const std::string& named) const override { return ChooseJob(named); }
  Result<std::vector<JobAnswer>> AskAll(const std::string& job, Deadline deadline) const override {
    return AskJobs(job, deadline);
  }
  Result<Json> Ask(const std::string& job, Deadline deadline) const override {
    return AskJob(job, deadline);
  }
  Result<std::uint32_t> SetMode(const std::string& job, const ModeSetting& mode,
                                Deadline deadline) const override {
    PASSEL_ASSIGN_OR_RETURN(shm::RendezvousClient client,
                            shm::RendezvousClient::Control(job, 0, deadline));
    return client.SetMode(mode, deadline);
  }
  Result<std::uint32_t> Scale(const std::string& job, std::int64_t workers,
                              Deadline deadline) const override {
    PASSEL_ASSIGN_OR_RETURN(shm::RendezvousClient client,
                            shm::RendezvousClient::Control(job, 0, deadline));
    return client.Scale(workers, deadline);
  }
  Status Stop(const std::string& job, Deadline deadline) const override {
    PASSEL_ASSIGN_OR_RETURN(shm::RendezvousClient client,
                            shm::RendezvousClient::Control(job, 0, deadline));
    return client.Stop(deadline);
  }
  bool Runs(const std::string& job) const override {
    const auto jobs = FindJobs();
    return !jobs.ok() || jobs->contains(job);
  }
  std::string Where() const override { return "on this host"; }
};

class JobElsewhere final : public JobAccess {
 public:
  explicit JobElsewhere(FarJob job) : job_(std::move(job)) {}

  Result<std::string> Choose(const std::string&) const override { return job_.job_id; }
  Result<std::vector<JobAnswer>> AskAll(const std::string&, Deadline) const override {
    const Deadline limit = Deadline::After(kAnswerLimit);
    std::vector<Result<Json>> answers(job_.ps.size(), NotFound(""));
    std::vector<std::thread> others;
    for (std::size_t s = 1; s < job_.ps.size(); ++s) {
      others.emplace_back([this, s, limit, &answers] {
        answers[s] = AskFar(job_, static_cast<int>(s), {{"ask", "status"}}, limit);
      });
    }
    JobAnswer answer{job_.job_id, static_cast<int>(job_.ps.size()), Ask(job_.job_id, limit), {}};
    for (std::thread& other : others) other.join();
    // Of one that is silent the line says so; where another job is, or none, there is no line.
    const Status lead = answer.status.status();
    if (!lead.ok() && lead.code() != Code::kDeadlineExceeded) return lead;
    for (std::size_t s = 1; s < answers.size(); ++s) {
      if (answers[s].ok() || !IsMissing(answers[s].status().code())) continue;
      answer.silent.push_back(fmt::format("ps/{}", s));
    }
    std::vector<JobAnswer> all;
    all.push_back(std::move(answer));
    return all;
  }
  Result<Json> Ask(const std::string&, Deadline deadline) const override {
    return StatusOfFar(job_, deadline);
  }
  Result<std::uint32_t> SetMode(const std::string&, const ModeSetting& mode,
                                Deadline deadline) const override {
    return Number({{"ask", "set_mode"}, {"mode", mode.ToString()}}, deadline);
  }
  Result<std::uint32_t> Scale(const std::string&, std::int64_t workers,
                              Deadline deadline) const override {
    return Number({{"ask", "scale"}, {"workers", workers}}, deadline);
  }
  Status Stop(const std::string&, Deadline deadline) const override {
    return AskFar(job_, 0, {{"ask", "stop"}}, deadline).status();
  }
  bool Runs(const std::string& job) const override {
    return Ask(job, Deadline::After(kAnswerLimit)).status().code() != Code::kNotFound;
  }
  std::string Where() const override { return "at " + job_.ps.front().ToString(); }

 private:
  static constexpr std::chrono::seconds kAnswerLimit{5};

  Result<std::uint32_t> Number(const Json& question, Deadline deadline) const {
    PASSEL_ASSIGN_OR_RETURN(const Json said, AskFar(job_, 0, question, deadline));
    return Field<std::uint32_t>(said, "number");
  }

  const FarJob job_;
};

}  // namespace

Result<std::unique_ptr<JobAccess>> OpenJobAccess(const FarJobFlags& flags) {
  if (flags.ps_hosts.empty()) {
    if (flags.token_file.empty() && !flags.insecure_no_auth) {
      return std::unique_ptr<JobAccess>(std::make_unique<JobsHere>());
    }
    return InvalidArgument(
        fmt::format("--{} is for a job on other hosts: name its ps by --ps_hosts, or omit it",
                    flags.token_file.empty() ? "insecure_no_auth" : "token_file"));
  }
  PASSEL_ASSIGN_OR_RETURN(FarJob job, NameFarJob(flags));
  return std::unique_ptr<JobAccess>(std::make_unique<JobElsewhere>(std::move(job)));
}

}  // namespace passel::job

#include "job/ask_jobs.h"

#include <fmt/core.h>

#include <map>
#include <system_error>
#include <thread>
#include <utility>

#include "cluster/endpoint.h"
#include "shm/rendezvous_client.h"

namespace passel::job {
namespace {

Result<Json> AskPs(const std::string& job, int ps, Deadline deadline) {
  Result<shm::RendezvousClient> client = shm::RendezvousClient::Control(job, ps, deadline);
  Status problem = client.status();
  if (client.ok()) {
    Result<std::string> text = client->GetStatus(deadline);
    if (text.ok()) {
      Result<Json> status = ParseJson("a status", *text, kStatusDepth);
      if (status.ok() && status->object() != nullptr) return status;
      return DataLoss(
          fmt::format("ps/{} of job {} answered something that is no status: passel ctl and the "
                      "job are of different builds",
                      ps, job));
    }
    problem = text.status();
  }
  if (problem.code() == Code::kDeadlineExceeded) {
    return DeadlineExceeded(
        fmt::format("ps/{} of job {} does not answer: it may be stopped (kill -CONT), or the "
                    "machine is overloaded; try again",
                    ps, job));
  }
  return problem;
}

}  // namespace

Result<std::vector<JobAnswer>> AskJobs(const std::string& job, Deadline deadline) {
  PASSEL_ASSIGN_OR_RETURN(const std::vector<FoundEndpoint> endpoints, FindEndpoints());
  std::map<std::string, std::map<int, Result<Json>>> asked;
  for (const FoundEndpoint& e : endpoints) {
    if (e.role != Role::kPs || (!job.empty() && e.job_id != job)) continue;
    asked[e.job_id].emplace(e.index, NotFound(""));
  }
  std::vector<std::thread> threads;
  for (auto& [name, tasks] : asked) {
    for (auto& [index, answer] : tasks) {
      const auto ask = [&name = name, &index = index, &answer = answer, deadline] {
        answer = AskPs(name, index, deadline);
      };
      try {
        threads.emplace_back(ask);
      } catch (const std::system_error&) {
        ask();  // no more threads for this user
      }
    }
  }
  for (std::thread& thread : threads) thread.join();

  std::vector<JobAnswer> answers;
  for (auto& [name, tasks] : asked) {
    JobAnswer found{name,
                    static_cast<int>(tasks.size()),
                    NotFound(fmt::format("ps/0 of job {} is not there", name)),
                    {}};
    for (auto& [index, answer] : tasks) {
      if (index == 0) {
        found.status = std::move(answer);
      } else if (answer.status().code() == Code::kDeadlineExceeded) {
        found.silent.push_back(fmt::format("ps/{}", index));
      }
    }
    answers.push_back(std::move(found));
  }
  return answers;
}

Result<Json> AskJob(const std::string& job, Deadline deadline) { return AskPs(job, 0, deadline); }

}  // namespace passel::job

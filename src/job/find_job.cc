#include "job/find_job.h"

#include <fmt/core.h>

#include <vector>

#include "cluster/endpoint.h"

namespace passel::job {

Result<std::map<std::string, int>> FindJobs() {
  PASSEL_ASSIGN_OR_RETURN(const std::vector<FoundEndpoint> endpoints, FindEndpoints());
  std::map<std::string, int> jobs;
  for (const FoundEndpoint& e : endpoints) {
    if (e.role == Role::kPs) ++jobs[e.job_id];
  }
  return jobs;
}

Result<std::string> ChooseJob(const std::string& named) {
  PASSEL_ASSIGN_OR_RETURN(const auto jobs, FindJobs());
  if (!named.empty()) {
    if (jobs.contains(named)) return named;
    return NotFound(fmt::format(
        "no job {} of this user is running on this host: passel ctl list shows all", named));
  }
  if (jobs.size() == 1) return jobs.begin()->first;
  if (jobs.empty()) return NotFound("no job of this user is running on this host");
  return InvalidArgument(fmt::format(
      "{} jobs are running: name one of those that passel ctl list shows", jobs.size()));
}

}  // namespace passel::job

// ask_jobs.h - what the running jobs of this user say of themselves, asked all at once.

#pragma once

#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/json.h"
#include "base/status.h"

namespace passel::job {

/// Of a status: status > arena > workers > worker > seconds.
inline constexpr int kStatusDepth = 5;

/// What one job has answered.
struct JobAnswer {
  std::string job;
  int ps = 0;  ///< how many listen
  /// The answer of ps/0, an object. Errors: kDeadlineExceeded, naming who did not answer;
  /// kDataLoss; those of shm::RendezvousClient::Connect().
  Result<Json> status;
  std::vector<std::string> silent;  ///< "ps/1": the other ps that did not answer in time
};

/// Asks one job that was found, or, with an empty name, all; sorted by name. Each ps is asked on a
/// thread of its own, so that a job that is stuck costs the others nothing: returns by the
/// deadline. Errors: those of FindEndpoints().
Result<std::vector<JobAnswer>> AskJobs(const std::string& job, Deadline deadline);

/// The status of ps/0 of one job. Errors: as JobAnswer::status.
Result<Json> AskJob(const std::string& job, Deadline deadline);

}  // namespace passel::job

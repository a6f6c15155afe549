// job_access.h - where `passel ctl` finds the jobs that it asks: those of this user on this host,
// or one whose ps are at addresses that are named.
//
// Thread safety: const.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/json.h"
#include "base/status.h"
#include "job/ask_jobs.h"
#include "job/far_job.h"
#include "store/mode.h"

namespace passel::job {

class JobAccess {
 public:
  virtual ~JobAccess() = default;
  /// The one that was named, or, for an empty name, the only one. Errors: those of ChooseJob().
  virtual Result<std::string> Choose(const std::string& named) const = 0;
  /// As AskJobs(). Over a network `deadline` is moved to some seconds.
  virtual Result<std::vector<JobAnswer>> AskAll(const std::string& job,
                                                Deadline deadline) const = 0;
  /// As AskJob().
  virtual Result<Json> Ask(const std::string& job, Deadline deadline) const = 0;
  /// As in shm/rendezvous_client.h; the first two return the number of the wish. kNotFound: ps/0 is
  /// not there.
  virtual Result<std::uint32_t> SetMode(const std::string& job, const ModeSetting& mode,
                                        Deadline deadline) const = 0;
  virtual Result<std::uint32_t> Scale(const std::string& job, std::int64_t workers,
                                      Deadline deadline) const = 0;
  virtual Status Stop(const std::string& job, Deadline deadline) const = 0;
  /// Whether it is still there. True where that cannot be known.
  virtual bool Runs(const std::string& job) const = 0;
  /// Where no job is: "on this host".
  virtual std::string Where() const = 0;
};

/// Without ps_hosts: of this host. Errors: those of NameFarJob().
Result<std::unique_ptr<JobAccess>> OpenJobAccess(const FarJobFlags& flags);

}  // namespace passel::job

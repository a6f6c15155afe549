// reader.h - a process that reads the values of a job and is no part of it: copies that nobody
// changes (shm/snapshot.h), of a job that runs on this host under the same user.
//
// Nothing is kept between calls but the plan and the last copy, so a reader costs the job nothing
// while it waits, and a ps that is started again is found again.
//
// Threads    One at a time.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/deadline.h"
#include "base/status.h"
#include "shm/snapshot.h"
#include "store/store_plan.h"

namespace passel::capi {

class Reader {
 public:
  /// Waits for the job and its first values. `job_id` empty: the only job of this user. Errors:
  /// kNotFound; kInvalidArgument when several run; those of shm::PlanOfJob().
  static Result<std::unique_ptr<Reader>> Attach(const std::string& job_id, Deadline deadline);

  const VariableTable& variables() const { return plan_.variables; }
  /// Errors: kInvalidArgument.
  Status CheckVariable(std::size_t variable) const;

  /// Copies all values. `at_one_step`: the workers wait between two steps meanwhile. Errors: those
  /// of shm::TakeSnapshot() and TakeConsistentSnapshot(); kFailedPrecondition: the job was begun
  /// anew with other variables. The copy of before stays after an error.
  Status Read(bool at_one_step, Deadline deadline);
  /// REQUIRES: has_values().
  const shm::Snapshot& snapshot() const { return *snapshot_; }
  bool has_values() const { return snapshot_.has_value(); }
  /// REQUIRES: has_values(), CheckVariable().
  std::span<const float> Values(std::size_t variable) const;

  /// Until the global step is `step` or more; returns what it is. Errors: kDeadlineExceeded;
  /// kUnavailable: the job has ended.
  Result<std::int64_t> WaitForStep(std::int64_t step, Deadline deadline) const;

 private:
  Reader(std::string job, StorePlan plan) : job_(std::move(job)), plan_(std::move(plan)) {}

  const std::string job_;
  const StorePlan plan_;
  std::optional<shm::Snapshot> snapshot_;
};

}  // namespace passel::capi

// checkpoint_settings.h - the settings of checkpoints, checked; and what a checkpoint says of the
// settings of its job, which one that goes on from it is compared with.

#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/json.h"
#include "base/status.h"
#include "io/checkpoint_folder.h"
#include "job/job_settings.h"

namespace passel::job {

inline constexpr const char* kResumeAuto = "auto";
inline constexpr const char* kResumeNever = "never";

struct CheckpointConfig {
  std::string folder;                    ///< "": none are made
  std::chrono::nanoseconds interval{0};  ///< 0: not by time
  std::int64_t steps = 0;                ///< 0: not by steps
  KeepPolicy keep;
  std::string resume = kResumeAuto;  ///< or kResumeNever, or a path
  std::string init;                  ///< "": none
  bool consistent = false;
  /// The same for all lives of one job: the folder's owner is waited for if it said the same. Of
  /// whoever starts it; "": none.
  std::string job;

  bool ResumesFromPath() const { return resume != kResumeAuto && resume != kResumeNever; }
};

/// Errors: kInvalidArgument, for a path of --resume or --init that is not there, too.
Result<CheckpointConfig> CheckCheckpointSettings(const JobSettings& settings);

/// Each setting that all tasks share and its value as a flag takes it, without those that have
/// none.
Json SettingsToKeep(JobSettings settings);

/// "--batch_size 50 (was 100), --optimizer ...": what trains another model now than `then`, the
/// SettingsToKeep() of a former run; "" if nothing does.
std::string ChangedMathematics(JobSettings now, const Json& then);

/// "the data of /b (was other data, of /a)": what a job trains on (ToJson(JobData)) against what
/// one trained on `then`; "" if the training examples are the same, or either does not say so.
std::string ChangedData(const std::string& now, const Json& then);

}  // namespace passel::job

// train_settings.h - the settings of a whole job on this host, of `passel train` and
// `passel launch`.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "job/device_settings.h"
#include "job/job_config.h"
#include "job/job_settings.h"
#include "job/launch_settings.h"

namespace passel::job {

struct TrainSettings {
  JobSettings job;
  DeviceSettings devices;
  LaunchSettings launch;
  int ps = 1;  ///< 0: one process without a ps
  int workers = 2;
  std::optional<int> max_workers;  ///< so many at most, while it trains
  bool of_program = false;         ///< run: the workers are no tasks of ours
  bool workers_given = false;      ///< typed or in the file, rather than a default
  std::vector<std::string> roles;  ///< launch: "ps=1", "worker=4"
  std::string config;
  std::string preset;
  bool gpu_per_worker = false;  ///< fewer GPUs than workers are an error, as the preset wants it
  std::string job_id;
  int max_restarts = 0;
  double restart_window = 3600;  ///< seconds; 0: the whole job
  double grace = 25;
  bool evaluator = false;
  bool print_placement = false;
  std::string save;
  std::string report;
  std::string report_html;
  std::string output_dir;  ///< run

  int MaxWorkers() const { return max_workers.value_or(workers); }
};

/// Errors: kInvalidArgument.
Status CheckMaxWorkers(const TrainSettings& f, const JobConfig& config);

/// Checks all that needs neither the data nor the GPUs of the machine, with CheckJobSettings(), and
/// starts the log (StartLog()); where a result is to go to "-", that is prepared (PrepareResult()).
/// Fills in the number of workers where it follows from the other settings.
/// Errors: kInvalidArgument: the flag, its limits, its value and the fix; those of StartLog().
Result<JobConfig> CheckTrainSettings(TrainSettings* flags);

}  // namespace passel::job

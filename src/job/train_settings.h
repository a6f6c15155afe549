// train_command.h - a whole job on this host, as `passel train` and `passel launch` run it.

#pragma once

#include <string>
#include <vector>

#include "job/device_settings.h"
#include "job/job_settings.h"
#include "job/launch_settings.h"

namespace passel {

struct TrainFlags {
  JobFlags job;
  DeviceFlags devices;
  LaunchFlags launch;
  int ps = 1;  ///< 0: one process without a ps
  int workers = 2;
  bool workers_given = false;      ///< typed or in the file, rather than a default
  std::vector<std::string> roles;  ///< launch: "ps=1", "worker=4"
  std::string config;
  std::string preset;
  std::string job_id;
  int max_restarts = 0;
  double grace = 25;
  bool evaluator = false;
  bool print_placement = false;
  std::string save;
  std::string report;
};

/// Checks the flags, trains, reports. Returns the exit code.
int Train(TrainFlags& flags);

}  // namespace passel

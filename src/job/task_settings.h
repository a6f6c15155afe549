// task_settings.h - the settings of `passel task` that describe the task rather than the job.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "job/device_settings.h"

namespace passel::job {

struct TaskSettings {
  // Where they come from, and who wins, is for src/cluster/resolve.h to say: these are only what
  // was typed.
  std::string job_name;
  std::optional<int> task_index;
  std::string ps_hosts, worker_hosts;
  std::optional<int> max_workers;
  bool join = false;  // one more worker than the lists name, in a place that is free
  std::string config;
  bool print_config = false;
  bool print_placement = false;

  std::string preset;

  std::string job_id;
  std::string token_file;
  bool insecure_no_auth = false;
  double lease = 15;  // seconds
  double grace = 25;  // seconds
  std::string fabric_provider, fabric_iface;
  int fabric_port = 0;
  std::optional<double> fabric_spin_us;  // none: as the network has it
  std::string save, report;
  bool existing_servers = false;
  DeviceSettings devices;
  // Set by a supervisor for its children; descriptors are inherited.
  bool supervised = false;
  int listen_fd = -1;
  int arena_fd = -1;
  int data_fd = -1;
  std::string resume_from;        // of a chief: a checkpoint; "": none
  std::string checkpoint_folder;  // of a chief: where its supervisor saves; "": nowhere
  bool restarted = false;         // this worker had a life before
  bool had_gpu = false;           // and computed on a GPU in it
  int error_fd = -1;              // takes the sentence that says why the task failed
  std::string job_data;           // of a ps: ToJson(JobData)
};

}  // namespace passel::job

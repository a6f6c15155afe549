// devices.h - what the device flags ask for, against what can be had.

#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "cluster/resolve.h"
#include "job/device_settings.h"
#include "job/flag_checks.h"
#include "job/task.h"
#include "store/store_plan.h"

namespace passel::job {

/// For the task that `config` names, or the one that trains alone. Waits for nothing.
/// Errors: kInvalidArgument: a value that is none; a GPU without soft placement; filters that leave
/// out the task itself or a ps.
Status CheckDevices(const DeviceSettings& flags, const TypedNumbers& typed,
                    const ResolvedConfig& config);

/// For a whole job of `workers` workers. `gpu_per_worker`: fewer GPUs than workers are an error.
/// Whether there are GPUs is for SetUpLaunch() to find out.
Status CheckJobDevices(const DeviceSettings& flags, const TypedNumbers& typed, int workers,
                       bool gpu_per_worker);

/// Why no task of this machine computes on a GPU; "" if one may. Of what is missing the driver
/// comes first, then a GPU, then the GPU code; whether they fit each other shows when the task
/// starts.
std::string WhyNoGpu();

/// GPUs that a process which a launcher of ranks has started may compute on, one of them: those of
/// CUDA_VISIBLE_DEVICES, else of the machine. 0 where `flags` or the machine leave none.
int GpusForRanks(const DeviceSettings& flags);

/// What the flags ask for and do not get, one sentence each. `who`: "worker/0 computes", "all
/// workers compute"; `gpus`: what they are to compute on, "gpu:0", or "" for the CPU.
/// `reason`: why not.
std::vector<std::string> DeviceWarnings(const DeviceSettings& flags, const std::string& who,
                                        const std::string& gpus, const std::string& reason);

/// Judges a task that is to compute on `gpu` and cannot, for that reason. Errors: kInvalidArgument
/// if the CPU will not do.
Status CheckSoftPlacement(const DeviceSettings& flags, const std::string& who,
                          const std::optional<int>& gpu, const std::string& reason);

/// --log_device_placement: one line per variable, and one for the computation.
void LogDevicePlacement(const Task& task, const StorePlan& plan);

}  // namespace passel::job

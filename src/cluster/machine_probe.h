// machine_probe.h - reads the topology of the machine that this process runs on: GPUs from the
// driver's management library (NVML), cores and NUMA nodes from hwloc, the rest from the kernel.
//
// NVML is opened at run time, so nothing of NVIDIA's is needed to build or to start the program.
// A process that has opened it must fork no children that compute on GPUs: probe in a process that
// ends afterwards (`passel topology --json` is one, and what `passel train` asks).
//
// Thread safety: none; hwloc and NVML read the environment.

#pragma once

#include <functional>
#include <string>

#include "base/status.h"
#include "cluster/topology.h"

namespace passel {

/// Replaceable, so that tests need neither a GPU nor a driver.
struct ProbeOptions {
  std::string nvml_library = "libnvidia-ml.so.1";
  /// Asked where that library is not there, as in a container that has the rest of the driver:
  /// fills in the GPU that this process may compute on, and of the driver and of MPS what it knows.
  /// Unset: nobody can tell. Errors: why there is none; kUnavailable: there may be one later.
  std::function<Status(Topology*)> gpu_without_nvml;
  std::string root;  ///< before /sys: "" is this machine's
  /// The folder of the MPS daemon; "": $CUDA_MPS_PIPE_DIRECTORY, else /tmp/nvidia-mps.
  std::string mps_pipe_directory;
};

/// Without a driver or GPU the topology says why. Only processors that this process may use are in
/// it. Errors: kUnavailable: a GPU that is there does not answer; kInternal: hwloc cannot read the
/// machine.
Result<Topology> ProbeMachine(const ProbeOptions& options = {});

/// Fills in driver, GPUs and links, or why there is no GPU. Errors: kUnavailable, as above.
/// MPS only where it is sure that it runs.
Status ProbeGpus(const ProbeOptions& options, Topology* topology);

/// Fills in the NUMA nodes that have processors for us, and the quota. Errors: kInternal.
Status ProbeProcessors(Topology* topology);

/// Whether the control daemon that `pipe_directory` belongs to lives. kUnknown: it left a control
/// pipe, but no process that can be seen from here, as in a container.
MpsState ProbeMps(const std::string& pipe_directory);

}  // namespace passel

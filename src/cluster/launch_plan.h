// launch_plan.h - where each task of a job on one machine runs: its GPU, the processors it is bound
// to, its share of the GPU's memory and the environment that says so to CUDA.
//
// Worker i computes on device i modulo the number of devices. The ps and the evaluator see no GPU.
// Everything is decided before a process is started, so that it can be shown without starting any.
//
// Binding     CPU workers                           GPU workers
//   none      none                                  none
//   numa      to NUMA nodes in turn                 to the node of the GPU
//   core      to processors of their own            to cores of their own on the GPU's node
//   auto      core where there are enough, else     numa where the machine has several nodes and
//             none                                  the GPU's is known, else none
// Under numa a ps is bound to the node of the workers if they all share one, so that the arena,
// whose pages it touches first, is near them.
//
// Thread safety: no state.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cluster/gpu_choice.h"
#include "cluster/topology.h"

namespace passel {

enum class Binding { kAuto, kNone, kNuma, kCore };
std::string_view BindingName(Binding binding);
/// "auto", "none", "numa", "core" (or "cores"); nothing for anything else.
std::optional<Binding> ParseBinding(std::string_view text);

struct LaunchRequest {
  int ps = 1;
  int workers = 1;
  bool evaluator = false;
  /// Processors of a CPU worker under core, cores of a GPU worker: one for each thread that
  /// computes.
  int threads_per_worker = 1;
  Binding binding = Binding::kAuto;
  std::vector<ComputeDevice> devices;  ///< none: workers compute on the CPU
  /// A worker's share of its device's memory, above 0 and up to 1; nothing: no limit.
  std::optional<double> memory_fraction;
  /// The parameters are in the memory of the first device, which each worker sees beside its own.
  /// REQUIRES: CheckArenaDevices() is OK.
  bool arena_on_device = false;
  /// Several workers on one GPU would be refused under MPS.
  bool without_mps = false;
};

struct TaskPlan {
  std::string job;  ///< "ps", "worker" or "evaluator"
  int index = 0;
  std::optional<ComputeDevice> device;
  std::optional<ComputeDevice> arena;    ///< in whose memory the parameters are
  std::optional<int> numa_node;          ///< of the processors, where they are of one
  std::vector<int> processors;           ///< that it may use, ascending; empty: as the launcher
  std::uint64_t memory_limit = 0;        ///< bytes of the device; 0: none
  std::vector<std::string> environment;  ///< "NAME=value", added to the launcher's

  std::string Name() const { return job + "/" + std::to_string(index); }
};

struct LaunchPlan {
  std::vector<TaskPlan> tasks;       ///< ps, workers, evaluator
  Binding binding = Binding::kNone;  ///< that was chosen; never auto
  std::vector<std::string> warnings;

  /// Null if there is none.
  const TaskPlan* Find(std::string_view job, int index) const;
};

/// Errors, one sentence each: kInvalidArgument: more workers than cores under core; the node of a
/// GPU is not known, or has no processor for us, under numa; shares of a GPU's memory that are more
/// than all of it.
Result<LaunchPlan> PlanLaunch(const Topology& topology, const LaunchRequest& request);

/// What a worker has near it, in one line: "GPU 0 (NVIDIA H100 80GB HBM3, GPU-..., PCI
/// 0000:1b:00.0), NUMA node 0, processors 0-55, NVLink to GPUs 1-7".
std::string TopologyLine(const Topology& topology, const LaunchPlan& plan, const TaskPlan& task);

/// The whole plan for people: a table of tasks, then the environment of each that gets one. Each
/// line ends with '\n'.
std::string DescribePlan(const LaunchPlan& plan);

}  // namespace passel

// device.h - which processor a task computes on, and the device strings that say so.
//
//   /job:worker/replica:0/task:1/gpu:0      every field may be left out
//   /job:ps/task:0/device:CPU:0             device:CPU and cpu are the same
//
// Thread safety: const calls may run concurrently.

#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace passel {

/// Tasks of one machine share its GPUs in turn: task_index mod num_gpus. Nothing (the CPU) for 0
/// GPUs. REQUIRES: task_index >= 0. Errors: kInvalidArgument for a negative `num_gpus`.
Result<std::optional<int>> GpuOfTask(int task_index, int num_gpus);

/// For programs that give each worker a GPU of its own. OK for 0 GPUs: then nobody has one.
/// Errors: kInvalidArgument: "number of gpus is less than number of workers".
Status CheckGpuPerWorker(int num_gpus, int num_workers);

/// A device, or, with fields left out, every device that has the others.
struct Device {
  enum class Type { kCpu, kGpu };
  std::string job;  ///< "": left out
  std::optional<int> replica, task;
  std::optional<Type> type;
  std::optional<int> index;  ///< of the processor

  /// "/job:worker/task:1/gpu:0": the fields that are there, in this order.
  std::string ToString() const;
  friend bool operator==(const Device&, const Device&) = default;
};

/// Each field at most once, in any order; "" has none of them. A processor without an index, as in
/// "/gpu", or with "*" leaves the index out. Errors: kInvalidArgument.
Result<Device> ParseDevice(std::string_view text);

/// Whether every field that `filter` has is the same in `device`. A task waits only for tasks that
/// match one of its filters.
bool MatchesFilter(const Device& device, const Device& filter);

}  // namespace passel

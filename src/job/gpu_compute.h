// gpu_compute.h - the GPU of a worker, and the gradients that it computes there.

#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/page_memory.h"
#include "base/status.h"
#include "compute/accelerator.h"
#include "data/dataset.h"
#include "job/device_parameters.h"
#include "job/job_config.h"
#include "job/task.h"
#include "shm/attached_job.h"
#include "train/worker_loop.h"

namespace passel::job {

/// Warns of settings of `config` that change nothing where a CPU computes.
void WarnOfGpuSettings(const JobConfig& config);

/// Errors: kInvalidArgument for a setting of `config` that a GPU does not do; `worker`, as in
/// "worker/0", is who would compute there.
Status CheckForGpu(const JobConfig& config, std::string_view worker);

/// Whether a job of `workers` on `gpus`, its parameters in their memory, may come to what under MPS
/// is refused: the mode locked, with several workers on one GPU.
bool LocksSharedGpu(const JobConfig& config, int workers, int gpus);

/// For parameters in the memory of a GPU, under MPS. Errors: kInvalidArgument where `workers`, of
/// which several compute on one of `gpus`, may be in the mode locked: what a dead one held cannot
/// be taken over, since its kernel may still run in the MPS server, and locked would wait for it.
Status CheckLockedUnderMps(const JobConfig& config, int workers, int gpus);

class GpuCompute {
 public:
  /// Opens the GPU that --device and --num_gpus mean for this task. Null where it computes on the
  /// CPU; if nobody asked for that, a line has said why. Waits for a GPU that is not ready until
  /// `start`, or for at most 10 s where the CPU
  /// would do.
  /// Errors: those of OpenAccelerator(), where a GPU is demanded; kUnavailable where it was waited
  /// for, and for a worker that had one in its life before.
  static Result<std::unique_ptr<GpuCompute>> Open(const Task& task, const JobConfig& config,
                                                  Deadline start);

  /// --arena device: the parameters are in the memory of this GPU from here on. `job` and `store`
  /// must outlive this. Errors: those of DeviceParameters::Open().
  Status ShareParameters(const DeviceParametersOptions& options, shm::AttachedJob& job,
                         ParameterStore& store);
  /// Null without --arena device.
  DeviceParameters* parameters() const { return parameters_.get(); }

  /// Makes the engine that trains on `train`, from and to the arenas of `job`, which must outlive
  /// this. REQUIRES: FitToData(&config) was called. Errors: those of CreateStepEngine();
  /// in a later life memory is waited for.
  Result<EngineUse> MakeEngine(const JobConfig& config, const ModelLayout& layout,
                               const ImageSet& train, const shm::AttachedJob& job, int trainer);

 private:
  GpuCompute(std::unique_ptr<Accelerator> accelerator, bool restarted, Deadline start)
      : accelerator_(std::move(accelerator)), restarted_(restarted), start_(start) {}

  std::unique_ptr<Accelerator> accelerator_;
  const bool restarted_;
  const Deadline start_;  // what is not there by then is not waited for
  std::unique_ptr<DeviceParameters> parameters_;
  std::vector<PageFloats> scratch_;  // [shards]: see EngineUse; the engine registers its pages
  std::unique_ptr<StepEngine> engine_;
};

}  // namespace passel::job

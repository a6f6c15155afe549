// device_parameters.h - the parameters of a job with --arena device: in the memory of one GPU,
// shared by the workers that compute on it, and by those on other GPUs that reach it over NVLink.
//
//   chief           creates the arena from the first values, or finds it again in a later life
//   other workers   import it, by the descriptor that ps/0 keeps for all
//   ps/0            holds the descriptor, so the death of workers loses nothing; needs no CUDA
//
// A ps that is started again has no descriptor: every worker watches its connection to ps/0 and
// offers the arena again. Only when all workers and ps/0 are gone at the same time is it lost, and
// then the job ends with a sentence that says so (exit code 143).
//
// The values in the arenas of the ps are a shadow. Whichever worker finds it older than
// --shadow_interval refreshes it, or finds that a newer one is asked for (a checkpoint is made of
// it), and every worker does so at its end and before it evaluates.
// Refreshing is for the holder of the claim of the first shard's block 0.
//
// Threads    The worker's.

#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "compute/accelerator.h"
#include "shm/attached_job.h"
#include "store/block_claims.h"
#include "store/external_sweep.h"
#include "store/parameter_store.h"

namespace passel::job {

struct DeviceParametersOptions {
  bool chief = false;
  bool several_gpus = false;  ///< the workers of the job compute on more than one
  int worker = 0;
  WorkerNames names = {};
  std::chrono::nanoseconds shadow_interval = std::chrono::seconds(1);
  /// A worker that is not heard of for so long while it refreshes the shadow is evicted.
  std::chrono::nanoseconds stall_limit = std::chrono::minutes(10);
  OnStall on_stall = OnStall::kEvict;
  std::chrono::nanoseconds start_wait = std::chrono::minutes(5);
  /// How long a worker that finds no arena waits for one that others offer again.
  std::chrono::nanoseconds offer_limit = std::chrono::seconds(10);
  bool has_checkpoints = false;  ///< of this job are saved
};

class DeviceParameters {
 public:
  /// Creates or imports the arena, and has `store` push there from now on. All but the options
  /// outlive it. REQUIRES: the store is initialised, its plan says on_device.
  /// Errors: kInvalidArgument for a worker on another GPU than the chief's, where all are to
  /// compute on one; kFailedPrecondition for a GPU that cannot share memory, or reach the chief's;
  /// kDataLoss for another arena, or one that was made for one GPU and not for several;
  /// kUnavailable when the arena is lost; kDeadlineExceeded; kCancelled when the job was stopped.
  static Result<std::unique_ptr<DeviceParameters>> Open(const DeviceParametersOptions& options,
                                                        Accelerator& accelerator,
                                                        shm::AttachedJob& job,
                                                        ParameterStore& store);
  ~DeviceParameters();

  DeviceArena& arena() { return *arena_; }

  /// What has to be done now and then, between steps: refreshes the shadow, offers the arena to a
  /// ps that came back. Waits for no other worker. Errors: the device's.
  Status Tend();
  /// After OK the shadow holds what was applied before the call. Waits for a worker that refreshes
  /// it already. Errors: the device's; kDeadlineExceeded, naming that worker or the step under way.
  Status RefreshShadow(Deadline deadline);

 private:
  class ArenaSweep;
  DeviceParameters(const DeviceParametersOptions& options, Accelerator& accelerator,
                   shm::AttachedJob& job, ParameterStore& store);

  const ShardMemory& Memory(int shard) const { return job_.arena(shard).memory(); }
  DeviceState& state() const { return Memory(0).state->device; }
  int shards() const { return store_.variables().shards(); }
  std::string Home() const;
  Status CheckHome(const std::string& home) const;
  DeviceArenaShape Shape(std::uint64_t id, const std::string& home) const;
  bool NothingPushedYet() const;
  Status Create();
  Status Import(bool again);
  Claim MyClaim() const { return {epoch_, options_.worker}; }
  std::int64_t ShadowAge() const;
  bool ShadowIsDue() const;
  /// REQUIRES: the claim of the shadow is ours.
  Status CopyToShadow(Deadline deadline);

  const DeviceParametersOptions options_;
  Accelerator& accelerator_;
  shm::AttachedJob& job_;
  ParameterStore& store_;
  const std::uint32_t epoch_;  // of this life of the worker
  Watch watch_;                // over who refreshes the shadow
  std::uint64_t id_ = 0;
  std::unique_ptr<DeviceArena> arena_;
  std::vector<std::unique_ptr<ArenaSweep>> sweeps_;
  std::int64_t next_offer_ns_ = 0;
};

}  // namespace passel::job

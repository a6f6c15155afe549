// arena_device.h - which devices may share parameters in the memory of one of them (--arena
// device).
//
// The first device holds them, since worker/0, the chief, computes there. A worker on another GPU
// works in that memory over NVLink: it copies the values from there and updates them there with
// atomic operations. What the topology does not say to be there is taken not to be.
//
// Thread safety: no state.

#pragma once

#include <span>
#include <string>

#include "base/status.h"
#include "cluster/gpu_choice.h"
#include "cluster/topology.h"

namespace passel {

/// `devices`: that the workers take in turn, at least one. `workers`: for the advice.
/// Errors, one sentence: kInvalidArgument, naming the MIG instance, or the two GPUs and what is
/// missing between them.
Status CheckArenaDevices(const Topology& topology, std::span<const ComputeDevice> devices,
                         int workers);

/// The same in a few words: "GPU 1 has no NVLink to GPU 0"; "" if CheckArenaDevices() is OK.
std::string ArenaObstacle(const Topology& topology, std::span<const ComputeDevice> devices);

}  // namespace passel

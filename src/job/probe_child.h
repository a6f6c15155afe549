// probe_child.h - the topology of this machine, read by a process that ends afterwards.

#pragma once

#include <chrono>

#include "base/deadline.h"
#include "base/status.h"
#include "cluster/topology.h"

namespace passel::job {

/// Enough for a probe: the driver wakes up GPUs that nobody uses one after the other, each in a
/// second or two.
inline constexpr std::chrono::seconds kProbeLimit{60};

/// Runs `passel topology --json` as a child, so that this process, which starts workers, never has
/// NVIDIA's libraries in it. Waking up GPUs that nobody uses takes the driver seconds.
/// Errors: what the child says; kDeadlineExceeded: it is killed.
Result<Topology> ProbeInChild(Deadline deadline);

}  // namespace passel::job

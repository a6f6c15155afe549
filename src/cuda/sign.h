// sign.h - how a host waits for what a kernel writes to pinned memory at the end of a plan.

#pragma once

#include <cstdint>
#include <string_view>

#include "base/deadline.h"
#include "base/status.h"
#include "cuda/device.h"

namespace passel::cuda {

/// Until `*sign`, in pinned memory, is `number`: spins, then yields, then naps. `what` begins the
/// message of a wait in vain, "step 7 of this worker". Looks `looks_per_health` times between two
/// questions after the device's health. Memory order: acquire.
/// Errors: kDeadlineExceeded; the device's, after which it is lost.
Status AwaitSign(Device& device, const std::uint64_t* sign, std::uint64_t number,
                 std::string_view what, unsigned looks_per_health, Deadline deadline);

}  // namespace passel::cuda

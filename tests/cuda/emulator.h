// emulator.h - runs a kernel on the CPU, thread by thread, phase by phase.
//
// With a generator it is an adversary: blocks run in random order, the threads of each phase in
// another random order, shared and private memory hold NaNs at first. What a kernel gets wrong on a
// GPU once in a while (a missing barrier, a sum that was never started) it then gets wrong here
// nearly always; an index out of range is AddressSanitizer's to find, in buffers of exact size.
// Without one it is quick: everything in order.
//
// The results of both are the same bits.
//
// Failpoint `gpu.claimed` is passed by each block that has claimed its values (ClaimedUpdate).

#pragma once

#include "base/random.h"
#include "cuda/kernels.h"

namespace passel::cuda {

/// Runs all of the kernel. `random` may be null.
void Emulate(const AnyKernel& kernel, Random* random);

}  // namespace passel::cuda

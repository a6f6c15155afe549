// kernels.h - launches of the kernels that several rows use, for files that nvcc need not see.

#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace gpu_micro {

/// A kernel of one warp that does nothing.
void LaunchEmpty(cudaStream_t stream);

constexpr std::size_t kOrderBytes = 464;  ///< what a step hears from its host and tells it

/// One warp: the floats at `to` become those at `from` plus one, kOrderBytes of them. Either may be
/// mapped memory of the host.
void LaunchAddOne(cudaStream_t stream, const float* from, float* to);

/// Reads `quads` times 16 bytes with 132 blocks. `to` is hardly ever written.
void LaunchSum(cudaStream_t stream, const void* from, std::size_t quads, float* to);

/// One thread: sets `*flag`, mapped memory of the host.
void LaunchFlag(cudaStream_t stream, std::uint64_t* flag, std::uint64_t value);

}  // namespace gpu_micro

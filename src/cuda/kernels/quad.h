// quad.h - four floats moved at once, where their address allows it.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cuda/kernel.h"

namespace passel::cuda {

/// to[0..3] = from[0..3], as one 128-bit load on a GPU. REQUIRES: `from` is 16-byte aligned.
PASSEL_KERNEL void LoadQuad(const float* from, float (&to)[4]) {
#if defined(__CUDA_ARCH__)
  const float4 v = *reinterpret_cast<const float4*>(from);
  to[0] = v.x;
  to[1] = v.y;
  to[2] = v.z;
  to[3] = v.w;
#else
  std::memcpy(to, __builtin_assume_aligned(from, 16), sizeof to);
#endif
}

/// to[0..3] = from[0..3], as one 128-bit store on a GPU. REQUIRES: `to` is 16-byte aligned.
PASSEL_KERNEL void StoreQuad(float* to, const float (&from)[4]) {
#if defined(__CUDA_ARCH__)
  *reinterpret_cast<float4*>(to) = make_float4(from[0], from[1], from[2], from[3]);
#else
  std::memcpy(__builtin_assume_aligned(to, 16), from, sizeof from);
#endif
}

/// True if every fourth float of every row of a matrix may be the start of a quad.
inline bool QuadsAllowed(const void* data, std::size_t ld) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && ld % 4 == 0;
}

}  // namespace passel::cuda

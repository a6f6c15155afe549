// host_device.h - marks a function that runs on the CPU and on a GPU.
//
// Inlining is forced: such headers are compiled for several instruction sets, and an out-of-line
// copy that was built for AVX-512 could be the one that the linker keeps for all.

#pragma once

#if defined(__CUDACC__)
#define PASSEL_HD __host__ __device__ __forceinline__
#else
#define PASSEL_HD inline __attribute__((always_inline))
#endif

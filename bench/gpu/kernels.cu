// kernels.cu - the kernels that several rows use.

#include "bench/gpu/kernels.h"

namespace gpu_micro {
namespace {

constexpr unsigned kOrderQuads = kOrderBytes / sizeof(float4);
static_assert(kOrderQuads * sizeof(float4) == kOrderBytes && kOrderQuads <= 32);

__global__ void Empty() {}

__global__ void AddOne(const float4* from, float4* to) {
  if (threadIdx.x >= kOrderQuads) return;
  const float4 v = from[threadIdx.x];
  to[threadIdx.x] = make_float4(v.x + 1, v.y + 1, v.z + 1, v.w + 1);
}

__global__ void Sum(const float4* from, std::size_t quads, float* to) {
  float sum = 0;
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < quads;
       i += std::size_t{gridDim.x} * blockDim.x) {
    const float4 v = from[i];
    sum += v.x + v.y + v.z + v.w;
  }
  if (sum == 12345.5f) *to = sum;
}

__global__ void Flag(std::uint64_t* flag, std::uint64_t value) {
  __threadfence_system();
  *reinterpret_cast<volatile std::uint64_t*>(flag) = value;
}

}  // namespace

void LaunchEmpty(cudaStream_t stream) { Empty<<<1, 32, 0, stream>>>(); }

void LaunchAddOne(cudaStream_t stream, const float* from, float* to) {
  AddOne<<<1, 32, 0, stream>>>(reinterpret_cast<const float4*>(from),
                               reinterpret_cast<float4*>(to));
}

void LaunchSum(cudaStream_t stream, const void* from, std::size_t quads, float* to) {
  Sum<<<132, 256, 0, stream>>>(static_cast<const float4*>(from), quads, to);
}

void LaunchFlag(cudaStream_t stream, std::uint64_t* flag, std::uint64_t value) {
  Flag<<<1, 1, 0, stream>>>(flag, value);
}

}  // namespace gpu_micro

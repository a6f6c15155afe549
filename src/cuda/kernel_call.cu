#include "cuda/kernel_call.h"

#include <type_traits>
#include <variant>

namespace passel::cuda {
namespace {

// Threads of a block that the kernel promises not to exceed; registers are rationed by it.
template <typename K>
constexpr unsigned ThreadLimit() {
  if constexpr (requires { K::kThreads; }) {
    return K::kThreads;
  } else {
    return 1024;
  }
}

template <typename K>
__global__ void __launch_bounds__(ThreadLimit<K>(), 1) RunKernel(const __grid_constant__ K kernel) {
  static_assert(std::is_trivially_copyable_v<K>);
  static_assert(sizeof(K) <= 4096, "arguments of a kernel are at most 4 KiB");
  static_assert(sizeof(typename K::Shared) <= 48 * 1024, "static shared memory ends at 48 KiB");
  __shared__ typename K::Shared shared;
  typename K::Private mine;
  const ThreadPlace at{blockIdx.x, blockIdx.y, threadIdx.x};
  const unsigned phases = kernel.phases();
  for (unsigned phase = 0; phase < phases; ++phase) {
    if (phase != 0) __syncthreads();
    kernel.Phase(phase, at, shared, mine);
  }
}

}  // namespace

KernelCall CallOf(const AnyKernel& kernel) {
  return std::visit(
      [](const auto& k) {
        using K = std::remove_cvref_t<decltype(k)>;
        return KernelCall{reinterpret_cast<const void*>(&RunKernel<K>), k.grid(), &k};
      },
      kernel);
}

}  // namespace passel::cuda

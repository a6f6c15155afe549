#include "cuda/emulator.h"

#include <cstring>
#include <memory>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/cpu_isa.h"
#include "base/failpoint.h"

namespace passel::cuda {
namespace {

void Shuffle(std::vector<unsigned>& order, Random& random) {
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.Below(i)]);
}

std::vector<unsigned> Counted(unsigned n) {
  std::vector<unsigned> order(n);
  std::iota(order.begin(), order.end(), 0u);
  return order;
}

// Bytes of all ones: a NaN as float or double, far out of range as an index.
template <typename T>
void Poison(T* objects, std::size_t count) {
  std::memset(static_cast<void*>(objects), 0xff, count * sizeof(T));
}

// Default-initialised, as on a GPU: nothing.
template <typename T>
std::unique_ptr<T[]> Uninitialised(std::size_t count) {
  return std::unique_ptr<T[]>(new T[count]);
}

// A test may kill or delay the process while it holds a claim in shared memory.
template <typename Shared>
inline __attribute__((always_inline)) void AfterPhase(unsigned phase, const Shared& shared) {
  if constexpr (requires { shared.claimed; }) {
    if (phase == 0 && shared.claimed != 0) Failpoint("gpu.claimed");
  }
}

template <typename Kernel>
inline __attribute__((always_inline)) void RunPhases(const Kernel& kernel, Random* random) {
  const Grid grid = kernel.grid();
  const auto shared = Uninitialised<typename Kernel::Shared>(1);
  const auto mine = Uninitialised<typename Kernel::Private>(grid.threads);
  std::vector<unsigned> blocks = Counted(grid.blocks_x * grid.blocks_y);
  std::vector<unsigned> threads = Counted(grid.threads);
  if (random != nullptr) Shuffle(blocks, *random);
  for (const unsigned block : blocks) {
    if (random != nullptr) {
      Poison(shared.get(), 1);
      Poison(mine.get(), grid.threads);
    }
    const unsigned x = block % grid.blocks_x, y = block / grid.blocks_x;
    for (unsigned phase = 0; phase < kernel.phases(); ++phase) {
      if (random != nullptr) Shuffle(threads, *random);
      for (const unsigned thread : threads) {
        kernel.Phase(phase, {x, y, thread}, shared[0], mine[thread]);
      }
      AfterPhase(phase, shared[0]);
    }
  }
}

#if defined(__x86_64__)
// Flattened, so that a fused multiply-add is an instruction and not a call. No template: g++
// forgets the target of those.
#define PASSEL_RUN_FUSED(Kernel)                                                            \
  __attribute__((target("avx2,fma"))) void RunFused(const Kernel& kernel, Random* random) { \
    RunPhases(kernel, random);                                                              \
  }
PASSEL_RUN_FUSED(SmallGemm)
PASSEL_RUN_FUSED(MediumGemm)
PASSEL_RUN_FUSED(LargeTileGemm)
PASSEL_RUN_FUSED(SmallGemmUpdate)
PASSEL_RUN_FUSED(MediumGemmUpdate)
PASSEL_RUN_FUSED(LargeTileGemmUpdate)
#undef PASSEL_RUN_FUSED
#endif

template <typename Kernel>
void Run(const Kernel& kernel, Random* random) {
#if defined(__x86_64__)
  if constexpr (std::is_base_of_v<GemmArguments, Kernel>) {
    if (BestCpuIsa() >= CpuIsa::kAvx2) return RunFused(kernel, random);
  }
#endif
  RunPhases(kernel, random);
}

}  // namespace

void Emulate(const AnyKernel& kernel, Random* random) {
  std::visit(
      [&](const auto& k) {
        using Kernel = std::decay_t<decltype(k)>;
        static_assert(std::is_trivially_copyable_v<Kernel>);
        static_assert(std::is_trivially_default_constructible_v<typename Kernel::Shared>);
        static_assert(std::is_trivially_default_constructible_v<typename Kernel::Private>);
        Run(k, random);
      },
      kernel);
}

}  // namespace passel::cuda

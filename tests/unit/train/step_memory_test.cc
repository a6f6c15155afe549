// A step with one thread takes no memory: everything that it needs was allocated before the first,
// or by it. With several threads OpenBLAS allocates some for each product that it shares out, and
// frees it behind it.

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <vector>

#include "support/function_hook.h"
#include "support/sanitized.h"
#include "support/small_worker.h"

namespace {
std::atomic<std::size_t> g_allocations{0};
}  // namespace

#if !defined(PASSEL_TEST_SANITIZED) && defined(__GLIBC__)
// Every allocation of this program is counted, the matrix library's too.
extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* memory, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);

void* malloc(std::size_t size) {
  ++g_allocations;
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) {
  ++g_allocations;
  return __libc_calloc(count, size);
}
void* realloc(void* memory, std::size_t size) {
  ++g_allocations;
  return __libc_realloc(memory, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  ++g_allocations;
  return __libc_memalign(alignment, size);
}
}
#endif

namespace passel {
namespace {

// OpenBLAS's AVX-512 kernel for small products takes memory at each call: not ours to change.
// Whoever has AVX-512 has AVX2, and the kernels for that are of the same calls.
[[gnu::constructor]] void UseKernelsThatTakeNoMemory(int /*argc*/, char** argv) {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx512f") || std::getenv("OPENBLAS_CORETYPE") != nullptr) return;
  ::setenv("OPENBLAS_CORETYPE", "Haswell", 1);
  ::execv("/proc/self/exe", argv);
}

class StepMemoryTest : public test::SmallWorkerTest {
 protected:
  // How often memory had been taken by the end of each step. 300 examples, so with batches of 10
  // an epoch ends after 30 steps.
  std::vector<std::size_t> AllocationsByStep() {
    options_.train_steps = 65;
    std::vector<std::size_t> taken;
    taken.reserve(200);
    test::FunctionHook hook;
    hook.on_step = [&](const StepReport&) { taken.push_back(g_allocations); };
    WorkerCallbacks callbacks;
    callbacks.hooks = {&hook};
    const Result<WorkerResult> result = Run(callbacks);
    EXPECT_TRUE(result.ok()) << result.status().message();
    EXPECT_EQ(taken.size(), 65u * static_cast<std::size_t>(options_.push_every));
    return taken;
  }
};

TEST_F(StepMemoryTest, StepsOfASoftmaxAllocateNothing) {
#if defined(PASSEL_TEST_SANITIZED) || !defined(__GLIBC__)
  GTEST_SKIP() << "allocations are not ours to count here";
#endif
  Open(0.1F);
  const std::vector<std::size_t> taken = AllocationsByStep();
  ASSERT_GT(taken.front(), 0u) << "nothing is counted";
  for (std::size_t step = 1; step < taken.size(); ++step) {
    EXPECT_EQ(taken[step], taken[0]) << "step " << step + 1;
  }
}

TEST_F(StepMemoryTest, StepsOfAnMlpThatAddsUpGradientsAllocateNothing) {
#if defined(PASSEL_TEST_SANITIZED) || !defined(__GLIBC__)
  GTEST_SKIP() << "allocations are not ours to count here";
#endif
  config_ = DefaultModelConfig(ModelKind::kMlp);
  config_.inputs = kDigitPixels;
  config_.classes = 10;
  config_.hidden = {100, 60};
  options_.push_every = 2;
  Open(0.1F);
  const std::vector<std::size_t> taken = AllocationsByStep();
  ASSERT_GT(taken.front(), 0u) << "nothing is counted";
  for (std::size_t step = 2; step < taken.size(); ++step) {
    EXPECT_EQ(taken[step], taken[1]) << "step " << step + 1;
  }
}

}  // namespace
}  // namespace passel

// gpu_micro.cc - what a GPU and its bus cost in the small: launches, copies, atomics, flags.
//
// Prints one line for each row as soon as it is known: RESULT name: median us (predicted ...). The
// predictions were made for an H100 or H200 before any measurement; some rows have none. What fails
// is reported as FAILED, what this machine does not offer as SKIPPED, and the rest goes on. What
// decides most comes first.
//
// It always ends. A median takes as many samples as fit into 0.5 s, so that all rows take about
// 20 s. A row that is not done after 10 s (a kernel that does not end, a driver that does not
// answer) is printed as FAILED, and a watchdog ends the program with 1, since nothing behind it
// could be measured. After 45 s no row is begun. Setting up may take 30 s.
//
// Exit codes: 0 all measured; 1 something failed; 3 no GPU.

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "bench/gpu/gpu.h"
#include "bench/gpu/kernels.h"
#include "bench/gpu/measure.h"
#include "bench/gpu/rows.h"

namespace gpu_micro {
namespace {

constexpr double kSetUpSeconds = 30;

bool HasGpu(int* driver) {
  int count = 0;
  return cudaDriverGetVersion(driver) == cudaSuccess && *driver != 0 &&
         cudaGetDeviceCount(&count) == cudaSuccess && count != 0;
}

Gpu SetUp(int driver) {
  const double begin = Now();
  TRY(cudaSetDevice(0));
  TRY(cudaFree(nullptr));
  std::printf("RESULT context: %.0f us (predicted 300000 us)\n", Now() - begin);
  cudaDeviceProp card{};
  TRY(cudaGetDeviceProperties(&card, 0));
  int atomics = -1;
  TRY(cudaDeviceGetAttribute(&atomics, cudaDevAttrHostNativeAtomicSupported, 0));
  std::printf("CARD %s, compute capability %d.%d, %d multiprocessors, CUDA %d\n", card.name,
              card.major, card.minor, card.multiProcessorCount, driver);
  std::printf("RESULT hostNativeAtomicSupported: %d (predicted 0)\n", atomics);
  std::fflush(stdout);
  Gpu gpu;
  gpu.multiprocessors = card.multiProcessorCount;
  gpu.major = card.major;
  TRY(cudaStreamCreateWithFlags(&gpu.stream, cudaStreamNonBlocking));
  LaunchEmpty(gpu.stream);
  Wait(gpu.stream);  // fails if this build has no code for this card
  return gpu;
}

int Run() {
  StartWatchdog();
  try {
    Gpu gpu;
    {
      const Deadline deadline("set-up", kSetUpSeconds);
      int driver = 0;
      if (!HasGpu(&driver)) {
        std::printf("gpu_micro: there is no NVIDIA driver or no GPU\n");
        return 3;
      }
      gpu = SetUp(driver);
    }
    MeasureLaunches(gpu);
    MeasureCopyNodes(gpu);
    MeasureColdKernels(gpu);
    MeasureProgrammatic(gpu);
    MeasureFlag(gpu);
    MeasureClaims(gpu);
    MeasureProcesses();
    MeasureBarriers(gpu);
    MeasureAdditions(gpu);
    MeasureCopies(gpu);
    const Deadline deadline("end", kRowSeconds);
    TRY(cudaStreamDestroy(gpu.stream));
  } catch (const std::exception& error) {
    PrintFailed("set-up", error.what());
  }
  return Failed() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace gpu_micro

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], gpu_micro::kInTurnArgument) == 0) {
    return gpu_micro::RunInTurn(std::atoi(argv[2]));
  }
  return gpu_micro::Run();
}

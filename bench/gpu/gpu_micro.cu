// gpu_micro.cu - what a GPU and its bus cost in the small: launches, copies, atomics, flags.
//
// Prints one line for each: RESULT name: median us (predicted ...). The predictions were made for
// an H200 before any measurement. What fails is reported as FAILED, what this machine does not
// offer as SKIPPED, and the rest goes on. Exit codes: 0 all measured; 1 something failed; 3 no GPU.

#include <cooperative_groups.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr std::size_t kFloats = 79510;  // parameters of 784-100-10
constexpr std::size_t kBytes = kFloats * sizeof(float);

void Try(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  throw std::runtime_error(std::string(call) + ": " + cudaGetErrorName(error));
}
#define TRY(call) Try((call), #call)

double Now() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Median of `repeats` runs, after a tenth as many to warm up; each run does `inner` of them.
double Median(int repeats, int inner, const std::function<void()>& run) {
  for (int i = 0; i < repeats / 10 + 1; ++i) run();
  std::vector<double> samples;
  for (int i = 0; i < repeats; ++i) {
    const double begin = Now();
    run();
    samples.push_back((Now() - begin) / inner);
  }
  std::nth_element(samples.begin(), samples.begin() + repeats / 2, samples.end());
  return samples[static_cast<std::size_t>(repeats / 2)];
}

// This machine does not offer it.
struct NotOffered : std::runtime_error {
  using std::runtime_error::runtime_error;
};

int g_failed = 0;
void Measure(const char* name, const char* predicted, const std::function<double()>& measure) {
  try {
    std::printf("RESULT %s: %.2f us (predicted %s)\n", name, measure(), predicted);
  } catch (const NotOffered& reason) {
    std::printf("SKIPPED %s: %s\n", name, reason.what());
  } catch (const std::exception& error) {
    std::printf("FAILED %s: %s\n", name, error.what());
    ++g_failed;
  }
  std::fflush(stdout);
}

__global__ void Empty() {}

__global__ void Sum(const float4* from, std::size_t quads, float* to) {
  float sum = 0;
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < quads;
       i += std::size_t{gridDim.x} * blockDim.x) {
    const float4 v = from[i];
    sum += v.x + v.y + v.z + v.w;
  }
  if (sum == 12345.5f) *to = sum;
}

__global__ void AddQuads(float* to, std::size_t quads) {
  const std::size_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= quads) return;
#if __CUDA_ARCH__ >= 900
  atomicAdd(reinterpret_cast<float4*>(to) + i, make_float4(1, 1, 1, 1));
#else
  for (int lane = 0; lane < 4; ++lane) atomicAdd(to + 4 * i + lane, 1.f);
#endif
}

__global__ void Flag(std::uint64_t* flag, std::uint64_t value) {
  __threadfence_system();
  *reinterpret_cast<volatile std::uint64_t*>(flag) = value;
}

__global__ void Barriers(int count) {
  for (int i = 0; i < count; ++i) cooperative_groups::this_grid().sync();
}

class Graph {
 public:
  Graph(cudaStream_t stream, int nodes) {
    cudaGraph_t graph = nullptr;
    TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < nodes; ++i) Empty<<<1, 32, 0, stream>>>();
    TRY(cudaStreamEndCapture(stream, &graph));
    TRY(cudaGraphInstantiate(&exec_, graph, 0));
    TRY(cudaGraphDestroy(graph));
  }
  ~Graph() { cudaGraphExecDestroy(exec_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void Run(cudaStream_t stream) const {
    TRY(cudaGraphLaunch(exec_, stream));
    TRY(cudaStreamSynchronize(stream));
  }

 private:
  cudaGraphExec_t exec_ = nullptr;
};

// Shared memory without a name, as the arena is; written to, so that its pages are there.
class SharedPages {
 public:
  explicit SharedPages(std::size_t bytes, bool huge = false)
      : bytes_((bytes + (huge ? kHuge : kSmall) - 1) / (huge ? kHuge : kSmall) *
               (huge ? kHuge : kSmall)) {
    const int fd = memfd_create("gpu_micro", MFD_CLOEXEC | (huge ? MFD_HUGETLB : 0));
    // Reserves them, so that too few are an error here and no signal below.
    if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes_)) != 0 ||
        fallocate(fd, 0, 0, static_cast<off_t>(bytes_)) != 0) {
      if (fd >= 0) close(fd);
      if (huge) throw NotOffered("no huge pages are reserved here (vm.nr_hugepages)");
      throw std::runtime_error("shared memory cannot be reserved");
    }
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (data_ == MAP_FAILED) throw std::runtime_error("mmap");
    std::memset(data_, 1, bytes_);
  }
  ~SharedPages() { munmap(data_, bytes_); }
  SharedPages(const SharedPages&) = delete;
  SharedPages& operator=(const SharedPages&) = delete;
  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  static constexpr std::size_t kSmall = 4096;
  static constexpr std::size_t kHuge = std::size_t{2} << 20;
  std::size_t bytes_;
  void* data_;
};

// A function of the driver, without a link to its library.
template <typename F>
F DriverCall(const char* name) {
  void* call = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 13000
  TRY(cudaGetDriverEntryPointByVersion(name, &call, 12000, cudaEnableDefault, &found));
#else
  TRY(cudaGetDriverEntryPoint(name, &call, cudaEnableDefault, &found));
#endif
  if (found != cudaDriverEntryPointSuccess || call == nullptr) {
    throw NotOffered(std::string("the driver has no ") + name);
  }
  return reinterpret_cast<F>(call);
}

void TryDriver(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  throw std::runtime_error(std::string(call) + ": error " + std::to_string(result));
}

// What a process does to get memory of the GPU that another one sends as a file descriptor: import,
// reserve, map, allow. Here both are this process.
double ImportTime() {
  const auto granularity =
      DriverCall<decltype(&cuMemGetAllocationGranularity)>("cuMemGetAllocationGranularity");
  const auto create = DriverCall<decltype(&cuMemCreate)>("cuMemCreate");
  const auto export_it =
      DriverCall<decltype(&cuMemExportToShareableHandle)>("cuMemExportToShareableHandle");
  const auto import =
      DriverCall<decltype(&cuMemImportFromShareableHandle)>("cuMemImportFromShareableHandle");
  const auto reserve = DriverCall<decltype(&cuMemAddressReserve)>("cuMemAddressReserve");
  const auto map = DriverCall<decltype(&cuMemMap)>("cuMemMap");
  const auto allow = DriverCall<decltype(&cuMemSetAccess)>("cuMemSetAccess");
  const auto unmap = DriverCall<decltype(&cuMemUnmap)>("cuMemUnmap");
  const auto free_address = DriverCall<decltype(&cuMemAddressFree)>("cuMemAddressFree");
  const auto release = DriverCall<decltype(&cuMemRelease)>("cuMemRelease");
  CUmemAllocationProp kind{};
  kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  kind.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  kind.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  kind.location.id = 0;
  std::size_t bytes = 0;
  TryDriver(granularity(&bytes, &kind, CU_MEM_ALLOC_GRANULARITY_MINIMUM), "granularity");
  CUmemGenericAllocationHandle memory = 0;
  TryDriver(create(&memory, bytes, &kind, 0), "cuMemCreate");
  int fd = -1;
  TryDriver(export_it(&fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), "export");
  CUmemAccessDesc access{};
  access.location = kind.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  // Only what brings it in is timed.
  std::vector<double> samples;
  for (int i = 0; i < 51; ++i) {
    const double begin = Now();
    CUmemGenericAllocationHandle other = 0;
    CUdeviceptr address = 0;
    TryDriver(import(&other, reinterpret_cast<void*>(static_cast<std::uintptr_t>(fd)),
                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
              "import");
    TryDriver(reserve(&address, bytes, 0, 0, 0), "reserve");
    TryDriver(map(address, bytes, 0, other, 0), "map");
    TryDriver(allow(address, bytes, &access, 1), "access");
    samples.push_back(Now() - begin);
    TryDriver(unmap(address, bytes), "unmap");
    TryDriver(free_address(address, bytes), "free");
    TryDriver(release(other), "release");
  }
  close(fd);
  TryDriver(release(memory), "release");
  std::nth_element(samples.begin(), samples.begin() + 25, samples.end());
  return samples[25];
}

std::uint64_t AvailableBytes() {
  std::FILE* const file = std::fopen("/proc/meminfo", "r");
  if (file == nullptr) return 0;
  char line[128];
  unsigned long long kilobytes = 0;
  while (std::fgets(line, sizeof line, file) != nullptr) {
    if (std::sscanf(line, "MemAvailable: %llu kB", &kilobytes) == 1) break;
  }
  std::fclose(file);
  return kilobytes << 10;
}

double CopyTime(cudaStream_t stream, void* to, const void* from, cudaMemcpyKind kind) {
  return Median(2000, 1, [&] {
    TRY(cudaMemcpyAsync(to, from, kBytes, kind, stream));
    TRY(cudaStreamSynchronize(stream));
  });
}

double RegisterTime(std::size_t bytes) {
  if (AvailableBytes() / 4 < bytes) throw NotOffered("it is more than a quarter of free memory");
  SharedPages pages(bytes);
  return Median(5, 1, [&] {
    TRY(cudaHostRegister(pages.data(), pages.bytes(), cudaHostRegisterDefault));
    TRY(cudaHostUnregister(pages.data()));
  });
}

void MeasureAll(cudaStream_t stream, const cudaDeviceProp& card) {
  Measure("launch and wait, empty kernel", "5 us", [&] {
    return Median(5000, 1, [&] {
      Empty<<<1, 32, 0, stream>>>();
      TRY(cudaStreamSynchronize(stream));
    });
  });
  double ten = 0;
  Measure("graph of 10 empty nodes, launch and wait", "10-14 us", [&] {
    const Graph graph(stream, 10);
    return ten = Median(5000, 1, [&] { graph.Run(stream); });
  });
  Measure("one dependent node of a graph", "1.2-2 us", [&] {
    const Graph graph(stream, 110);
    return (Median(2000, 1, [&] { graph.Run(stream); }) - ten) / 100;
  });

  float* device = nullptr;
  TRY(cudaMalloc(&device, kBytes + 64));
  TRY(cudaMemset(device, 0, kBytes));
  SharedPages pages(kBytes);
  TRY(cudaHostRegister(pages.data(), pages.bytes(), cudaHostRegisterDefault));
  Measure("copy of 318 KB to the GPU from registered memfd, and wait", "8 us",
          [&] { return CopyTime(stream, device, pages.data(), cudaMemcpyHostToDevice); });
  Measure("copy of 318 KB from the GPU to registered memfd, and wait", "8 us",
          [&] { return CopyTime(stream, pages.data(), device, cudaMemcpyDeviceToHost); });
  const auto with_huge_pages = [&](bool to_device) {
    SharedPages huge(kBytes, true);
    TRY(cudaHostRegister(huge.data(), huge.bytes(), cudaHostRegisterDefault));
    const double time = to_device ? CopyTime(stream, device, huge.data(), cudaMemcpyHostToDevice)
                                  : CopyTime(stream, huge.data(), device, cudaMemcpyDeviceToHost);
    TRY(cudaHostUnregister(huge.data()));
    return time;
  };
  Measure("copy of 318 KB to the GPU from registered huge pages, and wait", "8 us",
          [&] { return with_huge_pages(true); });
  Measure("copy of 318 KB from the GPU to registered huge pages, and wait", "8 us",
          [&] { return with_huge_pages(false); });
  Measure("kernel that reads 318 KB of mapped memfd, launch and wait", "10-12 us", [&] {
    return Median(2000, 1, [&] {
      Sum<<<132, 256, 0, stream>>>(static_cast<const float4*>(pages.data()), kFloats / 4, device);
      TRY(cudaStreamSynchronize(stream));
    });
  });
  Measure("register and unregister 1 MB", "200 us for the first",
          [] { return RegisterTime(std::size_t{1} << 20); });
  Measure("register and unregister 1 GB", "200000 us for the first",
          [] { return RegisterTime(std::size_t{1} << 30); });
  Measure("import and map GPU memory from a file descriptor", "100 us", ImportTime);
  Measure("grid barrier over all multiprocessors", "1-1.5 us", [&] {
    int count = 1;
    void* arguments[] = {&count};
    const auto run = [&](int barriers) {
      count = barriers;
      return Median(500, 1, [&] {
        TRY(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(&Barriers),
                                        dim3(static_cast<unsigned>(card.multiProcessorCount)),
                                        dim3(256), arguments, 0, stream));
        TRY(cudaStreamSynchronize(stream));
      });
    };
    const double few = run(10);
    return (run(110) - few) / 100;
  });
  const unsigned blocks = static_cast<unsigned>((kFloats / 4 + 255) / 256);
  Measure("vector atomic additions to 79,510 floats, one kernel after another", "2-3 us", [&] {
    return Median(200, 100, [&] {
      for (int i = 0; i < 100; ++i) AddQuads<<<blocks, 256, 0, stream>>>(device, kFloats / 4);
      TRY(cudaStreamSynchronize(stream));
    });
  });
  Measure("the same from 4 streams at once, each kernel", "4-6 us for four", [&] {
    cudaStream_t streams[4];
    for (auto& s : streams) TRY(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    const double time = Median(200, 400, [&] {
      for (int i = 0; i < 100; ++i) {
        for (auto& s : streams) AddQuads<<<blocks, 256, 0, s>>>(device, kFloats / 4);
      }
      for (auto& s : streams) TRY(cudaStreamSynchronize(s));
    });
    for (auto& s : streams) TRY(cudaStreamDestroy(s));
    return time;
  });
  Measure("launch of a flag write until the host sees it", "3-5 us (1-1.5 us of them the write)",
          [&] {
            std::uint64_t* flag = nullptr;
            TRY(cudaHostAlloc(&flag, 64, cudaHostAllocMapped));
            std::uint64_t number = 0;
            const double time = Median(5000, 1, [&] {
              Flag<<<1, 1, 0, stream>>>(flag, ++number);
              const double limit = Now() + 1e6;
              while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) != number) {
                if (Now() > limit) throw std::runtime_error("the flag is not seen within 1 s");
              }
            });
            TRY(cudaFreeHost(flag));
            return time;
          });
  TRY(cudaHostUnregister(pages.data()));
  TRY(cudaFree(device));
}

}  // namespace

int main() {
  int driver = 0;
  int count = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0 ||
      cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    std::printf("gpu_micro: there is no NVIDIA driver or no GPU\n");
    return 3;
  }
  try {
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
    cudaStream_t stream = nullptr;
    TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    MeasureAll(stream, card);
    TRY(cudaStreamDestroy(stream));
  } catch (const std::exception& error) {
    std::printf("FAILED set-up: %s\n", error.what());
    ++g_failed;
  }
  return g_failed == 0 ? 0 : 1;
}

// memory.cc - copies between host and GPU.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <stdexcept>

#include "bench/gpu/kernels.h"
#include "bench/gpu/measure.h"
#include "bench/gpu/rows.h"

namespace gpu_micro {
namespace {

constexpr std::size_t kMany = std::size_t{64} << 20;

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

// Registers shared memory with the driver for as long as it lives.
class Registered {
 public:
  explicit Registered(const SharedPages& pages) : data_(pages.data()) {
    TRY(cudaHostRegister(data_, pages.bytes(), cudaHostRegisterDefault));
  }
  ~Registered() { cudaHostUnregister(data_); }
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;

 private:
  void* data_;
};

// Where the memory of the host for a copy comes from.
enum class Host { kPageable, kRegistered, kRegisteredHuge };

double CopyTime(const Gpu& gpu, cudaMemcpyKind kind, std::size_t bytes, Host host) {
  if (AvailableBytes() / 4 < bytes) throw NotOffered("it is more than a quarter of free memory");
  const DeviceMemory device(bytes);
  const SharedPages pages(bytes, host == Host::kRegisteredHuge);
  std::optional<Registered> registered;
  if (host != Host::kPageable) registered.emplace(pages);
  const bool up = kind == cudaMemcpyHostToDevice;
  void* const to = up ? device.As<void>() : pages.data();
  const void* const from = up ? pages.data() : device.As<void>();
  return Median(2000, 1, [&] {
    TRY(cudaMemcpyAsync(to, from, bytes, kind, gpu.stream));
    Wait(gpu.stream);
  });
}

}  // namespace

void MeasureCopies(const Gpu& gpu) {
  const auto copy = [&](const char* name, const char* predicted, cudaMemcpyKind kind,
                        std::size_t bytes, Host host) {
    Measure(name, predicted, [&] { return CopyTime(gpu, kind, bytes, host); });
  };
  copy("copy of 318 KB to the GPU from registered memfd, and wait", "8 us", cudaMemcpyHostToDevice,
       kBytes, Host::kRegistered);
  copy("copy of 318 KB from the GPU to registered memfd, and wait", "8 us", cudaMemcpyDeviceToHost,
       kBytes, Host::kRegistered);
  copy("copy of 318 KB to the GPU from registered huge pages, and wait", "8 us",
       cudaMemcpyHostToDevice, kBytes, Host::kRegisteredHuge);
  copy("copy of 318 KB from the GPU to registered huge pages, and wait", "8 us",
       cudaMemcpyDeviceToHost, kBytes, Host::kRegisteredHuge);
  Measure("kernel that reads 318 KB of mapped memfd, launch and wait", "10-12 us", [&] {
    const DeviceMemory sum(sizeof(float));
    const SharedPages pages(kBytes);
    const Registered registered(pages);
    return Median(2000, 1, [&] {
      LaunchSum(gpu.stream, pages.data(), kFloats / 4, sum.As<float>());
      Wait(gpu.stream);
    });
  });
  copy("copy of 318 KB from the GPU to memfd that is not registered, and wait", nullptr,
       cudaMemcpyDeviceToHost, kBytes, Host::kPageable);
  copy("copy of 64 MB from the GPU to registered memfd, and wait", "1300 us",
       cudaMemcpyDeviceToHost, kMany, Host::kRegistered);
  copy("copy of 64 MB from the GPU to memfd that is not registered, and wait", "7000-11000 us",
       cudaMemcpyDeviceToHost, kMany, Host::kPageable);
}

}  // namespace gpu_micro

// The FakeDevice's memory, and copies at once.

#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "cuda/fake_device_internal.h"

namespace passel::cuda {

void CopyRacing(void* to, const void* from, std::size_t bytes) {
  for (std::size_t i = 0; i + 4 <= bytes; i += 4) {
    const auto word =
        __atomic_load_n(reinterpret_cast<const std::uint32_t*>(static_cast<const char*>(from) + i),
                        __ATOMIC_RELAXED);
    std::memcpy(static_cast<char*>(to) + i, &word, 4);
  }
  const std::size_t rest = bytes % 4;
  std::memcpy(static_cast<char*>(to) + bytes - rest, static_cast<const char*>(from) + bytes - rest,
              rest);
}

namespace {

constexpr std::string_view kFileName = "passel.fake_gpu.";  // then the UUID

// The driver of a machine whose devices are those of the options.
class FakeDriver final : public DriverCalls {
 public:
  FakeDriver(const FakeDeviceOptions& options, const std::string& home) : facts_(options.peers) {
    devices_ = options.visible;
    if (devices_.empty()) devices_ = {options.uuid, home};
  }
  DriverAnswer DriverVersion(int* version) override {
    *version = 13000;
    return {};
  }
  int RuntimeVersion() override { return 13000; }
  std::string DriverRelease() override { return ""; }
  DriverAnswer DeviceCount(int* count) override {
    *count = static_cast<int>(devices_.size());
    return {};
  }
  DriverAnswer Facts(int device, DeviceFacts* facts) override {
    facts->uuid = devices_[static_cast<std::size_t>(device)];
    return {};
  }
  DriverAnswer Peer(int, int, PeerFacts* facts) override {
    *facts = facts_;
    return {};
  }

 private:
  std::vector<std::string> devices_;
  const PeerFacts facts_;
};

}  // namespace

// Its memory has the device's name in its own.
Status FakeDevice::CheckHome(int fd, const std::string& home) const {
  std::array<char, 256> link{};
  const std::string path = fmt::format("/proc/self/fd/{}", fd);
  if (::readlink(path.c_str(), link.data(), link.size() - 1) < 0) {
    return ErrnoStatus(errno, "cannot see what memory of a fake GPU that is");
  }
  if (std::string_view(link.data()).starts_with(fmt::format("/memfd:{}{}", kFileName, home))) {
    return {};
  }
  return Internal(fmt::format("{} is not memory of the fake GPU {}", link.data(), home));
}

Result<Device::Memory> FakeDevice::MapShared(int fd, std::size_t bytes, bool foreign) {
  struct stat about {};
  if (::fstat(fd, &about) != 0 || static_cast<std::uint64_t>(about.st_size) != bytes) {
    return FailedPrecondition(
        fmt::format("shared memory of {} bytes was expected, not of {}", bytes, about.st_size));
  }
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return ErrnoStatus(errno, "cannot map memory of a fake GPU");
  const std::unique_lock lock(mutex_);
  regions_[Address(memory)] = {bytes, Deleter::Kind::kShared, 0, foreign};
  return Memory(memory, Deleter{this, Deleter::Kind::kShared});
}

// With the mutex held.
Status FakeDevice::CheckLimit(std::size_t bytes) const {
  if (bytes <= options_.memory_limit - bytes_) return {};
  return ResourceExhausted(fmt::format(
      "{} bytes more of GPU memory are needed, {} are in use, and this task may use {}: raise "
      "--per_process_gpu_memory_fraction, or train a smaller model or data set",
      bytes, bytes_, options_.memory_limit));
}

Result<Device::Memory> FakeDevice::CreateShared(std::size_t bytes, FileDescriptor* fd) {
  if (options_.refuse_sharing) {
    return FailedPrecondition("this fake GPU does not share its memory: use --arena host");
  }
  {
    const std::unique_lock lock(mutex_);
    PASSEL_RETURN_IF_ERROR(CheckLimit(bytes));
  }
  FileDescriptor created(
      ::memfd_create((std::string(kFileName) + options_.uuid).c_str(), MFD_CLOEXEC));
  if (!created.valid() || ::ftruncate(created.get(), static_cast<off_t>(bytes)) != 0) {
    return ErrnoStatus(errno, "cannot make memory of a fake GPU");
  }
  PASSEL_ASSIGN_OR_RETURN(Memory memory, MapShared(created.get(), bytes, false));
  *fd = std::move(created);
  const std::unique_lock lock(mutex_);
  regions_[Address(memory.get())].counted = bytes;  // an importer's is its maker's
  bytes_ += bytes;
  return memory;
}

Result<Device::Memory> FakeDevice::ImportShared(int fd, std::size_t bytes,
                                                const std::string& home) {
  const bool foreign = !home.empty() && home != options_.uuid;
  if (foreign) {
    FakeDriver driver(options_, home);
    PASSEL_RETURN_IF_ERROR(ProbePeer(driver, 0, options_.uuid, home).status());
  }
  PASSEL_RETURN_IF_ERROR(CheckHome(fd, foreign ? home : options_.uuid));
  return MapShared(fd, bytes, foreign);
}

Result<Device::Memory> FakeDevice::NewMemory(std::size_t bytes, Deleter::Kind kind) {
  const std::unique_lock lock(mutex_);
  void* memory = nullptr;
  if (posix_memalign(&memory, 256, bytes) != 0) {
    return ResourceExhausted(fmt::format("no memory for {} bytes of a fake GPU", bytes));
  }
  std::memset(memory, 0, bytes);
  regions_[Address(memory)] = {bytes, kind};
  if (kind == Deleter::Kind::kDevice) {
    regions_[Address(memory)].counted = bytes;
    bytes_ += bytes;
  }
  return Memory(memory, Deleter{this, kind});
}

Result<Device::Memory> FakeDevice::Allocate(std::size_t bytes) {
  {
    const std::unique_lock lock(mutex_);
    PASSEL_RETURN_IF_ERROR(CheckLimit(bytes));
  }
  return NewMemory(bytes, Deleter::Kind::kDevice);
}

Result<Device::Memory> FakeDevice::AllocatePinned(std::size_t bytes) {
  return NewMemory(bytes, Deleter::Kind::kPinned);
}

Result<Device::Memory> FakeDevice::Register(void* begin, std::size_t bytes) {
  const std::unique_lock lock(mutex_);
  if (options_.refuse_registration) return FailedPrecondition("registration is switched off");
  if (Address(begin) % 4096 != 0 || bytes % 4096 != 0 || bytes == 0) {
    Violation("memory was registered that is not whole pages");
  }
  const auto same = registered_.find(Address(begin));
  if (same != registered_.end() && same->second.size == bytes) {
    ++same->second.owners;
    return Memory(begin, Deleter{this, Deleter::Kind::kRegistration});
  }
  for (const auto& [other, region] : registered_) {
    if (Overlap(begin, bytes, reinterpret_cast<void*>(other), region.size)) {
      return FailedPrecondition("these pages are registered already");
    }
  }
  registered_[Address(begin)] = {bytes, Deleter::Kind::kRegistration};
  return Memory(begin, Deleter{this, Deleter::Kind::kRegistration});
}

void FakeDevice::Release(Deleter::Kind kind, void* memory) {
  const std::unique_lock lock(mutex_);
  auto& regions = kind == Deleter::Kind::kRegistration ? registered_ : regions_;
  const auto found = regions.find(Address(memory));
  if (found == regions.end() || found->second.kind != kind) {
    Violation("memory was released that is not lent");
    return;
  }
  if (--found->second.owners > 0) return;
  for (const FakeExecutable* executable : executables_) {
    if (executable->Names(memory, found->second.size)) {
      Violation("memory was released before an executable that names it");
      break;
    }
  }
  if (kind == Deleter::Kind::kShared) {
    ::munmap(memory, found->second.size);
  } else if (kind != Deleter::Kind::kRegistration) {
    std::memset(memory, 0xff, found->second.size);
    std::free(memory);
  }
  bytes_ -= found->second.counted;
  regions.erase(found);
}

Status FakeDevice::CopyIn(void* to, const void* from_host, std::size_t bytes) {
  const std::unique_lock lock(mutex_);
  PASSEL_RETURN_IF_ERROR(error_);
  if (!queue_.empty()) Violation("a copy for set-up ran beside a step");
  const Region* const region = bytes == 0 ? nullptr : Find(to, bytes);
  if (bytes != 0 && region == nullptr) Violation("a copy went outside device memory");
  if (region != nullptr && region->foreign) Violation("a copy went to another device's memory");
  if (bytes != 0) std::memcpy(to, from_host, bytes);
  return {};
}

Status FakeDevice::CopyOut(void* to_host, const void* from, std::size_t bytes) {
  const std::unique_lock lock(mutex_);
  PASSEL_RETURN_IF_ERROR(error_);
  if (!queue_.empty()) Violation("a copy for set-up ran beside a step");
  const Region* const region = bytes == 0 ? nullptr : Find(from, bytes);
  if (bytes != 0 && region == nullptr) Violation("a copy came from outside the device");
  if (region != nullptr && region->foreign) Violation("a copy came from another device's memory");
  if (bytes != 0) CopyRacing(to_host, from, bytes);
  return {};
}

const FakeDevice::Region* FakeDevice::Find(const void* begin, std::size_t size) const {
  for (const auto* regions : {&regions_, &registered_}) {
    auto at = regions->upper_bound(Address(begin));
    if (at == regions->begin()) continue;
    --at;
    if (Address(begin) + size <= at->first + at->second.size) return &at->second;
  }
  return nullptr;
}

std::size_t FakeDevice::kernels_at(Scope scope) const {
  const std::unique_lock lock(mutex_);
  return kernels_at_[static_cast<std::size_t>(scope)];
}

std::size_t FakeDevice::memories_alive() const {
  const std::unique_lock lock(mutex_);
  return regions_.size() + registered_.size();
}

}  // namespace passel::cuda

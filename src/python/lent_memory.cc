#include "python/lent_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <utility>

namespace passel::python {
namespace {

std::size_t PageBytes() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

std::size_t WholePages(std::size_t bytes) {
  const std::size_t page = PageBytes();
  return (bytes + page - 1) / page * page;
}

void* NewPages(std::size_t bytes) {
  return ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

}  // namespace

std::shared_ptr<LentMemory> LentMemory::Alias(const float* floats, std::size_t count) {
  const auto address = reinterpret_cast<std::uintptr_t>(floats);
  const std::size_t before = address % PageBytes();
  const std::size_t bytes = WholePages(before + count * sizeof(float));
  // An old size of 0 makes a second mapping of shared pages, and is an error for private ones.
  void* const base = ::mremap(reinterpret_cast<void*>(address - before), 0, bytes, MREMAP_MAYMOVE);
  if (base == MAP_FAILED) return nullptr;
  auto* const first = reinterpret_cast<float*>(static_cast<char*>(base) + before);
  return std::shared_ptr<LentMemory>(new LentMemory(base, bytes, first, true));
}

std::shared_ptr<LentMemory> LentMemory::Own(std::size_t count) {
  const std::size_t bytes = WholePages(count * sizeof(float));
  void* const base = NewPages(bytes);
  if (base == MAP_FAILED) return nullptr;
  return std::shared_ptr<LentMemory>(new LentMemory(base, bytes, static_cast<float*>(base), false));
}

LentMemory::~LentMemory() { ::munmap(base_, bytes_); }

void LentMemory::Detach() {
  if (!shared_) return;
  void* const copy = NewPages(bytes_);
  if (copy != MAP_FAILED) {
    std::memcpy(copy, base_, bytes_);
    shared_ = ::mremap(copy, bytes_, bytes_, MREMAP_MAYMOVE | MREMAP_FIXED, base_) == MAP_FAILED;
    if (!shared_) return;
    ::munmap(copy, bytes_);
  }
  Forget();  // without memory for a copy: zeros, but no other worker's memory
}

void LentMemory::Forget() {
  if (!std::exchange(shared_, false)) return;
  (void)::mmap(base_, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
               0);
}

}  // namespace passel::python

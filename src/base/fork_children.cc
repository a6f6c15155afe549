#include "base/fork_children.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace passel {
namespace {

constexpr std::size_t kMostDescriptors = 65536;

// Which file it was, by its number; 0: none of ours. Relaxed: a descriptor that another thread
// makes at the moment of a fork() may or may not be in the child.
std::array<std::atomic<std::uint64_t>, kMostDescriptors> g_files;
std::atomic<std::size_t> g_end{0};  // behind the highest of them

std::uint64_t FileOf(int fd) {
  struct stat facts;
  if (::fstat(fd, &facts) != 0) return 0;
  return facts.st_ino ^ (std::uint64_t{facts.st_dev} << 40) ^ 1ULL << 63;
}

// Calls only what a signal handler may: other threads are gone, with what locks they held.
void InChild() {
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (nothing < 0) return;
  for (std::size_t fd = 0; fd < g_end.load(std::memory_order_relaxed); ++fd) {
    const std::uint64_t file = g_files[fd].load(std::memory_order_relaxed);
    if (file == 0 || FileOf(static_cast<int>(fd)) != file) continue;
    ::dup3(nothing, static_cast<int>(fd), O_CLOEXEC);
  }
  ::close(nothing);
}

}  // namespace

void KeepFromChildren(int fd) {
  if (fd < 0 || static_cast<std::size_t>(fd) >= kMostDescriptors) return;
  const std::size_t end = static_cast<std::size_t>(fd) + 1;
  g_files[end - 1].store(FileOf(fd), std::memory_order_relaxed);
  std::size_t before = g_end.load(std::memory_order_relaxed);
  while (before < end && !g_end.compare_exchange_weak(before, end, std::memory_order_relaxed)) {
  }
}

void LeaveChildrenWithout() {
  static std::once_flag once;
  std::call_once(once, [] { (void)::pthread_atfork(nullptr, nullptr, &InChild); });
}

}  // namespace passel

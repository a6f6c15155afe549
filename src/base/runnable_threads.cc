#include "base/runnable_threads.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <thread>

#include "base/clock.h"
#include "base/file_descriptor.h"

namespace passel {
namespace {

constexpr std::int64_t kLookEveryNs = 5'000'000;

bool Look() {
  // Open as long as the process; the kernel writes it anew for each read from its beginning.
  static const FileDescriptor file(::open("/proc/loadavg", O_RDONLY | O_CLOEXEC));
  static const int cores = static_cast<int>(std::thread::hardware_concurrency());
  std::array<char, 128> text;
  const ssize_t size = ::pread(file.get(), text.data(), text.size(), 0);
  if (size <= 0 || cores == 0) return false;
  return RunnableIn({text.data(), static_cast<std::size_t>(size)}).value_or(0) > cores;
}

}  // namespace

std::optional<int> RunnableIn(std::string_view line) {
  for (int field = 0; field < 3; ++field) {
    const std::size_t space = line.find(' ');
    if (space == line.npos) return std::nullopt;
    line.remove_prefix(space + 1);
  }
  int running = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), running);
  if (error != std::errc() || end == line.data() + line.size() || *end != '/') return std::nullopt;
  return running;
}

bool ThreadsOutnumberCores() {
  // Relaxed: hints. Two threads that look at the same time do no harm.
  static std::atomic<std::int64_t> next_look_ns{0};
  static std::atomic<bool> outnumber{false};
  const std::int64_t now = MonotonicNs();
  if (now >= next_look_ns.load(std::memory_order_relaxed)) {
    next_look_ns.store(now + kLookEveryNs, std::memory_order_relaxed);
    outnumber.store(Look(), std::memory_order_relaxed);
  }
  return outnumber.load(std::memory_order_relaxed);
}

}  // namespace passel

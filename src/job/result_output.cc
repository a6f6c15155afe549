#include "job/result_output.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <span>

#include "base/file.h"
#include "base/file_descriptor.h"
#include "job/output_path.h"

namespace passel::job {
namespace {

constexpr const char* kStandardOutput = "-";
// How long nobody may read the result before it is given up.
constexpr int kReaderPatienceMs = 5000;

FileDescriptor& KeptOutput() {
  static FileDescriptor kept;
  return kept;
}

// In pieces that a pipe takes whole once it takes anything: no write waits.
Status Print(std::string_view text) {
  const auto cannot = [](int error) {
    return Internal(
        fmt::format("the result cannot be printed on standard output: {}", std::strerror(error)));
  };
  while (!text.empty()) {
    pollfd entry{KeptOutput().get(), POLLOUT, 0};
    const int ready = ::poll(&entry, 1, kReaderPatienceMs);
    if (ready < 0 && errno != EINTR) return cannot(errno);
    if (ready == 0) return cannot(ETIMEDOUT);
    if (ready < 0) continue;
    const std::size_t piece = std::min<std::size_t>(text.size(), PIPE_BUF);
    const ssize_t put = ::write(KeptOutput().get(), text.data(), piece);
    if (put < 0 && errno != EINTR && errno != EAGAIN) return cannot(errno);
    if (put > 0) text.remove_prefix(static_cast<std::size_t>(put));
  }
  return {};
}

}  // namespace

Status PrepareResult(const char* flag, const std::string& path) {
  if (path != kStandardOutput) return CheckOutputPath(flag, path);
  if (KeptOutput().valid()) return {};
  FileDescriptor kept(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  std::fflush(stdout);
  if (!kept.valid() || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
    return ErrnoStatus(errno, fmt::format("{} - cannot be printed", flag));
  }
  KeptOutput() = std::move(kept);
  return {};
}

Status WriteResult(const std::string& path, std::string_view text) {
  if (path == kStandardOutput) return Print(text);
  const std::span<const std::byte> piece = std::as_bytes(std::span(text.data(), text.size()));
  return WriteFileAtomically(path, {&piece, 1});
}

}  // namespace passel::job

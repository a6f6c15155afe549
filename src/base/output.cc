#include "base/output.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>

#include "base/file_descriptor.h"

namespace passel {
namespace {

constexpr std::string_view kClearLine = "\r\033[K";
// How long the thread waits for a reader before it looks whether the stream is still the same.
constexpr int kLookMs = 500;
constexpr std::chrono::milliseconds kOutPatience{100};

// Writes to one descriptor without waiting. An O_NONBLOCK of our own must not reach others that
// share the open file (a shell, say), so pipes and terminals are opened once more.
class Target {
 public:
  explicit Target(int fd) : fd_(fd) {}

  // Up to PIPE_BUF bytes. Bytes written, 0 if that would take waiting; -1: errno says why not.
  ssize_t Write(const char* data, std::size_t size) {
    Look();
    ssize_t written = -1;
    do {
      switch (way_) {
        case Way::kDirect:
          written = ::write(fd_, data, size);
          break;
        case Way::kReopened:
          written = ::write(own_.get(), data, size);
          break;
        case Way::kSocket:
          written = ::send(fd_, data, size, MSG_DONTWAIT);
          break;
        case Way::kPolled: {
          pollfd entry{fd_, POLLOUT, 0};
          if (::poll(&entry, 1, 0) <= 0) return 0;
          written = ::write(fd_, data, size);
          break;
        }
      }
    } while (written < 0 && errno == EINTR);
    return written < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? 0 : written;
  }

  void AwaitRoom() const {
    pollfd entry{way_ == Way::kReopened ? own_.get() : fd_, POLLOUT, 0};
    ::poll(&entry, 1, kLookMs);
  }

 private:
  enum class Way { kDirect, kReopened, kSocket, kPolled };

  // What the descriptor is now: a test, say, may have put another file there.
  void Look() {
    struct stat info {};
    if (::fstat(fd_, &info) != 0) {
      way_ = Way::kDirect;
      return;
    }
    if (known_ && info.st_dev == device_ && info.st_ino == inode_) return;
    known_ = true;
    device_ = info.st_dev;
    inode_ = info.st_ino;
    own_.Reset();
    way_ = Way::kDirect;
    if (S_ISSOCK(info.st_mode)) way_ = Way::kSocket;
    if (!S_ISFIFO(info.st_mode) && !S_ISCHR(info.st_mode)) return;
    const std::string self = fmt::format("/proc/self/fd/{}", fd_);
    own_.Reset(::open(self.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    way_ = own_.valid() ? Way::kReopened : Way::kPolled;
  }

  const int fd_;
  bool known_ = false;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  FileDescriptor own_;
  Way way_ = Way::kDirect;
};

// How much of it may be written at once without being mixed with what others write to the same
// pipe: whole lines, up to PIPE_BUF.
std::size_t WholeLines(std::string_view text) {
  if (text.size() <= PIPE_BUF) return text.size();
  const std::size_t end = text.rfind('\n', PIPE_BUF - 1);
  return end == std::string_view::npos ? PIPE_BUF : end + 1;
}

class Queue {
 public:
  Queue(int fd, std::chrono::nanoseconds patience) : patience_(patience), target_(fd) {}

  void Put(std::string_view text) {
    std::unique_lock lock(mutex_);
    if (kept_.empty()) text.remove_prefix(WriteNow(text.data(), text.size()));
    if (text.empty()) return;
    // The rest of a piece that has begun is kept whatever its size.
    const bool begun = kept_.empty() && taken_ > 0;
    const auto room = [&] { return begun || kept_.size() + text.size() <= kMaxKeptBytes; };
    // A reader that is only slow is waited for, until it is found to be none.
    if (!room() && !stuck_) stuck_ = !changed_.wait_for(lock, patience_, room);
    if (!room()) {
      ++dropped_;
      return;
    }
    kept_.append(text);
    StartThread();
  }

  // False: not now.
  bool PutNow(std::string_view text) {
    const std::lock_guard lock(mutex_);
    return kept_.empty() && WriteNow(text.data(), text.size()) == text.size();
  }

  int Flush(std::chrono::nanoseconds patience) {
    std::unique_lock lock(mutex_);
    while (!kept_.empty()) {
      const std::uint64_t before = written_;
      changed_.wait_for(lock, patience, [&] { return kept_.empty() || written_ != before; });
      if (!kept_.empty() && written_ == before) return ETIMEDOUT;
    }
    return error_;
  }

 private:
  // How much of it need not be written any more: because it is, or because nobody can read it.
  std::size_t WriteNow(const char* data, std::size_t size) {
    taken_ = 0;
    while (taken_ < size) {
      const ssize_t written =
          target_.Write(data + taken_, WholeLines({data + taken_, size - taken_}));
      if (written == 0) break;
      if (written < 0) {
        if (error_ == 0) error_ = errno;
        taken_ = size;
        break;
      }
      taken_ += static_cast<std::size_t>(written);
      written_ += static_cast<std::uint64_t>(written);
    }
    return taken_;
  }

  // REQUIRES: mutex_ is held.
  void StartThread() {
    if (thread_runs_) return;
    try {
      std::thread([this] { Drain(); }).detach();
      thread_runs_ = true;
    } catch (const std::system_error&) {
      // No thread to be had: the next text, or nobody, takes what is kept along.
    }
  }

  // Others only append while something is kept, so its beginning stays where it is.
  void Drain() {
    std::unique_lock lock(mutex_);
    while (!kept_.empty()) {
      lock.unlock();
      target_.AwaitRoom();
      lock.lock();
      const std::size_t taken = WriteNow(kept_.data(), kept_.size());
      kept_.erase(0, taken);
      stuck_ &= taken == 0;
      if (kept_.empty() && dropped_ > 0) {
        kept_ = fmt::format("passel: {} pieces of output are missing here, since nobody read it\n",
                            dropped_);
        dropped_ = 0;
      }
      changed_.notify_all();
    }
    thread_runs_ = false;
  }

  const std::chrono::nanoseconds patience_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Target target_;
  std::string kept_;
  std::size_t taken_ = 0;  // by the last WriteNow()
  std::uint64_t written_ = 0, dropped_ = 0;
  int error_ = 0;
  bool thread_runs_ = false;
  bool stuck_ = false;  // the reader took nothing for patience_
};

// Never destroyed: the thread may outlive main().
Queue& QueueOf(Stream stream) {
  static Queue& out = *new Queue(STDOUT_FILENO, kOutPatience);
  static Queue& err = *new Queue(STDERR_FILENO, std::chrono::nanoseconds(0));
  return stream == Stream::kOut ? out : err;
}

std::mutex g_live_mutex;
bool g_live = false;  // a live line stands on the terminal

}  // namespace

void OpenMissingStreams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest number that is free is this one.
    [[maybe_unused]] const int opened =
        ::open("/dev/null", fd == STDIN_FILENO ? O_RDONLY : O_WRONLY);
  }
}

void Write(Stream stream, std::string_view lines) {
  const std::lock_guard lock(g_live_mutex);
  if (g_live && (stream == Stream::kErr || ::isatty(STDOUT_FILENO) == 1)) {
    g_live = false;
    QueueOf(Stream::kErr).PutNow(kClearLine);
  }
  QueueOf(stream).Put(lines);
}

int FlushOutput(Stream stream, std::chrono::nanoseconds patience) {
  return QueueOf(stream).Flush(patience);
}

void ShowLiveLine(std::string_view text) {
  const std::lock_guard lock(g_live_mutex);
  g_live |= QueueOf(Stream::kErr).PutNow(fmt::format("{}{}", kClearLine, text));
}

void EndLiveLine() {
  const std::lock_guard lock(g_live_mutex);
  if (g_live) QueueOf(Stream::kErr).PutNow(kClearLine);
  g_live = false;
}

}  // namespace passel

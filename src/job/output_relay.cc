#include "job/output_relay.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <string_view>
#include <system_error>

#include "base/deadline.h"

namespace passel::job {
namespace {

// A line is not kept longer than this for its end to come.
constexpr std::size_t kMaxLine = 65536;

bool SameFile(int a, int b) {
  struct stat first {
  }, second{};
  return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino && !S_ISCHR(first.st_mode) == !S_ISCHR(second.st_mode);
}

}  // namespace

Result<std::unique_ptr<OutputRelay>> OutputRelay::Create() {
  std::unique_ptr<OutputRelay> relay(new OutputRelay);
  relay->shared_ = SameFile(STDOUT_FILENO, STDERR_FILENO);
  for (int i = 0; i < (relay->shared_ ? 1 : 2); ++i) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "cannot create a pipe");
    Pipe& pipe = relay->pipes_[i];
    pipe.read_end.Reset(ends[0]);
    pipe.write_end.Reset(ends[1]);
    pipe.stream = i == 0 ? Stream::kOut : Stream::kErr;
    // The other end, which tasks write to, waits as ever.
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  }
  relay->stop_.Reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!relay->stop_.valid()) return ErrnoStatus(errno, "cannot create an eventfd");
  // Signals are for the main thread, whose poll they end.
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &before);
  Status status;
  try {
    relay->thread_ = std::thread([r = relay.get()] { r->Run(); });
  } catch (const std::system_error& error) {
    status = ErrnoStatus(error.code().value(), "cannot start a thread");
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!status.ok()) return status;
  return relay;
}

OutputRelay::~OutputRelay() {
  if (!thread_.joinable()) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto put = ::write(stop_.get(), &one, sizeof one);
  thread_.join();
}

void OutputRelay::Run() {
  std::array<pollfd, 3> entries;
  entries[0] = {stop_.get(), POLLIN, 0};
  for (std::size_t i = 0; i < 2; ++i) entries[i + 1] = {pipes_[i].read_end.get(), POLLIN, 0};
  for (bool stop = false; !stop;) {
    ::poll(entries.data(), entries.size(), -1);
    stop = entries[0].revents != 0;
    for (Pipe& pipe : pipes_) {
      while (pipe.read_end.valid() && Copy(pipe)) {
      }
      if (!stop || pipe.begun.empty()) continue;
      Write(pipe.stream, pipe.begun + "\n");
    }
  }
}

// False: there is nothing at present.
bool OutputRelay::Copy(Pipe& pipe) {
  std::array<char, kMaxLine> buffer;
  const std::lock_guard lock(mutex_);
  const ssize_t got = ::read(pipe.read_end.get(), buffer.data(), buffer.size());
  if (got <= 0) return got < 0 && errno == EINTR;
  std::string_view text(buffer.data(), static_cast<std::size_t>(got));
  const std::size_t end = text.rfind('\n');
  if (end == std::string_view::npos && pipe.begun.size() + text.size() < kMaxLine) {
    pipe.begun += text;
    return true;
  }
  const std::size_t whole = end == std::string_view::npos ? text.size() : end + 1;
  pipe.begun += text.substr(0, whole);
  Write(pipe.stream, pipe.begun);
  pipe.begun = text.substr(whole);
  return true;
}

void OutputRelay::Settle(std::chrono::nanoseconds limit) {
  const Deadline deadline = Deadline::After(limit);
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      int waiting = 0;
      for (const Pipe& pipe : pipes_) {
        int bytes = 0;
        if (pipe.read_end.valid() && ::ioctl(pipe.read_end.get(), FIONREAD, &bytes) == 0) {
          waiting += bytes;
        }
      }
      if (waiting == 0) return;
    }
    if (deadline.Expired()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace passel::job

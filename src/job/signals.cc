#include "job/signals.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>

#include "job/exit_code.h"

namespace passel::job {
namespace {

std::atomic<int> g_write_fd{-1};

void HandleAll(void (*handler)(int)) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) HandleUnlessIgnored(signal, handler);
}

void End(int signal) { ::_exit(signal == SIGINT ? kExitInterrupted : kExitRestartMe); }

void Put(int signal) {
  const int saved = errno;
  const auto number = static_cast<unsigned char>(signal);
  // A full pipe holds thousands that nobody has read: one more changes nothing.
  [[maybe_unused]] const auto put = ::write(g_write_fd.load(), &number, sizeof number);
  errno = saved;
}

}  // namespace

void HandleUnlessIgnored(int signal, void (*handler)(int)) {
  struct sigaction action {};
  if (::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) return;
  action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigaction(signal, &action, nullptr);
}

void EndOnSignals() { HandleAll(End); }

Result<SignalEvents> SignalEvents::Create() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0) return ErrnoStatus(errno, "cannot create a pipe");
  FileDescriptor read_end(fds[0]);
  // For the life of the process, both ends: a handler may run at any time, and writing to a pipe
  // that nobody can read raises a signal of its own.
  if (::fcntl(fds[0], F_DUPFD_CLOEXEC, 0) < 0) return ErrnoStatus(errno, "cannot keep a pipe");
  g_write_fd.store(fds[1]);
  HandleAll(Put);
  return SignalEvents(std::move(read_end));
}

int SignalEvents::Next() {
  unsigned char number = 0;
  return ::read(fd_.get(), &number, sizeof number) == sizeof number ? number : 0;
}

}  // namespace passel::job

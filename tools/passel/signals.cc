#include "tools/passel/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace passel {

Result<SignalEvents> SignalEvents::Create() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  if (::pthread_sigmask(SIG_BLOCK, &signals, nullptr) != 0) {
    return Internal("cannot block the signals");
  }
  FileDescriptor fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd.valid()) return ErrnoStatus(errno, "cannot create a signalfd");
  return SignalEvents(std::move(fd));
}

int SignalEvents::Next() {
  signalfd_siginfo info;
  return ::read(fd_.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo)
                                                              : 0;
}

}  // namespace passel

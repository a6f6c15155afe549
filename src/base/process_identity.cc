#include "base/process_identity.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/file_descriptor.h"

namespace passel {
namespace {

std::uint64_t PidNamespace() {
  struct stat info;
  return ::stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

enum class Entry { kRead, kNone, kNotReadable };

// State letter and start time of /proc/PID/stat. kNone only if the kernel says that there is no
// such process: that descriptors are short proves nobody's death.
Entry ReadStat(pid_t pid, char* state, std::uint64_t* start_time) {
  char path[48];
  std::snprintf(path, sizeof path, "/proc/%d/stat", static_cast<int>(pid));
  FileDescriptor fd(::open(path, O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return errno == ENOENT ? Entry::kNone : Entry::kNotReadable;
  char text[1024];
  const ssize_t got = ::read(fd.get(), text, sizeof text - 1);
  if (got <= 0) return got < 0 && errno == ESRCH ? Entry::kNone : Entry::kNotReadable;
  text[got] = '\0';
  // Field 2, the command, is in parentheses and may hold anything: count from the last one.
  const char* p = std::strrchr(text, ')');
  if (p == nullptr || p[1] != ' ') return Entry::kNotReadable;
  *state = p[2];
  p += 2;
  for (int field = 3; field < 22; ++field) {
    p = std::strchr(p, ' ');
    if (p == nullptr) return Entry::kNotReadable;
    ++p;
  }
  *start_time = std::strtoull(p, nullptr, 10);
  return Entry::kRead;
}

}  // namespace

ProcessIdentity IdentityOf(pid_t pid) {
  ProcessIdentity who;
  char state = 0;
  if (ReadStat(pid, &state, &who.start_time) != Entry::kRead) return {};
  who.pid = pid;
  who.pid_namespace = PidNamespace();
  return who;
}

ProcessIdentity SelfIdentity() { return IdentityOf(::getpid()); }

Liveness ProbeLiveness(const ProcessIdentity& who) {
  if (who.pid <= 0) return Liveness::kDead;
  if (who.pid_namespace != PidNamespace()) return Liveness::kUnknown;
  char state = 0;
  std::uint64_t start_time = 0;
  const Entry entry = ReadStat(who.pid, &state, &start_time);
  if (entry == Entry::kNone) return Liveness::kDead;
  if (entry == Entry::kNotReadable) return Liveness::kUnknown;
  if (state == 'Z' || state == 'X' || start_time != who.start_time) return Liveness::kDead;
  return Liveness::kAlive;
}

bool KillProcess(const ProcessIdentity& who, Deadline deadline) {
  if (who.pid <= 0 || who.pid == ::getpid() || who.pid_namespace != PidNamespace()) return false;
  const FileDescriptor process(static_cast<int>(::syscall(SYS_pidfd_open, who.pid, 0)));
  if (!process.valid()) return ProbeLiveness(who) == Liveness::kDead;
  // What the descriptor names stays the same from here on: is it the one that is meant?
  const Liveness liveness = ProbeLiveness(who);
  if (liveness != Liveness::kAlive) return liveness == Liveness::kDead;
  if (::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0) != 0) {
    return ProbeLiveness(who) == Liveness::kDead;
  }
  pollfd ended{process.get(), POLLIN, 0};
  while (::poll(&ended, 1, deadline.PollTimeoutMs()) < 0 && errno == EINTR) {
  }
  return (ended.revents & POLLIN) != 0;
}

}  // namespace passel

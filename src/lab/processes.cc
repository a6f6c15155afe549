#include "lab/processes.h"

#include <fmt/core.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <utility>

#include "base/file_descriptor.h"
#include "base/futex.h"
#include "base/subprocess.h"

namespace passel::lab {
namespace {

constexpr int kLookMs = 100;  // how soon a Ctrl-C is seen at the latest

struct ChildEnd {
  int code = 0;  // Code
  char message[500] = {};
};

volatile std::sig_atomic_t g_interrupted = 0;

void OnSignal(int) { g_interrupted = 1; }

// A child of ours; killed and reaped if it has not ended.
class Child {
 public:
  Child(pid_t pid, FileDescriptor pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}
  Child(Child&& other) noexcept
      : pid_(std::exchange(other.pid_, 0)), pidfd_(std::move(other.pidfd_)) {}
  Child& operator=(Child&&) = delete;
  ~Child() {
    if (pid_ == 0) return;
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

  int pidfd() const { return pidfd_.get(); }
  /// Its wait status. REQUIRES: it has ended.
  int Reap() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = 0;
    return status;
  }

 private:
  pid_t pid_;
  FileDescriptor pidfd_;
};

}  // namespace

Status Gate::Wait(Deadline deadline) {
  const int turn = turn_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == count_) {
    arrived_.store(0, std::memory_order_relaxed);
    // Release, paired with the acquire below: everything before the gate is seen behind it.
    turn_.store(turn + 1, std::memory_order_release);
    return {};
  }
  while (turn_.load(std::memory_order_acquire) == turn) {
    if (deadline.Expired()) {
      return DeadlineExceeded(fmt::format("{} of {} processes of a benchmark came to its start",
                                          arrived_.load(), count_));
    }
    for (int i = 0; i < 64; ++i) SpinPause();
    ::sched_yield();
  }
  return {};
}

Status RunProcesses(const std::vector<std::vector<int>>& cpus, Deadline deadline,
                    const std::function<Status(int, Gate&)>& body) {
  SharedArray<Gate> gate(1);
  gate[0].count_ = static_cast<int>(cpus.size());
  SharedArray<ChildEnd> ends(cpus.size());
  std::vector<Child> children;
  std::fflush(nullptr);  // or the children would print it once more
  for (std::size_t i = 0; i < cpus.size(); ++i) {
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0) return ErrnoStatus(errno, "cannot start a process");
    if (pid == 0) {
      ::signal(SIGINT, SIG_IGN);
      ::signal(SIGTERM, SIG_DFL);
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      Status status = ::getppid() == parent ? PinTo(cpus[i]) : Cancelled("the parent died");
      if (status.ok()) status = body(static_cast<int>(i), gate[0]);
      ends[i].code = static_cast<int>(status.code());
      std::snprintf(ends[i].message, sizeof ends[i].message, "%s", status.message().c_str());
      ::_exit(status.ok() ? 0 : 1);
    }
    FileDescriptor pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (!pidfd.valid()) {
      const Status status = ErrnoStatus(errno, "cannot open a pidfd");
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
      return status;
    }
    children.emplace_back(pid, std::move(pidfd));
  }
  // All at once: when one fails, the others may be waiting for it.
  std::vector<pollfd> events;
  for (const Child& child : children) events.push_back({child.pidfd(), POLLIN, 0});
  for (std::size_t left = children.size(); left > 0;) {
    if (::poll(events.data(), events.size(), deadline.PollTimeoutMs(kLookMs)) < 0 &&
        errno != EINTR) {
      return ErrnoStatus(errno, "cannot wait for the processes of a benchmark");
    }
    if (Interrupted()) return Cancelled("interrupted");
    for (std::size_t i = 0; i < events.size(); ++i) {
      if ((events[i].revents & POLLIN) == 0) continue;
      events[i] = {-1, 0, 0};
      --left;
      const int status = children[i].Reap();
      if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
      if (ends[i].code != 0) {
        return Status(static_cast<Code>(ends[i].code),
                      fmt::format("process {} of {}: {}", i, cpus.size(), ends[i].message));
      }
      const ExitState end = WIFSIGNALED(status) ? ExitState{true, WTERMSIG(status)}
                                                : ExitState{false, WEXITSTATUS(status)};
      return Internal(
          fmt::format("process {} of {} of a benchmark {}", i, cpus.size(), end.ToString()));
    }
    if (left > 0 && deadline.Expired()) {
      return DeadlineExceeded(
          fmt::format("{} of {} processes of a benchmark did not end in time", left, cpus.size()));
    }
  }
  return {};
}

Status PinTo(const std::vector<int>& cpus) {
  if (cpus.empty()) return {};
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(static_cast<std::size_t>(cpu), &set);
  if (::sched_setaffinity(0, sizeof set, &set) != 0) {
    return ErrnoStatus(errno, fmt::format("cannot pin a process to processor {}", cpus[0]));
  }
  return {};
}

std::vector<std::vector<int>> OneCoreEach(int count) {
  const std::vector<int> usable = UsableCpus();
  PASSEL_CHECK(usable.size() >= static_cast<std::size_t>(count), "the caller counted the cores");
  std::vector<std::vector<int>> cpus;
  for (int i = 0; i < count; ++i) cpus.push_back({usable[static_cast<std::size_t>(i)]});
  return cpus;
}

bool Interrupted() { return g_interrupted != 0; }

void NoteInterrupts() {
  struct sigaction action {};
  action.sa_handler = OnSignal;
  for (const int signal : {SIGINT, SIGTERM}) ::sigaction(signal, &action, nullptr);
}

}  // namespace passel::lab

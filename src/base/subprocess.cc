#include "base/subprocess.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX asks for it

namespace passel {
namespace {

// The process groups of the children that live, 0 for a free place: for a handler of signals, which
// may take no lock. Relaxed: a number that is a little too old or too new names a group that is
// about to begin or has just ended.
std::array<std::atomic<pid_t>, 1024> g_groups;

void Exchange(pid_t from, pid_t to) {
  for (std::atomic<pid_t>& group : g_groups) {
    pid_t expected = from;
    if (group.compare_exchange_strong(expected, to, std::memory_order_relaxed)) return;
  }
}

void SignalGroups(int signal) {
  for (const std::atomic<pid_t>& group : g_groups) {
    const pid_t pid = group.load(std::memory_order_relaxed);
    if (pid != 0) ::kill(-pid, signal);
  }
}

// Handler. What the signal does without one, stopping this process unless nobody could continue
// it, it does between the children's stop and their going on.
void StopTogether(int signal) {
  const int saved = errno;
  SignalGroups(SIGSTOP);
  struct sigaction before {};
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  ::sigaction(signal, &standard, &before);
  sigset_t only, mask;
  sigemptyset(&only);
  sigaddset(&only, signal);
  ::raise(signal);
  ::pthread_sigmask(SIG_UNBLOCK, &only, &mask);  // here it stops
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  ::sigaction(signal, &before, nullptr);
  SignalGroups(SIGCONT);
  errno = saved;
}

void HandleStops() {
  for (const int signal : {SIGTSTP, SIGTTOU, SIGTTIN}) {
    struct sigaction action {};
    if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) continue;
    action.sa_handler = StopTogether;
    action.sa_flags = SA_RESTART;
    ::sigaction(signal, &action, nullptr);
  }
}

// In the child, between fork and exec: system calls only.
[[noreturn]] void BecomeChild(const SpawnOptions& options, pid_t parent, char* const* argv,
                              char* const* envp, const cpu_set_t* cpus, int error_fd) {
  const auto fail = [error_fd] {
    const int error = errno;
    [[maybe_unused]] const auto put = ::write(error_fd, &error, sizeof error);
    ::_exit(127);
  };
  ::setpgid(0, 0);
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) fail();
  if (::getppid() != parent) ::_exit(127);  // it died before the line above
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGCHLD}) ::signal(signal, SIG_DFL);
  if (cpus != nullptr && ::sched_setaffinity(0, sizeof *cpus, cpus) != 0) fail();
  for (const int fd : options.inherited_fds) {
    if (::fcntl(fd, F_SETFD, 0) != 0) fail();
  }
  if (options.out >= 0 && ::dup2(options.out, STDOUT_FILENO) < 0) fail();
  if (options.err >= 0 && ::dup2(options.err, STDERR_FILENO) < 0) fail();
  ::execve(options.executable.c_str(), argv, envp);
  fail();
  ::_exit(127);
}

// A whole CPU count from quota and period in microseconds; 0 if there is no quota.
int CpusOfQuota(long quota, long period) {
  if (quota <= 0 || period <= 0) return 0;
  return static_cast<int>(std::max(1L, quota / period));
}

}  // namespace

std::string SignalName(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name == nullptr ? fmt::format("signal {}", signal)
                         : fmt::format("SIG{} ({})", name, signal);
}

std::string ExitState::ToString() const {
  return signalled ? fmt::format("was killed by {}", SignalName(code))
                   : fmt::format("exited with {}", code);
}

Result<Subprocess> Subprocess::Spawn(const SpawnOptions& options) {
  // Everything that allocates happens before fork: another thread may hold malloc's lock.
  std::vector<char*> argv;
  argv.push_back(const_cast<char*>(options.name.c_str()));
  for (const std::string& a : options.arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> envp;
  for (char** e = environ; *e != nullptr; ++e) {
    const std::string_view entry = *e;
    const std::string_view name = entry.substr(0, entry.find('=') + 1);
    const bool replaced = std::any_of(options.environment.begin(), options.environment.end(),
                                      [&](const std::string& n) { return n.starts_with(name); });
    const bool left_out = std::any_of(options.not_handed_on.begin(), options.not_handed_on.end(),
                                      [&](const std::string& n) { return name == n + "="; });
    if (!replaced && !left_out) envp.push_back(*e);
  }
  for (const std::string& e : options.environment) envp.push_back(const_cast<char*>(e.c_str()));
  envp.push_back(nullptr);
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (const int cpu : options.cpus) CPU_SET(static_cast<std::size_t>(cpu), &cpus);

  HandleStops();
  int pipe_fds[2];
  if (::pipe2(pipe_fds, O_CLOEXEC) != 0) return ErrnoStatus(errno, "cannot create a pipe");
  FileDescriptor error_read(pipe_fds[0]);
  FileDescriptor error_write(pipe_fds[1]);
  const pid_t parent = ::getpid();
  // Without the handlers that libraries want to run at a fork: OpenBLAS ends its threads in one,
  // and waits for as long as these find no memory. The child makes system calls only.
  const pid_t pid = ::_Fork();
  if (pid < 0) return ErrnoStatus(errno, "cannot start a process");
  if (pid == 0) {
    BecomeChild(options, parent, argv.data(), envp.data(), options.cpus.empty() ? nullptr : &cpus,
                error_write.get());
  }
  ::setpgid(pid, pid);  // whoever comes first; the other's call changes nothing
  error_write.Reset();
  int error = 0;
  ssize_t got;
  do {
    got = ::read(error_read.get(), &error, sizeof error);
  } while (got < 0 && errno == EINTR);
  if (got == sizeof error) {
    ::waitpid(pid, nullptr, 0);
    return ErrnoStatus(error, fmt::format("cannot execute {}", options.executable));
  }
  FileDescriptor pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd.valid()) {
    const Status status = ErrnoStatus(errno, "cannot open a pidfd");
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return status;
  }
  return Subprocess(pid, std::move(pidfd));
}

Subprocess::Subprocess(pid_t pid, FileDescriptor pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {
  Exchange(0, pid);
}

Subprocess::~Subprocess() {
  if (!pidfd_.valid() || ended_) return;
  Signal(SIGKILL);
  // A process in an uninterruptible sleep cannot be reaped: do not hang with it.
  (void)Reap(Deadline::After(std::chrono::seconds(5)));
}

std::optional<ExitState> Subprocess::TryReap() {
  if (ended_ || !pidfd_.valid()) return ended_;
  // Its group is forgotten while its number is still its own.
  siginfo_t info{};
  const auto id = static_cast<id_t>(pid_);
  if (::waitid(P_PID, id, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) {
    return std::nullopt;
  }
  Exchange(pid_, 0);
  if (::waitid(P_PID, id, &info, WEXITED | WNOHANG) != 0) return std::nullopt;
  ended_ = ExitState{info.si_code != CLD_EXITED, info.si_status};
  return ended_;
}

Result<ExitState> Subprocess::Reap(Deadline deadline) {
  for (;;) {
    if (const auto ended = TryReap()) return *ended;
    if (deadline.Expired()) {
      return DeadlineExceeded(fmt::format("process {} does not end", pid_));
    }
    pollfd entry{pidfd_.get(), POLLIN, 0};
    ::poll(&entry, 1, deadline.PollTimeoutMs());
  }
}

void Subprocess::Abandon() {
  if (!ended_ && pidfd_.valid()) Exchange(pid_, 0);
  pidfd_.Reset();
}

void Subprocess::Signal(int signal) {
  // Not reaped yet, so the pid and the group are still ours.
  if (!ended_ && pidfd_.valid()) ::kill(-pid_, signal);
}

std::vector<int> AffinityCpus() {
  std::vector<int> cpus;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (::sched_getaffinity(0, sizeof mask, &mask) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(static_cast<std::size_t>(cpu), &mask)) cpus.push_back(cpu);
    }
  }
  if (cpus.empty()) cpus.push_back(0);
  return cpus;
}

std::vector<int> UsableCpus(const std::string& root) {
  std::vector<int> cpus = AffinityCpus();
  int most = static_cast<int>(cpus.size());
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    std::string path = line.substr(second + 1);
    const bool v2 = controllers == ",,";
    if (!v2 && controllers.find(",cpu,") == std::string::npos) continue;
    for (;;) {
      while (!path.empty() && path.back() == '/') path.pop_back();
      int allowed = 0;
      if (v2) {
        std::ifstream file(root + "/sys/fs/cgroup" + path + "/cpu.max");
        std::string quota;
        long period = 0;
        if (file >> quota >> period) allowed = CpusOfQuota(std::atol(quota.c_str()), period);
      } else {
        std::ifstream quota_file(root + "/sys/fs/cgroup/cpu" + path + "/cpu.cfs_quota_us");
        std::ifstream period_file(root + "/sys/fs/cgroup/cpu" + path + "/cpu.cfs_period_us");
        long quota = 0;
        long period = 0;
        if (quota_file >> quota && period_file >> period) allowed = CpusOfQuota(quota, period);
      }
      if (allowed > 0) most = std::min(most, allowed);
      if (path.empty()) break;
      path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
    }
  }
  cpus.resize(static_cast<std::size_t>(std::max(1, most)));
  return cpus;
}

}  // namespace passel

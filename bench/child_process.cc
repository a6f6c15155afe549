#include "bench/child_process.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/subprocess.h"

namespace passel::bench {
namespace {

constexpr std::chrono::seconds kEndAfterTheSocket{5};
constexpr std::size_t kMostErrorBytes = 300;

// The last words in a file, in one line.
std::string LastWords(int file) {
  struct stat info {};
  if (::fstat(file, &info) != 0 || info.st_size <= 0) return {};
  const auto size = static_cast<std::size_t>(info.st_size);
  std::string text(std::min(size, kMostErrorBytes), '\0');
  const ssize_t got =
      ::pread(file, text.data(), text.size(), static_cast<off_t>(size - text.size()));
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  std::replace(text.begin(), text.end(), '\n', ' ');
  const std::size_t first = text.find_first_not_of(' '), last = text.find_last_not_of(' ');
  return first == std::string::npos ? std::string() : text.substr(first, last - first + 1);
}

// Reaps it; nothing if it still lives at the deadline.
std::optional<ExitState> Reap(pid_t pid, Deadline deadline) {
  for (;;) {
    siginfo_t info{};
    const int got = ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG);
    if (got == 0 && info.si_pid == pid) {
      return ExitState{info.si_code != CLD_EXITED, info.si_status};
    }
    if ((got < 0 && errno != EINTR) || deadline.Expired()) return std::nullopt;
    ::poll(nullptr, 0, 1);
  }
}

}  // namespace

Result<ChildProcess> ChildProcess::Start(std::string name,
                                         const std::function<int(int socket)>& body) {
  ChildProcess child(std::move(name));
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return ErrnoStatus(errno, fmt::format("no socket for {}", child.name_));
  }
  child.socket_.Reset(ends[0]);
  const FileDescriptor theirs(ends[1]);
  child.errors_.Reset(::memfd_create("errors of a child", MFD_CLOEXEC));
  if (!child.errors_.valid()) {
    return ErrnoStatus(errno, fmt::format("no memory file for {}", child.name_));
  }
  std::fflush(nullptr);  // or the child would print it once more
  const pid_t parent = ::getpid();
  child.pid_ = ::fork();
  if (child.pid_ < 0) return ErrnoStatus(errno, fmt::format("no process for {}", child.name_));
  if (child.pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    ::signal(SIGINT, SIG_IGN);
    ::dup2(child.errors_.get(), STDERR_FILENO);
    child.socket_.Reset();
    ::_exit(body(theirs.get()));
  }
  return child;
}

Result<ChildProcess> ChildProcess::StartBeside(const std::string& name,
                                               const std::vector<std::string>& arguments,
                                               const std::vector<std::string>& not_handed_on) {
  std::error_code ignored;
  const std::string path =
      std::filesystem::read_symlink("/proc/self/exe", ignored).replace_filename(name);
  return Start(name, [&](int socket) {
    for (const std::string& variable : not_handed_on) ::unsetenv(variable.c_str());
    ::dup2(socket, STDIN_FILENO);
    ::dup2(socket, STDOUT_FILENO);
    std::vector<char*> argv = {const_cast<char*>(path.c_str())};
    for (const std::string& one : arguments) argv.push_back(const_cast<char*>(one.c_str()));
    argv.push_back(nullptr);
    ::execv(path.c_str(), argv.data());
    const std::string problem = fmt::format("cannot execute {}: {}\n", path, std::strerror(errno));
    [[maybe_unused]] const auto put = ::write(STDERR_FILENO, problem.data(), problem.size());
    return 127;
  });
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : name_(std::move(other.name_)),
      pid_(std::exchange(other.pid_, -1)),
      socket_(std::move(other.socket_)),
      errors_(std::move(other.errors_)) {}

ChildProcess::~ChildProcess() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Status ChildProcess::Send(const void* request, std::size_t bytes) {
  // A child that is gone is an error here, not a SIGPIPE.
  const ssize_t sent = ::send(socket_.get(), request, bytes, MSG_NOSIGNAL);
  if (sent == static_cast<ssize_t>(bytes)) return {};
  if (sent < 0 && errno != EPIPE && errno != ECONNRESET) {
    return ErrnoStatus(errno, fmt::format("asking {}", name_));
  }
  return Gone();
}

Status ChildProcess::Receive(void* answer, std::size_t bytes, Deadline deadline) {
  for (;;) {
    pollfd ready{socket_.get(), POLLIN, 0};
    const int found = ::poll(&ready, 1, deadline.PollTimeoutMs());
    if (found < 0 && errno != EINTR)
      return ErrnoStatus(errno, fmt::format("waiting for {}", name_));
    if (found > 0) break;
    if (deadline.Expired()) return DeadlineExceeded(fmt::format("{} has not answered", name_));
  }
  const ssize_t got = ::recv(socket_.get(), answer, bytes, MSG_TRUNC);
  if (got == static_cast<ssize_t>(bytes)) return {};
  if (got > 0) {
    return Unavailable(
        fmt::format("{} has answered with {} bytes instead of {}", name_, got, bytes));
  }
  return Gone();
}

Status ChildProcess::Gone() {
  socket_.Reset();
  const pid_t pid = std::exchange(pid_, -1);
  std::optional<ExitState> end;
  if (pid > 0) {
    end = Reap(pid, Deadline::After(kEndAfterTheSocket));
    if (!end) pid_ = pid;  // it closed the socket and lives on: the destructor's
  }
  const std::string how = end ? end->ToString() : "does not answer any more";
  const std::string words = LastWords(errors_.get());
  return Unavailable(words.empty() ? fmt::format("{} {} and wrote no error", name_, how)
                                   : fmt::format("{} {}: {}", name_, how, words));
}

}  // namespace passel::bench

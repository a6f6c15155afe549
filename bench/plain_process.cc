#include "bench/plain_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "base/deadline.h"
#include "job/blas_variables.h"

namespace passel::bench {

Result<PlainProcess> PlainProcess::Start(const std::string& data_dir) {
  std::error_code ignored;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", ignored)
                                  .replace_filename("passel_plain_training");
  int to[2], from[2];
  if (::pipe2(to, O_CLOEXEC) != 0) return ErrnoStatus(errno, "no pipe");
  PlainProcess started;
  started.to_.Reset(to[1]);
  const FileDescriptor their_in(to[0]);
  if (::pipe2(from, O_CLOEXEC) != 0) return ErrnoStatus(errno, "no pipe");
  started.from_.Reset(from[0]);
  const FileDescriptor their_out(from[1]);
  const pid_t parent = ::getpid();
  started.child_ = ::fork();
  if (started.child_ < 0) return ErrnoStatus(errno, "no process for the plain loops");
  if (started.child_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    ::unsetenv(job::kBlasCore);
    ::unsetenv(job::kBlasCoreIsOurs);
    ::dup2(their_in.get(), STDIN_FILENO);
    ::dup2(their_out.get(), STDOUT_FILENO);
    ::execl(program.c_str(), program.c_str(), data_dir.c_str(), nullptr);
    ::_exit(127);
  }
  return started;
}

PlainProcess::PlainProcess(PlainProcess&& other) noexcept
    : child_(std::exchange(other.child_, -1)),
      to_(std::move(other.to_)),
      from_(std::move(other.from_)) {}

PlainProcess::~PlainProcess() {
  if (child_ <= 0) return;
  ::kill(child_, SIGKILL);
  while (::waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Result<std::vector<double>> PlainProcess::Steps(int count) {
  const Deadline deadline = Deadline::After(std::chrono::seconds(60));
  const auto wanted = static_cast<unsigned char>(count);
  if (::write(to_.get(), &wanted, 1) != 1)
    return ErrnoStatus(errno, "asking passel_plain_training");
  std::vector<double> us(wanted);
  auto* at = reinterpret_cast<char*>(us.data());
  std::size_t missing = us.size() * sizeof(double);
  while (missing > 0) {
    pollfd ready{from_.get(), POLLIN, 0};
    const int found = ::poll(&ready, 1, 1000);
    if (found < 0 && errno != EINTR) return ErrnoStatus(errno, "waiting for the plain loops");
    if (found <= 0) {
      if (deadline.Expired()) return DeadlineExceeded("passel_plain_training made no step in 60 s");
      continue;
    }
    const ssize_t got = ::read(from_.get(), at, missing);
    if (got <= 0) return Unavailable("passel_plain_training has ended: build it with passel_bench");
    at += got;
    missing -= static_cast<std::size_t>(got);
  }
  return us;
}

}  // namespace passel::bench

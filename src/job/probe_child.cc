#include "job/probe_child.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

#include "base/file_descriptor.h"
#include "base/subprocess.h"
#include "cluster/text.h"
#include "cluster/topology_json.h"

namespace passel::job {
namespace {

Status TooLate() {
  return DeadlineExceeded(
      "the NVIDIA driver has not told in time which GPUs there are: see what nvidia-smi says, or "
      "use "
      "--device cpu");
}

// All that comes before the end of the pipe.
Result<std::string> ReadAll(int fd, Deadline deadline) {
  std::string text;
  std::array<char, 65536> buffer;
  for (;;) {
    pollfd entry{fd, POLLIN, 0};
    const int ready = ::poll(&entry, 1, deadline.PollTimeoutMs());
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return TooLate();
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "cannot read the topology of this machine");
    if (got == 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(got));
    if (text.size() > kMaxTopologyBytes) {
      return Internal(
          fmt::format("the topology of this machine has more than {} bytes", kMaxTopologyBytes));
    }
  }
}

}  // namespace

Result<Topology> ProbeInChild(Deadline deadline) {
  int pipe_fds[2];
  if (::pipe2(pipe_fds, O_CLOEXEC) != 0) return ErrnoStatus(errno, "cannot create a pipe");
  const FileDescriptor output(pipe_fds[0]);
  FileDescriptor input(pipe_fds[1]);
  SpawnOptions spawn;
  spawn.arguments = {"topology", "--json", fmt::format("--output_fd={}", input.get())};
  spawn.inherited_fds = {input.get()};
  spawn.environment = {"OPENBLAS_NUM_THREADS=1"};
  PASSEL_ASSIGN_OR_RETURN(Subprocess child, Subprocess::Spawn(spawn));
  input.Reset();
  PASSEL_ASSIGN_OR_RETURN(const std::string text, ReadAll(output.get(), deadline));
  const Result<ExitState> exit = child.Reap(deadline);
  if (!exit.ok()) return TooLate();
  // Its sentence came instead of a topology.
  if (exit->signalled || (exit->code != 0 && text.empty())) {
    return Internal(fmt::format(
        "reading this machine's topology failed, since  passel topology  {}: see what it says",
        exit->ToString()));
  }
  if (exit->code != 0) return Unavailable(Printable(text, 1000));
  return ParseTopology("this machine", text);
}

}  // namespace passel::job

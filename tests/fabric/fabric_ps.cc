// A ps of the tests: fabric_ps PLAN SHARD GRACE_MS CONTROL_FD ARENA_FD PROVIDER. Without an arena
// (-1) it makes one; says that it is there by sending the arena's descriptor; serves the sockets
// that it is sent until the control socket is closed: over them, or over the provider if one is
// named.

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/unix_socket.h"
#include "fabric/linked_pipe.h"
#include "fabric/server.h"
#include "shm/arena.h"

namespace passel::testing {
namespace {

Result<shm::Arena> OpenArena(const StorePlan& plan, int shard, int fd) {
  if (fd >= 0) return shm::Arena::Adopt(FileDescriptor(fd));
  shm::ArenaOptions options;
  options.job_id = "fabric";
  PASSEL_ASSIGN_OR_RETURN(
      shm::Arena arena,
      shm::Arena::Create(plan, shard, options, MemoryBudget{std::uint64_t{1} << 32, "the test"}));
  arena.Publish();
  return arena;
}

Status ServeAll(char** arguments) {
  PASSEL_ASSIGN_OR_RETURN(const StorePlan plan, PlanFromJson(arguments[1]));
  const int shard = std::atoi(arguments[2]);
  fabric::ServerOptions options;
  options.grace = std::chrono::milliseconds(std::atoi(arguments[3]));
  const FileDescriptor control(std::atoi(arguments[4]));
  PASSEL_ASSIGN_OR_RETURN(const shm::Arena arena, OpenArena(plan, shard, std::atoi(arguments[5])));
  fabric::Server server({plan, shard, arena.memory(), options});
  const std::uint8_t word = 0;
  const int fd = arena.fd();
  PASSEL_RETURN_IF_ERROR(
      SendMessage(control.get(), {&word, 1}, {&fd, 1}, Deadline::After(std::chrono::seconds(10))));
  for (;;) {
    Result<Message> message = ReceiveMessage(control.get(), Deadline::After(std::chrono::hours(1)));
    if (message.status().code() == Code::kUnavailable) return {};  // the test has ended
    if (!message.ok()) return message.status();
    for (FileDescriptor& socket : message->fds) {
      Result<std::unique_ptr<fabric::Pipe>> pipe = AnswerPipe(std::move(socket), arguments[6]);
      if (pipe.ok()) {
        server.Serve(std::move(*pipe));
      } else {
        std::fprintf(stderr, "fabric_ps: %s\n", pipe.status().ToString().c_str());
      }
    }
  }
}

}  // namespace
}  // namespace passel::testing

int main(int argc, char** argv) {
  if (argc != 7) return 2;
  passel::fabric::SetProviderDefaults();
  const passel::Status status = passel::testing::ServeAll(argv);
  if (status.ok()) return 0;
  std::fprintf(stderr, "fabric_ps: %s\n", status.ToString().c_str());
  return 1;
}

// A ps of the tests: fabric_ps PLAN SHARD GRACE_MS CONTROL_FD ARENA_FD [tcp ADDRESS TOKEN_FILE
// HOST]. Without an arena (-1) it
// makes one; says that it is there by sending the arena's descriptor; serves the sockets that it is
// sent until the control socket is closed.
//
// libfabric_ps is the same with PROVIDER behind HOST, for the messages. It is apart since libfabric
// takes its time to be loaded.

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/unix_socket.h"
#if defined(PASSEL_TEST_LIBFABRIC)
#include "fabric/libfabric/fabric_network.h"
#include "fabric/provider_defaults.h"
#endif
#include "fabric/server.h"
#include "fabric/socket_pipe.h"
#include "fabric/tcp_service.h"
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

Status ServeAll(int count, char** arguments) {
  PASSEL_ASSIGN_OR_RETURN(const StorePlan plan, PlanFromJson(arguments[1]));
  const int shard = std::atoi(arguments[2]);
  fabric::ServerOptions options;
  options.grace = std::chrono::milliseconds(std::atoi(arguments[3]));
  const FileDescriptor control(std::atoi(arguments[4]));
  PASSEL_ASSIGN_OR_RETURN(const shm::Arena arena, OpenArena(plan, shard, std::atoi(arguments[5])));
  fabric::Server server({plan, shard, arena.memory(), options});
  TcpService tcp;
  std::vector<std::uint8_t> told = {0};
  if (count >= 10) {
    std::shared_ptr<fabric::BulkNetwork> bulk;
#if defined(PASSEL_TEST_LIBFABRIC)
    fabric::BulkOptions by;
    by.provider = arguments[10];
    PASSEL_ASSIGN_OR_RETURN(bulk, fabric::FabricNetwork::Open(by));
#endif
    PASSEL_RETURN_IF_ERROR(
        tcp.Start(server, shard, arguments[7], arguments[8], arguments[9], bulk));
    told = tcp.Told();
  }
  const int fd = arena.fd();
  PASSEL_RETURN_IF_ERROR(
      SendMessage(control.get(), told, {&fd, 1}, Deadline::After(std::chrono::seconds(10))));
  for (;;) {
    Result<Message> message = ReceiveMessage(control.get(), Deadline::After(std::chrono::hours(1)));
    if (message.status().code() == Code::kUnavailable) return {};  // the test has ended
    if (!message.ok()) return message.status();
    for (FileDescriptor& socket : message->fds) {
      server.Serve(std::make_unique<SocketPipe>(std::move(socket)));
    }
  }
}

}  // namespace
}  // namespace passel::testing

int main(int argc, char** argv) {
#if defined(PASSEL_TEST_LIBFABRIC)
  if (argc != 11) return 2;
#else
  if (argc != 6 && argc != 10) return 2;
#endif
  const passel::Status status = passel::testing::ServeAll(argc, argv);
  if (status.ok()) return 0;
  std::fprintf(stderr, "fabric_ps: %s\n", status.ToString().c_str());
  return 1;
}

// carrier.h - what brings messages to the ps of the tests: sockets of this host, or TCP between
// two.
//
// PASSEL_TEST_CARRIER=tcp in the environment chooses TCP for all that does not say what it wants.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "base/tcp_socket.h"
#include "fabric/bulk_network.h"
#include "fabric/pipe.h"

namespace passel::testing {

struct Carrier {
  /// For fabric_ps, behind its others.
  std::vector<std::string> arguments;
  /// A pipe of that worker to the ps of that shard, which said `told` when it was there.
  std::function<Result<std::unique_ptr<fabric::Pipe>>(
      int shard, int worker, const std::vector<std::uint8_t>& told, Deadline deadline)>
      connect;
  /// Instead: a pipe whose ends meet over that socket.
  std::function<Result<std::unique_ptr<fabric::Pipe>>(FileDescriptor socket)> meet;
};

/// None: a pair of Unix sockets for each pipe.
std::shared_ptr<const Carrier> CarrierOfTests();
/// Where to connect to, for a ps that listens there: what stands between.
using TcpRoute = std::function<TcpAddress(const TcpAddress& ps)>;
/// The ps on the other of two hosts, or at least at the other end of TCP. With `bulk` messages go
/// by that network; fabric_ps must know one of the same name.
std::shared_ptr<const Carrier> MakeTcpCarrier(
    bool ipv6 = false, const TcpRoute& route = {},
    const std::shared_ptr<fabric::BulkNetwork>& bulk = nullptr);

}  // namespace passel::testing

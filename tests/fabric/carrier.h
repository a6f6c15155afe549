// carrier.h - what brings messages to the ps of the tests: sockets of this host, or TCP between
// two.
//
// PASSEL_TEST_CARRIER=tcp in the environment chooses TCP for all that does not say what it wants.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

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
};

/// None: a pair of Unix sockets for each pipe.
std::shared_ptr<const Carrier> CarrierOfTests();
struct TcpWay {
  bool one_host = false;  ///< the ps on the other of two hosts, where these can be made
  bool ipv6 = false;
  /// Where to connect to, for a ps that listens there: what stands between.
  std::function<TcpAddress(const TcpAddress& ps)> route = {};
  /// What messages go by; fabric_ps must know its provider. Null: their own connection.
  std::shared_ptr<fabric::BulkNetwork> bulk = {};
};
std::shared_ptr<const Carrier> MakeTcpCarrier(const TcpWay& way = {});

}  // namespace passel::testing

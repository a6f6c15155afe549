#include "fabric/libfabric/fabric_network.h"

#include <fmt/core.h>
#include <unistd.h>

#include <climits>
#include <fstream>
#include <utility>

#include "fabric/libfabric/fabric_pipe.h"

namespace passel::fabric {
namespace {

// Processes that can reach each other by memory: those of one kernel and one table of processes.
std::string ThisMemory() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  char table[PATH_MAX] = "";
  (void)::readlink("/proc/self/ns/pid", table, sizeof table - 1);
  return fmt::format("{} {}", boot.substr(0, 13), table);
}

}  // namespace

Result<std::unique_ptr<FabricNetwork>> FabricNetwork::Open(const BulkOptions& options) {
  NetworkOptions own;
  own.provider = options.provider;
  own.interface = options.interface;
  own.port = options.port;
  own.ports = options.ports;
  PASSEL_ASSIGN_OR_RETURN(std::string name, CheckProvider(options.provider));
  if (name == "shm") {
    if (!own.interface.empty() || own.port != 0) {
      return InvalidArgument(
          "shm has neither interfaces nor ports: omit --fabric_iface and "
          "--fabric_port");
    }
    name += " of " + ThisMemory();
  }
  // Says now what is wrong with the interface.
  if (!own.interface.empty()) PASSEL_RETURN_IF_ERROR(Network::Open(own).status());
  FabricPipeOptions pipe_options;
  if (options.spin) {
    pipe_options.spin = *options.spin;
    pipe_options.gives_way = false;
  }
  pipe_options.stall_limit = options.stall_limit;
  return std::unique_ptr<FabricNetwork>(
      new FabricNetwork(std::move(own), pipe_options, std::move(name)));
}

Result<std::unique_ptr<BulkPipe>> FabricNetwork::OpenPipe(const std::string& local) {
  std::shared_ptr<Network> network;
  {
    const std::lock_guard lock(mutex_);
    // Of an interface that was named there is one.
    std::shared_ptr<Network>& known = networks_[options_.interface.empty() ? local : ""];
    if (known == nullptr) {
      NetworkOptions own = options_;
      if (own.interface.empty()) own.address = local;
      PASSEL_ASSIGN_OR_RETURN(known, Network::Open(own));
    }
    network = known;
  }
  PASSEL_ASSIGN_OR_RETURN(std::unique_ptr<FabricPipe> pipe,
                          FabricPipe::Open(network, pipe_options_));
  return std::unique_ptr<BulkPipe>(std::move(pipe));
}

}  // namespace passel::fabric

// fabric_network.h - libfabric as a network of pipes: one provider, on each address of this host
// that somebody reaches it by.

#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "fabric/bulk_network.h"
#include "fabric/libfabric/endpoint.h"
#include "fabric/libfabric/fabric_pipe.h"
#include "fabric/libfabric/network.h"

namespace passel::fabric {

class FabricNetwork final : public BulkNetwork {
 public:
  /// Errors: kNotFound for a provider or an interface that is not here, naming those that are;
  /// kInvalidArgument.
  static Result<std::unique_ptr<FabricNetwork>> Open(const BulkOptions& options);

  const std::string& name() const override { return name_; }
  Result<std::unique_ptr<BulkPipe>> OpenPipe(const std::string& local) override;
  std::size_t left_open() const override { return Endpoint::GivenUp(); }

 private:
  FabricNetwork(NetworkOptions options, const FabricPipeOptions& pipe_options, std::string name)
      : options_(std::move(options)), pipe_options_(pipe_options), name_(std::move(name)) {}

  const NetworkOptions options_;
  const FabricPipeOptions pipe_options_;
  const std::string name_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Network>> networks_;  // by address
};

}  // namespace passel::fabric

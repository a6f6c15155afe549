#include "fabric/carrier.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>

#include "fabric/control/control_connection.h"
#include "fabric/wire.h"
#include "support/temp_dir.h"
#include "support/two_hosts.h"

namespace passel::testing {
namespace {

class TcpConnectors {
 public:
  TcpConnectors(bool ipv6, TcpRoute route, std::shared_ptr<fabric::BulkNetwork> bulk)
      : two_(TwoHosts::Get()), ipv6_(ipv6), route_(std::move(route)), bulk_(std::move(bulk)) {
    Result<JobToken> token = JobToken::ReadOrCreate(token_path_);
    PASSEL_CHECK(token.ok(), token.status().message().c_str());
    token_ = *token;
  }

  std::vector<std::string> Arguments() const {
    std::vector<std::string> arguments = {"tcp", Host(), token_path_,
                                          two_ != nullptr ? two_->other_host() : ""};
    if (bulk_ != nullptr) arguments.push_back(bulk_->name());
    return arguments;
  }

  Result<std::unique_ptr<fabric::Pipe>> Connect(int shard, int worker,
                                                const std::vector<std::uint8_t>& told,
                                                Deadline deadline) {
    std::uint16_t port = 0;
    PASSEL_CHECK(told.size() == sizeof port, "the ps says its port");
    std::memcpy(&port, told.data(), sizeof port);
    fabric::Connector connector;
    {
      const std::lock_guard lock(mutex_);
      fabric::Connector& made = connectors_[{shard, worker, port}];
      if (!made) {
        fabric::ControlOptions options;
        options.address = {Host(), port};
        if (route_) {
          options.address.host = "through what stands between";
          options.resolver = [this](const HostPort& there) -> Result<std::vector<TcpAddress>> {
            PASSEL_ASSIGN_OR_RETURN(const TcpAddress ps,
                                    TcpAddress::FromNumbers(Host(), there.port));
            return std::vector<TcpAddress>{route_(ps)};
          };
        }
        options.peer_index = shard;
        options.key.token = token_;
        options.me.job_id = "fabric";
        options.me.index = worker;
        options.me.wire = fabric::kProtocolVersion;
        options.bulk = bulk_;
        if (bulk_ != nullptr) options.me.provider = bulk_->name();
        made = fabric::MakeTcpConnector(options);
      }
      connector = made;
    }
    return connector(deadline);
  }

 private:
  std::string Host() const {
    if (two_ == nullptr) return ipv6_ ? "::1" : "127.0.0.1";
    return ipv6_ ? TwoHosts::kThere6 : TwoHosts::kThere;
  }

  TwoHosts* const two_;
  const bool ipv6_;
  const TcpRoute route_;
  const std::shared_ptr<fabric::BulkNetwork> bulk_;
  test::TempDir dir_;
  const std::string token_path_ = dir_.path() + "/token";
  JobToken token_;
  std::mutex mutex_;
  std::map<std::tuple<int, int, std::uint16_t>, fabric::Connector> connectors_;
};

}  // namespace

std::shared_ptr<const Carrier> MakeTcpCarrier(bool ipv6, const TcpRoute& route,
                                              const std::shared_ptr<fabric::BulkNetwork>& bulk) {
  const auto connectors = std::make_shared<TcpConnectors>(ipv6, route, bulk);
  const auto carrier = std::make_shared<Carrier>();
  carrier->arguments = connectors->Arguments();
  carrier->connect = [connectors](int shard, int worker, const std::vector<std::uint8_t>& told,
                                  Deadline deadline) {
    return connectors->Connect(shard, worker, told, deadline);
  };
  return carrier;
}

std::shared_ptr<const Carrier> CarrierOfTests() {
  const char* const name = std::getenv("PASSEL_TEST_CARRIER");
  if (name == nullptr || std::string(name) != "tcp") return nullptr;
  return MakeTcpCarrier();
}

}  // namespace passel::testing

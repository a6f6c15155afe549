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
  explicit TcpConnectors(const TcpWay& way)
      : two_(way.one_host ? nullptr : TwoHosts::Get()), way_(way) {
    Result<JobToken> token = JobToken::ReadOrCreate(token_path_);
    PASSEL_CHECK(token.ok(), token.status().message().c_str());
    token_ = *token;
  }

  std::vector<std::string> Arguments() const {
    std::vector<std::string> arguments = {"tcp", Host(), token_path_,
                                          two_ != nullptr ? two_->other_host() : ""};
    if (way_.bulk != nullptr) {  // its provider, without what shm says of the memory
      arguments.push_back(way_.bulk->name().substr(0, way_.bulk->name().find(' ')));
    }
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
        if (way_.route) {
          options.address.host = "through what stands between";
          options.resolver = [this](const HostPort& there) -> Result<std::vector<TcpAddress>> {
            PASSEL_ASSIGN_OR_RETURN(const TcpAddress ps,
                                    TcpAddress::FromNumbers(Host(), there.port));
            return std::vector<TcpAddress>{way_.route(ps)};
          };
        }
        options.peer_index = shard;
        options.key.token = token_;
        options.me.job_id = "fabric";
        options.me.index = worker;
        options.me.wire = fabric::kProtocolVersion;
        options.bulk = way_.bulk;
        if (way_.bulk != nullptr) options.me.provider = way_.bulk->name();
        made = fabric::MakeTcpConnector(options);
      }
      connector = made;
    }
    return connector(deadline);
  }

 private:
  std::string Host() const {
    if (two_ == nullptr) return way_.ipv6 ? "::1" : "127.0.0.1";
    return way_.ipv6 ? TwoHosts::kThere6 : TwoHosts::kThere;
  }

  TwoHosts* const two_;
  const TcpWay way_;
  test::TempDir dir_;
  const std::string token_path_ = dir_.path() + "/token";
  JobToken token_;
  std::mutex mutex_;
  std::map<std::tuple<int, int, std::uint16_t>, fabric::Connector> connectors_;
};

}  // namespace

std::shared_ptr<const Carrier> MakeTcpCarrier(const TcpWay& way) {
  const auto connectors = std::make_shared<TcpConnectors>(way);
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

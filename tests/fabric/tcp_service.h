// tcp_service.h - a server of the tests behind a door of its own, perhaps on another host.

#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "fabric/control/control_server.h"
#include "fabric/server.h"
#include "support/enter_host.h"

namespace passel::testing {

class TcpService final : public fabric::ControlHandler {
 public:
  /// `host`: as for EnterHost(), "" is this one. `bulk`: what messages go by, null: their own
  /// connection.
  Status Start(fabric::Server& server, int shard, const std::string& address,
               const std::string& token_path, const std::string& host,
               const std::shared_ptr<fabric::BulkNetwork>& bulk = nullptr) {
    server_ = &server;
    if (!host.empty() && !EnterHost(host)) return Internal("cannot enter the other host");
    fabric::ControlServerOptions options;
    PASSEL_ASSIGN_OR_RETURN(const TcpAddress listen, TcpAddress::FromNumbers(address, 0));
    options.listen = {listen};
    PASSEL_ASSIGN_OR_RETURN(options.key.token, JobToken::Read(token_path));
    options.me.job_id = "fabric";
    options.me.role = Role::kPs;
    options.me.index = shard;
    options.me.wire = fabric::kProtocolVersion;
    options.bulk = bulk;
    if (bulk != nullptr) options.me.provider = bulk->name();
    PASSEL_ASSIGN_OR_RETURN(door_, fabric::ControlServer::Start(options, *this));
    return {};
  }
  /// What Carrier::connect() is told.
  std::vector<std::uint8_t> Told() const {
    const std::uint16_t port = door_->addresses()[0].port();
    std::vector<std::uint8_t> told(sizeof port);
    std::memcpy(told.data(), &port, sizeof port);
    return told;
  }

 private:
  // As the door of a job does.
  Status Admit(std::uint64_t life, const fabric::TaskFacts& peer, fabric::TaskFacts*) override {
    worker_of_[life] = peer.index;
    server_->ConnectionBack(peer.index);
    return {};
  }
  void Serve(std::uint64_t, const fabric::TaskFacts&, std::unique_ptr<fabric::Pipe> pipe) override {
    server_->Serve(std::move(pipe));
  }
  void Gone(std::uint64_t life, const fabric::TaskFacts& peer, const Status& why) override {
    worker_of_.erase(life);
    for (const auto& [other, worker] : worker_of_) {
      if (worker == peer.index) return;
    }
    if (why.code() == Code::kCancelled) {
      server_->Left(peer.index);
    } else if (why.code() != Code::kDeadlineExceeded) {
      server_->ConnectionEnded(peer.index);
    }
  }

  std::map<std::uint64_t, int> worker_of_;  // by life; of the door's thread
  fabric::Server* server_ = nullptr;
  std::unique_ptr<fabric::ControlServer> door_;
};

}  // namespace passel::testing

// Stores over connections that are cut, reset, swallowed and slowed at random instants: what was
// acknowledged is there once, and training goes on. Built twice: with PASSEL_TEST_LIBFABRIC
// messages go by libfabric, whose own connections suffer the same as those that its ends meet over.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>

#include "base/random.h"
#if defined(PASSEL_TEST_LIBFABRIC)
#include "fabric/libfabric/fabric_pipe.h"
#include "fabric/pipe_over.h"
#include "fabric/provider_defaults.h"
#include "support/two_hosts.h"
#endif
#include "fabric/counting_workers.h"
#include "support/sanitized.h"
#include "support/tcp_fault_proxy.h"
#include "support/test_seed.h"

namespace passel::testing {
namespace {

using std::chrono::milliseconds;

// A proxy before each ps, made when it is first connected to, and those that others have made.
class BadNetwork {
 public:
  TcpAddress Before(const TcpAddress& ps) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<TcpFaultProxy>& proxy = of_ps_[ps.ToString()];
    if (proxy == nullptr) Add(proxy = std::make_shared<TcpFaultProxy>(ps));
    return proxy->address();
  }
  std::shared_ptr<TcpFaultProxy> Between(const TcpAddress& target) {
    auto proxy = std::make_shared<TcpFaultProxy>(target);
    const std::lock_guard lock(mutex_);
    Add(proxy);
    return proxy;
  }
  /// Connections through those of Between() that are gone.
  std::atomic<int> passed{0};

  void Set(const TcpFaults& to_server, const TcpFaults& to_client) {
    for (const auto& proxy : All()) proxy->Set(to_server, to_client);
  }
  void CutAll(bool reset) {
    for (const auto& proxy : All()) proxy->CutAll(reset);
  }

 private:
  void Add(const std::shared_ptr<TcpFaultProxy>& proxy) {
    std::erase_if(all_, [](const auto& one) { return one.expired(); });
    all_.push_back(proxy);
  }
  std::vector<std::shared_ptr<TcpFaultProxy>> All() {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<TcpFaultProxy>> all;
    for (const auto& one : all_) {
      if (auto proxy = one.lock()) all.push_back(std::move(proxy));
    }
    return all;
  }

  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<TcpFaultProxy>> of_ps_;
  std::vector<std::weak_ptr<TcpFaultProxy>> all_;
};

#if defined(PASSEL_TEST_LIBFABRIC)

constexpr const char* kProvider = "tcp;ofi_rxm";

// A pipe over libfabric that reaches the other end through a proxy.
class PipeThrough final : public fabric::PipeOver<fabric::BulkPipe, fabric::FabricPipe> {
 public:
  PipeThrough(std::unique_ptr<fabric::FabricPipe> pipe, std::shared_ptr<BadNetwork> network)
      : PipeOver(std::move(pipe)), network_(std::move(network)) {}
  ~PipeThrough() override {
    pipe_.reset();
    if (proxy_ != nullptr) network_->passed += proxy_->connections();
  }

  const std::vector<std::uint8_t>& local_address() const override { return pipe_->local_address(); }
  Status Join(std::span<const std::uint8_t> peer, const fabric::PipeTags& tags) override {
    proxy_ = network_->Between(
        TcpAddress(reinterpret_cast<const sockaddr*>(peer.data()), sizeof(sockaddr_in)));
    std::vector<std::uint8_t> through(peer.begin(), peer.end());
    std::memcpy(through.data(), proxy_->address().data(), sizeof(sockaddr_in));
    return pipe_->Join(through, tags);
  }
  void Close(const Status& why) override { pipe_->Close(why); }

 private:
  const std::shared_ptr<BadNetwork> network_;
  std::shared_ptr<TcpFaultProxy> proxy_;
};

class BadFabric final : public fabric::BulkNetwork {
 public:
  explicit BadFabric(std::shared_ptr<BadNetwork> network) : network_(std::move(network)) {}
  const std::string& name() const override { return name_; }
  // What it is connected from is the proxy's side of this host.
  Result<std::unique_ptr<fabric::BulkPipe>> OpenPipe(const std::string& local) override {
    fabric::NetworkOptions here;
    here.provider = kProvider;
    here.address = TwoHosts::Get() != nullptr ? TwoHosts::kHere : local;
    fabric::FabricPipeOptions options;
    options.stall_limit = std::chrono::seconds(1);
    PASSEL_ASSIGN_OR_RETURN(const auto on, fabric::Network::Open(here));
    PASSEL_ASSIGN_OR_RETURN(auto pipe, fabric::FabricPipe::Open(on, options));
    return std::unique_ptr<fabric::BulkPipe>(
        std::make_unique<PipeThrough>(std::move(pipe), network_));
  }
  std::size_t left_open() const override { return 0; }

 private:
  const std::string name_ = kProvider;
  const std::shared_ptr<BadNetwork> network_;
};

std::shared_ptr<fabric::BulkNetwork> MessagesBy(const std::shared_ptr<BadNetwork>& network) {
  return std::make_shared<BadFabric>(network);
}

#else

std::shared_ptr<fabric::BulkNetwork> MessagesBy(const std::shared_ptr<BadNetwork>&) { return {}; }

#endif

// One fault, over once this returns.
void Break(BadNetwork& network, int kind, Random& random) {
  const bool reset = random.Below(2) == 0;
  TcpFaults hole, slow;
  hole.hole = true;
  slow.bytes_per_second = 1;
  switch (kind) {
    case 0:  // RST or FIN
      return network.CutAll(reset);
    case 1:  // a black hole
      network.Set(hole, hole);
      break;
    case 2:  // in one direction
      if (reset) {
        network.Set(hole, {});
      } else {
        network.Set({}, hole);
      }
      break;
    case 3:  // connections end, and no other is made for a while
      network.Set(hole, hole);
      network.CutAll(reset);
      break;
    default:
      network.Set(slow, slow);
      break;
  }
  std::this_thread::sleep_for(milliseconds(50 + random.Below(1950)));
  // What a hole has swallowed is missing in the stream: no connection goes on behind it.
  network.CutAll(random.Below(2) == 0);
  network.Set({}, {});
}
constexpr int kKinds = 5;

class TcpFaultsTest : public ::testing::TestWithParam<Mode> {};

TEST_P(TcpFaultsTest, NothingIsLostAndNothingIsAppliedTwice) {
  const int cuts = ManyTurns() ? 200 : 3;
  const std::uint64_t seed = TestSeed();
  const auto network = std::make_shared<BadNetwork>();
  const auto carrier =
      MakeTcpCarrier({.route = [network](const TcpAddress& ps) { return network->Before(ps); },
                      .bulk = MessagesBy(network)});
  RemoteHost host(CountingPlan(GetParam()), {}, seed, "", std::chrono::seconds(5), carrier);
  ExpectEachPushOnce(host, GetParam(), [&](const auto& await_pushes) {
    Random random(seed);
    int i = 0;
    for (; i < cuts && !HasFailure(); ++i) {
      // Few of them: one that is over at once, and others.
      const auto kind = static_cast<int>(ManyTurns() ? random.Below(kKinds)
                                         : i == 0    ? 0
                                                     : 1 + random.Below(kKinds - 1));
      await_pushes();
      std::this_thread::sleep_for(milliseconds(random.Below(60)));
      Break(*network, kind, random);
    }
    EXPECT_EQ(i, cuts);
  });
#if defined(PASSEL_TEST_LIBFABRIC)
  EXPECT_GT(network->passed, cuts / 4) << "what libfabric sends goes another way";
#endif
}

std::string Name(const ::testing::TestParamInfo<Mode>& of) {
  return std::string(ModeName(of.param));
}
#if defined(PASSEL_TEST_LIBFABRIC)
INSTANTIATE_TEST_SUITE_P(OverLibfabric, TcpFaultsTest,
                         ::testing::Values(Mode::kLocked, Mode::kBarrier, Mode::kReplicas), Name);
#else
INSTANTIATE_TEST_SUITE_P(All, TcpFaultsTest,
                         ::testing::Values(Mode::kLocked, Mode::kBarrier, Mode::kReplicas), Name);
#endif

}  // namespace
}  // namespace passel::testing

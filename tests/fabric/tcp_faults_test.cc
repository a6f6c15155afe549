// Stores over TCP connections that are cut, reset, swallowed and slowed at random instants: what
// was acknowledged is there once, and training goes on.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdlib>
#include <map>
#include <thread>

#include "base/random.h"
#include "fabric/remote_ps.h"
#include "fabric/remote_stores.h"
#include "support/sanitized.h"
#include "support/tcp_fault_proxy.h"

namespace passel::testing {
namespace {

using std::chrono::milliseconds;

// A proxy before each ps, made when it is first connected to.
class BadNetwork {
 public:
  TcpAddress Before(const TcpAddress& ps) {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<TcpFaultProxy>& proxy = proxies_[ps.ToString()];
    if (proxy == nullptr) proxy = std::make_unique<TcpFaultProxy>(ps);
    return proxy->address();
  }
  void Set(const TcpFaults& to_server, const TcpFaults& to_client) {
    const std::lock_guard lock(mutex_);
    for (const auto& [address, proxy] : proxies_) proxy->Set(to_server, to_client);
  }
  void CutAll(bool reset) {
    const std::lock_guard lock(mutex_);
    for (const auto& [address, proxy] : proxies_) proxy->CutAll(reset);
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<TcpFaultProxy>> proxies_;
};

// One fault, over once this returns.
void Break(BadNetwork& network, Random& random) {
  TcpFaults hole, slow;
  hole.hole = true;
  slow.bytes_per_second = 1;
  const milliseconds time(50 + random.Below(150));
  switch (random.Below(5)) {
    case 0:  // FIN
      return network.CutAll(false);
    case 1:
      return network.CutAll(true);
    case 2:  // a black hole
      network.Set(hole, hole);
      break;
    case 3:  // in one direction
      if (random.Below(2) == 0) {
        network.Set(hole, {});
      } else {
        network.Set({}, hole);
      }
      break;
    default:
      network.Set(slow, slow);
      break;
  }
  std::this_thread::sleep_for(time);
  // What a hole has swallowed is missing in the stream: no connection goes on behind it.
  network.CutAll(random.Below(2) == 0);
  network.Set({}, {});
}

class TcpFaultsTest : public ::testing::TestWithParam<Mode> {};

TEST_P(TcpFaultsTest, NothingIsLostAndNothingIsAppliedTwice) {
  constexpr int kWorkers = 2;
  const int cuts = ManyTurns() ? 200 : Turns(12, 4);
  const char* const given = std::getenv("PASSEL_TEST_SEED");
  const std::uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10)
                                              : static_cast<std::uint64_t>(MonotonicNs());
  SCOPED_TRACE("PASSEL_TEST_SEED=" + std::to_string(seed));
  const auto network = std::make_shared<BadNetwork>();
  const auto carrier =
      MakeTcpCarrier(false, [network](const TcpAddress& ps) { return network->Before(ps); });
  StorePlan plan = TestPlan(GetParam(), 1, kWorkers, Sgd(1.0));
  if (GetParam() == Mode::kReplicas) plan.mode.number = 1;  // nobody waits for the other
  RemoteHost host(plan, {}, seed, "", std::chrono::seconds(60), carrier);
  std::vector<std::unique_ptr<ParameterStore>> stores;
  for (int k = 0; k < kWorkers; ++k) stores.push_back(OpenOn(host, k));
  InitializeTo(*stores[0], 0);
  ASSERT_TRUE(stores[1]->WaitUntilInitialized(Deadline::After(kLong)).ok());
  // Workers of a round go the same number of steps.
  std::atomic<int> limit{INT_MAX};
  std::atomic<int> most{0};
  int pushed[kWorkers] = {}, applied[kWorkers] = {};
  std::vector<std::thread> workers;
  for (int k = 0; k < kWorkers; ++k) {
    workers.emplace_back([&, k] {
      for (; pushed[k] < limit; ++pushed[k]) {
        int seen = most;
        while (seen < pushed[k] + 1 && !most.compare_exchange_weak(seen, pushed[k] + 1)) {
        }
        const auto outcome = PushConstant(*stores[static_cast<std::size_t>(k)], -1);
        ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
        applied[k] += outcome->applied;
        std::this_thread::sleep_for(milliseconds(1));
      }
    });
  }
  Random random(seed);
  for (int i = 0; i < cuts; ++i) {
    Break(*network, random);
    std::this_thread::sleep_for(milliseconds(random.Below(60)));
  }
  limit = most + 100;  // which nobody has begun
  for (std::thread& worker : workers) worker.join();
  const auto view = PullLatest(*stores[0]);
  ASSERT_TRUE(view.ok()) << view.status().ToString();
  const auto updates = static_cast<int>(view->version());
  ExpectAll(*stores[0], static_cast<float>(updates));
  const int sum = applied[0] + applied[1];
  if (GetParam() == Mode::kReplicas) {  // late ones do not count, and a round may count both
    EXPECT_LE(std::max(applied[0], applied[1]), updates);
    EXPECT_LE(updates, sum);
    return;
  }
  EXPECT_EQ(updates, GetParam() == Mode::kBarrier ? applied[0] : sum);
  EXPECT_EQ(applied[0], pushed[0]);
  EXPECT_EQ(applied[1], pushed[1]);
}

INSTANTIATE_TEST_SUITE_P(All, TcpFaultsTest,
                         ::testing::Values(Mode::kLocked, Mode::kBarrier, Mode::kReplicas),
                         [](const auto& of) { return std::string(ModeName(of.param)); });

}  // namespace
}  // namespace passel::testing

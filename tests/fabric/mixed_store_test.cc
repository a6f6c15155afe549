// What a store of local and remote shards promises beside the conformance suite: messages to the
// other host alone, and which ends of a ps it survives.

#include <future>
#include <set>

#include "fabric/remote_ps.h"
#include "fabric/remote_stores.h"

namespace passel::testing {
namespace {

// ps/0 on one host with the workers that `with_lead` names, ps/1 on the other with all others.
void Share(RemoteHost& host, std::set<int> with_lead) {
  host.shares = [with_lead](int worker, int shard) {
    return with_lead.contains(worker) == (shard == 0);
  };
}

TEST(MixedStore, AStepAsksTheOtherHostAlone) {
  struct Expected {
    Mode mode;
    std::uint64_t lead_here, lead_elsewhere;
  };
  for (const Expected& expected : {Expected{Mode::kHogwild, 1, 1},
                                   {Mode::kLocked, 1, 1},
                                   {Mode::kSsp, 1, 1},
                                   {Mode::kBarrier, 2, 4}}) {
    for (const bool lead_is_here : {false, true}) {
      SCOPED_TRACE(std::string(ModeName(expected.mode)) + (lead_is_here ? ", lead here" : ""));
      RemoteHost host(TestPlan(expected.mode, 2, 1, *ParseOptimizer("adam")));
      Share(host, lead_is_here ? std::set{0} : std::set<int>{});
      std::function<fabric::MessageCount()> count;
      auto opened = host.Open(0, Engine(), &count);
      ASSERT_TRUE(opened.ok()) << opened.status().ToString();
      InitializeTo(**opened, 0);
      ASSERT_TRUE(PushConstant(**opened, -1).ok());
      const std::uint64_t before = count().sent;
      constexpr std::uint64_t kSteps = 20;
      for (std::uint64_t i = 0; i < kSteps; ++i) ASSERT_TRUE(PushConstant(**opened, -1).ok());
      const std::uint64_t per_step = lead_is_here ? expected.lead_here : expected.lead_elsewhere;
      const std::uint64_t sent = count().sent - before;
      EXPECT_GE(sent, kSteps * per_step);
      EXPECT_LT(sent, kSteps * (per_step + 1)) << "a few may have been repeated";
    }
  }
}

// Worker 0 shares the memory of ps/0, worker 1 that of ps/1.
TEST(MixedStore, WhoseMemoryIsSharedMayComeBackForThoseWhoShareIt) {
  RemoteHost host(TestPlan(Mode::kLocked, 2, 2, Sgd(1.0)));
  Share(host, {0});
  std::vector<std::unique_ptr<ParameterStore>> stores;
  for (int k = 0; k < 2; ++k) stores.push_back(OpenOn(host, k));
  InitializeTo(*stores[0], 0);
  ASSERT_TRUE(stores[1]->WaitUntilInitialized(Deadline::After(kLong)).ok());
  const auto push = [&](int k) { return PushConstant(*stores[static_cast<std::size_t>(k)], -1); };
  for (int i = 0; i < 4; ++i) {
    for (const int k : {0, 1}) ASSERT_TRUE(push(k).ok());
  }
  host.ps(0).Kill();
  // Who reaches it by messages waits, and the other one does not.
  auto asks = std::async(std::launch::async, [&] { return push(1); });
  ASSERT_TRUE(push(0).ok());
  host.ps(0).Start();
  const Result<PushOutcome> outcome = asks.get();
  ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
  EXPECT_EQ(outcome->global_step, 10);
  EXPECT_EQ(stores[0]->membership()[1].epoch, 2u);
  for (auto& store : stores) ExpectAll(*store, 10);
  // Lives are given by ps/0: on ps/1 worker 0 has none any more.
  host.ps(1).Kill();
  ASSERT_TRUE(push(1).ok());
  host.ps(1).Start();
  EXPECT_EQ(push(0).status().code(), Code::kAborted);
  EXPECT_TRUE(stores[0]->LeaveForNow().ok());
  stores[0] = OpenOn(host, 0);
  ASSERT_TRUE(stores[0]->WaitUntilInitialized(Deadline::After(kLong)).ok());
  ASSERT_TRUE(push(0).ok());
  ASSERT_TRUE(push(1).ok());
  for (auto& store : stores) ExpectAll(*store, 13);
}

// A round counts a gradient of each kind of worker, and whoever is left applies it to the end.
TEST(MixedStore, ARoundIsFinishedWithoutAWorkerThatDiesInIt) {
  for (const int dies : {0, 1}) {
    SCOPED_TRACE(dies);
    RemoteHost host(TestPlan(Mode::kBarrier, 2, 2, Sgd(1.0)));
    Share(host, {0});
    std::vector<std::unique_ptr<ParameterStore>> stores;
    for (int k = 0; k < 2; ++k) stores.push_back(OpenOn(host, k));
    InitializeTo(*stores[0], 0);
    ASSERT_TRUE(stores[1]->WaitUntilInitialized(Deadline::After(kLong)).ok());
    const auto dying = static_cast<std::size_t>(dies);
    ASSERT_TRUE(PushOnly(*stores[dying], -3).ok());
    const Result<Ticket> ticket = PushOnly(*stores[1 - dying], -1);
    ASSERT_TRUE(ticket.ok()) << ticket.status().ToString();
    // It has arrived, and does nothing any more.
    for (const ShardMemory& memory : host.Memory()) MarkDead(memory, dies, 1);
    const Result<PushOutcome> outcome = stores[1 - dying]->Wait(*ticket, Deadline::After(kLong));
    ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
    ExpectAll(*stores[1 - dying], 2);
    EXPECT_EQ(PushConstant(*stores[dying], -1).status().code(), Code::kAborted);
  }
}

}  // namespace
}  // namespace passel::testing

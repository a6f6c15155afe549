// A worker and its ps lose each other, for a while or for good: who goes on, who starts again, and
// that nothing is done twice or said in vain.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <thread>

#include "base/random.h"
#include "fabric/remote_ps.h"
#include "fabric/remote_stores.h"

namespace passel::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr milliseconds kGrace{100};
constexpr milliseconds kBeyondGrace{300};

// The first is initialised to 0.
std::vector<std::unique_ptr<ParameterStore>> OpenAll(RemoteHost& host, int workers,
                                                     const WaitOptions& engine = Engine()) {
  std::vector<std::unique_ptr<ParameterStore>> stores;
  for (int k = 0; k < workers; ++k) stores.push_back(OpenOn(host, k, engine));
  InitializeTo(*stores[0], 0);
  for (const auto& store : stores) {
    EXPECT_TRUE(store->WaitUntilInitialized(Deadline::After(kLong)).ok());
  }
  return stores;
}

TEST(RemoteFaults, APsThatDiesAgainBeforeItWelcomedAWorkerIsTriedAgain) {
  for (const char* failpoint :
       {"hello.successor:1:kill", "join.claimed:1:kill", "join.running:1:kill"}) {
    SCOPED_TRACE(failpoint);
    RemoteHost host(TestPlan(Mode::kLocked, 1, 1, Sgd(1.0)));
    const auto stores = OpenAll(host, 1);
    ASSERT_TRUE(PushConstant(*stores[0], -1).ok());
    host.ps(0).Kill();
    host.ps(0).Start(failpoint);
    auto asks = std::async(std::launch::async, [&] { return PushConstant(*stores[0], -1); });
    host.ps(0).AwaitEnd();
    host.ps(0).Start();
    const Result<PushOutcome> outcome = asks.get();
    ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
    ExpectAll(*stores[0], 2);
  }
}

TEST(RemoteFaults, NobodyWaitsForALifeThatAPsBeganForNobody) {
  RemoteHost host(TestPlan(Mode::kBarrier, 1, 2, Sgd(1.0)), {}, 0, "", kGrace);
  host.answer_limit = std::chrono::seconds(1);
  const auto stores = OpenAll(host, 2);
  host.LineOf(0).state = Line::kDown;
  host.ps(0).Kill();
  host.ps(0).Start("hello.successor:1:kill");
  (void)stores[1]->membership();  // comes back, and the ps dies again
  host.LineOf(1).state = Line::kDown;
  host.ps(0).Start();
  host.LineOf(0).state = Line::kUp;
  EXPECT_TRUE(PushConstant(*stores[0], -1).ok()) << "does not wait for the other's join limit";
}

TEST(RemoteFaults, ALeaveThatIsRepeatedAfterTheGraceIsNoFailure) {
  for (const bool restarted : {false, true}) {
    SCOPED_TRACE(restarted);
    RemoteHost host(TestPlan(Mode::kHogwild, 1, 1, Sgd(1.0)), {}, 0, "", kGrace);
    const auto stores = OpenAll(host, 1);
    host.LineOf(0).deaf_at = fabric::Kind::kLeave;
    auto leaves = std::async(std::launch::async, [&] { return stores[0]->Leave(); });
    std::this_thread::sleep_for(milliseconds(50));
    host.LineOf(0).state = Line::kDown;
    std::this_thread::sleep_for(kBeyondGrace);
    if (restarted) {
      host.ps(0).Kill();
      host.ps(0).Start();
    }
    host.LineOf(0).state = Line::kUp;
    const Status left = leaves.get();
    EXPECT_TRUE(left.ok()) << left.ToString();
    EXPECT_EQ(stores[0]->Pull(PullMode::kView).status().code(), Code::kAborted);
  }
}

TEST(RemoteFaults, AWorkerOfAnotherMemoryStartsAgain) {
  for (const bool taken : {false, true}) {
    SCOPED_TRACE(taken);
    RemoteHost host(TestPlan(Mode::kHogwild, 1, 1, Sgd(1.0)), {}, 0, "", kGrace);
    const auto stores = OpenAll(host, 1);
    ASSERT_TRUE(PushConstant(*stores[0], -1).ok());
    host.LineOf(0).state = Line::kDown;
    host.ps(0).Kill();
    host.ps(0).LoseArena();
    host.ps(0).Start();
    if (taken) {  // by one with the same epoch, who has died since
      const auto other = fabric::OpenRemoteStore(
          TestPlan(Mode::kHogwild, 1, 1, Sgd(1.0)), 0,
          {[&](Deadline deadline) { return host.ps(0).Connect(0, deadline); }}, {});
      ASSERT_TRUE(other.ok()) << other.status().ToString();
      InitializeTo(**other, 50);
    }
    std::this_thread::sleep_for(kBeyondGrace);
    host.LineOf(0).state = Line::kUp;
    const Status refused = PushConstant(*stores[0], -1).status();
    EXPECT_EQ(refused.code(), Code::kAborted) << refused.ToString();
    EXPECT_THAT(refused.message(), HasSubstr("ps/0 has begun anew"));
    EXPECT_THAT(refused.message(), HasSubstr("start it again"));
  }
}

// The grace ends while the worker waits in a round, and it comes back before its proxy is gone.
TEST(RemoteFaults, WhoComesBackAtTheEndOfTheGraceIsAnswered) {
  RemoteHost host(TestPlan(Mode::kBarrier, 1, 2, Sgd(1.0)), {}, 0, "step.given_up:1:sleep400",
                  kGrace);
  const auto stores = OpenAll(host, 2);
  const Result<Ticket> ticket = PushOnly(*stores[0], -1);
  ASSERT_TRUE(ticket.ok());
  auto waits = std::async(std::launch::async, [&] {
    return stores[0]->Wait(*ticket, Deadline::After(std::chrono::seconds(5)));
  });
  host.LineOf(0).state = Line::kDown;
  std::this_thread::sleep_for(kGrace + milliseconds(100));
  host.LineOf(0).state = Line::kUp;
  std::this_thread::sleep_for(milliseconds(600));
  ASSERT_TRUE(PushConstant(*stores[1], -1).ok());
  const Result<PushOutcome> outcome = waits.get();
  ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
  EXPECT_TRUE(outcome->applied);
  ExpectAll(*stores[0], 1);
}

TEST(RemoteFaults, AStopThatWasNotHeardIsSaidAgain) {
  for (const int shards : {1, 2}) {
    SCOPED_TRACE(shards);
    RemoteHost host(TestPlan(Mode::kHogwild, shards, 2, Sgd(1.0)));
    host.answer_limit = milliseconds(300);
    const auto stores = OpenAll(host, 2);
    host.LineOf(0).state = Line::kDown;
    stores[0]->Stop();
    EXPECT_TRUE(stores[0]->stopped()) << "for who has said so at once";
    host.LineOf(0).state = Line::kUp;
    EXPECT_FALSE((stores[1]->membership(), stores[1]->stopped()));
    EXPECT_TRUE(stores[0]->Leave().ok());
    EXPECT_TRUE((stores[1]->membership(), stores[1]->stopped()));
  }
}

TEST(RemoteFaults, RoundsThatCouldNotBeEndedAreNotSaidToHaveEnded) {
  RemoteHost host(TestPlan(Mode::kBarrier, 1, 1, Sgd(1.0)));
  host.answer_limit = milliseconds(300);
  const auto stores = OpenAll(host, 1);
  ASSERT_TRUE(PushConstant(*stores[0], -1).ok());  // and has the next values
  host.LineOf(0).state = Line::kDown;
  stores[0]->Stop();
  const Status pulled = stores[0]->Pull(PullMode::kView).status();
  EXPECT_EQ(pulled.code(), Code::kUnavailable) << pulled.ToString();
  host.LineOf(0).state = Line::kUp;
  EXPECT_EQ(stores[0]->Pull(PullMode::kView).status().code(), Code::kCancelled);
}

TEST(RemoteFaults, AnEvictedWorkerStartsAgain) {
  for (const int shards : {1, 2}) {
    SCOPED_TRACE(shards);
    RemoteHost host(TestPlan(Mode::kBarrier, shards, 2, Sgd(1.0)));
    auto stores = OpenAll(host, 2, Engine(milliseconds(200)));
    ASSERT_TRUE(PushConstant(*stores[0], -1).ok());  // while the other is stopped
    EXPECT_EQ(stores[0]->membership()[1].phase, Phase::kEvicted);
    const Status evicted = PushConstant(*stores[1], -100).status();
    EXPECT_EQ(evicted.code(), Code::kAborted) << evicted.ToString();
    EXPECT_THAT(evicted.message(), HasSubstr("evicted"));
    EXPECT_EQ(stores[1]->LeaveForNow().code(), Code::kAborted);
    stores[1] = OpenOn(host, 1);
    ASSERT_NE(stores[1], nullptr);
    ASSERT_TRUE(stores[1]->WaitUntilInitialized(Deadline::After(kLong)).ok());
    auto other = std::async(std::launch::async, [&] { return PushConstant(*stores[1], -1); });
    EXPECT_TRUE(PushConstant(*stores[0], -1).ok());
    EXPECT_TRUE(other.get().ok());
    ExpectAll(*stores[0], 2);
  }
}

// Nothing wrong is answered by a ps that ends: who waits goes on with the next.
TEST(RemoteFaults, WorkersGoOnAfterTheCleanEndOfAPs) {
  RemoteHost host(TestPlan(Mode::kLocked, 1, 2, Sgd(1.0)));
  const auto stores = OpenAll(host, 2);
  for (int turn = 1; turn <= 3; ++turn) {
    const auto train = [](ParameterStore& store) {
      for (int i = 0; i < 20; ++i) {
        const Result<PushOutcome> outcome = PushConstant(store, -1);
        ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
      }
    };
    std::vector<std::thread> workers;
    for (const auto& store : stores) workers.emplace_back([&] { train(*store); });
    std::this_thread::sleep_for(milliseconds(2 * turn));
    host.ps(0).EndCleanly();
    host.ps(0).Start();
    for (std::thread& worker : workers) worker.join();
    const Result<ParamView> view = PullLatest(*stores[0]);
    ASSERT_TRUE(view.ok());
    EXPECT_EQ(view->version(), static_cast<Version>(40 * turn));
    ExpectAll(*stores[0], static_cast<float>(view->version()));
  }
}

TEST(RemoteFaults, AGradientIsNotStagedTwiceUnderOneArrival) {
  for (const int shards : {1, 2}) {
    SCOPED_TRACE(shards);
    RemoteHost host(TestPlan(Mode::kBarrier, shards, 2, Sgd(1.0)));
    host.answer_limit = milliseconds(500);
    const auto stores = OpenAll(host, 2);
    const Result<ParamView> view = stores[0]->Pull(PullMode::kView);
    ASSERT_TRUE(view.ok());
    GradientBuffer buffer = stores[0]->LendGradient();
    FillGradient(*stores[0], buffer, -1);
    host.LineOf(0).deaf_at = fabric::Kind::kRound;  // which arrives
    EXPECT_FALSE(stores[0]->Push(buffer, view->stamp(), Deadline::After(kLong)).ok());
    host.LineOf(0).state = Line::kUp;
    buffer = stores[0]->LendGradient();
    FillGradient(*stores[0], buffer, -100);
    const Result<Ticket> again = stores[0]->Push(buffer, view->stamp(), Deadline::After(kLong));
    ASSERT_TRUE(again.ok()) << again.status().ToString();
    ASSERT_TRUE(PushConstant(*stores[1], -1).ok());
    ASSERT_TRUE(stores[0]->Wait(*again, Deadline::After(kLong)).ok());
    ExpectAll(*stores[0], 1);
  }
}

// With several ps the arrival and the wait for the others are two requests.
TEST(RemoteFaults, WhoHasArrivedArrivesAgainWhenItsPsComesBack) {
  RemoteHost host(TestPlan(Mode::kBarrier, 2, 2, Sgd(1.0)));
  const auto stores = OpenAll(host, 2);
  const Result<Ticket> ticket = PushOnly(*stores[0], -1);
  ASSERT_TRUE(ticket.ok()) << ticket.status().ToString();
  host.ps(0).Kill();
  host.ps(0).Start();
  auto waits = std::async(std::launch::async, [&] {
    return stores[0]->Wait(*ticket, Deadline::After(std::chrono::seconds(5)));
  });
  ASSERT_TRUE(PushConstant(*stores[1], -1).ok());
  const Result<PushOutcome> outcome = waits.get();
  ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
  EXPECT_TRUE(outcome->applied);
  ExpectAll(*stores[0], 1);
}

// Workers start again and again, lines go down, ps end: every round is made once, whole, and by
// whoever is there.
TEST(RemoteFaults, WhateverHappensRoundsStayWhole) {
  constexpr int kWorkers = 3;
  for (const int shards : {1, 2}) {
    SCOPED_TRACE(shards);
    RemoteHost host(TestPlan(Mode::kBarrier, shards, kWorkers, Sgd(1.0)), {}, 0, "", kGrace);
    ASSERT_TRUE(OpenAll(host, 1)[0]->LeaveForNow().ok());
    std::atomic<bool> over{false};
    std::atomic<int> rounds{0};
    const auto train = [&](int k) {
      Random random(StreamSeed(11, static_cast<std::uint64_t>(k)));
      std::unique_ptr<ParameterStore> store;
      while (!over) {
        if (store == nullptr || random.Below(40) == 0) {
          store.reset();
          auto opened = host.Open(k, Engine(std::chrono::seconds(2)));
          if (opened.ok()) store = std::move(*opened);
          if (store != nullptr && !store->WaitUntilInitialized(Deadline::After(kLong)).ok()) {
            store.reset();
          }
          continue;
        }
        const Result<PushOutcome> outcome = PushConstant(*store, -1);
        if (outcome.ok()) {
          rounds += outcome->applied;
          continue;
        }
        EXPECT_EQ(outcome.status().code(), Code::kAborted) << outcome.status().ToString();
        store.reset();
      }
    };
    std::vector<std::thread> workers;
    for (int k = 0; k < kWorkers; ++k) workers.emplace_back(train, k);
    Random random(5);
    const Deadline end = Deadline::After(std::chrono::seconds(2)), most = Deadline::After(kLong);
    while (!end.Expired() || (rounds.load() <= 20 && !most.Expired())) {
      Line& line = host.LineOf(static_cast<int>(random.Below(kWorkers)));
      const auto a_while = milliseconds(random.Below(60));
      switch (random.Below(5)) {
        case 0:
          line.state = Line::kDown;
          std::this_thread::sleep_for(3 * a_while);
          line.state = Line::kUp;
          break;
        case 1:
          line.state = Line::kDeaf;
          std::this_thread::sleep_for(a_while);
          line.state = Line::kUp;
          break;
        case 2:
          host.ps(0).Kill();
          std::this_thread::sleep_for(a_while);
          host.ps(0).Start();
          break;
        case 3:
          host.ps(shards - 1).EndCleanly();
          host.ps(shards - 1).Start();
          break;
        default:
          std::this_thread::sleep_for(a_while);
      }
    }
    over = true;
    for (std::thread& worker : workers) worker.join();
    std::this_thread::sleep_for(kBeyondGrace);
    const auto last = OpenOn(host, 0);
    ASSERT_NE(last, nullptr);
    const Status status = last->WaitUntilInitialized(Deadline::After(kLong));
    ASSERT_TRUE(status.ok()) << status.ToString();
    ASSERT_TRUE(PushConstant(*last, -1).ok());
    EXPECT_GT(rounds.load(), 20);
    ExpectAll(*last, static_cast<float>(last->global_step()));
  }
}

}  // namespace
}  // namespace passel::testing

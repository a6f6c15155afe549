// waiting_conformance.h - deadlines, and Stop() for those who wait.
// A part of store_conformance.h.

#pragma once

#include "conformance/store_suite.h"

namespace passel::testing {

TEST_P(RoundConformance, WaitEndsAtItsDeadlineAndMayBeCalledAgain) {
  Make(3);
  auto stores = OpenAll(3);
  const Result<Ticket> ticket = PushOnly(*stores[0], -3);
  ASSERT_TRUE(ticket.ok());
  for (const int ms : {0, 40, 120}) {
    const std::int64_t begin = MonotonicNs();
    const Result<PushOutcome> late =
        stores[0]->Wait(*ticket, Deadline::After(std::chrono::milliseconds(ms)));
    EXPECT_EQ(late.status().code(), Code::kDeadlineExceeded);
    EXPECT_GE(MonotonicNs() - begin, ms * 1'000'000);
    EXPECT_LT(MonotonicNs() - begin, std::chrono::nanoseconds(kBound).count());
  }
  std::vector<int> missing;
  for (const Member& m : stores[0]->WaitingFor()) missing.push_back(m.worker);
  EXPECT_THAT(missing, ::testing::ElementsAre(1, 2));
  std::thread other([&] { EXPECT_TRUE(PushConstant(*stores[1], -3).ok()); });
  std::thread third([&] { EXPECT_TRUE(PushConstant(*stores[2], -3).ok()); });
  const Result<PushOutcome> outcome = stores[0]->Wait(*ticket, Deadline::After(kLong));
  other.join();
  third.join();
  ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
  EXPECT_EQ(outcome->global_step, 1);
  EXPECT_TRUE(stores[0]->WaitingFor().empty());
  ExpectAll(*stores[0], 3);
}

// The chief saves the values when it has left.
TEST_P(RoundConformance, NobodyChangesTheValuesOnceOneHasLeftAStoppedJob) {
  Make(2);
  const std::vector<ShardMemory> memory = host_->Memory();
  auto stores = OpenAll(2);
  const ParamView late_view = Pull(*stores[1]);
  GradientBuffer late = stores[1]->LendGradient();
  FillGradient(*stores[1], late, -1);
  const Result<Ticket> first = PushOnly(*stores[0], -1);
  ASSERT_TRUE(first.ok());
  stores[1]->Stop();
  EXPECT_EQ(stores[0]->Wait(*first, Deadline::After(kLong)).status().code(), Code::kCancelled);
  EXPECT_TRUE(stores[0]->Leave().ok());
  // It had begun its step before the stop, and is the last to arrive.
  EXPECT_EQ(PushAndWait(*stores[1], late, late_view.stamp()).status().code(), Code::kCancelled);
  for (const ShardMemory& shard : memory) {
    EXPECT_TRUE(std::all_of(shard.values, shard.values + shard.floats,
                            [](float value) { return value == 0; }));
  }
  EXPECT_EQ(stores[1]->global_step(), 0);
}

TEST_P(RoundConformance, RoundThatWasDecidedIsWholeWhenSomebodyLooksAtAStoppedJob) {
  Make(2);
  auto stores = OpenAll(2);
  ASSERT_TRUE(PushOnly(*stores[0], -1).ok());
  ASSERT_TRUE(PushOnly(*stores[1], -1).ok());
  stores[1]->Stop();
  const auto pulled = stores[0]->Pull(PullMode::kView);
  EXPECT_EQ(pulled.status().code(), Code::kCancelled);
  EXPECT_EQ(stores[0]->global_step(), 1);
  for (const ShardMemory& shard : host_->Memory()) EXPECT_EQ(shard.values[0], 1);
}

TEST_P(StoreConformance, StopWakesWhoWaitsForTheFirstValues) {
  Make(2);
  std::int64_t woken = 0;
  std::thread waiter([&] {
    StorePtr store = Open(1);
    EXPECT_EQ(store->WaitUntilInitialized(Deadline::After(kLong)).code(), Code::kCancelled);
    woken = MonotonicNs();
  });
  StorePtr chief = Open(0);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const std::int64_t begin = MonotonicNs();
  EXPECT_FALSE(chief->stopped());
  chief->Stop();
  waiter.join();
  EXPECT_TRUE(chief->stopped());
  EXPECT_LT(woken - begin, std::chrono::nanoseconds(kBound).count());
}

TEST_P(StoreConformance, StopEndsEveryWorkerWithinABound) {
  constexpr int kWorkers = 4;
  Make(kWorkers);
  auto stores = OpenAll(kWorkers);
  std::vector<std::thread> threads;
  // In rounds worker 3 never pushes: the others wait for it.
  for (int k = 0; k < (rounds() ? kWorkers - 1 : kWorkers); ++k) {
    threads.emplace_back([&, k] {
      for (;;) {
        const Result<PushOutcome> outcome = PushConstant(*stores[static_cast<std::size_t>(k)], -1);
        if (outcome.ok()) continue;
        EXPECT_EQ(outcome.status().code(), Code::kCancelled) << outcome.status().ToString();
        return;
      }
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  // On a busy machine no thread may have had its turn yet.
  const Deadline turn = Deadline::After(std::chrono::seconds(20));
  while (!rounds() && stores[0]->global_step() == 0 && !turn.Expired()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const std::int64_t begin = MonotonicNs();
  stores[3]->Stop();
  for (std::thread& t : threads) t.join();
  EXPECT_LT(MonotonicNs() - begin, std::chrono::nanoseconds(kBound).count());
  EXPECT_EQ(stores[0]->Pull(PullMode::kView).status().code(), Code::kCancelled);
  EXPECT_EQ(stores[0]->global_step() > 0, !rounds());
}

}  // namespace passel::testing

// ssp_conformance.h - the mode ssp alone: bounded staleness.
// A part of store_conformance.h.

#pragma once

#include "conformance/store_suite.h"

namespace passel::testing {

TEST_P(SspConformance, NobodyStartsAStepMoreThanTheBoundAhead) {
  for (const int bound : {0, 1, 3}) {
    SCOPED_TRACE(bound);
    MakeSsp(3, bound);
    auto stores = OpenAll(3);
    ASSERT_TRUE(stores[2]->Leave().ok());
    for (int i = 0; i < bound; ++i) {
      const Result<PushOutcome> outcome = PushConstant(*stores[0], -1);
      ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
    }
    for (int i = 0; i < 3; ++i) {
      const Result<Ticket> ticket = PushOnly(*stores[0], -1);
      ASSERT_TRUE(ticket.ok());
      EXPECT_EQ(stores[0]->global_step(), bound + 2 * i + 1) << "it is applied, then it waits";
      for (const int ms : {0, 30}) {
        const Result<PushOutcome> early =
            stores[0]->Wait(*ticket, Deadline::After(std::chrono::milliseconds(ms)));
        EXPECT_EQ(early.status().code(), Code::kDeadlineExceeded);
        EXPECT_THAT(early.status().message(), ::testing::HasSubstr("worker/1"));
      }
      std::vector<int> behind;
      for (const Member& m : stores[0]->WaitingFor()) behind.push_back(m.worker);
      EXPECT_THAT(behind, ::testing::ElementsAre(1));
      std::thread waiter([&] {
        const Result<PushOutcome> outcome = stores[0]->Wait(*ticket, Deadline::After(kLong));
        ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
        EXPECT_TRUE(outcome->applied);
        EXPECT_EQ(outcome->global_step, bound + 2 * i + 1);
      });
      ASSERT_TRUE(PushConstant(*stores[1], -1).ok());
      waiter.join();
      EXPECT_TRUE(stores[0]->WaitingFor().empty());
    }
    (void)Pull(*stores[0]);
    EXPECT_EQ(stores[0]->counters().max_clock_lead.load(), static_cast<std::uint64_t>(bound));
    ExpectAll(*stores[0], static_cast<float>(bound + 6));
  }
}

TEST_P(SspConformance, WhoEndsLeavesTheMinimumAtOnce) {
  for (const char* how : {"leaves", "dies", "is evicted"}) {
    SCOPED_TRACE(how);
    MakeSsp(2, 0);
    const std::vector<ShardMemory> memory = host_->Memory();
    auto stores = OpenAll(2);
    const Result<Ticket> ticket = PushOnly(*stores[0], -1);
    ASSERT_TRUE(ticket.ok());
    const std::int64_t begin = MonotonicNs();
    std::thread ender([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(60));
      const bool ended = std::string(how) == "leaves" ? stores[1]->Leave().ok()
                         : std::string(how) == "dies" ? MarkDead(memory[0], 1, 1)
                                                      : Evict(memory[0], 1, 1);
      EXPECT_TRUE(ended);
    });
    const Result<PushOutcome> outcome = stores[0]->Wait(*ticket, Deadline::After(kLong));
    ender.join();
    EXPECT_TRUE(outcome.ok()) << outcome.status().ToString();
    EXPECT_GE(MonotonicNs() - begin, 50'000'000) << "it did not wait";
    EXPECT_LT(MonotonicNs() - begin, std::chrono::nanoseconds(kBound).count());
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(PushConstant(*stores[0], -1).ok());
    if (std::string(how) != "leaves") {
      EXPECT_EQ(PushConstant(*stores[1], -1).status().code(), Code::kAborted);
    }
  }
}

TEST_P(SspConformance, WhoJoinsStartsAtTheSlowestOfThoseWhoRun) {
  MakeSsp(4, 2);
  const std::vector<ShardMemory> memory = host_->Memory();
  const auto clock = [&](int worker) {
    return Arrival::Unpack(memory[0].tasks[worker].clock.load()).at;
  };
  StorePtr first = Open(0);
  InitializeTo(*first, 0);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(PushConstant(*first, -1).ok()) << "nobody else joined";
  EXPECT_EQ(clock(0), 10u);
  StorePtr second = Open(1);
  ASSERT_TRUE(second->WaitUntilInitialized(Deadline::After(kLong)).ok());
  EXPECT_EQ(clock(1), 10u);
  ASSERT_TRUE(PushConstant(*first, -1).ok());
  ASSERT_TRUE(PushConstant(*first, -1).ok());
  StorePtr third = Open(2);
  ASSERT_TRUE(third->WaitUntilInitialized(Deadline::After(kLong)).ok());
  EXPECT_EQ(clock(2), 10u) << "the slowest is worker 1";
  ASSERT_TRUE(PushConstant(*third, -1).ok());
  // Another life of the one that is ahead starts at the slowest too.
  ASSERT_TRUE(first->Leave().ok());
  first = Open(0);
  ASSERT_TRUE(first->WaitUntilInitialized(Deadline::After(kLong)).ok());
  EXPECT_EQ(clock(0), 10u);
  // And of the one that is behind, at the slowest of the others.
  ASSERT_TRUE(second->Leave().ok());
  ASSERT_TRUE(PushConstant(*first, -1).ok());
  ASSERT_TRUE(PushConstant(*first, -1).ok());
  ASSERT_TRUE(PushConstant(*third, -1).ok());
  second = Open(1);
  EXPECT_EQ(clock(1), 12u);
  // When nobody runs, at the highest clock there was.
  for (StorePtr* store : {&first, &second, &third}) ASSERT_TRUE((*store)->Leave().ok());
  StorePtr fourth = Open(3);
  EXPECT_EQ(clock(3), 12u);
  for (int k = 0; k < 4; ++k) EXPECT_LE(memory[0].tasks[k].counters.max_clock_lead.load(), 2u);
}

TEST_P(SspConformance, WhoIsAboutToRunIsWaitedForAndGivenUpInTheEnd) {
  MakeSsp(2, 1);
  const std::vector<ShardMemory> memory = host_->Memory();
  StorePtr store = Open(0);
  InitializeTo(*store, 0);
  // Worker 1 has published its clock, and died before it ran.
  memory[0].tasks[1].state.store(TaskState{1, Phase::kJoining}.Pack());
  memory[0].tasks[1].clock.store(Arrival{1, 0}.Pack());
  ASSERT_TRUE(PushConstant(*store, -1).ok());
  const std::int64_t begin = MonotonicNs();
  ASSERT_TRUE(PushConstant(*store, -1).ok());
  EXPECT_GE(MonotonicNs() - begin, std::chrono::nanoseconds(kJoinPatience).count() / 2);
  EXPECT_LT(MonotonicNs() - begin, std::chrono::nanoseconds(kBound).count());
  EXPECT_EQ(StateOf(memory[0], 1).phase, Phase::kDead);
}

TEST_P(SspConformance, StalledWorkerIsEvictedOnlyIfItHoldsSomebodyUp) {
  MakeSsp(2, 4);
  WaitOptions options = Options();
  options.stall_limit = std::chrono::milliseconds(150);
  StorePtr a = Open(0, options);
  InitializeTo(*a, 0);
  StorePtr b = Open(1, options);
  ASSERT_TRUE(b->WaitUntilInitialized(Deadline::After(kLong)).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(PushConstant(*a, -1).ok());
  EXPECT_EQ(a->membership()[1].phase, Phase::kRunning) << "within the bound nobody minds";
  const std::int64_t begin = MonotonicNs();
  ASSERT_TRUE(PushConstant(*a, -1).ok());
  EXPECT_GE(MonotonicNs() - begin, 100'000'000);
  EXPECT_LT(MonotonicNs() - begin, std::chrono::nanoseconds(kBound).count());
  EXPECT_EQ(a->membership()[1].phase, Phase::kEvicted);
  EXPECT_EQ(PushConstant(*b, -1).status().code(), Code::kAborted);
}

TEST_P(SspConformance, StopWakesWhoWaitsForSlowerWorkers) {
  MakeSsp(2, 0);
  auto stores = OpenAll(2);
  const Result<Ticket> ticket = PushOnly(*stores[0], -1);
  ASSERT_TRUE(ticket.ok());
  std::thread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    stores[1]->Stop();
  });
  const std::int64_t begin = MonotonicNs();
  EXPECT_EQ(stores[0]->Wait(*ticket, Deadline::After(kLong)).status().code(), Code::kCancelled);
  stopper.join();
  EXPECT_LT(MonotonicNs() - begin, std::chrono::nanoseconds(kBound).count());
}

// Whoever joined before the clocks were restored, and whoever joins after it.
TEST_P(SspConformance, AllBeginAtTheHighestClockThatWasRestored) {
  MakeSsp(3, 1);
  StorePtr early = Open(1);
  StorePtr chief = Open(0);
  JobProgress progress;
  progress.global_step = 12;
  progress.shards.resize(static_cast<std::size_t>(shards()), {12, 12});
  progress.workers = {{5, 0, 0}, {3, 0, 0}, {4, 0, 0}};
  ASSERT_TRUE(chief
                  ->Restore(progress,
                            [](VarId, int, std::span<float> values) {
                              std::fill(values.begin(), values.end(), 0.0F);
                            })
                  .ok());
  ASSERT_TRUE(early->WaitUntilInitialized(Deadline::After(kLong)).ok());
  StorePtr late = Open(2);
  ASSERT_TRUE(late->WaitUntilInitialized(Deadline::After(kLong)).ok());
  // One step more than the others have is what the bound allows, whoever makes it.
  for (ParameterStore* store : {late.get(), early.get(), chief.get()}) {
    const Result<PushOutcome> outcome = PushConstant(*store, -1);
    ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
  }
  ASSERT_TRUE(PushConstant(*chief, -1).ok());
  const Result<Ticket> ahead = PushOnly(*chief, -1);
  ASSERT_TRUE(ahead.ok());
  EXPECT_EQ(chief->Wait(*ahead, Deadline::After(std::chrono::milliseconds(60))).status().code(),
            Code::kDeadlineExceeded);
}

}  // namespace passel::testing

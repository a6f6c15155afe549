// rounds_conformance.h - rounds with members that come and go.
// A part of store_conformance.h.

#pragma once

#include "conformance/store_suite.h"

namespace passel::testing {

TEST_P(RoundConformance, RoundsGoOnWithoutWhoLeft) {
  Make(3, *ParseOptimizer("adam"));
  std::vector<StorePtr> stores;
  for (int k = 0; k < 3; ++k) stores.push_back(Open(k));
  InitializeForReference(*stores[0]);
  ReferenceModel reference(plan_.variables, plan_.optimizer);
  constexpr int kRounds = 5;
  std::vector<std::thread> threads;
  for (int k = 0; k < 3; ++k) {
    threads.emplace_back([&, k] {
      ParameterStore& store = *stores[static_cast<std::size_t>(k)];
      ASSERT_TRUE(store.WaitUntilInitialized(Deadline::After(kLong)).ok());
      for (int round = 1; round <= kRounds; ++round) {
        if (k == 1 && round == 3) {
          std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the others are waiting
          EXPECT_TRUE(store.Leave().ok());
          return;
        }
        const ParamView view = Pull(store);
        GradientBuffer buffer = store.LendGradient();
        FillTestGradient(store, buffer, k, static_cast<std::uint64_t>(round));
        ASSERT_TRUE(PushAndWait(store, buffer, view.stamp()).ok());
      }
    });
  }
  for (std::thread& t : threads) t.join();
  for (int round = 1; round <= kRounds; ++round) {
    const std::vector<int> members = round < 3 ? std::vector{0, 1, 2} : std::vector{0, 2};
    reference.Step(round, static_cast<std::uint64_t>(round), members);
  }
  ExpectValues(*stores[0], reference, "after a worker left");
}

TEST_P(RoundConformance, RoundsWaitForWhoIsExpectedButNotForEver) {
  Make(2);
  WaitOptions options = Options();
  options.start_wait = std::chrono::milliseconds(150);
  const std::int64_t begin = MonotonicNs();
  StorePtr store = Open(0, options);
  InitializeTo(*store, 0);
  ASSERT_TRUE(PushConstant(*store, -1).ok());
  EXPECT_GE(MonotonicNs() - begin, 100'000'000) << "it was not expected at all";
  EXPECT_EQ(store->membership()[1].phase, Phase::kEvicted);
  EXPECT_EQ(store->membership()[1].heartbeat_age_ns, 0) << "it never joined";
  ExpectAll(*store, 1);
}

TEST_P(RoundConformance, LateJoinerTakesPartFromItsFirstRoundOn) {
  Make(2);
  WaitOptions options = Options();
  options.start_wait = std::chrono::milliseconds(1);
  StorePtr store = Open(0, options);
  InitializeTo(*store, 0);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(PushConstant(*store, -1).ok());
  StorePtr late = Open(1);
  ASSERT_TRUE(late->WaitUntilInitialized(Deadline::After(kLong)).ok());
  EXPECT_EQ(Pull(*late).version(), 3u);
  std::thread other([&] {
    const Result<PushOutcome> outcome = PushConstant(*late, -5);
    ASSERT_TRUE(outcome.ok());
    EXPECT_TRUE(outcome->applied);
    EXPECT_EQ(outcome->global_step, 4);
  });
  const Result<PushOutcome> outcome = PushConstant(*store, -1);
  other.join();
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->version, 4u);
  ExpectAll(*store, 6);  // 3 + mean(1, 5)
}

TEST_P(RoundConformance, GradientThatComesAfterItsRoundWasDecidedIsDropped) {
  Make(2);
  const std::vector<ShardMemory> memory = host_->Memory();
  WaitOptions options = Options();
  options.start_wait = std::chrono::milliseconds(1);
  StorePtr store = Open(0, options);
  InitializeTo(*store, 0);
  StorePtr late = Open(1);
  ASSERT_TRUE(late->WaitUntilInitialized(Deadline::After(kLong)).ok());
  const ParamView view = Pull(*late);
  GradientBuffer buffer = late->LendGradient();
  FillGradient(*late, buffer, -100);
  // The round is decided while `late` computes: it is written out by hand, as worker 0 would do if
  // it had looked a moment before worker 1 joined.
  memory[0].tasks[0].proposal[1][0].store(1);
  const ParamView own = Pull(*store);
  GradientBuffer gradient = store->LendGradient();
  FillGradient(*store, gradient, -1);
  const Result<Ticket> first = store->Push(gradient, own.stamp(), Deadline::After(kLong));
  ASSERT_TRUE(first.ok());
  std::uint64_t decision = memory[0].state->decision.load();
  const std::uint64_t decided = Decision{1, Decision::Unpack(decision).generation, 0}.Pack();
  ASSERT_TRUE(memory[0].state->decision.compare_exchange_strong(decision, decided));
  // The only member does nothing more: who came too late finishes the round on its own.
  const Result<PushOutcome> dropped = PushAndWait(*late, buffer, view.stamp());
  ASSERT_TRUE(dropped.ok()) << dropped.status().ToString();
  EXPECT_FALSE(dropped->applied);
  EXPECT_EQ(late->counters().dropped.load(), 1u);
  ExpectAll(*late, 1);
  const Result<PushOutcome> outcome = store->Wait(*first, Deadline::After(kLong));
  ASSERT_TRUE(outcome.ok());
  EXPECT_TRUE(outcome->applied);
  ExpectAll(*store, 1);
  // And the next round counts both.
  std::thread other([&] { EXPECT_TRUE(PushConstant(*late, -3).ok()); });
  EXPECT_TRUE(PushConstant(*store, -1).ok());
  other.join();
  ExpectAll(*store, 3);
}

// Stopped in the middle of a block: in turns shorter than the stall limit, as a worker waits.
TEST_P(RoundConformance, WhoStopsInADecidedRoundIsNamedAndEvicted) {
  Make(2);
  const std::vector<ShardMemory> memory = host_->Memory();
  if (!host_->InPlace()) GTEST_SKIP() << "the ps applies, and stops as a whole";
  constexpr std::chrono::milliseconds kStall{600};
  constexpr std::chrono::milliseconds kTurn{100};
  WaitOptions options = Options();
  options.stall_limit = kStall;
  StorePtr store = Open(0, options);
  InitializeTo(*store, 0);
  StorePtr stopped = Open(1, options);
  ASSERT_TRUE(stopped->WaitUntilInitialized(Deadline::After(kLong)).ok());
  const Result<Ticket> first = PushOnly(*stopped, -1);
  const Result<Ticket> ticket = PushOnly(*store, -1);
  ASSERT_TRUE(first.ok() && ticket.ok());
  memory.back().blocks[0].claim.store(Claim{1, 1}.Pack());
  const std::int64_t begin = MonotonicNs();
  Result<PushOutcome> outcome = store->Wait(*ticket, Deadline::After(kTurn));
  EXPECT_EQ(outcome.status().code(), Code::kDeadlineExceeded);
  EXPECT_THAT(outcome.status().message(), ::testing::HasSubstr("worker/1"));
  ASSERT_EQ(store->WaitingFor().size(), 1u);
  EXPECT_EQ(store->WaitingFor()[0].worker, 1);
  while (!outcome.ok() && MonotonicNs() - begin < std::chrono::nanoseconds(kBound).count()) {
    outcome = store->Wait(*ticket, Deadline::After(kTurn));
  }
  ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
  EXPECT_GE(MonotonicNs() - begin, std::chrono::nanoseconds(kStall).count());
  EXPECT_EQ(StateOf(memory[0], 1).phase, Phase::kEvicted);
  EXPECT_TRUE(store->WaitingFor().empty());
  ExpectAll(*store, 1);
}

// Worker 2 was stopped before it saved the first piece, and evicted; worker 1 took over, saved it,
// half applied it; worker 2 went on, saved that, and left; worker 1 died.
TEST_P(RoundConformance, CopyThatIsMadeLateByOneThatIsFencedOffIsVoid) {
  Make(3);
  const std::vector<ShardMemory> memory = host_->Memory();
  auto stores = OpenAll(3);
  std::vector<Ticket> tickets;
  for (StorePtr& store : stores) {
    const Result<Ticket> ticket = PushOnly(*store, -1);
    ASSERT_TRUE(ticket.ok());
    tickets.push_back(*ticket);
  }
  for (const ShardMemory& m : memory) {
    std::fill_n(m.Undo(1), m.PieceFloats(), 0.0F);
    std::fill_n(m.Undo(2), m.PieceFloats(), 1.0F);
    std::fill_n(m.values, m.PieceFloats() / 2, 1.0F);
    for (const int k : {1, 2}) m.tasks[k].undo_tag.store(UndoTag{1, 0, true}.Pack());
    m.blocks[0].claim.store(Claim{1, 1}.Pack());
  }
  ASSERT_TRUE(Evict(memory[0], 2, 1));
  for (const ShardMemory& m : memory) ASSERT_TRUE(MarkDead(m, 1, 1));
  ASSERT_TRUE(stores[0]->Wait(tickets[0], Deadline::After(kLong)).ok());
  ExpectAll(*stores[0], 1);
}

TEST_P(RoundConformance, WhoDiedBetweenDecisionAndUpdateIsStillCountedAndMayComeBack) {
  Make(1, *ParseOptimizer("adam"));
  const std::vector<ShardMemory> memory = host_->Memory();
  StorePtr store = Open(0);
  InitializeForReference(*store);
  ReferenceModel reference(plan_.variables, plan_.optimizer);
  const ParamView view = Pull(*store);
  GradientBuffer buffer = store->LendGradient();
  FillTestGradient(*store, buffer, 0, 1);
  ASSERT_TRUE(store->Push(buffer, view.stamp(), Deadline::After(kLong)).ok());  // and dies
  store.reset();
  for (const ShardMemory& m : memory) ASSERT_TRUE(MarkDead(m, 0, 1));
  store = Open(0);
  // The chief came back and finds the values: it may not write its gradient before that round is
  // complete.
  EXPECT_TRUE(store->initialized());
  EXPECT_EQ(store->Pull(PullMode::kView).status().code(), Code::kFailedPrecondition);
  ASSERT_TRUE(store->WaitUntilInitialized(Deadline::After(kLong)).ok());
  EXPECT_EQ(store->global_step(), 1);
  reference.Step(1, 1, {0});
  ExpectValues(*store, reference, "the round of the life before");
}

}  // namespace passel::testing

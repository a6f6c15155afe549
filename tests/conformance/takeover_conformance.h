// takeover_conformance.h - eviction, lives that are over, and the block claims that they held.
// A part of store_conformance.h.

#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "conformance/store_suite.h"

namespace passel::testing {

// --- Eviction ------------------------------------------------------------------------------------

TEST_P(StoreConformance, EvictedWorkerIsFencedOffUntilItOpensTheStoreAnew) {
  Make(2);
  const std::vector<ShardMemory> memory = host_->Memory();
  auto stores = OpenAll(2);
  const ParamView view = Pull(*stores[1]);
  GradientBuffer buffer = stores[1]->LendGradient();
  FillGradient(*stores[1], buffer, -100);
  ASSERT_TRUE(Evict(memory[0], 1, 1));  // on the lead: that is where members are looked after
  EXPECT_EQ(stores[1]->Pull(PullMode::kView).status().code(), Code::kAborted);
  const Result<PushOutcome> late = PushAndWait(*stores[1], buffer, view.stamp());
  EXPECT_EQ(late.status().code(), Code::kAborted) << late.status().ToString();
  EXPECT_THAT(late.status().message(), ::testing::HasSubstr("worker/1"));
  if (rounds()) {
    ASSERT_TRUE(PushConstant(*stores[0], -1).ok());
    ExpectAll(*stores[0], 1);
  }
  EXPECT_EQ(stores[1]->Leave().code(), Code::kAborted);
  stores[1] = Open(1);
  ASSERT_NE(stores[1], nullptr);
  ASSERT_TRUE(stores[1]->WaitUntilInitialized(Deadline::After(kLong)).ok());
  EXPECT_EQ(stores[1]->membership()[1].epoch, 2u);
}

TEST_P(StoreConformance, ReplacementOfAnEvictedWorkerNeedsNoGoodbye) {
  // The evicted process may be stopped for ever: it never says Leave(), on no shard.
  Make(2);
  const std::vector<ShardMemory> memory = host_->Memory();
  auto stores = OpenAll(2);
  ASSERT_TRUE(Evict(memory[0], 1, 1));
  StorePtr replacement = Open(1);
  ASSERT_NE(replacement, nullptr);
  ASSERT_TRUE(replacement->WaitUntilInitialized(Deadline::After(kLong)).ok());
  std::thread other([&] { EXPECT_TRUE(PushConstant(*replacement, -1).ok()); });
  EXPECT_TRUE(PushConstant(*stores[0], -1).ok());
  other.join();
  if (mode() == Mode::kHogwild || mode() == Mode::kSsp) {
    // The two pushes ran at once: where they met, one of them may be lost.
    const ParamView view = Pull(*stores[0], PullMode::kCopy);
    for (VarId id = 0; id < stores[0]->variables().size(); ++id) {
      for (const float x : view.values(id)) ASSERT_TRUE(x == 1 || x == 2) << x;
    }
  } else {
    ExpectAll(*stores[0], rounds() ? 1 : 2);
  }
  // What it pulls may have come with an answer of before.
  EXPECT_EQ(PushConstant(*stores[1], -1).status().code(), Code::kAborted);
}

// --- Claims --------------------------------------------------------------------------------------

TEST_P(AtOnceConformance, ABlockHeldByALiveTaskHoldsUpOnlyTheLockedMode) {
  Make(2);
  const std::vector<ShardMemory> memory = host_->Memory();
  auto stores = OpenAll(2);
  BlockState& block = memory[0].blocks[0];
  block.claim.store(Claim{1, 1}.Pack());  // worker 1 stopped in the middle of it
  const std::int64_t begin = MonotonicNs();
  const ParamView view = Pull(*stores[0]);
  GradientBuffer buffer = stores[0]->LendGradient();
  FillGradient(*stores[0], buffer, -1);
  const Result<Ticket> ticket =
      stores[0]->Push(buffer, view.stamp(), Deadline::After(std::chrono::milliseconds(150)));
  if (mode() != Mode::kLocked) {
    ASSERT_TRUE(ticket.ok()) << ticket.status().ToString();
    ExpectAll(*stores[0], 1);
    EXPECT_EQ(stores[0]->counters().overlapped_blocks.load(), 1u);
    EXPECT_EQ(block.claim.load(), (Claim{1, 1}.Pack())) << "the claim is still the other's";
    return;
  }
  EXPECT_EQ(ticket.status().code(), Code::kDeadlineExceeded);
  EXPECT_THAT(ticket.status().message(), ::testing::HasSubstr("worker/1"));
  EXPECT_GE(MonotonicNs() - begin, 150'000'000);
  EXPECT_LT(MonotonicNs() - begin, std::chrono::nanoseconds(kBound).count());
  EXPECT_EQ(memory[0].tasks[0].counters.half_applied.load(), 1u);
  // Stop() does not leave it waiting either.
  std::thread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    stores[1]->Stop();
  });
  const Result<PushOutcome> stopped = PushConstant(*stores[0], -1);
  stopper.join();
  EXPECT_EQ(stopped.status().code(), Code::kCancelled) << stopped.status().ToString();
  EXPECT_LT(MonotonicNs() - begin, std::chrono::nanoseconds(kBound).count());
}

TEST_P(AtOnceConformance, ABlockOfATaskWhoseLifeIsOverIsTakenOver) {
  Make(2);
  const std::vector<ShardMemory> memory = host_->Memory();
  auto stores = OpenAll(2);
  for (const ShardMemory& m : memory) {
    m.blocks[0].claim.store(Claim{1, 1}.Pack());
    ASSERT_TRUE(MarkDead(m, 1, 1));
  }
  ASSERT_TRUE(PushConstant(*stores[0], -1).ok());
  ExpectAll(*stores[0], 1);
  for (const ShardMemory& m : memory) {
    EXPECT_EQ(m.blocks[0].claim.load(), 0u);
    EXPECT_EQ(m.tasks[0].counters.taken_over_blocks.load(), 1u);
  }
}

TEST_P(LockFreeConformance, ABlockIsLeftOutWhereItsSlotsMustStayWhole) {
  for (const char* name : {"rmsprop", "adam", "ftrl"}) {
    SCOPED_TRACE(name);
    Make(2, *ParseOptimizer(name));
    const std::vector<ShardMemory> memory = host_->Memory();
    auto stores = OpenAll(2);
    const ShardMemory& lead = memory[0];
    const auto changed = [&](std::size_t block) {
      const float* begin = lead.values + lead.BlockBegin(block);
      return std::count_if(begin, begin + lead.BlockSize(block), [](float x) { return x != 0; });
    };
    BlockState& block = lead.blocks[0];
    block.claim.store(Claim{1, 1}.Pack());  // worker 1 stopped in the middle of it
    const std::int64_t begin = MonotonicNs();
    ASSERT_TRUE(PushConstant(*stores[0], -1).ok());
    EXPECT_LT(MonotonicNs() - begin, std::chrono::nanoseconds(kBound).count());
    EXPECT_EQ(changed(0), 0) << "the slots of this block are in use";
    EXPECT_GT(changed(1), 0);
    EXPECT_EQ(stores[0]->counters().overlapped_blocks.load(), 1u);
    EXPECT_EQ(block.claim.load(), (Claim{1, 1}.Pack()));
    if (!host_->InPlace()) continue;  // whether a worker of another host lives no kernel here knows
    // Its process is dead, but nobody has said so yet: who keeps finding the block held does.
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    ASSERT_GT(child, 0);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    std::atomic_ref(lead.tasks[1].identity[1].pid).store(child);
    const Deadline deadline = Deadline::After(kBound);
    while (changed(0) == 0 && !deadline.Expired()) {
      ASSERT_TRUE(PushConstant(*stores[0], -1).ok());
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    EXPECT_GT(changed(0), 0);
    EXPECT_EQ(StateOf(lead, 1).phase, Phase::kDead);
    EXPECT_EQ(lead.tasks[0].counters.taken_over_blocks.load(), 1u);
    EXPECT_EQ(block.claim.load(), 0u);
  }
}

}  // namespace passel::testing

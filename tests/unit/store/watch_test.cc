// Who is evicted, and who never is. The clock is the test's.

#include "store/watch.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <memory>

#include "store/block_claims.h"
#include "store/open_store.h"

namespace passel {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::int64_t kSlice = std::chrono::nanoseconds(kWaitSlice).count();

class WatchTest : public ::testing::Test {
 protected:
  WatchTest() {
    StorePlan plan;
    plan.num_workers = 3;
    plan.block_floats = 16;
    VariableInfo v;
    v.name = v.logical = "w";
    v.shape = {64};
    plan.variables = *VariableTable::Build({v}, 1);
    arena_ = std::move(*InProcessArena::Create(plan));
    for (int worker = 0; worker < 3; ++worker) {
      EXPECT_TRUE(Join(memory(), worker, SelfIdentity()).ok());
    }
    options_.stall_limit = seconds(2);
    watch_ = std::make_unique<Watch>(memory(), options_);
  }
  const ShardMemory& memory() const { return arena_->shard(0); }
  Phase phase(int worker) const { return StateOf(memory(), worker).phase; }
  // This worker waits for `worker` in a round for so long, looking at each slice.
  void AwaitMember(int worker, milliseconds time, std::uint64_t round = 1) {
    for (std::int64_t t = 0; t < std::chrono::nanoseconds(time).count(); t += kSlice) {
      watch_->LookAfter({Membership(memory())[static_cast<std::size_t>(worker)]}, WaitingOn::kRound,
                        round);
      clock_.AdvanceNs(kSlice);
    }
  }
  void Hold(std::size_t block, int worker) {
    memory().blocks[block].claim.store(Claim{1, worker}.Pack());
  }

  ScopedFakeClock clock_;
  WaitOptions options_;
  std::unique_ptr<InProcessArena> arena_;
  std::unique_ptr<Watch> watch_;
};

TEST_F(WatchTest, WhoIsSilentForTheStallLimitIsEvicted) {
  AwaitMember(1, milliseconds(1900));
  ASSERT_EQ(phase(1), Phase::kRunning);
  AwaitMember(1, milliseconds(300));
  EXPECT_EQ(phase(1), Phase::kEvicted);
}

TEST_F(WatchTest, WhoIsHeardOfIsNot) {
  for (int i = 0; i < 10; ++i) {
    AwaitMember(1, milliseconds(1500));
    memory().tasks[1].heartbeat_ns.store(i);  // whatever it says: its clock may not be ours
  }
  EXPECT_EQ(phase(1), Phase::kRunning);
}

TEST_F(WatchTest, OldHeartbeatsProveNothing) {
  clock_.AdvanceNs(std::chrono::nanoseconds(seconds(100)).count());
  AwaitMember(1, milliseconds(1500));
  EXPECT_EQ(phase(1), Phase::kRunning);
}

TEST_F(WatchTest, EachRoundHasAPatienceOfItsOwn) {
  for (std::uint64_t round = 1; round < 10; ++round) AwaitMember(1, milliseconds(1500), round);
  EXPECT_EQ(phase(1), Phase::kRunning);
}

// The clocks of ssp and the rounds of the mode that comes after it may have equal numbers.
TEST_F(WatchTest, StepsAndRoundsOfOneNumberAreNotOneWait) {
  const std::vector<Member> members = {Membership(memory())[1]};
  for (const WaitingOn what : {WaitingOn::kStep, WaitingOn::kRound, WaitingOn::kChange}) {
    for (std::int64_t t = 0; t < std::chrono::nanoseconds(milliseconds(1500)).count();
         t += kSlice) {
      watch_->LookAfter(members, what, 7);
      clock_.AdvanceNs(kSlice);
    }
  }
  EXPECT_EQ(phase(1), Phase::kRunning);
}

// Everybody was: the others had no chance to be heard of.
TEST_F(WatchTest, WhoWasFrozenItselfEvictsNobody) {
  AwaitMember(1, milliseconds(500));
  clock_.AdvanceNs(std::chrono::nanoseconds(seconds(100)).count());
  AwaitMember(1, milliseconds(500));
  EXPECT_EQ(phase(1), Phase::kRunning);
  AwaitMember(1, milliseconds(1500));
  EXPECT_EQ(phase(1), Phase::kEvicted);
}

TEST_F(WatchTest, JoinerIsGivenUpAfterItsPatienceOfOurTime) {
  memory().tasks[1].state.store(TaskState{2, Phase::kJoining}.Pack());
  AwaitMember(1, milliseconds(500));
  clock_.AdvanceNs(std::chrono::nanoseconds(seconds(100)).count());
  AwaitMember(1, milliseconds(200));
  EXPECT_EQ(phase(1), Phase::kJoining);
  AwaitMember(1, milliseconds(500));
  EXPECT_EQ(phase(1), Phase::kDead);
}

// A wait that is made in turns is one wait.
TEST_F(WatchTest, HolderOfABlockIsEvictedHoweverShortTheTurns) {
  Hold(0, 1);
  for (int turn = 0; turn < 45 && phase(1) == Phase::kRunning; ++turn) {
    ClaimPatience patience(*watch_);
    watch_->LookAfterHolder(memory().blocks[0]);
    clock_.AdvanceNs(kSlice);
  }
  EXPECT_EQ(phase(1), Phase::kEvicted);
  EXPECT_EQ(phase(0), Phase::kRunning);
}

// A sweep that goes up and down finds now this one first, now that one.
TEST_F(WatchTest, TwoHoldersAreBothSeen) {
  Hold(0, 1);
  Hold(3, 2);
  for (int push = 0; push < 100; ++push) {
    watch_->LookAfterHolder(memory().blocks[push % 2 == 0 ? 0 : 3]);
    clock_.AdvanceNs(kSlice);
  }
  EXPECT_EQ(phase(1), Phase::kEvicted);
  EXPECT_EQ(phase(2), Phase::kEvicted);
}

TEST_F(WatchTest, NobodyIsEvictedWhereOneWaits) {
  options_.on_stall = OnStall::kWait;
  watch_ = std::make_unique<Watch>(memory(), options_);
  AwaitMember(1, seconds(10));
  EXPECT_EQ(phase(1), Phase::kRunning);
  EXPECT_TRUE(watch_->failure().ok());
}

TEST_F(WatchTest, WhoWaitsTooLongFailsAndSaysForWhom) {
  options_.on_stall = OnStall::kFail;
  watch_ = std::make_unique<Watch>(memory(), options_);
  AwaitMember(1, milliseconds(1900));
  EXPECT_TRUE(watch_->failure().ok());
  AwaitMember(1, milliseconds(300));
  EXPECT_EQ(phase(1), Phase::kRunning);
  EXPECT_EQ(watch_->failure().code(), Code::kInternal);
  EXPECT_EQ(watch_->failure().message(), "worker/1 (process " + std::to_string(::getpid()) +
                                             ") holds the others up and has not answered for 2 s");
}

TEST_F(WatchTest, HolderThatGoesOnToAnotherBlockIsAtWork) {
  for (int i = 0; i < 100; ++i) {
    memory().blocks[0].claim.store(0);
    memory().blocks[1].claim.store(0);
    const auto block = static_cast<std::size_t>(i / 20 % 2);
    Hold(block, 1);
    watch_->LookAfterHolder(memory().blocks[block]);
    clock_.AdvanceNs(kSlice);
  }
  EXPECT_EQ(phase(1), Phase::kRunning);
}

}  // namespace
}  // namespace passel

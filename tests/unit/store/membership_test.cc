// Every transition of a worker's life, and every one that must be refused.

#include "store/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "store/block_claims.h"
#include "store/local_worker.h"
#include "store/open_store.h"
#include "tests/unit/store/small_plan.h"

namespace passel {
namespace {

class MembershipTest : public ::testing::Test {
 protected:
  MembershipTest() : arena_(std::move(*InProcessArena::Create(SmallPlan(2)))) {}
  const ShardMemory& memory() const { return arena_->shard(0); }
  void Set(Phase phase, std::uint32_t epoch = 5) {
    // Before the phase in which others look at it.
    if (phase == Phase::kRunning) memory().tasks[0].identity[epoch & 1] = SelfIdentity();
    memory().tasks[0].state.store(TaskState{epoch, phase}.Pack());
  }
  TaskState state() const { return StateOf(memory(), 0); }

  std::unique_ptr<InProcessArena> arena_;
};

constexpr Phase kAllPhases[] = {Phase::kExpected, Phase::kJoining, Phase::kRunning, Phase::kDone,
                                Phase::kDead,     Phase::kEvicted, Phase::kLeft,    Phase::kSpare};

TEST_F(MembershipTest, OnlyTheDrawnTransitionsHappen) {
  struct Move {
    const char* name;
    std::function<bool(std::uint32_t)> act;
    std::vector<Phase> from;
    Phase to;
  };
  const Move moves[] = {
      {"Leave",
       [&](std::uint32_t e) { return Leave(memory(), 0, e); },
       {Phase::kRunning},
       Phase::kDone},
      {"LeaveForNow",
       [&](std::uint32_t e) { return Leave(memory(), 0, e, Phase::kLeft); },
       {Phase::kRunning},
       Phase::kLeft},
      {"MarkDead",
       [&](std::uint32_t e) { return MarkDead(memory(), 0, e); },
       {Phase::kJoining, Phase::kRunning},
       Phase::kDead},
      {"Evict",
       [&](std::uint32_t e) { return Evict(memory(), 0, e); },
       {Phase::kRunning},
       Phase::kEvicted},
      {"AwaitSuccessor",
       [&](std::uint32_t e) { return AwaitSuccessor(memory(), 0, e); },
       {Phase::kRunning},
       Phase::kExpected},
      {"GiveUpExpecting",
       [&](std::uint32_t) { return GiveUpExpecting(memory(), 0); },
       {Phase::kExpected, Phase::kJoining},
       Phase::kEvicted},
  };
  for (const Move& move : moves) {
    for (const Phase from : kAllPhases) {
      SCOPED_TRACE(std::string(move.name) + " from " + std::to_string(static_cast<int>(from)));
      const bool legal = std::find(move.from.begin(), move.from.end(), from) != move.from.end();
      Set(from);
      EXPECT_EQ(move.act(5), legal);
      EXPECT_EQ(state(), (TaskState{5, legal ? move.to : from}));
      if (std::string(move.name) == "GiveUpExpecting") continue;
      for (const std::uint32_t other_life : {4u, 6u}) {
        Set(from);
        EXPECT_FALSE(move.act(other_life)) << "another life's epoch";
        EXPECT_EQ(state(), (TaskState{5, from}));
      }
    }
  }
}

TEST_F(MembershipTest, JoinCountsLivesAndIsRefusedWhileOneRuns) {
  for (const Phase from : {Phase::kExpected, Phase::kDone, Phase::kDead, Phase::kEvicted,
                           Phase::kLeft, Phase::kSpare}) {
    Set(from);
    const Result<std::uint32_t> epoch = Join(memory(), 0, SelfIdentity());
    ASSERT_TRUE(epoch.ok());
    EXPECT_EQ(*epoch, 6u);
    EXPECT_EQ(state(), (TaskState{6, Phase::kRunning}));
    EXPECT_EQ(LoadIdentity(memory().tasks[0], 6), SelfIdentity());
    EXPECT_EQ(Join(memory(), 0, SelfIdentity()).status().code(), Code::kAlreadyExists);
    EXPECT_EQ(state(), (TaskState{6, Phase::kRunning})) << "a refused join changes nothing";
  }
}

TEST_F(MembershipTest, JoinReplacesATaskWhoseProcessIsGone) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  ProcessIdentity who = IdentityOf(child);
  ASSERT_EQ(Join(memory(), 0, who).value(), 1u);
  EXPECT_EQ(Join(memory(), 0, SelfIdentity()).status().code(), Code::kAlreadyExists);
  ::kill(child, SIGKILL);
  siginfo_t info;
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  // A zombie is dead already, though nobody has reaped it.
  EXPECT_EQ(MarkDeadByKernel(memory()), 1);
  EXPECT_EQ(state(), (TaskState{1, Phase::kDead}));
  Set(Phase::kRunning, 1);
  memory().tasks[0].identity[1] = who;
  EXPECT_EQ(Join(memory(), 0, SelfIdentity()).value(), 2u);
  ::waitpid(child, nullptr, 0);
}

// A process of its own, stopped, that joins `memory` as worker 0.
class StoppedProcess {
 public:
  StoppedProcess(const ShardMemory& memory, Eviction eviction) : pid_(::fork()) {
    if (pid_ == 0) {
      for (;;) ::pause();
    }
    ::kill(pid_, SIGSTOP);
    ::waitpid(pid_, nullptr, WUNTRACED);
    who_ = IdentityOf(pid_);
    epoch_ = *Join(memory, 0, who_, {}, eviction);
  }
  ~StoppedProcess() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  bool lives() const { return ProbeLiveness(who_) == Liveness::kAlive; }
  std::uint32_t epoch() const { return epoch_; }

 private:
  pid_t pid_;
  ProcessIdentity who_;
  std::uint32_t epoch_ = 0;
};

TEST_F(MembershipTest, WhoIsEvictedIsKilledIfItSaidSo) {
  StoppedProcess process(memory(), Eviction::kKill);
  WorkerCounters& c = memory().tasks[0].counters;
  c.pushes_begun.store(3);
  c.pushes_ended.store(2);
  EXPECT_FALSE(Evict(memory(), 0, process.epoch() + 1)) << "another life";
  EXPECT_TRUE(process.lives());
  EXPECT_TRUE(Evict(memory(), 0, process.epoch()));
  EXPECT_FALSE(process.lives());
  EXPECT_EQ(state(), (TaskState{process.epoch(), Phase::kEvicted}));
  EXPECT_EQ(c.half_applied.load(), 1u);
}

TEST_F(MembershipTest, WhoSaidThatItIsFencedOffLives) {
  StoppedProcess process(memory(), Eviction::kFence);
  EXPECT_TRUE(Evict(memory(), 0, process.epoch()));
  EXPECT_TRUE(process.lives());
  EXPECT_EQ(state(), (TaskState{process.epoch(), Phase::kEvicted}));
}

TEST_F(MembershipTest, NobodyIsKilledWhoHasLeftOrIsSomebodyElse) {
  StoppedProcess process(memory(), Eviction::kKill);
  ASSERT_TRUE(Leave(memory(), 0, process.epoch()));
  EXPECT_FALSE(Evict(memory(), 0, process.epoch()));
  EXPECT_TRUE(process.lives());
  // The pid is another's by now: that life is over.
  Set(Phase::kRunning, process.epoch());
  memory().tasks[0].identity[process.epoch() & 1] = SelfIdentity();
  ++memory().tasks[0].identity[process.epoch() & 1].start_time;
  memory().tasks[0].identity[process.epoch() & 1].pid = ::getppid();
  EXPECT_TRUE(Evict(memory(), 0, process.epoch()));
  // And of another pid namespace nobody can be.
  Set(Phase::kRunning, process.epoch());
  ++memory().tasks[0].identity[process.epoch() & 1].pid_namespace;
  EXPECT_TRUE(Evict(memory(), 0, process.epoch()));
  EXPECT_TRUE(process.lives());
}

// It shares the memory of this shard alone, and has not heard that the lead takes it for dead.
TEST_F(MembershipTest, WhoRepresentsALaterLifeEndsTheProcessOfTheFormer) {
  StoppedProcess process(memory(), Eviction::kKill);
  const ProcessIdentity session{1, 0, 77, 0};
  const auto life =
      LocalWorker::Represent(memory(), SmallPlan(2).Rules(), 0, process.epoch() + 1, session, {});
  ASSERT_TRUE(life.ok()) << life.status().ToString();
  EXPECT_FALSE(process.lives());
  EXPECT_EQ(state(), (TaskState{process.epoch() + 1, Phase::kRunning}));
}

TEST_F(MembershipTest, NobodyKillsItsOwnProcess) {
  ASSERT_TRUE(Join(memory(), 0, SelfIdentity(), {}, Eviction::kKill).ok());
  EXPECT_TRUE(Evict(memory(), 0, 1));
  EXPECT_EQ(state(), (TaskState{1, Phase::kEvicted}));
}

// Whoever finds the process dead first, the supervisor say: it was evicted.
TEST_F(MembershipTest, DeathOfOneThatIsBeingEvictedIsItsEviction) {
  Set(Phase::kRunning, 5);
  memory().tasks[0].evicted.store(5);
  EXPECT_TRUE(MarkDead(memory(), 0, 5));
  EXPECT_EQ(state(), (TaskState{5, Phase::kEvicted}));
  Set(Phase::kRunning, 6);
  EXPECT_TRUE(MarkDead(memory(), 0, 6));
  EXPECT_EQ(state(), (TaskState{6, Phase::kDead})) << "another life";
}

TEST_F(MembershipTest, LifeThatWasGivenUpWhileItJoinedWritesWhereNobodyLooks) {
  const ProcessIdentity first{1, 0, 1, 1};
  ASSERT_TRUE(Join(memory(), 0, first).ok());
  ASSERT_TRUE(Leave(memory(), 0, 1));
  ASSERT_TRUE(Join(memory(), 0, SelfIdentity()).ok());
  EXPECT_EQ(LoadIdentity(memory().tasks[0], 1), first) << "both in one place";
  EXPECT_EQ(LoadIdentity(memory().tasks[0], 2), SelfIdentity());
}

// It was evicted between its join on the lead and this.
TEST_F(MembershipTest, WhoComesLateToAnotherShardDoesNotPassForALaterLife) {
  WorkerCounters& c = memory().tasks[0].counters;
  Follow(memory(), 0, 3, SelfIdentity());
  c.pushes_begun.store(8);  // which is at work
  c.pushes_ended.store(7);
  Follow(memory(), 0, 1, ProcessIdentity{1, 0, 1, 1});
  EXPECT_EQ(state(), (TaskState{3, Phase::kRunning}));
  EXPECT_EQ(LoadIdentity(memory().tasks[0], 3), SelfIdentity());
  EXPECT_EQ(c.half_applied.load(), 0u);
  EXPECT_EQ(c.pushes_ended.load(), 7u);
}

TEST_F(MembershipTest, NobodyJoinsWithoutAnIdentity) {
  EXPECT_EQ(Join(memory(), 0, ProcessIdentity{}).status().code(), Code::kInternal);
  EXPECT_EQ(state(), (TaskState{0, Phase::kExpected}));
}

TEST_F(MembershipTest, JoinWaitsForAnotherThatIsJoiningAndReplacesItWhenItDoesNotFinish) {
  Set(Phase::kJoining, 3);
  const std::int64_t begin = MonotonicNs();
  const Result<std::uint32_t> epoch = Join(memory(), 0, SelfIdentity());
  EXPECT_GE(MonotonicNs() - begin, std::chrono::nanoseconds(kJoinPatience).count());
  ASSERT_TRUE(epoch.ok()) << epoch.status().ToString();
  EXPECT_EQ(*epoch, 4u);
  // One that does finish is respected.
  Set(Phase::kJoining, 7);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    Set(Phase::kRunning, 7);
  });
  EXPECT_EQ(Join(memory(), 0, SelfIdentity()).status().code(), Code::kAlreadyExists);
  other.join();
  EXPECT_EQ(state(), (TaskState{7, Phase::kRunning}));
}

TEST_F(MembershipTest, OfManyThatJoinAtOnceOneWins) {
  for (int race = 0; race < 200; ++race) {
    Set(Phase::kDone, 0);
    std::atomic<int> winners{0};
    std::atomic<int> ready{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        ready.fetch_add(1);
        while (ready.load() < 4) std::this_thread::yield();
        const Result<std::uint32_t> epoch = Join(memory(), 0, SelfIdentity());
        if (epoch.ok()) {
          winners.fetch_add(1);
          EXPECT_EQ(*epoch, 1u);
        } else {
          EXPECT_EQ(epoch.status().code(), Code::kAlreadyExists);
        }
      });
    }
    for (std::thread& t : threads) t.join();
    ASSERT_EQ(winners.load(), 1);
    ASSERT_EQ(state(), (TaskState{1, Phase::kRunning}));
  }
}

TEST_F(MembershipTest, JoiningMakesPreparedDecisionsFail) {
  memory().state->decision.store(Decision{9, 4, 1}.Pack());
  ASSERT_TRUE(Join(memory(), 0, SelfIdentity()).ok());
  const Decision after = Decision::Unpack(memory().state->decision.load());
  EXPECT_EQ(after.round, 9u);
  EXPECT_EQ(after.worker, 1);
  EXPECT_EQ(after.generation, 5u);
}

TEST_F(MembershipTest, PushThatWasNotEndedCountsAsHalfAppliedOnce) {
  WorkerCounters& c = memory().tasks[0].counters;
  Set(Phase::kRunning);
  c.pushes_begun.store(8);
  c.pushes_ended.store(7);
  EXPECT_TRUE(MarkDead(memory(), 0, 5));
  EXPECT_FALSE(MarkDead(memory(), 0, 5));
  EXPECT_EQ(c.half_applied.load(), 1u);
  EXPECT_EQ(c.pushes_ended.load(), 8u);
  // Evicted first, killed afterwards: the next life counts it.
  c.pushes_begun.store(9);
  Set(Phase::kEvicted);
  ASSERT_TRUE(Join(memory(), 0, SelfIdentity()).ok());
  EXPECT_EQ(c.half_applied.load(), 2u);
  EXPECT_EQ(c.pushes_ended.load(), 9u);
}

TEST_F(MembershipTest, AllWorkersEndedOnlyWhenNobodyIsExpectedJoiningOrRunning) {
  memory().tasks[1].state.store(TaskState{1, Phase::kDone}.Pack());
  for (const Phase phase : kAllPhases) {
    Set(phase);
    const bool ended =
        phase != Phase::kExpected && phase != Phase::kJoining && phase != Phase::kRunning;
    EXPECT_EQ(AllWorkersEnded(memory()), ended);
  }
}

TEST_F(MembershipTest, EveryTransitionIsInTheEventRing) {
  ASSERT_TRUE(Join(memory(), 0, SelfIdentity()).ok());
  memory().state->global_step.store(12);
  ASSERT_TRUE(Leave(memory(), 0, 1));
  const EventRing& ring = *memory().events;
  ASSERT_EQ(ring.next.load(), 2u);
  EXPECT_EQ(ring.records[0].number.load(), 1u);
  EXPECT_EQ(TaskState::Unpack(ring.records[0].state.load()), (TaskState{1, Phase::kRunning}));
  EXPECT_EQ(TaskState::Unpack(ring.records[1].state.load()), (TaskState{1, Phase::kDone}));
  EXPECT_EQ(ring.records[1].global_step.load(), 12);
  EXPECT_EQ(ring.records[1].pid.load(), ::getpid());
  for (std::uint64_t i = 0; i < 3 * EventRing::kRecords; ++i) {
    Set(Phase::kRunning);
    ASSERT_TRUE(Evict(memory(), 0, 5));
  }
  EXPECT_EQ(ring.next.load(), 2 + 3 * EventRing::kRecords);
  EXPECT_EQ(ring.records[1].number.load(), 2 + 3 * EventRing::kRecords);
}

// --- Claims --------------------------------------------------------------------------------------

TEST_F(MembershipTest, ClaimsAreExclusiveAndOnlyTheHolderGivesThemBack) {
  BlockState& block = memory().blocks[0];
  const Claim mine{1, 0};
  const Claim other{1, 1};
  EXPECT_TRUE(TryClaim(block, mine));
  EXPECT_FALSE(TryClaim(block, mine));
  EXPECT_FALSE(TryClaim(block, other));
  ReleaseClaim(block, other);
  EXPECT_FALSE(TryClaim(block, other)) << "not the holder's release";
  ReleaseClaim(block, Claim{2, 0});
  EXPECT_FALSE(TryClaim(block, other)) << "another life's release";
  ReleaseClaim(block, mine);
  EXPECT_TRUE(TryClaim(block, other));
}

TEST_F(MembershipTest, ClaimsAreTakenOverFromLivesThatAreOverOnly) {
  BlockState& block = memory().blocks[0];
  const Claim mine{1, 1};
  EXPECT_FALSE(TryTakeOver(memory(), block, mine)) << "free blocks are claimed, not taken over";
  for (const Phase phase : kAllPhases) {
    for (const std::uint32_t epoch : {4u, 5u, 6u}) {
      Set(phase, 5);
      block.claim.store(Claim{epoch, 0}.Pack());
      const bool lives = phase == Phase::kRunning && epoch == 5;
      EXPECT_EQ(TryTakeOver(memory(), block, mine), !lives);
      EXPECT_EQ(Claim::Unpack(block.claim.load()).worker, lives ? 0 : 1);
    }
  }
  block.claim.store(~std::uint64_t{0});  // garbage names nobody
  EXPECT_TRUE(TryTakeOver(memory(), block, mine));
}

TEST_F(MembershipTest, PatienceSpinsAsLongHoweverLongItsTurns) {
  Watch watch(memory(), {});
  for (const int turn_ns : {200, 3000}) {
    ClaimPatience patience(watch, std::chrono::nanoseconds(turn_ns));
    const std::int64_t begin = MonotonicNs();
    int turns = 0;
    while (patience.yields() == 0) {
      ASSERT_TRUE(patience.Wait(memory().blocks[0], Deadline::After(std::chrono::seconds(20))));
      ++turns;
    }
    EXPECT_GE(MonotonicNs() - begin, 15'000);
    EXPECT_LE(turns, 2 + 16'000 / turn_ns);
    EXPECT_FALSE(patience.Sleeps());
  }
}

TEST_F(MembershipTest, PatienceHasTheHolderLookedAfter) {
  BlockState& block = memory().blocks[0];
  Set(Phase::kRunning, 5);
  block.claim.store(Claim{5, 0}.Pack());
  constexpr std::int64_t kStallNs = 200'000'000;
  Watch watch(memory(), {.stall_limit = std::chrono::nanoseconds(kStallNs)});
  ClaimPatience patience(watch);
  const std::int64_t begin = MonotonicNs();
  while (state().phase == Phase::kRunning) {
    ASSERT_TRUE(patience.Wait(block, Deadline::After(std::chrono::seconds(20))));
  }
  EXPECT_GE(MonotonicNs() - begin, kStallNs);
  EXPECT_LT(MonotonicNs() - begin, 5'000'000'000);
  EXPECT_EQ(state(), (TaskState{5, Phase::kEvicted}));
}

// --- Clocks --------------------------------------------------------------------------------------

class ClockTest : public ::testing::Test {
 protected:
  ClockTest() : arena_(std::move(*InProcessArena::Create(SmallPlan(4)))) {}
  const ShardMemory& memory() const { return arena_->shard(0); }
  void Set(int worker, Phase phase, std::uint64_t steps, std::uint32_t clock_epoch = 5) {
    memory().tasks[worker].state.store(TaskState{5, phase}.Pack());
    memory().tasks[worker].clock.store(Arrival{clock_epoch, steps}.Pack());
  }
  std::uint64_t clock(int worker) const {
    return Arrival::Unpack(memory().tasks[worker].clock.load()).at;
  }

  std::unique_ptr<InProcessArena> arena_;
};

TEST_F(ClockTest, SlowestIsTheLowestOfThoseWhoHoldOthersUp) {
  EXPECT_EQ(SlowestClock(memory(), 0, true), std::nullopt) << "nobody has joined";
  Set(0, Phase::kRunning, 9);
  EXPECT_EQ(SlowestClock(memory(), 0, true), std::nullopt);
  EXPECT_EQ(SlowestClock(memory(), 1, true), 9u);
  for (const Phase gone : {Phase::kExpected, Phase::kDone, Phase::kDead, Phase::kEvicted}) {
    Set(1, gone, 2);
    EXPECT_EQ(SlowestClock(memory(), 3, true), 9u) << static_cast<int>(gone);
  }
  Set(1, Phase::kRunning, 7);
  Set(2, Phase::kJoining, 4);
  EXPECT_EQ(SlowestClock(memory(), 3, false), 7u);
  EXPECT_EQ(SlowestClock(memory(), 3, true), 4u);
  Set(2, Phase::kJoining, 4, /*clock_epoch=*/4);
  EXPECT_EQ(SlowestClock(memory(), 3, true), 7u) << "the clock of the life before";
}

TEST_F(ClockTest, WhoJoinsStartsAtTheSlowestOrAtTheHighestThereWas) {
  Set(0, Phase::kDone, 30);
  Set(1, Phase::kDead, 50);
  ASSERT_TRUE(Join(memory(), 2, SelfIdentity()).ok());
  EXPECT_EQ(clock(2), 50u) << "nobody runs";
  Set(0, Phase::kRunning, 60);
  Set(2, Phase::kRunning, 55);
  Set(3, Phase::kJoining, 1);
  ASSERT_TRUE(Join(memory(), 1, SelfIdentity()).ok());
  EXPECT_EQ(clock(1), 55u) << "who is joining itself is no measure";
  EXPECT_TRUE(Arrival::Unpack(memory().tasks[1].clock.load()).IsOf(6));
}

TEST_F(ClockTest, AWorkerThatJoinsDuringALookIsSeenOrStartsNoLower) {
  // One worker runs, and never starts a step more than a step ahead of what it saw; others come and
  // go. Whoever begins must not find it further ahead than that.
  Set(0, Phase::kRunning, 0);
  memory().tasks[0].identity[1] = SelfIdentity();
  std::atomic<bool> done{false};
  std::thread runner([&] {
    std::uint64_t own = 0;
    while (!done) {
      if (SlowestClock(memory(), 0, true).value_or(own) + 1 < own) continue;
      memory().tasks[0].clock.store(Arrival{5, ++own}.Pack());
    }
  });
  for (int i = 0; i < 3000; ++i) {
    const int worker = 1 + i % 3;
    const Result<std::uint32_t> epoch = Join(memory(), worker, SelfIdentity());
    ASSERT_TRUE(epoch.ok()) << epoch.status().ToString();
    ASSERT_LE(clock(0), clock(worker) + 2) << "join " << i;
    ASSERT_TRUE(Leave(memory(), worker, *epoch));
  }
  done = true;
  runner.join();
  EXPECT_GT(clock(0), 3000u) << "it was held up for ever";
}

}  // namespace
}  // namespace passel

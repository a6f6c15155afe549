// Workers that die or stop at a named place while the others go on.

#include <sstream>

#include "base/random.h"
#include "multiprocess/engine_job.h"
#include "store/shard_reader.h"
#include "support/sanitized.h"

namespace passel::testing {

namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kRounds = 60;
constexpr milliseconds kSurvivorsFinish{4000};  // after the death: without the grace of 5 s

struct Place {
  const char* failpoint;
  int most_hits;  // a worker passes it at least so often within kRounds rounds, as a rule
};
void PrintTo(const Place& place, std::ostream* out) { *out << place.failpoint; }

StorePlan ReplicasPlan(int replicas, int shards, const OptimizerConfig& optimizer) {
  StorePlan plan = TestPlan(Mode::kReplicas, shards, 3, optimizer);
  plan.mode.number = replicas;
  return plan;
}

// Three workers of `job`, of which `victim` is to die at `failpoint`. False if it ended as the
// others did, since on a busy machine they may leave it less to do.
bool VictimDies(EngineJob& job, int victim, const std::string& failpoint) {
  SCOPED_TRACE("worker " + std::to_string(victim) + " with " + failpoint);
  std::vector<Child> workers = job.StartAll(kRounds, victim, failpoint);
  Child& dead = workers[static_cast<std::size_t>(victim)];
  EXPECT_TRUE(dead.WaitEnded(kPatience));
  const std::int64_t death = MonotonicNs();
  for (Child& worker : workers) {
    if (&worker == &dead) continue;
    EXPECT_EQ(worker.End(), 0);
  }
  EXPECT_LT(MonotonicNs() - death, std::chrono::nanoseconds(kSurvivorsFinish).count());
  const bool died = dead.code() == -SIGKILL;
  EXPECT_TRUE(died || dead.code() == 0) << dead.code();
  return died;
}

// Kills each of three workers of a job in rounds at the place, and expects every block to have been
// applied once. `surely`: whoever it is comes to the place.
void KillEachAt(const Place& place, const StorePlan& plan, bool counting, bool surely) {
  constexpr int kAttempts = 5;
  Random random(TestSeed());
  const bool backup = plan.Rules().RoundSize() < 3;  // the members of a round cannot be named
  for (int victim = 0; victim < 3; ++victim) {
    auto hit = 1 + random.Below(static_cast<std::uint64_t>(place.most_hits));
    bool died = false;
    for (int attempt = 0; attempt < kAttempts && !died; ++attempt, hit = 1 + hit / 4) {
      EngineJob job(plan, counting);
      died = VictimDies(job, victim,
                        std::string(place.failpoint) + ":" + std::to_string(hit) + ":kill");
      const std::uint64_t survivors = 7u & ~(died ? 1u << victim : 0u);
      ASSERT_NO_FATAL_FAILURE(job.ExpectRoundsApplied(kRounds, backup ? 0 : survivors));
      if (!surely) break;
    }
    EXPECT_TRUE(died || !surely) << "worker " << victim << " never came to " << place.failpoint;
  }
}

// Place, shards, and the last parameter behind `prefix`.
template <typename Info>
std::string NameOfKill(const std::string& prefix, const Info& test) {
  const auto& [place, shards, last] = test.param;
  std::ostringstream name;
  name << NameOf(place.failpoint) << "_" << shards << "_" << prefix << last;
  return name.str();
}

class RoundFailpoint : public ::testing::TestWithParam<std::tuple<Place, int, const char*>> {};

TEST_P(RoundFailpoint, SurvivorsFinishAndEveryBlockIsAppliedOnce) {
  const auto& [place, shards, optimizer] = GetParam();
  const bool counting = std::string(optimizer) == "sgd";
  const OptimizerConfig config = counting ? Sgd(1.0) : *ParseOptimizer(optimizer);
  // Only whoever decides passes "round.decided", and nobody can say who that is.
  KillEachAt(place, TestPlan(Mode::kBarrier, shards, 3, config), counting,
             std::string(place.failpoint) != "round.decided");
}

INSTANTIATE_TEST_SUITE_P(
    Kill, RoundFailpoint,
    ::testing::Combine(::testing::Values(Place{"round.arrived", 50}, Place{"round.decided", 8},
                                         Place{"round.saving", 60}, Place{"round.saved", 60},
                                         Place{"round.piece", 40}, Place{"round.applied", 60},
                                         Place{"round.before_finish", 50}),
                       ::testing::ValuesIn(Cases<int>({1, 3}, {3})),
                       ::testing::Values("sgd", "adam")),
    [](const auto& test) { return NameOfKill("", test); });
// Who dies there holds the others up for a second.
INSTANTIATE_TEST_SUITE_P(KillAsItJoins, RoundFailpoint,
                         ::testing::Values(std::tuple(Place{"join.claimed", 1}, 3, "adam")),
                         [](const auto& test) { return NameOfKill("", test); });

class ReplicasFailpoint : public ::testing::TestWithParam<std::tuple<Place, int, int>> {};

TEST_P(ReplicasFailpoint, SurvivorsFinishAndEveryBlockIsAppliedOnce) {
  const auto& [place, shards, replicas] = GetParam();
  const bool backup = replicas < 3;
  // A worker that rounds do not wait for may never come to a place.
  KillEachAt(place, ReplicasPlan(replicas, shards, backup ? Sgd(1.0) : *ParseOptimizer("adam")),
             backup, !backup);
}

INSTANTIATE_TEST_SUITE_P(
    Kill, ReplicasFailpoint,
    ::testing::Combine(::testing::Values(Place{"round.arrived", 50}, Place{"round.saved", 60},
                                         Place{"round.piece", 40}, Place{"round.applied", 60},
                                         Place{"round.before_finish", 50}),
                       ::testing::ValuesIn(Cases<int>({1, 3}, {3})), ::testing::Values(1, 2, 3, 5)),
    [](const auto& test) { return NameOfKill("R", test); });
INSTANTIATE_TEST_SUITE_P(KillAsItJoins, ReplicasFailpoint,
                         ::testing::Combine(::testing::Values(Place{"join.claimed", 1}),
                                            ::testing::Values(3), ::testing::Values(2, 5)),
                         [](const auto& test) { return NameOfKill("R", test); });

// Two die within the same block, one after the other: the second while it repairs what the first
// has left. The third goes on with the piece that the second had reached.
TEST(EngineFailpoints, WorkerThatDiesWhileItRepairsABlockLeavesItToTheNext) {
  for (const char* first : {"round.saving:30:kill", "round.saved:31:kill", "round.piece:22:kill"}) {
    for (const char* second : {"round.restored:1:kill", "round.resumed:1:kill"}) {
      SCOPED_TRACE(std::string(first) + ", then " + second);
      EngineJob job(Mode::kBarrier, 1, 3, *ParseOptimizer("adam"), false);
      std::vector<Child> workers;
      workers.push_back(job.Start(0, kRounds, first));
      // Either may be the one that repairs; the other must go on then.
      workers.push_back(job.Start(1, kRounds, second));
      workers.push_back(job.Start(2, kRounds));
      for (Child& worker : workers) ASSERT_TRUE(worker.WaitEnded(kPatience));
      EXPECT_EQ(workers[0].code(), -SIGKILL);
      EXPECT_EQ(workers[2].code(), 0);
      const bool died = workers[1].code() == -SIGKILL;
      EXPECT_TRUE(died || workers[1].code() == 0);
      ASSERT_NO_FATAL_FAILURE(job.ExpectRoundsApplied(kRounds, died ? 4u : 6u));
    }
  }
}

// Others took it for dead meanwhile: nobody has its place.
TEST(EngineFailpoints, WhoTakesTooLongToJoinIsToldToStartAgain) {
  EngineJob job(Mode::kBarrier, 1, 2, Sgd(1.0), true);
  Child slow = job.Start(1, kRounds, "join.claimed:1:stop");
  ASSERT_TRUE(slow.WaitStopped(kPatience));
  Child other = job.Start(0, kRounds);
  EXPECT_EQ(other.End(), 0);
  slow.Kill(SIGCONT);
  EXPECT_EQ(slow.End(), kExitAborted);
}

// `who` of workers that work until they are told to stop takes part again, and all ends well. Not
// after a number of rounds: thousands may be over before its process has started.
void TakesPartAgain(EngineJob& job, std::vector<Child>& workers, int who) {
  const std::uint64_t before = job.board().acked[who].load();
  ASSERT_TRUE(Await(kPatience, [&] { return job.board().acked[who].load() > before + 100; }))
      << "it does not take part any more";
  EXPECT_EQ(StateOf(job.memory(0), who), (TaskState{2, Phase::kRunning}));
  job.Stop();
  for (Child& worker : workers) EXPECT_EQ(worker.End(), 0);
  const std::uint64_t rounds = job.memory(0).state->completed_round.load();
  ASSERT_LT(rounds, std::uint64_t{Board::kRounds});
  ASSERT_NO_FATAL_FAILURE(job.ExpectRoundsApplied(rounds, 7u & ~(1u << who)));
}

TEST(EngineFailpoints, RestartedWorkerJoinsTheRoundsAgain) {
  for (const char* place : {"round.arrived:9:kill", "round.saving:30:kill", "round.saved:30:kill",
                            "round.piece:20:kill", "round.applied:30:kill", "join.claimed:1:kill",
                            "join.follow:2:kill"}) {
    SCOPED_TRACE(place);
    EngineJob job(Mode::kBarrier, 3, 3, *ParseOptimizer("adam"), false);
    std::vector<Child> workers = job.StartAll(0, 2, place);
    ASSERT_EQ(workers[2].End(), -SIGKILL);
    workers[2] = job.Start(2, 0);
    ASSERT_NO_FATAL_FAILURE(TakesPartAgain(job, workers, 2));
  }
}

TEST(EngineFailpoints, WorkerThatDiesWithHalfASetJoinsTheRoundsAgain) {
  for (const char* place : {"round.arrived:9:kill", "round.saved:30:kill", "round.piece:20:kill",
                            "round.applied:30:kill", "join.clock:1:kill"}) {
    for (const int victim : {0, 2}) {
      SCOPED_TRACE(std::string(place) + " in worker " + std::to_string(victim));
      EngineJob job(ReplicasPlan(4, 3, *ParseOptimizer("adam")), false);
      std::vector<Child> workers = job.StartAll(0, victim, place);
      Child& dead = workers[static_cast<std::size_t>(victim)];
      ASSERT_EQ(dead.End(), -SIGKILL);
      dead = job.Start(victim, 0);
      ASSERT_NO_FATAL_FAILURE(TakesPartAgain(job, workers, victim));
    }
  }
}

TEST(EngineFailpoints, StoppedWorkerIsEvictedByItsEnd) {
  for (const char* place : {"round.arrived:7:stop", "round.saved:20:stop"}) {
    SCOPED_TRACE(place);
    EngineJob job(Mode::kBarrier, 3, 3, *ParseOptimizer("adam"), false, 600);
    std::vector<Child> workers = job.StartAll(kRounds, 1, place, Eviction::kKill);
    ASSERT_TRUE(workers[1].WaitStopped(kPatience));
    for (const std::size_t k : {0, 2}) EXPECT_EQ(workers[k].End(), 0);
    EXPECT_EQ(workers[1].End(), -SIGKILL);
    EXPECT_EQ(StateOf(job.memory(0), 1).phase, Phase::kEvicted);
    ASSERT_NO_FATAL_FAILURE(job.ExpectRoundsApplied(kRounds, 5));
  }
}

TEST(EngineFailpoints, FormerLifeThatWakesUpDoesNotDisturbItsSuccessor) {
  for (const char* place : {"round.arrived:7:stop", "round.applied:20:stop"}) {
    SCOPED_TRACE(place);
    EngineJob job(Mode::kBarrier, 3, 3, *ParseOptimizer("adam"), false, /*stall_ms=*/600);
    std::vector<Child> workers = job.StartAll(0, 1, place);
    ASSERT_TRUE(workers[1].WaitStopped(kPatience));
    ASSERT_TRUE(
        Await(kPatience, [&] { return StateOf(job.memory(0), 1).phase == Phase::kEvicted; }));
    Child former = std::exchange(workers[1], job.Start(1, 0));
    const std::uint64_t before = job.board().acked[1].load();
    ASSERT_TRUE(Await(kPatience, [&] { return job.board().acked[1].load() > before; }));
    former.Kill(SIGCONT);
    EXPECT_EQ(former.End(), kExitAborted);
    ASSERT_NO_FATAL_FAILURE(TakesPartAgain(job, workers, 1));
  }
}

// It had applied the block as far as it knew, and was stopped before it could say so. Whoever took
// the block over has put the last piece back, and is not done with it.
TEST(EngineFailpoints, FormerHolderThatWakesUpDoesNotCallABlockDoneThatIsBeingRepaired) {
  EngineJob job(Mode::kBarrier, 1, 3, *ParseOptimizer("adam"), false, /*stall_ms=*/600);
  std::vector<Child> workers;
  for (int k = 0; k < 3; ++k) {
    workers.push_back(
        job.Start(k, kRounds, k == 1 ? "round.applied:20:stop" : "round.restored:1:stop"));
  }
  ASSERT_TRUE(workers[1].WaitStopped(kPatience));
  Child* repairs = nullptr;
  ASSERT_TRUE(Await(kPatience, [&] {
    for (const std::size_t k : {0, 2}) {
      if (workers[k].WaitStopped(milliseconds(0))) repairs = &workers[k];
    }
    return repairs != nullptr;
  }));
  const ShardMemory& m = job.memory(0);
  const UndoTag tag = UndoTag::Unpack(m.tasks[1].undo_tag.load());
  const BlockState& block = m.blocks[tag.piece / m.PiecesPerBlock()];
  workers[1].Kill(SIGCONT);
  EXPECT_EQ(workers[1].End(), kExitAborted);
  EXPECT_EQ(block.round.load(), tag.round - 1);
  repairs->Kill(SIGCONT);
  for (const std::size_t k : {0, 2}) EXPECT_EQ(workers[k].End(), 0);
  ASSERT_NO_FATAL_FAILURE(job.ExpectRoundsApplied(kRounds, 5));
}

// --- Bounded staleness ---------------------------------------------------------------------------

constexpr int kBound = 4;

StorePlan SspPlan(int shards) {
  StorePlan plan = TestPlan(Mode::kSsp, shards, 3, Sgd(1.0));
  plan.mode.number = kBound;
  return plan;
}

TEST(SspFailpoints, WhoDiesHoldsTheOthersUpForAMomentOnly) {
  constexpr std::uint64_t kPushes = 400;
  for (const int shards : {1, 3}) {
    for (const char* place :
         {"ssp.completed:50:kill", "push.claimed:70:kill", "push.before_version:50:kill",
          "join.claimed:1:kill", "join.clock:1:kill"}) {
      SCOPED_TRACE(std::string(place) + " on " + std::to_string(shards));
      EngineJob job(SspPlan(shards), true);
      std::vector<Child> workers = job.StartAll(kPushes, 1, place);
      ASSERT_EQ(workers[1].End(), -SIGKILL);
      const std::int64_t death = MonotonicNs();
      for (const std::size_t k : {0, 2}) EXPECT_EQ(workers[k].End(), 0);
      EXPECT_LT(MonotonicNs() - death, std::chrono::nanoseconds(kSurvivorsFinish).count());
      EXPECT_GE(job.acked(), 2 * kPushes);
      EXPECT_LE(job.Range().second, static_cast<float>(job.acked() + 1));
      EXPECT_LE(job.max_clock_lead(), std::uint64_t{kBound});
    }
  }
}

TEST(SspFailpoints, WhoTakesLongToJoinDoesNotStartFarBehind) {
  for (const char* place :
       {"join.claimed:1:stop", "join.before_clock:1:stop", "join.clock:1:stop"}) {
    SCOPED_TRACE(place);
    EngineJob job(SspPlan(1), true);
    std::vector<Child> workers;
    for (int k = 0; k < 2; ++k) workers.push_back(job.Start(k, 0));
    const Deadline deadline = Deadline::After(kPatience);
    while (job.acked() < 100 && !deadline.Expired()) ::usleep(1000);
    workers.push_back(job.Start(2, 0, place));
    ASSERT_TRUE(workers[2].WaitStopped(kPatience));
    ::usleep(50'000);  // the others do thousands of steps, unless its clock holds them up
    const auto clock = [&](int worker) {
      return Arrival::Unpack(job.memory(0).tasks[worker].clock.load()).at;
    };
    const std::uint64_t slowest = std::min(clock(0), clock(1));
    workers[2].Kill(SIGCONT);
    while (job.board().acked[2].load() < 100 && !deadline.Expired()) ::usleep(1000);
    EXPECT_GE(job.board().acked[2].load(), 100u) << "it did not get on";
    EXPECT_LE(job.max_clock_lead(), std::uint64_t{kBound});
    job.Stop();
    for (Child& worker : workers) EXPECT_EQ(worker.End(), 0);
    EXPECT_GE(clock(2), slowest + job.board().acked[2].load()) << "it started far behind";
  }
}

// --- Async modes ---------------------------------------------------------------------------------

class PushFailpoint : public ::testing::TestWithParam<std::tuple<const char*, Mode, int>> {};

TEST_P(PushFailpoint, DeathInAPushDelaysNobodyAndLosesNoOtherPush) {
  const auto& [place, mode, shards] = GetParam();
  EngineJob job(mode, shards, 3, Sgd(1.0), true);
  constexpr std::uint64_t kPushes = 400;
  std::vector<Child> workers = job.StartAll(kPushes, 1, std::string(place) + ":50:kill");
  ASSERT_EQ(workers[1].End(), -SIGKILL);
  const std::int64_t death = MonotonicNs();
  for (const std::size_t k : {0, 2}) EXPECT_EQ(workers[k].End(), 0);
  EXPECT_LT(MonotonicNs() - death, std::chrono::nanoseconds(kSurvivorsFinish).count());
  const auto [low, high] = job.Range();
  const auto acked = static_cast<float>(job.acked());
  EXPECT_GE(acked, 2 * kPushes);
  EXPECT_LE(high, acked + 1);
  if (mode == Mode::kLocked) {
    EXPECT_GE(low, acked);
  }
  // The supervisor says so, or the engine found out: the push is counted as half applied, once.
  std::uint64_t half_applied = 0;
  for (int s = 0; s < job.shards(); ++s) {
    MarkDead(job.memory(s), 1, 1);
    half_applied += job.memory(s).tasks[1].counters.half_applied.load();
  }
  EXPECT_EQ(half_applied, 1u);
}

INSTANTIATE_TEST_SUITE_P(
    Async, PushFailpoint,
    ::testing::Combine(::testing::Values("push.claimed", "push.before_version"),
                       ::testing::Values(Mode::kHogwild, Mode::kLocked), ::testing::Values(1, 3)),
    [](const auto& test) {
      return NameOf(std::get<0>(test.param)) + "_" +
             std::string(ModeName(std::get<1>(test.param))) + "_" +
             std::to_string(std::get<2>(test.param));
    });

// Its claim is free meanwhile: what the copy could see of its half it must not call exact.
TEST(EngineFailpoints, BlockThatASuspendedWorkerOverlapsIsMixedUntilItIsThroughOrDead) {
  for (const bool dies : {false, true}) {
    SCOPED_TRACE(dies ? "dies" : "goes on");
    EngineJob job(Mode::kHogwild, 1, 2, Sgd(1.0), true);
    const ShardMemory& m = job.memory(0);
    Child holder = job.Start(0, 0);
    ASSERT_TRUE(Await(kPatience, [&] { return job.board().acked[0].load() > 0; }));
    holder.Kill(SIGSTOP);
    ASSERT_TRUE(holder.WaitStopped(kPatience));
    constexpr std::size_t kBlock = 2;
    for (std::size_t b = 0; b < m.num_blocks; ++b) m.blocks[b].claim.store(0);
    m.blocks[kBlock].claim.store(Claim{1, 0}.Pack());
    Child worker = job.Start(1, 0, "push.overlaps:3:stop");
    ASSERT_TRUE(worker.WaitStopped(kPatience));
    m.blocks[kBlock].claim.store(0);
    std::vector<float> copy(m.block_floats);
    float* const out[] = {copy.data()};
    const auto exact = [&](std::size_t block) {
      return *ShardReader(m).ReadBlock(block, out, Deadline::After(kPatience));
    };
    EXPECT_FALSE(exact(kBlock));
    EXPECT_TRUE(exact(kBlock + 1));
    EXPECT_EQ(m.blocks[kBlock].overlaps.load(), 2u);
    if (dies) {
      worker.Kill(SIGKILL);
      ASSERT_TRUE(worker.WaitEnded(kPatience));
      ASSERT_TRUE(MarkDead(m, 1, 1));
      EXPECT_TRUE(exact(kBlock));
      // Its next life begins with nothing to say.
      worker = job.Start(1, 0);
      ASSERT_TRUE(Await(kPatience, [&] { return m.tasks[1].overlapping.load() == 0; }));
    } else {
      worker.Kill(SIGCONT);
      ASSERT_TRUE(Await(kPatience, [&] { return m.blocks[kBlock].overlaps.load() > 2; }));
    }
    holder.Kill(SIGCONT);
    job.Stop();
    EXPECT_EQ(worker.End(), 0);
    EXPECT_EQ(holder.End(), 0);
  }
}

}  // namespace
}  // namespace passel::testing

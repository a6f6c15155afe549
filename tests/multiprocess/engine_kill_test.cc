// Workers that are killed at random, started again, and killed again.

#include <functional>

#include "base/random.h"
#include "multiprocess/engine_job.h"
#include "support/sanitized.h"

namespace passel::testing {

namespace {

int Kills() { return ManyTurns() ? 1000 : 20; }

// Kills workers first..2 in turn at random moments, Kills() times, and starts each again.
void KillAtRandom(EngineJob& job, std::vector<Child>& workers, std::size_t first, Random& random) {
  for (int kill = 0; kill < Kills(); ++kill) {
    ::usleep(static_cast<useconds_t>(random.Below(12'000)));
    const std::size_t victim = first + random.Below(workers.size() - first);
    workers[victim].Kill(SIGKILL);
    ASSERT_EQ(workers[victim].End(), -SIGKILL) << "it ended on its own";
    workers[victim] = job.Start(static_cast<int>(victim), 0);
  }
}

class EngineKills : public ::testing::TestWithParam<int> {
 protected:
  // Three workers of `job` that die and come back, and then end well; workers before `first` live.
  static void Survive(EngineJob& job, std::size_t first,
                      const std::function<void()>& before_the_end = {}) {
    Random random(TestSeed());
    std::vector<Child> workers = job.StartAll(0);
    ASSERT_NO_FATAL_FAILURE(KillAtRandom(job, workers, first, random));
    EXPECT_TRUE(job.GetsOn()) << "nobody gets on any more";
    if (before_the_end) before_the_end();
    job.Stop();
    for (Child& worker : workers) EXPECT_EQ(worker.End(), 0);
  }

  static void ExpectRoundsApplied(EngineJob& job, int named_by) {
    const std::uint64_t rounds = job.memory(0).state->completed_round.load();
    ASSERT_LT(rounds, std::uint64_t{Board::kRounds});
    std::printf("%d kills in %llu rounds\n", Kills(), static_cast<unsigned long long>(rounds));
    ASSERT_NO_FATAL_FAILURE(job.ExpectRoundsApplied(rounds, named_by));
  }
};

TEST_P(EngineKills, LockedModeLosesNoAcknowledgedPush) {
  EngineJob job(Mode::kLocked, GetParam(), 3, Sgd(1.0), true);
  ASSERT_NO_FATAL_FAILURE(Survive(job, 0));
  const auto [low, high] = job.Range();
  const auto acked = static_cast<float>(job.acked());
  ASSERT_LT(acked, 16'000'000) << "beyond this a float does not count";
  EXPECT_GE(low, acked);
  EXPECT_LE(high, acked + static_cast<float>(Kills()));
  EXPECT_GE(job.memory(0).state->global_step.load(), static_cast<std::int64_t>(acked));
  EXPECT_LE(job.memory(0).state->global_step.load(), static_cast<std::int64_t>(acked) + Kills());
  for (int s = 0; s < job.shards(); ++s) {
    std::uint64_t half_applied = 0;
    for (int k = 0; k < 3; ++k) {
      half_applied += job.memory(s).tasks[k].counters.half_applied.load();
    }
    EXPECT_LE(half_applied, static_cast<std::uint64_t>(Kills()));
  }
}

TEST_P(EngineKills, RoundsStayBitwiseRightWhoeverDies) {
  EngineJob job(Mode::kBarrier, GetParam(), 3, *ParseOptimizer("adam"), false);
  // Worker 0 lives, and names the members of each round.
  ASSERT_NO_FATAL_FAILURE(Survive(job, 1));
  ASSERT_NO_FATAL_FAILURE(ExpectRoundsApplied(job, 1));
}

TEST_P(EngineKills, ReplicasStayRightWhoeverDies) {
  // Fewer than workers: any of them may die, and the values count the rounds. As many and more: one
  // lives, and names the members.
  for (const int replicas : {2, 3, 5}) {
    SCOPED_TRACE(replicas);
    const bool backup = replicas < 3;
    StorePlan plan =
        TestPlan(Mode::kReplicas, GetParam(), 3, backup ? Sgd(1.0) : *ParseOptimizer("adam"));
    plan.mode.number = replicas;
    EngineJob job(plan, backup);
    ASSERT_NO_FATAL_FAILURE(Survive(job, backup ? 0 : 1));
    ASSERT_NO_FATAL_FAILURE(ExpectRoundsApplied(job, backup ? 0 : 1));
  }
}

TEST_P(EngineKills, NobodyGetsMoreThanTheBoundAheadWhoeverDies) {
  StorePlan plan = TestPlan(Mode::kSsp, GetParam(), 3, Sgd(1.0));
  plan.mode.number = 2;
  EngineJob job(plan, true);
  ASSERT_NO_FATAL_FAILURE(Survive(job, 0, [&] {
    EXPECT_TRUE(Await(kPatience, [&] { return job.max_clock_lead() >= 1; }))
        << "nothing is measured";
  }));
  EXPECT_LE(job.max_clock_lead(), 2u);
}

TEST_P(EngineKills, HogwildGoesOnAndCountsEachPushAtMostOnceWhoeverDies) {
  EngineJob job(Mode::kHogwild, GetParam(), 3, Sgd(1.0), true);
  ASSERT_NO_FATAL_FAILURE(Survive(job, 0));
  const auto acked = static_cast<float>(job.acked());
  ASSERT_LT(acked, 16'000'000) << "beyond this a float does not count";
  EXPECT_LE(job.Range().second, acked + static_cast<float>(Kills()));
  EXPECT_GE(job.global_step(), static_cast<std::int64_t>(acked));
  EXPECT_LE(job.global_step(), static_cast<std::int64_t>(acked) + Kills());
}

INSTANTIATE_TEST_SUITE_P(Shards, EngineKills, ::testing::Values(1, 3));

}  // namespace
}  // namespace passel::testing

// replicas_conformance.h - the mode replicas alone: the first R gradients of a round win.
// A part of store_conformance.h.

#pragma once

#include "base/random.h"
#include "conformance/store_suite.h"

namespace passel::testing {

TEST_P(ReplicasConformance, SeveralGradientsPerWorkerEqualASingleProcessOnTheirMean) {
  constexpr int kRounds = 6;
  struct Job {
    int workers, replicas;
    std::vector<std::pair<int, int>> quotas;
  };
  const Job jobs[] = {{2, 5, {{0, 3}, {1, 2}}}, {3, 4, {{0, 2}, {1, 1}, {2, 1}}}, {1, 3, {{0, 3}}}};
  for (const Job& job : jobs) {
    for (const char* name : {"sgd", "adam"}) {
      SCOPED_TRACE(std::to_string(job.replicas) + " of " + std::to_string(job.workers));
      MakeReplicas(job.workers, job.replicas, *ParseOptimizer(name));
      std::vector<StorePtr> stores;
      for (int k = 0; k < job.workers; ++k) stores.push_back(Open(k));
      InitializeForReference(*stores[0]);
      std::vector<std::thread> threads;
      for (int k = 0; k < job.workers; ++k) {
        threads.emplace_back([&, k] {
          ParameterStore& store = *stores[static_cast<std::size_t>(k)];
          const int quota = job.quotas[static_cast<std::size_t>(k)].second;
          ASSERT_TRUE(store.WaitUntilInitialized(Deadline::After(kLong)).ok());
          ReferenceModel reference(plan_.variables, plan_.optimizer);
          for (int round = 1; round <= kRounds; ++round) {
            for (int i = 0; i < quota; ++i) {
              const ParamView view = Pull(store);
              EXPECT_EQ(view.version(), static_cast<Version>(round - 1));
              GradientBuffer buffer = store.LendGradient();
              FillTestGradient(store, buffer, k + 100 * i, static_cast<std::uint64_t>(round));
              EXPECT_TRUE(store.GradientIsFinite(buffer, nullptr));
              if ((round + k) % 2 == 0) {
                std::this_thread::sleep_for(std::chrono::microseconds(200));
              }
              const Result<PushOutcome> outcome = PushAndWait(store, buffer, view.stamp());
              ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
              EXPECT_TRUE(outcome->applied);
              EXPECT_EQ(outcome->gradients, i + 1 < quota ? 0 : quota);
            }
            reference.StepOfSets(round, static_cast<std::uint64_t>(round), job.quotas);
            ASSERT_NO_FATAL_FAILURE(
                ExpectValues(store, reference, "round " + std::to_string(round)));
          }
          EXPECT_EQ(store.counters().local_steps.load(),
                    static_cast<std::uint64_t>(quota * kRounds));
          EXPECT_EQ(store.counters().staleness.counts[0].load(),
                    static_cast<std::uint64_t>(quota * kRounds));
          EXPECT_EQ(store.counters().dropped.load(), 0u);
        });
      }
      for (std::thread& t : threads) t.join();
      EXPECT_EQ(stores[0]->global_step(), kRounds);
    }
  }
}

TEST_P(ReplicasConformance, PrivateGradientBufferIsLaidOutLikeTheVariables) {
  MakeReplicas(1, 2);
  StorePtr store = Open(0);
  InitializeTo(*store, 0);
  ASSERT_TRUE(PushConstant(*store, -1).ok());
  const GradientBuffer buffer = store->LendGradient();
  for (VarId id = 0; id < plan_.variables.size(); ++id) {
    EXPECT_EQ(buffer.values(id).size(), plan_.variables[id].elements);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.values(id).data()) % 64, 0u);
  }
  ASSERT_TRUE(PushConstant(*store, -5).ok());
  ExpectAll(*store, 3);
  EXPECT_EQ(store->global_step(), 1);
}

TEST_P(ReplicasConformance, BackupWorkersAreNotWaitedForAndLateGradientsAreDroppedAtOnce) {
  MakeReplicas(3, 2);
  auto stores = OpenAll(3);
  const ParamView view = Pull(*stores[2]);
  GradientBuffer late = stores[2]->LendGradient();
  FillGradient(*stores[2], late, -100);
  for (int round = 1; round <= 2; ++round) {
    const Result<Ticket> first = PushOnly(*stores[0], -1);
    ASSERT_TRUE(first.ok());
    const Result<PushOutcome> second = PushConstant(*stores[1], -3);
    ASSERT_TRUE(second.ok()) << second.status().ToString();
    EXPECT_TRUE(second->applied);
    EXPECT_EQ(second->version, static_cast<Version>(round));
    const Result<PushOutcome> outcome = stores[0]->Wait(*first, Deadline::After(kLong));
    ASSERT_TRUE(outcome.ok());
    EXPECT_TRUE(outcome->applied);
  }
  ExpectAll(*stores[0], 4);
  const std::int64_t begin = MonotonicNs();
  const Result<PushOutcome> dropped = PushAndWait(*stores[2], late, view.stamp());
  ASSERT_TRUE(dropped.ok()) << dropped.status().ToString();
  EXPECT_LT(MonotonicNs() - begin, std::chrono::nanoseconds(kBound).count());
  EXPECT_FALSE(dropped->applied);
  EXPECT_EQ(dropped->gradients, 1);
  EXPECT_EQ(dropped->version, 2u);
  EXPECT_EQ(dropped->staleness, 2u);
  EXPECT_EQ(stores[2]->counters().dropped.load(), 1u);
  EXPECT_EQ(stores[2]->counters().local_steps.load(), 1u);
  ExpectAll(*stores[0], 4);
  // On new values it counts, and then the others are the backup.
  const Result<Ticket> third = PushOnly(*stores[2], -5);
  ASSERT_TRUE(third.ok());
  ASSERT_TRUE(PushConstant(*stores[0], -1).ok());
  const Result<PushOutcome> counted = stores[2]->Wait(*third, Deadline::After(kLong));
  ASSERT_TRUE(counted.ok());
  EXPECT_TRUE(counted->applied);
  ExpectAll(*stores[1], 7);
}

// A worker that is too slow for a round must not be able to hold it up.
TEST_P(ReplicasConformance, BackupWorkersLeaveARoundToItsMembersUnlessTheyDoNotFinishIt) {
  MakeReplicas(3, 2);
  const std::vector<ShardMemory> memory = host_->Memory();
  if (!host_->InPlace()) GTEST_SKIP() << "the ps applies for all of them, at once";
  auto stores = OpenAll(3);
  const auto applied = [&] {
    std::uint64_t highest = 0;
    for (const ShardMemory& m : memory) {
      for (std::size_t b = 0; b < m.num_blocks; ++b) {
        highest = std::max(highest, m.blocks[b].round.load());
      }
    }
    return highest;
  };
  for (std::uint64_t round = 1; round <= 2; ++round) {
    const Result<Ticket> first = PushOnly(*stores[0], -1);
    const Result<Ticket> second = PushOnly(*stores[1], -1);  // decides
    const Result<Ticket> late = PushOnly(*stores[2], -100);
    ASSERT_TRUE(first.ok() && second.ok() && late.ok());
    std::thread backup([&] {
      const Result<PushOutcome> outcome = stores[2]->Wait(*late, Deadline::After(kLong));
      ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
      EXPECT_FALSE(outcome->applied);
    });
    if (round == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(60));
      EXPECT_EQ(applied(), 0u);
    } else {
      backup.join();  // the members do nothing more
      EXPECT_EQ(applied(), round);
    }
    for (const int k : {0, 1}) {
      EXPECT_TRUE(stores[static_cast<std::size_t>(k)]
                      ->Wait(k == 0 ? *first : *second, Deadline::After(kLong))
                      .ok());
    }
    if (backup.joinable()) backup.join();
    ExpectAll(*stores[0], static_cast<float>(round));
  }
}

TEST_P(ReplicasConformance, WhoSleptWhileRoundsWentOnLearnsWhetherItWasCounted) {
  MakeReplicas(4, 2);
  auto stores = OpenAll(4);
  const ParamView view = Pull(*stores[3]);
  GradientBuffer buffer = stores[3]->LendGradient();
  FillGradient(*stores[3], buffer, -100);
  const Result<Ticket> counted = PushOnly(*stores[2], -1);
  const Result<Ticket> first = PushOnly(*stores[0], -1);  // decides: workers 0 and 2
  // Where others than they apply it, it may be complete already.
  const Result<Ticket> late = stores[3]->Push(buffer, view.stamp(), Deadline::After(kLong));
  ASSERT_TRUE(counted.ok() && first.ok() && late.ok());
  ASSERT_TRUE(stores[0]->Wait(*first, Deadline::After(kLong)).ok());
  for (int round = 2; round <= 4; ++round) {
    const Result<Ticket> ticket = PushOnly(*stores[0], -1);
    ASSERT_TRUE(ticket.ok());
    const Result<PushOutcome> other = PushConstant(*stores[1], -1);
    ASSERT_TRUE(other.ok());
    EXPECT_EQ(other->version, static_cast<Version>(round));
    ASSERT_TRUE(stores[0]->Wait(*ticket, Deadline::After(kLong)).ok());
  }
  ExpectAll(*stores[0], 4);
  const Result<PushOutcome> yes = stores[2]->Wait(*counted, Deadline::After(kLong));
  ASSERT_TRUE(yes.ok()) << yes.status().ToString();
  EXPECT_TRUE(yes->applied);
  EXPECT_EQ(yes->version, 1u);
  EXPECT_EQ(stores[2]->counters().dropped.load(), 0u);
  const Result<PushOutcome> no = stores[3]->Wait(*late, Deadline::After(kLong));
  ASSERT_TRUE(no.ok()) << no.status().ToString();
  EXPECT_FALSE(no->applied);
  EXPECT_EQ(stores[3]->counters().dropped.load(), 1u);
  ExpectAll(*stores[0], 4);
}

TEST_P(ReplicasConformance, BackupWorkersThatNeverComeHoldUpNobody) {
  MakeReplicas(4, 2);
  StorePtr a = Open(0);  // with the default join limit of minutes
  InitializeTo(*a, 0);
  StorePtr b = Open(3);
  ASSERT_TRUE(b->WaitUntilInitialized(Deadline::After(kLong)).ok());
  const std::int64_t begin = MonotonicNs();
  const Result<Ticket> ticket = PushOnly(*a, -1);
  ASSERT_TRUE(ticket.ok());
  ASSERT_TRUE(PushConstant(*b, -3).ok());
  ASSERT_TRUE(a->Wait(*ticket, Deadline::After(kLong)).ok());
  EXPECT_LT(MonotonicNs() - begin, std::chrono::nanoseconds(kBound).count());
  ExpectAll(*a, 2);
  EXPECT_EQ(a->membership()[1].phase, Phase::kExpected);
}

TEST_P(ReplicasConformance, RoundsNeedNoMoreThanThoseWhoAreLeftCanGive) {
  for (const int replicas : {2, 3, 7}) {
    SCOPED_TRACE(replicas);
    MakeReplicas(3, replicas);
    const std::vector<ShardMemory> memory = host_->Memory();
    const int quota = plan_.Rules().Quota(0);
    auto stores = OpenAll(3);
    ASSERT_TRUE(stores[1]->Leave().ok());
    for (const ShardMemory& m : memory) ASSERT_TRUE(MarkDead(m, 2, 1));
    for (int i = 0; i < 2 * quota; ++i) ASSERT_TRUE(PushConstant(*stores[0], -1).ok());
    EXPECT_EQ(stores[0]->global_step(), 2);
    ExpectAll(*stores[0], 2);
  }
}

TEST_P(ReplicasConformance, AnUnfinishedSetIsDroppedAsAWhole) {
  MakeReplicas(2, 6);
  const std::vector<ShardMemory> memory = host_->Memory();
  auto stores = OpenAll(2);
  for (int i = 0; i < 2; ++i) {
    const Result<PushOutcome> outcome = PushConstant(*stores[0], -100);
    ASSERT_TRUE(outcome.ok());
    EXPECT_EQ(outcome->gradients, 0);
  }
  // A round is completed without it, as if it had joined too late for that.
  const Decision last = Decision::Unpack(memory[0].state->decision.load());
  memory[0].state->decision.store(Decision{1, last.generation, 1}.Pack());
  memory[0].state->completed_round.store(1);
  const Result<PushOutcome> dropped = PushConstant(*stores[0], -100);
  ASSERT_TRUE(dropped.ok()) << dropped.status().ToString();
  EXPECT_FALSE(dropped->applied);
  EXPECT_EQ(dropped->gradients, 3);
  EXPECT_EQ(stores[0]->counters().dropped.load(), 3u);
  EXPECT_EQ(stores[0]->counters().local_steps.load(), 3u);
  // The next set begins anew, and the other's leaves with it.
  ASSERT_TRUE(PushConstant(*stores[1], -100).ok());
  ASSERT_TRUE(stores[1]->Leave().ok());
  EXPECT_EQ(memory[0].tasks[1].counters.dropped.load(), 1u);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(PushConstant(*stores[0], -1.0F - i).ok());
  ExpectAll(*stores[0], 2);
}

}  // namespace passel::testing

// push_conformance.h - what an update does to values, versions and counters; gradient buffers.
// A part of store_conformance.h.

#pragma once

#include "conformance/store_suite.h"

namespace passel::testing {

TEST_P(StoreConformance, VersionGlobalStepAndStalenessAreAsDefined) {
  Make(2);
  auto stores = OpenAll(2);
  if (!rounds()) {
    const ParamView view = Pull(*stores[0]);
    GradientBuffer buffer = stores[0]->LendGradient();
    FillGradient(*stores[0], buffer, -1);
    for (std::uint64_t k = 1; k <= 3; ++k) {
      const Result<PushOutcome> other = PushConstant(*stores[1], -1);
      ASSERT_TRUE(other.ok());
      EXPECT_TRUE(other->applied);
      EXPECT_EQ(other->version, k);
      EXPECT_EQ(other->global_step, static_cast<std::int64_t>(k));
      EXPECT_EQ(other->staleness, 0u);
    }
    const Result<PushOutcome> outcome = PushAndWait(*stores[0], buffer, view.stamp());
    ASSERT_TRUE(outcome.ok());
    EXPECT_TRUE(outcome->applied);
    EXPECT_EQ(outcome->version, 4u);
    EXPECT_EQ(outcome->global_step, 4);
    EXPECT_EQ(outcome->staleness, 3u);
    ASSERT_TRUE(PullLatest(*stores[1]).ok());
    EXPECT_EQ(stores[1]->global_step(), 4);
    EXPECT_EQ(stores[0]->counters().staleness.counts[3].load(), 1u);
    EXPECT_EQ(stores[0]->counters().staleness.maximum.load(), 3u);
  } else {
    for (std::uint64_t round = 1; round <= 3; ++round) {
      std::vector<std::thread> threads;
      for (auto& store : stores) {
        threads.emplace_back([&] {
          const Result<PushOutcome> outcome = PushConstant(*store, -1);
          ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
          EXPECT_TRUE(outcome->applied);
          EXPECT_EQ(outcome->version, round);
          EXPECT_EQ(outcome->global_step, static_cast<std::int64_t>(round));
          EXPECT_EQ(outcome->staleness, 0u);
        });
      }
      for (std::thread& t : threads) t.join();
      EXPECT_EQ(stores[0]->global_step(), static_cast<std::int64_t>(round)) << "one per round";
    }
  }
  EXPECT_EQ(stores[0]->counters().local_steps.load(), rounds() ? 3u : 1u);
  EXPECT_EQ(stores[1]->counters().local_steps.load(), 3u);
  ASSERT_TRUE(PullLatest(*stores[1]).ok());  // what it counts may travel with its messages
  EXPECT_EQ(stores[0]->membership()[1].local_steps, 3u);
}

TEST_P(StoreConformance, NoUpdateOfTheCountingWorkloadIsLost) {
  constexpr int kWorkers = 4;
  constexpr int kPushes = 60;
  Make(kWorkers);
  auto stores = OpenAll(kWorkers);
  std::vector<std::thread> threads;
  for (int k = 0; k < kWorkers; ++k) {
    threads.emplace_back([&, k] {
      ParameterStore* store = stores[static_cast<std::size_t>(k)].get();
      for (int i = 0; i < kPushes; ++i) {
        const Result<PushOutcome> outcome = PushConstant(*store, -1);
        ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
        ASSERT_TRUE(outcome->applied);
      }
      EXPECT_TRUE(store->Leave().ok());
    });
  }
  for (std::thread& t : threads) t.join();
  StorePtr store = Open(0);
  ASSERT_TRUE(store->WaitUntilInitialized(Deadline::After(kLong)).ok());
  constexpr float kAll = kWorkers * kPushes;
  if (mode() == Mode::kLocked) ExpectAll(*store, kAll);
  if (rounds()) ExpectAll(*store, kPushes);  // the mean of four times -1
  if (mode() == Mode::kHogwild || mode() == Mode::kSsp) {
    const ParamView view = Pull(*store, PullMode::kCopy);
    for (VarId id = 0; id < plan_.variables.size(); ++id) {
      for (const float x : view.values(id)) {
        ASSERT_LE(x, kAll);
        ASSERT_GE(x, kPushes) << "every worker sees its own updates";
        ASSERT_EQ(x, std::floor(x));
      }
    }
  }
  EXPECT_EQ(store->global_step(), rounds() ? kPushes : kWorkers * kPushes);
  EXPECT_EQ(Pull(*store).version(), static_cast<Version>(store->global_step()));
}

TEST_P(StoreConformance, OneWorkerComputesWhatASingleProcessWould) {
  for (const OptimizerConfig& optimizer : AllReferenceOptimizers()) {
    SCOPED_TRACE(OptimizerName(optimizer.kind));
    Make(1, optimizer);
    StorePtr store = Open(0);
    InitializeForReference(*store);
    ReferenceModel reference(plan_.variables, optimizer);
    for (int step = 0; step < 5; ++step) {
      const ParamView view = Pull(*store);
      GradientBuffer buffer = store->LendGradient();
      FillTestGradient(*store, buffer, 0, static_cast<std::uint64_t>(step));
      ASSERT_TRUE(PushAndWait(*store, buffer, view.stamp()).ok());
      reference.Step(step + 1, static_cast<std::uint64_t>(step), {0});
      ExpectValues(*store, reference, "step " + std::to_string(step + 1));
    }
  }
}

TEST_P(StoreConformance, AGradientInMemoryOfTheCallerIsAsOneThatIsLent) {
  for (const OptimizerConfig& optimizer : AllReferenceOptimizers()) {
    SCOPED_TRACE(OptimizerName(optimizer.kind));
    Make(1, optimizer);
    StorePtr store = Open(0);
    InitializeForReference(*store);
    ReferenceModel reference(plan_.variables, optimizer);
    const std::size_t count = plan_.variables.size();
    for (int step = 0; step < 5; ++step) {
      const ParamView view = Pull(*store);
      GradientBuffer lent = store->LendGradient();
      FillTestGradient(*store, lent, 0, static_cast<std::uint64_t>(step));
      // Of each variable one allocation, which is not even aligned.
      std::vector<std::vector<float>> own(count);
      std::vector<const float*> at(count);
      for (VarId id = 0; id < count; ++id) {
        const std::span<float> values = lent.values(id);
        own[id].assign(1, 0.F);
        own[id].insert(own[id].end(), values.begin(), values.end());
        at[id] = own[id].data() + 1;
        std::ranges::fill(values, 1e6F);
      }
      const GradientBuffer buffer = store->UseGradient(at.data());
      ASSERT_TRUE(store->GradientIsFinite(buffer, nullptr));
      const Result<Ticket> ticket = store->Push(buffer, view.stamp(), Deadline::After(kLong));
      for (std::vector<float>& each : own) std::ranges::fill(each, 1e6F);
      ASSERT_TRUE(ticket.ok()) << ticket.status().ToString();
      ASSERT_TRUE(store->Wait(*ticket, Deadline::After(kLong)).ok());
      reference.Step(step + 1, static_cast<std::uint64_t>(step), {0});
      ExpectValues(*store, reference, "step " + std::to_string(step + 1));
    }
    const float bad = std::numeric_limits<float>::quiet_NaN();
    std::vector<std::vector<float>> own(count);
    std::vector<const float*> at(count);
    for (VarId id = 0; id < count; ++id) {
      own[id].assign(plan_.variables[id].elements, id + 1 == count ? bad : 0.F);
      at[id] = own[id].data();
    }
    std::string variable;
    EXPECT_FALSE(store->GradientIsFinite(store->UseGradient(at.data()), &variable));
    EXPECT_EQ(variable, plan_.variables[static_cast<VarId>(count - 1)].name);
  }
}

TEST_P(AtOnceConformance, WorkersShareTheStepCountOfAdam) {
  const OptimizerConfig adam = *ParseOptimizer("adam");
  Make(2, adam);
  std::vector<StorePtr> stores;
  stores.push_back(Open(0));
  InitializeForReference(*stores[0]);
  stores.push_back(Open(1));
  ASSERT_TRUE(stores[1]->WaitUntilInitialized(Deadline::After(kLong)).ok());
  ReferenceModel reference(plan_.variables, adam);
  for (int t = 1; t <= 6; ++t) {
    const int worker = t % 3 == 0 ? 1 : 0;
    ParameterStore& store = *stores[static_cast<std::size_t>(worker)];
    const ParamView view = Pull(store);
    GradientBuffer buffer = store.LendGradient();
    FillTestGradient(store, buffer, worker, static_cast<std::uint64_t>(t));
    ASSERT_TRUE(PushAndWait(store, buffer, view.stamp()).ok());
    reference.Step(t, static_cast<std::uint64_t>(t), {worker});
  }
  ExpectValues(*stores[0], reference, "after 6 updates of 2 workers");
}

TEST_P(RoundConformance, RoundsEqualASingleProcessOnTheMeanInTaskOrder) {
  constexpr int kWorkers = 3;
  constexpr int kRounds = 8;
  for (const OptimizerConfig& optimizer : AllReferenceOptimizers()) {
    SCOPED_TRACE(OptimizerName(optimizer.kind));
    Make(kWorkers, optimizer);
    std::vector<StorePtr> stores;
    for (int k = 0; k < kWorkers; ++k) stores.push_back(Open(k));
    InitializeForReference(*stores[0]);
    std::vector<std::thread> threads;
    for (int k = 0; k < kWorkers; ++k) {
      threads.emplace_back([&, k] {
        ParameterStore& store = *stores[static_cast<std::size_t>(k)];
        ASSERT_TRUE(store.WaitUntilInitialized(Deadline::After(kLong)).ok());
        ReferenceModel reference(plan_.variables, optimizer);
        for (int round = 1; round <= kRounds; ++round) {
          const ParamView view = Pull(store);
          GradientBuffer buffer = store.LendGradient();
          FillTestGradient(store, buffer, k, static_cast<std::uint64_t>(round));
          // Whoever arrives first must make no difference.
          if ((round + k) % kWorkers == 0) {
            std::this_thread::sleep_for(std::chrono::microseconds(300));
          }
          const Result<PushOutcome> outcome = PushAndWait(store, buffer, view.stamp());
          ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
          reference.Step(round, static_cast<std::uint64_t>(round), {0, 1, 2});
          // Everyone continues from the same values.
          ASSERT_NO_FATAL_FAILURE(ExpectValues(store, reference, "round " + std::to_string(round)));
        }
      });
    }
    for (std::thread& t : threads) t.join();
    ReferenceModel wrong_order(plan_.variables, optimizer);
    wrong_order.Step(1, 1, {2, 1, 0});
    ReferenceModel right_order(plan_.variables, optimizer);
    right_order.Step(1, 1, {0, 1, 2});
    EXPECT_TRUE(wrong_order.values(3) != right_order.values(3)) << "the order must be observable";
  }
}

TEST_P(StoreConformance, PaddingStaysZeroUnderEveryOptimizer) {
  std::vector<OptimizerConfig> optimizers = AllReferenceOptimizers();
  optimizers.push_back(*ParseOptimizer("ftrl"));
  optimizers.push_back(*ParseOptimizer("rmsprop"));
  optimizers.back().centered = 1;
  for (const OptimizerConfig& optimizer : optimizers) {
    SCOPED_TRACE(OptimizerName(optimizer.kind));
    Make(1, optimizer);
    const std::vector<ShardMemory> memory = host_->Memory();
    StorePtr store = Open(0);
    InitializeTo(*store, 1.0F);
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(PushConstant(*store, 0.5F).ok());
    std::size_t padding = 0;
    for (int s = 0; s < shards(); ++s) {
      const ShardMemory& m = memory[static_cast<std::size_t>(s)];
      std::vector<bool> used(m.floats, false);
      for (const VariableInfo& v : plan_.variables.all()) {
        if (v.shard != s) continue;
        for (std::size_t i = 0; i < v.elements; ++i) used[v.offset + i] = true;
      }
      for (std::size_t i = 0; i < m.floats; ++i) {
        if (used[i]) {
          ASSERT_NE(m.values[i], 1.0F) << "an element was not updated";
        } else {
          ++padding;
          ASSERT_EQ(m.values[i], 0.0F) << "padding at " << i << " of shard " << s;
        }
      }
    }
    EXPECT_GT(padding, 0u);
  }
}

TEST_P(StoreConformance, GradientBuffersAreLentInTurn) {
  Make(2);
  auto stores = OpenAll(2);
  std::vector<int> slots;
  std::vector<float*> memory;
  for (int i = 0; i < 6; ++i) {
    GradientBuffer buffer = stores[0]->LendGradient();
    slots.push_back(buffer.slot());
    memory.push_back(buffer.values(3).data());
    EXPECT_EQ(buffer.values(3).size(), plan_.variables[3].elements);
  }
  if (rounds()) {
    EXPECT_THAT(slots, ::testing::Each(0)) << "a round reads slot 0 of every member";
  } else {
    EXPECT_THAT(slots, ::testing::ElementsAre(0, 1, 2, 0, 1, 2));
    EXPECT_NE(memory[0], memory[1]);
    EXPECT_NE(memory[1], memory[2]);
  }
  EXPECT_NE(stores[1]->LendGradient().values(3).data(), memory[0]) << "of another worker";
}

TEST_P(AtOnceConformance, BuffersLentAtTheSameTimeDoNotDisturbEachOther) {
  Make(1);
  StorePtr store = Open(0);
  InitializeTo(*store, 0);
  const ParamView view = Pull(*store);
  GradientBuffer one = store->LendGradient();
  GradientBuffer two = store->LendGradient();
  GradientBuffer three = store->LendGradient();
  FillGradient(*store, one, -1);
  FillGradient(*store, two, -10);
  FillGradient(*store, three, -100);
  ASSERT_TRUE(PushAndWait(*store, two, view.stamp()).ok());
  ExpectAll(*store, 10);
  ASSERT_TRUE(PushAndWait(*store, three, Pull(*store).stamp()).ok());
  ASSERT_TRUE(PushAndWait(*store, one, Pull(*store).stamp()).ok());
  ExpectAll(*store, 111);
}

TEST_P(StoreConformance, NonFiniteGradientNamesItsVariable) {
  Make(1);
  StorePtr store = Open(0);
  InitializeTo(*store, 0);
  GradientBuffer buffer = store->LendGradient();
  FillGradient(*store, buffer, 1);
  std::string name = "untouched";
  EXPECT_TRUE(store->GradientIsFinite(buffer, &name));
  EXPECT_EQ(name, "untouched");
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    for (const VarId id : {VarId{0}, VarId{2}, VarId{5}}) {
      const std::size_t last = buffer.values(id).size() - 1;
      buffer.values(id)[last] = bad;
      EXPECT_FALSE(store->GradientIsFinite(buffer, &name));
      EXPECT_EQ(name, plan_.variables[id].name);
      EXPECT_FALSE(store->GradientIsFinite(buffer, nullptr));
      buffer.values(id)[last] = 1;
    }
  }
}

}  // namespace passel::testing

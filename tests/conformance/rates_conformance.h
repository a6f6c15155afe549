// rates_conformance.h - groups of variables whose learning rates and weight decays change.
// A part of store_conformance.h.

#pragma once

#include "conformance/store_suite.h"
#include "optim/optimizer.h"
#include "store/rates.h"

namespace passel::testing {

/// Neighbours of different groups that meet within blocks, and on one ps all groups or few.
inline StorePlan PlanInGroups(Mode mode, int shards, int workers,
                              const OptimizerConfig& optimizer) {
  StorePlan plan = TestPlan(mode, shards, workers, optimizer);
  constexpr int kGroups[] = {0, 1, 2, 1, 0, 2};
  std::vector<VariableInfo> variables(plan.variables.all().begin(), plan.variables.all().end());
  for (std::size_t i = 0; i < variables.size(); ++i) variables[i].group = kGroups[i];
  auto table = VariableTable::Build(variables, shards);
  PASSEL_CHECK(table.ok() && table->groups() == 3, "the plan of the tests is valid");
  plan.variables = *table;
  return plan;
}

/// As a schedule with a warm-up has them: others at each step, from 0 on.
inline std::vector<GroupRates> TestRates(const OptimizerConfig& optimizer, int step) {
  std::vector<GroupRates> rates;
  for (int g = 0; g < 3; ++g) {
    rates.push_back({0.01 * (g + 1) * step / (1 + step * step), 0});
    if (optimizer.kind == OptimizerKind::kAdamW) rates.back().weight_decay = 0.1 * g + 0.001 * step;
  }
  return rates;
}

TEST_P(StoreConformance, EachGroupIsUpdatedWithTheRatesThatTheChiefHasSetLast) {
  for (const OptimizerConfig& optimizer : AllReferenceOptimizers()) {
    SCOPED_TRACE(OptimizerName(optimizer.kind));
    plan_ = PlanInGroups(mode(), shards(), 1, optimizer);
    host_ = std::get<0>(GetParam()).make(plan_);
    StorePtr store = Open(0);
    InitializeForReference(*store);
    ReferenceModel reference(plan_.variables, optimizer);
    for (int step = 0; step < 8; ++step) {
      // The first two steps have those of the plan, and one has those of the step before it.
      if (step >= 2 && step != 5) {
        const std::vector<GroupRates> rates = TestRates(optimizer, step - 2);
        const Status set = store->SetRates(rates);
        ASSERT_TRUE(set.ok()) << set.ToString();
        reference.SetRates(plan_.variables, rates);
      }
      const ParamView view = Pull(*store);
      GradientBuffer buffer = store->LendGradient();
      FillTestGradient(*store, buffer, 0, static_cast<std::uint64_t>(step));
      ASSERT_TRUE(PushAndWait(*store, buffer, view.stamp()).ok());
      reference.Step(step + 1, static_cast<std::uint64_t>(step), {0});
      ASSERT_NO_FATAL_FAILURE(ExpectValues(*store, reference, "step " + std::to_string(step + 1)));
    }
  }
}

TEST_P(AtOnceConformance, OtherWorkersUpdateWithThemToo) {
  const OptimizerConfig adamw = *ParseOptimizer("adamw");
  plan_ = PlanInGroups(mode(), shards(), 2, adamw);
  host_ = std::get<0>(GetParam()).make(plan_);
  std::vector<StorePtr> stores;
  stores.push_back(Open(0));
  InitializeForReference(*stores[0]);
  stores.push_back(Open(1));
  ASSERT_TRUE(stores[1]->WaitUntilInitialized(Deadline::After(kLong)).ok());
  ReferenceModel reference(plan_.variables, adamw);
  for (int t = 1; t <= 6; ++t) {
    ASSERT_TRUE(stores[0]->SetRates(TestRates(adamw, t)).ok());
    reference.SetRates(plan_.variables, TestRates(adamw, t));
    ParameterStore& store = *stores[1];
    const ParamView view = Pull(store);
    GradientBuffer buffer = store.LendGradient();
    FillTestGradient(store, buffer, 1, static_cast<std::uint64_t>(t));
    ASSERT_TRUE(PushAndWait(store, buffer, view.stamp()).ok());
    reference.Step(t, static_cast<std::uint64_t>(t), {1});
  }
  ExpectValues(*stores[0], reference, "after 6 updates of worker 1");
}

TEST_P(RoundConformance, ARoundHasTheRatesThatTheChiefSetBeforeItsPush) {
  constexpr int kWorkers = 3;
  constexpr int kRounds = 8;
  for (const OptimizerConfig& optimizer : AllReferenceOptimizers()) {
    SCOPED_TRACE(OptimizerName(optimizer.kind));
    plan_ = PlanInGroups(mode(), shards(), kWorkers, optimizer);
    host_ = std::get<0>(GetParam()).make(plan_);
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
          if ((round + k) % kWorkers == 0) {
            std::this_thread::sleep_for(std::chrono::microseconds(300));
          }
          // The others may have pushed already.
          if (k == 0 && round > 1) {
            ASSERT_TRUE(store.SetRates(TestRates(optimizer, round)).ok());
          }
          const Result<PushOutcome> outcome = PushAndWait(store, buffer, view.stamp());
          ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
          if (round > 1) reference.SetRates(plan_.variables, TestRates(optimizer, round));
          reference.Step(round, static_cast<std::uint64_t>(round), {0, 1, 2});
          ASSERT_NO_FATAL_FAILURE(ExpectValues(store, reference, "round " + std::to_string(round)));
        }
      });
    }
    for (std::thread& t : threads) t.join();
  }
}

// However often the chief sets others while one is under way.
TEST_P(ReplicasConformance, ARoundThatIsDecidedKeepsItsRates) {
  MakeReplicas(3, 2);
  auto stores = OpenAll(3);
  float expected = 0;
  double before = 1;  // of the plan
  for (int round = 1; round <= 5; ++round) {
    const Result<Ticket> first = PushOnly(*stores[1], -1);
    ASSERT_TRUE(first.ok());
    const Result<Ticket> second = PushOnly(*stores[2], -1);  // decides it
    ASSERT_TRUE(second.ok());
    for (const double rate : {16.0, 32.0, 2.0 + round}) {
      ASSERT_TRUE(stores[0]->SetRates(std::vector<GroupRates>{{rate, 0}}).ok());
    }
    ASSERT_TRUE(stores[1]->Wait(*first, Deadline::After(kLong)).ok());
    ASSERT_TRUE(stores[2]->Wait(*second, Deadline::After(kLong)).ok());
    expected += static_cast<float>(before);
    before = 2 + round;
    ASSERT_NO_FATAL_FAILURE(ExpectAll(*stores[1], expected));
  }
}

TEST_P(StoreConformance, RatesStayWhenTheChiefDies) {
  Make(1);
  {
    StorePtr store = Open(0);
    InitializeTo(*store, 0);
    ASSERT_TRUE(store->SetRates(std::vector<GroupRates>{{0.25, 0}}).ok());
    ASSERT_TRUE(PushConstant(*store, -1).ok());
    ExpectAll(*store, 0.25F);
    ASSERT_TRUE(store->LeaveForNow().ok());
  }
  StorePtr next = Open(0);
  ASSERT_TRUE(next->WaitUntilInitialized(Deadline::After(kLong)).ok());
  ASSERT_TRUE(PushConstant(*next, -1).ok());
  ExpectAll(*next, 0.5F);
  for (const ShardMemory& memory : host_->Memory()) {
    EXPECT_EQ(RatesNow(memory), (std::vector<GroupRates>{{0.25, 0}}));
  }
}

TEST_P(StoreConformance, RatesThatCannotBeAreRefusedAndChangeNothing) {
  Make(2);
  auto stores = OpenAll(2);
  const auto refused = [](ParameterStore& store, const std::vector<GroupRates>& rates) {
    return store.SetRates(rates);
  };
  const Status other = refused(*stores[1], {{0.5, 0}});
  EXPECT_EQ(other.code(), Code::kFailedPrecondition);
  EXPECT_EQ(other.message(), "only worker 0, the chief, sets rates: call it there alone");
  const double inf = std::numeric_limits<double>::infinity();
  for (const std::vector<GroupRates>& bad : std::vector<std::vector<GroupRates>>{
           {}, {{1, 0}, {1, 0}}, {{-1, 0}}, {{inf, 0}}, {{std::nan(""), 0}}, {{1, 0.1}}}) {
    const Status status = refused(*stores[0], bad);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.ToString();
  }
  EXPECT_EQ(refused(*stores[0], {{1, 0.1}}).message(),
            "the weight decay of group 0 is 0.1, and sgd has none: leave it at 0, or use adamw");
  EXPECT_EQ(refused(*stores[0], {{1, 0}, {1, 0}}).message(),
            "the variables have 1 groups, and rates of 2 are given: give those of all groups, in "
            "their order");
  for (const ShardMemory& memory : host_->Memory()) EXPECT_TRUE(RatesNow(memory).empty());
}

}  // namespace passel::testing

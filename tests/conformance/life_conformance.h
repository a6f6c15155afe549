// life_conformance.h - open, initialise, leave, come back; who may be which worker.
// A part of store_conformance.h.

#pragma once

#include "conformance/store_suite.h"

namespace passel::testing {

TEST_P(StoreConformance, ChiefInitialisesOnceAndWakesWhoWaits) {
  Make(2);
  StorePtr chief = Open(0);
  EXPECT_FALSE(chief->initialized());
  std::thread waiter([&] {
    StorePtr store = Open(1);
    const Status status = store->WaitUntilInitialized(Deadline::After(kLong));
    EXPECT_TRUE(status.ok()) << status.ToString();
    EXPECT_TRUE(store->initialized());
    ExpectAll(*store, 2.5F);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  InitializeTo(*chief, 2.5F);
  waiter.join();
  EXPECT_EQ(chief->Initialize([](VarId, std::span<float>) { FAIL(); }).code(),
            Code::kFailedPrecondition);
  ExpectAll(*chief, 2.5F);
}

TEST_P(StoreConformance, WaitForInitialisationEndsAtItsDeadline) {
  Make(2);
  StorePtr store = Open(1);
  const std::int64_t begin = MonotonicNs();
  const Status status = store->WaitUntilInitialized(Deadline::After(std::chrono::milliseconds(60)));
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_GE(MonotonicNs() - begin, 60'000'000);
  EXPECT_LT(MonotonicNs() - begin, std::chrono::nanoseconds(kBound).count());
}

TEST_P(StoreConformance, PullBeforeTheVariablesAreInitialisedIsRefused) {
  Make(2);
  StorePtr store = Open(1);
  EXPECT_EQ(store->Pull(PullMode::kView).status().code(), Code::kFailedPrecondition);
}

TEST_P(StoreConformance, SecondOpenOfALiveWorkerIsRefusedWithItsPid) {
  Make(2);
  StorePtr store = Open(1);
  const Result<StorePtr> second = host_->Open(1, Options());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), Code::kAlreadyExists);
  EXPECT_THAT(second.status().message(), ::testing::HasSubstr(std::to_string(::getpid())));
  EXPECT_THAT(second.status().message(), ::testing::HasSubstr("worker/1"));
  // It left the one that is there alone.
  EXPECT_EQ(store->membership()[1].phase, Phase::kRunning);
  EXPECT_EQ(store->membership()[1].epoch, 1u);
}

TEST_P(StoreConformance, WorkerIndexOutOfRangeIsRefused) {
  Make(2);
  for (const int worker : {-1, 2, 1000}) {
    EXPECT_EQ(host_->Open(worker, Options()).status().code(), Code::kInvalidArgument);
  }
}

TEST_P(StoreConformance, WhoLeavesMayComeBackAsAnotherLife) {
  Make(1);
  StorePtr store = Open(0);
  InitializeTo(*store, 1.0F);
  EXPECT_TRUE(store->Leave().ok());
  EXPECT_TRUE(store->Leave().ok()) << "a second Leave() is nothing";
  EXPECT_EQ(store->membership()[0].phase, Phase::kDone);
  EXPECT_EQ(store->Pull(PullMode::kView).status().code(), Code::kAborted);
  store = Open(0);
  EXPECT_TRUE(store->initialized());
  EXPECT_TRUE(store->WaitUntilInitialized(Deadline::After(kLong)).ok());
  EXPECT_EQ(store->membership()[0].epoch, 2u);
  ASSERT_TRUE(PushConstant(*store, -1).ok());
  ExpectAll(*store, 2.0F);
}

TEST_P(StoreConformance, RestoredStoreGoesOnWhereTheOtherWas) {
  for (const OptimizerConfig& optimizer : AllReferenceOptimizers()) {
    SCOPED_TRACE(OptimizerName(optimizer.kind));
    Make(2, optimizer);
    ReferenceModel reference(plan_.variables, optimizer);
    for (int t = 1; t <= 3; ++t) reference.Step(t, static_cast<std::uint64_t>(t), {0});
    JobProgress progress;
    progress.global_step = 3;
    progress.shards.assign(static_cast<std::size_t>(shards()), {3, 3});
    progress.workers = {{3, 1, 20, 50}, {0, 0, 7, 70}, {9, 4, 1, 90}};  // one more than there are
    StorePtr store = Open(0);
    const Status restored = store->Restore(progress, [&](VarId id, int k, std::span<float> floats) {
      const auto& from =
          k == 0 ? reference.values(id) : reference.slot(id, static_cast<std::size_t>(k - 1));
      ASSERT_EQ(from.size(), floats.size());
      std::copy(from.begin(), from.end(), floats.begin());
    });
    ASSERT_TRUE(restored.ok()) << restored.ToString();
    EXPECT_TRUE(store->initialized());
    EXPECT_EQ(store->global_step(), 3);
    EXPECT_EQ(Pull(*store).version(), 3u);
    ExpectValues(*store, reference, "restored");
    EXPECT_EQ(store->counters().local_steps.load(), 50u);
    // Who joins later finds its data where it was. Worker 1 has no part in what follows.
    StorePtr other = Open(1);
    ASSERT_TRUE(other->WaitUntilInitialized(Deadline::After(kLong)).ok());
    EXPECT_EQ(other->counters().cursor_index.load(), 7u);
    EXPECT_EQ(other->counters().local_steps.load(), 70u);
    ASSERT_TRUE(other->Leave().ok());
    for (int t = 4; t <= 5; ++t) {
      const ParamView view = Pull(*store);
      GradientBuffer buffer = store->LendGradient();
      FillTestGradient(*store, buffer, 0, static_cast<std::uint64_t>(t));
      const Result<PushOutcome> outcome = PushAndWait(*store, buffer, view.stamp());
      ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
      EXPECT_EQ(outcome->global_step, t);
      EXPECT_EQ(outcome->staleness, 0u);
      reference.Step(t, static_cast<std::uint64_t>(t), {0});
      ExpectValues(*store, reference, "update " + std::to_string(t));
    }
    EXPECT_EQ(store->Restore(progress, [](VarId, int, std::span<float>) { FAIL(); }).code(),
              Code::kFailedPrecondition);
  }
}

TEST_P(StoreConformance, RestoredJobGoesOnInTheModeThatItsScheduleHasBy) {
  const std::vector<ScheduledMode> schedule = {{10, {Mode::kLocked}},
                                               {20, {Mode::kReplicas, 4}},
                                               {30, {Mode::kBarrier}},
                                               {40, {Mode::kSsp, 1}}};
  for (const std::int64_t step : {9, 10, 25, 30, 41}) {
    SCOPED_TRACE(step);
    plan_ = TestPlan(mode(), shards(), 2, Sgd(1.0));
    plan_.schedule = schedule;
    host_ = std::get<0>(GetParam()).make(plan_);
    Mode expected = mode();
    for (const ScheduledMode& entry : schedule) {
      if (entry.step <= step) expected = entry.setting.mode;
    }
    JobProgress progress;
    progress.global_step = step;
    progress.shards.assign(static_cast<std::size_t>(shards()), {static_cast<Version>(step), step});
    // One has joined in the first mode, and waits.
    StorePtr waiting = Open(1);
    StorePtr chief = Open(0);
    const Status restored = chief->Restore(progress, [&](VarId, int, std::span<float> floats) {
      std::ranges::fill(floats, static_cast<float>(step));
    });
    ASSERT_TRUE(restored.ok()) << restored.ToString();
    ASSERT_TRUE(waiting->WaitUntilInitialized(Deadline::After(kLong)).ok());
    EXPECT_EQ(chief->mode(), expected);
    EXPECT_EQ(waiting->mode(), expected);
    if (expected == mode() && step < 10) continue;  // the next step may be the last one in it
    std::vector<std::thread> threads;
    for (ParameterStore* store : {chief.get(), waiting.get()}) {
      threads.emplace_back([store] {
        for (int i = 0; i < 4; ++i) {
          const Result<PushOutcome> outcome = PushConstant(*store, -1);
          ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
          EXPECT_TRUE(outcome->applied);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    const int updates = expected == Mode::kReplicas ? 2 : IsRoundMode(expected) ? 4 : 8;
    // Over a wire each knows it as of its own last step.
    EXPECT_EQ(std::max(chief->global_step(), waiting->global_step()), step + updates);
    EXPECT_EQ(chief->mode_changes(), 0u);
    if (expected != Mode::kSsp) ExpectAll(*chief, static_cast<float>(step + updates));
  }
}

TEST_P(StoreConformance, RestoreOfAnotherNumberOfShardsIsRefused) {
  Make(1);
  StorePtr store = Open(0);
  JobProgress progress;
  progress.shards.resize(static_cast<std::size_t>(shards()) + 1);
  const Status status = store->Restore(progress, [](VarId, int, std::span<float>) { FAIL(); });
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), ::testing::HasSubstr(std::to_string(shards() + 1)));
  EXPECT_FALSE(store->initialized());
}

TEST_P(StoreConformance, MembershipShowsWhoIsThere) {
  Make(3);
  StorePtr store = Open(1);
  const std::vector<Member> members = store->membership();
  ASSERT_EQ(members.size(), 3u);
  EXPECT_EQ(members[0].phase, Phase::kExpected);
  EXPECT_EQ(members[0].pid, 0);
  EXPECT_EQ(members[0].heartbeat_age_ns, 0);
  EXPECT_EQ(members[1].phase, Phase::kRunning);
  EXPECT_EQ(members[1].pid, ::getpid());
  EXPECT_EQ(members[1].epoch, 1u);
  EXPECT_EQ(members[2].worker, 2);
  EXPECT_EQ(store->worker(), 1);
  EXPECT_EQ(store->mode(), mode());
  EXPECT_TRUE(store->variables() == plan_.variables);
}

}  // namespace passel::testing

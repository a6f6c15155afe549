// Prefetch: the next step is computed while a gradient travels.

#include <sys/wait.h>

#include <csignal>
#include <future>
#include <thread>

#include "fabric/remote_ps.h"
#include "fabric/remote_stores.h"

namespace passel::testing {
namespace {

using ::testing::AllOf;
using ::testing::Ge;
using ::testing::Le;

void ExpectOwn(ParameterStore& store, float value) {
  const Result<ParamView> view = store.Pull(PullMode::kView);
  ASSERT_TRUE(view.ok()) << view.status().ToString();
  for (VarId id = 0; id < store.variables().size(); ++id) {
    for (const float x : view->values(id)) ASSERT_EQ(x, value) << store.variables()[id].name;
  }
}

// Of one worker alone each step but the first is computed without the update before it.
TEST(Prefetch, AStepIsComputedOnValuesWithoutTheLastGradientAndSaysSo) {
  for (const int shards : {1, 3}) {
    for (const Mode mode : kAtOnceModes) {
      SCOPED_TRACE(std::string(ModeName(mode)) + " on " + std::to_string(shards));
      RemoteHost host(TestPlan(mode, shards, 1, Sgd(1.0)));
      host.prefetch = true;
      auto store = OpenOn(host, 0);
      InitializeTo(*store, 0);
      constexpr int kSteps = 12;
      for (int i = 1; i <= kSteps; ++i) {
        const Result<PushOutcome> outcome = PushConstant(*store, -1);
        ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
        EXPECT_TRUE(outcome->applied);
        EXPECT_EQ(outcome->gradients, i == 1 ? 0 : 1);
        EXPECT_EQ(outcome->global_step, i - 1);
        if (i > 1) {
          EXPECT_EQ(outcome->staleness, i == 2 ? 0u : 1u);
        }
        EXPECT_EQ(store->counters().local_steps.load(), static_cast<std::uint64_t>(i));
      }
      ExpectOwn(*store, kSteps - 1);  // the values of one step before
      ExpectOwn(*store, kSteps);      // who asks again waits for those of the last
      ASSERT_TRUE(PushConstant(*store, -1).ok());
      const Result<ParamView> last = store->PullLast();
      ASSERT_TRUE(last.ok()) << last.status().ToString();
      EXPECT_EQ(last->values(0)[0], kSteps + 1);
      ASSERT_TRUE(PushConstant(*store, -1).ok());
      EXPECT_TRUE(store->Leave().ok());
      EXPECT_EQ(host.Memory()[0].state->global_step.load(), kSteps + 2);
      for (const ShardMemory& memory : host.Memory()) EXPECT_EQ(memory.values[0], kSteps + 2);
    }
  }
}

// A ps that stands still holds up the second step from then on, not the next one.
TEST(Prefetch, TheNextStepNeedNotWaitForThePs) {
  RemoteHost host(TestPlan(Mode::kHogwild, 1, 1, Sgd(1.0)));
  host.prefetch = true;
  auto store = OpenOn(host, 0);
  InitializeTo(*store, 0);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(PushConstant(*store, -1).ok());
  ExpectOwn(*store, 2);
  const std::uint32_t stamp = store->Pull(PullMode::kView)->stamp();  // with the third
  ASSERT_EQ(::kill(host.ps(0).pid(), SIGSTOP), 0);
  siginfo_t stopped;
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(host.ps(0).pid()), &stopped, WSTOPPED), 0);
  GradientBuffer gradient = store->LendGradient();
  FillGradient(*store, gradient, -1);
  const Result<Ticket> ticket = store->Push(gradient, stamp, Deadline::After(kLong));
  ASSERT_TRUE(ticket.ok());
  ASSERT_TRUE(store->Wait(*ticket, Deadline::After(kLong)).ok());
  ExpectOwn(*store, 3);
  auto second = std::async(std::launch::async, [&] { return PushConstant(*store, -1); });
  EXPECT_EQ(second.wait_for(std::chrono::milliseconds(200)), std::future_status::timeout);
  ASSERT_EQ(::kill(host.ps(0).pid(), SIGCONT), 0);
  EXPECT_TRUE(second.get().ok());
  ExpectAll(*store, 5);
}

// As after a step that failed: nobody has left, and the gradient's memory goes.
TEST(Prefetch, AStoreMayEndWhileAGradientIsOnItsWay) {
  for (const int shards : {1, 2}) {
    RemoteHost host(TestPlan(Mode::kHogwild, shards, 1, Sgd(1.0)));
    host.prefetch = true;
    auto store = OpenOn(host, 0);
    InitializeTo(*store, 0);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(PushConstant(*store, -1).ok());
    ExpectOwn(*store, 2);
    const std::uint32_t stamp = store->Pull(PullMode::kView)->stamp();
    const int last = shards - 1;
    ASSERT_EQ(::kill(host.ps(last).pid(), SIGSTOP), 0);
    siginfo_t stopped;
    ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(host.ps(last).pid()), &stopped, WSTOPPED), 0);
    GradientBuffer gradient = store->LendGradient();
    FillGradient(*store, gradient, -1);
    const Result<Ticket> ticket = store->Push(gradient, stamp, Deadline::After(kLong));
    ASSERT_TRUE(ticket.ok());
    ASSERT_TRUE(store->Wait(*ticket, Deadline::After(kLong)).ok());
    std::thread goes_on([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      EXPECT_EQ(::kill(host.ps(last).pid(), SIGCONT), 0);
    });
    store.reset();
    goes_on.join();
  }
}

TEST(Prefetch, NoUpdateIsLostOrMadeTwiceOverBadPipesAndWhenThePsIsKilled) {
  constexpr int kWorkers = 3;
  constexpr int kSteps = 60;
  for (const bool mix : {false, true}) {
    for (const bool killed : {false, true}) {
      SCOPED_TRACE(std::string(mix ? "a mix" : "by messages") + (killed ? ", killed" : ""));
      RemoteHost host(TestPlan(Mode::kLocked, mix ? 2 : 1, kWorkers, Sgd(1.0)),
                      killed ? Faults{} : kBadPipes, /*seed=*/3);
      host.prefetch = true;
      // ps/0, which is killed, is elsewhere for all.
      if (mix) host.shares = [](int, int shard) { return shard == 1; };
      std::vector<std::unique_ptr<ParameterStore>> stores;
      for (int k = 0; k < kWorkers; ++k) stores.push_back(OpenOn(host, k));
      InitializeTo(*stores[0], 0);
      std::vector<std::future<int>> steps;
      for (auto& store : stores) {
        steps.push_back(std::async(std::launch::async, [&] {
          if (!store->WaitUntilInitialized(Deadline::After(kLong)).ok()) return 0;
          for (int i = 0; i < kSteps; ++i) {
            const Result<PushOutcome> outcome = PushConstant(*store, -1);
            EXPECT_TRUE(outcome.ok()) << outcome.status().ToString();
            if (!outcome.ok()) return i;
            if (killed) std::this_thread::sleep_for(std::chrono::milliseconds(5));
          }
          const Status left = store->LeaveForNow();
          EXPECT_TRUE(left.ok()) << left.ToString();
          return kSteps;
        }));
      }
      for (int i = 0; killed && i < 3; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(70));
        host.ps(0).EndCleanly();  // not in the middle of an update
        host.ps(0).Start();
      }
      for (auto& made : steps) ASSERT_EQ(made.get(), kSteps);
      EXPECT_EQ(host.Memory()[0].state->global_step.load(), kWorkers * kSteps);
      for (const ShardMemory& memory : host.Memory()) {
        EXPECT_EQ(memory.values[0], kWorkers * kSteps);
        EXPECT_EQ(memory.state->version.load(), std::uint64_t{kWorkers} * kSteps);
      }
    }
  }
}

// Before the mode changes the gradient that would have been on its way is applied; in rounds there
// is no prefetch.
TEST(Prefetch, AJobMayGoOverToRoundsAndBack) {
  StorePlan plan = TestPlan(Mode::kHogwild, 1, 1, Sgd(1.0));
  plan.schedule = {{5, {Mode::kBarrier}}, {9, {Mode::kLocked}}};
  RemoteHost host(plan);
  host.prefetch = true;
  auto store = OpenOn(host, 0);
  InitializeTo(*store, 0);
  int rounds = 0;
  for (int i = 1; i <= 14; ++i) {
    const Result<PushOutcome> outcome = PushConstant(*store, -1);
    ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
    if (store->mode() != Mode::kBarrier) continue;
    ++rounds;
    EXPECT_EQ(outcome->global_step, i);
    EXPECT_EQ(outcome->staleness, rounds == 1 ? 1u : 0u) << i;
  }
  EXPECT_THAT(rounds, AllOf(Ge(3), Le(4)));
  EXPECT_EQ(store->mode_changes(), 2u);
  ExpectAll(*store, 14);
}

}  // namespace
}  // namespace passel::testing

// Four workers as threads of one process, for ThreadSanitizer: heap and arena, every mode, some
// thousand pushes, readers beside them. Also the conformance suite on arenas that are mapped once.

#include <atomic>

#include "base/random.h"
#include "conformance/arena_host.h"
#include "conformance/heap_host.h"
#include "store_conformance.h"
#include "support/sanitized.h"

namespace passel::testing {
namespace {

constexpr int kWorkers = 4;
constexpr int kPushesPerWorker = Turns(1500, 900);

std::unique_ptr<StoreHost> MakeHeap(const StorePlan& plan) {
  return std::make_unique<HeapHost>(plan);
}
std::unique_ptr<StoreHost> MakeArenas(const StorePlan& plan) {
  return std::make_unique<ArenaHost>(plan, /*one_mapping=*/true);
}

class EngineThreads : public ::testing::TestWithParam<std::tuple<StoreCase, Mode>> {};

TEST_P(EngineThreads, WorkersAndReadersDoNotRace) {
  const auto& [store_case, mode] = GetParam();
  OptimizerConfig optimizer = Sgd(1.0);
  StorePlan plan = TestPlan(mode, store_case.shards, kWorkers, optimizer);
  if (mode == Mode::kSsp) plan.mode.number = 3;
  const std::unique_ptr<StoreHost> host = store_case.make(plan);
  WaitOptions options;
  options.spin = std::chrono::microseconds(20);
  std::atomic<int> running{kWorkers};
  std::vector<std::thread> threads;
  for (int k = 0; k < kWorkers; ++k) {
    threads.emplace_back([&, k] {
      // Comes back a few times, as another life of the same worker.
      for (int life = 0; life < 3; ++life) {
        auto opened = host->Open(k, options);
        ASSERT_TRUE(opened.ok()) << opened.status().ToString();
        ParameterStore& store = **opened;
        if (k == 0 && life == 0) InitializeTo(store, 0);
        ASSERT_TRUE(store.WaitUntilInitialized(Deadline::After(kLong)).ok());
        for (int i = 0; i < kPushesPerWorker / 3; ++i) {
          auto view = store.Pull(i % 2 == 0 ? PullMode::kView : PullMode::kCopy);
          ASSERT_TRUE(view.ok()) << view.status().ToString();
          GradientBuffer buffer = store.LendGradient();
          FillGradient(store, buffer, -1);
          ASSERT_TRUE(store.GradientIsFinite(buffer, nullptr));
          auto ticket = store.Push(buffer, view->stamp(), Deadline::After(kLong));
          ASSERT_TRUE(ticket.ok()) << ticket.status().ToString();
          auto outcome = store.Wait(*ticket, Deadline::After(kLong));
          ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
          ASSERT_TRUE(outcome->applied);
        }
        EXPECT_TRUE(store.Leave().ok());
      }
      running.fetch_sub(1);
    });
  }
  // What `passel top` and the ps do meanwhile.
  std::thread reader([&] {
    const std::vector<ShardMemory> memory = host->Memory();
    while (running.load() > 0) {
      for (const ShardMemory& m : memory) {
        for (const Member& member : Membership(m)) ASSERT_LT(member.epoch, 4u);
        MarkDeadByKernel(m);
        AllWorkersEnded(m);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  for (std::thread& t : threads) t.join();
  reader.join();
  auto store = host->Open(0, options);
  ASSERT_TRUE(store.ok());
  ASSERT_TRUE((*store)->WaitUntilInitialized(Deadline::After(kLong)).ok());
  auto view = (*store)->Pull(PullMode::kCopy);
  ASSERT_TRUE(view.ok());
  const std::int64_t steps = (*store)->global_step();
  for (VarId id = 0; id < plan.variables.size(); ++id) {
    for (const float x : view->values(id)) {
      if (mode == Mode::kHogwild || mode == Mode::kSsp) {
        ASSERT_LE(x, kWorkers * kPushesPerWorker);
        ASSERT_GT(x, 0);
      } else {
        ASSERT_EQ(x, static_cast<float>(steps)) << plan.variables[id].name;
      }
    }
  }
  if (mode == Mode::kSsp) {
    for (int k = 0; k < kWorkers; ++k) {
      EXPECT_LE(host->Memory()[0].tasks[k].counters.max_clock_lead.load(), 3u) << k;
    }
  }
  if (IsRoundMode(mode)) {
    // A worker that is between two lives misses rounds of the others.
    EXPECT_GE(steps, kPushesPerWorker);
    EXPECT_LE(steps, kWorkers * kPushesPerWorker);
  } else {
    EXPECT_EQ(steps, kWorkers * kPushesPerWorker);
  }
}

// Rounds that do not wait for everyone, and rounds of several gradients per worker.
class ReplicasThreads : public ::testing::TestWithParam<std::tuple<StoreCase, int>> {};

TEST_P(ReplicasThreads, EveryRoundIsAppliedOnceAndEveryDropIsCounted) {
  const auto& [store_case, replicas] = GetParam();
  StorePlan plan = TestPlan(Mode::kReplicas, store_case.shards, kWorkers, Sgd(1.0));
  plan.mode.number = replicas;
  const ShardRules rules = plan.Rules();
  const std::unique_ptr<StoreHost> host = store_case.make(plan);
  WaitOptions options;
  options.spin = std::chrono::microseconds(20);
  constexpr std::int64_t kRounds = Turns(1000, 600);
  std::atomic<std::uint64_t> applied{0};
  std::atomic<std::uint64_t> dropped{0};
  std::vector<std::thread> threads;
  for (int k = 0; k < kWorkers; ++k) {
    threads.emplace_back([&, k] {
      Random random(static_cast<std::uint64_t>(k));
      auto opened = host->Open(k, options);
      ASSERT_TRUE(opened.ok()) << opened.status().ToString();
      ParameterStore& store = **opened;
      if (k == 0) InitializeTo(store, 0);
      ASSERT_TRUE(store.WaitUntilInitialized(Deadline::After(kLong)).ok());
      for (;;) {
        auto view = store.Pull(PullMode::kView);
        ASSERT_TRUE(view.ok()) << view.status().ToString();
        if (view->version() >= kRounds) break;
        GradientBuffer buffer = store.LendGradient();
        FillGradient(store, buffer, -1);
        if (random.Below(8) == 0) {
          std::this_thread::sleep_for(std::chrono::microseconds(random.Below(200)));
        }
        auto ticket = store.Push(buffer, view->stamp(), Deadline::After(kLong));
        ASSERT_TRUE(ticket.ok()) << ticket.status().ToString();
        auto outcome = store.Wait(*ticket, Deadline::After(kLong));
        ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
        (outcome->applied ? applied : dropped) += static_cast<std::uint64_t>(outcome->gradients);
        if (outcome->gradients != 0 && outcome->applied) {
          ASSERT_EQ(outcome->gradients, rules.Quota(k));
          ASSERT_EQ(outcome->version, view->version() + 1);
          ASSERT_EQ(outcome->staleness, 0u);
        }
      }
      EXPECT_TRUE(store.Leave().ok());
    });
  }
  for (std::thread& t : threads) t.join();
  auto store = host->Open(0, options);
  ASSERT_TRUE(store.ok());
  ASSERT_TRUE((*store)->WaitUntilInitialized(Deadline::After(kLong)).ok());
  EXPECT_EQ((*store)->global_step(), kRounds) << "exactly so many";
  auto view = (*store)->Pull(PullMode::kCopy);
  ASSERT_TRUE(view.ok());
  for (VarId id = 0; id < plan.variables.size(); ++id) {
    for (const float x : view->values(id)) ASSERT_EQ(x, static_cast<float>(kRounds));
  }
  std::uint64_t counted_dropped = 0;
  std::uint64_t local_steps = 0;
  for (int k = 0; k < kWorkers; ++k) {
    counted_dropped += host->Memory()[0].tasks[k].counters.dropped.load();
    local_steps += host->Memory()[0].tasks[k].counters.local_steps.load();
  }
  EXPECT_EQ(counted_dropped, dropped.load());
  EXPECT_EQ(local_steps, applied.load() + dropped.load());
  if (replicas >= kWorkers) {
    EXPECT_EQ(applied.load(), static_cast<std::uint64_t>(kRounds * replicas));
    EXPECT_EQ(dropped.load(), 0u);
  } else {
    // The last rounds may have fewer members, when workers have left.
    EXPECT_GE(applied.load(), static_cast<std::uint64_t>((kRounds - 1) * replicas));
    EXPECT_LE(applied.load(), static_cast<std::uint64_t>(kRounds * kWorkers));
  }
}

// The engine is the same on the heap: there one shard is enough, and what the workers do at once.
const std::vector<StoreCase> kStressCases = {{"Heap1", 1, MakeHeap}, {"Arena3", 3, MakeArenas}};
const std::vector<StoreCase> kArenaCase = {kStressCases[1]};
INSTANTIATE_TEST_SUITE_P(Stress, EngineThreads,
                         ::testing::Combine(::testing::ValuesIn(kStressCases),
                                            ::testing::ValuesIn(kAllModes)),
                         NameOfCase);
INSTANTIATE_TEST_SUITE_P(Stress, ReplicasThreads,
                         ::testing::Combine(::testing::ValuesIn(kArenaCase),
                                            ::testing::Values(1, 2, 3, 4, 6, 9)),
                         [](const auto& test) {
                           return std::get<0>(test.param).name + "_R" +
                                  std::to_string(std::get<1>(test.param));
                         });
PASSEL_INSTANTIATE_STORE_CONFORMANCE(OneMapping, kArenaCase);

}  // namespace
}  // namespace passel::testing

// Four workers as threads of one process, for ThreadSanitizer: heap and arena, every mode, some
// thousand pushes, readers beside them. Also the conformance suite on arenas that are mapped once.

#include <atomic>

#include "conformance/arena_host.h"

namespace passel::testing {
namespace {

constexpr int kWorkers = 4;
constexpr int kPushesPerWorker = 1500;

class HeapHost final : public StoreHost {
 public:
  explicit HeapHost(const StorePlan& plan) : arena_(std::move(*InProcessArena::Create(plan))) {}
  Result<std::unique_ptr<ParameterStore>> Open(int worker, const EngineOptions& options) override {
    return arena_->Open(worker, options);
  }
  std::vector<ShardMemory> Memory() override {
    std::vector<ShardMemory> memory;
    for (int s = 0; s < arena_->plan().variables.shards(); ++s) memory.push_back(arena_->shard(s));
    return memory;
  }

 private:
  std::unique_ptr<InProcessArena> arena_;
};

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
  const StorePlan plan = TestPlan(mode, store_case.shards, kWorkers, optimizer);
  const std::unique_ptr<StoreHost> host = store_case.make(plan);
  EngineOptions options;
  options.spin = std::chrono::microseconds(20);
  std::atomic<int> running{kWorkers};
  std::vector<std::thread> threads;
  for (int k = 0; k < kWorkers; ++k) {
    threads.emplace_back([&, k, m = mode] {
      // Comes back a few times, as another life of the same worker.
      for (int life = 0; life < 3; ++life) {
        auto opened = host->Open(k, options);
        ASSERT_TRUE(opened.ok()) << opened.status().ToString();
        ParameterStore& store = **opened;
        if (k == 0 && life == 0) InitializeTo(store, 0);
        ASSERT_TRUE(store.WaitUntilInitialized(Deadline::After(kLong)).ok());
        for (int i = 0; i < kPushesPerWorker / 3; ++i) {
          auto view =
              store.Pull(Selection::Everything(), i % 2 == 0 ? PullMode::kView : PullMode::kCopy);
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
  auto view = (*store)->Pull(Selection::Everything(), PullMode::kCopy);
  ASSERT_TRUE(view.ok());
  const std::int64_t steps = (*store)->global_step();
  for (VarId id = 0; id < plan.variables.size(); ++id) {
    for (const float x : view->values(id)) {
      if (mode == Mode::kHogwild) {
        ASSERT_LE(x, kWorkers * kPushesPerWorker);
        ASSERT_GT(x, 0);
      } else {
        ASSERT_EQ(x, static_cast<float>(steps)) << plan.variables[id].name;
      }
    }
  }
  if (mode == Mode::kBarrier) {
    // A worker that is between two lives misses rounds of the others.
    EXPECT_GE(steps, kPushesPerWorker);
    EXPECT_LE(steps, kWorkers * kPushesPerWorker);
  } else {
    EXPECT_EQ(steps, kWorkers * kPushesPerWorker);
  }
}

const StoreCase kStressCases[] = {{"Heap1", 1, MakeHeap},
                                  {"Heap3", 3, MakeHeap},
                                  {"Arena1", 1, MakeArenas},
                                  {"Arena3", 3, MakeArenas}};
INSTANTIATE_TEST_SUITE_P(Stress, EngineThreads,
                         ::testing::Combine(::testing::ValuesIn(kStressCases),
                                            ::testing::ValuesIn(kAllModes)),
                         NameOfCase);
INSTANTIATE_TEST_SUITE_P(OneMapping, StoreConformance,
                         ::testing::Combine(::testing::ValuesIn(kStressCases),
                                            ::testing::ValuesIn(kAllModes)),
                         NameOfCase);

}  // namespace
}  // namespace passel::testing

// What a whole job may rely on in each mode: it ends, for everyone, at the right step; nobody gets
// further ahead than the bound; a straggler costs nothing where there is a backup.

#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <future>

#include "base/random.h"
#include "compute/cpu_backend.h"
#include "conformance/store_suite.h"
#include "data/dataset.h"
#include "data/digits.h"
#include "support/sanitized.h"
#include "train/model_plan.h"
#include "train/worker_loop.h"

namespace passel::testing {

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr int kWorkers = 4;
constexpr std::int64_t kSteps = 50;

const Dataset& Digits() {
  static const OwnedDataset* const digits = [] {
    std::string dir = ::testing::TempDir() + "modes_test.XXXXXX";
    PASSEL_CHECK(::mkdtemp(dir.data()) != nullptr, "a folder for the digits");
    PASSEL_CHECK(WriteGeneratedDigits(dir, 200, 20, 1).ok(), "digits are written");
    Result<OwnedDataset> loaded = OwnedDataset::Load(dir);
    PASSEL_CHECK(loaded.ok(), loaded.status().message().c_str());
    std::filesystem::remove_all(dir);
    return new OwnedDataset(std::move(*loaded));
  }();
  return **digits;
}

struct Kind {
  const char* name;
  Mode mode;
  int number;
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

class CleanEnd : public ::testing::TestWithParam<Kind> {};

// One job of worker loops with a random delay before each step.
void RunJob(const Kind& kind, std::uint64_t seed) {
  ModelConfig model = DefaultModelConfig(ModelKind::kSoftmax);
  model.inputs = Digits().train().image_pixels;
  model.classes = Digits().num_classes();
  StorePlan plan;
  plan.mode = {kind.mode, kind.number};
  plan.optimizer = Sgd(0.01);
  plan.num_workers = kWorkers;
  plan.variables = *PlaceModel(model, 1 + static_cast<int>(seed % 2), PlacementOptions());
  const std::unique_ptr<InProcessArena> arena = std::move(*InProcessArena::Create(plan));
  const ModelLayout layout = *ModelLayout::Make(model, plan.variables);
  std::vector<std::future<WorkerResult>> results;
  for (int k = 0; k < kWorkers; ++k) {
    results.push_back(std::async(std::launch::async, [&, k] {
      Random random(StreamSeed(seed, static_cast<std::uint64_t>(k)));
      const auto backend = std::move(*CreateCpuBackend());
      const auto trained = std::move(*Model::Create(model, *backend, 100));
      WaitOptions engine;
      engine.spin = microseconds(20);
      auto opened = arena->Open(k, engine);
      PASSEL_CHECK(opened.ok(), opened.status().message().c_str());
      ParameterStore& store = **opened;
      Status status = k == 0 ? InitializeStore(model, layout, store)
                             : store.WaitUntilInitialized(Deadline::After(kLong));
      PASSEL_CHECK(status.ok(), status.message().c_str());
      WorkerOptions options;
      options.train_steps = kSteps;
      options.batch_size = 10;
      options.num_workers = kWorkers;
      options.seed = seed;
      options.push_limit = kLong;
      WorkerCallbacks callbacks;
      // Workers are of different speed, and none is the same in every step.
      const std::uint64_t most = 1 + random.Below(1000);
      callbacks.check = [&](bool*) -> Status {
        std::this_thread::sleep_for(microseconds(random.Below(most)));
        return {};
      };
      const DataSplit data = *SplitValidation(Digits(), 0);
      Result<WorkerResult> result = RunWorker(options, callbacks, *trained, layout, data, store);
      EXPECT_TRUE(result.ok()) << result.status().ToString();
      return result.ok() ? *result : WorkerResult{};
    }));
  }
  // A thread that hangs cannot be ended: the whole program is, by its deadlines or by ctest.
  std::int64_t local_steps = 0;
  std::int64_t dropped = 0;
  for (auto& future : results) {
    const WorkerResult result = future.get();
    EXPECT_EQ(result.reason, LeaveReason::kStepsReached);
    EXPECT_GE(result.global_step, kSteps);
    local_steps += result.local_steps;
    dropped += result.dropped;
  }
  const ShardState& state = *arena->shard(0).state;
  if (IsRoundMode(kind.mode)) {
    EXPECT_EQ(state.global_step.load(), kSteps);
    EXPECT_EQ(state.version.load(), static_cast<std::uint64_t>(kSteps));
  } else {
    EXPECT_GE(state.global_step.load(), kSteps);
    EXPECT_LE(state.global_step.load(), kSteps + kWorkers - 1);
  }
  std::int64_t counted_dropped = 0;
  std::int64_t counted_steps = 0;
  for (int k = 0; k < kWorkers; ++k) {
    const WorkerCounters& c = arena->shard(0).tasks[k].counters;
    counted_dropped += static_cast<std::int64_t>(c.dropped.load());
    counted_steps += static_cast<std::int64_t>(c.local_steps.load());
    if (kind.mode == Mode::kSsp) {
      EXPECT_LE(c.max_clock_lead.load(), static_cast<std::uint64_t>(kind.number));
    }
  }
  EXPECT_EQ(counted_dropped, dropped);
  // A worker that stops waiting because all is done does not report that step.
  EXPECT_GE(counted_steps, local_steps);
  EXPECT_LE(counted_steps, local_steps + kWorkers);
  if (kind.mode == Mode::kBarrier || kind.number >= kWorkers) {
    EXPECT_EQ(local_steps, kSteps * std::max(kWorkers, kind.number));
    EXPECT_EQ(dropped, 0);
  }
}

TEST_P(CleanEnd, EveryWorkerEndsAtTheLastStepWhateverTheOthersDo) {
  const char* text = std::getenv("PASSEL_TEST_SEED");
  const std::uint64_t first = text != nullptr ? std::strtoull(text, nullptr, 10)
                                              : static_cast<std::uint64_t>(MonotonicNs());
  std::printf("PASSEL_TEST_SEED=%llu\n", static_cast<unsigned long long>(first));
  const std::int64_t begin = MonotonicNs();
  const int runs = ManyTurns() ? 200 : 20;
  for (int run = 0; run < runs; ++run) {
    SCOPED_TRACE("run " + std::to_string(run));
    ASSERT_NO_FATAL_FAILURE(RunJob(GetParam(), first + static_cast<std::uint64_t>(run)));
    ASSERT_FALSE(HasFailure());
  }
  std::printf("%d runs of %d steps in %.1f s\n", runs, static_cast<int>(kSteps),
              1e-9 * static_cast<double>(MonotonicNs() - begin));
}

INSTANTIATE_TEST_SUITE_P(
    Modes, CleanEnd,
    ::testing::Values(Kind{"hogwild", Mode::kHogwild, 0}, Kind{"locked", Mode::kLocked, 0},
                      Kind{"barrier", Mode::kBarrier, 0}, Kind{"replicas_R1", Mode::kReplicas, 1},
                      Kind{"replicas_R3", Mode::kReplicas, 3},
                      Kind{"replicas_R4", Mode::kReplicas, 4},
                      Kind{"replicas_R6", Mode::kReplicas, 6}, Kind{"ssp_0", Mode::kSsp, 0},
                      Kind{"ssp_3", Mode::kSsp, 3}),
    [](const auto& test) { return std::string(test.param.name); });

// --- Bounded staleness ---------------------------------------------------------------------------

TEST(BoundedStaleness, IsNeverExceededUnderRandomDelays) {
  for (const int bound : {0, 1, 5}) {
    SCOPED_TRACE(bound);
    StorePlan plan = TestPlan(Mode::kSsp, 1, kWorkers, Sgd(1e-6));
    plan.mode.number = bound;
    const std::unique_ptr<InProcessArena> arena = std::move(*InProcessArena::Create(plan));
    const std::uint64_t each = (ManyTurns() ? 100'000 : 10'000) / kWorkers;
    // Counted here, apart from the store: raised before the push, so never behind the store's.
    std::array<std::atomic<std::uint64_t>, kWorkers> begun{};
    std::atomic<std::uint64_t> largest{0};
    std::atomic<int> here{0};
    std::vector<std::thread> threads;
    for (int k = 0; k < kWorkers; ++k) {
      threads.emplace_back([&, k] {
        Random random(static_cast<std::uint64_t>(100 * bound + k));
        WaitOptions engine;
        engine.spin = microseconds(20);
        auto opened = arena->Open(k, engine);
        ASSERT_TRUE(opened.ok());
        ParameterStore& store = **opened;
        if (k == 0) InitializeTo(store, 0);
        ASSERT_TRUE(store.WaitUntilInitialized(Deadline::After(kLong)).ok());
        here.fetch_add(1);
        while (here.load() < kWorkers) std::this_thread::yield();
        for (std::uint64_t step = 0; step < each; ++step) {
          for (int other = 0; other < kWorkers; ++other) {
            const std::uint64_t theirs = begun[static_cast<std::size_t>(other)].load();
            const std::uint64_t lead = step > theirs ? step - theirs : 0;
            ASSERT_LE(lead, static_cast<std::uint64_t>(bound)) << "ahead of worker/" << other;
            if (lead > largest.load()) largest.store(lead);
          }
          auto view = store.Pull(PullMode::kView);
          ASSERT_TRUE(view.ok()) << view.status().ToString();
          GradientBuffer buffer = store.LendGradient();
          FillGradient(store, buffer, -1);
          // Now and then somebody is slow, now one and now another.
          if (random.Below(50) == 0) std::this_thread::sleep_for(microseconds(random.Below(400)));
          begun[static_cast<std::size_t>(k)].store(step + 1);
          auto ticket = store.Push(buffer, view->stamp(), Deadline::After(kLong));
          ASSERT_TRUE(ticket.ok()) << ticket.status().ToString();
          auto outcome = store.Wait(*ticket, Deadline::After(kLong));
          ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
          ASSERT_LE(outcome->staleness,
                    static_cast<std::uint64_t>((kWorkers - 1) * (2 * bound + 1)));
        }
        begun[static_cast<std::size_t>(k)].store(each + 1000);  // it holds up nobody any more
        EXPECT_TRUE(store.Leave().ok());
      });
    }
    for (std::thread& t : threads) t.join();
    std::uint64_t counted = 0;
    for (int k = 0; k < kWorkers; ++k) {
      counted = std::max(counted, arena->shard(0).tasks[k].counters.max_clock_lead.load());
    }
    EXPECT_EQ(counted, static_cast<std::uint64_t>(bound)) << "reached, and not exceeded";
    EXPECT_EQ(arena->shard(0).state->global_step.load(),
              static_cast<std::int64_t>(each * kWorkers));
    std::printf("bound %d: %llu steps, largest lead %llu (seen from outside %llu)\n", bound,
                static_cast<unsigned long long>(each * kWorkers),
                static_cast<unsigned long long>(counted),
                static_cast<unsigned long long>(largest.load()));
  }
}

// --- Backup workers ------------------------------------------------------------------------------

// Rounds per second of `workers` workers that compute for 3 ms; the last one for `slow`.
double RoundsPerSecond(int workers, int replicas, milliseconds slow) {
  StorePlan plan = TestPlan(Mode::kReplicas, 1, workers, Sgd(1e-6));
  plan.mode.number = replicas;
  const std::unique_ptr<InProcessArena> arena = std::move(*InProcessArena::Create(plan));
  constexpr Version kRounds = 150;
  std::vector<std::thread> threads;
  std::atomic<int> here{0};
  std::atomic<std::int64_t> begin{0};
  std::atomic<std::int64_t> end{0};
  for (int k = 0; k < workers; ++k) {
    threads.emplace_back([&, k] {
      auto opened = arena->Open(k);
      ASSERT_TRUE(opened.ok());
      ParameterStore& store = **opened;
      if (k == 0) InitializeTo(store, 0);
      ASSERT_TRUE(store.WaitUntilInitialized(Deadline::After(kLong)).ok());
      here.fetch_add(1);
      while (here.load() < workers) std::this_thread::yield();
      if (k == 0) begin.store(MonotonicNs());
      for (;;) {
        auto view = store.Pull(PullMode::kView);
        ASSERT_TRUE(view.ok());
        if (view->version() >= kRounds) break;
        GradientBuffer buffer = store.LendGradient();
        FillGradient(store, buffer, -1);
        std::this_thread::sleep_for(k == workers - 1 ? slow : milliseconds(3));
        auto ticket = store.Push(buffer, view->stamp(), Deadline::After(kLong));
        ASSERT_TRUE(ticket.ok());
        ASSERT_TRUE(store.Wait(*ticket, Deadline::After(kLong)).ok());
      }
      if (k == 0) end.store(MonotonicNs());
      EXPECT_TRUE(store.Leave().ok());
    });
  }
  for (std::thread& t : threads) t.join();
  return static_cast<double>(kRounds) / (1e-9 * static_cast<double>(end.load() - begin.load()));
}

TEST(BackupWorkers, AStragglerDoesNotSlowTheOthers) {
  // On a busy machine the best of a few pairs tells what the straggler itself costs.
  double without = 0;
  double with = 0;
  for (int pair = 0; pair < 5 && with <= 0.9 * without; ++pair) {
    without = RoundsPerSecond(kWorkers - 1, kWorkers - 1, milliseconds(3));
    with = RoundsPerSecond(kWorkers, kWorkers - 1, milliseconds(150));
  }
  const double waiting = RoundsPerSecond(2, 2, milliseconds(30));
  std::printf(
      "rounds/s: %d workers %.1f; and one 50 times slower as a backup %.1f (%.3f); waiting "
      "for one 10 times slower %.1f\n",
      kWorkers - 1, without, with, with / without, waiting);
  EXPECT_GT(with, 0.9 * without);
  EXPECT_LT(waiting, 0.5 * without) << "the delay is not one";
}

}  // namespace
}  // namespace passel::testing

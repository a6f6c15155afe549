// Writers of the lock-free modes on one block: no update of theirs may exceed what any order of
// whole updates could give.
//
// Adam divides the first moment m by the root of the second, s. In any order of whole updates
//   m^2 <= s (1 - beta1)^2 / ((1 - beta2) (1 - beta1^2 / beta2))    (Cauchy-Schwarz)
// so no element moves further than a small multiple of the learning rate at once. A new m beside an
// old s that has decayed to 0 knows no such bound: it moves by m / epsilon. Worse, where a compiled
// loop reads s twice and another update comes in between, s falls below 0 and its root is NaN.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "store/open_store.h"
#include "store/store_plan.h"
#include "support/sanitized.h"

namespace passel {
namespace {

constexpr int kWriters = 12;  // more than there are cores: some are suspended in a block
constexpr int kPushesEach = Turns(1000, 300);
constexpr std::size_t kWide = 32768;    // one block: everyone is always in everyone's way
constexpr std::uint64_t kSeldom = 300;  // pushes from one gradient that is not 0 to the next
constexpr auto kLimit = std::chrono::seconds(100);

StorePlan OneBlock(Mode mode, const OptimizerConfig& optimizer) {
  StorePlan plan;
  plan.mode = mode;
  plan.num_workers = kWriters;
  if (mode == Mode::kSsp) plan.mode.number = kPushesEach;
  plan.gradient_slots = 1;
  plan.block_floats = kWide;
  plan.optimizer = optimizer;
  VariableInfo v;
  v.name = v.logical = "w";
  v.shape = {static_cast<std::int64_t>(kWide)};
  auto table = VariableTable::Build({v}, 1);
  PASSEL_CHECK(table.ok(), "the plan of the test is valid");
  plan.variables = *table;
  return plan;
}

// Everyone pushes 0 and, once in a long while, 1: by then the second moment has decayed to 0.
void PushFromAll(InProcessArena& arena) {
  std::vector<std::thread> writers;
  for (int k = 0; k < kWriters; ++k) {
    writers.emplace_back([&arena, k] {
      auto opened = arena.Open(k);
      ASSERT_TRUE(opened.ok()) << opened.status().ToString();
      ParameterStore& store = **opened;
      if (k == 0) {
        ASSERT_TRUE(store
                        .Initialize([](VarId, std::span<float> values) {
                          std::fill(values.begin(), values.end(), 0.0F);
                        })
                        .ok());
      }
      ASSERT_TRUE(store.WaitUntilInitialized(Deadline::After(kLimit)).ok());
      Random random(StreamSeed(7, static_cast<std::uint64_t>(k), 1));
      for (int i = 0; i < kPushesEach; ++i) {
        auto view = store.Pull(PullMode::kView);
        ASSERT_TRUE(view.ok()) << view.status().ToString();
        GradientBuffer buffer = store.LendGradient();
        const float g = random.Below(kSeldom) == 0 ? 1.0F : 0.0F;
        std::span<float> gradient = buffer.values(0);
        std::fill(gradient.begin(), gradient.end(), g);
        auto ticket = store.Push(buffer, view->stamp(), Deadline::After(kLimit));
        ASSERT_TRUE(ticket.ok()) << ticket.status().ToString();
        ASSERT_TRUE(store.Wait(*ticket, Deadline::After(kLimit)).ok());
      }
      EXPECT_TRUE(store.Leave().ok());
    });
  }
  for (std::thread& writer : writers) writer.join();
}

// Runs it and returns how far the element that moved furthest is from where it began; NaN if any
// value is not finite.
double Furthest(Mode mode, const OptimizerConfig& optimizer) {
  auto arena = InProcessArena::Create(OneBlock(mode, optimizer));
  EXPECT_TRUE(arena.ok()) << arena.status().ToString();
  if (!arena.ok()) return std::nan("");
  PushFromAll(**arena);
  const ShardMemory& memory = (*arena)->shard(0);
  double furthest = 0;
  for (std::size_t i = 0; i < kWide; ++i) {
    if (!std::isfinite(memory.values[i])) return std::nan("");
    furthest = std::max(furthest, std::fabs(static_cast<double>(memory.values[i])));
  }
  return furthest;
}

class SlotRaceTest : public ::testing::TestWithParam<Mode> {};

TEST_P(SlotRaceTest, AdamNeverDividesANewFirstMomentByAnOldSecondOne) {
  OptimizerConfig adam = *ParseOptimizer("adam");
  adam.learning_rate = 1;
  const double b1 = adam.adam_beta1 = 0.1;
  const double b2 = adam.adam_beta2 = 0.5;
  const double ratio = (1 - b1) / std::sqrt((1 - b2) * (1 - b1 * b1 / b2));  // |m| / sqrt(s)
  const double step = adam.learning_rate / (1 - b1) * ratio;
  const double moved = Furthest(GetParam(), adam);
  EXPECT_GT(moved, 0);
  EXPECT_LE(moved, kWriters * kPushesEach * step);
}

TEST_P(SlotRaceTest, RmsPropNeverDividesByTheMeanSquareOfAnotherUpdate) {
  OptimizerConfig rmsprop = *ParseOptimizer("rmsprop");
  rmsprop.learning_rate = 1;
  rmsprop.rmsprop_decay = 0.5;
  // The mean square holds half of this gradient's square at least.
  const double step = rmsprop.learning_rate / std::sqrt(1 - rmsprop.rmsprop_decay);
  const double moved = Furthest(GetParam(), rmsprop);
  EXPECT_GT(moved, 0);
  EXPECT_LE(moved, kWriters * kPushesEach * step);
}

// Those that go ahead without the claim: no state that they may find makes a step too long.
TEST_P(SlotRaceTest, AdagradIsBoundedWhateverItOverlaps) {
  OptimizerConfig adagrad = *ParseOptimizer("adagrad");
  adagrad.learning_rate = 1;
  const double moved = Furthest(GetParam(), adagrad);
  EXPECT_GT(moved, 0);
  EXPECT_LE(moved, kWriters * kPushesEach * adagrad.learning_rate);
}

INSTANTIATE_TEST_SUITE_P(LockFree, SlotRaceTest, ::testing::Values(Mode::kHogwild, Mode::kSsp),
                         [](const auto& mode) { return std::string(ModeName(mode.param)); });

}  // namespace
}  // namespace passel

#include "lab/exact.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "lab/arenas.h"
#include "lab/writers.h"
#include "optim/update_kernels.h"

namespace passel::lab {
namespace {

using ::testing::HasSubstr;

constexpr OptimizerKind kOptimizers[] = {OptimizerKind::kSgd, OptimizerKind::kAdam,
                                         OptimizerKind::kAdagrad, OptimizerKind::kFtrl};

// The arena of a cell, and updates of it as the optimizer's loop makes them.
class Updated {
 public:
  explicit Updated(const Cell& which)
      : cell(which), plan(*CellPlan(which)), arena(*CreateArena(plan)), memory(arena.memory()) {}

  void Apply(std::int64_t step, const float* gradient) {
    passel::Apply(Prepare(plan.optimizer, step), memory.values, memory.slots, gradient,
                  cell.elements);
  }
  // As so many pushes, or rounds from `first` on, with nothing lost.
  void Count(int pushes, std::int64_t first = kCountingStep + 1) {
    FillForCounting(plan, cell.elements, memory.values, memory.slots);
    std::vector<float> gradient(cell.elements);
    FillGradientForCounting(cell.elements, gradient.data());
    for (int i = 0; i < pushes; ++i) Apply(first + i, gradient.data());
  }
  float* counts() const {
    const OptimizerKind kind = plan.optimizer.kind;
    const bool squares = kind == OptimizerKind::kAdagrad || kind == OptimizerKind::kFtrl;
    return squares ? memory.slots[0] : memory.values;
  }

  const Cell cell;
  const StorePlan plan;
  const shm::Arena arena;
  const ShardMemory memory;
};

Cell CellOf(Sharing sharing, OptimizerKind optimizer, int writers = 2) {
  Cell cell;
  cell.sharing = sharing;
  cell.op = sharing.in_rounds() ? CellOp::kRound : CellOp::kPush;
  cell.optimizer = optimizer;
  cell.elements = 5000;
  cell.writers = writers;
  return cell;
}

TEST(CountLost, CountsExactlyTheUpdatesThatAreMissing) {
  for (const OptimizerKind optimizer : kOptimizers) {
    Updated updated(CellOf(Foil::kNaive, optimizer));
    updated.Count(12);
    const auto count = [&] { return CountLost(updated.cell, updated.plan, updated.memory, 12); };
    ASSERT_TRUE(count().ok()) << count().status().message();
    EXPECT_EQ(*count(), 0);
    updated.counts()[0] -= 1;
    updated.counts()[4999] -= 12;  // all of them
    EXPECT_EQ(*count(), 13);
  }
}

TEST(CountLost, IsExactUpToTheLastPushThatAFloatCanCount) {
  Updated updated(CellOf(Foil::kNaive, OptimizerKind::kSgd));
  constexpr std::int64_t kMost = std::int64_t{1} << 24;
  std::fill_n(updated.memory.values, updated.cell.elements, static_cast<float>(kMost - 1));
  const std::vector<float> gradient(updated.cell.elements, -1.0F);
  updated.Apply(1, gradient.data());
  EXPECT_EQ(*CountLost(updated.cell, updated.plan, updated.memory, kMost), 0);
}

TEST(CountLost, ALossWhereNoneMayBeIsAWrongAnswer) {
  for (const Sharing sharing :
       std::initializer_list<Sharing>{Mode::kLocked, Foil::kMutex, Foil::kAtomic}) {
    Updated updated(CellOf(sharing, OptimizerKind::kAdam));
    updated.Count(5);
    EXPECT_TRUE(CountLost(updated.cell, updated.plan, updated.memory, 5).ok());
    updated.memory.values[77] -= 1;
    const Status status = CountLost(updated.cell, updated.plan, updated.memory, 5).status();
    EXPECT_EQ(status.code(), Code::kInternal);
    EXPECT_THAT(status.message(), HasSubstr("1 of 5 x 5000 updates of elements were lost"));
  }
  Updated alone(CellOf(Mode::kHogwild, OptimizerKind::kSgd, 1));
  alone.Count(5);
  alone.memory.values[77] -= 1;
  EXPECT_FALSE(CountLost(alone.cell, alone.plan, alone.memory, 5).ok()) << "one writer loses none";
}

TEST(CountLost, ASumThatNoLossExplainsIsAWrongAnswer) {
  for (const float wrong : {6.0F, -1.0F, 2.5F, std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity()}) {
    Updated updated(CellOf(Foil::kNaive, OptimizerKind::kSgd));
    updated.Count(5);
    updated.memory.values[4321] = wrong;
    const Status status = CountLost(updated.cell, updated.plan, updated.memory, 5).status();
    EXPECT_EQ(status.code(), Code::kInternal) << wrong;
    EXPECT_THAT(status.message(), HasSubstr("element 4321 counts")) << wrong;
  }
}

TEST(CheckRounds, FindsTheElementThatMissedARound) {
  for (const OptimizerKind optimizer : kOptimizers) {
    Updated updated(CellOf(Mode::kBarrier, optimizer));
    updated.Count(7, 3);
    EXPECT_TRUE(CheckRounds(updated.cell, updated.plan, updated.memory, 3, 9).ok());
    EXPECT_FALSE(CheckRounds(updated.cell, updated.plan, updated.memory, 3, 10).ok());
    updated.counts()[1234] = std::nextafter(updated.counts()[1234], 0.0F);
    const Status status = CheckRounds(updated.cell, updated.plan, updated.memory, 3, 9);
    EXPECT_EQ(status.code(), Code::kInternal);
    EXPECT_THAT(status.message(), HasSubstr(" 1234 is "));
  }
}

// Three writers, twice each in turn, or two rounds of the three.
void UpdateForCheck(Updated& updated) {
  const std::size_t elements = updated.cell.elements;
  FillForCheck(updated.plan, elements, updated.memory.values, updated.memory.slots);
  std::vector<std::vector<float>> gradients(3, std::vector<float>(elements));
  for (int k = 0; k < 3; ++k) {
    FillGradientForCheck(k, elements, gradients[static_cast<std::size_t>(k)].data());
  }
  std::int64_t step = 0;
  for (int round = 0; round < kCheckRounds; ++round) {
    if (updated.cell.sharing.in_rounds()) {
      const float* all[] = {gradients[0].data(), gradients[1].data(), gradients[2].data()};
      std::vector<float> mean(elements);
      SumGradients(mean.data(), all, 3, 3, elements);
      updated.Apply(++step, mean.data());
      continue;
    }
    for (const auto& gradient : gradients) updated.Apply(++step, gradient.data());
  }
}

TEST(CheckAgainstLoop, SeesASingleBitOfValuesAndSlots) {
  for (const OptimizerKind optimizer : kOptimizers) {
    for (const Sharing sharing : {Mode::kHogwild, Mode::kBarrier}) {
      Updated updated(CellOf(sharing, optimizer, 3));
      UpdateForCheck(updated);
      const Result<PrivateLoop> scratch = PrivateLoop::Make(updated.cell, updated.plan);
      ASSERT_TRUE(scratch.ok());
      const auto check = [&] {
        return CheckAgainstLoop(updated.cell, updated.plan, updated.memory, *scratch);
      };
      ASSERT_TRUE(check().ok()) << check().message();
      std::vector<float*> arrays = {updated.memory.values};
      for (int s = 0; s < updated.memory.num_slots; ++s) arrays.push_back(updated.memory.slots[s]);
      for (float* array : arrays) {
        std::uint32_t bits;
        std::memcpy(&bits, array + 4097, sizeof bits);
        for (const int times : {1, 2}) {  // changed, and changed back
          bits ^= 1;
          std::memcpy(array + 4097, &bits, sizeof bits);
          EXPECT_EQ(check().ok(), times == 2);
          if (times == 1) {
            EXPECT_THAT(check().message(), HasSubstr(" 4097 is "));
          }
        }
      }
    }
  }
}

TEST(ApplyAtomically, OfOneWriterGivesTheBitsOfTheFusedLoop) {
  for (const OptimizerKind optimizer : kOptimizers) {
    const Cell cell = CellOf(Foil::kAtomic, optimizer);
    Updated fused(cell), atomic(cell);
    std::vector<float> gradient(cell.elements);
    for (Updated* updated : {&fused, &atomic}) {
      FillForCheck(updated->plan, cell.elements, updated->memory.values, updated->memory.slots);
    }
    for (int step = 1; step <= 20; ++step) {
      FillGradientForCheck(step, cell.elements, gradient.data());
      fused.Apply(step, gradient.data());
      ApplyAtomically(Prepare(atomic.plan.optimizer, step), atomic.memory.values,
                      atomic.memory.slots, gradient.data(), cell.elements);
    }
    const std::size_t bytes = cell.elements * sizeof(float);
    EXPECT_EQ(std::memcmp(fused.memory.values, atomic.memory.values, bytes), 0);
    for (int s = 0; s < fused.memory.num_slots; ++s) {
      EXPECT_EQ(std::memcmp(fused.memory.slots[s], atomic.memory.slots[s], bytes), 0) << s;
    }
  }
}

TEST(ApplyAtomically, OfManyWritersLosesNothing) {
  for (const OptimizerKind optimizer : kOptimizers) {
    Cell cell = CellOf(Foil::kAtomic, optimizer, 4);
    cell.elements = 64;  // so that they meet
    Updated updated(cell);
    FillForCounting(updated.plan, cell.elements, updated.memory.values, updated.memory.slots);
    std::vector<float> gradient(cell.elements);
    FillGradientForCounting(cell.elements, gradient.data());
    constexpr int kPushes = 20000;
    std::vector<std::thread> writers;
    for (int k = 0; k < cell.writers; ++k) {
      writers.emplace_back([&] {
        const StepScalars scalars = Prepare(updated.plan.optimizer, kCountingStep);
        for (int i = 0; i < kPushes; ++i) {
          ApplyAtomically(scalars, updated.memory.values, updated.memory.slots, gradient.data(),
                          cell.elements);
        }
      });
    }
    for (std::thread& writer : writers) writer.join();
    const Result<std::int64_t> lost =
        CountLost(cell, updated.plan, updated.memory, cell.writers * kPushes);
    EXPECT_TRUE(lost.ok()) << lost.status().message();
  }
}

}  // namespace
}  // namespace passel::lab

#include "optim/update_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <update_goldens.inc>  // printed by make_goldens.py, while this is built
#include <utility>
#include <vector>

#include "optim/optimizer_table.h"
#include "unit/optim/update_test_util.h"

namespace passel {
namespace {

// The values and slots of `n` elements, each array with `offset` floats before and one after that
// nobody may touch.
class State {
 public:
  State(const OptimizerConfig& config, std::size_t n, std::size_t offset = 0)
      : offset_(offset), arrays_(1 + NumSlots(config)) {
    for (std::size_t k = 0; k < arrays_.size(); ++k) {
      const float initial = k == 0 ? 0.0F : SlotInitialValue(config, static_cast<int>(k) - 1);
      arrays_[k].assign(offset + n + 1, kGuard);
      std::fill_n(arrays_[k].begin() + static_cast<std::ptrdiff_t>(offset), n, initial);
    }
    for (std::size_t k = 1; k < arrays_.size(); ++k) slots_[k - 1] = array(k);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  float* values() { return array(0); }
  float* const* slots() { return slots_; }
  /// 0: the values; 1 and up: the slots.
  float* array(std::size_t k) { return arrays_[k].data() + offset_; }
  std::size_t num_arrays() const { return arrays_.size(); }
  bool GuardsAreIntact() const {
    return std::all_of(arrays_.begin(), arrays_.end(), [this](const std::vector<float>& array) {
      return array.back() == kGuard && std::count(array.begin(), array.end(), kGuard) ==
                                           static_cast<std::ptrdiff_t>(offset_ + 1);
    });
  }

 private:
  static constexpr float kGuard = 12345.675F;
  std::size_t offset_;
  std::vector<std::vector<float>> arrays_;
  float* slots_[kMaxSlots] = {};
};

using ApplyFunction = void (*)(const StepScalars&, float*, float* const*, const float*,
                               std::size_t);

struct NamedApply {
  std::string name;
  ApplyFunction apply;
};

// Apply() itself, then both bodies of every table that this processor runs.
std::vector<NamedApply> AllBodies() {
  std::vector<NamedApply> bodies = {{"Apply", &Apply}};
  for (const RunnableTable& entry : RunnableUpdateTables()) {
    const std::string isa(CpuIsaName(entry.isa));
    bodies.push_back({isa, entry.table->apply});
    bodies.push_back({isa + " atomic", entry.table->apply_atomic});
  }
  return bodies;
}

// The gradient of make_goldens.py; every number is exact in float.
float GoldenGradient(int i, int t) {
  if (i == kGoldenElements - 1 || (i + t) % 6 == 0) return 0;
  constexpr int kScale[] = {-7, -10, -2, -20, -7, -4, -67, -7};
  int size = (i * 37 + t * 101 + i * t * 17) % 257 - 128;
  if (i % 11 == 3) size = std::abs(size);
  if (i % 13 == 5) size = 77;
  return std::ldexp(static_cast<float>(size), kScale[i % 8]);
}

float GoldenStart(int i) {
  if (i % 5 == 0 || i == kGoldenElements - 1) return 0;
  return static_cast<float>((i * 29) % 67 - 33) / 64;
}

// The error bound. One update rounds fewer than ten times, each time by at most 2^-24 of a number
// that is no larger than a small multiple of the largest the array has held at this element; 20
// updates therefore stay within 200 * 2^-24 = 1.2e-5 of it, and typical errors, which are random,
// far below. Subnormal numbers count as 0, hence the absolute part.
TEST(Update, FollowsTheDoublePrecisionGoldens) {
  for (const NamedApply& body : AllBodies()) {
    for (const Golden& golden : kGoldens) {
      SCOPED_TRACE(std::string(golden.name) + ", " + body.name);
      ASSERT_TRUE(Validate(golden.config).ok());
      State state(golden.config, kGoldenElements);
      for (int i = 0; i < kGoldenElements; ++i) state.values()[i] = GoldenStart(i);

      std::vector<std::vector<double>> largest(state.num_arrays(),
                                               std::vector<double>(kGoldenElements));
      for (int t = 0; t <= kGoldenSteps; ++t) {
        if (t > 0) {
          float gradient[kGoldenElements];
          for (int i = 0; i < kGoldenElements; ++i) gradient[i] = GoldenGradient(i, t);
          body.apply(Prepare(golden.config, t), state.values(), state.slots(), gradient,
                     kGoldenElements);
        }
        for (std::size_t k = 0; k < largest.size(); ++k) {
          for (int i = 0; i < kGoldenElements; ++i) {
            const double size = std::abs(static_cast<double>(state.array(k)[i]));
            largest[k][i] = std::max(largest[k][i], size);
          }
        }
      }
      EXPECT_TRUE(state.GuardsAreIntact());
      for (std::size_t k = 0; k < largest.size(); ++k) {
        const bool linear = golden.config.kind == OptimizerKind::kFtrl && k == 2;
        const double* expected = k == 0 ? golden.values : golden.slots[k - 1];
        for (int i = 0; i < kGoldenElements; ++i) {
          double bound = 1.2e-5 * largest[k][i] + 0x1p-120;
          if (linear) {
            bound += 0x1p-22 * largest[0][i] *
                     std::pow(largest[1][i], -golden.config.learning_rate_power) /
                     golden.config.learning_rate;
          }
          EXPECT_NEAR(state.array(k)[i], expected[i], bound)
              << (k == 0 ? "value " : "slot element ") << i << " of array " << k;
        }
      }
    }
  }
}

TEST(Update, EveryTableAndTheAtomicBodyGiveTheSameBits) {
  const std::vector<NamedApply> bodies = AllBodies();
  const ApplyFunction reference = update_table_baseline.apply;
  for (const Golden& golden : kGoldens) {
    for (const std::size_t n : kLengths) {
      for (const NamedApply& body : bodies) {
        SCOPED_TRACE(std::string(golden.name) + ", " + body.name + ", n = " + std::to_string(n));
        // Misaligned by one float against the reference.
        State expected(golden.config, n);
        State actual(golden.config, n, 1);
        const std::vector<float> start = VariedNumbers(n, n);
        std::copy(start.begin(), start.end(), expected.values());
        std::copy(start.begin(), start.end(), actual.values());
        for (int t = 1; t <= 4; ++t) {
          const std::vector<float> gradient = VariedNumbers(1000 * n + t, n);
          const StepScalars scalars = Prepare(golden.config, t);
          reference(scalars, expected.values(), expected.slots(), gradient.data(), n);
          body.apply(scalars, actual.values(), actual.slots(), gradient.data(), n);
        }
        for (std::size_t k = 0; k < actual.num_arrays(); ++k) {
          ASSERT_TRUE(SameBits(actual.array(k), expected.array(k), n)) << "array " << k;
        }
        ASSERT_TRUE(actual.GuardsAreIntact());
      }
    }
  }
}

TEST(Update, WithAMeanGivesTheBitsOfTheMeanAndTheUpdateApart) {
  for (const Golden& golden : kGoldens) {
    for (const std::size_t n : kLengths) {
      for (const auto& [count, divisor] : {std::pair(1, 3.0F), std::pair(2, 2.0F), {5, 7.0F}}) {
        // Twice the length: what is behind is fetched, and stays as it is.
        std::vector<std::vector<float>> gradients;
        std::vector<const float*> pointers;
        for (int k = 0; k < count; ++k) {
          gradients.push_back(VariedNumbers(100 * n + static_cast<std::size_t>(k), 2 * n));
          pointers.push_back(gradients.back().data());
        }
        std::vector<float> mean(n);
        update_table_baseline.sum(mean.data(), pointers.data(), count, divisor, n);
        State expected(golden.config, 2 * n);
        const std::vector<float> start = VariedNumbers(n, 2 * n);
        std::copy(start.begin(), start.end(), expected.values());
        const StepScalars scalars = Prepare(golden.config, 3);
        update_table_baseline.apply(scalars, expected.values(), expected.slots(), mean.data(), n);
        for (const RunnableTable& entry : RunnableUpdateTables()) {
          for (const auto body : {entry.table->apply_mean, entry.table->apply_mean_atomic}) {
            State actual(golden.config, 2 * n, 1);
            std::copy(start.begin(), start.end(), actual.values());
            for (const std::size_t floats : {std::size_t{0}, n}) {
              body(scalars, actual.values(), actual.slots(), pointers.data(), count, divisor,
                   floats, n);
            }
            for (std::size_t k = 0; k < actual.num_arrays(); ++k) {
              ASSERT_TRUE(SameBits(actual.array(k), expected.array(k), 2 * n))
                  << golden.name << ", " << CpuIsaName(entry.isa) << ", n = " << n << ", array "
                  << k;
            }
            ASSERT_TRUE(actual.GuardsAreIntact());
          }
        }
      }
    }
  }
}

TEST(Update, AnElementDoesNotDependOnItsPlaceInTheVector) {
  constexpr std::size_t kN = 333;  // chunks that prefetch, and what is left
  const std::vector<float> start = VariedNumbers(1, kN);
  const std::vector<float> gradient = VariedNumbers(2, kN);
  for (const Golden& golden : kGoldens) {
    SCOPED_TRACE(golden.name);
    const StepScalars scalars = Prepare(golden.config, 1);
    State together(golden.config, kN);
    std::copy(start.begin(), start.end(), together.values());
    Apply(scalars, together.values(), together.slots(), gradient.data(), kN);
    for (std::size_t i = 0; i < kN; ++i) {
      State alone(golden.config, 1);
      alone.values()[0] = start[i];
      Apply(scalars, alone.values(), alone.slots(), &gradient[i], 1);
      for (std::size_t k = 0; k < alone.num_arrays(); ++k) {
        ASSERT_TRUE(SameBits(alone.array(k), together.array(k) + i, 1)) << "element " << i;
      }
    }
  }
}

TEST(Update, NothingIsTouchedOfAnEmptySpan) {
  for (const NamedApply& body : AllBodies()) {
    for (const Golden& golden : kGoldens) {
      float* const slots[kMaxSlots] = {nullptr, nullptr, nullptr};
      body.apply(Prepare(golden.config, 1), nullptr, slots, nullptr, 0);
    }
    body.apply(Prepare(OptimizerConfig(), 1), nullptr, nullptr, nullptr, 0);
  }
}

TEST(Update, PaddingStaysZeroAndFinite) {
  constexpr std::size_t kN = 35;
  const std::vector<float> zero(kN, 0.0F);
  for (const NamedApply& body : AllBodies()) {
    for (const Golden& golden : kGoldens) {
      SCOPED_TRACE(std::string(golden.name) + ", " + body.name);
      State state(golden.config, kN);
      for (int t = 1; t <= 1000; ++t) {
        body.apply(Prepare(golden.config, t), state.values(), state.slots(), zero.data(), kN);
      }
      EXPECT_TRUE(SameBits(state.values(), zero.data(), kN));
      for (std::size_t k = 1; k < state.num_arrays(); ++k) {
        EXPECT_TRUE(AllFinite(state.array(k), kN)) << "array " << k;
      }
    }
  }
}

// The counting workload measures lost updates as the distance to the exact count.
TEST(Update, SgdWithRateOneCountsExactly) {
  OptimizerConfig config;
  config.learning_rate = 1;
  constexpr std::size_t kN = 19;
  const std::vector<float> one(kN, 1.0F);
  for (const NamedApply& body : AllBodies()) {
    SCOPED_TRACE(body.name);
    State state(config, kN);
    for (int t = 1; t <= 20000; ++t) {
      body.apply(Prepare(config, t), state.values(), nullptr, one.data(), kN);
    }
    for (std::size_t i = 0; i < kN; ++i) EXPECT_EQ(state.values()[i], -20000.0F);
  }
}

TEST(Update, MomentumOfZeroIsPlainSgdToTheBit) {
  constexpr std::size_t kN = 67;
  OptimizerConfig sgd;
  sgd.learning_rate = 0.1;
  OptimizerConfig momentum = sgd;
  momentum.kind = OptimizerKind::kMomentum;
  momentum.momentum = 0;
  OptimizerConfig nesterov = momentum;
  nesterov.use_nesterov = 1;
  State a(sgd, kN), b(momentum, kN), c(nesterov, kN);
  for (int t = 1; t <= 10; ++t) {
    const std::vector<float> gradient = VariedNumbers(t, kN);
    Apply(Prepare(sgd, t), a.values(), a.slots(), gradient.data(), kN);
    Apply(Prepare(momentum, t), b.values(), b.slots(), gradient.data(), kN);
    Apply(Prepare(nesterov, t), c.values(), c.slots(), gradient.data(), kN);
  }
  for (std::size_t i = 0; i < kN; ++i) {
    EXPECT_EQ(a.values()[i], b.values()[i]);
    EXPECT_EQ(a.values()[i], c.values()[i]);
  }
}

// One update moves every element by the learning rate, whatever the size of its gradient.
TEST(Update, AdamsFirstStepHasTheSizeOfTheLearningRate) {
  OptimizerConfig config;
  config.kind = OptimizerKind::kAdam;
  config.learning_rate = 0.01;
  const std::vector<float> gradient = {1e-3F, -1e-3F, 1.0F, -1.0F, 1e6F, -1e6F};
  State state(config, gradient.size());
  Apply(Prepare(config, 1), state.values(), state.slots(), gradient.data(), gradient.size());
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    // epsilon is 1e-8 against sqrt(s) >= 3e-5.
    EXPECT_NEAR(state.values()[i], gradient[i] > 0 ? -0.01 : 0.01, 0.01 * 4e-4);
  }
}

TEST(Update, AdamWDecaysAValueWithoutAGradient) {
  OptimizerConfig config;
  config.kind = OptimizerKind::kAdamW;
  config.learning_rate = 0.5;
  config.weight_decay = 0.25;
  for (const NamedApply& body : AllBodies()) {
    SCOPED_TRACE(body.name);
    State state(config, 1);
    state.values()[0] = 8;
    const float gradient = 0;
    body.apply(Prepare(config, 1), state.values(), state.slots(), &gradient, 1);
    EXPECT_EQ(state.values()[0], 7);
    EXPECT_EQ(state.array(1)[0], 0);
    EXPECT_EQ(state.array(2)[0], 0);
  }
}

// Numbers that pass one by one, but whose product is no normal float.
TEST(Update, AdamWKeepsPaddingAtZeroWithTheWildestSettings) {
  OptimizerConfig tiny;
  tiny.kind = OptimizerKind::kAdamW;
  tiny.adam_epsilon = std::numeric_limits<float>::min();
  OptimizerConfig huge = tiny;
  huge.learning_rate = 8e37;
  huge.weight_decay = 8e37;
  const std::vector<float> zero(35, 0.0F);
  for (const OptimizerConfig& config : {tiny, huge}) {
    ASSERT_TRUE(Validate(config).ok());
    for (const NamedApply& body : AllBodies()) {
      SCOPED_TRACE(body.name);
      State state(config, zero.size());
      body.apply(Prepare(config, 1), state.values(), state.slots(), zero.data(), zero.size());
      EXPECT_TRUE(SameBits(state.values(), zero.data(), zero.size()));
    }
  }
}

TEST(Update, CenteredRmsPropSurvivesAVarianceRoundedBelowZero) {
  OptimizerConfig config;
  config.kind = OptimizerKind::kRmsProp;
  config.centered = 1;
  config.learning_rate = 1e-6;
  for (const NamedApply& body : AllBodies()) {
    SCOPED_TRACE(body.name);
    State state(config, 1);
    state.array(1)[0] = 1;              // mean square
    state.array(2)[0] = 1.0000002384F;  // mean gradient: its square is above the mean square
    const float gradient = 1;
    body.apply(Prepare(config, 1), state.values(), state.slots(), &gradient, 1);
    // sqrt(0 + 1e-10) = 1e-5
    EXPECT_NEAR(state.values()[0], -0.1, 1e-6);
  }
}

TEST(Update, ANonFiniteGradientIsNotHidden) {
  for (const Golden& golden : kGoldens) {
    SCOPED_TRACE(golden.name);
    State state(golden.config, 17);
    std::vector<float> gradient(17, 0.5F);
    gradient[3] = kNan;
    Apply(Prepare(golden.config, 1), state.values(), state.slots(), gradient.data(), 17);
    bool finite = true;
    for (std::size_t k = 0; k < state.num_arrays(); ++k) {
      finite = finite && AllFinite(state.array(k), 17);
      EXPECT_TRUE(AllFinite(state.array(k), 3)) << "the fault spread";
      EXPECT_TRUE(AllFinite(state.array(k) + 4, 13)) << "the fault spread";
    }
    EXPECT_FALSE(finite);
  }
}

TEST(Update, AMomentThatDecaysEndsAtZeroAndTheCallerKeepsSubnormals) {
  OptimizerConfig config;
  config.kind = OptimizerKind::kMomentum;
  const std::vector<float> zero(33, 0.0F);
  volatile float smallest = std::numeric_limits<float>::min();
  ASSERT_GT(smallest / 2, 0.0F);
  for (const NamedApply& body : AllBodies()) {
    SCOPED_TRACE(body.name);
    State state(config, 33);
    std::fill_n(state.array(1), 33, 1.0F);
    for (int t = 1; t <= 1000; ++t) {  // 0.9^829 is the last above the smallest normal float
      body.apply(Prepare(config, t), state.values(), state.slots(), zero.data(), 33);
    }
    EXPECT_TRUE(SameBits(state.array(1), zero.data(), 33)) << state.array(1)[0];
    EXPECT_GT(smallest / 2, 0.0F) << "the rounding mode of the caller was changed";
  }
}

// The declared race of Hogwild, as ThreadSanitizer must see it: with PASSEL_ATOMIC_VALUES every
// access is atomic. In any build a float is whole: here always a whole number within the bounds.
TEST(Update, ConcurrentWritersAndAReaderNeverSeeATornFloat) {
  OptimizerConfig config;
  config.learning_rate = 1;
  constexpr std::size_t kN = 1000;
  constexpr int kSteps = 300, kWriters = 2;
  const std::vector<float> one(kN, 1.0F);
  State state(config, kN);
  const StepScalars scalars = Prepare(config, 1);
  std::vector<std::thread> writers;
  for (int w = 0; w < kWriters; ++w) {
    writers.emplace_back([&] {
      for (int t = 0; t < kSteps; ++t) {
        Apply(scalars, state.values(), nullptr, one.data(), kN);
      }
    });
  }
  std::vector<float> copy(kN);
  bool whole = true;
  const auto look = [&] {
    CopyValues(copy.data(), state.values(), kN);
    for (const float x : copy) {
      whole = whole && x <= 0 && x >= -kWriters * kSteps && x == std::floor(x);
    }
  };
  for (int i = 0; i < 100; ++i) look();
  for (std::thread& writer : writers) writer.join();
  look();
  EXPECT_TRUE(whole);
  for (const float x : copy) EXPECT_LE(x, -1);
}

TEST(Prepare, ComputesInDoubleAndRoundsOnce) {
  OptimizerConfig adam;
  adam.kind = OptimizerKind::kAdam;
  const StepScalars first = Prepare(adam, 1);
  EXPECT_EQ(first.one_minus_beta1, 0.1F);    // in float: 1 - 0.9F = 0.100000024
  EXPECT_EQ(first.one_minus_decay, 0.001F);  // in float: 1 - 0.999F = 0.00099998713
  // 0.001 * sqrt(1 - 0.999^t) / (1 - 0.9^t), from an arbitrary-precision calculator.
  EXPECT_FLOAT_EQ(first.rate, 3.1622776601683795e-4F);
  EXPECT_FLOAT_EQ(Prepare(adam, 10).rate, 1.5318907395115118e-4F);
  EXPECT_FLOAT_EQ(Prepare(adam, 1000).rate, 7.9517581403676757e-4F);

  OptimizerConfig nesterov;
  nesterov.kind = OptimizerKind::kMomentum;
  nesterov.use_nesterov = 1;
  nesterov.learning_rate = 0.1;
  nesterov.momentum = 0.7;
  EXPECT_EQ(Prepare(nesterov, 1).rate_momentum, static_cast<float>(0.1 * 0.7));
}

TEST(Prepare, AdamsBiasCorrectionVanishesAndNeverOverflows) {
  OptimizerConfig config;
  config.kind = OptimizerKind::kAdam;
  config.learning_rate = 0.01;
  for (const std::int64_t t : {std::int64_t{100'000}, std::int64_t{1'000'000'000},
                               std::numeric_limits<std::int64_t>::max()}) {
    EXPECT_EQ(Prepare(config, t).rate, 0.01F) << t;
  }
  config.adam_beta1 = 0;
  config.adam_beta2 = 0;
  EXPECT_EQ(Prepare(config, 1).rate, 0.01F);
  config.adam_beta2 = 0.9999999;  // 1 - beta2^t would keep 9 digits of 16 only
  EXPECT_FLOAT_EQ(Prepare(config, 1).rate, static_cast<float>(0.01 * std::sqrt(1e-7)));
}

TEST(Prepare, DependsOnTheCountOfUpdatesWhereTheRowSaysSo) {
  for (const Golden& golden : kGoldens) {
    EXPECT_EQ(Prepare(golden.config, 1).rate != Prepare(golden.config, 2).rate,
              RowOf(golden.config.kind).counts_steps)
        << golden.name;
  }
}

// A rule that is left out of the list of rules would be in no loop and in no kernel.
TEST(Prepare, GoldensTakeEveryRule) {
  std::set<UpdateRule> rules;
  for (const Golden& golden : kGoldens) rules.insert(Prepare(golden.config, 1).rule);
  EXPECT_EQ(rules.size(), UpdateRules::kSize);
}

TEST(PrepareDeathTest, UpdateZeroIsABug) {
  EXPECT_DEATH((void)Prepare(OptimizerConfig(), 0), "counted from 1");
}

}  // namespace
}  // namespace passel

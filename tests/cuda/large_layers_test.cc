// Steps with layers for the library: the gradient is that of double precision, in every order that
// the plan allows.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "cuda/engine_under_test.h"
#include "cuda/plans_under_test.h"
#include "cuda/step_plan.h"
#include "support/sanitized.h"

namespace passel::cuda {
namespace {

using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

struct LargeNet {
  std::vector<std::size_t> widths;
  std::size_t batch;
  const char* described;
};

// Large and small layers beside one another, odd widths and batches.
const LargeNet kLargeNets[] = {
    {{513, 514, 515, 3}, 3, "(layers 0, 1)"},
    {{700, 401, 3}, 5, "(layer 0)"},
    {{20, 701, 400, 3}, 1, "(layer 1)"},
    {{3, 90001, 3}, 5, "(layers 0, 1)"},
    // A bias of one element has no parts: what is split off it is empty.
    {{1, 263001, 1, 4}, 3, "(layers 0, 1)"},
    {{530, 512, 20, 30000, 9, 4}, 2, "(layers 0, 2, 3)"},
};

class LargeLayers : public testing::TestWithParam<Placement> {};

// That of variables in turn over the shards is in the tests of the order.
INSTANTIATE_TEST_SUITE_P(All, LargeLayers,
                         testing::ValuesIn(Cases<Placement>(
                             {Placement::kOneShard, Placement::kSplit, Placement::kSplitWeights},
                             {Placement::kOneShard, Placement::kSplitWeights})));

TEST_P(LargeLayers, GradientIsThatOfDoublePrecision) {
  for (const LargeNet& net : kLargeNets) {
    SCOPED_TRACE(net.described);
    StepWorld world(net.widths, net.batch, GetParam(), 43, 2);
    const auto made = Make(world.options, {});
    ASSERT_NE(made->engine, nullptr);
    EXPECT_THAT(made->engine->Describe(),
                HasSubstr(std::string("fused kernels and cuBLASLt ") + net.described));
    world.PoisonSlot(1);
    const auto batch = world.RandomBatch();
    ExpectNear(world, RunStep(*made->engine, world, batch, 1), world.Reference(batch));
    EXPECT_THAT(world.Padding(1), Each(0.f));
    made->ExpectACleanEnd();
  }
}

// Without the library kernels of our own compute them, and say so once. All placements are tested
// above, so one for each network will do.
TEST(LargeLayers, GradientIsThatOfDoublePrecisionWithoutTheLibrary) {
  Placement placement = Placement::kSplit;
  for (const LargeNet& net : kLargeNets) {
    if (kSanitized && &net != kLargeNets) break;  // one shows where the kernels read and write
    SCOPED_TRACE(net.described);
    placement = placement == Placement::kSplit ? Placement::kOneShard : Placement::kSplit;
    StepWorld world(net.widths, net.batch, placement, 43, 2);
    FakeDeviceOptions fake;
    // Slow: its threads run in random order.
    fake.adversarial = net.widths[0] == 700 && !kSanitized;
    fake.no_library = true;
    const auto made = Make(world.options, fake);
    ASSERT_NE(made->engine, nullptr);
    ASSERT_EQ(made->warnings.size(), 1u);
    EXPECT_THAT(made->warnings[0], HasSubstr("kernels of passel's own compute layer"));
    EXPECT_THAT(made->warnings[0], HasSubstr("the fake GPU has no library: give it one"));
    EXPECT_THAT(made->engine->Describe(), HasSubstr("fused kernels (layer"));
    EXPECT_THAT(made->engine->Describe(), HasSubstr(" without cuBLASLt), one graph"));
    const auto batch = world.RandomBatch();
    // Sums of 263,001 floats, which are added up as floats.
    const double tolerance = net.widths[1] > 100000 ? 1e-4 : 1e-5;
    ExpectNear(world, RunStep(*made->engine, world, batch, 1), world.Reference(batch), tolerance);
    EXPECT_THAT(world.Padding(1), Each(0.f));
    made->ExpectACleanEnd();
  }
}

TEST(LargeLayers, AreNamedWhereTheLibraryIsMissing) {
  FakeDeviceOptions fake;
  fake.no_library = true;
  StepWorld world({530, 512, 20, 30000, 9, 4}, 2, Placement::kOneShard, 48, 1);
  const auto made = Make(world.options, fake);
  ASSERT_NE(made->engine, nullptr);
  EXPECT_THAT(made->engine->Describe(), HasSubstr("(layers 0, 2, 3 without cuBLASLt)"));
  EXPECT_THAT(made->warnings, testing::ElementsAre(HasSubstr("compute layers 0, 2, 3, which")));
  // Who has no large layer needs none, and hears nothing.
  StepWorld small({20, 10, 3}, 2, Placement::kOneShard, 48, 1);
  const auto of_small = Make(small.options, fake);
  EXPECT_THAT(of_small->engine->Describe(), HasSubstr("fused kernels, one graph"));
  EXPECT_THAT(of_small->warnings, IsEmpty());
}

// Only the library has another arithmetic than float32: what does not get it is said, once.
TEST(LargeLayers, AreAloneInAnotherMath) {
  struct AnotherMath {
    std::vector<std::size_t> widths;
    MathMode math;
    bool no_library;
    const char* described;
    const char* warning;  // the last one
  };
  const AnotherMath cases[] = {
      {{513, 514, 515, 3},
       MathMode::kTf32,
       false,
       "cuBLASLt (layers 0, 1), tf32 in layers 0, 1, float32 in layer 2, one graph",
       "--math tf32 has no effect on layer 2, computed in float32: only cuBLASLt has tf32, and it "
       "computes those with more than 262144 weights, or more than 134217728 multiplications in a "
       "step"},
      {{20, 10, 3},
       MathMode::kBfloat16,
       false,
       "fused kernels, float32 in layers 0, 1, one graph",
       "--math bfloat16 has no effect on layers 0, 1, computed in float32: only cuBLASLt has "
       "bfloat16, and it computes those"},
      {{700, 400, 3},
       MathMode::kTf32,
       true,
       "fused kernels (layer 0 without cuBLASLt), float32 in layers 0, 1, one graph",
       "--math tf32 has no effect on layers 0, 1, computed in float32: only cuBLASLt has tf32, and "
       "it is missing"},
      {{1100, 250}, MathMode::kTf32, false, "cuBLASLt (layer 0), tf32 in layer 0", nullptr},
      {{20, 10, 3}, MathMode::kFloat32, false, "fused kernels, one graph", nullptr},
  };
  for (const AnotherMath& c : cases) {
    SCOPED_TRACE(c.described);
    StepWorld world(c.widths, 2, Placement::kOneShard, 49, 2);
    world.options.math = c.math;
    FakeDeviceOptions fake;
    fake.no_library = c.no_library;
    const auto made = Make(world.options, fake);
    ASSERT_NE(made->engine, nullptr);
    EXPECT_THAT(made->engine->Describe(), HasSubstr(c.described));
    ASSERT_EQ(made->warnings.size(), (c.warning != nullptr ? 1u : 0u) + (c.no_library ? 1u : 0u));
    if (c.warning != nullptr) {
      EXPECT_THAT(made->warnings.back(), HasSubstr(c.warning));
    }
  }
}

// --- The order -----------------------------------------------------------------------------------

TEST(LargeLayers, NoAllowedOrderShowsInTheResult) {
  StepWorld world({513, 514, 515, 3}, 2, Placement::kRoundRobin, 45, 2);
  FakeDeviceOptions plain;
  plain.adversarial = false;
  std::vector<std::vector<std::uint32_t>> batches;
  std::vector<Outcome> wanted;
  {
    const auto made = Make(world.options, plain);
    ASSERT_NE(made->engine, nullptr);
    for (int i = 0; i < 4; ++i) {
      batches.push_back(world.RandomBatch());
      wanted.push_back(RunStep(*made->engine, world, batches.back(), i % 2));
    }
  }
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    FakeDeviceOptions fake;
    fake.seed = seed;
    const auto made = Make(world.options, fake);
    for (std::size_t i = 0; i < batches.size(); i += 2) {
      for (const int slot : {0, 1}) {
        world.PoisonSlot(slot);
        const std::size_t step = i + static_cast<std::size_t>(slot);
        ASSERT_TRUE(made->engine->Start(batches[step], slot).ok());
      }
      for (const int slot : {0, 1}) {
        const std::size_t step = i + static_cast<std::size_t>(slot);
        ASSERT_EQ(FinishStep(*made->engine, world, slot), wanted[step]) << "step " << step;
      }
    }
    made->ExpectACleanEnd();
  }
}

bool ShareBytes(const Node& a, const Node& b) {
  const auto overlap = [](const std::vector<Bytes>& x, const std::vector<Bytes>& y) {
    for (const Bytes& p : x) {
      for (const Bytes& q : y) {
        const auto* p_begin = static_cast<const char*>(p.begin);
        const auto* q_begin = static_cast<const char*>(q.begin);
        if (p_begin < q_begin + q.size && q_begin < p_begin + p.size) return true;
      }
    }
    return false;
  };
  return overlap(a.writes, b.reads) || overlap(a.reads, b.writes) || overlap(a.writes, b.writes);
}

// The bias gradients lie in another shard than the weights', so that what writes and reads them has
// edges of its own; those that the workspace alone asks for show nothing.
TEST(LargeLayers, EveryForgottenEdgeOfAProductIsFound) {
  StepWorld world({513, 514, 515, 2}, 2, Placement::kRoundRobin, 46, 1);
  const auto batch = world.RandomBatch();
  FakeDeviceOptions plain;
  plain.adversarial = false;
  Outcome wanted;
  {
    const auto good = Make(world.options, plain);
    ASSERT_NE(good->engine, nullptr);
    wanted = RunStep(*good->engine, world, batch, 0);
  }
  const auto found = ExpectEveryEdgeIsFound(
      PlanOf(world.options), plain, 60,
      [&](const FakeDeviceOptions& fake) {
        const auto made = Make(world.options, fake);
        world.PoisonSlot(0);
        EXPECT_TRUE(made->engine->Start(batch, 0).ok());
        return FinishOrNever(*made, world, 0) != wanted;
      },
      [](const Node& from, const Node& to) {
        // Of products and of the ReLU behind them; device_schedules_test has the others.
        const auto of_a_product = [](const Node& node) {
          return std::holds_alternative<LargeGemm>(node.operation) ||
                 node.name.starts_with("backward relu ");
        };
        return (of_a_product(from) || of_a_product(to)) && ShareBytes(from, to);
      });
  EXPECT_GE(found.size(), 12u);
  for (const char* edge :
       {"backward inputs 1 -> backward relu 1", "backward relu 1 -> backward weights 0",
        "backward relu 1 -> backward bias 0", "backward weights 0 -> check weights 0",
        "backward weights 1 -> check weights 1"}) {
    EXPECT_THAT(found, Contains(edge));
  }
}

// Infinities from the last layer back: each element of the gradient that is not finite is counted
// once, whoever has written it, and the next step begins at 0.
TEST_P(LargeLayers, WhatIsNotFiniteIsCounted) {
  StepWorld world({513, 514, 515, 2}, 2, GetParam(), 48, 1);
  std::vector<std::uint8_t> pixels(2 * 513, 255), labels(2, 1);
  world.options.train = {pixels.data(), labels.data(), 2};
  FakeDevice device({});
  auto memory = StepMemory::Create(device, world.options);
  ASSERT_TRUE(memory.ok());
  PinnedHost host(device, world.options);
  const Plan plan = BuildStepPlan(world.options, *memory, host.host);
  int checks = 0;
  const int last = static_cast<int>(plan.nodes().size()) - 1;
  for (int node = 0; node < last; ++node) {
    if (!plan.nodes()[static_cast<std::size_t>(node)].name.starts_with("check ")) continue;
    ++checks;
    EXPECT_TRUE(plan.Waits(last, node));
  }
  const int parts =
      GetParam() == Placement::kSplit || GetParam() == Placement::kSplitWeights ? 3 : 1;
  EXPECT_EQ(checks, 2 * parts);
  auto executable = device.Prepare(plan, Device::How::kGraph);
  ASSERT_TRUE(executable.ok()) << executable.status().message();
  const auto not_finite = [&] {
    std::uint64_t count = 0;
    for (const auto& shard : host.gradients) {
      count += static_cast<std::uint64_t>(
          std::count_if(shard.begin(), shard.end(), [](float x) { return !std::isfinite(x); }));
    }
    return count;
  };
  const auto set = [&](std::size_t variable, std::size_t element, float value) {
    const std::size_t cols = variable % 2 == 0 ? 2 : 1;  // asked for the last layer's and biases
    for (const auto& part : world.options.memory.variables[variable]) {
      const std::size_t row = element / cols;
      if (row < part.first_row || row >= part.first_row + part.rows) continue;
      host.values[static_cast<std::size_t>(part.shard)]
                 [part.offset + element - part.first_row * cols] = value;
    }
  };
  std::uint64_t number = 0;
  for (const bool bad : {true, false}) {
    for (const auto& shard : host.values) std::ranges::fill(shard, 0.f);
    for (std::size_t i = 0; i < 514; ++i) set(1, i, 1);
    for (std::size_t i = 0; i < 2 && bad; ++i) set(3, i, 1.2e-38f);
    for (std::size_t i = 0; i < 4 && bad; ++i) set(4, i, i % 2 == 0 ? 3e38f : -3e38f);
    host.Order(++number, {0, 1});
    ASSERT_TRUE(device.Launch(**executable).ok());
    ASSERT_TRUE(device.Synchronize(Soon()).ok());
    EXPECT_EQ(host.host.line->number, number);
    EXPECT_TRUE(std::isfinite(host.host.line->loss));
    EXPECT_EQ(host.host.line->nonfinite, not_finite());
    // All of the first layer, and of the second what belongs to two units.
    EXPECT_EQ(host.host.line->nonfinite, bad ? 513u * 514 + 514 + 514 * 2 + 2 : 0u);
  }
  EXPECT_THAT(device.violations(), IsEmpty());
  executable->reset();
}

TEST(LargeLayers, AProductThatDoesNotSayWhatItTouchesIsRefused) {
  StepWorld world({513, 514, 515, 2}, 2, Placement::kOneShard, 47, 1);
  FakeDevice device({});
  auto memory = StepMemory::Create(device, world.options);
  ASSERT_TRUE(memory.ok());
  const PinnedHost host(device, world.options);
  const Plan good = BuildStepPlan(world.options, *memory, host.host);
  EXPECT_TRUE(device.Prepare(good, Device::How::kGraph).ok());
  int ranges = 0;
  for (std::size_t node = 0; node < good.nodes().size(); ++node) {
    const Node& of = good.nodes()[node];
    if (!std::holds_alternative<LargeGemm>(of.operation)) continue;
    for (std::size_t r = 0; r < of.reads.size() + of.writes.size(); ++r) {
      SCOPED_TRACE(testing::Message() << of.name << ", range " << r);
      ++ranges;
      Plan bad;
      for (std::size_t n = 0; n < good.nodes().size(); ++n) {
        Node copy = good.nodes()[n];
        if (n == node && r < copy.reads.size()) {
          copy.reads.erase(copy.reads.begin() + static_cast<std::ptrdiff_t>(r));
        } else if (n == node) {
          copy.writes.erase(copy.writes.begin() +
                            static_cast<std::ptrdiff_t>(r - copy.reads.size()));
        }
        bad.Add(copy.name, copy.operation, copy.reads, copy.writes);
      }
      const Status refused = device.Prepare(bad, Device::How::kGraph).status();
      EXPECT_THAT(refused.message(), HasSubstr("does not declare all"));
    }
  }
  EXPECT_EQ(ranges, 17);
}

}  // namespace
}  // namespace passel::cuda

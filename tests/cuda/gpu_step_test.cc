// What the fake device shows on the CPU, on a GPU: the numbers of a step, the same bits in a graph
// and one by one, steps in flight, a limit of memory. Label gpu; left out, with the reason, where
// the plugin opens no device, unless PASSEL_GPU_REQUIRED is set. PASSEL_GPU_SMALL leaves out,
// or makes smaller, what is slow under compute-sanitizer or on the fake device.

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compute/accelerator_loader.h"
#include "cuda/gpu_fixture.h"
#include "cuda/step_world.h"

namespace passel::cuda {
namespace {

class Gpu : public GpuFixture {
 protected:
  std::unique_ptr<StepEngine> Make(const StepEngineOptions& options) {
    auto engine = accelerator_->CreateStepEngine(options);
    EXPECT_TRUE(engine.ok()) << engine.status().ToString();
    return engine.ok() ? std::move(engine).value() : nullptr;
  }
  static Outcome Step(StepEngine& engine, StepWorld& world,
                      const std::vector<std::uint32_t>& indices, int slot) {
    world.PoisonSlot(slot);
    return RunStep(engine, world, indices, slot);
  }
  static void ExpectNear(const StepWorld& world, const Outcome& outcome,
                         const std::vector<std::uint32_t>& indices, double tolerance) {
    ExpectNear(world, outcome, world.Reference(indices), tolerance);
  }
  static void ExpectNear(const StepWorld& world, const Outcome& outcome,
                         const ReferenceResult& wanted, double tolerance) {
    EXPECT_TRUE(outcome.finite);
    EXPECT_NEAR(outcome.loss, wanted.loss, tolerance * std::abs(wanted.loss) + 1e-6);
    if (outcome.gradient.empty()) return;
    const auto got = world.Variables(outcome.gradient);
    for (std::size_t v = 0; v < got.size(); ++v) {
      EXPECT_LE(RelativeError(got[v], wanted.gradients[v]), tolerance) << "variable " << v;
    }
  }
};

bool SameBits(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t s = 0; s < a.size(); ++s) {
    if (a[s].size() != b[s].size() ||
        std::memcmp(a[s].data(), b[s].data(), a[s].size() * sizeof(float)) != 0) {
      return false;
    }
  }
  return true;
}

// Prints, for tools/gpu_check: which GPU, by the plugin alone.
TEST_F(Gpu, Card) {
  const AcceleratorInfo& card = accelerator_->info();
  std::printf(
      "CARD name=%s;uuid=%s;capability=%d.%d;memory_mib=%llu;free_mib=%llu;driver=%s;mps=%s;\n",
      card.name.c_str(), card.uuid.c_str(), card.compute_capability / 10,
      card.compute_capability % 10, static_cast<unsigned long long>(card.memory_bytes >> 20),
      static_cast<unsigned long long>(card.free_bytes >> 20), card.driver.c_str(),
      card.mps ? "yes" : "no");
}

// The first that tools/gpu_check wants to know: MNIST's network, as a graph and one by one.
TEST_F(Gpu, OneStepIsRight) {
  for (const bool graph : {true, false}) {
    SCOPED_TRACE(::testing::Message() << "graph " << graph);
    StepWorld world({784, 100, 10}, Small() ? 10 : 100, Placement::kOneShard, 2);
    world.options.graph = graph;
    const auto engine = Make(world.options);
    ASSERT_NE(engine, nullptr);
    const auto indices = world.RandomBatch();
    ExpectNear(world, Step(*engine, world, indices, 0), indices, 1e-5);
  }
}

TEST_F(Gpu, GradientAndLossAreThoseOfDoublePrecision) {
  struct Net {
    std::vector<std::size_t> widths;
    std::size_t batch;
  };
  std::vector<Net> nets = {{{9, 4}, 3}, {{1, 1}, 1}, {{17, 13, 7, 5}, 33}, {{13, 97, 11}, 7}};
  if (!Small()) {
    nets.push_back({{784, 100, 10}, 100});
    nets.push_back({{64, 64, 64, 10}, 64});
    for (std::size_t width = 1; width <= 17; ++width) nets.push_back({{width, 18 - width, 3}, 5});
  }
  for (const Net& net : nets) {
    for (const Placement placement :
         {Placement::kOneShard, Placement::kRoundRobin, Placement::kSplit}) {
      for (const bool graph : {true, false}) {
        SCOPED_TRACE(::testing::Message() << net.widths.front() << "-...-" << net.widths.back()
                                          << ", batch " << net.batch << ", placement "
                                          << static_cast<int>(placement) << ", graph " << graph);
        StepWorld world(net.widths, net.batch, placement, 3);
        world.options.graph = graph;
        const auto engine = Make(world.options);
        ASSERT_NE(engine, nullptr);
        for (int step = 0; step < 4; ++step) {
          world.RandomValues();
          const auto indices = world.RandomBatch();
          ExpectNear(world, Step(*engine, world, indices, step % 3), indices, 1e-5);
        }
      }
    }
  }
}

TEST_F(Gpu, AGraphGivesTheSameBitsAsOneByOneAHundredTimes) {
  StepWorld world = MnistWorld(Placement::kRoundRobin, 5);
  const auto graph = Make(world.options);
  world.options.graph = false;
  const auto single = Make(world.options);
  ASSERT_TRUE(graph != nullptr && single != nullptr);
  // Both by DMA, so that nothing else differs.
  EXPECT_NE(graph->Describe().find("one graph of "), std::string::npos) << graph->Describe();
  EXPECT_NE(single->Describe().find("one stream of "), std::string::npos) << single->Describe();
  for (const auto* engine : {graph.get(), single.get()}) {
    EXPECT_NE(engine->Describe().find("DMA from and to the arena"), std::string::npos)
        << engine->Describe();
  }
  for (int step = 0; step < (Small() ? 5 : 100); ++step) {
    world.RandomValues();
    const auto indices = world.RandomBatch();
    const Outcome a = Step(*graph, world, indices, step % 3);
    const Outcome b = Step(*single, world, indices, step % 3);
    ASSERT_TRUE(SameBits(a.gradient, b.gradient)) << "step " << step;
    ASSERT_EQ(a.loss, b.loss);
    ASSERT_EQ(a.correct, b.correct);
  }
}

TEST_F(Gpu, StepsInFlightDoNotMix) {
  StepWorld world({40, 30, 10}, 9, Placement::kSplit, 7);
  const auto engine = Make(world.options);
  ASSERT_NE(engine, nullptr);
  for (int round = 0; round < (Small() ? 3 : 300); ++round) {
    std::vector<std::vector<std::uint32_t>> batches;
    for (int slot = 0; slot < 3; ++slot) {
      world.PoisonSlot(slot);
      batches.push_back(world.RandomBatch());
      ASSERT_TRUE(engine->Start(batches.back(), slot).ok());
    }
    for (int slot = 0; slot < 3; ++slot) {
      ExpectNear(world, FinishStep(*engine, world, slot), batches[static_cast<std::size_t>(slot)],
                 1e-5);
    }
  }
}

TEST_F(Gpu, NotANumberIsSeen) {
  StepWorld world({20, 15, 10}, 6, Placement::kOneShard, 9);
  const auto engine = Make(world.options);
  ASSERT_NE(engine, nullptr);
  const auto indices = world.RandomBatch();
  EXPECT_TRUE(Step(*engine, world, indices, 0).finite);
  const auto& bias = world.options.memory.variables[1].front();
  world.values(0)[bias.offset] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(Step(*engine, world, indices, 1).finite);
}

// Relative errors of a gradient. Where operands are rounded, units near 0 fall on the other side of
// their ReLU: in NumPy these networks have up to 3e-2 (operands of 10 mantissa bits) and 7e-2 (of
// 7). A product that is wrong has about 1.
constexpr std::pair<MathMode, double> kMathTolerances[] = {
    {MathMode::kFloat32, 1e-5}, {MathMode::kTf32, 1e-1}, {MathMode::kBfloat16, 2e-1}};

TEST_F(Gpu, LargeProductsAreRightInEveryMode) {
  if (Small()) GTEST_SKIP() << "PASSEL_GPU_SMALL is set";
  for (const auto& [math, tolerance] : kMathTolerances) {
    SCOPED_TRACE(static_cast<int>(math));
    StepWorld world({784, 1024, 10}, 256, Placement::kOneShard, 11);
    world.options.math = math;
    const auto engine = Make(world.options);
    ASSERT_NE(engine, nullptr);
    EXPECT_NE(engine->Describe().find("and cuBLASLt"), std::string::npos) << engine->Describe();
    const auto indices = world.RandomBatch();
    ExpectNear(world, Step(*engine, world, indices, 0), indices, tolerance);
    // NVIDIA's ReLU may make 0 of a hidden unit without a number: it is reported which it does.
    const auto& bias = world.options.memory.variables[1].front();
    world.values(static_cast<std::size_t>(bias.shard))[bias.offset] =
        std::numeric_limits<float>::quiet_NaN();
    std::printf("RESULT a hidden unit of a large layer is NaN, math %d: %s\n",
                static_cast<int>(math),
                Step(*engine, world, indices, 1).finite ? "made 0 by the ReLU" : "seen");
    // What no ReLU stands behind must be seen.
    world.RandomValues();
    const auto& last = world.options.memory.variables[3].front();
    world.values(static_cast<std::size_t>(last.shard))[last.offset] =
        std::numeric_limits<float>::quiet_NaN();
    EXPECT_FALSE(Step(*engine, world, indices, 0).finite);
  }
}

// Deep enough for every kind of product that cuBLASLt computes.
TEST_F(Gpu, LargeLayersAreRight) {
  struct Net {
    std::vector<std::size_t> widths;
    std::size_t batch;
  };
  const std::vector<Net> nets =
      Small() ? std::vector<Net>{{{513, 513, 513, 3}, 3}}
              : std::vector<Net>{{{784, 1024, 1024, 10}, 16}, {{784, 513, 520, 1100, 250}, 9}};
  for (const Net& net : nets) {
    for (const Placement placement : {Placement::kOneShard, Placement::kSplit}) {
      StepWorld world(net.widths, net.batch, placement, 19);
      const auto indices = world.RandomBatch();
      const ReferenceResult wanted = world.Reference(indices);
      for (const auto& [math, tolerance] : kMathTolerances) {
        SCOPED_TRACE(::testing::Message()
                     << net.widths[1] << " units, placement " << static_cast<int>(placement)
                     << ", math " << static_cast<int>(math));
        world.options.math = math;
        const auto engine = Make(world.options);
        ASSERT_NE(engine, nullptr);
        for (int slot = 0; slot < 2; ++slot) {
          ExpectNear(world, Step(*engine, world, indices, slot), wanted, tolerance);
        }
      }
    }
  }
}

TEST_F(Gpu, MemoryBeyondTheLimitIsRefusedInOneSentence) {
  AcceleratorOptions options;
  options.memory_fraction = 1e-6;  // of 16 GiB or more
  auto limited = OpenAccelerator(options);
  ASSERT_TRUE(limited.ok()) << limited.status().ToString();
  StepWorld world({784, 100, 10}, 100, Placement::kOneShard, 13);
  const Status status = (*limited)->CreateStepEngine(world.options).status();
  EXPECT_EQ(status.code(), Code::kResourceExhausted) << status.ToString();
}

// For ncu: the kernels of MNIST's network, one after the other.
TEST_F(Gpu, Profile) {
  StepWorld world = MnistWorld(Placement::kOneShard, 17);
  world.options.graph = false;
  const auto engine = Make(world.options);
  ASSERT_NE(engine, nullptr);
  for (int step = 0; step < 3; ++step) {
    const auto indices = world.RandomBatch();
    ExpectNear(world, Step(*engine, world, indices, step), indices, 1e-5);
  }
}

// Microseconds of a step, `in_flight` of them at a time.
double StepMicroseconds(StepEngine& engine, StepWorld& world, int in_flight, int warm_up,
                        int steps) {
  std::vector<std::vector<std::uint32_t>> batches;
  for (int i = 0; i < 64; ++i) batches.push_back(world.RandomBatch());
  int started = 0;
  std::int64_t begin = 0;
  for (int finished = 0; finished < warm_up + steps; ++finished) {
    if (finished == warm_up) begin = MonotonicNs();
    while (started < warm_up + steps && started - finished < in_flight) {
      const Status status =
          engine.Start(batches[static_cast<std::size_t>(started % 64)], started % 3);
      EXPECT_TRUE(status.ok()) << status.ToString();
      if (!status.ok()) return 0;
      ++started;
    }
    bool finite = false;
    const auto result = engine.Finish(Soon(), &finite);
    EXPECT_TRUE(result.ok()) << result.status().ToString();
    if (!result.ok()) return 0;
  }
  return static_cast<double>(MonotonicNs() - begin) * 1e-3 / steps;
}

// Prints, for tools/gpu_check: steps per second of MNIST's network, by how many are in flight. The
// predictions were made for an H200 before any measurement.
TEST_F(Gpu, Speed) {
  struct Row {
    bool graph;
    int in_flight;
    double least_us, most_us;  // predicted; 0: not
  };
  const Row rows[] = {{false, 1, 70, 130}, {false, 2, 0, 0},  {false, 3, 0, 0},
                      {true, 1, 30, 45},   {true, 2, 20, 28}, {true, 3, 20, 28}};
  for (const Row& row : rows) {
    StepWorld world = MnistWorld(Placement::kOneShard, 15, 3, true);
    world.options.graph = row.graph;
    const auto engine = Make(world.options);
    ASSERT_NE(engine, nullptr);
    const double us =
        StepMicroseconds(*engine, world, row.in_flight, Small() ? 5 : 200, Small() ? 20 : 5000);
    ASSERT_FALSE(HasFailure());
    std::printf("RESULT step, %s, %d in flight: %.2f us, %.0f steps/s",
                row.graph ? "graph" : "one by one", row.in_flight, us, 1e6 / us);
    if (row.most_us > 0 && !Small()) {
      std::printf(" (predicted %.0f-%.0f us; %.2f of the slower, %.2f of the faster prediction)",
                  row.least_us, row.most_us, row.most_us / us, row.least_us / us);
    }
    std::printf("\n");
  }
}

// The same of a network whose layers cuBLASLt computes. Values and gradients are copied, too.
TEST_F(Gpu, LargeLayersSpeed) {
  const std::vector<std::size_t> widths = Small() ? std::vector<std::size_t>{513, 513, 513, 10}
                                                  : std::vector<std::size_t>{784, 2048, 2048, 10};
  const std::size_t batch = Small() ? 3 : 4096;
  for (const auto& [math, name] :
       {std::pair{MathMode::kFloat32, "float32"}, std::pair{MathMode::kTf32, "tf32"},
        std::pair{MathMode::kBfloat16, "bfloat16"}}) {
    StepWorld world(widths, batch, Placement::kOneShard, 23, 3, Small() ? 50 : 20000);
    world.options.math = math;
    const auto engine = Make(world.options);
    ASSERT_NE(engine, nullptr);
    const double us = StepMicroseconds(*engine, world, 2, Small() ? 1 : 20, Small() ? 2 : 200);
    ASSERT_FALSE(HasFailure());
    std::printf("RESULT step of %zu-%zu-%zu-%zu, batch %zu, %s: %.1f us, %.0f steps/s\n", widths[0],
                widths[1], widths[2], widths[3], batch, name, us, 1e6 / us);
  }
}

}  // namespace
}  // namespace passel::cuda

// The step engine against numbers that NumPy computed, and against the model on the CPU.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "compute/cpu_backend.h"
#include "cuda/device_step_engine.h"
#include "cuda/fake_device.h"
#include "cuda/step_world.h"
#include "nn/model.h"
#include "unit/nn/model_goldens.h"

namespace passel::cuda {
namespace {

constexpr std::size_t kGoldenBatch = std::size(kGoldenLabels);

// The pixels and parameters of tests/unit/nn/make_goldens.py.
StepWorld GoldenWorld(const ModelGolden& golden, Placement placement) {
  std::vector<std::size_t> widths = {kGoldenInputs};
  widths.insert(widths.end(), golden.hidden.begin(), golden.hidden.end());
  widths.push_back(kGoldenClasses);
  StepWorld world(widths, kGoldenBatch, placement, 1);
  world.options.network.clip = golden.clip;
  world.options.network.mean = golden.mean;
  const auto& variables = world.options.memory.variables;
  for (std::size_t v = 0; v < variables.size(); ++v) {
    const std::size_t cols = v % 2 == 0 ? widths[v / 2 + 1] : 1;
    for (const auto& part : variables[v]) {
      for (std::size_t i = 0; i < part.rows * cols; ++i) {
        const std::size_t e = part.first_row * cols + i;
        float value = (static_cast<float>((v * 53 + e * 29 + 17) % 128) - 64) / 64;
        if (v + 2 == variables.size()) value *= golden.spread;
        world.values(static_cast<std::size_t>(part.shard))[part.offset + i] = value;
      }
    }
  }
  return world;
}

TEST(DeviceStepEngine, GivesTheNumbersOfNumPy) {
  std::vector<std::uint8_t> pixels;
  for (std::size_t b = 0; b < kGoldenBatch; ++b) {
    for (std::size_t i = 0; i < kGoldenInputs; ++i) {
      pixels.push_back(static_cast<std::uint8_t>((b * 71 + i * 37 + 11) % 256));
    }
  }
  const std::vector<std::uint32_t> indices = {0, 1, 2, 3, 4};
  int goldens = 0;
  for (const ModelGolden& golden : ModelGoldens()) {
    for (const Placement placement : {Placement::kOneShard, Placement::kSplit}) {
      SCOPED_TRACE(++goldens);
      StepWorld world = GoldenWorld(golden, placement);
      world.options.train = {pixels.data(), kGoldenLabels, kGoldenBatch};
      FakeDevice device({});
      auto engine = CreateDeviceStepEngine(device, world.options, {});
      ASSERT_TRUE(engine.ok()) << engine.status().message();
      ASSERT_TRUE((*engine)->Start(indices, 0).ok());
      bool finite = false;
      const auto result = (*engine)->Finish(Deadline::After(std::chrono::seconds(60)), &finite);
      ASSERT_TRUE(result.ok()) << result.status().message();
      EXPECT_TRUE(finite);
      EXPECT_EQ(result->correct, golden.correct);
      EXPECT_NEAR(result->loss, golden.loss, 1e-5 * golden.loss);
      const auto gradients = world.Variables(world.Slot(0));
      for (std::size_t v = 0; v < gradients.size(); ++v) {
        EXPECT_LE(RelativeError(gradients[v], golden.gradients[v]), 1e-5) << "variable " << v;
      }
    }
  }
  EXPECT_GE(goldens, 16);
}

// What a worker would compute on the CPU, on the same values.
TEST(DeviceStepEngine, AgreesWithTheModelOnTheCpu) {
  for (const auto& [widths, batch] : std::vector<std::pair<std::vector<std::size_t>, std::size_t>>{
           {{784, 100, 10}, 100}, {{784, 10}, 100}, {{30, 20, 15, 7}, 11}}) {
    StepWorld world(widths, batch, Placement::kOneShard, 2);
    ModelConfig config;
    config.kind = widths.size() == 2 ? ModelKind::kSoftmax : ModelKind::kMlp;
    config.inputs = widths.front();
    config.classes = widths.back();
    config.hidden.assign(widths.begin() + 1, widths.end() - 1);
    auto backend = CreateCpuBackend({});
    ASSERT_TRUE(backend.ok());
    auto model = Model::Create(config, **backend, batch);
    ASSERT_TRUE(model.ok()) << model.status().message();
    std::vector<std::vector<RowPart>> params;
    std::vector<std::vector<MutableRowPart>> gradients;
    std::vector<float> gradient(world.values(0).size());
    for (const auto& parts : world.options.memory.variables) {
      params.push_back({{world.values(0).data() + parts[0].offset, 0, parts[0].rows}});
      gradients.push_back({{gradient.data() + parts[0].offset, 0, parts[0].rows}});
    }
    const auto indices = world.RandomBatch();
    const auto wanted =
        (*model)->LossAndGradient({world.options.train, indices}, params, gradients);
    ASSERT_TRUE(wanted.ok());

    FakeDevice device({});
    auto engine = CreateDeviceStepEngine(device, world.options, {});
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    ASSERT_TRUE((*engine)->Start(indices, 0).ok());
    bool finite = false;
    const auto got = (*engine)->Finish(Deadline::After(std::chrono::seconds(60)), &finite);
    ASSERT_TRUE(got.ok()) << got.status().message();
    EXPECT_EQ(got->correct, wanted->correct);
    EXPECT_NEAR(got->loss, wanted->loss, 1e-5 * wanted->loss);
    const auto mine = world.Variables(world.Slot(0));
    const auto theirs = world.Variables(std::vector<std::vector<float>>{gradient});
    for (std::size_t v = 0; v < mine.size(); ++v) {
      EXPECT_LE(RelativeError(mine[v], theirs[v]), 1e-5) << "variable " << v;
    }
  }
}

}  // namespace
}  // namespace passel::cuda

// The step engine against the model on the CPU.

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "compute/cpu_backend.h"
#include "cuda/device_step_engine.h"
#include "cuda/fake_device.h"
#include "cuda/step_world.h"
#include "nn/model.h"

namespace passel::cuda {
namespace {

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

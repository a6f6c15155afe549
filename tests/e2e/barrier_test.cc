// Synchronous training with N workers is training on one big batch: the variables of a job in
// rounds of one gradient per worker (barrier, and replicas with R = N) equal, after 200 updates and
// to the last bit, those of a loop written down here, in one process and without a store.

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "compute/cpu_backend.h"
#include "compute/matrix_kernels.h"
#include "data/dataset.h"
#include "data/samplers.h"
#include "nn/model.h"
#include "support/program.h"
#include "train/saved_model.h"

namespace passel::testing {
namespace {

constexpr int kRounds = 200;
constexpr std::uint32_t kBatch = 20;
constexpr float kRate = 0.25F;  // a power of two: the product with it is exact

// kRounds rounds of gradient descent by the mean of the gradients of `workers` workers, added in
// the order of their indices.
std::vector<std::vector<float>> Reference(int workers, const ModelConfig& config,
                                          const Dataset& data) {
  auto backend = CreateCpuBackend().value();
  auto model = Model::Create(config, *backend, kBatch).value();
  std::vector<NextBatchSampler> samplers;
  for (int k = 0; k < workers; ++k) {
    SamplerOptions sampler;
    sampler.num_examples = static_cast<std::uint32_t>(data.train().size());
    sampler.seed = 1;
    sampler.worker = static_cast<std::uint32_t>(k);
    samplers.emplace_back(sampler);
  }
  const std::vector<VariableSpec>& specs = model->variables();
  std::vector<std::vector<float>> values, gradient, sum;
  std::vector<std::vector<RowPart>> params(specs.size());
  std::vector<std::vector<MutableRowPart>> gradients(specs.size());
  for (std::size_t v = 0; v < specs.size(); ++v) {
    values.emplace_back(specs[v].elements());
    gradient.emplace_back(specs[v].elements());
    sum.emplace_back(specs[v].elements());
    InitializeVariable(config, v, 0, values[v]);
    params[v] = {{values[v].data(), 0, specs[v].rows()}};
    gradients[v] = {{gradient[v].data(), 0, specs[v].rows()}};
  }
  const Examples train{data.train().images.data(), data.train().labels.data(), data.train().size()};
  std::vector<std::uint32_t> indices(kBatch);
  for (int round = 0; round < kRounds; ++round) {
    for (int k = 0; k < workers; ++k) {
      samplers[static_cast<std::size_t>(k)].Next(indices);
      EXPECT_TRUE(model->LossAndGradient({train, indices}, params, gradients).ok());
      for (std::size_t v = 0; v < specs.size(); ++v) {
        for (std::size_t i = 0; i < sum[v].size(); ++i) {
          sum[v][i] = k == 0 ? gradient[v][i] : sum[v][i] + gradient[v][i];
        }
      }
    }
    for (std::size_t v = 0; v < specs.size(); ++v) {
      for (std::size_t i = 0; i < sum[v].size(); ++i) {
        values[v][i] -= kRate * (sum[v][i] / static_cast<float>(workers));
      }
    }
  }
  return values;
}

struct Rounds {
  int workers;
  const char* mode;
};

class RoundsEqualBigBatchTest : public ::testing::TestWithParam<Rounds> {};

TEST_P(RoundsEqualBigBatchTest, BitForBit) {
  const int workers = GetParam().workers;
  const std::string mode = GetParam().mode;
  Sandbox sandbox;
  sandbox.SetEnv("OPENBLAS_CORETYPE", MatrixLibraryCore());  // bits are of kernels
  const std::string path = sandbox.dir().File("m.safetensors");
  std::vector<std::string> flags = {"--mode=" + mode,
                                    fmt::format("--workers={}", workers),
                                    "--ps=2",
                                    "--optimizer=sgd",
                                    fmt::format("--learning_rate={}", kRate),
                                    fmt::format("--batch_size={}", kBatch),
                                    fmt::format("--train_steps={}", kRounds),
                                    "--hidden_units=16",
                                    "--save=" + path};
  if (mode == "replicas") flags.push_back(fmt::format("--replicas_to_aggregate={}", workers));
  const Outcome outcome = sandbox.Run(sandbox.Train(flags));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Result<SavedModel> saved = LoadModel(path);
  ASSERT_TRUE(saved.ok()) << saved.status().message();
  auto data = OwnedDataset::Load(Digits());
  ASSERT_TRUE(data.ok()) << data.status().message();
  ModelConfig config = DefaultModelConfig(ModelKind::kMlp);
  config.inputs = 784;
  config.classes = 10;
  config.hidden = {16};
  config.loss = LossReduction::kMean;
  config.seed = 1;
  const std::vector<std::vector<float>> expected = Reference(workers, config, **data);
  ASSERT_EQ(saved->values.size(), expected.size());
  std::size_t different = 0, elements = 0;
  double largest = 0;
  for (std::size_t v = 0; v < expected.size(); ++v) {
    for (std::size_t i = 0; i < expected[v].size(); ++i) {
      const double error = std::abs(double{saved->values[v][i]} - double{expected[v][i]});
      largest = std::max(largest, error);
      different += saved->values[v][i] != expected[v][i];
      ++elements;
    }
  }
  EXPECT_EQ(different, 0u) << "of " << elements << ", largest difference " << largest;
}

INSTANTIATE_TEST_SUITE_P(Workers, RoundsEqualBigBatchTest,
                         ::testing::Values(Rounds{1, "barrier"}, Rounds{2, "barrier"},
                                           Rounds{3, "barrier"}, Rounds{4, "barrier"},
                                           Rounds{1, "replicas"}, Rounds{2, "replicas"},
                                           Rounds{3, "replicas"}, Rounds{4, "replicas"}),
                         [](const ::testing::TestParamInfo<Rounds>& tested) {
                           return fmt::format("{}{}", tested.param.mode, tested.param.workers);
                         });

}  // namespace
}  // namespace passel::testing

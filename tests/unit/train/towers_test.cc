// A batch on several towers gives the gradient of the whole batch, the same each time.

#include "train/towers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "base/random.h"
#include "compute/cpu_backend.h"

namespace passel {
namespace {

constexpr std::size_t kExamples = 300;

// A model with random parameters and images, variables in several parts.
class TowersTest : public ::testing::TestWithParam<LossReduction> {
 protected:
  TowersTest() {
    config_ = DefaultModelConfig(ModelKind::kMlp);
    config_.inputs = 49;
    config_.classes = 10;
    config_.hidden = {24, 13};
    config_.loss = GetParam();
    config_.clip = false;
    Random random(5);
    pixels_.resize(kExamples * config_.inputs);
    for (std::uint8_t& pixel : pixels_) pixel = static_cast<std::uint8_t>(random.Below(256));
    labels_.resize(kExamples);
    for (std::uint8_t& label : labels_) label = static_cast<std::uint8_t>(random.Below(10));
    indices_.resize(kExamples);
    std::iota(indices_.rbegin(), indices_.rend(), 0u);
    const std::vector<VariableSpec> variables = ModelVariables(config_);
    for (std::size_t v = 0; v < variables.size(); ++v) {
      values_.emplace_back(variables[v].elements());
      InitializeVariable(config_, v, 0, values_.back());
      params_.push_back({{values_.back().data(), 0, variables[v].rows()}});
    }
  }

  struct Computed {
    BatchResult result;
    std::vector<std::vector<float>> gradient;  // [variables]
  };

  // `compute(batch, params, gradients)`, the gradient of each variable in two parts of unequal
  // size.
  template <typename F>
  Computed Run(std::size_t size, F&& compute) {
    Computed out;
    std::vector<std::vector<MutableRowPart>> parts;
    for (const VariableSpec& variable : ModelVariables(config_)) {
      std::vector<float>& g = out.gradient.emplace_back(variable.elements(), NAN);
      const std::size_t cut = variable.rows() / 3;
      parts.push_back(
          {{g.data(), 0, cut}, {g.data() + cut * variable.cols(), cut, variable.rows() - cut}});
    }
    const Batch batch{{pixels_.data(), labels_.data(), kExamples}, std::span(indices_).first(size)};
    const Result<BatchResult> result = compute(batch, params_, parts);
    EXPECT_TRUE(result.ok()) << result.status().message();
    if (result.ok()) out.result = *result;
    return out;
  }

  std::unique_ptr<Towers> Make(int towers, std::size_t max_batch,
                               std::chrono::nanoseconds spin = std::chrono::microseconds(50)) {
    return Towers::Create(
               config_, towers, max_batch, [] { return CreateCpuBackend(); }, spin)
        .value();
  }

  ModelConfig config_;
  std::vector<std::uint8_t> pixels_, labels_;
  std::vector<std::uint32_t> indices_;
  std::vector<std::vector<float>> values_;
  std::vector<std::vector<RowPart>> params_;
};

TEST_P(TowersTest, GiveTheGradientOfTheWholeBatch) {
  const auto backend = CreateCpuBackend().value();
  const auto model = Model::Create(config_, *backend, kExamples).value();
  for (const std::size_t size : {std::size_t{7}, std::size_t{100}, kExamples}) {
    const Computed whole = Run(size, [&](auto&&... a) { return model->LossAndGradient(a...); });
    for (const int count : {1, 2, 3, 7}) {
      SCOPED_TRACE(std::to_string(size) + " on " + std::to_string(count));
      const auto towers = Make(count, kExamples);
      const Computed split = Run(size, [&](auto&&... a) { return towers->LossAndGradient(a...); });
      EXPECT_EQ(split.result.correct, whole.result.correct);
      EXPECT_NEAR(split.result.loss, whole.result.loss, 1e-6 * std::abs(whole.result.loss));
      for (std::size_t v = 0; v < whole.gradient.size(); ++v) {
        double error = 0, norm = 0;
        for (std::size_t i = 0; i < whole.gradient[v].size(); ++i) {
          const double difference = double{split.gradient[v][i]} - double{whole.gradient[v][i]};
          error += difference * difference;
          norm += double{whole.gradient[v][i]} * double{whole.gradient[v][i]};
        }
        ASSERT_GT(norm, 0);
        EXPECT_LT(std::sqrt(error / norm), 2e-6) << "variable " << v;  // NaN fails too
      }
    }
  }
}

TEST_P(TowersTest, AreBitwiseTheSameEachTime) {
  // 25 + 25 + 25 + 24; towers that sleep at once, and towers that spin first.
  const std::unique_ptr<Towers> both[] = {Make(4, 99, std::chrono::nanoseconds(0)),
                                          Make(4, 99, std::chrono::microseconds(300))};
  const auto run = [&](Towers& towers) {
    return Run(99, [&](auto&&... a) { return towers.LossAndGradient(a...); });
  };
  const Computed first = run(*both[0]);
  for (int i = 0; i < 200; ++i) {
    const Computed again = run(*both[i % 2]);
    EXPECT_EQ(again.result.loss, first.result.loss);
    for (std::size_t v = 0; v < first.gradient.size(); ++v) {
      ASSERT_EQ(std::memcmp(again.gradient[v].data(), first.gradient[v].data(),
                            first.gradient[v].size() * sizeof(float)),
                0);
    }
  }
}

// The towers of one example each: their gradients are those of the examples.
TEST_P(TowersTest, WeighExamplesEqually) {
  const auto backend = CreateCpuBackend().value();
  const auto model = Model::Create(config_, *backend, 1).value();
  const auto towers = Make(2, 3);  // 2 examples and 1
  const Computed split = Run(3, [&](auto&&... a) { return towers->LossAndGradient(a...); });
  std::vector<double> sum(split.gradient[0].size());
  for (std::uint32_t e = 0; e < 3; ++e) {
    const Computed one = Run(1, [&](const Batch& batch, ParameterParts p, GradientParts g) {
      return model->LossAndGradient({batch.from, std::span(indices_).subspan(e, 1)}, p, g);
    });
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += one.gradient[0][i];
  }
  const double divisor = GetParam() == LossReduction::kMean ? 3 : 1;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    ASSERT_NEAR(split.gradient[0][i], sum[i] / divisor, 1e-5) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Losses, TowersTest,
                         ::testing::Values(LossReduction::kMean, LossReduction::kSum),
                         [](const auto& test) {
                           return test.param == LossReduction::kMean ? "Mean" : "Sum";
                         });

TEST(TowersLimitTest, NumberAndBatchAreChecked) {
  ModelConfig config = DefaultModelConfig(ModelKind::kSoftmax);
  config.inputs = 4;
  config.classes = 3;
  const auto create = [&](int towers, std::size_t batch) {
    return Towers::Create(config, towers, batch, [] { return CreateCpuBackend(); }, {}).status();
  };
  EXPECT_EQ(create(0, 10).code(), Code::kInvalidArgument);
  EXPECT_EQ(create(kMaxTowers + 1, 1000).code(), Code::kInvalidArgument);
  EXPECT_EQ(create(4, 3).code(), Code::kInvalidArgument);
  EXPECT_TRUE(create(3, 3).ok());
}

}  // namespace
}  // namespace passel

#include "train/evaluation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "compute/cpu_backend.h"
#include "nn/model.h"

namespace passel {
namespace {

constexpr std::size_t kImages = 1000;
constexpr std::size_t kPixels = 16;

// Images of sixteen pixels and a model whose values lie in memory of the test.
class EvaluationTest : public ::testing::Test {
 protected:
  void Make(std::vector<std::size_t> hidden) {
    config_ = DefaultModelConfig(ModelKind::kMlp);
    config_.inputs = kPixels;
    config_.classes = 10;
    config_.hidden = std::move(hidden);
    for (std::size_t i = 0; i < kImages * kPixels; ++i) {
      pixels_.push_back(static_cast<std::uint8_t>(i * 37 % 256));
    }
    for (std::size_t i = 0; i < kImages; ++i) labels_.push_back(static_cast<std::uint8_t>(i % 10));
    backend_ = CreateCpuBackend().value();
    model_ = Model::Create(config_, *backend_, 500).value();
    for (const VariableSpec& variable : model_->variables()) {
      std::vector<float>& values = values_.emplace_back(variable.elements());
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(static_cast<int>(i * 61 % 199) - 99) * 1e-3F;
      }
    }
    for (std::size_t v = 0; v < values_.size(); ++v) {
      parts_.push_back({{values_[v].data(), 0, model_->variables()[v].rows()}});
    }
  }
  ImageSet Images() const {
    ImageSet images;
    images.images = pixels_;
    images.labels = labels_;
    images.image_pixels = kPixels;
    return images;
  }

  ModelConfig config_;
  std::vector<std::uint8_t> pixels_, labels_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  std::vector<std::vector<float>> values_;
  std::vector<std::vector<RowPart>> parts_;
};

// What a model gives for all images at once, in batches of the most it takes.
TEST_F(EvaluationTest, LargeModelsTakeTheImagesInSmallerBatches) {
  Make({3000, 1500});  // 4567510 parameters: 2^31 multiplications are 470 images
  std::vector<std::size_t> looks;
  const Result<TestResult> result =
      EvaluateImages(*model_, Images(), parts_, [&](std::size_t done) {
        looks.push_back(done);
        return Status();
      });
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_THAT(looks, ::testing::ElementsAre(0, 470, 940));
  const Examples all{pixels_.data(), labels_.data(), kImages};
  const Evaluation whole = model_->Evaluate(all, 0, kImages, parts_).value();
  EXPECT_EQ(result->accuracy, static_cast<double>(whole.correct) / kImages);
  EXPECT_NEAR(result->loss_sum, whole.loss_sum, 1e-6 * whole.loss_sum);
  EXPECT_DOUBLE_EQ(result->loss, result->loss_sum / kImages);
}

TEST_F(EvaluationTest, ErrorOfTheCheckEndsIt) {
  Make({8});
  std::vector<std::size_t> looks;
  const Result<TestResult> result =
      EvaluateImages(*model_, Images(), parts_, [&](std::size_t done) {
        looks.push_back(done);
        return done == 0 ? Status() : Cancelled("enough");
      });
  EXPECT_EQ(result.status().code(), Code::kCancelled);
  EXPECT_THAT(looks, ::testing::ElementsAre(0, 500));
}

TEST_F(EvaluationTest, ValuesThatAreNoNumbersAreFoundAndTheirLossIsPrintedWithoutASign) {
  Make({8});
  EXPECT_EQ(FindNonFinite(model_->variables(), parts_), nullptr);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN(),
        std::numeric_limits<float>::infinity()}) {
    for (std::size_t v = 0; v < values_.size(); ++v) {
      const float good = std::exchange(values_[v].back(), bad);
      const VariableSpec* const found = FindNonFinite(model_->variables(), parts_);
      ASSERT_NE(found, nullptr);
      EXPECT_EQ(found->name, model_->variables()[v].name);
      if (v == 3 && std::isnan(bad)) {  // a bias of the logits
        const TestResult result = EvaluateImages(*model_, Images(), parts_).value();
        EXPECT_TRUE(std::isnan(result.loss) && !std::signbit(result.loss));
        EXPECT_TRUE(std::isnan(result.loss_sum) && !std::signbit(result.loss_sum));
      }
      values_[v].back() = good;
    }
  }
}

}  // namespace
}  // namespace passel

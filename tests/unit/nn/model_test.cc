#include "nn/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "unit/nn/model_helpers.h"

// Under AddressSanitizer: let an allocation that is too large fail as it does elsewhere.
extern "C" __attribute__((visibility("default"), used)) const char* __asan_default_options() {
  return "allocator_may_return_null=1";
}

namespace passel {
namespace {

using testing::HasSubstr;

// --- Double precision ----------------------------------------------------------------------------

struct Case {
  const char* name;
  std::vector<std::size_t> hidden;
  LossReduction loss;
  bool clip;
};

class GradientTest : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(
    Models, GradientTest,
    testing::Values(Case{"Depth1Sum", {13}, LossReduction::kSum, true},
                    Case{"Depth1MeanUnclipped", {16}, LossReduction::kMean, false},
                    Case{"Depth2Sum", {17, 9}, LossReduction::kSum, true},
                    Case{"Depth2Mean", {8, 32}, LossReduction::kMean, true},
                    Case{"Depth3Sum", {11, 7, 19}, LossReduction::kSum, true},
                    Case{"Depth3MeanUnclipped", {6, 10, 5}, LossReduction::kMean, false},
                    Case{"SoftmaxMean", {}, LossReduction::kMean, false},
                    Case{"SoftmaxSum", {}, LossReduction::kSum, true}),
    [](const auto& p) { return std::string(p.param.name); });

ModelConfig ConfigOf(const Case& c, std::size_t inputs, std::size_t classes) {
  ModelConfig config = SmallConfig(c.hidden, inputs, classes);
  config.loss = c.loss;
  config.clip = c.clip;
  return config;
}

// The first values, biases that matter, and last weights so many times as large.
void FillWidely(const ModelConfig& config, float spread, PartedValues& params) {
  FillWithFirstValues(config, params);
  Random random(9);
  const std::vector<VariableSpec> specs = ModelVariables(config);
  for (std::size_t v = 0; v < specs.size(); ++v) {
    for (std::size_t e = 0; e < specs[v].elements(); ++e) {
      if (v % 2 == 1) params.at(v, e) = static_cast<float>(0.3 * random.Normal());
      if (v + 2 == specs.size()) params.at(v, e) *= spread;
    }
  }
}

// The reference of all that follows, by nothing but its own loss.
TEST_P(GradientTest, TheReferenceHasTheGradientOfCentralDifferences) {
  const ModelConfig config = ConfigOf(GetParam(), 20, 6);
  const Pictures pictures(30, 20, 6, 3);
  const std::vector<std::uint32_t> indices = {29, 4, 4, 17, 0, 11, 8};
  PartedValues params(ModelVariables(config), 1);
  FillWidely(config, 1, params);
  std::vector<std::vector<double>> values = params.Doubles();
  const auto loss = [&] {
    return ReferenceStep(ShapeOf(config), values, pictures.examples(), indices).loss;
  };
  const ReferenceResult reference =
      ReferenceStep(ShapeOf(config), values, pictures.examples(), indices);
  constexpr double kStep = 1e-6;
  for (std::size_t v = 0; v < values.size(); ++v) {
    double largest = 0;
    for (std::size_t e = 0; e < values[v].size(); ++e) {
      const double keep = values[v][e];
      values[v][e] = keep + kStep;
      const double above = loss();
      values[v][e] = keep - kStep;
      const double below = loss();
      values[v][e] = keep;
      const double want = (above - below) / (2 * kStep);
      EXPECT_NEAR(reference.gradients[v][e], want, 1e-6) << v << "[" << e << "]";
      largest = std::max(largest, std::abs(want));
    }
    EXPECT_GT(largest, 1e-3) << "variable " << v << " has a gradient worth comparing";
  }
}

TEST_P(GradientTest, LossGradientAndProbabilitiesAreThoseOfDoublePrecisionWithAnySplit) {
  const ModelConfig config = ConfigOf(GetParam(), 20, 6);
  const Pictures pictures(30, 20, 6, 3);
  const std::vector<std::uint32_t> indices = {29, 4, 4, 17, 0, 11, 8};
  const auto backend = MakeBackend();
  const auto model = MakeModel(config, *backend, 10);
  for (const float spread : {1.f, 300.f}) {
    for (const std::size_t parts : {1u, 2u, 4u}) {
      PartedValues params(model->variables(), parts), gradients(model->variables(), 5 - parts);
      FillWidely(config, spread, params);
      const ReferenceResult want =
          ReferenceStep(ShapeOf(config), params.Doubles(), pictures.examples(), indices);
      EXPECT_EQ(want.vanished > 0, spread > 1) << "the wide values reach below the clip";
      const auto result = model->LossAndGradient({pictures.examples(), indices}, params.params(),
                                                 gradients.gradients());
      ASSERT_TRUE(result.ok());
      EXPECT_NEAR(result->loss, want.loss, 2e-6 * std::max(1.0, want.loss));
      EXPECT_EQ(result->correct, want.correct);
      EXPECT_TRUE(gradients.GuardsAreIntact());
      for (std::size_t v = 0; v < want.gradients.size(); ++v) {
        const std::vector<float> got = gradients.Flat(v);
        double largest = 0.1;  // the float p of a sure example is off by 2^-24
        for (const double g : want.gradients[v]) largest = std::max(largest, std::abs(g));
        for (std::size_t e = 0; e < got.size(); ++e) {
          EXPECT_NEAR(got[e], want.gradients[v][e], 1e-5 * largest)
              << model->variables()[v].name << "[" << e << "], parts " << parts;
        }
      }
      Examples unlabelled = pictures.examples();
      unlabelled.labels = nullptr;
      std::vector<float> p(indices.size() * 6);
      ASSERT_TRUE(model->Predict({unlabelled, indices}, params.params(), p).ok());
      for (std::size_t i = 0; i < p.size(); ++i) {
        EXPECT_NEAR(p[i], want.probabilities[i / 6][i % 6], 1e-5);
      }
    }
  }
}

TEST_P(GradientTest, SplitVariablesGiveTheSameNumbersAsWholeOnes) {
  const ModelConfig config = ConfigOf(GetParam(), 50, 4);
  const Pictures pictures(16, 50, 4, 5);
  const std::vector<std::uint32_t> indices = FirstIndices(16);
  const auto backend = MakeBackend();
  const auto model = MakeModel(config, *backend, 16);
  PartedValues whole(model->variables(), 1), whole_gradients(model->variables(), 1);
  FillWithFirstValues(config, whole);
  const auto want = model->LossAndGradient({pictures.examples(), indices}, whole.params(),
                                           whole_gradients.gradients());
  ASSERT_TRUE(want.ok());
  for (const std::size_t parts : {2u, 3u, 7u}) {
    PartedValues split(model->variables(), parts), gradients(model->variables(), parts);
    FillWithFirstValues(config, split);
    const auto got = model->LossAndGradient({pictures.examples(), indices}, split.params(),
                                            gradients.gradients());
    ASSERT_TRUE(got.ok());
    EXPECT_NEAR(got->loss, want->loss, 1e-6 * want->loss);
    EXPECT_EQ(got->correct, want->correct);
    EXPECT_TRUE(gradients.GuardsAreIntact());
    for (std::size_t v = 0; v < whole.variables(); ++v) {
      const std::vector<float> a = whole_gradients.Flat(v), b = gradients.Flat(v);
      for (std::size_t e = 0; e < a.size(); ++e) ASSERT_NEAR(a[e], b[e], 1e-5) << parts;
    }
  }
}

// --- Meanings ------------------------------------------------------------------------------------

// Softmax regression on one white pixel: the logits are w + b.
struct OnePixel {
  explicit OnePixel(bool clip) : backend(MakeBackend()) {
    ModelConfig config = SmallConfig({}, 1, 3);
    config.clip = clip;
    config.loss = LossReduction::kSum;
    model = MakeModel(config, *backend, 4);
    params = std::make_unique<PartedValues>(model->variables(), 1);
    gradients = std::make_unique<PartedValues>(model->variables(), 1);
    for (std::size_t j = 0; j < 3; ++j) params->at(0, j) = params->at(1, j) = 0;
    params->at(0, 0) = 100;
  }
  Result<BatchResult> Run() {
    const Examples examples{&pixel, &label, 1};
    return model->LossAndGradient({examples, index}, params->params(), gradients->gradients());
  }
  const std::uint8_t pixel = 255, label = 1;
  const std::vector<std::uint32_t> index = {0};
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;
  std::unique_ptr<PartedValues> params, gradients;
};

TEST(ModelTest, AVanishedTrueClassGivesTheClippedLossAndExactlyNoGradient) {
  OnePixel one(true);
  const auto result = one.Run();
  ASSERT_TRUE(result.ok());
  EXPECT_NEAR(result->loss, -std::log(1e-10), 1e-5);
  for (const std::size_t v : {0u, 1u}) {
    for (const float g : one.gradients->Flat(v)) EXPECT_EQ(g, 0.f);
  }
  const auto evaluated =
      one.model->Evaluate({&one.pixel, &one.label, 1}, 0, 1, one.params->params());
  ASSERT_TRUE(evaluated.ok());
  EXPECT_EQ(evaluated->loss_sum, result->loss);
}

TEST(ModelTest, WithoutTheClipAVanishedTrueClassStillPulls) {
  OnePixel one(false);
  const auto result = one.Run();
  ASSERT_TRUE(result.ok());
  EXPECT_NEAR(result->loss, 100, 1e-4);
  EXPECT_THAT(one.gradients->Flat(1), testing::ElementsAre(1.f, -1.f, 0.f));
}

TEST(ModelTest, ANonFiniteParameterIsSeenInTheLoss) {
  OnePixel one(true);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    one.params->at(1, 2) = bad;
    const auto result = one.Run();
    ASSERT_TRUE(result.ok());
    EXPECT_FALSE(std::isfinite(result->loss));
  }
}

TEST(ModelTest, ANanInAHiddenLayerReachesTheLoss) {
  const ModelConfig config = SmallConfig({8}, 10, 3);
  const auto backend = MakeBackend();
  const auto model = MakeModel(config, *backend, 4);
  PartedValues params(model->variables(), 1), gradients(model->variables(), 1);
  FillWithFirstValues(config, params);
  params.at(1, 3) = std::numeric_limits<float>::quiet_NaN();
  const Pictures pictures(4, 10, 3, 1);
  const std::vector<std::uint32_t> indices = FirstIndices(4);
  const auto result = model->LossAndGradient({pictures.examples(), indices}, params.params(),
                                             gradients.gradients());
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(std::isnan(result->loss));
}

TEST(ModelTest, ASmallBatchAfterALargeOneIsAsGoodAsNew) {
  const ModelConfig config = SmallConfig({12, 9}, 30, 5);
  const Pictures pictures(40, 30, 5, 2);
  const auto backend = MakeBackend();
  const auto used = MakeModel(config, *backend, 40), fresh = MakeModel(config, *backend, 3);
  PartedValues params(used->variables(), 1);
  PartedValues a(used->variables(), 1), b(used->variables(), 1);
  FillWithFirstValues(config, params);
  const std::vector<std::uint32_t> all = FirstIndices(40), few = {7, 30, 2};
  ASSERT_TRUE(
      used->LossAndGradient({pictures.examples(), all}, params.params(), a.gradients()).ok());
  const auto x = used->LossAndGradient({pictures.examples(), few}, params.params(), a.gradients());
  const auto y = fresh->LossAndGradient({pictures.examples(), few}, params.params(), b.gradients());
  ASSERT_TRUE(x.ok() && y.ok());
  EXPECT_EQ(x->loss, y->loss);
  EXPECT_EQ(x->correct, y->correct);
  for (std::size_t v = 0; v < params.variables(); ++v) EXPECT_EQ(a.Flat(v), b.Flat(v));
}

TEST(ModelTest, EvaluationAddsUpWhateverTheBatchSize) {
  ModelConfig config = SmallConfig({12}, 30, 5);
  config.loss = LossReduction::kMean;
  const Pictures pictures(25, 30, 5, 2);
  const auto backend = MakeBackend();
  const auto one_batch = MakeModel(config, *backend, 25);
  PartedValues params(one_batch->variables(), 2), gradients(one_batch->variables(), 1);
  FillWithFirstValues(config, params);
  const std::vector<std::uint32_t> indices = {3,  4,  5,  6,  7,  8,  9,  10, 11, 12,
                                              13, 14, 15, 16, 17, 18, 19, 20, 21, 22};
  const auto want = one_batch->LossAndGradient({pictures.examples(), indices}, params.params(),
                                               gradients.gradients());
  ASSERT_TRUE(want.ok());
  for (const std::size_t max_batch : {1u, 7u, 20u, 25u}) {
    const auto model = MakeModel(config, *backend, max_batch);
    const auto got = model->Evaluate(pictures.examples(), 3, 20, params.params());
    ASSERT_TRUE(got.ok());
    EXPECT_NEAR(got->loss_sum, want->loss * 20, 1e-5) << max_batch;
    EXPECT_EQ(got->correct, want->correct) << max_batch;
  }
  for (const std::size_t max_batch : {3u, 25u}) {
    const auto model = MakeModel(config, *backend, max_batch);
    std::vector<std::uint16_t> predicted(20, 99);
    std::vector<float> probabilities(20 * 5);
    const auto got = model->Evaluate(pictures.examples(), 3, 20, params.params(), predicted);
    ASSERT_TRUE(got.ok());
    EXPECT_EQ(got->loss_sum,
              model->Evaluate(pictures.examples(), 3, 20, params.params())->loss_sum);
    std::size_t hits = 0;
    for (std::size_t i = 0; i < 20; ++i) {
      ASSERT_LT(predicted[i], 5);
      hits += predicted[i] == pictures.examples().labels[3 + i];
    }
    EXPECT_EQ(hits, got->correct);
    ASSERT_TRUE(
        one_batch->Predict({pictures.examples(), indices}, params.params(), probabilities).ok());
    for (std::size_t i = 0; i < 20; ++i) {
      const auto row = probabilities.begin() + static_cast<std::ptrdiff_t>(5 * i);
      EXPECT_EQ(std::max_element(row, row + 5) - row, predicted[i]);
    }
  }
  const auto none = one_batch->Evaluate(pictures.examples(), 25, 0, params.params());
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->loss_sum, 0);
}

TEST(ModelTest, LogitsThatSayNothingPredictNoClass) {
  const ModelConfig config = SmallConfig({}, 4, 3);
  const Pictures pictures(6, 4, 3, 2);
  const auto backend = MakeBackend();
  const auto model = MakeModel(config, *backend, 6);
  for (const float poison : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    PartedValues params(model->variables(), 1);
    FillWithFirstValues(config, params);
    params.at(1, 2) = poison;  // the bias of the last class
    std::vector<std::uint16_t> predicted(6);
    const auto got = model->Evaluate(pictures.examples(), 0, 6, params.params(), predicted);
    ASSERT_TRUE(got.ok());
    std::size_t hits = 0;
    for (std::size_t i = 0; i < 6; ++i) {
      if (poison < 0) {
        EXPECT_LT(predicted[i], 2) << "never the class whose logit is -infinity";
      } else {
        EXPECT_EQ(predicted[i], kNoClass);
      }
      hits += predicted[i] == pictures.examples().labels[i];
    }
    EXPECT_LE(hits, got->correct);
    if (poison < 0) {
      EXPECT_EQ(hits, got->correct);
    }
  }
}

// --- Whole runs ----------------------------------------------------------------------------------

// 50 steps of plain descent on the MNIST shape; returns all parameters and the losses.
std::vector<float> FiftySteps(const CpuBackendOptions& options, std::vector<double>* losses) {
  const ModelConfig config = SmallConfig({100}, 784, 10);
  const Pictures pictures(500, 784, 10, 11);
  const auto backend = MakeBackend(options);
  const auto model = MakeModel(config, *backend, 100);
  PartedValues params(model->variables(), 1), gradients(model->variables(), 1);
  FillWithFirstValues(config, params);
  Random random(1);
  for (int step = 0; step < 50; ++step) {
    std::vector<std::uint32_t> indices(100);
    for (auto& index : indices) index = static_cast<std::uint32_t>(random.Below(500));
    const auto result = model->LossAndGradient({pictures.examples(), indices}, params.params(),
                                               gradients.gradients());
    EXPECT_TRUE(result.ok());
    losses->push_back(result->loss);
    for (std::size_t v = 0; v < params.variables(); ++v) {
      const MutableRowPart w = params.gradients()[v][0], g = gradients.gradients()[v][0];
      for (std::size_t e = 0; e < model->variables()[v].elements(); ++e) {
        w.data[e] -= 1e-4f * g.data[e];
      }
    }
  }
  std::vector<float> all;
  for (std::size_t v = 0; v < params.variables(); ++v) {
    const std::vector<float> flat = params.Flat(v);
    all.insert(all.end(), flat.begin(), flat.end());
  }
  return all;
}

TEST(ModelRunTest, FiftyStepsRepeatBitForBitAndLearn) {
  std::vector<double> losses, again;
  const std::vector<float> a = FiftySteps({}, &losses), b = FiftySteps({}, &again);
  EXPECT_EQ(a, b);
  EXPECT_EQ(losses, again);
  double early = 0, late = 0;
  for (int i = 0; i < 10; ++i) {
    early += losses[static_cast<std::size_t>(i)];
    late += losses[static_cast<std::size_t>(40 + i)];
  }
  EXPECT_LT(late, early);
}

TEST(ModelRunTest, EveryInstructionSetTrainsTheSameBits) {
  std::vector<double> want_losses;
  CpuBackendOptions options;
  options.own_products = false;  // whose sums are in another order than OpenBLAS's
  options.isa = CpuIsa::kBaseline;
  const std::vector<float> want = FiftySteps(options, &want_losses);
  for (const CpuIsa isa : {CpuIsa::kAvx2, CpuIsa::kAvx512}) {
    if (isa > BestCpuIsa()) continue;
    options.isa = isa;
    std::vector<double> losses;
    EXPECT_EQ(FiftySteps(options, &losses), want) << CpuIsaName(isa);
    EXPECT_EQ(losses, want_losses) << CpuIsaName(isa);
  }
}

void ExpectNearlyTheSame(const CpuBackendOptions& one, const CpuBackendOptions& other) {
  std::vector<double> losses, others;
  FiftySteps(one, &losses);
  FiftySteps(other, &others);
  for (std::size_t i = 0; i < losses.size(); ++i) {
    EXPECT_NEAR(others[i], losses[i], 1e-3 * losses[i]);
  }
}

TEST(ModelRunTest, ProductsInPiecesTrainNearlyTheSame) {
  CpuBackendOptions whole, pieces;
  whole.split_products = false;
  pieces.split_products = true;
  ExpectNearlyTheSame(whole, pieces);
}

TEST(ModelRunTest, OwnProductsTrainNearlyTheSame) {
  CpuBackendOptions theirs, ours;
  theirs.own_products = false;
  ours.own_products = true;
  ExpectNearlyTheSame(theirs, ours);
}

// --- Mistakes ------------------------------------------------------------------------------------

TEST(ModelTest, SizesThatCannotWorkAreErrors) {
  const auto backend = MakeBackend();
  ModelConfig config = SmallConfig({4}, 10, 3);
  EXPECT_THAT(Model::Create(config, *backend, 0).status().message(), HasSubstr("batch size is 0"));
  EXPECT_EQ(Model::Create(config, *backend, std::size_t{1} << 25).status().code(),
            Code::kInvalidArgument);
  config.hidden = {kMaxWidth};
  config.inputs = kMaxWidth;
  EXPECT_EQ(Model::Create(config, *backend, std::size_t{1} << 24).status().code(),
            Code::kResourceExhausted);
  config.inputs = 0;
  EXPECT_EQ(Model::Create(config, *backend, 1).status().code(), Code::kInvalidArgument);
}

TEST(ModelDeathTest, PartsThatDoNotCoverTheirVariableStopTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // OpenBLAS has threads
  const ModelConfig config = SmallConfig({4}, 10, 3);
  const auto backend = MakeBackend();
  const auto model = MakeModel(config, *backend, 2);
  const Pictures pictures(2, 10, 3, 1);
  const std::vector<std::uint32_t> indices = FirstIndices(2), three = {0, 1, 0};
  PartedValues params(model->variables(), 2), gradients(model->variables(), 1);
  FillWithFirstValues(config, params);
  const Batch batch{pictures.examples(), indices};
  std::vector<std::vector<RowPart>> broken(params.params().begin(), params.params().end());
  broken[0].pop_back();
  EXPECT_DEATH((void)model->LossAndGradient(batch, broken, gradients.gradients()), "cover it");
  broken[0].push_back(params.params()[0][1]);
  broken[0][1].first_row += 1;
  EXPECT_DEATH((void)model->LossAndGradient(batch, broken, gradients.gradients()),
               "follow one another");
  EXPECT_DEATH((void)model->LossAndGradient({pictures.examples(), three}, params.params(),
                                            gradients.gradients()),
               "above the maximum");
}

}  // namespace
}  // namespace passel

#include "nn/model_config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace passel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ModelConfig Mnist(ModelKind kind, std::vector<std::size_t> hidden) {
  ModelConfig config = DefaultModelConfig(kind);
  config.inputs = 784;
  config.classes = 10;
  config.hidden = std::move(hidden);
  config.seed = 7;
  return config;
}

std::vector<std::string> Describe(const ModelConfig& config) {
  std::vector<std::string> lines;
  for (const VariableSpec& v : ModelVariables(config)) {
    lines.push_back(fmt::format("{} {}", v.name, fmt::join(v.shape, " ")));
  }
  return lines;
}

TEST(ModelConfigTest, AnMlpWithOneHiddenLayerHasTheReferenceVariables) {
  const ModelConfig config = Mnist(ModelKind::kMlp, {100});
  EXPECT_THAT(Describe(config),
              ElementsAre("hid_w 784 100", "hid_b 100", "sm_w 100 10", "sm_b 10"));
  std::size_t elements = 0;
  for (const VariableSpec& v : ModelVariables(config)) elements += v.elements();
  EXPECT_EQ(elements, 79510u);
}

TEST(ModelConfigTest, FurtherHiddenLayersAreNumberedFromTwo) {
  EXPECT_THAT(Describe(Mnist(ModelKind::kMlp, {256, 128, 64})),
              ElementsAre("hid_w 784 256", "hid_b 256", "hid2_w 256 128", "hid2_b 128",
                          "hid3_w 128 64", "hid3_b 64", "sm_w 64 10", "sm_b 10"));
}

TEST(ModelConfigTest, SoftmaxRegressionHasTwoVariables) {
  EXPECT_THAT(Describe(Mnist(ModelKind::kSoftmax, {})), ElementsAre("w 784 10", "b 10"));
}

TEST(ModelConfigTest, DefaultsAreThoseOfTheReferencePrograms) {
  const ModelConfig mlp = DefaultModelConfig(ModelKind::kMlp);
  EXPECT_THAT(mlp.hidden, ElementsAre(100u));
  EXPECT_EQ(mlp.loss, LossReduction::kSum);
  EXPECT_TRUE(mlp.clip);
  const ModelConfig softmax = DefaultModelConfig(ModelKind::kSoftmax);
  EXPECT_TRUE(softmax.hidden.empty());
  EXPECT_EQ(softmax.loss, LossReduction::kMean);
  EXPECT_FALSE(softmax.clip);
}

TEST(ModelConfigTest, SettingsOutOfRangeAreNamedWithTheirValue) {
  EXPECT_TRUE(Mnist(ModelKind::kMlp, {100}).Validate().ok());
  EXPECT_TRUE(Mnist(ModelKind::kSoftmax, {}).Validate().ok());
  const auto message = [](auto change) {
    ModelConfig config = Mnist(ModelKind::kMlp, {100});
    change(config);
    const Status status = config.Validate();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    return status.message();
  };
  EXPECT_THAT(message([](ModelConfig& c) { c.inputs = 0; }), HasSubstr("inputs is 0"));
  EXPECT_THAT(message([](ModelConfig& c) { c.classes = 1; }), HasSubstr("classes is 1"));
  EXPECT_THAT(message([](ModelConfig& c) { c.classes = 257; }), HasSubstr("from 2 to 256"));
  EXPECT_THAT(message([](ModelConfig& c) { c.hidden.clear(); }), HasSubstr("layers"));
  EXPECT_THAT(message([](ModelConfig& c) { c.hidden = {5, 0}; }), HasSubstr("width"));
  EXPECT_THAT(message([](ModelConfig& c) { c.kind = ModelKind::kSoftmax; }),
              HasSubstr("--hidden_units"));
}

TEST(ModelConfigTest, HiddenUnitsAreAListOfWidths) {
  EXPECT_THAT(*ParseHiddenUnits("100"), ElementsAre(100u));
  EXPECT_THAT(*ParseHiddenUnits("256,128,10"), ElementsAre(256u, 128u, 10u));
  for (const char* bad : {"", ",", "100,", ",100", "1 0", "100, 50", "-5", "0", "1e3", "abc",
                          "16777217", "99999999999999999999999", "100;50", "+1"}) {
    const auto widths = ParseHiddenUnits(bad);
    ASSERT_FALSE(widths.ok()) << "'" << bad << "'";
    EXPECT_THAT(widths.status().message(), HasSubstr("--hidden_units"));
  }
}

TEST(ModelConfigTest, ModelAndLossAreParsedByName) {
  EXPECT_EQ(*ParseModelKind("mlp"), ModelKind::kMlp);
  EXPECT_EQ(*ParseModelKind("softmax"), ModelKind::kSoftmax);
  EXPECT_THAT(ParseModelKind("cnn").status().message(), HasSubstr("'cnn': use mlp or softmax"));
  EXPECT_EQ(*ParseLossReduction("sum"), LossReduction::kSum);
  EXPECT_EQ(*ParseLossReduction("mean"), LossReduction::kMean);
  EXPECT_FALSE(ParseLossReduction("Mean").ok());
}

std::vector<float> FirstValues(const ModelConfig& config, std::size_t variable) {
  std::vector<float> values(ModelVariables(config)[variable].elements());
  InitializeVariable(config, variable, 0, values);
  return values;
}

struct Moments {
  double mean = 0, stddev = 0, largest = 0;
};

Moments MomentsOf(const std::vector<float>& values) {
  Moments m;
  for (const float v : values) m.mean += static_cast<double>(v);
  m.mean /= static_cast<double>(values.size());
  for (const float v : values) {
    m.stddev += (static_cast<double>(v) - m.mean) * (static_cast<double>(v) - m.mean);
    m.largest = std::max(m.largest, std::abs(static_cast<double>(v)));
  }
  m.stddev = std::sqrt(m.stddev / static_cast<double>(values.size()));
  return m;
}

TEST(InitializeVariableTest, MlpWeightsAreTruncatedNormalWithOneOverRootFanIn) {
  const ModelConfig config = Mnist(ModelKind::kMlp, {100, 900});
  const double sigmas[] = {1.0 / 28, 0, 1.0 / 10, 0, 1.0 / 30};
  for (const std::size_t variable : {0u, 2u, 4u}) {
    const std::vector<float> values = FirstValues(config, variable);
    const double sigma = sigmas[variable], n = static_cast<double>(values.size());
    const Moments m = MomentsOf(values);
    // Standard deviation of a normal cut at 2 sigma: sqrt(1 - 4 pdf(2) / (2 cdf(2) - 1)) = 0.8796.
    const double cut = 0.8796 * sigma;
    EXPECT_NEAR(m.mean, 0, 5 * cut / std::sqrt(n)) << variable;
    EXPECT_NEAR(m.stddev, cut, 5 * cut / std::sqrt(2 * n)) << variable;
    EXPECT_LE(m.largest, 2 * sigma * (1 + 1e-6)) << variable;
    EXPECT_GE(m.largest, 1.9 * sigma) << "not cut too early, variable " << variable;
  }
}

TEST(InitializeVariableTest, MlpBiasesAreZero) {
  for (const std::size_t variable : {1u, 3u}) {
    for (const float v : FirstValues(Mnist(ModelKind::kMlp, {100}), variable)) EXPECT_EQ(v, 0.f);
  }
}

TEST(InitializeVariableTest, SoftmaxRegressionIsStandardNormalBiasesToo) {
  ModelConfig config = Mnist(ModelKind::kSoftmax, {});
  const Moments w = MomentsOf(FirstValues(config, 0));
  EXPECT_NEAR(w.mean, 0, 5 / std::sqrt(7840.0));
  EXPECT_NEAR(w.stddev, 1, 5 / std::sqrt(2 * 7840.0));
  EXPECT_GT(w.largest, 2.5) << "a normal that nobody cut";
  config.classes = 256;
  const Moments b = MomentsOf(FirstValues(config, 1));
  EXPECT_NEAR(b.mean, 0, 5 / 16.0);
  EXPECT_NEAR(b.stddev, 1, 5 / std::sqrt(512.0));
}

TEST(InitializeVariableTest, PartsGetTheNumbersOfTheWhole) {
  for (const ModelConfig& config :
       {Mnist(ModelKind::kMlp, {100}), Mnist(ModelKind::kSoftmax, {})}) {
    const std::vector<VariableSpec> specs = ModelVariables(config);
    for (std::size_t variable = 0; variable < specs.size(); ++variable) {
      const std::vector<float> whole = FirstValues(config, variable);
      const std::size_t rows = specs[variable].rows(), cols = specs[variable].cols();
      std::vector<float> joined;
      for (std::size_t first = 0; first < rows; first += 7) {
        std::vector<float> part(std::min<std::size_t>(7, rows - first) * cols);
        InitializeVariable(config, variable, first, part);
        joined.insert(joined.end(), part.begin(), part.end());
      }
      EXPECT_EQ(joined, whole) << specs[variable].name;
    }
  }
}

TEST(InitializeVariableTest, SeedVariableAndRowAllMatter) {
  ModelConfig config = Mnist(ModelKind::kMlp, {784, 784});
  const std::vector<float> first = FirstValues(config, 0);
  EXPECT_EQ(FirstValues(config, 0), first);
  EXPECT_NE(FirstValues(config, 2), first) << "the same shape, another variable";
  EXPECT_FALSE(std::equal(first.begin(), first.begin() + 784, first.begin() + 784));
  config.seed = 8;
  EXPECT_NE(FirstValues(config, 0), first);
}

TEST(InitializeVariableDeathTest, RowsThatDoNotExistStopTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // OpenBLAS has threads
  const ModelConfig config = Mnist(ModelKind::kMlp, {100});
  std::vector<float> out(200);
  EXPECT_DEATH(InitializeVariable(config, 0, 783, out), "whole rows of the variable");
  EXPECT_DEATH(InitializeVariable(config, 4, 0, out), "no such variable");
  out.resize(150);
  EXPECT_DEATH(InitializeVariable(config, 0, 0, out), "whole rows of the variable");
}

}  // namespace
}  // namespace passel

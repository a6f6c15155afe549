#include "train/saved_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "io/checked_tensors.h"
#include "support/temp_dir.h"
#include "train/model_words.h"

namespace passel {
namespace {

using ::testing::HasSubstr;

class SavedModelTest : public ::testing::Test {
 protected:
  // A model of these shapes with recognisable values.
  static SavedModel Make(const ModelConfig& config) {
    SavedModel model;
    model.config = config;
    for (const VariableSpec& spec : ModelVariables(config)) {
      std::vector<float>& values = model.values.emplace_back(spec.elements());
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = std::sin(static_cast<float>(i + 100 * model.values.size()));
      }
    }
    return model;
  }
  // Tensors by name and shape, all zero.
  Status WriteTensors(const std::vector<std::pair<std::string, std::vector<std::int64_t>>>& shapes,
                      DType dtype = DType::kF32, const SafetensorsMetadata& metadata = {}) {
    std::vector<std::vector<std::byte>> data;
    std::vector<TensorView> tensors;
    for (const auto& [name, shape] : shapes) {
      std::size_t elements = dtype == DType::kF32 ? 4 : 8;
      for (const std::int64_t d : shape) elements *= static_cast<std::size_t>(d);
      data.emplace_back(elements);
    }
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      tensors.push_back({shapes[i].first, dtype, shapes[i].second, data[i]});
    }
    return WriteSafetensors(path_, tensors, metadata);
  }
  std::string LoadError() {
    const Result<SavedModel> model = LoadModel(path_);
    EXPECT_EQ(model.status().code(), Code::kInvalidArgument);
    return model.status().message();
  }

  const test::TempDir dir_;
  const std::string path_ = dir_.File("m.safetensors");
};

ModelConfig Config(ModelKind kind, std::vector<std::size_t> hidden, LossReduction loss) {
  ModelConfig config = DefaultModelConfig(kind);
  config.inputs = 12;
  config.classes = 4;
  config.hidden = std::move(hidden);
  config.loss = loss;
  return config;
}

TEST_F(SavedModelTest, RoundTripKeepsEveryBitAndTheShape) {
  for (const ModelConfig& config : {Config(ModelKind::kMlp, {5}, LossReduction::kMean),
                                    Config(ModelKind::kMlp, {6, 5, 7}, LossReduction::kSum),
                                    Config(ModelKind::kSoftmax, {}, LossReduction::kMean)}) {
    const SavedModel made = Make(config);
    ASSERT_TRUE(SaveModel(path_, config, made.Parts(), {{"global_step", "17"}}).ok());
    const Result<SavedModel> read = LoadModel(path_);
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(read->values, made.values);
    EXPECT_EQ(read->config.kind, config.kind);
    EXPECT_EQ(read->config.inputs, config.inputs);
    EXPECT_EQ(read->config.classes, config.classes);
    EXPECT_EQ(read->config.hidden, config.hidden);
    EXPECT_EQ(read->config.loss, config.loss);
    EXPECT_EQ(read->metadata.at("global_step"), "17");
    EXPECT_EQ(read->metadata.at("format"), "passel-2");
    EXPECT_TRUE(read->IsOurs());
  }
}

TEST_F(SavedModelTest, VariableInPartsIsOneTensor) {
  const ModelConfig config = Config(ModelKind::kMlp, {5}, LossReduction::kMean);
  const SavedModel made = Make(config);
  std::vector<std::vector<RowPart>> parts = made.Parts();
  const float* w = made.values[0].data();
  parts[0] = {{w, 0, 1}, {w + 5, 1, 7}, {w + 40, 8, 4}};
  ASSERT_TRUE(SaveModel(path_, config, parts, {}).ok());
  EXPECT_EQ(LoadModel(path_)->values, made.values);
}

TEST_F(SavedModelTest, FileThatCannotBeWrittenLeavesTheOldOne) {
  const ModelConfig config = Config(ModelKind::kSoftmax, {}, LossReduction::kMean);
  const SavedModel made = Make(config);
  EXPECT_FALSE(SaveModel("/no/such/folder/m", config, made.Parts(), {}).ok());
  EXPECT_FALSE(LoadModel("/no/such/folder/m").ok());
}

TEST_F(SavedModelTest, MissingFileIsNotFound) {
  EXPECT_EQ(LoadModel(path_).status().code(), Code::kNotFound);
}

TEST_F(SavedModelTest, ForeignFileOfOneOfOurShapesIsRead) {
  ASSERT_TRUE(
      WriteTensors({{"hid_w", {9, 6}}, {"hid_b", {6}}, {"sm_w", {6, 2}}, {"sm_b", {2}}}).ok());
  const Result<SavedModel> read = LoadModel(path_);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_FALSE(read->IsOurs());
  EXPECT_EQ(read->config.inputs, 9u);
  EXPECT_EQ(read->config.hidden, std::vector<std::size_t>{6});
}

TEST_F(SavedModelTest, TheWordsOfAFileSayWhichModelItHas) {
  const ModelConfig config = [] {
    ModelConfig c = Config(ModelKind::kMlp, {6, 5}, LossReduction::kMean);
    c.clip = false;
    c.seed = 18'446'744'073'709'551'615u;
    return c;
  }();
  std::map<std::string, std::string> words;
  AddModelWords(config, &words);
  EXPECT_EQ(words, (std::map<std::string, std::string>{{"model", "mlp"},
                                                       {"inputs", "12"},
                                                       {"hidden", "6,5"},
                                                       {"classes", "4"},
                                                       {"loss", "mean"},
                                                       {"clip", "false"},
                                                       {"seed", "18446744073709551615"},
                                                       {"normalization", "x/255"}}));
  const Result<ModelConfig> read = ModelFromWords(words);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_FALSE(read->clip);
  EXPECT_EQ(read->seed, config.seed);
  EXPECT_EQ(read->hidden, config.hidden);
  for (const auto& [word, wrong] : std::map<std::string, std::string>{{"model", "lenet"},
                                                                      {"inputs", "12 "},
                                                                      {"hidden", "6,"},
                                                                      {"classes", "-4"},
                                                                      {"loss", "max"},
                                                                      {"clip", "yes"},
                                                                      {"seed", "1e3"}}) {
    auto changed = words;
    changed[word] = wrong;
    EXPECT_THAT(ModelFromWords(changed).status().message(),
                HasSubstr("the metadata say \"" + wrong + "\" for \"" + word + "\""));
    changed.erase(word);
    EXPECT_THAT(ModelFromWords(changed).status().message(),
                HasSubstr("the metadata have no \"" + word + "\""));
  }
  words["normalization"] = "x/127.5-1";
  EXPECT_THAT(ModelFromWords(words).status().message(), HasSubstr("\"x/127.5-1\""));
  words.erase("normalization");  // as in an older file
  EXPECT_TRUE(ModelFromWords(words).ok());
}

TEST_F(SavedModelTest, TheWordsOfAProgramsOwnModelAreItsVariables) {
  ModelConfig config;
  config.kind = ModelKind::kOwn;
  config.variables = {{"w", {784, 10, 2}}, {"b", {}}};
  std::map<std::string, std::string> words;
  AddModelWords(config, &words);
  const std::string variables = R"({"w":[784,10,2],"b":[]})";
  EXPECT_EQ(words,
            (std::map<std::string, std::string>{{"model", "own"}, {"variables", variables}}));
  const Result<ModelConfig> read = ModelFromWords(words);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  ASSERT_EQ(read->variables.size(), 2u);
  EXPECT_EQ(read->variables[0].name, "w");
  EXPECT_EQ(read->variables[0].shape, config.variables[0].shape);
  EXPECT_EQ(read->variables[0].elements(), 784u * 20);
  EXPECT_EQ(read->variables[1].elements(), 1u);
  for (const std::string wrong : {"[]", "{}", R"({"w":3})", R"({"w":[0]})", R"({"w":[-1]})",
                                  R"({"w":["3"]})", R"({"w":[3],"w":[3]})", "w"}) {
    words["variables"] = wrong;
    EXPECT_EQ(ModelFromWords(words).status().code(), Code::kDataLoss) << wrong;
  }
  words.erase("variables");
  EXPECT_THAT(ModelFromWords(words).status().message(),
              HasSubstr("the metadata have no \"variables\""));
}

// Names and shapes of softmax regression, words of another model.
TEST_F(SavedModelTest, AFileOfOursIsNotGuessedAt) {
  const std::vector<float> zeros(54);
  const TensorView w = {"w", DType::kF32, {9, 6}, std::as_bytes(std::span(zeros))};
  SafetensorsMetadata words;
  AddModelWords(Config(ModelKind::kMlp, {5}, LossReduction::kMean), &words);
  words["format"] = kSavedModelFormat;
  ASSERT_TRUE(WriteCheckedTensors(path_, {&w, 1}, words).ok());
  EXPECT_THAT(LoadError(), HasSubstr("has no tensor \"hid_w\""));
  ASSERT_TRUE(WriteSafetensors(path_, {&w, 1}, words).ok());
  EXPECT_EQ(LoadModel(path_).status().code(), Code::kDataLoss);  // without checksums
}

TEST_F(SavedModelTest, AFileOfAFormerVersionIsRead) {
  ASSERT_TRUE(WriteTensors({{"w", {9, 6}}, {"b", {6}}}, DType::kF32,
                           {{"format", "passel-model-1"}, {"model", "softmax"}, {"loss", "sum"}})
                  .ok());
  const Result<SavedModel> read = LoadModel(path_);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_TRUE(read->IsOurs());
  EXPECT_EQ(read->config.loss, LossReduction::kSum);
  EXPECT_EQ(read->config.inputs, 9u);
}

TEST_F(SavedModelTest, ForeignMetadataMayMeanWhatItLikes) {
  const SafetensorsMetadata metadata = {
      {"format", "pt"}, {"loss", "sparse_categorical_crossentropy"}, {"model", "lenet"}};
  ASSERT_TRUE(WriteTensors({{"w", {9, 6}}, {"b", {6}}}, DType::kF32, metadata).ok());
  const Result<SavedModel> read = LoadModel(path_);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->config.loss, LossReduction::kMean);
  EXPECT_EQ(read->metadata.at("loss"), "sparse_categorical_crossentropy");
}

TEST_F(SavedModelTest, ForeignTensorsAreNamed) {
  ASSERT_TRUE(WriteTensors({{"layer1.weight", {9, 6}}}).ok());
  EXPECT_THAT(LoadError(), HasSubstr("hid_w"));
  ASSERT_TRUE(WriteTensors({{"hid_w", {9, 6}}, {"hid_b", {6}}, {"sm_w", {6, 2}}}).ok());
  EXPECT_THAT(LoadError(), HasSubstr("sm_b"));
  ASSERT_TRUE(WriteTensors({{"hid_w", {9}}, {"hid_b", {6}}, {"sm_w", {6, 2}}, {"sm_b", {2}}}).ok());
  EXPECT_THAT(LoadError(), HasSubstr("rank 1"));
  ASSERT_TRUE(WriteTensors({{"w", {9, 6}}, {"b", {6}}}, DType::kF64).ok());
  EXPECT_THAT(LoadError(), HasSubstr("F64"));
}

TEST_F(SavedModelTest, ShapesThatDoNotFitAreNamed) {
  ASSERT_TRUE(
      WriteTensors({{"hid_w", {9, 6}}, {"hid_b", {5}}, {"sm_w", {6, 2}}, {"sm_b", {2}}}).ok());
  EXPECT_THAT(LoadError(), HasSubstr("hid_b"));
  ASSERT_TRUE(
      WriteTensors({{"hid_w", {9, 6}}, {"hid_b", {6}}, {"sm_w", {7, 2}}, {"sm_b", {2}}}).ok());
  EXPECT_THAT(LoadError(), HasSubstr("sm_w"));
  ASSERT_TRUE(WriteTensors({{"w", {9, 6}}, {"b", {7}}}).ok());
  EXPECT_THAT(LoadError(), HasSubstr("\"b\""));
  ASSERT_TRUE(WriteTensors({{"w", {0, 6}}, {"b", {6}}}).ok());
  LoadError();
}

TEST_F(SavedModelTest, CutOffFileIsDataLoss) {
  const ModelConfig config = Config(ModelKind::kSoftmax, {}, LossReduction::kMean);
  ASSERT_TRUE(SaveModel(path_, config, Make(config).Parts(), {}).ok());
  const auto size = std::filesystem::file_size(path_);
  for (const auto cut : {size - 1, size / 2, std::uintmax_t{8}, std::uintmax_t{0}}) {
    std::filesystem::resize_file(path_, cut);
    EXPECT_FALSE(LoadModel(path_).ok()) << cut;
  }
}

}  // namespace
}  // namespace passel

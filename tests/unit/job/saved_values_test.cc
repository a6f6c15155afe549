// Whoever saves the values of a job, the chief by hand or the supervisor, says the same of them.

#include "job/saved_values.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "job/checkpoint_part.h"
#include "job/evaluation_data.h"
#include "job/parameters.h"
#include "support/temp_dir.h"
#include "train/checkpoint_set.h"
#include "train/model_plan.h"
#include "train/saved_model.h"

namespace passel::job::testing {
namespace {

Result<JobConfig> ConfigOfJob() {
  JobSettings flags;
  flags.model = "softmax";
  flags.optimizer = "adagrad";
  flags.mode = "barrier";
  flags.validation_size = 100;
  flags.train_examples = 1000;
  PASSEL_ASSIGN_OR_RETURN(JobConfig config, CheckJobSettings(flags));
  config.model.inputs = 4;
  config.model.classes = 3;
  return config;
}

TEST(SavedValuesTest, SayHowTheyWereTrained) {
  const Result<JobConfig> config = ConfigOfJob();
  ASSERT_TRUE(config.ok()) << config.status().message();
  const std::vector<float> w(12, 0.5F), b(3, 0.25F);
  const std::vector<std::vector<RowPart>> parts = {{{w.data(), 0, 4}}, {{b.data(), 0, 3}}};
  const std::string path = ::testing::TempDir() + "/saved_values." + std::to_string(::getpid());

  ASSERT_TRUE(SaveValues(path, *config, parts, 123).ok());
  Result<SavedModel> saved = LoadModel(path);
  ASSERT_TRUE(saved.ok()) << saved.status().message();
  EXPECT_EQ(saved->metadata["global_step"], "123");
  EXPECT_EQ(saved->metadata["mode"], "barrier");
  EXPECT_EQ(saved->metadata["optimizer"], "adagrad");
  EXPECT_EQ(SplitOf(saved->metadata), (TrainedSplit{100, 1000}));
  EXPECT_FALSE(saved->metadata.contains("test_accuracy"));

  ASSERT_TRUE(SaveValues(path, *config, parts, 124, 0.91).ok());
  saved = LoadModel(path);
  ASSERT_TRUE(saved.ok()) << saved.status().message();
  EXPECT_EQ(saved->metadata["test_accuracy"], "0.9100");
  ::unlink(path.c_str());
}

TEST(SavedValuesTest, ACheckpointSaysTheSameAndIsEvaluatedLikeAFile) {
  const Result<JobConfig> config = ConfigOfJob();
  ASSERT_TRUE(config.ok()) << config.status().message();
  const test::TempDir dir;
  const std::vector<float> w(12, 0.5F), b(3, 0.25F);
  StorePlan plan;
  plan.optimizer = config->optimizer;
  plan.variables = *PlaceModel(config->model, 1, {});
  std::vector<std::vector<float>> contents(2,
                                           std::vector<float>(plan.variables.ShardFloats(0), 0.5F));
  CopySource source({contents[0].data(), contents[1].data()}, contents[0].size(),
                    plan.block_floats);
  JobProgress progress;
  progress.workers.resize(2);
  progress.shards.resize(1);
  CheckpointMoment moment;
  moment.mode = ModeSetting(Mode::kSsp, 7);
  moment.workers = 2;
  moment.exact = true;
  moment.settings["batch_size"] = "100";
  const PartOrder order{dir.path(), 123, "save", 0, 1, WordsOfCheckpoint(*config, moment)};
  const auto written = WritePart(order, plan, progress, source);
  ASSERT_TRUE(written.ok()) << written.status().message();
  const auto set = CheckpointSet::Open(dir.path(), "model.ckpt-123");
  ASSERT_TRUE(set.ok()) << set.status().message();
  EXPECT_EQ(set->words().mode, "ssp=7");
  EXPECT_TRUE(set->words().exact);
  EXPECT_EQ(*set->words().settings.Find("batch_size")->text(), "100");
  EXPECT_EQ(set->optimizer().name, "adagrad");

  ParameterSettings settings;
  settings.params = dir.File("model.ckpt-123");
  const Result<Parameters> loaded = Parameters::Load(settings);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(loaded->name(), settings.params);
  EXPECT_EQ(loaded->config().classes, 3u);
  EXPECT_EQ(loaded->parts()[0][0].data[11], 0.5F);
  EXPECT_EQ(loaded->trained_on().split, (TrainedSplit{100, 1000}));
  EXPECT_EQ(*loaded->About().Find("metadata")->Find("global_step")->text(), "123");
}

}  // namespace
}  // namespace passel::job::testing

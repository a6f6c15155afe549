// Whoever saves the values of a job, the chief by hand or the supervisor, says the same of them.

#include "job/saved_values.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "job/evaluation_data.h"
#include "train/model_plan.h"
#include "train/saved_model.h"

namespace passel::job::testing {
namespace {

TEST(SavedValuesTest, SayHowTheyWereTrained) {
  JobSettings flags;
  flags.model = "softmax";
  flags.optimizer = "adagrad";
  flags.mode = "barrier";
  flags.validation_size = 100;
  flags.train_examples = 1000;
  Result<JobConfig> config = CheckJobSettings(flags);
  ASSERT_TRUE(config.ok()) << config.status().message();
  config->model.inputs = 4;
  config->model.classes = 3;
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

}  // namespace
}  // namespace passel::job::testing

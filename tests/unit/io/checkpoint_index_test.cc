#include "io/checkpoint_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace passel {
namespace {

using ::testing::HasSubstr;

CheckpointIndex TwoCheckpoints() {
  CheckpointIndex index;
  index.kept = {{"model.ckpt-4000", 1766000000.5}, {"model.ckpt-5000", 1766000600.25}};
  index.last_preserved = 1766000000;
  return index;
}

TEST(CheckpointIndex, HasTheWordsOfTensorFlow) {
  EXPECT_EQ(ToText(TwoCheckpoints()),
            "model_checkpoint_path: \"model.ckpt-5000\"\n"
            "all_model_checkpoint_paths: \"model.ckpt-4000\"\n"
            "all_model_checkpoint_paths: \"model.ckpt-5000\"\n"
            "all_model_checkpoint_timestamps: 1766000000.5\n"
            "all_model_checkpoint_timestamps: 1766000600.25\n"
            "last_preserved_timestamp: 1766000000\n");
}

TEST(CheckpointIndex, IsReadAsItWasWritten) {
  for (const CheckpointIndex& index : {TwoCheckpoints(), CheckpointIndex()}) {
    const auto read = ParseCheckpointIndex(ToText(index));
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    EXPECT_EQ(*read, index);
  }
}

TEST(CheckpointIndex, AScoreIsACommentForOthers) {
  CheckpointIndex best = TwoCheckpoints();
  best.score = ValidationScore{0.97314159, 4500};
  const std::string text = ToText(best);
  EXPECT_TRUE(text.ends_with("\n# validation accuracy 0.97314159 at global step 4500\n")) << text;
  EXPECT_EQ(*ParseCheckpointIndex(text), best);
  for (const char* const other : {"1.5 at global step 4500", "nan at global step 1",
                                  "0.5 at global step -1", "0.5 at global step 1 or so", ""}) {
    const auto read =
        ParseCheckpointIndex("model_checkpoint_path: \"model.ckpt-1\"\n# validation accuracy " +
                             std::string(other) + "\n");
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    EXPECT_FALSE(read->score.has_value()) << other;
  }
}

TEST(CheckpointIndex, OneThatWasEditedByHandIsUnderstood) {
  const auto read = ParseCheckpointIndex(
      "# go back\n"
      "\n"
      "model_checkpoint_path :  \"model.ckpt-0300\" \r\n"
      "all_model_checkpoint_paths: \"model.ckpt-0300\"\n"
      "all_model_checkpoint_paths: \"model.ckpt-400\"\n");
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  ASSERT_EQ(read->kept.size(), 2u);
  EXPECT_EQ(read->kept[1].name, "model.ckpt-0300");  // counts as the newest
  EXPECT_EQ(StepOfCheckpoint("model.ckpt-0300"), 300);
  const auto alone = ParseCheckpointIndex("model_checkpoint_path: \"model.ckpt-7\"\n");
  ASSERT_TRUE(alone.ok());
  ASSERT_NE(alone->Find("model.ckpt-7"), nullptr);
}

TEST(CheckpointIndex, AnythingElseIsRefusedWithItsLine) {
  const struct {
    const char* text;
    const char* why;
  } cases[] = {
      {"model_checkpoint_path: \"model.ckpt-1\"", "line 1 of the index is cut off"},
      {"\n\nmodel: 1\n", "line 3 of the index is not understood: \"model: 1\""},
      {"model_checkpoint_path: model.ckpt-1\n", "names no checkpoint, but \"model.ckpt-1\""},
      {"model_checkpoint_path: \"../model.ckpt-1\"\n", "names no checkpoint"},
      {"model_checkpoint_path: \"/tmp/model.ckpt-1\"\n", "names no checkpoint"},
      {"model_checkpoint_path: \"model.ckpt-\"\n", "names no checkpoint"},
      {"model_checkpoint_path: \"model.ckpt--1\"\n", "names no checkpoint"},
      {"model_checkpoint_path: \"model.ckpt-1x\"\n", "names no checkpoint"},
      {"model_checkpoint_path: \"model.ckpt-99999999999999999999\"\n", "names no checkpoint"},
      {"model_checkpoint_path: \"model.ckpt-9999999999999999\"\n", "names no checkpoint"},
      {"model_checkpoint_path:\n", "names no checkpoint"},
      {"model_checkpoint_path\n", "names no checkpoint"},
      {"model_checkpoint_path: \"\n", "names no checkpoint"},
      {"model_checkpoint_path: \"model.ckpt-1\"\nmodel_checkpoint_path: \"model.ckpt-1\"\n",
       "line 2 of the index names a second newest checkpoint"},
      {"all_model_checkpoint_paths: \"model.ckpt-1\"\nall_model_checkpoint_paths: "
       "\"model.ckpt-1\"\n",
       "names a checkpoint twice: model.ckpt-1"},
      {"all_model_checkpoint_timestamps: 1\n", "has more times than checkpoints, 1 for 0"},
      {"", "the index is empty: restore it"},
      {"\n# nothing\n", "the index is empty"},
      {"last_preserved_timestamp: nan\n", "has no time, but \"nan\""},
      {"last_preserved_timestamp: -1\n", "has no time"},
      {"last_preserved_timestamp: 1 2\n", "has no time"},
      {"last_preserved_timestamp: 1e999\n", "has no time"},
  };
  for (const auto& [text, why] : cases) {
    const auto read = ParseCheckpointIndex(text);
    EXPECT_EQ(read.status().code(), Code::kDataLoss) << text;
    EXPECT_THAT(read.status().message(), HasSubstr(why)) << text;
  }
  std::string many;
  for (std::size_t i = 0; i <= kMaxKeptCheckpoints; ++i) {
    many +=
        "all_model_checkpoint_paths: \"" + CheckpointName(static_cast<std::int64_t>(i)) + "\"\n";
  }
  EXPECT_THAT(ParseCheckpointIndex(many).status().message(),
              HasSubstr("is checkpoint 1001, and 1000 are the most"));
}

}  // namespace
}  // namespace passel

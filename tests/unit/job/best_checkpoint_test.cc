#include "job/best_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "support/temp_dir.h"
#include "unit/job/checkpoint_sample.h"

namespace passel::job::testing {
namespace {

class BestCheckpointTest : public ::testing::Test {
 protected:
  BestCheckpointTest() : tasks_(new TaskSlot[2]()) {
    lead_.state = state_.get();
    lead_.tasks = tasks_.get();
    lead_.num_workers = 2;
    Restart();
  }

  // Another job in the folder.
  void Restart() {
    marker_.reset();
    folder_.reset();
    auto folder = CheckpointFolder::Own(dir_.path(), {.keep = 2}, 1000);
    ASSERT_TRUE(folder.ok()) << folder.status().ToString();
    folder_.emplace(std::move(*folder));
    auto marker = BestCheckpointMarker::Create(*folder_);
    ASSERT_TRUE(marker.ok()) << marker.status().ToString();
    marker_.emplace(std::move(*marker));
    for (int worker = 0; worker < 2; ++worker) Score(worker, 0, 0);
  }
  void Score(int worker, double accuracy, std::int64_t step) {
    tasks_[worker].counters.validation.accuracy = accuracy;
    tasks_[worker].counters.validation.step = step;
  }
  void Save(std::int64_t step) {
    SampleJob job(SampleModel(), Optimizer("sgd"), 1, random_);
    job.progress.global_step = step;
    job.WriteAll(dir_.path());
    ASSERT_TRUE(folder_->Commit(step, 1, 2000).ok());
  }
  // Its step, after a look; -1: there is none.
  std::int64_t Best() {
    marker_->Look(lead_, *folder_);
    const auto best = BestCheckpoint(dir_.path());
    EXPECT_TRUE(best.ok()) << best.status().ToString();
    return *best ? *StepOfCheckpoint((*best)->name) : -1;
  }

  std::mt19937 random_{3};
  const test::TempDir dir_;
  const std::unique_ptr<TaskSlot[]> tasks_;
  const std::unique_ptr<ShardState> state_ = std::make_unique<ShardState>();
  ShardMemory lead_{};
  std::optional<CheckpointFolder> folder_;
  std::optional<BestCheckpointMarker> marker_;
};

TEST_F(BestCheckpointTest, ItIsTheFirstAtOrAfterTheBestScore) {
  Save(10);
  EXPECT_EQ(Best(), -1) << "nobody has evaluated";
  Score(0, 0.8, 12);
  EXPECT_EQ(Best(), -1) << "nothing is saved of that step yet";
  Save(20);
  EXPECT_EQ(Best(), 20);
  Save(30);
  Score(1, 0.8, 25);
  EXPECT_EQ(Best(), 20) << "of equals the first stays";
  Score(1, 0.9, 20);
  EXPECT_EQ(Best(), 20) << "it was there before its score";
  EXPECT_EQ((*BestCheckpoint(dir_.path()))->score, (ValidationScore{0.9, 20}));
  Save(40);
  Save(50);
  Save(60);  // two are kept, and the best
  EXPECT_TRUE(PartsOf(dir_.path(), "model.ckpt-20").ok());
  EXPECT_FALSE(PartsOf(dir_.path(), "model.ckpt-30").ok());
  Score(0, 0.95, 45);
  EXPECT_EQ(Best(), 50);
  EXPECT_FALSE(PartsOf(dir_.path(), "model.ckpt-20").ok());
}

TEST_F(BestCheckpointTest, AnEvaluatorAndAWorkerMayScoreTheSameSteps) {
  Save(10);
  Score(0, 0.8, 10);
  KeepIfBest(state_->evaluated, 0.85, 10);
  EXPECT_EQ(Best(), 10);
  EXPECT_EQ((*BestCheckpoint(dir_.path()))->score, (ValidationScore{0.85, 10}));
  Save(20);
  KeepIfBest(state_->evaluated, 0.9, 15);
  EXPECT_EQ(Best(), 20);
  KeepIfBest(state_->evaluated, 0.7, 20);  // it keeps the better one
  Save(30);
  Score(1, 0.88, 30);
  EXPECT_EQ(Best(), 20);
}

TEST_F(BestCheckpointTest, AScoreThatIsBeingWrittenIsNone) {
  tasks_[0].counters.validation.accuracy = 0.9;
  EXPECT_FALSE(BestScoreOf(tasks_[0].counters.validation).has_value());
}

TEST_F(BestCheckpointTest, TheNextJobHasToDoBetter) {
  Save(10);
  Score(0, 0.8, 5);
  EXPECT_EQ(Best(), 10);
  Restart();
  Score(0, 0.7, 15);
  Save(20);
  EXPECT_EQ(Best(), 10);
  Score(0, 0.85, 7);  // a step that the former job had saved, too
  EXPECT_EQ(Best(), 20);
}

}  // namespace
}  // namespace passel::job::testing

#include "train/checkpoint_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "io/checkpoint_files.h"
#include "io/checkpoint_index.h"
#include "support/file_text.h"
#include "support/temp_dir.h"

namespace passel {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class CheckpointWatchTest : public ::testing::Test {
 protected:
  // By rename, as it is done: the file's time changes.
  void Save(const std::vector<CheckpointIndex::Entry>& kept) {
    const std::string next = dir_.File("next");
    test::PutFileText(next, ToText({.kept = kept}));
    ASSERT_EQ(::rename(next.c_str(), dir_.File(kIndexFile).c_str()), 0);
  }
  static std::vector<std::int64_t> StepsOf(const std::vector<Event>& news) {
    std::vector<std::int64_t> steps;
    for (const Event& event : news) steps.push_back(event.step);
    return steps;
  }

  test::TempDir dir_;
};

TEST_F(CheckpointWatchTest, EachIsToldOnce) {
  CheckpointWatch watch(dir_.path(), 100);
  EXPECT_THAT(watch.News(), IsEmpty());
  Save({{"model.ckpt-0", 100.5}, {"model.ckpt-7", 101}});
  EXPECT_THAT(StepsOf(watch.News()), ElementsAre(0, 7));
  EXPECT_THAT(watch.News(), IsEmpty());
  Save({{"model.ckpt-7", 101}, {"model.ckpt-9", 102}});
  EXPECT_THAT(StepsOf(watch.News()), ElementsAre(9));
}

// Whoever saves is often quicker than whoever opens the file of the summaries.
TEST_F(CheckpointWatchTest, OneSavedInThisLifeBeforeTheFileWasOpenedIsNew) {
  Save({{"model.ckpt-3", 99.5}, {"model.ckpt-7", 100.5}});
  CheckpointWatch watch(dir_.path(), 100);
  const std::vector<Event> news = watch.News();
  EXPECT_THAT(StepsOf(news), ElementsAre(7)) << "a life before told of the other";
  ASSERT_EQ(news.size(), 1u);
  EXPECT_EQ(news[0].wall_time, 100.5);
}

TEST_F(CheckpointWatchTest, WithoutAFolderNothingIsEverNew) {
  EXPECT_THAT(CheckpointWatch("", 0).News(), IsEmpty());
}

}  // namespace
}  // namespace passel

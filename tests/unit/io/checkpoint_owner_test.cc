// What happens when the folder of a job that saves is deleted, emptied, moved or taken by another.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <thread>
#include <vector>

#include "io/checkpoint_folder.h"
#include "support/failing_ops.h"
#include "support/file_text.h"
#include "support/temp_dir.h"
#include "unit/io/small_checkpoints.h"

namespace passel {
namespace {

namespace fs = std::filesystem;

using test::Own;
using test::PutFileText;
using test::Save;
using test::TempDir;
using test::WriteParts;
using ::testing::HasSubstr;

class CheckpointOwnerTest : public ::testing::Test {
 protected:
  CheckpointOwnerTest() : path_(dir_.File("c")), folder_(Own(path_)) {
    EXPECT_TRUE(folder_.ok()) << folder_.status().ToString();
    Save(*folder_, 1);
  }
  // One more checkpoint; whatever it says, the former one is as it was.
  Status SaveMore() {
    const Status owner = folder_->CheckOwner();
    if (!owner.ok()) return owner;
    if (const Status written = WriteParts(path_, 2); !written.ok()) return written;
    return folder_->Commit(2, 1, 2000);
  }

  TempDir dir_;
  const std::string path_;
  Result<CheckpointFolder> folder_;
};

TEST_F(CheckpointOwnerTest, AFolderThatWasEmptiedIsItsOwnAgain) {
  fs::remove_all(path_);
  fs::create_directory(path_);
  EXPECT_TRUE(SaveMore().ok());
  EXPECT_EQ(folder_->index().kept.size(), 1u);  // the other one is gone
  EXPECT_EQ(Own(path_).status().code(), Code::kAlreadyExists);
}

TEST_F(CheckpointOwnerTest, WithoutItsLockFileAFolderIsStillItsOwn) {
  fs::remove(path_ + "/.owner");
  EXPECT_TRUE(SaveMore().ok());
  EXPECT_EQ(folder_->index().kept.size(), 2u);
  EXPECT_EQ(Own(path_).status().code(), Code::kAlreadyExists);
}

TEST_F(CheckpointOwnerTest, WhatAnotherJobOwnsIsLeftAlone) {
  for (const bool moved : {true, false}) {
    if (moved) {
      fs::rename(path_, dir_.File("moved"));
    } else {
      fs::remove_all(path_);
    }
    auto other = Own(path_);
    ASSERT_TRUE(other.ok());
    EXPECT_EQ(SaveMore().code(), Code::kAlreadyExists);
    Save(*other, 7);
    other = NotFound("ended");
    const Status refused = SaveMore();
    EXPECT_EQ(refused.code(), Code::kFailedPrecondition);
    EXPECT_THAT(refused.message(), HasSubstr("has checkpoints of another one, up to model.ckpt-7"));
    EXPECT_EQ(folder_->Commit(2, 1, 2000).code(), Code::kFailedPrecondition);
    EXPECT_EQ(ReadCheckpointIndex(path_)->kept.size(), 1u);
    EXPECT_TRUE(OpenCheckpoint(path_, "model.ckpt-7").ok());
  }
}

TEST_F(CheckpointOwnerTest, AFolderThatCameBackIsItsOwn) {
  fs::rename(path_, dir_.File("moved"));
  EXPECT_EQ(SaveMore().code(), Code::kFailedPrecondition);
  EXPECT_FALSE(fs::exists(path_));  // it may be where a disk was
  PutFileText(path_, "a file");
  EXPECT_FALSE(SaveMore().ok());
  fs::remove(path_);
  fs::create_symlink(dir_.File("moved"), path_);
  EXPECT_TRUE(SaveMore().ok());
  EXPECT_EQ(folder_->index().kept.size(), 2u);
}

TEST_F(CheckpointOwnerTest, ADiskThatIsGoneIsNotReplacedByTheOneUnderIt) {
  struct stat here, there;
  if (::stat(path_.c_str(), &here) != 0 || ::stat("/dev/shm", &there) != 0 ||
      here.st_dev == there.st_dev) {
    GTEST_SKIP() << "no second file system";
  }
  const test::TempDir other("/dev/shm");
  fs::rename(path_, dir_.File("moved"));
  fs::create_directory_symlink(other.path(), path_);
  const Status status = SaveMore();
  const bool empty = fs::is_empty(other.path());
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("is not where it was: put it back"));
  EXPECT_TRUE(empty);
}

TEST_F(CheckpointOwnerTest, WhatIsInTheWayOfItsLockIsNamed) {
  const std::string other = dir_.File("other");
  fs::create_directories(other + "/.owner");
  const Status folder = Own(other).status();
  EXPECT_THAT(folder.message(), HasSubstr(other + " cannot get checkpoints"));
  EXPECT_THAT(folder.message(), HasSubstr("Is a directory"));
  fs::remove(other + "/.owner");
  ASSERT_EQ(::mkfifo((other + "/.owner").c_str(), 0600), 0);
  EXPECT_FALSE(Own(other).ok());  // and does not wait for a reader
}

TEST(FolderOwnerTest, WhoWritesNothingLeavesNothing) {
  const TempDir dir;
  const std::string fresh = dir.File("a/b/c/");
  EXPECT_TRUE(Own(fresh).ok());
  EXPECT_TRUE(fs::is_empty(dir.path()));
  // Folders of others stay, and what others own meanwhile.
  const std::string there = dir.File("there");
  fs::create_directory(there);
  {
    const auto first = Own(there);
    ASSERT_TRUE(first.ok());
    EXPECT_EQ(Own(there).status().code(), Code::kAlreadyExists);
    EXPECT_TRUE(first->index().kept.empty());
    EXPECT_EQ(Own(there).status().code(), Code::kAlreadyExists);
  }
  EXPECT_TRUE(fs::is_empty(there));
  // After a save all stays.
  {
    auto saves = Own(fresh);
    ASSERT_TRUE(saves.ok());
    Save(*saves, 1);
  }
  EXPECT_TRUE(fs::exists(fresh + ".owner"));
  EXPECT_TRUE(Own(fresh).ok());
  EXPECT_TRUE(fs::exists(fresh + ".owner"));
}

// Each is the only owner for as long as it is one, whoever makes the file and takes it away.
TEST(FolderOwnerTest, OneAtATimeWhileTheFileComesAndGoes) {
  const TempDir dir;
  const std::string path = dir.File("c");
  std::atomic<int> owners{0}, most{0}, turns{0};
  const auto compete = [&] {
    for (int i = 0; i < 300; ++i) {
      std::string left;
      const auto owner = FolderOwner::Become(path, "", &left);
      if (!owner.ok()) continue;
      const int now = ++owners;
      for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
      }
      ++turns;
      --owners;
    }
  };
  {
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) threads.emplace_back(compete);
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(most, 1);
  EXPECT_GT(turns, 0);
}

// The last call of all that write an index: it may be there, so its checkpoint has to stay.
TEST_F(CheckpointOwnerTest, AnIndexThatMayNotOutliveAPowerCutIsStillTheIndex) {
  bool seen = false;
  for (int n = 1; n < 100 && !seen; ++n) {
    const std::string path = dir_.File("n" + std::to_string(n));
    {
      auto first = Own(path, {.keep = 1});
      ASSERT_TRUE(first.ok());
      Save(*first, 1);
    }
    test::FailingOps ops(n, EIO);
    auto folder = Own(path, {.keep = 1}, ops);
    ASSERT_TRUE(WriteParts(path, 2).ok());
    const Status saved = folder->Commit(2, 1, 2000);
    ASSERT_FALSE(ops.failed().empty()) << "no call was of the folder";
    seen = ops.failed() == "fsync of the folder";
    EXPECT_THAT(saved.message(), ::testing::AllOf(HasSubstr(path), HasSubstr(std::strerror(EIO))))
        << ops.failed();
    EXPECT_EQ(folder->index().Find("model.ckpt-2") != nullptr, seen) << ops.failed();
    if (!seen) continue;
    Save(*folder, 3);
    EXPECT_FALSE(OpenCheckpoint(path, "model.ckpt-1").ok());  // too old, and gone by now
    EXPECT_FALSE(OpenCheckpoint(path, "model.ckpt-2").ok());
    EXPECT_TRUE(OpenCheckpoint(path, "model.ckpt-3").ok());
  }
  EXPECT_TRUE(seen);
}

}  // namespace
}  // namespace passel

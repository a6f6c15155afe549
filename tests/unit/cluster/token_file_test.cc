// The token file of tasks by hand: shared by who lives, replaced when nobody does.

#include "cluster/token_file.h"
#include "support/temp_dir.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace passel {
namespace {

constexpr auto kLimit = std::chrono::seconds(20);

class TokenFileTest : public ::testing::Test {
 protected:
  Result<TokenFile> Join() const { return TokenFile::Join(path_, Deadline::After(kLimit)); }
  bool Exists() const { return std::filesystem::exists(path_); }
  std::ptrdiff_t Files() const {
    return std::distance(std::filesystem::directory_iterator(dir_),
                         std::filesystem::directory_iterator());
  }
  // A process that holds the file and is killed.
  void HoldAndDie() const {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const Result<TokenFile> held = TokenFile::Join(path_, Deadline::After(kLimit));
      ::raise(held.ok() ? SIGKILL : SIGABRT);
    }
    int state = 0;
    ASSERT_EQ(::waitpid(child, &state, 0), child);
    ASSERT_TRUE(WIFSIGNALED(state) && WTERMSIG(state) == SIGKILL);
  }

  const test::TempDir temporary_;
  const std::string dir_ = temporary_.path(), path_ = dir_ + "/job.token";
};

TEST_F(TokenFileTest, LivesAsLongAsOneTaskHoldsIt) {
  std::optional<TokenFile> first, second;
  first.emplace(*Join());
  struct stat info;
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0400u);
  second.emplace(*Join());
  EXPECT_EQ(second->token().bytes(), first->token().bytes());
  first.reset();
  EXPECT_TRUE(Exists()) << "the second task still needs it";
  first.emplace(*Join());
  EXPECT_EQ(second->token().bytes(), first->token().bytes());
  first.reset();
  second.reset();
  EXPECT_EQ(Files(), 0) << "the last one removes it";
}

TEST_F(TokenFileTest, FileOfTasksThatWereKilledIsReplaced) {
  HoldAndDie();
  ASSERT_TRUE(Exists());
  const Result<JobToken> stale = JobToken::Read(path_);
  ASSERT_TRUE(stale.ok());
  {
    const Result<TokenFile> next = Join();
    ASSERT_TRUE(next.ok()) << next.status().message();
    EXPECT_NE(next->token().bytes(), stale->bytes());
    EXPECT_EQ(JobToken::Read(path_)->bytes(), next->token().bytes());
    HoldAndDie();  // a task that dies does not take the others' file with it
    const Result<TokenFile> other = Join();
    ASSERT_TRUE(other.ok());
    EXPECT_EQ(other->token().bytes(), next->token().bytes());
  }
  EXPECT_EQ(Files(), 0);
}

TEST_F(TokenFileTest, StaleFilesOfAllJobsAreRemovedAndNothingElse) {
  HoldAndDie();
  const std::string left = dir_ + "/other.token";
  ASSERT_EQ(::rename(path_.c_str(), left.c_str()), 0);
  const Result<TokenFile> held = Join();
  ASSERT_TRUE(held.ok());
  const std::string note = dir_ + "/note", fifo = dir_ + "/fifo.token", link = dir_ + "/link.token";
  ASSERT_GE(FileDescriptor(::open(note.c_str(), O_CREAT | O_WRONLY, 0600)).get(), 0);
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  ASSERT_EQ(::symlink(note.c_str(), link.c_str()), 0);
  RemoveStaleTokenFiles(dir_);
  EXPECT_FALSE(std::filesystem::exists(left));
  EXPECT_EQ(JobToken::Read(path_)->bytes(), held->token().bytes());
  EXPECT_EQ(Files(), 4);
  RemoveStaleTokenFiles(dir_ + "/nowhere");
}

TEST_F(TokenFileTest, FifoInItsPlaceIsRefusedWithoutWaiting) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  const Status status = Join().status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("no regular file"), std::string::npos);
  EXPECT_TRUE(Exists());
}

TEST_F(TokenFileTest, OfManyWhoFindAStaleFileAtOnceAllGetTheSameNewToken) {
  for (int round = 0; round < 100; ++round) {
    HoldAndDie();
    const Result<JobToken> stale = JobToken::Read(path_);
    ASSERT_TRUE(stale.ok());
    std::vector<std::optional<TokenFile>> got(8);
    std::atomic<std::size_t> at_start{0};
    std::vector<std::thread> threads;
    for (auto& mine : got) {
      threads.emplace_back([&] {
        ++at_start;
        while (at_start < got.size()) {
        }
        Result<TokenFile> file = Join();
        ASSERT_TRUE(file.ok()) << file.status().message();
        mine.emplace(std::move(*file));
      });
    }
    for (std::thread& t : threads) t.join();
    for (const auto& file : got) {
      ASSERT_TRUE(file.has_value());
      ASSERT_EQ(file->token().bytes(), got[0]->token().bytes()) << "round " << round;
      ASSERT_NE(file->token().bytes(), stale->bytes());
    }
    got.clear();
    ASSERT_EQ(Files(), 0) << "round " << round;
  }
}

TEST_F(TokenFileTest, WhoComesAndGoesNeverLeavesOthersWithAnotherToken) {
  std::atomic<int> mismatches{0};
  std::vector<std::thread> threads;
  for (int k = 0; k < 6; ++k) {
    threads.emplace_back([&] {
      for (int i = 0; i < 300; ++i) {
        const Result<TokenFile> mine = Join();
        ASSERT_TRUE(mine.ok()) << mine.status().message();
        // While it is held the name leads to it, whoever else leaves.
        const Result<JobToken> named = JobToken::Read(path_);
        if (!named.ok() || named->bytes() != mine->token().bytes()) ++mismatches;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(mismatches, 0);
  EXPECT_LE(Files(), 1);  // two that leave at the same moment may both believe the other stays
}

TEST_F(TokenFileTest, RemovalSparesTheFileOfALaterStart) {
  Result<TokenFile> first = Join();
  ASSERT_TRUE(first.ok());
  first->Remove();
  EXPECT_FALSE(Exists());
  const Result<TokenFile> second = Join();
  ASSERT_TRUE(second.ok());
  EXPECT_NE(second->token().bytes(), first->token().bytes());
  first->Remove();
  first = Result<TokenFile>(Unavailable("gone"));
  EXPECT_TRUE(Exists());
}

TEST_F(TokenFileTest, LinkIsNotFollowedAndAForeignLockEndsAtTheDeadline) {
  ASSERT_EQ(::symlink("/etc/passwd", path_.c_str()), 0);
  EXPECT_FALSE(Join().ok());
  ASSERT_EQ(::unlink(path_.c_str()), 0);
  const Result<JobToken> made = JobToken::ReadOrCreate(path_);
  ASSERT_TRUE(made.ok());
  const FileDescriptor fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::flock(fd.get(), LOCK_EX), 0);
  const Status status =
      TokenFile::Join(path_, Deadline::After(std::chrono::milliseconds(50))).status();
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_NE(status.message().find("--token_file"), std::string::npos);
}

}  // namespace
}  // namespace passel

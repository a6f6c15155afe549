#include "cluster/job_token.h"
#include "support/temp_dir.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

namespace passel {
namespace {

using ::testing::HasSubstr;

class JobTokenTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, std::size_t bytes, mode_t mode) {
    const std::string path = dir_ + "/" + name;
    std::ofstream(path) << std::string(bytes, 'k');
    ::chmod(path.c_str(), mode);
    return path;
  }
  const test::TempDir temporary_;
  const std::string dir_ = temporary_.path();
};

TEST_F(JobTokenTest, GeneratedOnesDiffer) {
  std::set<std::array<std::uint8_t, JobToken::kBytes>> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(JobToken::Generate().bytes());
  EXPECT_EQ(seen.size(), 1000u);
}

TEST_F(JobTokenTest, FileOfAnotherSizeIsNamedWithBothSizes) {
  for (const std::size_t bytes : {0, 1, 31, 33, 64, 100'000}) {
    const Result<JobToken> token = JobToken::Read(Write("t" + std::to_string(bytes), bytes, 0400));
    ASSERT_EQ(token.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(token.status().message(), HasSubstr("32 bytes"));
    EXPECT_THAT(token.status().message(), HasSubstr("has " + std::to_string(bytes)));
  }
}

TEST_F(JobTokenTest, FileThatOthersCanUseIsRefusedWithItsMode) {
  for (const mode_t mode : {0404, 0440, 0444, 0644, 0602, 0777}) {
    const Result<JobToken> token = JobToken::Read(Write("t" + std::to_string(mode), 32, mode));
    ASSERT_EQ(token.status().code(), Code::kInvalidArgument) << mode;
    EXPECT_THAT(token.status().message(), HasSubstr("chmod 0400"));
  }
  for (const mode_t mode : {0400, 0600, 0700}) {
    EXPECT_TRUE(JobToken::Read(Write("u" + std::to_string(mode), 32, mode)).ok()) << mode;
  }
}

TEST_F(JobTokenTest, WhatIsNoRegularFileIsRefusedWithoutWaiting) {
  const std::string fifo = dir_ + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  for (const std::string& path : {fifo, dir_, std::string("/dev/null")}) {
    const Result<JobToken> token = JobToken::ReadOrCreate(path);
    ASSERT_EQ(token.status().code(), Code::kInvalidArgument) << path;
    EXPECT_THAT(token.status().message(), HasSubstr(path + " is no regular file"));
  }
}

TEST_F(JobTokenTest, FileOfAnotherUserIsRefusedAndOneOfRootIsNot) {
  if (::getuid() != 0) GTEST_SKIP() << "only root can give files away";
  const std::string path = Write("theirs", 32, 0400);
  ASSERT_EQ(::chown(path.c_str(), 12345, 0), 0);
  const Result<JobToken> token = JobToken::Read(path);
  ASSERT_EQ(token.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(token.status().message(), HasSubstr("belongs to user 12345"));
  // As secrets are mounted: two links, the file is root's.
  ASSERT_EQ(::chown(path.c_str(), 0, 0), 0);
  ASSERT_EQ(::symlink("theirs", (dir_ + "/..data").c_str()), 0);
  ASSERT_EQ(::symlink("..data", (dir_ + "/token").c_str()), 0);
  EXPECT_TRUE(JobToken::Read(dir_ + "/token").ok());
}

TEST_F(JobTokenTest, CopiesShareOneSecretAndAnEmptyOneIsZero) {
  const JobToken token = JobToken::Generate();
  const JobToken copy = token;
  EXPECT_EQ(copy.bytes().data(), token.bytes().data());
  EXPECT_EQ(JobToken().bytes(), (std::array<std::uint8_t, JobToken::kBytes>{}));
}

TEST_F(JobTokenTest, FirstReaderMakesTheFileForItselfAlone) {
  const std::string path = dir_ + "/token";
  EXPECT_EQ(JobToken::Read(path).status().code(), Code::kNotFound);
  const Result<JobToken> made = JobToken::ReadOrCreate(path);
  ASSERT_TRUE(made.ok()) << made.status().message();
  struct stat info;
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0400u);
  EXPECT_EQ(info.st_size, 32);
  const Result<JobToken> read = JobToken::ReadOrCreate(path);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->bytes(), made->bytes());
}

TEST_F(JobTokenTest, OfManyWhoMakeItAtOnceAllGetTheSame) {
  for (int round = 0; round < 50; ++round) {
    const std::string path = dir_ + "/race" + std::to_string(round);
    std::vector<std::array<std::uint8_t, JobToken::kBytes>> got(8);
    std::atomic<int> at_start{0};
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < got.size(); ++i) {
      threads.emplace_back([&, i] {
        ++at_start;
        while (at_start < static_cast<int>(got.size())) {
        }
        const Result<JobToken> token = JobToken::ReadOrCreate(path);
        ASSERT_TRUE(token.ok()) << token.status().message();
        got[i] = token->bytes();
      });
    }
    for (std::thread& t : threads) t.join();
    for (const auto& bytes : got) EXPECT_EQ(bytes, got[0]);
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir_),
                          std::filesystem::directory_iterator()),
            50);  // no temporary file is left
}

TEST_F(JobTokenTest, ProofHoldsForItsTokenJobSideAndTextOnly) {
  const JobToken token = JobToken::Generate();
  const std::string proof = MakeProof(token, "job", ProofSide::kClient, "text");
  EXPECT_EQ(proof.size(), 64u);
  EXPECT_TRUE(CheckProof(token, "job", ProofSide::kClient, "text", proof));
  EXPECT_FALSE(CheckProof(JobToken::Generate(), "job", ProofSide::kClient, "text", proof));
  EXPECT_FALSE(CheckProof(token, "job2", ProofSide::kClient, "text", proof));
  EXPECT_FALSE(CheckProof(token, "job", ProofSide::kServer, "text", proof));
  EXPECT_FALSE(CheckProof(token, "job", ProofSide::kClient, "text2", proof));
  EXPECT_FALSE(CheckProof(token, "job", ProofSide::kClient, "text", ""));
  EXPECT_FALSE(CheckProof(token, "job", ProofSide::kClient, "text", proof + "00"));
}

// From Python: hashlib.blake2b(b"passel-auth-1job", digest_size=32, key=bytes(range(32))) is the
// key, hmac.new(key, b"wrktext", "sha512").digest()[:32] the proof.
TEST_F(JobTokenTest, ProofIsTheDocumentedOne) {
  const std::string path = dir_ + "/known";
  std::string bytes;
  for (int i = 0; i < 32; ++i) bytes.push_back(static_cast<char>(i));
  std::ofstream(path, std::ios::binary) << bytes;
  ::chmod(path.c_str(), 0400);
  const Result<JobToken> token = JobToken::Read(path);
  ASSERT_TRUE(token.ok()) << token.status().message();
  EXPECT_EQ(MakeProof(*token, "job", ProofSide::kClient, "text"),
            "beae5fc1d0b81a94ded27959e2fa5777332788212d3cedb8609befd55d7c1a79");
}

}  // namespace
}  // namespace passel

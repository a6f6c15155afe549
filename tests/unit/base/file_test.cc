#include "base/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "base/file_descriptor.h"
#include "support/temp_dir.h"

namespace passel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::span<const std::byte> Piece(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

Status Save(const std::string& path, std::vector<std::string_view> texts,
            FileOps& ops = FileOps::Real()) {
  std::vector<std::span<const std::byte>> pieces;
  for (const std::string_view text : texts) pieces.push_back(Piece(text));
  return WriteFileAtomically(path, pieces, ops);
}

class FileTest : public ::testing::Test {
 protected:
  std::vector<std::string> Names() const { return temporary_.List(); }
  std::string Contents() const {
    const auto bytes = ReadFile(path_, 1 << 20);
    EXPECT_TRUE(bytes.ok()) << bytes.status().ToString();
    return bytes.ok() ? std::string(bytes->begin(), bytes->end()) : "";
  }
  const test::TempDir temporary_;
  const std::string dir_ = temporary_.path(), path_ = dir_ + "/file";
};

TEST_F(FileTest, ReadsUpToTheLimitAndNotOneByteMore) {
  const std::string text("one\0two\xff", 8);
  std::ofstream(path_, std::ios::binary) << text;
  for (const std::size_t limit : {std::size_t{8}, std::size_t{9}, SIZE_MAX}) {
    const auto bytes = ReadFile(path_, limit);
    ASSERT_TRUE(bytes.ok()) << bytes.status().ToString();
    EXPECT_EQ(std::string(bytes->begin(), bytes->end()), text);
  }
  const auto bytes = ReadFile(path_, 7);
  EXPECT_EQ(bytes.status().code(), Code::kResourceExhausted);
  EXPECT_EQ(bytes.status().message(), path_ +
                                          " has 8 bytes, more than the 7 bytes allowed here: "
                                          "name a smaller file");
  std::ofstream(path_, std::ios::trunc).close();
  EXPECT_TRUE(ReadFile(path_, 0)->empty());
}

TEST_F(FileTest, ReadsRegularFilesOnlyAndNeverWaits) {
  EXPECT_EQ(ReadFile(path_, 10).status().code(), Code::kNotFound);
  EXPECT_THAT(ReadFile(path_, 10).status().message(), HasSubstr(path_));
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);  // nobody will ever write into it
  EXPECT_EQ(ReadFile(path_, 10).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(ReadFile(dir_, 10).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(ReadFile("/dev/zero", 10).status().code(), Code::kInvalidArgument);
}

TEST_F(FileTest, AHugeFileIsRefusedBeforeMemoryIsAskedFor) {
  const FileDescriptor fd(::open(path_.c_str(), O_WRONLY | O_CREAT, 0600));
  ASSERT_EQ(::ftruncate(fd.get(), off_t{1} << 40), 0);  // a sparse terabyte
  EXPECT_EQ(ReadFile(path_, 1 << 20).status().code(), Code::kResourceExhausted);
}

TEST_F(FileTest, WritesTheConcatenationAndLeavesNothingElse) {
  ASSERT_TRUE(Save(path_, {"ab", "", "c"}).ok());
  EXPECT_EQ(Contents(), "abc");
  ASSERT_TRUE(Save(path_, {"longer than before"}).ok());
  EXPECT_EQ(Contents(), "longer than before");
  ASSERT_TRUE(Save(path_, {}).ok());
  EXPECT_EQ(Contents(), "");
  EXPECT_THAT(Names(), ElementsAre("file"));
}

TEST_F(FileTest, PermissionsAreWhatTheUmaskLeaves) {
  const mode_t before = ::umask(0);
  for (const mode_t mask : {0022u, 0077u, 0002u, 0u}) {
    ::umask(mask);
    EXPECT_TRUE(Save(path_, {"text"}).ok());
    struct stat info;
    EXPECT_EQ(::stat(path_.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0666u & ~mask);
  }
  ::umask(before);
}

TEST_F(FileTest, AReaderThatHasTheOldFileOpenKeepsIt) {
  ASSERT_TRUE(Save(path_, {"old"}).ok());
  const FileDescriptor fd(::open(path_.c_str(), O_RDONLY));
  ASSERT_TRUE(Save(path_, {"new"}).ok());
  char text[4] = {};
  EXPECT_EQ(::read(fd.get(), text, 3), 3);
  EXPECT_STREQ(text, "old");
}

TEST_F(FileTest, ASymbolicLinkIsReplacedNotFollowed) {
  std::ofstream(dir_ + "/victim") << "untouched";
  std::filesystem::create_symlink(dir_ + "/victim", path_);
  ASSERT_TRUE(Save(path_, {"new"}).ok());
  EXPECT_FALSE(std::filesystem::is_symlink(path_));
  EXPECT_EQ(ReadFile(dir_ + "/victim", 100)->size(), 9u);
}

TEST_F(FileTest, WrongPathsAreNamed) {
  EXPECT_EQ(Save(dir_ + "/", {"x"}).code(), Code::kInvalidArgument);
  EXPECT_EQ(Save("", {"x"}).code(), Code::kInvalidArgument);
  EXPECT_EQ(Save(dir_ + "/absent/file", {"x"}).code(), Code::kNotFound);
  std::filesystem::create_directory(path_);
  const Status status = Save(path_, {"x"});
  EXPECT_THAT(status.message(), StartsWith(path_ + " is a directory"));
  EXPECT_THAT(Names(), ElementsAre("file"));
}

TEST_F(FileTest, ADeviceOrAPipeIsLeftAlone) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(Save(path_, {"x"}).code(), Code::kInvalidArgument);
  EXPECT_TRUE(std::filesystem::is_fifo(path_));
}

TEST_F(FileTest, APathWithoutAFolderIsInTheWorkingDirectory) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(dir_);
  const Status status = Save("file", {"here"});
  std::filesystem::current_path(before);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(Contents(), "here");
}

TEST_F(FileTest, WritersOfOnePathNeverMixTheirBytes) {
  constexpr int kWriters = 4;
  constexpr int kRounds = 50;
  ASSERT_TRUE(Save(path_, {std::string(1000, '0')}).ok());
  std::atomic<int> failures{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> writers;
  for (int w = 0; w < kWriters; ++w) {
    writers.emplace_back([this, w, &failures] {
      const std::string half(500, static_cast<char>('1' + w));
      for (int i = 0; i < kRounds; ++i) failures += Save(path_, {half, half}).ok() ? 0 : 1;
    });
  }
  int mixed = 0;
  std::thread reader([this, &mixed, &stop] {
    while (!stop.load()) {
      const auto bytes = ReadFile(path_, 2000);
      if (!bytes.ok() || *bytes != std::vector<std::uint8_t>(1000, bytes->at(0))) ++mixed;
    }
  });
  for (std::thread& writer : writers) writer.join();
  stop = true;
  reader.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(mixed, 0);
  EXPECT_THAT(Names(), ElementsAre("file"));
}

TEST_F(FileTest, ATemporaryFileIsKnownByItsName) {
  FileOps& ops = FileOps::Real();
  {
    const auto file = AtomicFile::Create(dir_ + "/a.b", ops);
    ASSERT_TRUE(file.ok());
    ASSERT_EQ(Names().size(), 1u);
    EXPECT_EQ(TargetOfTemporary(Names()[0]), "a.b");
  }
  EXPECT_THAT(Names(), IsEmpty());
  EXPECT_EQ(TargetOfTemporary("x.tmp.1.2.tmp.33.0"), "x.tmp.1.2");
  for (const char* none : {"", "a", ".tmp.", "a.tmp.1", "a.tmp.1.", "a.tmp..1", "a.tmp.x.1",
                           "a.tmp.1.2.3", "a.tmp.-1.2"}) {
    EXPECT_EQ(TargetOfTemporary(none), "") << none;
  }
}

/// How much goes past the page cache; `refuse`: which call of that says EINVAL.
class DirectOps : public FileOps {
 public:
  enum Refuse { kNone, kFlag, kWrite };
  explicit DirectOps(Refuse refuse) : refuse_(refuse) {}
  int SetDirect(int fd, bool direct) override {
    return refuse_ == kFlag ? EINVAL : FileOps::SetDirect(fd, direct);
  }
  int WriteAt(int fd, const void* data, std::size_t bytes, std::uint64_t offset) override {
    if ((::fcntl(fd, F_GETFL) & O_DIRECT) != 0) {
      if (refuse_ == kWrite) return EINVAL;
      direct_bytes += bytes;
    }
    return FileOps::WriteAt(fd, data, bytes, offset);
  }
  std::size_t direct_bytes = 0;

 private:
  const Refuse refuse_;
};

TEST_F(FileTest, WholePagesGoPastTheCacheAndTheFileIsTheSame) {
  constexpr std::size_t kPage = kDirectBytes;
  alignas(kPage) static std::byte memory[8 * kPage];
  for (std::size_t i = 0; i < sizeof memory; ++i) memory[i] = static_cast<std::byte>(i * 7 % 251);
  std::vector<std::string> folders = {dir_};
  std::optional<test::TempDir> in_memory;  // a tmpfs, mostly
  if (::access("/dev/shm", W_OK) == 0) folders.push_back(in_memory.emplace("/dev/shm").path());
  for (const std::string& folder : folders) {
    for (const auto refuse : {DirectOps::kNone, DirectOps::kFlag, DirectOps::kWrite}) {
      for (const std::size_t begin : {std::size_t{0}, std::size_t{8}, kPage - 1, kPage}) {
        for (const std::size_t size : {std::size_t{0}, std::size_t{1}, kPage - 1, kPage, kPage + 1,
                                       3 * kPage - 8, 5 * kPage}) {
          DirectOps ops(refuse);
          auto file = AtomicFile::Create(folder + "/f", ops);
          ASSERT_TRUE(file.ok());
          const bool direct = file->GoPastCache();
          EXPECT_EQ(direct && refuse == DirectOps::kFlag, false);
          // What is in front of it comes last, as a header does.
          const std::span all(memory, begin + size);
          ASSERT_TRUE(file->WriteAt(begin, all.subspan(begin)).ok());
          ASSERT_TRUE(file->WriteAt(0, all.first(begin)).ok());
          // Memory that is not aligned as the file is.
          ASSERT_TRUE(file->WriteAt(begin + size, {memory + 1, kPage}).ok());
          ASSERT_TRUE(file->Commit().ok());
          const auto bytes = ReadFile(folder + "/f", sizeof memory);
          ASSERT_TRUE(bytes.ok()) << bytes.status().ToString();
          const auto is = std::as_bytes(std::span(*bytes));
          ASSERT_EQ(is.size(), begin + size + kPage);
          EXPECT_TRUE(std::ranges::equal(is.first(begin + size), all)) << begin << " " << size;
          EXPECT_TRUE(std::ranges::equal(is.last(kPage), std::span(memory + 1, kPage)));
          const std::size_t first = (begin + kPage - 1) / kPage, last = (begin + size) / kPage;
          const std::size_t pages = (last > first ? last - first : 0) + begin / kPage;
          const bool past = direct && refuse == DirectOps::kNone;
          EXPECT_EQ(ops.direct_bytes, past ? pages * kPage : 0) << begin << " " << size;
        }
      }
    }
  }
}

/// Writes the calls down instead of doing them; the `fail_at`-th fails with EIO.
class ScriptedOps : public FileOps {
 public:
  explicit ScriptedOps(int fail_at = 0) : fail_at_(fail_at) {}
  int Open(const std::string& path, int* fd) override {
    temporary = path;
    *fd = 77;
    return Add("open");
  }
  int Write(int fd, const void* data, std::size_t bytes) override {
    EXPECT_EQ(fd, 77);
    return Add("write " + std::string(static_cast<const char*>(data), bytes));
  }
  int SyncFile(int fd) override {
    EXPECT_EQ(fd, 77);
    return Add("fsync");
  }
  int Close(int fd) override {
    EXPECT_EQ(fd, 77);
    return Add("close");
  }
  int Rename(const std::string& from, const std::string& to) override {
    EXPECT_EQ(from, temporary);
    return Add("rename to " + to);
  }
  int SyncDir(const std::string& dir) override { return Add("fsync " + dir); }
  int Unlink(const std::string& path) override {
    EXPECT_EQ(path, temporary);
    return Add("unlink");
  }
  std::vector<std::string> calls;
  std::string temporary;

 private:
  int Add(std::string call) {
    calls.push_back(std::move(call));
    return static_cast<int>(calls.size()) == fail_at_ ? EIO : 0;
  }
  int fail_at_;
};

TEST(WriteFileAtomicallyTest, SyncsTheFileBeforeTheRenameAndTheFolderAfterIt) {
  ScriptedOps ops;
  ASSERT_TRUE(Save("/d/f", {"a", "b"}, ops).ok());
  EXPECT_THAT(ops.calls, ElementsAre("open", "write a", "write b", "fsync", "close",
                                     "rename to /d/f", "fsync /d/"));
  EXPECT_THAT(ops.temporary, StartsWith("/d/f.tmp."));
  ScriptedOps second;
  ASSERT_TRUE(Save("f", {"a"}, second).ok());
  EXPECT_EQ(second.calls.back(), "fsync .");
  EXPECT_THAT(second.temporary, StartsWith("f.tmp."));
  EXPECT_NE(second.temporary, ops.temporary.substr(3)) << "two saves need two temporary files";
}

TEST(WriteFileAtomicallyTest, AfterAFailureTheFileIsClosedAndRemovedAndNothingIsRetried) {
  const std::vector<std::vector<std::string>> expected{
      {"open"},
      {"open", "write a", "close", "unlink"},
      {"open", "write a", "write b", "close", "unlink"},
      {"open", "write a", "write b", "fsync", "close", "unlink"},
      {"open", "write a", "write b", "fsync", "close", "unlink"},
      {"open", "write a", "write b", "fsync", "close", "rename to /d/f", "unlink"},
      {"open", "write a", "write b", "fsync", "close", "rename to /d/f", "fsync /d/"}};
  const std::vector<std::string> named{"create", "write",  "write",    "fsync",
                                       "close",  "rename", "fsync /d/"};
  for (std::size_t n = 0; n < expected.size(); ++n) {
    ScriptedOps ops(static_cast<int>(n) + 1);
    const Status status = Save("/d/f", {"a", "b"}, ops);
    EXPECT_EQ(status.code(), Code::kInternal);
    EXPECT_THAT(status.message(), StartsWith("cannot " + named[n]));
    EXPECT_THAT(status.message(), HasSubstr(std::strerror(EIO)));
    EXPECT_EQ(ops.calls, expected[n]);
  }
}

TEST(FileDescriptorTest, HasOneOwner) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  FileDescriptor write_end(ends[1]);
  {
    FileDescriptor read_end(ends[0]);
    FileDescriptor moved(std::move(read_end));
    EXPECT_FALSE(read_end.valid());  // NOLINT(bugprone-use-after-move): that is the point
    EXPECT_EQ(moved.get(), ends[0]);
    FileDescriptor& self = moved;
    moved = std::move(self);
    EXPECT_EQ(::fcntl(ends[0], F_GETFD), 0);
  }
  EXPECT_EQ(::fcntl(ends[0], F_GETFD), -1);
  const int released = write_end.Release();
  EXPECT_FALSE(write_end.valid());
  EXPECT_EQ(::fcntl(released, F_GETFD), 0);
  write_end.Reset(released);
  write_end.Reset();
  EXPECT_EQ(::fcntl(released, F_GETFD), -1);
}

}  // namespace
}  // namespace passel

// Memory files and the budget that they are held against.

#include "base/memory_file.h"
#include "support/temp_dir.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace passel {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kMiB = 1 << 20;

// These tests ask for more memory than there is. Should one of them ever get it, the kernel is to
// end this program and no other.
[[maybe_unused]] const bool g_first_to_go = [] {
  std::ofstream("/proc/self/oom_score_adj") << 1000;
  return true;
}();

class BudgetTest : public ::testing::Test {
 protected:
  BudgetTest() {
    Write("/proc/meminfo", "MemTotal: 8000 kB\nMemAvailable:   1048576 kB\nSwapFree: 1 kB\n");
  }
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  MemoryBudget Read() {
    const Result<MemoryBudget> budget = ReadMemoryBudget(root_);
    EXPECT_TRUE(budget.ok()) << budget.status().ToString();
    return budget.ok() ? *budget : MemoryBudget();
  }
  const test::TempDir temporary_;
  const std::string root_ = temporary_.path();
};

TEST_F(BudgetTest, WithoutCgroupsTheMachineIsTheLimit) {
  EXPECT_EQ(Read().available_bytes, 1024 * kMiB);
  EXPECT_THAT(Read().limit, HasSubstr("MemAvailable"));
  Write("/proc/self/cgroup", "");
  EXPECT_EQ(Read().available_bytes, 1024 * kMiB);
}

TEST_F(BudgetTest, MissingMeminfoIsAnError) {
  Write("/proc/meminfo", "MemTotal: 8000 kB\n");
  EXPECT_FALSE(ReadMemoryBudget(root_).ok());
  std::filesystem::remove(root_ + "/proc/meminfo");
  EXPECT_FALSE(ReadMemoryBudget(root_).ok());
}

TEST_F(BudgetTest, TheTightestOfNestedV2GroupsCounts) {
  Write("/proc/self/cgroup", "0::/a/b/c\n");
  Write("/sys/fs/cgroup/a/b/c/memory.max", "max\n");
  Write("/sys/fs/cgroup/a/b/memory.max", "209715200\n");  // 200 MiB
  Write("/sys/fs/cgroup/a/b/memory.current", "157286400\n");
  Write("/sys/fs/cgroup/a/memory.max", "524288000\n");
  Write("/sys/fs/cgroup/a/memory.current", "157286400\n");
  EXPECT_EQ(Read().available_bytes, 50 * kMiB);
  EXPECT_THAT(Read().limit, HasSubstr("/a/b "));
  EXPECT_THAT(Read().limit, HasSubstr("memory.max = 209715200"));
  // Page cache is given back under pressure.
  Write("/sys/fs/cgroup/a/b/memory.stat",
        "anon 1\ninactive_file 10485760\nactive_file 10485760\nshmem 99999999\n");
  EXPECT_EQ(Read().available_bytes, 70 * kMiB);
  // Over its limit: nothing is left, and nothing wraps.
  Write("/sys/fs/cgroup/a/memory.current", "600000000\n");
  EXPECT_EQ(Read().available_bytes, 0u);
  Write("/sys/fs/cgroup/a/memory.stat", "inactive_file 99999999999999\n");
  EXPECT_EQ(Read().available_bytes, 70 * kMiB) << "more cache than use is no use";
}

TEST_F(BudgetTest, V1MemoryControllerIsFoundAmongOthersAndAtTheRootOfAContainer) {
  Write(
      "/proc/self/cgroup",
      "12:cpu,cpuacct:/x\n11:hugetlb:/x\n4:blkio,memory:/docker/abc\n1:name=systemd:/\nnonsense\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "104857600\n");  // seen from inside
  Write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "20971520\n");
  EXPECT_EQ(Read().available_bytes, 80 * kMiB);
  EXPECT_THAT(Read().limit, HasSubstr("memory.limit_in_bytes"));
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");  // "none"
  EXPECT_EQ(Read().available_bytes, 1024 * kMiB);
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "99999999999999999999999\n");
  EXPECT_EQ(Read().available_bytes, 1024 * kMiB);
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "");
  EXPECT_EQ(Read().available_bytes, 1024 * kMiB);
}

TEST_F(BudgetTest, LimitWithoutItsUsageFileStillCounts) {
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/memory.max", "1048576\n");
  EXPECT_EQ(Read().available_bytes, kMiB);
}

TEST_F(BudgetTest, TheMachineItselfCanBeRead) {
  const Result<MemoryBudget> budget = ReadMemoryBudget();
  ASSERT_TRUE(budget.ok());
  EXPECT_GT(budget->available_bytes, kMiB);
}

TEST(MemoryFile, MoreThanTheBudgetIsRefusedWithAllNumbers) {
  const Result<MemoryFile> file =
      CreateMemoryFile("t", 1'000'001, HugePages::kOff, {1'000'000, "the cgroup /x (memory.max)"});
  ASSERT_EQ(file.status().code(), Code::kResourceExhausted);
  for (const char* word : {"1000001", "1000000", "the cgroup /x", "container"}) {
    EXPECT_THAT(file.status().message(), HasSubstr(word));
  }
}

TEST(MemoryFile, WhatNoAddressSpaceHoldsIsRefused) {
  // Nothing smaller: with a budget that lies, the kernel would be asked for all of it.
  for (const std::size_t bytes : {~std::size_t{0}, std::size_t{1} << 63, std::size_t{1} << 62}) {
    const Result<MemoryFile> file =
        CreateMemoryFile("t", bytes, HugePages::kOff, {~std::uint64_t{0}, "nobody"});
    EXPECT_EQ(file.status().code(), Code::kResourceExhausted) << bytes;
  }
}

TEST(MemoryFile, IsZeroRoundedUpAndPassesItsOwnCheck) {
  for (const std::size_t bytes : {1ul, 4096ul, 4097ul}) {
    Result<MemoryFile> file = CreateMemoryFile("t", bytes, HugePages::kOff, {1 << 20, "t"});
    ASSERT_TRUE(file.ok());
    EXPECT_EQ(file->bytes, (bytes + 4095) / 4096 * 4096);
    std::size_t checked = 0;
    EXPECT_TRUE(CheckSeals(file->fd.get(), &checked).ok());
    EXPECT_EQ(checked, file->bytes);
    std::vector<char> content(file->bytes, 'x');
    ASSERT_EQ(::pread(file->fd.get(), content.data(), content.size(), 0),
              static_cast<ssize_t>(content.size()));
    EXPECT_THAT(content, ::testing::Each('\0'));
  }
}

TEST(MemoryFile, ExplicitHugePagesThatAreNotThereAreSaidAndReplaced) {
  Result<MemoryFile> file =
      CreateMemoryFile("t", std::size_t{1} << 40, HugePages::kExplicit, {1 << 20, "t"});
  EXPECT_EQ(file.status().code(), Code::kResourceExhausted) << "the budget comes first";
  file = CreateMemoryFile("t", 1 << 20, HugePages::kExplicit, {1 << 24, "t"});
  ASSERT_TRUE(file.ok());
  if (file->bytes == (1 << 20)) {
    EXPECT_THAT(file->huge_page_problem, HasSubstr("vm.nr_hugepages"));
  } else {
    EXPECT_EQ(file->huge_page_problem, "");
    EXPECT_EQ(file->bytes, kHugePageBytes);
  }
}

TEST(ConstantFile, HoldsItsContentAndCannotBeChanged) {
  const Result<FileDescriptor> fd = CreateConstantFile("t", "hello", 5);
  ASSERT_TRUE(fd.ok());
  char text[8] = {};
  EXPECT_EQ(::pread(fd->get(), text, sizeof text, 0), 5);
  EXPECT_STREQ(text, "hello");
  EXPECT_LT(::pwrite(fd->get(), "x", 1, 0), 0);
  EXPECT_NE(::ftruncate(fd->get(), 0), 0);
  EXPECT_EQ(::mmap(nullptr, 5, PROT_WRITE, MAP_SHARED, fd->get(), 0), MAP_FAILED);
}

TEST(ConstantFile, FileOfOneWriterIsSealedOnceItsMappingsAreGone) {
  Result<MemoryFile> file =
      CreateMemoryFile("t", 4096, HugePages::kOff, {1 << 20, "t"}, MemoryFileUse::kOneWriter);
  ASSERT_TRUE(file.ok());
  const int fd = file->fd.get();
  void* p = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_NE(p, MAP_FAILED);
  *static_cast<char*>(p) = 'x';
  EXPECT_FALSE(SealAgainstWriting(fd).ok()) << "a mapping for writing is left";
  ::munmap(p, 4096);
  ASSERT_TRUE(SealAgainstWriting(fd).ok());
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
  std::size_t bytes = 0;
  EXPECT_TRUE(CheckSeals(fd, &bytes).ok());
  char text = 0;
  EXPECT_EQ(::pread(fd, &text, 1, 0), 1);
  EXPECT_EQ(text, 'x');
}

}  // namespace
}  // namespace passel

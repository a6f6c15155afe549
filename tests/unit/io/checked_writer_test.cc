// Long files, which are written past the page cache and by a thread of their own.

#include "io/checked_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <random>
#include <thread>
#include <utility>

#include "base/give_way.h"
#include "io/checked_tensors.h"
#include "support/failing_ops.h"
#include "support/file_text.h"
#include "support/temp_dir.h"

namespace passel {
namespace {

// How a file system takes writes past the page cache.
enum class Direct { kIfPossible, kRefused, kRefusedAtTheThirdWrite, kSlowAtFirst };

class DirectOps : public FileOps {
 public:
  explicit DirectOps(Direct how) : how_(how) {}
  int SetDirect(int fd, bool direct) override {
    if (how_ == Direct::kRefused) return EINVAL;
    const int error = FileOps::SetDirect(fd, direct);
    if (error == 0 && direct) taken = true;
    return error;
  }
  int WriteAt(int fd, const void* data, std::size_t bytes, std::uint64_t offset) override {
    const bool is_direct = (::fcntl(fd, F_GETFL) & O_DIRECT) != 0;
    if (is_direct && how_ == Direct::kRefusedAtTheThirdWrite && ++writes_ >= 3) return EINVAL;
    if (how_ == Direct::kSlowAtFirst && std::exchange(writes_, 1) == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(400));
    }
    (is_direct ? direct_bytes : cached_bytes) += bytes;
    return FileOps::WriteAt(fd, data, bytes, offset);
  }
  void StartSync(int fd) override {
    ++starts;
    FileOps::StartSync(fd);
  }
  bool taken = false;  // the file system can do it
  std::uint64_t direct_bytes = 0, cached_bytes = 0;
  int starts = 0;

 private:
  const Direct how_;
  int writes_ = 0;
};

class CheckedWriterTest : public ::testing::Test {
 protected:
  CheckedWriterTest() {
    std::mt19937 random(5);
    for (const std::int64_t size : {2'600'001, 7, 1'000'000, 700'003}) {
      values_.emplace_back(static_cast<std::size_t>(size));
      for (float& value : values_.back()) value = static_cast<float>(random());
      specs_.push_back({"t" + std::to_string(specs_.size()), DType::kF32, {size}});
    }
  }

  // Large pieces of one, then small ones of all in turn.
  Status Write(FileOps& ops) const {
    PASSEL_ASSIGN_OR_RETURN(CheckedWriter writer, CheckedWriter::Create(path_, specs_, {}, ops));
    std::vector<std::span<const std::byte>> left;
    for (const auto& values : values_) left.push_back(std::as_bytes(std::span(values)));
    const auto append = [&](std::size_t i, std::size_t bytes) {
      const auto piece = left[i].first(std::min(bytes, left[i].size()));
      left[i] = left[i].subspan(piece.size());
      return writer.Append(i, piece);
    };
    PASSEL_RETURN_IF_ERROR(append(0, 5'000'003));
    PASSEL_RETURN_IF_ERROR(append(0, 5'000'001));
    while (!std::ranges::all_of(left, [](const auto& rest) { return rest.empty(); })) {
      for (std::size_t i = 0; i < left.size(); ++i) PASSEL_RETURN_IF_ERROR(append(i, 400'001));
    }
    return writer.Finish();
  }
  std::string Contents() const { return test::FileText(path_); }

  std::vector<std::vector<float>> values_;
  std::vector<TensorSpec> specs_;
  const test::TempDir dir_;
  const std::string path_ = dir_.File("model.safetensors");
};

TEST_F(CheckedWriterTest, ALongFileIsTheSameHoweverItIsWritten) {
  DirectOps cached(Direct::kRefused), refused(Direct::kRefusedAtTheThirdWrite),
      direct(Direct::kIfPossible), giving_way(Direct::kIfPossible),
      slow_giving_way(Direct::kSlowAtFirst), cached_giving_way(Direct::kRefused);
  ASSERT_TRUE(Write(cached).ok());
  ASSERT_TRUE(OpenCheckedTensors(path_).ok());
  const std::string whole = Contents();
  EXPECT_EQ(cached.direct_bytes, 0u);
  EXPECT_EQ(cached.cached_bytes, whole.size());
  const auto is_same = [&](const Status& written) {
    return written.ok() && Contents() == whole && dir_.List().size() == 1;
  };
  EXPECT_TRUE(is_same(Write(refused)));
  EXPECT_TRUE(is_same(Write(direct)));
  if (direct.taken) {
    EXPECT_EQ(direct.direct_bytes + direct.cached_bytes, whole.size());
    EXPECT_GT(direct.direct_bytes, whole.size() / 10 * 9);
    EXPECT_EQ(direct.starts, 0);
  }
  Status written[3];
  std::thread([&] {
    GiveWay();
    written[0] = Write(giving_way);
    EXPECT_TRUE(is_same(written[0]));
    written[1] = Write(cached_giving_way);
    EXPECT_TRUE(is_same(written[1]));
    written[2] = Write(slow_giving_way);  // then the helper is not asked any more
    EXPECT_TRUE(is_same(written[2]));
  }).join();
}

TEST_F(CheckedWriterTest, OneThatGoesThroughTheCacheIsNotLeftToTheLastSync) {
  DirectOps ops(Direct::kRefused);
  {
    const std::vector<std::byte> zeros(std::size_t{8} << 20);
    auto writer = CheckedWriter::Create(path_, {{"w", DType::kF32, {20'000'000}}}, {}, ops);
    ASSERT_TRUE(writer.ok());
    for (int i = 0; i < 9; ++i) ASSERT_TRUE(writer->Append(0, zeros).ok());
  }
  EXPECT_EQ(ops.starts, 2);  // after 32 and 64 of 72 MiB
  EXPECT_TRUE(dir_.List().empty());
}

TEST_F(CheckedWriterTest, WhateverCallFailsTheFormerFileIsThereOrTheNewOne) {
  DirectOps real(Direct::kIfPossible);
  ASSERT_TRUE(Write(real).ok());
  const std::string whole = Contents();
  int failed = 0;
  for (int n = 1;; ++n) {
    ASSERT_LT(n, 200);
    test::PutFileText(path_, "former");
    test::FailingOps ops(n, EIO);
    const Status written = Write(ops);
    if (ops.failed().empty()) break;
    ++failed;
    // Without writes past the cache it goes on.
    EXPECT_TRUE(!written.ok() || ops.failed() == "direct") << n << " " << ops.failed();
    const bool there = written.ok() || ops.failed() == "fsync of the folder";
    EXPECT_TRUE(Contents() == (there ? whole : "former")) << n << " " << ops.failed();
    EXPECT_EQ(dir_.List().size(), 1u) << n << " " << ops.failed();
  }
  EXPECT_GT(failed, 20);
}

}  // namespace
}  // namespace passel

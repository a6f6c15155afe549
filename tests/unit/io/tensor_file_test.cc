#include "io/tensor_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "support/file_text.h"
#include "support/temp_dir.h"

namespace passel {
namespace {

using ::testing::HasSubstr;

class TensorFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::vector<TensorView> tensors = {
        {"w", DType::kF32, {2, 3}, std::as_bytes(std::span(w_))},
        {"step", DType::kI64, {}, std::as_bytes(std::span(&step_, 1))}};
    ASSERT_TRUE(WriteSafetensors(path_, tensors, {{"k", "v"}}).ok());
  }
  const std::vector<float> w_ = {1, 2, 3, 4, 5, 6};
  const std::int64_t step_ = 7;
  const test::TempDir dir_;
  const std::string path_ = dir_.File("f");
};

TEST_F(TensorFileTest, ReadsTheBytesThatAreAskedFor) {
  const auto file = TensorFile::Open(path_);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(file->Word("k"), "v");
  EXPECT_EQ(file->Word("other"), "");
  ASSERT_EQ(file->tensors().size(), 2u);
  EXPECT_EQ(file->tensors()[0].name, "step");
  const TensorFile::Tensor* const w = file->Find("w");
  ASSERT_NE(w, nullptr);
  EXPECT_EQ(file->Find("v"), nullptr);
  EXPECT_EQ(file->Find("x"), nullptr);
  EXPECT_EQ(w->shape, (std::vector<std::int64_t>{2, 3}));
  std::vector<float> row(3);
  ASSERT_TRUE(file->Read(*w, 12, std::as_writable_bytes(std::span(row))).ok());
  EXPECT_EQ(row, (std::vector<float>{4, 5, 6}));
}

TEST_F(TensorFileTest, StaysTheFileThatWasOpened) {
  const auto file = TensorFile::Open(path_);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(WriteSafetensors(path_, {}, {}).ok());
  std::int64_t step = 0;
  ASSERT_TRUE(file->Read(file->tensors()[0], 0, std::as_writable_bytes(std::span(&step, 1))).ok());
  EXPECT_EQ(step, 7);
}

TEST_F(TensorFileTest, WhatIsNoneIsRefusedWithItsPath) {
  EXPECT_EQ(TensorFile::Open(dir_.File("none")).status().code(), Code::kNotFound);
  EXPECT_EQ(TensorFile::Open(dir_.path()).status().code(), Code::kInvalidArgument);
  const std::string whole = test::FileText(path_);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    test::PutFileText(path_, whole.substr(0, size));
    const auto cut = TensorFile::Open(path_);
    EXPECT_EQ(cut.status().code(), Code::kDataLoss) << size;
    EXPECT_THAT(cut.status().message(), HasSubstr(path_));
  }
  // A sparse file that says that it is large asks for no memory.
  std::string huge = whole;
  const std::uint64_t n = std::uint64_t{1} << 40;
  std::memcpy(huge.data(), &n, 8);
  test::PutFileText(path_, huge);
  std::filesystem::resize_file(path_, std::uint64_t{2} << 40);
  EXPECT_THAT(TensorFile::Open(path_).status().message(), HasSubstr("more than the 8388608"));
}

TEST_F(TensorFileTest, AFileThatShrinksIsDataLoss) {
  const auto file = TensorFile::Open(path_);
  ASSERT_TRUE(file.ok());
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) - 4);
  std::vector<float> w(6);
  const Status read = file->Read(*file->Find("w"), 0, std::as_writable_bytes(std::span(w)));
  EXPECT_EQ(read.code(), Code::kDataLoss);
  EXPECT_THAT(read.message(), HasSubstr(path_ + " was cut off at byte"));
}

}  // namespace
}  // namespace passel

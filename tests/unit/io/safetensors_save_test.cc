// Saving when the disk is full and when a call fails. What a crash may leave follows from the order
// of the calls, which tests/unit/base/file_test.cc holds.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "io/safetensors.h"
#include "support/failing_ops.h"
#include "support/temp_dir.h"
#include "unit/io/safetensors_helpers.h"

namespace passel {
namespace {

using test::Bytes;
using test::FailingOps;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Three tensors whose every element is `step`.
struct Model {
  explicit Model(int step)
      : w(6, static_cast<float>(step)), b(3, static_cast<float>(step)), global_step(1, step) {}
  std::vector<TensorView> Tensors() const {
    return {{"w", DType::kF32, {2, 3}, std::as_bytes(std::span(w))},
            {"b", DType::kF32, {3}, std::as_bytes(std::span(b))},
            {"global_step", DType::kI64, {}, std::as_bytes(std::span(global_step))}};
  }
  SafetensorsMetadata Metadata() const { return {{"step", std::to_string(global_step[0])}}; }
  Bytes File() const {
    auto bytes = SerializeSafetensors(Tensors(), Metadata());
    PASSEL_CHECK(bytes.ok(), "the example is correct");
    return *std::move(bytes);
  }
  Status Save(const std::string& path, FileOps& ops) const {
    return WriteSafetensors(path, Tensors(), Metadata(), ops);
  }
  std::vector<float> w;
  std::vector<float> b;
  std::vector<std::int64_t> global_step;
};

class SafetensorsSaveTest : public ::testing::Test {
 protected:
  static int OpenDescriptors() {
    int count = 0;
    for ([[maybe_unused]] const auto& entry :
         std::filesystem::directory_iterator("/proc/self/fd")) {
      ++count;
    }
    return count;
  }
  const test::TempDir dir_;
  const std::string path_ = dir_.File("model.safetensors");
};

TEST_F(SafetensorsSaveTest, EveryFailingCallIsReportedAndLeavesAWholeFile) {
  const Model old_model(1);
  const Model new_model(2);
  for (const int error : {EIO, ENOSPC}) {
    std::vector<std::string> failed;
    for (int n = 1;; ++n) {
      ASSERT_LT(n, 50);
      FailingOps first(n, error);  // of a file that was not there
      (void)new_model.Save(dir_.File("first"), first);
      EXPECT_EQ(std::filesystem::remove(dir_.File("first")),
                first.failed().empty() || first.failed() == "fsync of the folder");
      std::filesystem::remove(path_);
      ASSERT_TRUE(old_model.Save(path_, FileOps::Real()).ok());
      const int descriptors = OpenDescriptors();
      FailingOps ops(n, error);
      const Status saved = new_model.Save(path_, ops);
      EXPECT_EQ(OpenDescriptors(), descriptors) << ops.failed();
      EXPECT_THAT(dir_.List(), ElementsAre("model.safetensors")) << ops.failed();
      if (ops.failed().empty()) {
        ASSERT_TRUE(saved.ok()) << saved.ToString();
        EXPECT_EQ(ReadFile(path_, 1 << 20).value(), new_model.File());
        break;
      }
      failed.push_back(ops.failed());
      EXPECT_EQ(saved.code(), error == EIO ? Code::kInternal : Code::kResourceExhausted);
      EXPECT_THAT(saved.message(), HasSubstr(std::strerror(error)));
      EXPECT_THAT(saved.message(), HasSubstr(dir_.path()));
      // Only when the folder cannot be synced has the new file already taken the place of the old.
      const bool renamed = ops.failed() == "fsync of the folder";
      EXPECT_EQ(ReadFile(path_, 1 << 20).value(), renamed ? new_model.File() : old_model.File())
          << ops.failed();
    }
    EXPECT_THAT(failed, ElementsAre("open", "write", "write", "write", "write", "fsync", "close",
                                    "rename", "fsync of the folder"));
  }
}

TEST_F(SafetensorsSaveTest, ATensorThatCannotBeSavedTouchesNoFile) {
  const Model model(1);
  ASSERT_TRUE(model.Save(path_, FileOps::Real()).ok());
  std::vector<TensorView> tensors = Model(2).Tensors();
  tensors[0].shape = {7};
  FailingOps ops(1, EIO);  // would show any call
  const Status status = WriteSafetensors(path_, tensors, {}, ops);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr(path_));
  EXPECT_EQ(ops.failed(), "");
  EXPECT_EQ(ReadFile(path_, 1 << 20).value(), model.File());
}

}  // namespace
}  // namespace passel

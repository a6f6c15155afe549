// Our files in the reference implementation, and its files here. Needs a Python that has the
// modules safetensors and numpy: PASSEL_TEST_PYTHON names it, else python3.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "io/safetensors.h"
#include "support/reference_script.h"
#include "support/temp_dir.h"
#include "unit/io/safetensors_helpers.h"

namespace passel {
namespace {

using test::AsBytes;
using test::BrokenRule;
using test::Bytes;

int RunScript(const std::string& arguments, std::string* output) {
  return test::RunReference(PASSEL_TEST_DIR "/safetensors_reference.py", arguments, output);
}

template <typename T>
void Append(const std::string& name, DType dtype, std::vector<TensorView>* tensors,
            std::vector<Bytes>* memory) {
  Bytes bytes(6 * sizeof(T));
  for (int i = 0; i < 6; ++i) {
    const T value = static_cast<T>(3 * i - 5);  // wraps for unsigned types, as in NumPy
    std::memcpy(bytes.data() + static_cast<std::size_t>(i) * sizeof(T), &value, sizeof(T));
  }
  memory->push_back(std::move(bytes));
  tensors->push_back({"t/" + name, dtype, {2, 3}, AsBytes(memory->back())});
}

/// What example() in safetensors_reference.py holds.
class Example {
 public:
  Example() {
    memory_.reserve(20);  // spans point into its elements
    Append<double>("float64", DType::kF64, &tensors, &memory_);
    Append<float>("float32", DType::kF32, &tensors, &memory_);
    Append<std::int64_t>("int64", DType::kI64, &tensors, &memory_);
    Append<std::uint8_t>("uint8", DType::kU8, &tensors, &memory_);
    Add("scalar", DType::kF32, {}, {0xCD, 0xCC, 0xCC, 0xBD});  // -0.1
    Add("empty", DType::kF32, {0, 7}, {});
    Add("quote\" back\\ tab-free é中🐗", DType::kF32, {1}, {0x00, 0x00, 0xC0, 0x3F});  // 1.5
  }
  std::vector<TensorView> tensors;
  SafetensorsMetadata metadata{{"step", "17"}, {"text", "line\nbreak \"quoted\" \\ é"}};

 private:
  void Add(std::string name, DType dtype, std::vector<std::int64_t> shape, Bytes bytes) {
    memory_.push_back(std::move(bytes));
    tensors.push_back({std::move(name), dtype, std::move(shape), AsBytes(memory_.back())});
  }
  std::vector<Bytes> memory_;
};

class SafetensorsReferenceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string output;
    const int status = RunScript("check", &output);
    if (test::CannotRun(status)) {
      GTEST_SKIP() << "no Python with safetensors and numpy (set PASSEL_TEST_PYTHON): " << output;
    }
    ASSERT_EQ(status, 0) << output;
  }
  const test::TempDir temporary_;
  const std::string dir_ = temporary_.path();
};

TEST_F(SafetensorsReferenceTest, OurFileLoadsThere) {
  const Example example;
  const std::string path = dir_ + "/ours.safetensors";
  const Status written = WriteSafetensors(path, example.tensors, example.metadata);
  ASSERT_TRUE(written.ok()) << written.ToString();
  std::string output;
  EXPECT_EQ(RunScript("verify " + path, &output), 0) << output;
}

TEST_F(SafetensorsReferenceTest, TheirFileLoadsHere) {
  const Example example;
  const std::string path = dir_ + "/theirs.safetensors";
  std::string output;
  ASSERT_EQ(RunScript("write " + path, &output), 0) << output;
  const auto file = ReadSafetensors(path);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(BrokenRule(AsBytes(file->bytes), *file), "");
  EXPECT_EQ(file->metadata, example.metadata);
  ASSERT_EQ(file->tensors.size(), example.tensors.size());
  for (const TensorView& wanted : example.tensors) {
    const TensorView* const found = file->Find(wanted.name);
    ASSERT_NE(found, nullptr) << wanted.name;
    EXPECT_EQ(found->dtype, wanted.dtype) << wanted.name;
    EXPECT_EQ(found->shape, wanted.shape) << wanted.name;
    EXPECT_TRUE(
        std::equal(found->data.begin(), found->data.end(), wanted.data.begin(), wanted.data.end()))
        << wanted.name;
  }
}

TEST_F(SafetensorsReferenceTest, EveryChangedFileThatWeAcceptIsAcceptedThere) {
  const std::vector<float> w{1, 2, 3};
  const std::vector<TensorView> tensors{{"w", DType::kF32, {3}, std::as_bytes(std::span(w))},
                                        {"none", DType::kI64, {0}, {}}};
  const auto whole = SerializeSafetensors(tensors, {{"k", "v"}});
  ASSERT_TRUE(whole.ok());
  std::uint64_t n = 0;
  std::memcpy(&n, whole->data(), 8);
  std::ofstream out(dir_ + "/accepted", std::ios::binary);
  int accepted = 0;
  for (std::size_t at = 0; at < 8 + n; ++at) {
    for (int value = 0; value < 256; ++value) {
      Bytes changed = *whole;
      changed[at] = static_cast<std::uint8_t>(value);
      if (!ParseSafetensors(AsBytes(changed)).ok()) continue;
      ++accepted;
      const std::uint64_t size = changed.size();
      out.write(reinterpret_cast<const char*>(&size), 8);
      out.write(reinterpret_cast<const char*>(changed.data()), static_cast<std::streamsize>(size));
    }
  }
  out.close();
  ASSERT_GT(accepted, 500);
  std::string output;
  EXPECT_EQ(RunScript("accepts " + dir_ + "/accepted", &output), 0) << output;
  EXPECT_EQ(output, std::to_string(accepted) + "\n");
}

}  // namespace
}  // namespace passel

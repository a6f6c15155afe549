#include "io/checked_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "io/checked_writer.h"
#include "support/file_text.h"
#include "support/temp_dir.h"
#include "unit/io/safetensors_helpers.h"

namespace passel {
namespace {

using ::testing::HasSubstr;

class CheckedTensorsTest : public ::testing::Test {
 protected:
  Status Write(const SafetensorsMetadata& metadata = {{"model", "mlp"}}) const {
    const std::vector<TensorView> tensors = {
        {"w", DType::kF32, {2, 3}, std::as_bytes(std::span(w_))},
        {"t", DType::kI64, {}, std::as_bytes(std::span(t_))},
        {"none", DType::kF32, {0}, {}}};
    return WriteCheckedTensors(path_, tensors, metadata);
  }
  std::string Contents() const { return test::FileText(path_); }
  void Put(const std::string& bytes) const { test::PutFileText(path_, bytes); }

  const std::vector<float> w_ = {1, 2, 3, 4, 5, 6};
  const std::vector<std::int64_t> t_ = {7};
  const test::TempDir dir_;
  const std::string path_ = dir_.File("model.safetensors");
};

// The numbers are Python's:
//   import struct, zlib
//   w = zlib.crc32(b"w\nF32\n2,3\n" + struct.pack("<6f", 1, 2, 3, 4, 5, 6))
//   t = zlib.crc32(b"t\nI64\n\n" + struct.pack("<q", 7)); none = zlib.crc32(b"none\nF32\n0\n")
//   all = {"crc32/w": f"{w:08x}", "crc32/t": f"{t:08x}", "crc32/none": f"{none:08x}",
//          "model": "mlp"}
//   zlib.crc32("".join(f"{k}\n{v}\n" for k, v in sorted(all.items())).encode())
TEST_F(CheckedTensorsTest, HasTheChecksumsThatPythonComputes) {
  ASSERT_TRUE(Write().ok());
  const auto file = OpenCheckedTensors(path_);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(file->metadata(), (SafetensorsMetadata{{"crc32", "3d391aa1"},
                                                   {"crc32/none", "b6b5b9be"},
                                                   {"crc32/t", "58b245c4"},
                                                   {"crc32/w", "e0ce396b"},
                                                   {"model", "mlp"}}));
}

TEST_F(CheckedTensorsTest, EveryBitThatChangesIsSeen) {
  ASSERT_TRUE(Write().ok());
  const std::string whole = Contents();
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bytes = whole;
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
      Put(bytes);
      EXPECT_FALSE(OpenCheckedTensors(path_).ok()) << "bit " << bit << " of byte " << i;
    }
  }
  for (std::size_t size = 0; size < whole.size(); ++size) {
    Put(whole.substr(0, size));
    EXPECT_FALSE(OpenCheckedTensors(path_).ok()) << size;
  }
  Put(whole + " ");
  EXPECT_FALSE(OpenCheckedTensors(path_).ok());
  Put(whole);
  EXPECT_TRUE(OpenCheckedTensors(path_).ok());
}

TEST_F(CheckedTensorsTest, SaysWhatIsNotAsItWasWritten) {
  ASSERT_TRUE(Write().ok());
  std::string bytes = Contents();
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  Put(bytes);
  const auto changed = OpenCheckedTensors(path_);
  EXPECT_EQ(changed.status().code(), Code::kDataLoss);
  EXPECT_THAT(changed.status().message(),
              HasSubstr(path_ + ": tensor \"w\" changed since it was written (CRC32 "));
  // A file without checksums.
  ASSERT_TRUE(WriteSafetensors(path_, {}, {{"model", "mlp"}}).ok());
  const auto without = OpenCheckedTensors(path_);
  EXPECT_EQ(without.status().code(), Code::kDataLoss);
  EXPECT_THAT(without.status().message(), HasSubstr("the description of the file has no checksum"));
}

TEST_F(CheckedTensorsTest, TheKeysOfChecksumsAreNotFree) {
  for (const char* key : {"crc32", "crc32/w", "crc32x"}) {
    const Status written = Write({{key, "1"}});
    EXPECT_EQ(written.code(), Code::kInvalidArgument);
    EXPECT_THAT(written.message(), HasSubstr("is kept for checksums: use another"));
  }
}

TEST_F(CheckedTensorsTest, PiecesThatAlternateMakeTheSameFile) {
  ASSERT_TRUE(Write({{"blocks", "17"}, {"model", "mlp"}}).ok());
  const std::string whole = Contents();
  auto writer = CheckedWriter::Create(
      path_, {{"w", DType::kF32, {2, 3}}, {"t", DType::kI64, {}}, {"none", DType::kF32, {0}}},
      {{"blocks", "??"}, {"model", "mlp"}});
  ASSERT_TRUE(writer.ok()) << writer.status().ToString();
  const auto w = std::as_bytes(std::span(w_)), t = std::as_bytes(std::span(t_));
  ASSERT_TRUE(writer->Append(0, w.first(5)).ok());
  ASSERT_TRUE(writer->Append(1, t.first(1)).ok());
  ASSERT_TRUE(writer->Append(0, w.subspan(5)).ok());
  ASSERT_TRUE(writer->Append(1, t.subspan(1)).ok());
  EXPECT_EQ(Contents(), whole) << "what was there before is there until Finish()";
  ASSERT_TRUE(writer->Finish({{"blocks", "17"}}).ok());
  EXPECT_EQ(Contents(), whole);
  EXPECT_TRUE(OpenCheckedTensors(path_).ok());
}

TEST_F(CheckedTensorsTest, AWriterThatDoesNotFinishLeavesWhatWasThere) {
  ASSERT_TRUE(Write().ok());
  const std::string whole = Contents();
  {
    auto writer = CheckedWriter::Create(path_, {{"w", DType::kF32, {2, 3}}}, {});
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(writer->Append(0, std::as_bytes(std::span(w_)).first(8)).ok());
  }
  EXPECT_EQ(Contents(), whole);
  EXPECT_EQ(dir_.List(), std::vector<std::string>{"model.safetensors"});
}

// Counts the writes.
class CountingOps : public FileOps {
 public:
  int WriteAt(int fd, const void* data, std::size_t bytes, std::uint64_t offset) override {
    ++writes;
    return FileOps::WriteAt(fd, data, bytes, offset);
  }
  int writes = 0;
};

TEST_F(CheckedTensorsTest, SmallPiecesAreGathered) {
  // 1,000 tensors in another order than in the file, in pieces, around one of 12 MB.
  std::vector<std::vector<float>> values;
  std::vector<TensorSpec> specs;
  std::vector<TensorView> views;
  std::mt19937 random(3);
  for (int i = 0; i < 1000; ++i) {
    values.emplace_back(i == 500 ? 3'000'000 : 1 + random() % 200);
    for (float& value : values.back()) value = static_cast<float>(random());
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    specs.push_back({"t" + std::to_string(i * 7 % 1000),
                     DType::kF32,
                     {static_cast<std::int64_t>(values[i].size())}});
    views.push_back(
        {specs[i].name, DType::kF32, specs[i].shape, std::as_bytes(std::span(values[i]))});
  }
  ASSERT_TRUE(WriteCheckedTensors(path_, views, {}).ok());
  const std::string whole = Contents();
  CountingOps ops;
  auto writer = CheckedWriter::Create(path_, specs, {}, ops);
  ASSERT_TRUE(writer.ok()) << writer.status().ToString();
  for (std::size_t i = 0; i < views.size(); ++i) {
    for (auto left = views[i].data; !left.empty();) {
      const auto piece = left.first(std::min<std::size_t>(left.size(), 1 + random() % 9000));
      ASSERT_TRUE(writer->Append(i, piece).ok());
      left = left.subspan(piece.size());
    }
  }
  ASSERT_TRUE(writer->Finish().ok());
  EXPECT_EQ(writer->bytes(), whole.size());
  EXPECT_TRUE(Contents() == whole);
  // The header, what is before and behind the large one, and that in about twelve of 1 MiB each,
  // one more wherever what had waited ends.
  EXPECT_LE(ops.writes, 1 + 3 + 12 + 2 * 3);
}

}  // namespace
}  // namespace passel

#include "data/npz.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/data/test_files.h"
#include "tests/unit/data/zip_files.h"

namespace passel {
namespace {

using test::Bytes;
using test::ZipFile;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Three training and two test images, whose archive a test may change before it is read.
class NpzTest : public ::testing::Test {
 protected:
  enum { kTrainX, kTrainY, kTestX, kTestY };

  Result<NpzReader> Open(const Bytes& archive) {
    return NpzReader::OpenBytes(test::View(archive), "some.npz");
  }
  Result<NpzReader> Open() {
    archive_ = test::Zip(files_);
    return Open(archive_);
  }
  // Opens and reads all arrays; they go to arrays_.
  Status ReadAll(const Bytes& archive) {
    auto reader = Open(archive);
    if (!reader.ok()) return reader.status();
    for (std::size_t part = 0; part < 4; ++part) {
      const std::size_t count = part < 2 ? reader->train_count() : reader->test_count();
      arrays_[part].assign(count * (part % 2 == 0 ? 784 : 1), 77);
      PASSEL_RETURN_IF_ERROR(
          reader->ReadArray(part, std::as_writable_bytes(std::span(arrays_[part]))));
    }
    return {};
  }
  Status ReadAll() {
    archive_ = test::Zip(files_);
    return ReadAll(archive_);
  }
  void ExpectAll() {
    EXPECT_EQ(arrays_[0], train_pixels_);
    EXPECT_EQ(arrays_[1], (Bytes{3, 0, 9}));
    EXPECT_EQ(arrays_[2], test_pixels_);
    EXPECT_EQ(arrays_[3], (Bytes{1, 8}));
  }
  void ExpectError(Code code, const std::string& text) {
    const Status status = ReadAll();
    EXPECT_EQ(status.code(), code) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr(text));
  }

  const Bytes train_pixels_ = test::Ramp(3 * 784), test_pixels_ = test::Ramp(2 * 784, 100);
  std::vector<ZipFile> files_ = {{"x_train.npy", test::Npy("|u1", "(3, 28, 28)", train_pixels_)},
                                 {"y_train.npy", test::Npy("|u1", "(3,)", {3, 0, 9})},
                                 {"x_test.npy", test::Npy("|u1", "(2, 28, 28)", test_pixels_)},
                                 {"y_test.npy", test::Npy("|u1", "(2,)", {1, 8})}};
  Bytes archive_;
  Bytes arrays_[4];
};

TEST_F(NpzTest, ReadsStoredAndDeflatedArraysInAnyOrder) {
  for (const bool deflate : {false, true}) {
    for (ZipFile& file : files_) file.deflate = deflate;
    const Status status = ReadAll();
    ASSERT_TRUE(status.ok()) << status.ToString();
    ExpectAll();
    std::swap(files_[0], files_[3]);
    files_.push_back({"other.npy", {1, 2, 3}});
    ASSERT_TRUE(ReadAll().ok());
    ExpectAll();
    files_.pop_back();
    std::swap(files_[0], files_[3]);
  }
}

TEST_F(NpzTest, ReadsFlatImagesAndEveryNpyVersion) {
  files_[kTrainX].content = test::Npy("u1", "(3, 784)", train_pixels_, 2);
  files_[kTestX].content = test::Npy("<u1", "(2, 784)", test_pixels_, 3);
  ASSERT_TRUE(ReadAll().ok());
  ExpectAll();
}

TEST_F(NpzTest, ReadsImagesOfAnySize) {
  const Bytes train = test::Ramp(3 * 5 * 7), test = test::Ramp(2 * 5 * 7, 9);
  for (const char* shape : {"(3, 5, 7)", "(3, 35)"}) {
    files_[kTrainX].content = test::Npy("|u1", shape, train);
    files_[kTestX].content = test::Npy("|u1", "(2, 35)", test);
    auto reader = Open();
    ASSERT_TRUE(reader.ok()) << reader.status().ToString();
    EXPECT_EQ(reader->pixels(), 35u);
    EXPECT_EQ(reader->rows(), shape[4] == '5' ? 5u : 0u);
    EXPECT_EQ(reader->cols(), shape[4] == '5' ? 7u : 0u);
    Bytes images(2 * 35);
    ASSERT_TRUE(reader->ReadArray(kTestX, std::as_writable_bytes(std::span(images))).ok());
    EXPECT_EQ(images, test);
  }
}

TEST_F(NpzTest, ReadsAnArrayTwice) {
  auto reader = Open();
  ASSERT_TRUE(reader.ok());
  for (int time = 0; time < 2; ++time) {
    Bytes labels(3);
    ASSERT_TRUE(reader->ReadArray(kTrainY, std::as_writable_bytes(std::span(labels))).ok());
    EXPECT_EQ(labels, (Bytes{3, 0, 9}));
  }
}

TEST_F(NpzTest, ReadsLabelsOfEveryIntegerType) {
  const std::pair<const char*, Bytes> types[] = {
      {"|i1", {3, 0, 9}},
      {"<u2", {3, 0, 0, 0, 9, 0}},
      {">u2", {0, 3, 0, 0, 0, 9}},
      {"<i4", {3, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0}},
      {">i4", {0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 9}},
      {"<i8", {3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0}},
      {">u8", {0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9}},
  };
  for (const auto& [type, bytes] : types) {
    files_[kTrainY].content = test::Npy(type, "(3,)", bytes);
    const Status status = ReadAll();
    ASSERT_TRUE(status.ok()) << type << status.ToString();
    ExpectAll();
  }
}

TEST_F(NpzTest, ReadsMoreWideLabelsThanOneChunkHolds) {
  constexpr std::size_t kCount = 20'000;  // 160,000 bytes
  Bytes labels, wide;
  for (std::size_t i = 0; i < kCount; ++i) {
    labels.push_back(static_cast<std::uint8_t>(i % 251));
    test::AppendLittle(&wide, i % 251, 8);
  }
  files_[kTrainX].content = test::Npy("|u1", "(20000, 784)", Bytes(kCount * 784, 5));
  files_[kTrainX].deflate = true;
  files_[kTrainY].content = test::Npy("<i8", "(20000,)", wide);
  ASSERT_TRUE(ReadAll().ok());
  EXPECT_EQ(arrays_[1], labels);
}

TEST_F(NpzTest, RefusesLabelsThatAreNoBytes) {
  files_[kTrainY].content = test::Npy("<i2", "(3,)", {3, 0, 0xfe, 0xff, 9, 0});
  ExpectError(Code::kInvalidArgument, "label number 1 of y_train.npy in some.npz is -2,");
  files_[kTrainY].content = test::Npy("|i1", "(3,)", {3, 0, 0x80});
  ExpectError(Code::kInvalidArgument, "label number 2 of y_train.npy in some.npz is -128,");
  files_[kTrainY].content = test::Npy(">u4", "(3,)", {0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 9});
  ExpectError(Code::kInvalidArgument, "label number 0 of y_train.npy in some.npz is 256,");
  Bytes huge(24, 0xff);
  files_[kTrainY].content = test::Npy("<u8", "(3,)", huge);
  ExpectError(Code::kInvalidArgument, "is 18446744073709551615,");
  files_[kTrainY].content = test::Npy("<i8", "(3,)", huge);
  ExpectError(Code::kInvalidArgument, "is -1,");
  for (const char* type : {"<f4", "|b1", "<u16", "<i3"}) {
    files_[kTrainY].content = test::Npy(type, "(3,)", {});
    ExpectError(Code::kInvalidArgument, std::string("elements of type '") + type + "'");
  }
}

TEST_F(NpzTest, RefusesImagesOfAnotherTypeShapeOrOrder) {
  for (const char* type : {"<f4", "|i1", "<u2", "|b1"}) {
    files_[kTestX].content = test::Npy(type, "(2, 28, 28)", test_pixels_);
    ExpectError(Code::kInvalidArgument, std::string("elements of type '") + type + "'");
  }
  for (const char* shape : {"(1568,)", "(2, 28, 28, 1)", "()", "(2, 14, 56)", "(2, 784, 1)"}) {
    files_[kTestX].content = test::Npy("|u1", shape, test_pixels_);
    ExpectError(Code::kInvalidArgument, std::string("has the shape ") + shape);
  }
  for (const char* shape : {"(2, 785)", "(2, 28, 29)"}) {
    files_[kTestX].content = test::Npy("|u1", shape, test::Ramp(2 * 28 * 29));
    files_[kTestX].content.resize(files_[kTestX].content.size() - 2 * 28 * 29 +
                                  (shape[4] == '7' ? 2 * 785 : 2 * 28 * 29));
    ExpectError(Code::kInvalidArgument, std::string("has the shape ") + shape +
                                            ", and the images of x_train.npy are of another size");
  }
  files_[kTestX].content = test::NpyText(
      "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 28, 28), }", test_pixels_);
  ExpectError(Code::kInvalidArgument, "is in Fortran order");
  files_[kTestX].content = test::Npy("|u1", "(2, 28, 28)", test_pixels_);
  files_[kTestY].content = test::Npy("|u1", "(2, 1)", {1, 8});
  ExpectError(Code::kInvalidArgument, "has the shape (2, 1), but labels have (n,)");
}

TEST_F(NpzTest, RefusesArraysThatDoNotFitOneAnother) {
  files_[kTrainY].content = test::Npy("|u1", "(2,)", {3, 0});
  ExpectError(Code::kDataLoss, "has 3 images but y_train.npy in some.npz has 2 labels");
}

TEST_F(NpzTest, NamesWhatIsMissing) {
  files_.erase(files_.begin() + kTestX);
  files_.erase(files_.begin() + kTrainY);
  ExpectError(Code::kNotFound, "some.npz lacks y_train.npy, x_test.npy: it must hold");
  files_.clear();
  ExpectError(Code::kNotFound, "lacks x_train.npy, y_train.npy, x_test.npy, y_test.npy");
}

TEST_F(NpzTest, RefusesNamesThatOccurTwice) {
  files_.push_back(files_[kTrainY]);
  ExpectError(Code::kInvalidArgument, "holds y_train.npy 2 times");
  files_.push_back(files_[kTrainY]);
  ExpectError(Code::kInvalidArgument, "holds y_train.npy 3 times");
}

TEST_F(NpzTest, RefusesAWrongChecksum) {
  for (const bool deflate : {false, true}) {
    for (ZipFile& file : files_) {
      file.deflate = deflate;
      file.crc = 0x12345678;
      ExpectError(Code::kDataLoss, file.name + " in some.npz cannot be read (CRC error)");
      file.crc.reset();
    }
  }
}

TEST_F(NpzTest, BelievesNoSizeInTheDirectory) {
  for (const bool deflate : {false, true}) {
    ZipFile& file = files_[kTestX];
    file.deflate = deflate;
    const auto size = static_cast<std::uint32_t>(file.content.size());
    for (const std::uint32_t claimed : {0u, 1u, size - 1, size + 1, 0x7fffffffu, 0xfffffffeu}) {
      file.size = claimed;
      const Status status = ReadAll();
      EXPECT_EQ(status.code(), Code::kDataLoss) << claimed << status.ToString();
    }
    file.size.reset();
    for (const std::uint32_t claimed : {0u, 1u, 0x7fffffffu, 0xfffffffeu}) {
      file.compressed_size = claimed;
      const Status status = ReadAll();
      EXPECT_EQ(status.code(), Code::kDataLoss) << claimed << status.ToString();
    }
    file.compressed_size.reset();
  }
}

TEST_F(NpzTest, RefusesEncryptionAndOtherCompression) {
  files_[kTrainX].flags = 1;
  ExpectError(Code::kInvalidArgument, "is encrypted");
  files_[kTrainX].flags = 0;
  for (const std::uint16_t method : {1, 9, 12, 14, 93}) {
    files_[kTrainX].method = method;
    ExpectError(Code::kInvalidArgument,
                "is compressed with method " + std::to_string(method) + ",");
  }
}

TEST_F(NpzTest, DoesNotInflateABombPastItsHeader) {
  // 50 MB in 50 kB, behind a header that announces two images.
  Bytes bomb = test::Npy("|u1", "(2, 28, 28)", Bytes(50'000'000, 0));
  files_[kTestX] = {"x_test.npy", bomb, true};
  ExpectError(Code::kDataLoss, "has trailing bytes");
  // The same with a directory that agrees with the header: found out after one byte too many.
  files_[kTestX].size = static_cast<std::uint32_t>(bomb.size() - 50'000'000 + 1568);
  ASSERT_LT(test::Zip(files_).size(), 300'000u);
  const Status status = ReadAll();
  EXPECT_EQ(status.code(), Code::kDataLoss) << status.ToString();
}

TEST_F(NpzTest, BelievesNoHostileShape) {
  for (const char* count : {"0", "5478274", "60000000", "4294967296", "4294967297",
                            "18446744073709551615", "23529515"}) {
    const std::string shape = std::string("(") + count + ", 28, 28)";
    files_[kTrainX].content = test::Npy("|u1", shape, train_pixels_);
    const auto reader = Open();  // before anybody allocates for it
    EXPECT_FALSE(reader.ok()) << count;
  }
  // One that the directory agrees with, and the limits allow.
  files_[kTrainX] = {"x_train.npy", test::Npy("|u1", "(5000000, 28, 28)", train_pixels_), true};
  files_[kTrainX].size = static_cast<std::uint32_t>(files_[kTrainX].content.size() -
                                                    train_pixels_.size() + 5'000'000ull * 784);
  EXPECT_THAT(Open().status().message(), HasSubstr("compressed bytes hold at most"));
}

TEST_F(NpzTest, RefusesEveryShorterArchive) {
  for (ZipFile& file : files_) file.deflate = true;
  const Bytes whole = test::Zip(files_);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    const Status status = ReadAll(cut);
    ASSERT_FALSE(status.ok()) << size;
    EXPECT_THAT(status.message(), HasSubstr("some.npz"));
  }
}

TEST_F(NpzTest, NoFlippedBitIsReadAsOtherData) {
  for (const bool deflate : {false, true}) {
    for (ZipFile& file : files_) file.deflate = deflate;
    const Bytes whole = test::Zip(files_);
    int refused = 0;
    for (std::size_t at = 0; at < whole.size(); ++at) {
      const int bit = static_cast<int>(at * 5 % 8);
      Bytes broken = whole;
      broken[at] ^= static_cast<std::uint8_t>(1 << bit);
      if (ReadAll(broken).ok()) {
        ExpectAll();  // a bit that says nothing, such as the time
      } else {
        ++refused;
      }
    }
    EXPECT_GT(refused, static_cast<int>(whole.size()) / 2);
  }
}

TEST_F(NpzTest, OpensOnlyArchives) {
  const test::TempDir dir;
  EXPECT_EQ(NpzReader::Open(dir.File("absent")).status().code(), Code::kNotFound);
  EXPECT_EQ(NpzReader::Open(dir.path()).status().code(), Code::kInvalidArgument);
  test::WriteAll(dir.File("text"), {'h', 'e', 'l', 'l', 'o'});
  const Status status = NpzReader::Open(dir.File("text")).status();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), AllOf(HasSubstr(dir.File("text")), HasSubstr("no zip archive")));
  test::WriteAll(dir.File("x.npz"), test::Zip(files_));
  EXPECT_TRUE(NpzReader::Open(dir.File("x.npz")).ok());
  EXPECT_FALSE(IsKerasMnist(dir.File("x.npz")));
}

}  // namespace
}  // namespace passel

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
using test::Fails;
using test::ZipFile;
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
  void ExpectArrays() {
    EXPECT_EQ(arrays_[0], train_pixels_);
    EXPECT_EQ(arrays_[1], (Bytes{3, 0, 9}));
    EXPECT_EQ(arrays_[2], test_pixels_);
    EXPECT_EQ(arrays_[3], (Bytes{1, 8}));
  }
  void ExpectAll() {
    const Status status = ReadAll();
    ASSERT_TRUE(status.ok()) << status.ToString();
    ExpectArrays();
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
    ExpectAll();
    std::swap(files_[0], files_[3]);
    files_.push_back({"other.npy", {1, 2, 3}});
    ExpectAll();
    files_.pop_back();
    std::swap(files_[0], files_[3]);
  }
  files_[kTrainX].content = test::Npy("u1", "(3, 784)", train_pixels_, 2);
  files_[kTestX].content = test::Npy("<u1", "(2, 784)", test_pixels_, 3);
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
    SCOPED_TRACE(type);
    files_[kTrainY].content = test::Npy(type, "(3,)", bytes);
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

// What one array is instead.
TEST_F(NpzTest, RefusesArraysOfAnotherTypeShapeOrOrder) {
  const Bytes ones(24, 0xff);
  const std::string x = "|u1", images = "(2, 28, 28)", n = "(3,)";
  const auto type = [](const char* name) { return std::string("elements of type '") + name + "'"; };
  const auto shape = [](const char* text) { return std::string("has the shape ") + text; };
  struct Case {
    std::size_t part;
    std::string type, shape;
    Bytes elements;
    std::string says;
  };
  std::vector<Case> cases = {
      {kTrainY, "<i2", n, {3, 0, 0xfe, 0xff, 9, 0}, "number 1 of y_train.npy in some.npz is -2,"},
      {kTrainY, "|i1", n, {3, 0, 0x80}, "number 2 of y_train.npy in some.npz is -128,"},
      {kTrainY, ">u4", n, {0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 9}, "label number 0 of"},
      {kTrainY, "<u8", n, ones, "is 18446744073709551615,"},
      {kTrainY, "<i8", n, ones, "is -1,"},
      {kTestY, x, "(2, 1)", {1, 8}, "has the shape (2, 1), but labels have (n,)"},
      {kTestX, x, "(2, 785)", Bytes(2 * 785),
       "has the shape (2, 785), and the images of x_train.npy are of another size"},
      {kTestX, x, "(2, 28, 29)", Bytes(2 * 28 * 29),
       "has the shape (2, 28, 29), and the images of x_train.npy are of another size"},
  };
  for (const char* bad : {"<f4", "|b1", "<u16", "<i3"}) {
    cases.push_back({kTrainY, bad, n, {}, type(bad)});
  }
  for (const char* bad : {"<f4", "|i1", "<u2", "|b1"}) {
    cases.push_back({kTestX, bad, images, test_pixels_, type(bad)});
  }
  for (const char* bad : {"(1568,)", "(2, 28, 28, 1)", "()", "(2, 14, 56)", "(2, 784, 1)"}) {
    cases.push_back({kTestX, x, bad, test_pixels_, shape(bad)});
  }
  for (const Case& c : cases) {
    const Bytes good =
        std::exchange(files_[c.part].content, test::Npy(c.type, c.shape, c.elements));
    EXPECT_THAT(ReadAll(), Fails(Code::kInvalidArgument, c.says));
    files_[c.part].content = good;
  }
  files_[kTestX].content = test::NpyText(
      "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 28, 28), }", test_pixels_);
  EXPECT_THAT(ReadAll(), Fails(Code::kInvalidArgument, "is in Fortran order"));
}

TEST_F(NpzTest, NamesWhatIsMissing) {
  files_.erase(files_.begin() + kTestX);
  files_.erase(files_.begin() + kTrainY);
  EXPECT_THAT(ReadAll(),
              Fails(Code::kNotFound, "some.npz lacks y_train.npy, x_test.npy: it must hold"));
  files_.clear();
  EXPECT_THAT(ReadAll(),
              Fails(Code::kNotFound, "lacks x_train.npy, y_train.npy, x_test.npy, y_test.npy"));
}

TEST_F(NpzTest, RefusesNamesThatOccurTwice) {
  files_.push_back(files_[kTrainY]);
  EXPECT_THAT(ReadAll(), Fails(Code::kInvalidArgument, "holds y_train.npy 2 times"));
  files_.push_back(files_[kTrainY]);
  EXPECT_THAT(ReadAll(), Fails(Code::kInvalidArgument, "holds y_train.npy 3 times"));
}

TEST_F(NpzTest, RefusesAWrongChecksum) {
  for (const bool deflate : {false, true}) {
    for (ZipFile& file : files_) {
      file.deflate = deflate;
      file.crc = 0x12345678;
      EXPECT_THAT(ReadAll(),
                  Fails(Code::kDataLoss, file.name + " in some.npz cannot be read (CRC error)"));
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
      EXPECT_THAT(ReadAll(), Fails(Code::kDataLoss)) << claimed;
    }
    file.size.reset();
    for (const std::uint32_t claimed : {0u, 1u, 0x7fffffffu, 0xfffffffeu}) {
      file.compressed_size = claimed;
      EXPECT_THAT(ReadAll(), Fails(Code::kDataLoss)) << claimed;
    }
    file.compressed_size.reset();
  }
}

TEST_F(NpzTest, RefusesEncryptionAndOtherCompression) {
  files_[kTrainX].flags = 1;
  EXPECT_THAT(ReadAll(), Fails(Code::kInvalidArgument, "is encrypted"));
  files_[kTrainX].flags = 0;
  for (const std::uint16_t method : {1, 9, 12, 14, 93}) {
    files_[kTrainX].method = method;
    EXPECT_THAT(ReadAll(), Fails(Code::kInvalidArgument,
                                 "is compressed with method " + std::to_string(method) + ","));
  }
}

TEST_F(NpzTest, DoesNotInflateABombPastItsHeader) {
  // 50 MB in 50 kB, behind a header that announces two images.
  Bytes bomb = test::Npy("|u1", "(2, 28, 28)", Bytes(50'000'000, 0));
  files_[kTestX] = {"x_test.npy", bomb, true};
  EXPECT_THAT(ReadAll(), Fails(Code::kDataLoss, "has trailing bytes"));
  // The same with a directory that agrees with the header: found out after one byte too many.
  files_[kTestX].size = static_cast<std::uint32_t>(bomb.size() - 50'000'000 + 1568);
  ASSERT_LT(test::Zip(files_).size(), 300'000u);
  EXPECT_THAT(ReadAll(), Fails(Code::kDataLoss));
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
    const Status status = ReadAll(test::First(whole, size));
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
        ExpectArrays();  // a bit that says nothing, such as the time
      } else {
        ++refused;
      }
    }
    EXPECT_GT(refused, static_cast<int>(whole.size()) / 2);
  }
}

TEST_F(NpzTest, OpensOnlyArchives) {
  const test::TempDir dir;
  EXPECT_THAT(NpzReader::Open(dir.File("absent")), Fails(Code::kNotFound));
  EXPECT_THAT(NpzReader::Open(dir.path()), Fails(Code::kInvalidArgument));
  test::WriteAll(dir.File("text"), {'h', 'e', 'l', 'l', 'o'});
  EXPECT_THAT(NpzReader::Open(dir.File("text")),
              Fails(Code::kDataLoss, dir.File("text"), "no zip archive"));
  test::WriteAll(dir.File("x.npz"), test::Zip(files_));
  EXPECT_TRUE(NpzReader::Open(dir.File("x.npz")).ok());
  EXPECT_FALSE(IsKerasMnist(dir.File("x.npz")));
}

}  // namespace
}  // namespace passel

#include "data/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "tests/unit/data/test_files.h"

namespace passel {
namespace {

using test::Bytes;
using ::testing::HasSubstr;

Result<IdxReader> Open(const Bytes& file, IdxKind kind = IdxKind::kImages) {
  return IdxReader::Open(std::make_unique<SpanSource>(test::View(file)), kind, "some/file");
}

// Opens and reads everything; the payload goes to `out` if that is given.
Status Decode(const Bytes& file, IdxKind kind = IdxKind::kImages, Bytes* out = nullptr) {
  auto reader = Open(file, kind);
  if (!reader.ok()) return reader.status();
  Bytes payload(reader->shape().PayloadBytes());
  Status status = reader->ReadPayload(std::as_writable_bytes(std::span(payload)));
  if (out != nullptr) *out = payload;
  return status;
}

// Hands out one byte at a time, so that every boundary inside the reader is met.
class ByteByByteSource : public SpanSource {
 public:
  using SpanSource::SpanSource;
  Result<std::size_t> Read(std::span<std::byte> to) override {
    return SpanSource::Read(to.first(std::min<std::size_t>(1, to.size())));
  }
};

const Bytes kRamp = test::Ramp(3 * 4 * 5);
const Bytes kImages = test::Idx({2051, 3, 4, 5}, kRamp);
const Bytes kLabels = test::Idx({2049, 4}, {7, 0, 9, 1});

TEST(IdxTest, ReadsPlainImagesAndLabels) {
  const auto reader = Open(kImages);
  ASSERT_TRUE(reader.ok()) << reader.status().ToString();
  EXPECT_EQ(reader->shape(), (IdxShape{3, 4, 5}));
  Bytes out;
  ASSERT_TRUE(Decode(kImages, IdxKind::kImages, &out).ok());
  EXPECT_EQ(out, kRamp);
  ASSERT_TRUE(Decode(kLabels, IdxKind::kLabels, &out).ok());
  EXPECT_EQ(out, (Bytes{7, 0, 9, 1}));
}

TEST(IdxTest, ReadsGzipByItsContent) {
  Bytes out;
  ASSERT_TRUE(Decode(test::Gzip(kImages), IdxKind::kImages, &out).ok());
  EXPECT_EQ(out, kRamp);
}

TEST(IdxTest, ReadsSeveralGzipMembersAsOneFile) {
  for (std::size_t cut = 0; cut <= kImages.size(); cut += 7) {
    const auto middle = kImages.begin() + static_cast<std::ptrdiff_t>(cut);
    Bytes file = test::Gzip(Bytes(kImages.begin(), middle));
    const Bytes second = test::Gzip(Bytes(middle, kImages.end()));
    file.insert(file.end(), second.begin(), second.end());
    Bytes out;
    const Status status = Decode(file, IdxKind::kImages, &out);
    ASSERT_TRUE(status.ok()) << cut << ": " << status.ToString();
    EXPECT_EQ(out, kRamp);
  }
}

TEST(IdxTest, ReadsTheSameFromASourceThatDrips) {
  for (const Bytes& file : {kImages, test::Gzip(kImages)}) {
    auto reader = IdxReader::Open(std::make_unique<ByteByByteSource>(test::View(file)),
                                  IdxKind::kImages, "drip");
    ASSERT_TRUE(reader.ok()) << reader.status().ToString();
    Bytes out(kRamp.size());
    ASSERT_TRUE(reader->ReadPayload(std::as_writable_bytes(std::span(out))).ok());
    EXPECT_EQ(out, kRamp);
  }
}

TEST(IdxTest, NamesAWrongMagicNumberInTheReferenceWords) {
  const Status images = Decode(kLabels, IdxKind::kImages);
  EXPECT_EQ(images.code(), Code::kInvalidArgument);
  EXPECT_THAT(images.message(),
              HasSubstr("Invalid magic number 2049 in MNIST image file: some/file"));
  const Status labels = Decode(test::Gzip(kImages), IdxKind::kLabels);
  EXPECT_EQ(labels.code(), Code::kInvalidArgument);
  EXPECT_THAT(labels.message(),
              HasSubstr("Invalid magic number 2051 in MNIST label file: some/file"));
  // Four bytes are enough to tell: "<!DO" of a web page.
  EXPECT_THAT(Decode({'<', '!', 'D', 'O'}).message(), HasSubstr("Invalid magic number 1008813135"));
}

TEST(IdxTest, RefusesEveryShorterPlainFile) {
  for (std::size_t size = 0; size < kImages.size(); ++size) {
    const Status status =
        Decode(Bytes(kImages.begin(), kImages.begin() + static_cast<std::ptrdiff_t>(size)));
    ASSERT_EQ(status.code(), Code::kDataLoss) << size << ": " << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr("is cut off"));
  }
  Bytes file(kImages.begin(), kImages.end() - 1);
  EXPECT_THAT(Decode(file).message(), HasSubstr("announces 76 bytes and it has 75"));
}

TEST(IdxTest, RefusesEveryShorterGzipFile) {
  const Bytes whole = test::Gzip(kImages);
  for (std::size_t size = 2; size < whole.size(); ++size) {
    const Status status =
        Decode(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)));
    ASSERT_EQ(status.code(), Code::kDataLoss) << size << ": " << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr("is cut off"));
  }
}

TEST(IdxTest, NamesExpectedAndActualBytesWhenGzipHoldsTooLittle) {
  Bytes shorter(kImages.begin(), kImages.end() - 6);
  const Status status = Decode(test::Gzip(shorter));
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("announces 76 bytes and it holds 70"));
}

TEST(IdxTest, RefusesTrailingBytes) {
  Bytes longer = kImages;
  longer.push_back(0);
  for (const Bytes& file : {longer, test::Gzip(longer)}) {
    const Status status = Decode(file);
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr("trailing bytes"));
  }
  Bytes behind = test::Gzip(kImages);
  behind.push_back(0);
  EXPECT_THAT(Decode(behind).message(), HasSubstr("goes on after the end of its gzip data"));
}

TEST(IdxTest, RefusesEveryFlippedBitOfTheGzipChecksum) {
  const Bytes whole = test::Gzip(kImages);
  for (std::size_t back = 1; back <= 8; ++back) {  // CRC-32 and length
    for (int bit = 0; bit < 8; ++bit) {
      Bytes broken = whole;
      broken[broken.size() - back] ^= static_cast<std::uint8_t>(1 << bit);
      const Status status = Decode(broken);
      ASSERT_EQ(status.code(), Code::kDataLoss) << back << "/" << bit << status.ToString();
      EXPECT_THAT(status.message(), HasSubstr("corrupt"));
    }
  }
}

TEST(IdxTest, NoFlippedBitOfAGzipFileIsReadAsOtherPixels) {
  const Bytes whole = test::Gzip(kImages);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      Bytes broken = whole;
      broken[at] ^= static_cast<std::uint8_t>(1 << bit);
      Bytes out;
      if (Decode(broken, IdxKind::kImages, &out).ok()) {
        EXPECT_EQ(out, kRamp) << at;  // a bit that says nothing, such as the modification time
      }
    }
  }
}

TEST(IdxTest, DoesNotInflateAGzipBombPastItsHeader) {
  Bytes bomb = test::Idx({2051, 1, 2, 2}, Bytes(50'000'000, 0));
  const Bytes file = test::Gzip(bomb);
  ASSERT_LT(file.size(), 60'000u);
  auto reader = Open(file);
  ASSERT_TRUE(reader.ok());
  // The memory behind the four bytes is watched by the address sanitizer.
  const auto out = std::make_unique<std::byte[]>(4);
  const Status status = reader->ReadPayload(std::span(out.get(), 4));
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("trailing bytes"));
}

TEST(IdxTest, RefusesAHeaderThatItsGzipFileIsTooSmallFor) {
  const Status status = Decode(test::Gzip(test::Idx({2051, 60000, 28, 28}, Bytes(100))));
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("announces 47040016 bytes"));
}

TEST(IdxTest, BelievesNoHostileSize) {
  constexpr std::uint32_t kMax = std::numeric_limits<std::uint32_t>::max();
  const std::uint32_t sizes[] = {0, 1, 28, 65'535, 65'536, kMax / 2, kMax / 2 + 1, kMax - 1, kMax};
  for (const std::uint32_t count : sizes) {
    for (const std::uint32_t rows : sizes) {
      for (const std::uint32_t cols : sizes) {
        const Bytes plain = test::Idx({2051, count, rows, cols}, {42});
        for (const Bytes& file : {plain, test::Gzip(plain)}) {
          const auto reader = Open(file);
          const std::string what = std::to_string(count) + " x " + std::to_string(rows) + " x " +
                                   std::to_string(cols) + ": " + reader.status().ToString();
          // Arbitrary precision by other means: long double has 64 bits of mantissa, and no two of
          // these products that straddle a limit differ by less.
          const long double payload = static_cast<long double>(count) * rows * cols;
          if (payload == 0) {
            ASSERT_EQ(reader.status().code(), Code::kInvalidArgument) << what;
            EXPECT_THAT(reader.status().message(), HasSubstr("at least 1")) << what;
          } else if (payload > 4294967296.0L) {
            ASSERT_EQ(reader.status().code(), Code::kInvalidArgument) << what;
            EXPECT_THAT(reader.status().message(), HasSubstr("4294967296 bytes allowed")) << what;
          } else if (payload == 1) {
            EXPECT_TRUE(reader.ok()) << what;
          } else if (&file == &plain || payload > 1e6L) {
            // The file cannot hold it: refused before anybody allocates.
            ASSERT_EQ(reader.status().code(), Code::kDataLoss) << what;
          }
        }
      }
    }
  }
  for (const std::uint32_t count : sizes) {
    const auto reader = Open(test::Idx({2049, count}, {42}), IdxKind::kLabels);
    EXPECT_EQ(reader.ok(), count == 1) << count;
  }
}

TEST(IdxTest, OpensOnlyRegularFiles) {
  const test::TempDir dir;
  EXPECT_EQ(FileSource::Open(dir.File("absent")).status().code(), Code::kNotFound);
  EXPECT_EQ(FileSource::Open(dir.path()).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace passel

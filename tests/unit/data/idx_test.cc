#include "data/idx.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "tests/unit/data/test_files.h"

namespace passel {
namespace {

using test::Bytes;
using test::Fails;

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

// In the words of the reference programs, and told by four bytes, such as "<!DO" of a web page.
TEST(IdxTest, NamesAWrongMagicNumber) {
  const std::tuple<Bytes, IdxKind, const char*> cases[] = {
      {kLabels, IdxKind::kImages, "2049 in MNIST image file: some/file"},
      {test::Gzip(kImages), IdxKind::kLabels, "2051 in MNIST label file: some/file"},
      {{'<', '!', 'D', 'O'}, IdxKind::kImages, "1008813135"},
  };
  for (const auto& [file, kind, says] : cases) {
    EXPECT_THAT(Decode(file, kind), Fails(Code::kInvalidArgument, "Invalid magic number ", says));
  }
}

TEST(IdxTest, RefusesOtherSizesThanAnnounced) {
  Bytes longer = kImages, behind = test::Gzip(kImages);
  longer.push_back(0);
  behind.push_back(0);
  const Bytes shorter = test::First(kImages, kImages.size() - 6);
  const std::pair<Bytes, const char*> cases[] = {
      {shorter, "announces 76 bytes and it has 70"},
      {test::Gzip(shorter), "announces 76 bytes and it holds 70"},
      {longer, "trailing bytes"},
      {test::Gzip(longer), "trailing bytes"},
      {behind, "goes on after the end of its gzip data"},
      {test::Gzip(test::Idx({2051, 60000, 28, 28}, Bytes(100))), "announces 47040016 bytes"},
  };
  for (const auto& [file, says] : cases) EXPECT_THAT(Decode(file), Fails(Code::kDataLoss, says));
}

TEST(IdxTest, RefusesEveryShorterFile) {
  for (const bool gzip : {false, true}) {
    const Bytes whole = gzip ? test::Gzip(kImages) : kImages;
    for (std::size_t size = 0; size < whole.size(); ++size) {
      ASSERT_THAT(Decode(test::First(whole, size)), Fails(Code::kDataLoss, "is cut off")) << size;
    }
  }
}

TEST(IdxTest, RefusesEveryFlippedBitOfTheGzipChecksum) {
  const Bytes whole = test::Gzip(kImages);
  for (std::size_t back = 1; back <= 8; ++back) {  // CRC-32 and length
    for (int bit = 0; bit < 8; ++bit) {
      Bytes broken = whole;
      broken[broken.size() - back] ^= static_cast<std::uint8_t>(1 << bit);
      ASSERT_THAT(Decode(broken), Fails(Code::kDataLoss, "corrupt")) << back << "/" << bit;
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
  EXPECT_THAT(reader->ReadPayload(std::span(out.get(), 4)),
              Fails(Code::kDataLoss, "trailing bytes"));
}

TEST(IdxTest, BelievesNoHostileSize) {
  constexpr std::uint32_t kMax = std::numeric_limits<std::uint32_t>::max();
  const std::uint32_t sizes[] = {0, 1, 28, 65'535, 65'536, kMax / 2, kMax / 2 + 1, kMax - 1, kMax};
  for (const std::uint32_t count : sizes) {
    for (const std::uint32_t rows : sizes) {
      for (const std::uint32_t cols : sizes) {
        const Bytes plain = test::Idx({2051, count, rows, cols}, {42});
        for (const bool gzip : {false, true}) {
          const auto reader = Open(gzip ? test::Gzip(plain) : plain);
          SCOPED_TRACE(fmt::format("{} x {} x {}", count, rows, cols));
          // Arbitrary precision by other means: long double has 64 bits of mantissa, and no two of
          // these products that straddle a limit differ by less.
          const long double payload = static_cast<long double>(count) * rows * cols;
          if (payload == 0) {
            ASSERT_THAT(reader, Fails(Code::kInvalidArgument, "at least 1"));
          } else if (payload > 4294967296.0L) {
            ASSERT_THAT(reader, Fails(Code::kInvalidArgument, "4294967296 bytes allowed"));
          } else if (payload == 1) {
            EXPECT_TRUE(reader.ok());
          } else if (!gzip || payload > 1e6L) {
            // The file cannot hold it: refused before anybody allocates.
            ASSERT_THAT(reader, Fails(Code::kDataLoss));
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
  EXPECT_THAT(FileSource::Open(dir.File("absent")), Fails(Code::kNotFound));
  EXPECT_THAT(FileSource::Open(dir.path()), Fails(Code::kInvalidArgument));
}

}  // namespace
}  // namespace passel

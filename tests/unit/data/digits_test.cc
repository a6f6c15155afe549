#include "data/digits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "data/data_source.h"
#include "data/download.h"
#include "tests/unit/data/test_files.h"

namespace passel {
namespace {

using ::testing::HasSubstr;
using Image = std::array<std::uint8_t, kDigitPixels>;

TEST(DigitsTest, DrawsTheSameImagesOnEveryMachine) {
  // Not a golden of correctness: this sum was taken from the generator itself. It pins version 1,
  // across compilers, instruction sets and sanitizers. If it changes, raise kDigitsVersion.
  std::vector<std::uint8_t> all;
  for (std::uint64_t i = 0; i < 500; ++i) {
    for (const DigitSet set : {DigitSet::kTrain, DigitSet::kTest}) {
      Image image;
      all.push_back(DrawDigit(1, set, i, image));
      all.insert(all.end(), image.begin(), image.end());
    }
  }
  EXPECT_EQ(kDigitsVersion, 1);
  EXPECT_EQ(Sha256Hex(std::as_bytes(std::span(all))),
            "0e63e66fa4eed8c561789a41836790665621a27f7e30e557f71d24a37e16e7e7");
}

TEST(DigitsTest, DrawsEveryDigitAndNeverTheSameImageTwice) {
  std::set<Image> images;
  std::array<int, 10> counts{};
  for (const std::uint64_t seed : {1, 2}) {
    for (const DigitSet set : {DigitSet::kTrain, DigitSet::kTest}) {
      for (std::uint64_t i = 0; i < 1000; ++i) {
        Image image;
        ++counts.at(DrawDigit(seed, set, i, image));
        images.insert(image);
      }
    }
  }
  EXPECT_EQ(images.size(), 4000u);
  for (const int count : counts) EXPECT_NEAR(count, 400, 120);  // 6 standard deviations
}

TEST(DigitsTest, LeavesInkInTheMiddleAndTheBackgroundBlack) {
  for (std::uint64_t i = 0; i < 2000; ++i) {
    Image image;
    DrawDigit(3, DigitSet::kTrain, i, image);
    const auto ink = std::count_if(image.begin(), image.end(), [](int p) { return p > 100; });
    const auto black = std::count(image.begin(), image.end(), 0);
    ASSERT_GE(ink, 8) << i;
    ASSERT_GE(black, 400) << i;
    ASSERT_GE(*std::max_element(image.begin(), image.end()), 120) << i;
  }
}

// The simplest classifier there is. The bounds say that labels belong to their images and that the
// set is not trivial; the accuracies of trained models are in digits.h.
TEST(DigitsTest, ANearestMeanTellsMostDigitsButNotAll) {
  constexpr int kTrain = 4000, kTest = 2000;
  std::array<std::array<double, kDigitPixels>, 10> means{};
  std::array<int, 10> counts{};
  Image image;
  for (int i = 0; i < kTrain; ++i) {
    const std::uint8_t label = DrawDigit(1, DigitSet::kTrain, static_cast<std::uint64_t>(i), image);
    ++counts[label];
    for (std::size_t p = 0; p < kDigitPixels; ++p) means[label][p] += image[p];
  }
  for (std::size_t d = 0; d < 10; ++d) {
    for (double& value : means[d]) value /= counts[d];
  }
  int right = 0;
  for (int i = 0; i < kTest; ++i) {
    const std::uint8_t label = DrawDigit(1, DigitSet::kTest, static_cast<std::uint64_t>(i), image);
    std::size_t best = 0;
    double best_distance = std::numeric_limits<double>::max();
    for (std::size_t d = 0; d < 10; ++d) {
      double distance = 0;
      for (std::size_t p = 0; p < kDigitPixels; ++p) {
        distance += (means[d][p] - image[p]) * (means[d][p] - image[p]);
      }
      if (distance < best_distance) {
        best_distance = distance;
        best = d;
      }
    }
    right += best == label;
  }
  EXPECT_GT(right, kTest * 60 / 100);
  EXPECT_LT(right, kTest * 90 / 100);
}

TEST(DigitsTest, WritesADirectoryThatLoads) {
  const test::TempDir dir;
  const Status written = WriteGeneratedDigits(dir.path(), 137, 41, 9);
  ASSERT_TRUE(written.ok()) << written.ToString();
  const auto data = OwnedDataset::Load(dir.path());
  ASSERT_TRUE(data.ok()) << data.status().ToString();
  ASSERT_EQ((*data)->train().size(), 137u);
  ASSERT_EQ((*data)->test().size(), 41u);
  EXPECT_EQ((*data)->rows(), kDigitSide);
  EXPECT_EQ((*data)->num_classes(), 10u);
  for (std::size_t i = 0; i < 137; ++i) {
    Image image;
    EXPECT_EQ(DrawDigit(9, DigitSet::kTrain, i, image), (*data)->train().labels[i]);
    EXPECT_TRUE(std::ranges::equal(image, (*data)->train().image(i)));
  }
  Image image;
  EXPECT_EQ(DrawDigit(9, DigitSet::kTest, 40, image), (*data)->test().labels[40]);
  EXPECT_TRUE(std::ranges::equal(image, (*data)->test().image(40)));
  const test::Bytes source = test::ReadAll(dir.File("SOURCE"));
  EXPECT_THAT(std::string(source.begin(), source.end()), HasSubstr("version 1, seed 9"));
}

TEST(DigitsTest, RefusesImpossibleSizesAndFolders) {
  const test::TempDir dir;
  EXPECT_EQ(WriteGeneratedDigits(dir.path(), 0, 1, 1).code(), Code::kInvalidArgument);
  EXPECT_EQ(WriteGeneratedDigits(dir.path(), 1, kMaxGeneratedDigits + 1, 1).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(WriteGeneratedDigits(dir.File("absent"), 1, 1, 1).code(), Code::kNotFound);
  EXPECT_FALSE(CheckData(dir.path()).ok());
}

}  // namespace
}  // namespace passel

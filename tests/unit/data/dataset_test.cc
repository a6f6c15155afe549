#include "data/dataset.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "data/data_source.h"
#include "data/idx.h"
#include "tests/unit/data/test_files.h"

namespace passel {
namespace {

using test::Bytes;
using test::Fails;
using ::testing::ElementsAreArray;

// A directory with 5 training and 3 test images of 2 x 3 pixels, whose files a test may replace.
class DatasetTest : public ::testing::Test {
 protected:
  void SetUp() override { WriteSmallSet(); }
  void WriteSmallSet() {
    Put(0, test::Idx({2051, 5, 2, 3}, train_pixels_));
    Put(1, test::Idx({2049, 5}, train_labels_));
    Put(2, test::Idx({2051, 3, 2, 3}, test_pixels_));
    Put(3, test::Idx({2049, 3}, test_labels_));
  }
  void Put(std::size_t part, const Bytes& bytes, const std::string& suffix = "") {
    test::WriteAll(dir_.File(kIdxFileNames[part] + suffix), bytes);
  }
  std::vector<std::byte> Blob() const {
    const auto source = OpenData(dir_.path());
    EXPECT_TRUE(source.ok()) << source.status().ToString();
    std::vector<std::byte> blob(source->bytes());
    const Status status = source->LoadInto(blob);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return blob;
  }
  void ExpectSmallSet(const Dataset& data) const {
    EXPECT_EQ(data.rows(), 2u);
    EXPECT_EQ(data.cols(), 3u);
    EXPECT_EQ(data.num_classes(), 8u);
    EXPECT_THAT(data.train().images, ElementsAreArray(train_pixels_));
    EXPECT_THAT(data.train().labels, ElementsAreArray(train_labels_));
    EXPECT_THAT(data.test().images, ElementsAreArray(test_pixels_));
    EXPECT_THAT(data.test().labels, ElementsAreArray(test_labels_));
    EXPECT_THAT(data.train().image(4), ElementsAreArray({24, 25, 26, 27, 28, 29}));
  }

  test::TempDir dir_;
  const Bytes train_pixels_ = test::Ramp(30);
  const Bytes train_labels_ = {3, 1, 4, 1, 7};
  const Bytes test_pixels_ = test::Ramp(18, 100);
  const Bytes test_labels_ = {2, 7, 0};
};

// --- Four IDX files ------------------------------------------------------------------------------

TEST_F(DatasetTest, LoadsGzipUnderEitherName) {
  for (const std::string suffix : {"", ".gz"}) {
    for (std::size_t part = 0; part < 4; ++part) {
      const Bytes plain = test::ReadAll(dir_.File(kIdxFileNames[part]));
      std::filesystem::remove(dir_.File(kIdxFileNames[part]));
      Put(part, test::Gzip(plain), suffix);
    }
    const auto data = OwnedDataset::Load(dir_.path() + "/");
    ASSERT_TRUE(data.ok()) << data.status().ToString();
    ExpectSmallSet(**data);
    WriteSmallSet();
  }
}

// What can be seen in the headers is seen before anybody allocates.
TEST_F(DatasetTest, RefusesFilesThatDoNotFitOneAnother) {
  const struct {
    std::size_t part;
    Bytes file;
    bool in_header;
    Fails fails;
  } cases[] = {
      {1, test::Idx({2049, 4}, {0, 1, 2, 3}), true,
       Fails(Code::kDataLoss, "has 5 images", "has 4 labels")},
      {2, test::Idx({2051, 3, 3, 2}, test_pixels_), true,
       Fails(Code::kInvalidArgument, "2 x 3 pixels", "has 3 x 2")},
      {3, test::Idx({2051, 3}, test_labels_), true,
       Fails(Code::kInvalidArgument, "magic number 2051", dir_.File(kIdxFileNames[3]))},
      {3, test::Idx({2049, 3}, {2, 8, 0}), false,
       Fails(Code::kDataLoss, "holds the label 8", "is 7")},
  };
  for (const auto& [part, file, in_header, fails] : cases) {
    Put(part, file);
    EXPECT_EQ(CheckData(dir_.path()).ok(), !in_header);
    EXPECT_THAT(OwnedDataset::Load(dir_.path()), fails);
    WriteSmallSet();
  }
}

TEST_F(DatasetTest, ReportsTheFileThatIsCorruptInside) {
  for (std::size_t part = 0; part < 4; ++part) {
    Bytes file = test::Gzip(test::ReadAll(dir_.File(kIdxFileNames[part])));
    file[file.size() - 5] ^= 1;  // the checksum: headers look fine
    Put(part, file);
    ASSERT_TRUE(CheckData(dir_.path()).ok());
    EXPECT_THAT(OwnedDataset::Load(dir_.path()), Fails(Code::kDataLoss, kIdxFileNames[part]));
    WriteSmallSet();
  }
}

// --- The blob ------------------------------------------------------------------------------------

TEST_F(DatasetTest, ABlobMovesToAnotherAddressAndAlignment) {
  const std::vector<std::byte> blob = Blob();
  std::vector<std::byte> moved(blob.size() + 1 + 4096);
  std::memcpy(moved.data() + 1, blob.data(), blob.size());
  const auto data = Dataset::View(std::span(moved).subspan(1));  // odd address, longer than needed
  ASSERT_TRUE(data.ok()) << data.status().ToString();
  ExpectSmallSet(*data);
}

TEST_F(DatasetTest, RefusesEveryShorterBlob) {
  const std::vector<std::byte> blob = Blob();
  for (std::size_t size = 0; size < blob.size(); ++size) {
    // A copy of exactly this size, so that the address sanitizer sees a read past it.
    const auto copy = std::make_unique<std::byte[]>(size);
    std::memcpy(copy.get(), blob.data(), size);
    ASSERT_FALSE(Dataset::View(std::span(copy.get(), size)).ok()) << size;
  }
}

TEST_F(DatasetTest, GrantsNoViewOutsideTheBlobWhateverTheHeaderSays) {
  const std::vector<std::byte> blob = Blob();
  constexpr std::uint32_t kValues[] = {
      0, 1, 2, 255, 256, 257, 4096, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff, 0xfffff000};
  constexpr std::size_t kHeaderWords = 18;
  int granted = 0, refused = 0;
  for (std::size_t first = 0; first < kHeaderWords; ++first) {
    for (std::size_t second = first; second < kHeaderWords; ++second) {
      for (const std::uint32_t a : kValues) {
        for (const std::uint32_t b : kValues) {
          std::vector<std::byte> hostile = blob;
          std::memcpy(hostile.data() + 4 * first, &a, 4);
          std::memcpy(hostile.data() + 4 * second, &b, 4);
          const auto data = Dataset::View(hostile);
          ++(data.ok() ? granted : refused);
          if (!data.ok()) continue;
          const auto* begin = reinterpret_cast<const std::uint8_t*>(hostile.data());
          for (const ImageSet* set : {&data->train(), &data->test()}) {
            for (const auto part : {set->images, set->labels}) {
              ASSERT_GE(part.data(), begin + 72);
              ASSERT_LE(part.data() + part.size(), begin + hostile.size());
            }
            ASSERT_EQ(set->image_pixels, data->rows() * data->cols());
            ASSERT_EQ(set->images.size(), set->size() * set->image_pixels);
            for (const std::uint8_t label : set->labels) ASSERT_LT(label, data->num_classes());
          }
        }
      }
    }
  }
  // Granted are smaller counts and sizes and more classes: wrong, but harmless.
  EXPECT_GT(granted, 0);
  EXPECT_GT(refused, 10 * granted);
}

TEST_F(DatasetTest, RefusesAWrongMagicVersionSizeOrPlace) {
  const std::vector<std::byte> blob = Blob();
  for (const std::size_t byte : {0, 7, 8, 11, 32, 39, 40, 48, 56, 64, 71}) {
    std::vector<std::byte> hostile = blob;
    hostile[byte] ^= std::byte{1};
    EXPECT_THAT(Dataset::View(hostile),
                Fails(byte < 12 ? Code::kFailedPrecondition : Code::kDataLoss))
        << byte;
  }
}

TEST_F(DatasetTest, RefusesALabelOutsideTheClasses) {
  std::vector<std::byte> blob = Blob();
  ASSERT_EQ(blob.back(), std::byte{0});  // the last test label
  blob.back() = std::byte{8};
  EXPECT_THAT(Dataset::View(blob), Fails(Code::kDataLoss, "label 8 of 8 classes"));
}

TEST_F(DatasetTest, SplitsOffTheFirstTrainingExamples) {
  const auto data = OwnedDataset::Load(dir_.path());
  ASSERT_TRUE(data.ok());
  const struct {
    std::int64_t validation_size;
    std::uint64_t examples;  // 0: all 5
    Bytes validation, train;
  } cases[] = {
      {0, 0, {}, {3, 1, 4, 1, 7}}, {2, 0, {3, 1}, {4, 1, 7}},      {5, 0, {3, 1, 4, 1, 7}, {}},
      {1, 3, {3}, {1, 4}},         {1, 20'000, {3}, {1, 4, 1, 7}},
  };
  for (const auto& [validation_size, examples, validation, train] : cases) {
    const auto split = SplitValidation(**data, validation_size, examples);
    ASSERT_TRUE(split.ok()) << split.status().ToString();
    EXPECT_THAT(split->validation.labels, ElementsAreArray(validation));
    EXPECT_THAT(split->train.labels, ElementsAreArray(train));
    // Images go with their labels.
    const std::size_t first = validation.size() * 6;
    EXPECT_THAT(split->validation.images, ElementsAreArray(test::Ramp(first)));
    EXPECT_THAT(split->train.images, ElementsAreArray(test::Ramp(train.size() * 6, first)));
    EXPECT_EQ(split->test.size(), 3u);
  }
  for (const auto& [size, examples, most] :
       {std::tuple(6, 0, "5"), std::tuple(-1, 0, "5"), std::tuple(4, 3, "3")}) {
    EXPECT_EQ(SplitValidation(**data, size, examples).status().message(),
              fmt::format("Validation size should be between 0 and {}. Received: {}.", most, size));
  }
}

// --- Real MNIST ----------------------------------------------------------------------------------

// Expected values: mnist_goldens.py.
void ExpectSet(const ImageSet& set, std::size_t size, const std::array<int, 10>& histogram,
               std::uint64_t pixel_sum, std::uint64_t weighted_sum) {
  ASSERT_EQ(set.size(), size);
  ASSERT_EQ(set.images.size(), size * 784);
  std::array<int, 10> counts{};
  for (const std::uint8_t label : set.labels) ++counts.at(label);
  EXPECT_EQ(counts, histogram);
  std::uint64_t sum = 0, weighted = 0;
  for (std::size_t i = 0; i < set.images.size(); ++i) {
    sum += set.images[i];
    weighted += set.images[i] * (i % 65'521);
  }
  EXPECT_EQ(sum, pixel_sum);
  EXPECT_EQ(weighted, weighted_sum);
}

TEST(MnistTest, ReadsWhatNumPyReads) {
  if (!test::HaveMnist()) GTEST_SKIP() << "no MNIST in " << test::MnistDir();
  const auto data = OwnedDataset::Load(test::MnistDir());
  ASSERT_TRUE(data.ok()) << data.status().ToString();
  EXPECT_EQ((*data)->rows(), 28u);
  EXPECT_EQ((*data)->cols(), 28u);
  EXPECT_EQ((*data)->num_classes(), 10u);
  ExpectSet((*data)->train(), 60'000, {5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949},
            1'567'298'545, 51'355'837'786'562);
  ExpectSet((*data)->test(), 10'000, {980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009},
            264'923'200, 8'671'846'691'775);
  EXPECT_THAT((*data)->train().labels.first(10), ElementsAreArray({5, 0, 4, 1, 9, 2, 1, 3, 1, 4}));
  EXPECT_THAT((*data)->test().labels.last(5), ElementsAreArray({2, 3, 4, 5, 6}));
}

}  // namespace
}  // namespace passel

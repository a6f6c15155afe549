#include "data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/data/test_files.h"

namespace passel {
namespace {

using test::Bytes;
using ::testing::AllOf;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

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
  void Remove(std::size_t part) { std::filesystem::remove(dir_.File(kIdxFileNames[part])); }
  Status LoadError() const {
    const auto loaded = OwnedDataset::Load(dir_.path());
    // What can be seen in the headers must be seen before anybody allocates.
    return loaded.status();
  }
  std::vector<std::byte> Blob() const {
    const auto size = DatasetBytes(dir_.path());
    EXPECT_TRUE(size.ok()) << size.status().ToString();
    std::vector<std::byte> blob(*size);
    const Status status = LoadIdxDirectoryInto(dir_.path(), blob);
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
  }

  test::TempDir dir_;
  const Bytes train_pixels_ = test::Ramp(30);
  const Bytes train_labels_ = {3, 1, 4, 1, 7};
  const Bytes test_pixels_ = test::Ramp(18, 100);
  const Bytes test_labels_ = {2, 7, 0};
};

TEST_F(DatasetTest, LoadsFourPlainFiles) {
  const auto data = OwnedDataset::Load(dir_.path());
  ASSERT_TRUE(data.ok()) << data.status().ToString();
  ExpectSmallSet(**data);
  EXPECT_THAT((*data)->train().image(4), ElementsAreArray({24, 25, 26, 27, 28, 29}));
}

TEST_F(DatasetTest, LoadsGzipUnderEitherName) {
  for (const std::string suffix : {"", ".gz"}) {
    for (std::size_t part = 0; part < 4; ++part) {
      const Bytes plain = test::ReadAll(dir_.File(kIdxFileNames[part]));
      Remove(part);
      Put(part, test::Gzip(plain), suffix);
    }
    const auto data = OwnedDataset::Load(dir_.path() + "/");
    ASSERT_TRUE(data.ok()) << data.status().ToString();
    ExpectSmallSet(**data);
    WriteSmallSet();
  }
}

TEST_F(DatasetTest, ABlobMovesToAnotherAddressAndAlignment) {
  const std::vector<std::byte> blob = Blob();
  std::vector<std::byte> moved(blob.size() + 1 + 4096);
  std::memcpy(moved.data() + 1, blob.data(), blob.size());
  const auto data = Dataset::View(std::span(moved).subspan(1));  // odd address, longer than needed
  ASSERT_TRUE(data.ok()) << data.status().ToString();
  ExpectSmallSet(*data);
}

TEST_F(DatasetTest, NamesWhatIsMissing) {
  Remove(2);
  const Status status = DatasetBytes(dir_.path()).status();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("lacks t10k-images-idx3-ubyte:"));
  for (const char* name : kIdxFileNames) EXPECT_THAT(status.message(), HasSubstr(name));
  EXPECT_THAT(status.message(), HasSubstr(dir_.path()));
  EXPECT_EQ(DatasetBytes(dir_.File("absent")).status().code(), Code::kNotFound);
  const Status file = DatasetBytes(dir_.File(kIdxFileNames[0])).status();
  EXPECT_EQ(file.code(), Code::kInvalidArgument);
  EXPECT_THAT(file.message(), HasSubstr("is a file: name the directory"));
}

TEST_F(DatasetTest, RefusesFilesThatDoNotFitOneAnother) {
  Put(1, test::Idx({2049, 4}, {0, 1, 2, 3}));
  Status status = DatasetBytes(dir_.path()).status();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("has 5 images"), HasSubstr("has 4 labels")));
  WriteSmallSet();

  Put(2, test::Idx({2051, 3, 3, 2}, test_pixels_));
  status = DatasetBytes(dir_.path()).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("2 x 3 pixels"), HasSubstr("has 3 x 2")));
  WriteSmallSet();

  Put(3, test::Idx({2049, 3}, {2, 8, 0}));
  status = LoadError();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("holds the label 8"), HasSubstr("is 7")));
}

TEST_F(DatasetTest, RefusesZeroImagesAndWrongMagicNumbers) {
  Put(0, test::Idx({2051, 0, 2, 3}, {}));
  Put(1, test::Idx({2049, 0}, {}));
  EXPECT_EQ(DatasetBytes(dir_.path()).status().code(), Code::kInvalidArgument);
  WriteSmallSet();
  Put(3, test::Idx({2051, 3}, test_labels_));
  EXPECT_EQ(
      DatasetBytes(dir_.path())
          .status()
          .message()
          .find("Invalid magic number 2051 in MNIST label file: " + dir_.File(kIdxFileNames[3])),
      0u);
}

TEST_F(DatasetTest, ReportsTheFileThatIsCorruptInside) {
  for (std::size_t part = 0; part < 4; ++part) {
    Bytes file = test::Gzip(test::ReadAll(dir_.File(kIdxFileNames[part])));
    file[file.size() - 5] ^= 1;  // the checksum: headers look fine
    Put(part, file);
    ASSERT_TRUE(DatasetBytes(dir_.path()).ok());
    const Status status = LoadError();
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr(kIdxFileNames[part]));
    WriteSmallSet();
  }
}

TEST_F(DatasetTest, AFailedLoadLeavesNoValidBlob) {
  std::vector<std::byte> blob = Blob();
  ASSERT_TRUE(Dataset::View(blob).ok());
  Bytes broken = test::Gzip(test::ReadAll(dir_.File(kIdxFileNames[0])));
  broken[broken.size() - 5] ^= 1;
  Put(0, broken);
  EXPECT_FALSE(LoadIdxDirectoryInto(dir_.path(), blob).ok());
  EXPECT_EQ(Dataset::View(blob).status().code(), Code::kFailedPrecondition);
}

TEST_F(DatasetTest, RefusesMemoryThatIsTooSmall) {
  const std::size_t size = *DatasetBytes(dir_.path());
  for (const std::size_t available : {std::size_t{0}, std::size_t{1}, size - 1}) {
    std::vector<std::byte> blob(available);
    const Status status = LoadIdxDirectoryInto(dir_.path(), blob);
    EXPECT_EQ(status.code(), Code::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr("needs " + std::to_string(size) + " bytes"));
  }
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
    const Status status = Dataset::View(hostile).status();
    EXPECT_EQ(status.code(), byte < 12 ? Code::kFailedPrecondition : Code::kDataLoss) << byte;
  }
}

TEST_F(DatasetTest, RefusesALabelOutsideTheClasses) {
  std::vector<std::byte> blob = Blob();
  ASSERT_EQ(blob.back(), std::byte{0});  // the last test label
  blob.back() = std::byte{8};
  const Status status = Dataset::View(blob).status();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("label 8 of 8 classes"));
}

TEST_F(DatasetTest, SplitsOffTheFirstTrainingExamples) {
  const auto data = OwnedDataset::Load(dir_.path());
  ASSERT_TRUE(data.ok());
  for (const std::int64_t k : {0, 2, 5}) {
    const auto split = SplitValidation(**data, k);
    ASSERT_TRUE(split.ok());
    const auto size = static_cast<std::size_t>(k);
    EXPECT_EQ(split->validation.size(), size);
    EXPECT_EQ(split->train.size(), 5 - size);
    EXPECT_EQ(split->validation.images.size(), 6 * size);
    EXPECT_EQ(split->test.size(), 3u);
    if (k == 2) {
      EXPECT_THAT(split->validation.labels, ElementsAreArray({3, 1}));
      EXPECT_THAT(split->train.labels, ElementsAreArray({4, 1, 7}));
      EXPECT_THAT(split->train.image(0), ElementsAreArray({12, 13, 14, 15, 16, 17}));
    }
  }
  EXPECT_EQ(SplitValidation(**data, 6).status().message(),
            "Validation size should be between 0 and 5. Received: 6.");
  EXPECT_EQ(SplitValidation(**data, -1).status().message(),
            "Validation size should be between 0 and 5. Received: -1.");
}

TEST_F(DatasetTest, SplitsOnlyTheFirstTrainingExamples) {
  const auto data = OwnedDataset::Load(dir_.path());
  ASSERT_TRUE(data.ok());
  const auto split = SplitValidation(**data, 1, 3);
  ASSERT_TRUE(split.ok());
  EXPECT_THAT(split->validation.labels, ElementsAreArray({3}));
  EXPECT_THAT(split->train.labels, ElementsAreArray({1, 4}));
  EXPECT_EQ(split->test.size(), 3u);
  EXPECT_EQ(SplitValidation(**data, 1, 20'000)->train.size(), 4u);
  EXPECT_EQ(SplitValidation(**data, 4, 3).status().message(),
            "Validation size should be between 0 and 3. Received: 4.");
}

// --- Real MNIST
// -----------------------------------------------------------------------------------

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

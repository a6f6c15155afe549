#include "data/data_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/sanitized.h"
#include "tests/unit/data/test_files.h"
#include "tests/unit/data/zip_files.h"

namespace passel {
namespace {

namespace fs = std::filesystem;
using test::Bytes;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Bytes Text(const std::string& text) { return Bytes(text.begin(), text.end()); }

// One small set, in every format, in a folder of each test's own.
class DataSourceTest : public ::testing::Test {
 protected:
  Bytes Npz() const {
    return test::Zip({{"x_train.npy", test::Npy("|u1", "(3, 28, 28)", train_pixels_), true},
                      {"y_train.npy", test::Npy("|u1", "(3,)", train_labels_)},
                      {"x_test.npy", test::Npy("|u1", "(2, 784)", test_pixels_), true},
                      {"y_test.npy", test::Npy("<i8", "(2,)", Wide(test_labels_))}});
  }
  static Bytes Wide(const Bytes& labels) {
    Bytes wide;
    for (const std::uint8_t label : labels) test::AppendLittle(&wide, label, 8);
    return wide;
  }
  static Bytes Csv(const Bytes& pixels, const Bytes& labels) {
    std::string text;
    for (std::size_t i = 0; i < labels.size(); ++i) {
      text += std::to_string(labels[i]);
      for (std::size_t p = 0; p < 784; ++p) (text += ',') += std::to_string(pixels[i * 784 + p]);
      text += '\n';
    }
    return Text(text);
  }
  Bytes TrainCsv() const { return Csv(train_pixels_, train_labels_); }
  Bytes TestCsv() const { return Csv(test_pixels_, test_labels_); }
  void WriteIdx(const std::string& dir) const {
    test::WriteAll(dir + "/train-images-idx3-ubyte", test::Idx({2051, 3, 28, 28}, train_pixels_));
    test::WriteAll(dir + "/train-labels-idx1-ubyte", test::Idx({2049, 3}, train_labels_));
    test::WriteAll(dir + "/t10k-images-idx3-ubyte", test::Idx({2051, 2, 28, 28}, test_pixels_));
    test::WriteAll(dir + "/t10k-labels-idx1-ubyte", test::Idx({2049, 2}, test_labels_));
  }
  void Write(const std::string& name, const Bytes& bytes) {
    test::WriteAll(dir_.File(name), bytes);
  }
  Status Error(const std::string& path) const { return OpenData(path).status(); }
  Status Error() const { return Error(dir_.path()); }

  // Exactly as many bytes as bytes() says, so that the address sanitizer sees one more.
  static Result<std::vector<std::byte>> Blob(DataSource& source) {
    std::vector<std::byte> blob(source.bytes());
    PASSEL_RETURN_IF_ERROR(source.LoadInto(blob));
    return blob;
  }
  // Reads `path`, which must be of this format, and compares with the small set.
  void ExpectSmallSet(const std::string& path, DataFormat format) {
    auto source = OpenData(path);
    ASSERT_TRUE(source.ok()) << source.status().ToString();
    EXPECT_EQ(source->format(), format);
    const auto files = FindData(path);
    ASSERT_TRUE(files.ok());
    EXPECT_EQ(files->format, format);
    EXPECT_EQ(files->paths, source->files());
    EXPECT_TRUE(CheckData(path).ok());
    for (int time = 0; time < 2; ++time) {
      const auto blob = Blob(*source);
      ASSERT_TRUE(blob.ok()) << blob.status().ToString();
      const auto data = Dataset::View(*blob);
      ASSERT_TRUE(data.ok()) << data.status().ToString();
      EXPECT_TRUE(std::ranges::equal(data->train().images, train_pixels_));
      EXPECT_TRUE(std::ranges::equal(data->train().labels, train_labels_));
      EXPECT_TRUE(std::ranges::equal(data->test().images, test_pixels_));
      EXPECT_TRUE(std::ranges::equal(data->test().labels, test_labels_));
      EXPECT_EQ(data->num_classes(), 10u);
    }
  }

  test::TempDir dir_;
  const Bytes train_pixels_ = test::Ramp(3 * 784), train_labels_ = {0, 9, 3};
  const Bytes test_pixels_ = test::Ramp(2 * 784, 100), test_labels_ = {1, 8};
};

// --- Which files
// ----------------------------------------------------------------------------------

TEST_F(DataSourceTest, ReadsADirectoryOfIdxFiles) {
  WriteIdx(dir_.path());
  ExpectSmallSet(dir_.path(), DataFormat::kIdx);
  EXPECT_EQ(OpenData(dir_.path())->files()[2], dir_.File("t10k-images-idx3-ubyte"));
}

TEST_F(DataSourceTest, ReadsAnNpzFileWhateverItIsCalled) {
  Write("data.bin", Npz());
  ExpectSmallSet(dir_.File("data.bin"), DataFormat::kNpz);
  EXPECT_THAT(OpenData(dir_.File("data.bin"))->files(), ElementsAre(dir_.File("data.bin")));
}

TEST_F(DataSourceTest, ReadsTheNpzFileOfADirectoryAmongOtherFiles) {
  Write("backup.npz", test::Zip({{"readme", {1, 2}}}));
  Write("notes.csv", Text("a,b\n1,2\n"));
  Write("mnist.npz", Npz());
  ExpectSmallSet(dir_.path(), DataFormat::kNpz);
  EXPECT_THAT(OpenData(dir_.path())->files(), ElementsAre(dir_.File("mnist.npz")));
}

TEST_F(DataSourceTest, ReadsACsvPair) {
  Write("mnist_train.csv", TrainCsv());
  Write("mnist_test.csv", TestCsv());
  ExpectSmallSet(dir_.path(), DataFormat::kCsv);
  EXPECT_THAT(OpenData(dir_.path() + "/")->files(),
              ElementsAre(HasSubstr("mnist_train.csv"), HasSubstr("mnist_test.csv")));
}

TEST_F(DataSourceTest, NamesWhatMayBeMeantAndHowToNameIt) {
  for (const char* name : {"b.csv", "a.csv", "my.npz", "text"}) Write(name, Text("1,2\n"));
  EXPECT_EQ(Error().code(), Code::kNotFound);
  EXPECT_THAT(Error().message(),
              HasSubstr("; there is a.csv, b.csv, my.npz: name an npz file itself, or rename CSV "
                        "files to mnist_train.csv and mnist_test.csv"));
  for (const char* name : {"c.csv", "d.csv"}) Write(name, {});
  EXPECT_THAT(Error().message(), HasSubstr("there is a.csv, b.csv, c.csv, d.csv, ...: "));
}

TEST_F(DataSourceTest, PrefersFourIdxFilesAndRefusesOtherMixtures) {
  Write("mnist.npz", Npz());
  Write("mnist_train.csv", TrainCsv());
  Write("mnist_test.csv", TestCsv());
  EXPECT_EQ(Error().code(), Code::kInvalidArgument);
  EXPECT_THAT(Error().message(),
              HasSubstr("holds mnist.npz and mnist_train.csv: name the npz file"));
  WriteIdx(dir_.path());
  ExpectSmallSet(dir_.path(), DataFormat::kIdx);
  ExpectSmallSet(dir_.File("mnist.npz"), DataFormat::kNpz);
}

TEST_F(DataSourceTest, SaysWhatIsMissing) {
  EXPECT_EQ(Error(dir_.File("absent")).code(), Code::kNotFound);
  EXPECT_EQ(Error().code(), Code::kNotFound);
  EXPECT_THAT(Error().message(),
              AllOf(HasSubstr(dir_.path() + " holds no data set"), HasSubstr("mnist.npz"),
                    HasSubstr("mnist_train.csv"), HasSubstr("t10k-labels-idx1-ubyte")));
  WriteIdx(dir_.path());
  fs::remove(dir_.File("train-labels-idx1-ubyte"));
  EXPECT_EQ(Error().code(), Code::kNotFound);
  EXPECT_THAT(Error().message(), HasSubstr("lacks train-labels-idx1-ubyte:"));
}

TEST_F(DataSourceTest, SaysWhatADamagedNpzFileLacks) {
  Write("mnist.npz", test::Zip({{"x_train.npy", {1}}, {"y_test.npy", {1}}}));
  EXPECT_EQ(Error().code(), Code::kNotFound);
  EXPECT_THAT(Error().message(), HasSubstr("mnist.npz lacks y_train.npy, x_test.npy"));
  EXPECT_EQ(CheckData(dir_.path()).status().code(), Code::kNotFound);
  Bytes cut = Npz();
  cut.resize(cut.size() / 2);
  Write("mnist.npz", cut);
  EXPECT_EQ(Error().code(), Code::kDataLoss);
}

TEST_F(DataSourceTest, NeedsTwoCsvFiles) {
  Write("mnist_train.csv", TrainCsv());
  EXPECT_EQ(Error().code(), Code::kInvalidArgument);
  EXPECT_THAT(Error().message(), HasSubstr("holds one CSV file (mnist_train.csv) and two are "
                                           "needed: put mnist_test.csv there"));
  EXPECT_THAT(Error(dir_.File("mnist_train.csv")).message(),
              HasSubstr("is one CSV file and two are needed"));
}

TEST_F(DataSourceTest, RefusesOtherFiles) {
  Write("text", Text("hello"));
  Write("empty", {});
  WriteIdx(dir_.path());
  for (const char* name : {"text", "empty", "train-images-idx3-ubyte"}) {
    EXPECT_EQ(Error(dir_.File(name)).code(), Code::kInvalidArgument);
    EXPECT_THAT(Error(dir_.File(name)).message(), HasSubstr("is a file and no npz archive"));
  }
}

// --- Reading
// --------------------------------------------------------------------------------------

TEST_F(DataSourceTest, SaysWhichIdxFilesItExtracts) {
  WriteIdx(dir_.path());
  std::vector<std::string> lines;
  DataOptions options;
  options.on_line = [&](const std::string& line) { lines.push_back(line); };
  auto source = OpenData(dir_.path(), options);
  ASSERT_TRUE(source.ok());
  EXPECT_THAT(lines, IsEmpty());
  ASSERT_TRUE(Blob(*source).ok());
  EXPECT_THAT(lines, ElementsAre("Extracting " + dir_.File("train-images-idx3-ubyte"),
                                 "Extracting " + dir_.File("train-labels-idx1-ubyte"),
                                 "Extracting " + dir_.File("t10k-images-idx3-ubyte"),
                                 "Extracting " + dir_.File("t10k-labels-idx1-ubyte")));
}

TEST_F(DataSourceTest, TakesTheFirstLinesOfCsvFiles) {
  Write("mnist_train.csv", TrainCsv());
  Write("mnist_test.csv", TestCsv());
  DataOptions options;
  options.csv_train_limit = 2;
  options.csv_test_limit = 5;
  auto source = OpenData(dir_.path(), options);
  ASSERT_TRUE(source.ok());
  const auto blob = Blob(*source);
  ASSERT_TRUE(blob.ok()) << blob.status().ToString();
  EXPECT_EQ(Dataset::View(*blob).status().code(), Code::kOk);
  EXPECT_EQ(Dataset::View(*blob)->train().size(), 2u);
  EXPECT_EQ(Dataset::View(*blob)->test().size(), 2u);
  options.csv_train_limit = 1;  // label 0, and the test labels are 1 and 8
  source = OpenData(dir_.path(), options);
  ASSERT_TRUE(source.ok());
  EXPECT_THAT(Blob(*source).status().message(), AllOf(HasSubstr("mnist_test.csv holds the label 8"),
                                                      HasSubstr("mnist_train.csv is 0")));
}

TEST_F(DataSourceTest, ChecksCsvFilesByTheirFirstExample) {
  Write("mnist_train.csv", TrainCsv());
  Bytes bad = TestCsv();
  bad[2] = 'x';
  Write("mnist_test.csv", bad);
  EXPECT_THAT(CheckData(dir_.path()).status().message(),
              HasSubstr("mnist_test.csv:1: column 2 (pixel 0) is \"x"));
  Write("mnist_test.csv", Text("1,2,3\n"));
  EXPECT_THAT(CheckData(dir_.path()).status().message(),
              HasSubstr("has images of 784 pixels but "));
  Write("mnist_test.csv", {});
  EXPECT_THAT(CheckData(dir_.path()).status().message(), HasSubstr("is empty"));
}

TEST_F(DataSourceTest, AFailedLoadLeavesNoValidBlob) {
  Write("mnist_train.csv", TrainCsv());
  Write("mnist_test.csv", TestCsv());
  auto csv = OpenData(dir_.path());
  // Larger than any buffer on the way.
  const Bytes labels(100, 1), pixels(100 * 784, 2);
  Write("mnist.npz", test::Zip({{"x_train.npy", test::Npy("|u1", "(100, 784)", pixels)},
                                {"y_train.npy", test::Npy("|u1", "(100,)", labels)},
                                {"x_test.npy", test::Npy("|u1", "(100, 784)", pixels)},
                                {"y_test.npy", test::Npy("|u1", "(100,)", labels)}}));
  auto npz = OpenData(dir_.File("mnist.npz"));
  ASSERT_TRUE(csv.ok() && npz.ok());
  std::vector<std::byte> blob(npz->bytes());
  ASSERT_TRUE(csv->LoadInto(blob).ok());
  ASSERT_TRUE(Dataset::View(blob).ok());
  // Damage in the last line of the last file.
  Bytes bad = TestCsv();
  bad[bad.size() - 2] = 'x';
  Write("mnist_test.csv", bad);
  EXPECT_THAT(csv->LoadInto(blob).message(), HasSubstr("mnist_test.csv:2: column 785"));
  EXPECT_EQ(Dataset::View(blob).status().code(), Code::kFailedPrecondition);

  ASSERT_TRUE(npz->LoadInto(blob).ok());
  ASSERT_TRUE(Dataset::View(blob).ok());
  fs::resize_file(dir_.File("mnist.npz"), 100);  // behind the reader's back
  EXPECT_FALSE(npz->LoadInto(blob).ok());
  EXPECT_EQ(Dataset::View(blob).status().code(), Code::kFailedPrecondition);
}

TEST_F(DataSourceTest, NoticesCsvFilesThatChanged) {
  Write("mnist_train.csv", TrainCsv());
  Write("mnist_test.csv", TestCsv());
  auto source = OpenData(dir_.path());
  ASSERT_TRUE(source.ok());
  Bytes longer = TestCsv();
  longer.insert(longer.end(), longer.begin(), longer.end());
  Write("mnist_test.csv", longer);
  EXPECT_EQ(Blob(*source).status().code(), Code::kFailedPrecondition);
}

TEST_F(DataSourceTest, RefusesMemoryThatIsTooSmallAndUsesMore) {
  Write("mnist.npz", Npz());
  Write("csv", {});
  auto npz = OpenData(dir_.File("mnist.npz"));
  ASSERT_TRUE(npz.ok());
  auto fake = FakeData();
  for (DataSource* source : {&*npz, &fake}) {
    for (const std::size_t size : {std::size_t{0}, std::size_t{71}, source->bytes() - 1}) {
      std::vector<std::byte> blob(size);
      EXPECT_EQ(source->LoadInto(blob).code(), Code::kFailedPrecondition);
    }
    std::vector<std::byte> blob(source->bytes() + 4096);
    ASSERT_TRUE(source->LoadInto(blob).ok());
    EXPECT_TRUE(Dataset::View(blob).ok());
  }
}

// The same images, 6 x 6 or 5 x 7, in every format.
TEST_F(DataSourceTest, TakesImagesOfAnySizeInEveryFormat) {
  for (const auto& [rows, cols] : {std::pair(6u, 6u), std::pair(5u, 7u), std::pair(300u, 200u)}) {
    SCOPED_TRACE(rows);
    const std::size_t pixels = std::size_t{rows} * cols;
    const Bytes train = test::Ramp(3 * pixels), test = test::Ramp(2 * pixels, 100);
    const std::string sides = std::to_string(rows) + ", " + std::to_string(cols) + ")";
    const auto csv = [&](const Bytes& images, const Bytes& labels) {
      std::string text;
      for (std::size_t i = 0; i < labels.size(); ++i) {
        text += std::to_string(labels[i]);
        for (std::size_t p = 0; p < pixels; ++p) {
          (text += ',') += std::to_string(images[i * pixels + p]);
        }
        text += '\n';
      }
      return Text(text);
    };
    Write("any.npz", test::Zip({{"x_train.npy", test::Npy("|u1", "(3, " + sides, train)},
                                {"y_train.npy", test::Npy("|u1", "(3,)", train_labels_)},
                                {"x_test.npy", test::Npy("|u1", "(2, " + sides, test)},
                                {"y_test.npy", test::Npy("|u1", "(2,)", test_labels_)}}));
    fs::create_directory(dir_.File("csv"));
    test::WriteAll(dir_.File("csv/mnist_train.csv"), csv(train, train_labels_));
    test::WriteAll(dir_.File("csv/mnist_test.csv"), csv(test, test_labels_));
    for (const std::string& path : {dir_.File("any.npz"), dir_.File("csv")}) {
      SCOPED_TRACE(path);
      ASSERT_TRUE(CheckData(path).ok()) << CheckData(path).status().ToString();
      auto source = OpenData(path);
      ASSERT_TRUE(source.ok()) << source.status().ToString();
      const auto blob = Blob(*source);
      ASSERT_TRUE(blob.ok()) << blob.status().ToString();
      const auto data = Dataset::View(*blob);
      ASSERT_TRUE(data.ok()) << data.status().ToString();
      EXPECT_TRUE(std::ranges::equal(data->train().images, train));
      EXPECT_TRUE(std::ranges::equal(data->test().images, test));
      EXPECT_EQ(data->train().image_pixels, pixels);
      // Text does not say it: a square, or one row.
      const bool known = rows == cols || source->format() == DataFormat::kNpz;
      EXPECT_EQ(data->rows(), known ? rows : 1);
      EXPECT_EQ(data->cols(), known ? cols : pixels);
    }
  }
}

// --- read_data_sets
// -------------------------------------------------------------------------------

TEST_F(DataSourceTest, MakesFakeData) {
  auto source = FakeData();
  EXPECT_EQ(DataFormatName(source.format()), "fake");
  EXPECT_THAT(source.files(), IsEmpty());
  const auto blob = Blob(source);
  ASSERT_TRUE(blob.ok()) << blob.status().ToString();
  const auto data = Dataset::View(*blob);
  ASSERT_TRUE(data.ok()) << data.status().ToString();
  const DataSplit split = SplitFakeData(*data);
  for (const ImageSet* set : {&split.train, &split.validation, &split.test}) {
    EXPECT_EQ(set->size(), 10'000u);
    EXPECT_EQ(set->image_pixels, 784u);
    EXPECT_EQ(std::ranges::count(set->images, 255), 7'840'000);
    EXPECT_EQ(std::ranges::count(set->labels, 0), 10'000);
  }
  EXPECT_EQ(data->num_classes(), 10u);  // so that one-hot labels have ten columns
}

// --- Real MNIST
// -----------------------------------------------------------------------------------

// In each format the blob must be the same, byte by byte: header, images, labels and padding.
class RealMnistTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!test::HaveMnist()) GTEST_SKIP() << "no MNIST in " << test::MnistDir();
    blob_ = Load(test::MnistDir(), DataFormat::kIdx);
    const auto data = Dataset::View(blob_);
    ASSERT_TRUE(data.ok());
    data_.emplace(*data);
  }
  static std::vector<std::byte> Load(const std::string& path, DataFormat format) {
    auto source = OpenData(path);
    EXPECT_TRUE(source.ok()) << source.status().ToString();
    if (!source.ok()) return {};
    EXPECT_EQ(source->format(), format);
    std::vector<std::byte> blob(source->bytes());
    const auto start = std::chrono::steady_clock::now();
    const Status status = source->LoadInto(blob);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    std::printf("%s: %.3f s\n", std::string(DataFormatName(format)).c_str(), took.count());
    EXPECT_TRUE(status.ok()) << status.ToString();
    return blob;
  }
  void ExpectTheSame(const std::string& path, DataFormat format) {
    const std::vector<std::byte> blob = Load(path, format);
    ASSERT_EQ(blob.size(), blob_.size());
    EXPECT_EQ(std::memcmp(blob.data(), blob_.data(), blob.size()), 0);
  }
  static Bytes Copy(std::span<const std::uint8_t> bytes) { return {bytes.begin(), bytes.end()}; }

  std::vector<std::byte> blob_;
  std::optional<Dataset> data_;
  test::TempDir dir_;
};

TEST_F(RealMnistTest, IsTheSameAsNpz) {
  const ImageSet &train = data_->train(), &test = data_->test();
  for (const bool deflate : {false, true}) {
    test::WriteAll(
        dir_.File("mnist.npz"),
        test::Zip(
            {{"x_test.npy", test::Npy("|u1", "(10000, 28, 28)", Copy(test.images)), deflate},
             {"x_train.npy", test::Npy("|u1", "(60000, 28, 28)", Copy(train.images)), deflate},
             {"y_train.npy", test::Npy("|u1", "(60000,)", Copy(train.labels)), deflate},
             {"y_test.npy", test::Npy("|u1", "(10000,)", Copy(test.labels)), deflate}}));
    ExpectTheSame(dir_.path(), DataFormat::kNpz);
  }
}

TEST_F(RealMnistTest, IsTheSameAsTheNpzThatNumPyWrites) {
  if (std::system("python3 -c 'import numpy' 2>/dev/null") != 0) GTEST_SKIP() << "no NumPy";
  for (const std::string how : {"savez uint8", "savez_compressed int64"}) {
    const std::string file = dir_.File("mnist.npz");
    const std::string command = "python3 " PASSEL_SOURCE_DIR "/tests/unit/data/make_npz.py " +
                                test::MnistDir() + " " + file + " " + how;
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
    ExpectTheSame(file, DataFormat::kNpz);
  }
}

TEST_F(RealMnistTest, IsTheSameAsCsv) {
  if (kSanitized) GTEST_SKIP() << "50 million numbers: the tests of CSV show the same in fewer";
  const auto write = [this](const char* name, const ImageSet& set, const char* end) {
    std::string text;
    text.reserve(set.images.size() * 4);
    for (std::size_t i = 0; i < set.size(); ++i) {
      text += std::to_string(set.labels[i]);
      for (const std::uint8_t pixel : set.image(i)) (text += ',') += std::to_string(pixel);
      text += end;
    }
    test::WriteAll(dir_.File(name), Text(text));
  };
  write("mnist_train.csv", data_->train(), "\n");
  write("mnist_test.csv", data_->test(), "\r\n");
  ExpectTheSame(dir_.path(), DataFormat::kCsv);

  // As the reference program reads it.
  DataOptions options;
  options.csv_train_limit = 20'000;
  options.csv_test_limit = 10'000;
  std::vector<std::string> told;
  options.on_csv_progress = [&](const std::string& path, std::uint32_t examples) {
    told.push_back(fs::path(path).filename().string() + " " + std::to_string(examples));
  };
  auto source = OpenData(dir_.path(), options);
  ASSERT_TRUE(source.ok());
  std::vector<std::byte> blob(source->bytes());
  ASSERT_TRUE(source->LoadInto(blob).ok());
  EXPECT_THAT(
      told, ElementsAre("mnist_train.csv 10000", "mnist_train.csv 20000", "mnist_test.csv 10000"));
  const auto data = Dataset::View(blob);
  ASSERT_TRUE(data.ok());
  EXPECT_TRUE(std::ranges::equal(data->train().images, data_->train().Slice(0, 20'000).images));
  EXPECT_TRUE(std::ranges::equal(data->test().images, data_->test().images));
  EXPECT_EQ(SplitValidation(*data, 2000)->train.size(), 18'000u);
}

}  // namespace
}  // namespace passel

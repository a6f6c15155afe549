#include "data/data_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "data/formats.h"
#include "data/idx.h"
#include "tests/support/sanitized.h"
#include "tests/unit/data/format_files.h"
#include "tests/unit/data/test_files.h"
#include "tests/unit/data/zip_files.h"

namespace passel {
namespace {

namespace fs = std::filesystem;
using test::Bytes;
using test::Fails;
using test::Images;
using test::kWriters;
using test::Small;
using test::Text;
using test::TwoSets;
using test::Writer;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::IsEmpty;

// Exactly as many bytes as bytes() says, so that the address sanitizer sees one more.
Result<std::vector<std::byte>> Blob(const DataSource& source) {
  std::vector<std::byte> blob(source.bytes());
  PASSEL_RETURN_IF_ERROR(source.LoadInto(blob));
  return blob;
}

class DataSourceTest : public ::testing::Test {
 protected:
  void Write(const std::string& name, const Bytes& bytes) {
    test::WriteAll(dir_.File(name), bytes);
  }
  std::string Folder(const std::string& name) const {
    fs::create_directories(dir_.File(name));
    return dir_.File(name);
  }
  static std::string FormatOf(const std::string& path) {
    const auto files = FindData(path);
    return files.ok() ? files->format->name : files.status().ToString();
  }
  test::TempDir dir_;
};

// --- Which files ---------------------------------------------------------------------------------

// A format that nothing here writes is not tested.
TEST(DataFormatsTest, EveryRowIsWritten) {
  std::vector<std::string> names;
  for (const DataFormat& format : DataFormats()) names.push_back(format.name);
  EXPECT_TRUE(std::ranges::equal(names, kWriters, {}, {}, &Writer::format));
  EXPECT_EQ(DataFormatsInWords(),
            "four IDX files, plain or gzip, mnist.npz, or mnist_train.csv and mnist_test.csv");
}

// Squares; sides that text does not say: then it is one row; more than any buffer.
TEST_F(DataSourceTest, ReadsTheSameInEveryFormatAndSize) {
  for (const auto& [rows, cols] :
       {std::pair(28, 28), std::pair(6, 6), std::pair(5, 7), std::pair(400, 250)}) {
    const TwoSets set = Small(rows, cols);
    for (const Writer& writer : kWriters) {
      SCOPED_TRACE(writer.format + std::string(" ") + std::to_string(rows));
      const std::string dir = Folder(writer.format);
      writer.write(dir, set);
      EXPECT_EQ(FormatOf(dir + "/"), writer.format);
      ASSERT_TRUE(CheckData(dir).ok()) << CheckData(dir).status().ToString();
      const auto source = OpenData(dir);
      ASSERT_TRUE(source.ok()) << source.status().ToString();
      for (int time = 0; time < 2; ++time) {
        const auto blob = Blob(*source);
        ASSERT_TRUE(blob.ok()) << blob.status().ToString();
        const auto data = Dataset::View(*blob);
        ASSERT_TRUE(data.ok()) << data.status().ToString();
        EXPECT_TRUE(std::ranges::equal(data->train().images, set.train.pixels));
        EXPECT_TRUE(std::ranges::equal(data->train().labels, set.train.labels));
        EXPECT_TRUE(std::ranges::equal(data->test().images, set.test.pixels));
        EXPECT_TRUE(std::ranges::equal(data->test().labels, set.test.labels));
        EXPECT_EQ(data->num_classes(), 10u);
        const bool known = rows == cols || writer.says_sides;
        EXPECT_EQ(data->rows(), known ? rows : 1);
        EXPECT_EQ(data->cols(), known ? cols : rows * cols);
      }
    }
  }
}

TEST_F(DataSourceTest, TakesAnArchiveWhateverItIsCalled) {
  for (const char* name : {"data.bin", "mnist_test.csv", "t10k-labels-idx1-ubyte"}) {
    Write(name, test::Npz(Small()));
    EXPECT_THAT(FindData(dir_.File(name))->paths, ElementsAre(dir_.File(name)));
    EXPECT_EQ(FormatOf(dir_.File(name)), "npz");
  }
}

TEST_F(DataSourceTest, TakesTheNamesOfAFormatAmongOthers) {
  Write("backup.npz", test::Zip({{"readme", {1, 2}}}));
  Write("notes.csv", Text("a,b\n1,2\n"));
  Write("t10k-labels-idx1-ubyte", {});  // alone
  test::WriteNpz(dir_.path(), Small());
  EXPECT_THAT(FindData(dir_.path())->paths, ElementsAre(dir_.File("mnist.npz")));
  // Beside another one format is too much, unless it is the usual one.
  test::WriteCsv(dir_.path(), Small());
  EXPECT_THAT(FindData(dir_.path()), Fails(Code::kInvalidArgument,
                                           "holds mnist.npz and mnist_train.csv: name mnist.npz "
                                           "itself, or keep one of the sets there"));
  fs::remove(dir_.File("mnist.npz"));
  EXPECT_THAT(FindData(dir_.path())->paths,
              ElementsAre(EndsWith("/mnist_train.csv"), EndsWith("/mnist_test.csv")));
  test::WriteNpz(dir_.path(), Small());
  test::WriteIdx(dir_.path(), Small());
  Write("train-images-idx3-ubyte.gz", {});  // the plain one counts
  EXPECT_THAT(
      FindData(dir_.path())->paths,
      ElementsAre(EndsWith("/train-images-idx3-ubyte"), EndsWith("/train-labels-idx1-ubyte"),
                  EndsWith("/t10k-images-idx3-ubyte"), EndsWith("/t10k-labels-idx1-ubyte")));
  EXPECT_EQ(FormatOf(dir_.File("mnist.npz")), "npz");
}

TEST_F(DataSourceTest, SaysWhatIsMissingOrOfAnotherKind) {
  constexpr Code kAbsent = Code::kNotFound, kWrong = Code::kInvalidArgument;
  const std::string idx_names =
      "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
      "t10k-labels-idx1-ubyte, each a file, plain or with .gz";
  const std::string csv_names = "mnist_train.csv and mnist_test.csv";
  const std::string nothing =
      "holds no data set: it must hold " + idx_names + ", or mnist.npz, or " + csv_names;
  const std::string rename = ": name an npz file itself, or rename two CSV files to " + csv_names;
  const std::string no_file =
      " is a file and no data set: name an npz file, or the directory that holds four IDX files, "
      "or two CSV files";
  const struct {
    std::string files;  // in the directory
    std::string path;   // below it
    Code code;
    std::string says;
  } cases[] = {
      {"", "absent", kAbsent, "absent: No such file"},
      {"", "", kAbsent, nothing},
      {"b.csv a.csv my.npz text", "", kAbsent,
       nothing + "; there is a.csv, b.csv, my.npz" + rename},
      {"b.csv a.csv c.csv d.csv e.npz", "", kAbsent,
       "; there is a.csv, b.csv, c.csv, d.csv, ...: "},
      {"train-images-idx3-ubyte t10k-labels-idx1-ubyte t10k-images-idx3-ubyte.gz", "", kAbsent,
       "lacks train-labels-idx1-ubyte: it must hold " + idx_names},
      {"mnist_train.csv", "", kWrong, "lacks mnist_test.csv: it must hold " + csv_names},
      {"mnist_test.csv t10k-labels-idx1-ubyte", "", kWrong, "lacks mnist_train.csv: it must"},
      {"a.csv", "a.csv", kWrong,
       "a.csv is one of two CSV files: name the directory that holds " + csv_names},
      {"t10k-images-idx3-ubyte.gz", "t10k-images-idx3-ubyte.gz", kWrong,
       " is one of four IDX files: name the directory that holds train-images-idx3-ubyte, "},
      {"text", "text", kWrong, "text" + no_file},
      {"a.npz", "a.npz", kWrong, "a.npz" + no_file},
  };
  int number = 0;
  for (const auto& [files, path, code, says] : cases) {
    const std::string dir = Folder(std::to_string(number++));
    std::istringstream names(files);
    for (std::string name; names >> name;) test::WriteAll(dir + "/" + name, Text("1,2\n"));
    EXPECT_THAT(FindData(dir + "/" + path), Fails(code, dir, says));
  }
}

// --- Reading -------------------------------------------------------------------------------------

TEST_F(DataSourceTest, SaysWhichIdxFilesItExtracts) {
  test::WriteIdx(dir_.path(), Small());
  std::vector<std::string> lines;
  const auto source =
      OpenData(dir_.path(), {.on_line = [&](const std::string& line) { lines.push_back(line); }});
  ASSERT_TRUE(source.ok());
  EXPECT_THAT(lines, IsEmpty());
  ASSERT_TRUE(Blob(*source).ok());
  EXPECT_THAT(lines, ElementsAre("Extracting " + dir_.File("train-images-idx3-ubyte"),
                                 "Extracting " + dir_.File("train-labels-idx1-ubyte"),
                                 "Extracting " + dir_.File("t10k-images-idx3-ubyte"),
                                 "Extracting " + dir_.File("t10k-labels-idx1-ubyte")));
}

TEST_F(DataSourceTest, TakesTheFirstLinesOfCsvFiles) {
  test::WriteCsv(dir_.path(), Small());
  const auto data = OwnedDataset::Load(dir_.path(), {.csv_train_limit = 2, .csv_test_limit = 5});
  ASSERT_TRUE(data.ok()) << data.status().ToString();
  EXPECT_EQ((*data)->train().size(), 2u);
  EXPECT_EQ((*data)->test().size(), 2u);
  // Label 0, and the test labels are 1 and 8.
  EXPECT_THAT(OwnedDataset::Load(dir_.path(), {.csv_train_limit = 1}),
              Fails(Code::kDataLoss, "mnist_test.csv holds the label 8", "mnist_train.csv is 0"));
}

TEST_F(DataSourceTest, ChecksCsvFilesByTheirFirstExample) {
  test::WriteCsv(dir_.path(), Small());
  Bytes bad = test::Csv(Small().test);
  bad[2] = 'x';
  const std::pair<Bytes, std::string> cases[] = {
      {bad, "mnist_test.csv:1: column 2 (pixel 0) is \"x"},
      {Text("1,2,3\n"), "has images of 784 pixels but "},
      {{}, "is empty"}};
  for (const auto& [content, says] : cases) {
    Write("mnist_test.csv", content);
    EXPECT_THAT(CheckData(dir_.path()), Fails(Code::kInvalidArgument, says));
  }
}

// Files of the right size that are found to be damaged when they are read, or that others change.
TEST_F(DataSourceTest, AFailedLoadLeavesNoValidBlob) {
  const auto cut = [](const std::string& path) { fs::resize_file(path, 100); };
  const auto twice = [](const std::string& path) {
    Bytes bytes = test::ReadAll(path);
    bytes.insert(bytes.end(), bytes.begin(), bytes.end());
    test::WriteAll(path, bytes);
  };
  const auto bad_end = [](const std::string& path) {
    Bytes bytes = test::ReadAll(path);
    bytes[bytes.size() - 3] = 'x';
    test::WriteAll(path, bytes);
  };
  const auto other_size = [](const std::string& path) {
    test::WriteIdx(fs::path(path).parent_path(), Small(5, 5));
  };
  const struct {
    const Writer& writer;
    std::string file;
    std::function<void(const std::string& path)> change;
    Fails fails;
  } cases[] = {
      {kWriters[0], kIdxFileNames[0], cut, Fails(Code::kDataLoss, "is cut off")},
      {kWriters[0], kIdxFileNames[0], other_size, Fails(Code::kFailedPrecondition, "changed")},
      {kWriters[1], "mnist.npz", cut, Fails(Code::kDataLoss, "mnist.npz")},
      {kWriters[2], "mnist_test.csv", bad_end,
       Fails(Code::kInvalidArgument, "mnist_test.csv:100: column 785")},
      {kWriters[2], "mnist_test.csv", twice, Fails(Code::kFailedPrecondition, "changed")},
  };
  for (const auto& [writer, file, change, fails] : cases) {
    SCOPED_TRACE(file);
    const std::string dir = Folder(writer.format);
    // Larger than any buffer on the way.
    writer.write(dir, {Small().train, Images::Of(28, 28, Bytes(100), 5)});
    const auto source = OpenData(dir);
    ASSERT_TRUE(source.ok());
    std::vector<std::byte> blob(source->bytes());
    ASSERT_TRUE(source->LoadInto(blob).ok());
    ASSERT_TRUE(Dataset::View(blob).ok());
    change(dir + "/" + file);
    EXPECT_THAT(source->LoadInto(blob), fails);
    EXPECT_THAT(Dataset::View(blob), Fails(Code::kFailedPrecondition));
  }
}

TEST_F(DataSourceTest, RefusesMemoryThatIsTooSmallAndUsesMore) {
  std::vector<DataSource> sources = {*OpenData("", {.fake = true})};
  for (const Writer& writer : kWriters) {
    writer.write(Folder(writer.format), Small());
    sources.push_back(*OpenData(dir_.File(writer.format)));
  }
  for (const DataSource& source : sources) {
    for (const std::size_t size : {std::size_t{0}, std::size_t{71}, source.bytes() - 1}) {
      std::vector<std::byte> blob(size);
      EXPECT_THAT(
          source.LoadInto(blob),
          Fails(Code::kFailedPrecondition, "needs " + std::to_string(source.bytes()) + " bytes"));
    }
    std::vector<std::byte> blob(source.bytes() + 4096);
    ASSERT_TRUE(source.LoadInto(blob).ok());
    EXPECT_TRUE(Dataset::View(blob).ok());
  }
}

TEST(FakeDataTest, IsThatOfReadDataSets) {
  const auto made = OwnedDataset::Load("", {.fake = true});
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  const DataSplit split = SplitFakeData(**made);
  for (const ImageSet* set : {&split.train, &split.validation, &split.test}) {
    EXPECT_EQ(set->size(), 10'000u);
    EXPECT_EQ(set->image_pixels, 784u);
    EXPECT_EQ(std::ranges::count(set->images, 255), 7'840'000);
    EXPECT_EQ(std::ranges::count(set->labels, 0), 10'000);
  }
  EXPECT_EQ((*made)->num_classes(), 10u);  // so that one-hot labels have ten columns
}

// --- Real MNIST ----------------------------------------------------------------------------------

// In each format the blob must be the same, byte by byte: header, images, labels and padding.
class RealMnistTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!test::HaveMnist()) GTEST_SKIP() << "no MNIST in " << test::MnistDir();
    blob_ = Load(test::MnistDir());
    const auto data = Dataset::View(blob_);
    ASSERT_TRUE(data.ok());
    data_.emplace(*data);
  }
  static std::vector<std::byte> Load(const std::string& path, const DataOptions& options = {}) {
    const auto source = OpenData(path, options);
    EXPECT_TRUE(source.ok()) << source.status().ToString();
    if (!source.ok()) return {};
    std::vector<std::byte> blob(source->bytes());
    const auto start = std::chrono::steady_clock::now();
    const Status status = source->LoadInto(blob);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    std::printf("%s: %.3f s\n", FindData(path)->format->name.c_str(), took.count());
    EXPECT_TRUE(status.ok()) << status.ToString();
    return blob;
  }
  void ExpectTheSame(const std::string& path) {
    const std::vector<std::byte> blob = Load(path);
    ASSERT_EQ(blob.size(), blob_.size());
    EXPECT_EQ(std::memcmp(blob.data(), blob_.data(), blob.size()), 0);
  }

  std::vector<std::byte> blob_;
  std::optional<Dataset> data_;
  test::TempDir dir_;
};

TEST_F(RealMnistTest, IsTheSameInEveryFormat) {
  for (const Writer& writer : kWriters) {
    // 50 million numbers: the tests of CSV show the same in fewer.
    if (kSanitized && writer.format == std::string("csv")) continue;
    const test::TempDir dir;
    writer.write(dir.path(), test::Copy(*data_));
    ExpectTheSame(dir.path());
  }
}

TEST_F(RealMnistTest, IsTheSameAsTheNpzThatNumPyWrites) {
  if (std::system("python3 -c 'import numpy' 2>/dev/null") != 0) GTEST_SKIP() << "no NumPy";
  for (const std::string how : {"savez uint8", "savez_compressed int64"}) {
    const std::string file = dir_.File("mnist.npz");
    const std::string command = "python3 " PASSEL_SOURCE_DIR "/tests/unit/data/make_npz.py " +
                                test::MnistDir() + " " + file + " " + how;
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
    ExpectTheSame(file);
  }
}

TEST_F(RealMnistTest, IsReadAsTheReferenceProgramReadsCsv) {
  if (kSanitized) GTEST_SKIP() << "25 million numbers: the tests of CSV show the same in fewer";
  test::WriteCsv(dir_.path(), test::Copy(*data_));
  std::vector<std::string> told;
  const std::vector<std::byte> blob =
      Load(dir_.path(),
           {.csv_train_limit = 20'000,
            .csv_test_limit = 10'000,
            .on_csv_progress = [&](const std::string& path, std::uint32_t examples) {
              told.push_back(fs::path(path).filename().string() + " " + std::to_string(examples));
            }});
  EXPECT_THAT(
      told, ElementsAre("mnist_train.csv 10000", "mnist_train.csv 20000", "mnist_test.csv 10000"));
  const auto data = Dataset::View(blob);
  ASSERT_TRUE(data.ok());
  EXPECT_TRUE(std::ranges::equal(data->train().images, data_->train().Slice(0, 20'000).images));
  EXPECT_TRUE(std::ranges::equal(data->test().images, data_->test().images));
}

}  // namespace
}  // namespace passel

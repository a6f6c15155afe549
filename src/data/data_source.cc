#include "data/data_source.h"

#include <fmt/core.h>

#include <algorithm>
#include <new>
#include <utility>

#include "data/blob_internal.h"
#include "data/csv.h"
#include "data/idx.h"
#include "data/npz.h"

namespace passel {

class DataSource::Impl {
 public:
  Impl(DataFiles files, DataOptions options)
      : files_(std::move(files)), options_(std::move(options)) {}
  virtual ~Impl() = default;

  virtual std::size_t bytes() const = 0;
  virtual Status LoadInto(std::span<std::byte> blob) = 0;

  const DataFiles files_;
  const DataOptions options_;
};

namespace {

constexpr std::uint32_t kFakeSide = 28;

class IdxSource : public DataSource::Impl {
 public:
  IdxSource(DataFiles files, DataOptions options, std::string dir, std::size_t bytes)
      : Impl(std::move(files), std::move(options)), dir_(std::move(dir)), bytes_(bytes) {}

  std::size_t bytes() const override { return bytes_; }
  Status LoadInto(std::span<std::byte> blob) override {
    if (options_.on_line) {
      for (const std::string& path : files_.paths) {
        options_.on_line(fmt::format("Extracting {}", path));
      }
    }
    return LoadIdxDirectoryInto(dir_, blob);
  }

 private:
  std::string dir_;
  std::size_t bytes_;
};

class NpzSource : public DataSource::Impl {
 public:
  NpzSource(DataFiles files, DataOptions options, NpzReader reader)
      : Impl(std::move(files), std::move(options)),
        reader_(std::move(reader)),
        shape_{reader_.train_count(), reader_.test_count(), reader_.rows(), reader_.cols()} {
    if (shape_.rows == 0) SetSides(reader_.pixels(), &shape_);
  }

  std::size_t bytes() const override { return static_cast<std::size_t>(BlobBytes(shape_)); }
  Status LoadInto(std::span<std::byte> blob) override {
    const std::string& path = files_.paths[0];
    PASSEL_ASSIGN_OR_RETURN(BlobWriter writer, BlobWriter::Create(blob, shape_, path));
    for (const BlobPart part : {kTrainImages, kTrainLabels, kTestImages, kTestLabels}) {
      PASSEL_RETURN_IF_ERROR(reader_.ReadArray(part, writer.part(part)));
    }
    return writer.Finish(fmt::format("{} in {}", kNpzArrayNames[kTrainLabels], path),
                         fmt::format("{} in {}", kNpzArrayNames[kTestLabels], path));
  }

 private:
  NpzReader reader_;
  BlobShape shape_;
};

class CsvSource : public DataSource::Impl {
 public:
  CsvSource(DataFiles files, DataOptions options, const BlobShape& shape)
      : Impl(std::move(files), std::move(options)), shape_(shape) {}

  std::size_t bytes() const override { return static_cast<std::size_t>(BlobBytes(shape_)); }
  Status LoadInto(std::span<std::byte> blob) override {
    const std::string& train = files_.paths[0];
    const std::string& test = files_.paths[1];
    PASSEL_ASSIGN_OR_RETURN(
        BlobWriter writer, BlobWriter::Create(blob, shape_, fmt::format("{} and {}", train, test)));
    PASSEL_RETURN_IF_ERROR(Read(train, options_.csv_train_limit, writer.part(kTrainImages),
                                writer.part(kTrainLabels)));
    PASSEL_RETURN_IF_ERROR(
        Read(test, options_.csv_test_limit, writer.part(kTestImages), writer.part(kTestLabels)));
    return writer.Finish(train, test);
  }

 private:
  Status Read(const std::string& path, std::uint64_t limit, std::span<std::byte> images,
              std::span<std::byte> labels) const {
    PASSEL_ASSIGN_OR_RETURN(const auto source, FileSource::Open(path));
    const bool to_the_end = limit == 0 || labels.size() < limit;
    return ReadCsv(*source, path, to_the_end, images, labels, options_.on_csv_progress);
  }

  BlobShape shape_;
};

class FakeSource : public DataSource::Impl {
 public:
  FakeSource() : Impl(DataFiles{DataFormat::kFake, {}}, {}) {}

  std::size_t bytes() const override { return static_cast<std::size_t>(BlobBytes(kShape)); }
  Status LoadInto(std::span<std::byte> blob) override {
    PASSEL_ASSIGN_OR_RETURN(BlobWriter writer, BlobWriter::Create(blob, kShape, "fake_data"));
    for (const BlobPart part : {kTrainImages, kTestImages}) {
      std::ranges::fill(writer.part(part), std::byte{255});
    }
    for (const BlobPart part : {kTrainLabels, kTestLabels}) {
      std::ranges::fill(writer.part(part), std::byte{0});
    }
    return writer.Finish("fake_data", "fake_data", 10);
  }

 private:
  static constexpr BlobShape kShape{kFakeExamples, kFakeExamples, kFakeSide, kFakeSide};
};

// The shape of a training and a test file. At most these examples are counted (0: all).
Result<BlobShape> MeasureCsvFiles(const std::vector<std::string>& paths, std::uint64_t train_limit,
                                  std::uint64_t test_limit) {
  const auto measure = [](const std::string& path, std::uint64_t limit) -> Result<CsvShape> {
    PASSEL_ASSIGN_OR_RETURN(const auto source, FileSource::Open(path));
    return MeasureCsv(*source, path, limit);
  };
  PASSEL_ASSIGN_OR_RETURN(const CsvShape train, measure(paths[0], train_limit));
  PASSEL_ASSIGN_OR_RETURN(const CsvShape test, measure(paths[1], test_limit));
  if (train.pixels != test.pixels) {
    return InvalidArgument(
        fmt::format("{} has images of {} pixels but {} has {}: use two files of one set", paths[0],
                    train.pixels, paths[1], test.pixels));
  }
  BlobShape shape{train.count, test.count, 0, 0};
  SetSides(train.pixels, &shape);
  return shape;
}

Status CheckFirstExamples(const std::vector<std::string>& paths) {
  PASSEL_ASSIGN_OR_RETURN(const BlobShape shape, MeasureCsvFiles(paths, 1, 1));
  std::byte label[1];
  std::vector<std::byte> pixels(std::size_t{shape.rows} * shape.cols);
  for (const std::string& path : paths) {
    PASSEL_ASSIGN_OR_RETURN(const auto source, FileSource::Open(path));
    PASSEL_RETURN_IF_ERROR(ReadCsv(*source, path, /*to_the_end=*/false, pixels, label));
  }
  return {};
}

}  // namespace

std::string_view DataFormatName(DataFormat format) {
  switch (format) {
    case DataFormat::kIdx:
      return "idx";
    case DataFormat::kNpz:
      return "npz";
    case DataFormat::kCsv:
      return "csv";
    case DataFormat::kFake:
      return "fake";
  }
  return "?";
}

DataSource::DataSource(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DataSource::DataSource(DataSource&&) noexcept = default;
DataSource& DataSource::operator=(DataSource&&) noexcept = default;
DataSource::~DataSource() = default;

DataFormat DataSource::format() const { return impl_->files_.format; }
const std::vector<std::string>& DataSource::files() const { return impl_->files_.paths; }
std::size_t DataSource::bytes() const { return impl_->bytes(); }
Status DataSource::LoadInto(std::span<std::byte> blob) {
  InvalidateBlob(blob);  // also for errors before the first byte is written
  return impl_->LoadInto(blob);
}

Result<DataFiles> CheckData(const std::string& path) {
  PASSEL_ASSIGN_OR_RETURN(DataFiles files, FindData(path));
  if (files.format == DataFormat::kIdx) {
    PASSEL_RETURN_IF_ERROR(DatasetBytes(path).status());
  } else if (files.format == DataFormat::kNpz) {
    PASSEL_RETURN_IF_ERROR(NpzReader::Open(files.paths[0]).status());
  } else {
    PASSEL_RETURN_IF_ERROR(CheckFirstExamples(files.paths));
  }
  return files;
}

Result<DataSource> OpenData(const std::string& path, const DataOptions& options) {
  if (options.fake) return FakeData();
  PASSEL_ASSIGN_OR_RETURN(DataFiles files, FindData(path));
  std::unique_ptr<DataSource::Impl> impl;
  if (files.format == DataFormat::kIdx) {
    PASSEL_ASSIGN_OR_RETURN(const std::size_t bytes, DatasetBytes(path));
    impl = std::make_unique<IdxSource>(std::move(files), options, path, bytes);
  } else if (files.format == DataFormat::kNpz) {
    PASSEL_ASSIGN_OR_RETURN(NpzReader reader, NpzReader::Open(files.paths[0]));
    impl = std::make_unique<NpzSource>(std::move(files), options, std::move(reader));
  } else {
    PASSEL_ASSIGN_OR_RETURN(
        const BlobShape shape,
        MeasureCsvFiles(files.paths, options.csv_train_limit, options.csv_test_limit));
    impl = std::make_unique<CsvSource>(std::move(files), options, shape);
  }
  return DataSource(std::move(impl));
}

DataSource FakeData() { return DataSource(std::make_unique<FakeSource>()); }

DataSplit SplitFakeData(const Dataset& dataset) {
  PASSEL_CHECK(dataset.train().size() == kFakeExamples && dataset.test().size() == kFakeExamples,
               "only for the data set that FakeData() makes");
  return {dataset.train(), dataset.train(), dataset.test()};
}

Result<OwnedDataset> OwnedDataset::Load(const std::string& path) { return Load(path, {}); }

Result<OwnedDataset> OwnedDataset::Load(const std::string& path, const DataOptions& options) {
  PASSEL_ASSIGN_OR_RETURN(DataSource source, OpenData(path, options));
  const std::size_t size = source.bytes();
  std::unique_ptr<std::byte[]> bytes(new (std::nothrow) std::byte[size]);
  if (bytes == nullptr) {
    return ResourceExhausted(
        fmt::format("the data in {} needs {} bytes of memory: use a smaller set", path, size));
  }
  const std::span<std::byte> blob(bytes.get(), size);
  PASSEL_RETURN_IF_ERROR(source.LoadInto(blob));
  PASSEL_ASSIGN_OR_RETURN(const Dataset view, Dataset::View(blob));
  return OwnedDataset(std::move(bytes), view);
}

}  // namespace passel

#include "data/data_source.h"

#include <fmt/core.h>

#include <algorithm>
#include <new>
#include <utility>

#include "data/blob_internal.h"
#include "data/formats.h"

namespace passel {
namespace {

constexpr std::uint32_t kFakeExamples = 10'000;  // in each set
constexpr std::uint32_t kFakeSide = 28;

MeasuredData FakeData() {
  const auto read = [](const BlobWriter& to) -> Status {
    for (const BlobPart part : {kTrainImages, kTrainLabels, kTestImages, kTestLabels}) {
      std::ranges::fill(to.part(part), IsImages(part) ? std::byte{255} : std::byte{0});
    }
    return {};
  };
  return {.shape = {kFakeExamples, kFakeExamples, kFakeSide, kFakeSide},
          .train_labels = "fake_data",
          .test_labels = "fake_data",
          .read = read,
          .min_classes = 10};
}

Result<MeasuredData> Measure(const std::string& path, const DataOptions& options) {
  if (options.fake) return FakeData();
  PASSEL_ASSIGN_OR_RETURN(const DataFiles files, FindData(path));
  return files.format->open(files.paths, options);
}

}  // namespace

Result<DataFiles> CheckData(const std::string& path) {
  PASSEL_ASSIGN_OR_RETURN(DataFiles files, FindData(path));
  const DataFormat& format = *files.format;
  PASSEL_RETURN_IF_ERROR(format.check != nullptr ? format.check(files.paths)
                                                 : format.open(files.paths, {}).status());
  return files;
}

Result<DataSource> OpenData(const std::string& path, const DataOptions& options) {
  PASSEL_ASSIGN_OR_RETURN(const MeasuredData data, Measure(path, options));
  return DataSource(static_cast<std::size_t>(BlobBytes(data.shape)),
                    [path, data](std::span<std::byte> blob) -> Status {
                      PASSEL_ASSIGN_OR_RETURN(BlobWriter writer,
                                              BlobWriter::Create(blob, data.shape, path));
                      PASSEL_RETURN_IF_ERROR(data.read(writer));
                      return writer.Finish(data.train_labels, data.test_labels, data.min_classes);
                    });
}

DataSplit SplitFakeData(const Dataset& dataset) {
  PASSEL_CHECK(dataset.train().size() == kFakeExamples && dataset.test().size() == kFakeExamples,
               "only for the data set that DataOptions::fake makes");
  return {dataset.train(), dataset.train(), dataset.test()};
}

Result<OwnedDataset> OwnedDataset::Load(const std::string& path) { return Load(path, {}); }

Result<OwnedDataset> OwnedDataset::Load(const std::string& path, const DataOptions& options) {
  PASSEL_ASSIGN_OR_RETURN(const DataSource source, OpenData(path, options));
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

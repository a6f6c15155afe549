#include "io/checked_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "io/checked_writer.h"
#include "io/crc32.h"

namespace passel {
namespace {

using checked_internal::ChecksumOf;
using checked_internal::kOfMetadata;
using checked_internal::kOfTensor;

std::string ChecksumOf(const TensorView& tensor) {
  checked_internal::Crc32 crc =
      checked_internal::BeginTensor(tensor.name, tensor.dtype, tensor.shape);
  crc.Add(tensor.data);
  return crc.Text();
}

Status CheckOne(const SafetensorsMetadata& metadata, const std::string& key,
                const std::string& actual, const std::string& what) {
  const auto written = metadata.find(key);
  if (written == metadata.end()) {
    return DataLoss(fmt::format("{} has no checksum: use another copy", what));
  }
  if (written->second == actual) return {};
  return DataLoss(
      fmt::format("{} changed since it was written (CRC32 {}, not {:.16}): use another "
                  "copy",
                  what, actual, written->second));
}

}  // namespace

Status WriteCheckedTensors(const std::string& path, std::span<const TensorView> tensors,
                           const SafetensorsMetadata& metadata, FileOps& ops) {
  std::vector<TensorSpec> specs;
  for (const TensorView& tensor : tensors) {
    specs.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  PASSEL_ASSIGN_OR_RETURN(CheckedWriter writer,
                          CheckedWriter::Create(path, std::move(specs), metadata, ops));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    PASSEL_RETURN_IF_ERROR(writer.Append(i, tensors[i].data));
  }
  return writer.Finish();
}

Status CheckTensors(const SafetensorsFile& file) {
  // First the words, one of which would be missing if a name were not as it was.
  PASSEL_RETURN_IF_ERROR(CheckOne(file.metadata, std::string(kOfMetadata),
                                  ChecksumOf(file.metadata), "the description of the file"));
  for (const TensorView& tensor : file.tensors) {
    PASSEL_RETURN_IF_ERROR(CheckOne(file.metadata, fmt::format("{}{}", kOfTensor, tensor.name),
                                    ChecksumOf(tensor), fmt::format("tensor \"{}\"", tensor.name)));
  }
  const auto named = std::count_if(file.metadata.begin(), file.metadata.end(),
                                   [](const auto& m) { return m.first.starts_with(kOfTensor); });
  if (static_cast<std::size_t>(named) == file.tensors.size()) return {};
  return DataLoss(
      fmt::format("the file has {} tensors of {}: use another copy", file.tensors.size(), named));
}

Result<SafetensorsFile> ReadCheckedTensors(const std::string& path, std::size_t max_bytes) {
  PASSEL_ASSIGN_OR_RETURN(SafetensorsFile file, ReadSafetensors(path, max_bytes));
  if (const Status checked = CheckTensors(file); !checked.ok()) return checked.WithContext(path);
  return file;
}

}  // namespace passel

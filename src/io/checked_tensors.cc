#include "io/checked_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <zlib.h>

#include <algorithm>
#include <limits>
#include <string_view>

namespace passel {
namespace {

constexpr std::string_view kOfMetadata = "crc32";
constexpr std::string_view kOfTensor = "crc32/";

class Crc32 {
 public:
  void Add(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {  // zlib takes 32 bits of length
      const std::size_t take = std::min<std::size_t>(bytes.size(), std::size_t{1} << 30);
      crc_ = ::crc32(crc_, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(take));
      bytes = bytes.subspan(take);
    }
  }
  void Add(std::string_view text) { Add(std::as_bytes(std::span(text))); }
  std::string Text() const { return fmt::format("{:08x}", crc_); }

 private:
  uLong crc_ = 0;
};

std::string ChecksumOf(const TensorView& tensor) {
  Crc32 crc;
  crc.Add(fmt::format("{}\n{}\n{}\n", tensor.name, DTypeName(tensor.dtype),
                      fmt::join(tensor.shape, ",")));
  crc.Add(tensor.data);
  return crc.Text();
}

// A map is sorted by key: byte for byte, as Python's sorted() does.
std::string ChecksumOf(const SafetensorsMetadata& metadata) {
  Crc32 crc;
  for (const auto& [key, value] : metadata) {
    if (key != kOfMetadata) crc.Add(fmt::format("{}\n{}\n", key, value));
  }
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
  SafetensorsMetadata all = metadata;
  for (const auto& [key, value] : metadata) {
    if (key.starts_with(kOfMetadata)) {
      return InvalidArgument(
          fmt::format("the metadata key \"{}\" is kept for checksums: use another", key));
    }
  }
  for (const TensorView& tensor : tensors) {
    all[fmt::format("{}{}", kOfTensor, tensor.name)] = ChecksumOf(tensor);
  }
  all[std::string(kOfMetadata)] = ChecksumOf(all);
  return WriteSafetensors(path, tensors, all, ops);
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

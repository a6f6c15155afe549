#include "io/checked_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/give_way.h"
#include "io/checked_writer.h"
#include "io/crc32.h"

namespace passel {
namespace {

using checked_internal::ChecksumOf;
using checked_internal::kOfMetadata;
using checked_internal::kOfTensor;

constexpr std::size_t kReadBytes = std::size_t{1} << 20;
// Of a file: from so many bytes on several threads read it.
constexpr std::uint64_t kWorthThreads = std::uint64_t{64} << 20;
constexpr std::size_t kCheckThreads = 3;

// Of the tensor as the file has it now.
Result<std::string> ChecksumOf(const TensorFile& file, const TensorFile::Tensor& tensor,
                               std::span<std::byte> buffer) {
  checked_internal::Crc32 crc =
      checked_internal::BeginTensor(tensor.name, tensor.dtype, tensor.shape);
  for (std::uint64_t done = 0; done < tensor.bytes;) {
    const auto piece = buffer.first(
        static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), tensor.bytes - done)));
    PASSEL_RETURN_IF_ERROR(file.Read(tensor, done, piece));
    crc.Add(piece);
    done += piece.size();
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

Status CheckOneTensor(const TensorFile& file, const TensorFile::Tensor& tensor,
                      std::vector<std::byte>& buffer) {
  PASSEL_ASSIGN_OR_RETURN(const std::string actual, ChecksumOf(file, tensor, buffer));
  return CheckOne(file.metadata(), fmt::format("{}{}", kOfTensor, tensor.name), actual,
                  fmt::format("tensor \"{}\"", tensor.name));
}

// By a few threads where that takes long. The first that is wrong counts, however many are.
Status CheckData(const TensorFile& file) {
  const std::vector<TensorFile::Tensor>& tensors = file.tensors();
  std::vector<Status> found(tensors.size());
  std::atomic<std::size_t> next{0};
  const auto check = [&] {
    std::vector<std::byte> buffer(kReadBytes);
    for (std::size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < tensors.size();) {
      found[i] = CheckOneTensor(file, tensors[i], buffer);
    }
  };
  std::uint64_t bytes = 0;
  for (const TensorFile::Tensor& tensor : tensors) bytes += tensor.bytes;
  std::vector<std::thread> others;
  try {
    while (!GivesWay() && bytes >= kWorthThreads && others.size() + 1 < kCheckThreads)
      others.emplace_back(check);
  } catch (const std::system_error&) {
    // No more threads for this user.
  }
  check();
  for (std::thread& other : others) other.join();
  for (const Status& status : found) PASSEL_RETURN_IF_ERROR(status);
  return {};
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

Status CheckDescription(const TensorFile& file) {
  // First the words, one of which would be missing if a name were not as it was.
  const Status words = CheckOne(file.metadata(), std::string(kOfMetadata),
                                ChecksumOf(file.metadata()), "the description of the file");
  if (!words.ok()) return words.WithContext(file.path());
  const auto named = std::ranges::count_if(
      file.metadata(), [](const auto& word) { return word.first.starts_with(kOfTensor); });
  if (static_cast<std::size_t>(named) == file.tensors().size()) return {};
  return DataLoss(fmt::format("{}: the file has {} tensors of {}: use another copy", file.path(),
                              file.tensors().size(), named));
}

bool HasChecksums(const TensorFile& file) { return !file.Word(kOfMetadata).empty(); }

Status CheckTensors(const TensorFile& file) {
  PASSEL_RETURN_IF_ERROR(CheckDescription(file));
  const Status whole = CheckData(file);
  return whole.code() == Code::kDataLoss ? whole.WithContext(file.path()) : whole;
}

Result<TensorFile> OpenCheckedTensors(const std::string& path) {
  PASSEL_ASSIGN_OR_RETURN(TensorFile file, TensorFile::Open(path));
  PASSEL_RETURN_IF_ERROR(CheckTensors(file));
  return file;
}

}  // namespace passel

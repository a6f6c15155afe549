#include "io/checked_writer.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"
#include "io/crc32.h"

namespace passel {

using checked_internal::kOfMetadata;
using checked_internal::kOfTensor;

struct CheckedWriter::State {
  std::string path;
  std::vector<TensorSpec> tensors;
  SafetensorsMetadata metadata;  // with checksums, at last with the right ones
  SafetensorsLayout layout;
  std::vector<checked_internal::Crc32> checksums;  // [tensors]
  std::vector<std::uint64_t> done;                 // [tensors]: bytes
  AtomicFile file;
};

CheckedWriter::CheckedWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
CheckedWriter::CheckedWriter(CheckedWriter&&) noexcept = default;
CheckedWriter& CheckedWriter::operator=(CheckedWriter&&) noexcept = default;
CheckedWriter::~CheckedWriter() = default;

Result<CheckedWriter> CheckedWriter::Create(const std::string& path,
                                            std::vector<TensorSpec> tensors,
                                            const SafetensorsMetadata& metadata, FileOps& ops) {
  SafetensorsMetadata all = metadata;
  for (const auto& [key, value] : metadata) {
    if (!key.starts_with(kOfMetadata)) continue;
    return InvalidArgument(
        fmt::format("{}: the metadata key \"{}\" is kept for checksums: use another", path, key));
  }
  const std::string unknown = checked_internal::Crc32().Text();
  all[std::string(kOfMetadata)] = unknown;
  for (const TensorSpec& tensor : tensors) {
    all[fmt::format("{}{}", kOfTensor, tensor.name)] = unknown;
  }
  Result<SafetensorsLayout> layout = LayOutSafetensors(tensors, all);
  if (!layout.ok()) return layout.status().WithContext(path);
  std::vector<checked_internal::Crc32> checksums;
  for (const TensorSpec& tensor : tensors) {
    checksums.push_back(checked_internal::BeginTensor(tensor.name, tensor.dtype, tensor.shape));
  }
  std::vector<std::uint64_t> done(tensors.size());
  PASSEL_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path, ops));
  return CheckedWriter(
      std::unique_ptr<State>(new State{path, std::move(tensors), std::move(all), std::move(*layout),
                                       std::move(checksums), std::move(done), std::move(file)}));
}

Status CheckedWriter::Append(std::size_t index, std::span<const std::byte> data) {
  State& s = *state_;
  PASSEL_CHECK(data.size() <= s.layout.sizes[index] - s.done[index], "a tensor has its size");
  if (data.empty()) return {};
  PASSEL_RETURN_IF_ERROR(s.file.WriteAt(s.layout.begins[index] + s.done[index], data));
  s.checksums[index].Add(data);
  s.done[index] += data.size();
  return {};
}

Status CheckedWriter::Finish(const SafetensorsMetadata& late) {
  State& s = *state_;
  PASSEL_CHECK(s.done == s.layout.sizes, "all tensors are complete");
  for (const auto& [key, value] : late) {
    PASSEL_CHECK(s.metadata.at(key).size() == value.size(), "late values have room");
    s.metadata[key] = value;
  }
  for (std::size_t i = 0; i < s.tensors.size(); ++i) {
    s.metadata[fmt::format("{}{}", kOfTensor, s.tensors[i].name)] = s.checksums[i].Text();
  }
  s.metadata[std::string(kOfMetadata)] = checked_internal::ChecksumOf(s.metadata);
  PASSEL_ASSIGN_OR_RETURN(const SafetensorsLayout layout, LayOutSafetensors(s.tensors, s.metadata));
  PASSEL_CHECK(layout.prefix.size() == s.layout.prefix.size(), "a header has its size");
  PASSEL_RETURN_IF_ERROR(s.file.WriteAt(0, std::as_bytes(std::span(layout.prefix))));
  return s.file.Commit();
}

}  // namespace passel

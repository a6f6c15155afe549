#include "io/checked_writer.h"

#include <fmt/format.h>

#include <cstdint>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "io/crc32.h"
#include "io/piece_writer.h"

namespace passel {

using checked_internal::kOfMetadata;
using checked_internal::kOfTensor;

namespace {

// Pieces of tensors wait for what follows them in the file until so many bytes wait.
constexpr std::size_t kMostWaiting = std::size_t{4} << 20;
// Then those are written that are worth a call each; small ones wait on for their neighbours, as
// long as they are less than half of it all.
constexpr std::size_t kWorthACall = std::size_t{256} << 10;

std::uint64_t BytesOf(const SafetensorsLayout& layout) {
  return std::accumulate(layout.sizes.begin(), layout.sizes.end(),
                         std::uint64_t{layout.prefix.size()});
}

}  // namespace

struct CheckedWriter::State {
  Status WriteLarge();
  // All that waits, in the file's order.
  Status WriteAll();
  Status WriteWaiting(std::size_t tensor);
  void Written(std::size_t tensor);
  std::uint64_t BeginOfWaiting(std::size_t tensor) const {
    return layout.begins[tensor] + done[tensor] - waiting[tensor].size();
  }

  std::vector<TensorSpec> tensors;
  SafetensorsMetadata metadata;  // with checksums, at last with the right ones
  SafetensorsLayout layout;
  std::vector<checked_internal::Crc32> checksums;  // [tensors]
  std::vector<std::uint64_t> done;                 // [tensors]: bytes, those that wait among them
  std::vector<std::vector<std::byte>> waiting;     // [tensors]: the last ones of these
  std::size_t all_waiting;                         // bytes
  checked_internal::PieceWriter file;
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
  std::vector<std::vector<std::byte>> waiting(tensors.size());
  const std::uint64_t bytes = BytesOf(*layout);
  PASSEL_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path, ops));
  return CheckedWriter(std::unique_ptr<State>(new State{
      std::move(tensors), std::move(all), std::move(*layout), std::move(checksums), std::move(done),
      std::move(waiting), 0, checked_internal::PieceWriter(std::move(file), bytes)}));
}

Status CheckedWriter::Append(std::size_t index, std::span<const std::byte> data) {
  State& s = *state_;
  PASSEL_CHECK(data.size() <= s.layout.sizes[index] - s.done[index], "a tensor has its size");
  if (data.empty()) return {};
  if (data.size() >= kMostWaiting) {
    PASSEL_RETURN_IF_ERROR(s.WriteWaiting(index));
    PASSEL_RETURN_IF_ERROR(
        s.file.WriteAt(s.layout.begins[index] + s.done[index], data, &s.checksums[index]));
    s.done[index] += data.size();
    return {};
  }
  s.checksums[index].Add(data);
  s.waiting[index].insert(s.waiting[index].end(), data.begin(), data.end());
  s.done[index] += data.size();
  s.all_waiting += data.size();
  if (s.all_waiting < kMostWaiting) return {};
  PASSEL_RETURN_IF_ERROR(s.WriteLarge());
  return s.all_waiting < kMostWaiting / 2 ? Status() : s.WriteAll();
}

Status CheckedWriter::State::WriteWaiting(std::size_t tensor) {
  std::vector<std::byte>& piece = waiting[tensor];
  if (piece.empty()) return {};
  PASSEL_RETURN_IF_ERROR(file.WriteAt(BeginOfWaiting(tensor), piece));
  Written(tensor);
  return {};
}

void CheckedWriter::State::Written(std::size_t tensor) {
  all_waiting -= waiting[tensor].size();
  waiting[tensor].clear();  // and keeps its memory for what is to come
  if (done[tensor] == layout.sizes[tensor]) waiting[tensor].shrink_to_fit();
}

Status CheckedWriter::State::WriteLarge() {
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    if (waiting[i].size() >= kWorthACall) PASSEL_RETURN_IF_ERROR(WriteWaiting(i));
  }
  return {};
}

Status CheckedWriter::State::WriteAll() {
  for (const std::size_t i : layout.order) PASSEL_RETURN_IF_ERROR(WriteWaiting(i));
  return {};
}

std::uint64_t CheckedWriter::bytes() const { return BytesOf(state_->layout); }

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
  PASSEL_RETURN_IF_ERROR(s.WriteAll());
  PASSEL_RETURN_IF_ERROR(s.file.WriteAt(0, std::as_bytes(std::span(layout.prefix))));
  return s.file.Commit();
}

}  // namespace passel

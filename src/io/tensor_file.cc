#include "io/tensor_file.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "io/safetensors_header.h"

namespace passel {

using safetensors_internal::Header;
using safetensors_internal::HeaderBytes;
using safetensors_internal::HeaderEntry;
using safetensors_internal::kLengthBytes;
using safetensors_internal::ParseHeader;

Result<TensorFile> TensorFile::Open(const std::string& path) {
  TensorFile file;
  PASSEL_ASSIGN_OR_RETURN(OpenFile open, OpenRegularFile(path));
  file.path_ = path;
  file.fd_ = std::move(open.fd);
  std::vector<std::byte> length(std::min<std::uint64_t>(kLengthBytes, open.bytes));
  PASSEL_RETURN_IF_ERROR(file.ReadAt(0, length));
  const Result<std::size_t> header_bytes = HeaderBytes(length, open.bytes);
  if (!header_bytes.ok()) return header_bytes.status().WithContext(path);
  std::string text(*header_bytes, '\0');
  PASSEL_RETURN_IF_ERROR(file.ReadAt(kLengthBytes, std::as_writable_bytes(std::span(text))));
  const std::uint64_t data = kLengthBytes + text.size();
  Result<Header> header = ParseHeader(text, open.bytes - data);
  if (!header.ok()) return header.status().WithContext(path);

  file.metadata_ = std::move(header->metadata);
  for (HeaderEntry& entry : header->entries) {
    file.tensors_.push_back({{std::move(entry.name), entry.dtype, std::move(entry.shape)},
                             data + entry.begin,
                             entry.end - entry.begin});
  }
  file.by_name_.resize(file.tensors_.size());
  std::iota(file.by_name_.begin(), file.by_name_.end(), std::size_t{0});
  std::ranges::sort(file.by_name_, {},
                    [&](std::size_t i) -> const std::string& { return file.tensors_[i].name; });
  return file;
}

const std::string& TensorFile::Word(std::string_view key) const {
  static const std::string none;
  const auto found = metadata_.find(std::string(key));
  return found == metadata_.end() ? none : found->second;
}

const TensorFile::Tensor* TensorFile::Find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(
      by_name_, name, {}, [&](std::size_t i) { return std::string_view(tensors_[i].name); });
  if (found == by_name_.end() || tensors_[*found].name != name) return nullptr;
  return &tensors_[*found];
}

Status TensorFile::Read(const Tensor& tensor, std::uint64_t offset,
                        std::span<std::byte> out) const {
  PASSEL_CHECK(offset <= tensor.bytes && out.size() <= tensor.bytes - offset,
               "the tensor has these bytes");
  return ReadAt(tensor.begin + offset, out);
}

Status TensorFile::ReadAt(std::uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t got = ::pread(fd_.get(), out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, fmt::format("cannot read {}", path_));
    if (got == 0) {
      return DataLoss(fmt::format("{} was cut off at byte {} while it was read: use another copy",
                                  path_, offset));
    }
    out = out.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
  return {};
}

}  // namespace passel

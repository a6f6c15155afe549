#include "io/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "io/safetensors_header.h"
#include "io/safetensors_layout.h"

namespace passel {
namespace {

using safetensors_internal::Header;
using safetensors_internal::HeaderBytes;
using safetensors_internal::HeaderEntry;
using safetensors_internal::kLengthBytes;
using safetensors_internal::ParseHeader;

struct DTypeRow {
  DType dtype;
  std::string_view name;
  std::size_t bytes;
};
constexpr std::array kDTypes = {
    DTypeRow{DType::kU8, "U8", 1},
    DTypeRow{DType::kF32, "F32", 4},
    DTypeRow{DType::kF64, "F64", 8},
    DTypeRow{DType::kI64, "I64", 8},
};

const DTypeRow& Row(DType dtype) {
  const auto index = static_cast<std::size_t>(dtype);
  PASSEL_CHECK(index < kDTypes.size() && kDTypes[index].dtype == dtype, "no such dtype");
  return kDTypes[index];
}

Result<SafetensorsLayout> LayOut(std::span<const TensorView> tensors,
                                 const SafetensorsMetadata& metadata) {
  std::vector<TensorSpec> specs;
  for (const TensorView& tensor : tensors) {
    specs.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  PASSEL_ASSIGN_OR_RETURN(SafetensorsLayout layout, LayOutSafetensors(specs, metadata));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorView& tensor = tensors[i];
    if (layout.sizes[i] == tensor.data.size()) continue;
    return InvalidArgument(fmt::format(
        "tensor \"{}\" of dtype {} and shape [{}] cannot fill {} bytes: pass the data of that "
        "shape",
        tensor.name, DTypeName(tensor.dtype), fmt::join(tensor.shape, ","), tensor.data.size()));
  }
  return layout;
}

}  // namespace

std::string_view DTypeName(DType dtype) { return Row(dtype).name; }

std::size_t DTypeBytes(DType dtype) { return Row(dtype).bytes; }

std::optional<DType> ParseDType(std::string_view name) {
  for (const DTypeRow& row : kDTypes) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

const TensorView* SafetensorsFile::Find(std::string_view name) const {
  for (const TensorView& tensor : tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

Result<SafetensorsFile> ParseSafetensors(std::span<const std::byte> file) {
  PASSEL_ASSIGN_OR_RETURN(const std::size_t header_bytes, HeaderBytes(file, file.size()));
  const std::span<const std::byte> data = file.subspan(kLengthBytes + header_bytes);
  PASSEL_ASSIGN_OR_RETURN(
      Header header,
      ParseHeader(
          std::string_view(reinterpret_cast<const char*>(file.data()) + kLengthBytes, header_bytes),
          data.size()));

  SafetensorsFile result;
  result.metadata = std::move(header.metadata);
  result.tensors.reserve(header.entries.size());
  for (HeaderEntry& entry : header.entries) {
    const auto view = data.subspan(static_cast<std::size_t>(entry.begin),
                                   static_cast<std::size_t>(entry.end - entry.begin));
    result.tensors.push_back(
        TensorView{std::move(entry.name), entry.dtype, std::move(entry.shape), view});
  }
  return result;
}

Result<std::vector<std::uint8_t>> SerializeSafetensors(std::span<const TensorView> tensors,
                                                       const SafetensorsMetadata& metadata) {
  PASSEL_ASSIGN_OR_RETURN(const SafetensorsLayout layout, LayOut(tensors, metadata));
  std::vector<std::uint8_t> bytes(layout.prefix.begin(), layout.prefix.end());
  for (const std::size_t i : layout.order) {
    const auto* data = reinterpret_cast<const std::uint8_t*>(tensors[i].data.data());
    bytes.insert(bytes.end(), data, data + tensors[i].data.size());
  }
  return bytes;
}

Status WriteSafetensors(const std::string& path, std::span<const TensorView> tensors,
                        const SafetensorsMetadata& metadata, FileOps& ops) {
  const Result<SafetensorsLayout> layout = LayOut(tensors, metadata);
  if (!layout.ok()) return layout.status().WithContext(path);
  std::vector<std::span<const std::byte>> pieces;
  pieces.reserve(tensors.size() + 1);
  pieces.push_back(std::as_bytes(std::span(layout->prefix)));
  for (const std::size_t i : layout->order) {
    if (!tensors[i].data.empty()) pieces.push_back(tensors[i].data);
  }
  return WriteFileAtomically(path, pieces, ops);
}

}  // namespace passel

#include "io/safetensors_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "base/json.h"
#include "io/safetensors_header.h"

namespace passel {
namespace {

using safetensors_internal::kLengthBytes;
using safetensors_internal::kMetadataKey;
using safetensors_internal::NameProblem;
using safetensors_internal::TensorBytes;

Status CheckForWriting(const TensorSpec& tensor) {
  const char* problem = NameProblem(tensor.name);
  if (problem == nullptr && !QuotedForJson(tensor.name)) problem = "is not valid UTF-8: use ASCII";
  if (problem != nullptr) {
    return InvalidArgument(
        fmt::format("a tensor name of {} bytes {}", tensor.name.size(), problem));
  }
  if (tensor.name == kMetadataKey) {
    return InvalidArgument("\"__metadata__\" is not free as a tensor name: choose another");
  }
  if (tensor.shape.size() > kSafetensorsMaxRank) {
    return InvalidArgument(fmt::format("tensor \"{}\" has {} dimensions, more than {}: merge some",
                                       tensor.name, tensor.shape.size(), kSafetensorsMaxRank));
  }
  if (!TensorBytes(tensor.shape, tensor.dtype)) {
    return InvalidArgument(
        fmt::format("tensor \"{}\" of dtype {} has the shape [{}]: no file can "
                    "hold that",
                    tensor.name, DTypeName(tensor.dtype), fmt::join(tensor.shape, ",")));
  }
  return {};
}

Status AddMetadata(const SafetensorsMetadata& metadata, std::string* out) {
  if (metadata.empty()) return {};
  *out += "\"__metadata__\":{";
  bool first = true;
  for (const auto& [key, value] : metadata) {
    const auto key_text = QuotedForJson(key), value_text = QuotedForJson(value);
    if (!key_text || !value_text) {
      return InvalidArgument("a metadata key or value is not valid UTF-8: encode it");
    }
    if (!std::exchange(first, false)) *out += ',';
    *out += *key_text + ':' + *value_text;
  }
  *out += '}';
  return {};
}

}  // namespace

Result<SafetensorsLayout> LayOutSafetensors(std::span<const TensorSpec> tensors,
                                            const SafetensorsMetadata& metadata) {
  if (tensors.size() > kSafetensorsMaxTensors) {
    return InvalidArgument(fmt::format(
        "{} tensors are more than the {} that one safetensors file may hold: split them",
        tensors.size(), kSafetensorsMaxTensors));
  }
  SafetensorsLayout layout;
  for (const TensorSpec& tensor : tensors) {
    PASSEL_RETURN_IF_ERROR(CheckForWriting(tensor));
    layout.sizes.push_back(*TensorBytes(tensor.shape, tensor.dtype));
  }
  layout.order.resize(tensors.size());
  std::iota(layout.order.begin(), layout.order.end(), std::size_t{0});
  std::sort(layout.order.begin(), layout.order.end(), [&](std::size_t a, std::size_t b) {
    const std::size_t bytes_a = DTypeBytes(tensors[a].dtype);
    const std::size_t bytes_b = DTypeBytes(tensors[b].dtype);
    return bytes_a != bytes_b ? bytes_a > bytes_b : tensors[a].name < tensors[b].name;
  });
  std::vector<std::string_view> names;
  for (const TensorSpec& tensor : tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end()) {
    return InvalidArgument(fmt::format("two tensors are named \"{}\": rename one of them", *twice));
  }

  std::string& out = layout.prefix;
  out.assign(kLengthBytes, '\0');
  out += '{';
  PASSEL_RETURN_IF_ERROR(AddMetadata(metadata, &out));
  layout.begins.resize(tensors.size());
  std::uint64_t offset = 0;
  for (const std::size_t i : layout.order) {
    const TensorSpec& tensor = tensors[i];
    if (out.size() > kLengthBytes + 1) out += ',';
    out += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                       *QuotedForJson(tensor.name), DTypeName(tensor.dtype),
                       fmt::join(tensor.shape, ","), offset, offset + layout.sizes[i]);
    layout.begins[i] = offset;
    offset += layout.sizes[i];
  }
  out += '}';
  out.resize((out.size() + 7) / 8 * 8, ' ');
  const std::uint64_t header_bytes = out.size() - kLengthBytes;
  if (header_bytes > kSafetensorsMaxHeaderBytes) {
    return InvalidArgument(
        fmt::format("the safetensors header would have {} bytes, more than {}: write fewer "
                    "tensors or less metadata",
                    header_bytes, kSafetensorsMaxHeaderBytes));
  }
  std::memcpy(out.data(), &header_bytes, kLengthBytes);
  for (std::uint64_t& begin : layout.begins) begin += out.size();
  return layout;
}

}  // namespace passel

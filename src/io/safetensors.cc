#include "io/safetensors.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <new>
#include <numeric>
#include <tuple>
#include <utility>

#include "io/safetensors_header.h"

namespace passel {

static_assert(std::endian::native == std::endian::little, "tensors are copied byte by byte");

namespace {

using safetensors_internal::DecodeUtf8;
using safetensors_internal::Header;
using safetensors_internal::HeaderEntry;
using safetensors_internal::NameProblem;
using safetensors_internal::ParseHeader;
using safetensors_internal::TensorBytes;

constexpr std::size_t kLengthBytes = 8;  // the number N before the header

struct DTypeRow {
  DType dtype;
  std::string_view name;
  int bits;
};
constexpr std::array kDTypes = {
    DTypeRow{DType::kBool, "BOOL", 8},
    DTypeRow{DType::kF4, "F4", 4},
    DTypeRow{DType::kF6E2M3, "F6_E2M3", 6},
    DTypeRow{DType::kF6E3M2, "F6_E3M2", 6},
    DTypeRow{DType::kU8, "U8", 8},
    DTypeRow{DType::kI8, "I8", 8},
    DTypeRow{DType::kF8E5M2, "F8_E5M2", 8},
    DTypeRow{DType::kF8E4M3, "F8_E4M3", 8},
    DTypeRow{DType::kF8E8M0, "F8_E8M0", 8},
    DTypeRow{DType::kF8E4M3Fnuz, "F8_E4M3FNUZ", 8},
    DTypeRow{DType::kF8E5M2Fnuz, "F8_E5M2FNUZ", 8},
    DTypeRow{DType::kI16, "I16", 16},
    DTypeRow{DType::kU16, "U16", 16},
    DTypeRow{DType::kF16, "F16", 16},
    DTypeRow{DType::kBF16, "BF16", 16},
    DTypeRow{DType::kI32, "I32", 32},
    DTypeRow{DType::kU32, "U32", 32},
    DTypeRow{DType::kF32, "F32", 32},
    DTypeRow{DType::kC64, "C64", 64},
    DTypeRow{DType::kF64, "F64", 64},
    DTypeRow{DType::kI64, "I64", 64},
    DTypeRow{DType::kU64, "U64", 64},
};

const DTypeRow& Row(DType dtype) {
  const auto index = static_cast<std::size_t>(dtype);
  PASSEL_CHECK(index < kDTypes.size() && kDTypes[index].dtype == dtype, "no such dtype");
  return kDTypes[index];
}

/// Whether some word has all bits of `mask` set, after the sign was taken away by the mask.
template <typename Word>
bool AnyWordHas(std::span<const std::byte> data, Word mask) {
  bool found = false;  // no early exit: the loop vectorises, and files are finite as a rule
  for (std::size_t i = 0; i + sizeof(Word) <= data.size(); i += sizeof(Word)) {
    Word word;
    std::memcpy(&word, data.data() + i, sizeof(Word));
    found |= (word & mask) == mask;
  }
  return found;
}

bool HasNonFinite(DType dtype, std::span<const std::byte> data) {
  const auto holds = [data](std::uint8_t value) {
    return std::find(data.begin(), data.end(), std::byte{value}) != data.end();
  };
  switch (dtype) {
    case DType::kF64:
      return AnyWordHas<std::uint64_t>(data, 0x7FF0'0000'0000'0000u);
    case DType::kC64:
    case DType::kF32:
      return AnyWordHas<std::uint32_t>(data, 0x7F80'0000u);
    case DType::kBF16:
      return AnyWordHas<std::uint16_t>(data, 0x7F80u);
    case DType::kF16:
      return AnyWordHas<std::uint16_t>(data, 0x7C00u);
    case DType::kF8E5M2:
      return AnyWordHas<std::uint8_t>(data, 0x7Cu);
    case DType::kF8E4M3:
      return AnyWordHas<std::uint8_t>(data, 0x7Fu);
    case DType::kF8E8M0:
      return holds(0xFF);
    case DType::kF8E4M3Fnuz:
    case DType::kF8E5M2Fnuz:
      return holds(0x80);
    // Integers, and floats without a bit pattern for NaN or infinity.
    case DType::kBool:
    case DType::kF4:
    case DType::kF6E2M3:
    case DType::kF6E3M2:
    case DType::kU8:
    case DType::kI8:
    case DType::kI16:
    case DType::kU16:
    case DType::kI32:
    case DType::kU32:
    case DType::kI64:
    case DType::kU64:
      return false;
  }
  return false;
}

std::string ShapeText(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (const std::int64_t size : shape) text += fmt::format("{}{}", text == "[" ? "" : ",", size);
  return text + "]";
}

/// Rule 5: puts the entries in the order of their data and checks that they fill `data_bytes`.
Status CheckExtents(std::vector<HeaderEntry>* entries, std::uint64_t data_bytes) {
  std::sort(entries->begin(), entries->end(), [](const HeaderEntry& a, const HeaderEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::uint64_t filled = 0;
  for (const HeaderEntry& entry : *entries) {
    if (entry.begin != filled || entry.end < entry.begin) {
      return DataLoss(fmt::format(
          "tensor \"{}\" claims bytes [{}, {}) of the tensor data where one that begins at {} is "
          "due: the file has a gap or an overlap, use another copy",
          entry.name, entry.begin, entry.end, filled));
    }
    if (entry.end > data_bytes) {
      return DataLoss(fmt::format(
          "tensor \"{}\" ends at byte {} of the tensor data but the file holds {}: it is cut off, "
          "use another copy",
          entry.name, entry.end, data_bytes));
    }
    const std::optional<std::uint64_t> bytes = TensorBytes(entry.shape, entry.dtype);
    if (!bytes || *bytes != entry.end - entry.begin) {
      return DataLoss(fmt::format(
          "tensor \"{}\" of dtype {} and shape {} cannot fill {} bytes: the file is corrupt, use "
          "another copy",
          entry.name, DTypeName(entry.dtype), ShapeText(entry.shape), entry.end - entry.begin));
    }
    filled = entry.end;
  }
  if (filled != data_bytes) {
    return DataLoss(fmt::format(
        "the tensors end at byte {} of the tensor data but the file holds {}: something was "
        "appended, use another copy",
        filled, data_bytes));
  }
  return {};
}

/// JSON string with quotes. REQUIRES: valid UTF-8.
void AppendJsonString(std::string_view text, std::string* out) {
  out->push_back('"');
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out->push_back('\\');
      out->push_back(c);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      *out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out->push_back(c);
    }
  }
  out->push_back('"');
}

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    std::uint32_t code_point = 0;
    const int length = DecodeUtf8(text, &code_point);
    if (length == 0) return false;
    text.remove_prefix(static_cast<std::size_t>(length));
  }
  return true;
}

Status CheckForWriting(const TensorView& tensor) {
  if (const char* problem = NameProblem(tensor.name)) {
    return InvalidArgument(
        fmt::format("a tensor name of {} bytes {}", tensor.name.size(), problem));
  }
  if (tensor.name == "__metadata__") {
    return InvalidArgument("\"__metadata__\" is not free as a tensor name: choose another");
  }
  if (tensor.shape.size() > kSafetensorsMaxRank) {
    return InvalidArgument(fmt::format("tensor \"{}\" has {} dimensions, more than {}: merge some",
                                       tensor.name, tensor.shape.size(), kSafetensorsMaxRank));
  }
  const std::optional<std::uint64_t> bytes = TensorBytes(tensor.shape, tensor.dtype);
  if (!bytes || *bytes != tensor.data.size()) {
    return InvalidArgument(fmt::format(
        "tensor \"{}\" of dtype {} and shape {} cannot fill {} bytes: pass the data of that shape",
        tensor.name, DTypeName(tensor.dtype), ShapeText(tensor.shape), tensor.data.size()));
  }
  return {};
}

/// What goes before the data, and the order in which the data follows.
struct Plan {
  std::string prefix;              // N and the header
  std::vector<std::size_t> order;  // indices of tensors
};

Result<Plan> MakePlan(std::span<const TensorView> tensors, const SafetensorsMetadata& metadata) {
  if (tensors.size() > kSafetensorsMaxTensors) {
    return InvalidArgument(fmt::format(
        "{} tensors are more than the {} that one safetensors file may hold: split them",
        tensors.size(), kSafetensorsMaxTensors));
  }
  for (const TensorView& tensor : tensors) PASSEL_RETURN_IF_ERROR(CheckForWriting(tensor));
  Plan plan;
  plan.order.resize(tensors.size());
  std::iota(plan.order.begin(), plan.order.end(), std::size_t{0});
  std::sort(plan.order.begin(), plan.order.end(), [&](std::size_t a, std::size_t b) {
    const int bits_a = DTypeBits(tensors[a].dtype);
    const int bits_b = DTypeBits(tensors[b].dtype);
    return bits_a != bits_b ? bits_a > bits_b : tensors[a].name < tensors[b].name;
  });
  std::vector<std::string_view> names;
  for (const TensorView& tensor : tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end()) {
    return InvalidArgument(fmt::format("two tensors are named \"{}\": rename one of them", *twice));
  }

  std::string& out = plan.prefix;
  out.assign(kLengthBytes, '\0');
  out += '{';
  if (!metadata.empty()) {
    out += "\"__metadata__\":{";
    bool first = true;
    for (const auto& [key, value] : metadata) {
      if (!IsUtf8(key) || !IsUtf8(value)) {
        return InvalidArgument("a metadata key or value is not valid UTF-8: encode it");
      }
      if (!std::exchange(first, false)) out += ',';
      AppendJsonString(key, &out);
      out += ':';
      AppendJsonString(value, &out);
    }
    out += '}';
  }
  std::uint64_t offset = 0;
  for (const std::size_t i : plan.order) {
    const TensorView& tensor = tensors[i];
    if (out.size() > kLengthBytes + 1) out += ',';
    AppendJsonString(tensor.name, &out);
    out += fmt::format(":{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}}",
                       DTypeName(tensor.dtype), ShapeText(tensor.shape), offset,
                       offset + tensor.data.size());
    offset += tensor.data.size();
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
  return plan;
}

}  // namespace

std::string_view DTypeName(DType dtype) { return Row(dtype).name; }

int DTypeBits(DType dtype) { return Row(dtype).bits; }

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
  if (file.size() < kLengthBytes) {
    return DataLoss(
        fmt::format("{} bytes are too few for a safetensors file: it is cut off, use another copy",
                    file.size()));
  }
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), kLengthBytes);
  const std::span<const std::byte> rest = file.subspan(kLengthBytes);
  if (header_bytes < 2 || header_bytes > rest.size()) {
    return DataLoss(fmt::format(
        "a safetensors header of {} bytes cannot be in a file of {} bytes: it is cut off or of "
        "another format, use another copy",
        header_bytes, file.size()));
  }
  if (header_bytes > kSafetensorsMaxHeaderBytes) {
    return InvalidArgument(
        fmt::format("the safetensors header has {} bytes, more than the {} allowed here: split "
                    "the file",
                    header_bytes, kSafetensorsMaxHeaderBytes));
  }
  const auto split = static_cast<std::size_t>(header_bytes);
  PASSEL_ASSIGN_OR_RETURN(Header header, ParseHeader(std::string_view(
                                             reinterpret_cast<const char*>(rest.data()), split)));
  const std::span<const std::byte> data = rest.subspan(split);
  PASSEL_RETURN_IF_ERROR(CheckExtents(&header.entries, data.size()));

  SafetensorsFile result;
  result.metadata = std::move(header.metadata);
  result.tensors.reserve(header.entries.size());
  for (HeaderEntry& entry : header.entries) {
    const auto view = data.subspan(static_cast<std::size_t>(entry.begin),
                                   static_cast<std::size_t>(entry.end - entry.begin));
    if (!result.has_non_finite && HasNonFinite(entry.dtype, view)) {
      result.has_non_finite = true;
      result.first_non_finite = entry.name;
    }
    result.tensors.push_back(
        TensorView{std::move(entry.name), entry.dtype, std::move(entry.shape), view});
  }
  return result;
}

Result<SafetensorsFile> ReadSafetensors(const std::string& path, std::size_t max_bytes) {
  std::vector<std::uint8_t> bytes;
  try {
    PASSEL_ASSIGN_OR_RETURN(bytes, ReadFile(path, max_bytes));
  } catch (const std::bad_alloc&) {
    return ResourceExhausted(fmt::format("there is not enough memory to read {}: free some", path));
  }
  // The views point to the heap, which stays where it is when the vector moves.
  Result<SafetensorsFile> file = ParseSafetensors(std::as_bytes(std::span(bytes)));
  if (!file.ok()) return file.status().WithContext(path);
  file->bytes = std::move(bytes);
  return file;
}

Result<std::vector<std::uint8_t>> SerializeSafetensors(std::span<const TensorView> tensors,
                                                       const SafetensorsMetadata& metadata) {
  PASSEL_ASSIGN_OR_RETURN(const Plan plan, MakePlan(tensors, metadata));
  std::vector<std::uint8_t> bytes(plan.prefix.begin(), plan.prefix.end());
  for (const std::size_t i : plan.order) {
    const auto* data = reinterpret_cast<const std::uint8_t*>(tensors[i].data.data());
    bytes.insert(bytes.end(), data, data + tensors[i].data.size());
  }
  return bytes;
}

Status WriteSafetensors(const std::string& path, std::span<const TensorView> tensors,
                        const SafetensorsMetadata& metadata, FileOps& ops) {
  Result<Plan> plan = MakePlan(tensors, metadata);
  if (!plan.ok()) return plan.status().WithContext(path);
  std::vector<std::span<const std::byte>> pieces;
  pieces.reserve(tensors.size() + 1);
  pieces.push_back(std::as_bytes(std::span(plan->prefix)));
  for (const std::size_t i : plan->order) {
    if (!tensors[i].data.empty()) pieces.push_back(tensors[i].data);
  }
  return WriteFileAtomically(path, pieces, ops);
}

}  // namespace passel

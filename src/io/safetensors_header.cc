#include "io/safetensors_header.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>

#include "base/json.h"
#include "base/text.h"

namespace passel::safetensors_internal {

static_assert(std::endian::native == std::endian::little, "tensors are copied byte by byte");

namespace {

constexpr int kDepth = 3;  // header > entry > shape

Status Malformed(std::string_view what) {
  return DataLoss(
      fmt::format("the safetensors header is malformed: {}; use another copy of the file", what));
}

// Rule 3. A number that is not written as one without sign, fraction and exponent, or that has more
// than 64 bits, is of another type.
Status ReadSize(const Json& json, std::uint64_t* size) {
  const std::optional<std::uint64_t> number = json.As<std::uint64_t>();
  if (!number) return Malformed("a dimension or an offset is no integer without a sign");
  *size = *number;
  return {};
}

Status ReadShape(const Json& json, std::vector<std::int64_t>* shape) {
  if (json.list() == nullptr) return Malformed("a shape is no list");
  if (json.list()->size() > kSafetensorsMaxRank) {
    return InvalidArgument(
        fmt::format("a tensor in the safetensors header has more than {} dimensions: merge some of "
                    "them",
                    kSafetensorsMaxRank));
  }
  for (const Json& dimension : *json.list()) {
    std::uint64_t size = 0;
    PASSEL_RETURN_IF_ERROR(ReadSize(dimension, &size));
    if (size > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return Malformed("a dimension is above 2^63 - 1");
    }
    shape->push_back(static_cast<std::int64_t>(size));
  }
  return {};
}

Status ReadEntry(const Json& json, HeaderEntry* entry) {
  if (json.object() == nullptr) return Malformed("an entry is no object");
  const Json* const dtype_name = json.Find("dtype");
  const Json* const shape = json.Find("shape");
  const Json* const offsets = json.Find("data_offsets");
  if (json.object()->size() != 3 || !dtype_name || !shape || !offsets) {
    return Malformed("an entry has other keys than dtype, shape and data_offsets");
  }
  if (dtype_name->text() == nullptr) return Malformed("a dtype is no string");
  const std::string& name = *dtype_name->text();
  const std::optional<DType> dtype = ParseDType(name);
  if (!dtype) {
    return Malformed(fmt::format("tensor {} has dtype {}, which is none of F32, F64, I64, U8",
                                 Quoted(entry->name), Quoted(name)));
  }
  entry->dtype = *dtype;
  PASSEL_RETURN_IF_ERROR(ReadShape(*shape, &entry->shape));
  const Json::List* const bounds = offsets->list();
  if (bounds == nullptr || bounds->size() != 2) return Malformed("data_offsets are not two");
  PASSEL_RETURN_IF_ERROR(ReadSize((*bounds)[0], &entry->begin));
  return ReadSize((*bounds)[1], &entry->end);
}

Status ReadMetadata(const Json& json, SafetensorsMetadata* metadata) {
  if (json.object() == nullptr) return Malformed("the metadata is no object");
  for (const auto& [key, value] : *json.object()) {
    if (value.text() == nullptr) return Malformed("a value of the metadata is no string");
    metadata->emplace(key, *value.text());
  }
  return {};
}

// Rule 5: puts the entries in the order of their data and checks that they fill `data_bytes`.
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
          "tensor \"{}\" of dtype {} and shape [{}] cannot fill {} bytes: the file is corrupt, use "
          "another copy",
          entry.name, DTypeName(entry.dtype), fmt::join(entry.shape, ","),
          entry.end - entry.begin));
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

}  // namespace

Result<std::size_t> HeaderBytes(std::span<const std::byte> begin, std::uint64_t file_bytes) {
  if (begin.size() < kLengthBytes) {
    return DataLoss(
        fmt::format("{} bytes are too few for a safetensors file: it is cut off, use another copy",
                    begin.size()));
  }
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, begin.data(), kLengthBytes);
  if (header_bytes < 2 || header_bytes > file_bytes - kLengthBytes) {
    return DataLoss(fmt::format(
        "a safetensors header of {} bytes cannot be in a file of {} bytes: it is cut off or of "
        "another format, use another copy",
        header_bytes, file_bytes));
  }
  if (header_bytes > kSafetensorsMaxHeaderBytes) {
    return InvalidArgument(
        fmt::format("the safetensors header has {} bytes, more than the {} allowed here: split "
                    "the file",
                    header_bytes, kSafetensorsMaxHeaderBytes));
  }
  return static_cast<std::size_t>(header_bytes);
}

Result<Header> ParseHeader(std::string_view text, std::uint64_t data_bytes) {
  // Other readers skip white space or a byte order mark here; a file with either is refused.
  if (!text.starts_with('{')) return Malformed("the first byte is not '{'");
  if (text[text.find_last_not_of(' ')] != '}') {
    return Malformed("something other than spaces after the last '}'");
  }
  const Result<Json> json = ParseJson("the safetensors header", text, kDepth);
  if (!json.ok()) return DataLoss(json.status().message() + "; use another copy of the file");
  Header header;
  for (const auto& [name, entry] : *json->object()) {
    if (name == kMetadataKey) {
      PASSEL_RETURN_IF_ERROR(ReadMetadata(entry, &header.metadata));
      continue;
    }
    if (const char* problem = NameProblem(name)) {
      return InvalidArgument(
          fmt::format("the tensor name {} of the safetensors header {}", Quoted(name), problem));
    }
    if (header.entries.size() == kSafetensorsMaxTensors) {
      return InvalidArgument(fmt::format("the safetensors file has more than {} tensors: split it",
                                         kSafetensorsMaxTensors));
    }
    header.entries.emplace_back().name = name;
    PASSEL_RETURN_IF_ERROR(ReadEntry(entry, &header.entries.back()));
  }
  PASSEL_RETURN_IF_ERROR(CheckExtents(&header.entries, data_bytes));
  return header;
}

std::optional<std::uint64_t> TensorBytes(std::span<const std::int64_t> shape, DType dtype) {
  auto bytes = static_cast<std::uint64_t>(DTypeBytes(dtype));
  bool empty = false;
  for (const std::int64_t size : shape) {
    if (size < 0) return std::nullopt;
    // Zeros are left out: [0, 2^40, 2^40] would pass a plain product but overflow the strides of
    // whoever uses the shape.
    if (size == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(size), &bytes)) {
      return std::nullopt;
    }
  }
  return empty ? 0 : bytes;
}

const char* NameProblem(std::string_view name) {
  if (name.size() > kSafetensorsMaxNameBytes) return "has more than 256 bytes: shorten it";
  for (std::size_t i = 0; i < name.size(); ++i) {
    const auto c = static_cast<unsigned char>(name[i]);
    // U+0080 to U+009F are c2 80 to c2 9f.
    const bool second =
        c == 0xC2 && i + 1 < name.size() && static_cast<unsigned char>(name[i + 1]) < 0xA0;
    if (c < 0x20 || c == 0x7F || second) return "holds a control character: leave it out";
  }
  return nullptr;
}

}  // namespace passel::safetensors_internal

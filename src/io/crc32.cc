#include "io/crc32.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <zlib.h>

#include <algorithm>

namespace passel::checked_internal {

void Crc32::Add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {  // zlib takes 32 bits of length
    const std::size_t take = std::min<std::size_t>(bytes.size(), std::size_t{1} << 30);
    crc_ = static_cast<std::uint32_t>(
        ::crc32(crc_, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(take)));
    bytes = bytes.subspan(take);
  }
}

std::string Crc32::Text() const { return fmt::format("{:08x}", crc_); }

Crc32 BeginTensor(std::string_view name, DType dtype, std::span<const std::int64_t> shape) {
  Crc32 crc;
  crc.Add(fmt::format("{}\n{}\n{}\n", name, DTypeName(dtype), fmt::join(shape, ",")));
  return crc;
}

// A map is sorted by key: byte for byte, as Python's sorted() does.
std::string ChecksumOf(const SafetensorsMetadata& metadata) {
  Crc32 crc;
  for (const auto& [key, value] : metadata) {
    if (key != kOfMetadata) crc.Add(fmt::format("{}\n{}\n", key, value));
  }
  return crc.Text();
}

}  // namespace passel::checked_internal

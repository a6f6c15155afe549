#include "io/event_record.h"

#include <boost/crc.hpp>
#include <concepts>

namespace passel {
namespace {

template <std::unsigned_integral T>
void AppendLittleEndian(T value, std::string* out) {
  for (std::size_t i = 0; i < sizeof value; ++i) {
    out->push_back(static_cast<char>(value >> (8 * i) & 0xff));
  }
}

}  // namespace

std::uint32_t Crc32c(std::string_view data) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;
  crc.process_bytes(data.data(), data.size());
  return crc.checksum();
}

std::uint32_t MaskedCrc32c(std::string_view data) {
  const std::uint32_t crc = Crc32c(data);
  return (crc >> 15 | crc << 17) + 0xa282ead8U;
}

void AppendRecord(std::string_view data, std::string* out) {
  std::string length;
  AppendLittleEndian(std::uint64_t{data.size()}, &length);
  *out += length;
  AppendLittleEndian(MaskedCrc32c(length), out);
  *out += data;
  AppendLittleEndian(MaskedCrc32c(data), out);
}

}  // namespace passel

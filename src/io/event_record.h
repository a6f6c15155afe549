// event_record.h - the frame of one record of an event file (TensorBoard's, also TFRecord's).
//
//   byte 0       8                 12            12 + length          16 + length
//   +------------+-----------------+-------------+--------------------+
//   | length:    | masked CRC32C   | data        | masked CRC32C      |
//   | u64 LE     | of those 8 bytes|             | of the data, u32 LE|
//   +------------+-----------------+-------------+--------------------+
//
// Thread safety: the functions share nothing.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace passel {

/// Castagnoli's CRC (polynomial 0x1EDC6F41, reflected): 0xE3069283 of "123456789".
std::uint32_t Crc32c(std::string_view data);

/// The CRC as records hold it: a CRC of bytes that contain their own CRC would be a constant.
std::uint32_t MaskedCrc32c(std::string_view data);

/// Appends one record to `out`.
void AppendRecord(std::string_view data, std::string* out);

}  // namespace passel

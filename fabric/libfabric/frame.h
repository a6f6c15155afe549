// frame.h - what the pipe puts before each header.
//
//   byte 0      4        6       8             12            16           24        32      40
//   +-----------+--------+-------+-------------+-------------+------------+---------+-------+------
//   | magic     | version| flags | header bytes| chunk floats| bulk floats| sequence| taken | ...
//   +-----------+--------+-------+-------------+-------------+------------+---------+-------+------
//   Little-endian. The header follows, then the bulk if it is inline.
//
// A bulk that is not inline comes in messages of its own, of `chunk floats` each but the last. A
// frame without a header carries `taken` alone.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "fabric/pipe.h"

namespace passel::fabric {

inline constexpr std::uint16_t kPipeFrameVersion = 1;
inline constexpr std::size_t kFramePrefixBytes = 40;
inline constexpr std::size_t kMaxPipeFrameBytes = kFramePrefixBytes + kMaxHeaderBytes;
/// A frame with its bulk inline is no longer: providers send so much at once, without asking.
inline constexpr std::size_t kMaxInlineFrameBytes = 16000;
/// A receiver has room for so many frames that it has not taken, beside a few without a header.
inline constexpr std::uint64_t kFrameWindow = 8;
inline constexpr std::size_t kMinChunkFloats = 1024;
inline constexpr std::size_t kMaxChunkFloats = std::size_t{1} << 20;

struct PipeFrame {
  bool bulk_inline = false;
  std::uint32_t header_bytes = 0;
  std::uint32_t chunk_floats = 0;
  std::uint64_t bulk_floats = 0;
  std::uint64_t sequence = 0;  ///< of those with a header: from 1
  std::uint64_t taken = 0;     ///< frames with a header that the sender of this one has taken
};

/// Writes kFramePrefixBytes.
void EncodePipeFrame(const PipeFrame& frame, std::uint8_t* out);
/// `bytes`: all that came. Errors: kInvalidArgument.
Result<PipeFrame> DecodePipeFrame(std::span<const std::uint8_t> bytes, std::uint64_t most_floats);

}  // namespace passel::fabric

#include "fabric/libfabric/frame.h"

#include <fmt/core.h>

namespace passel::fabric {
namespace {

constexpr std::uint32_t kFrameMagic = 0x6d667370;  // "psfm"
constexpr std::uint16_t kInlineFlag = 1;

template <typename T>
std::uint8_t* Put(std::uint8_t* out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) *out++ = static_cast<std::uint8_t>(value >> (8 * i));
  return out;
}

template <typename T>
T Get(const std::uint8_t*& in) {
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) bits |= std::uint64_t{*in++} << (8 * i);
  return static_cast<T>(bits);
}

}  // namespace

void EncodePipeFrame(const PipeFrame& frame, std::uint8_t* out) {
  out = Put(out, kFrameMagic);
  out = Put(out, kPipeFrameVersion);
  out = Put(out, static_cast<std::uint16_t>(frame.bulk_inline ? kInlineFlag : 0));
  out = Put(out, frame.header_bytes);
  out = Put(out, frame.chunk_floats);
  out = Put(out, frame.bulk_floats);
  out = Put(out, frame.sequence);
  Put(out, frame.taken);
}

Result<PipeFrame> DecodePipeFrame(std::span<const std::uint8_t> bytes, std::uint64_t most_floats) {
  const auto wrong = [&](const char* what) {
    return InvalidArgument(fmt::format("a frame of {} bytes has {}", bytes.size(), what));
  };
  if (bytes.size() < kFramePrefixBytes) return wrong("less than its first 40 bytes");
  const std::uint8_t* in = bytes.data();
  PipeFrame frame;
  if (Get<std::uint32_t>(in) != kFrameMagic) return wrong("no word of this protocol");
  if (Get<std::uint16_t>(in) != kPipeFrameVersion) return wrong("another version of the protocol");
  const auto flags = Get<std::uint16_t>(in);
  if (flags > kInlineFlag) return wrong("a flag that this build does not know");
  frame.bulk_inline = flags == kInlineFlag;
  frame.header_bytes = Get<std::uint32_t>(in);
  frame.chunk_floats = Get<std::uint32_t>(in);
  frame.bulk_floats = Get<std::uint64_t>(in);
  frame.sequence = Get<std::uint64_t>(in);
  frame.taken = Get<std::uint64_t>(in);
  if (frame.header_bytes > kMaxHeaderBytes) return wrong("a header that is too long");
  if (frame.bulk_floats > most_floats) {
    return InvalidArgument(
        fmt::format("a message has a bulk of {} floats: at most {} are taken here",
                    frame.bulk_floats, most_floats));
  }
  if ((frame.header_bytes == 0) != (frame.sequence == 0)) return wrong("a false sequence");
  if (frame.header_bytes == 0 && frame.bulk_floats > 0) return wrong("a bulk without a header");
  const bool chunks = frame.bulk_floats > 0 && !frame.bulk_inline;
  if (chunks ? frame.chunk_floats < kMinChunkFloats || frame.chunk_floats > kMaxChunkFloats
             : frame.chunk_floats != 0) {
    return wrong("chunks of a false size");
  }
  if (frame.bulk_inline && (frame.bulk_floats == 0 || frame.bulk_floats > kMaxInlineFrameBytes)) {
    return wrong("a false bulk in it");
  }
  const std::size_t inline_bytes = frame.bulk_inline ? frame.bulk_floats * sizeof(float) : 0;
  if (bytes.size() != kFramePrefixBytes + frame.header_bytes + inline_bytes) {
    return wrong("another length than it says");
  }
  return frame;
}

}  // namespace passel::fabric

#include "fabric/control/tcp_pipe.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace passel::fabric {
namespace {

static_assert(std::endian::native == std::endian::little, "floats travel as they lie in memory");

struct Prefix {
  std::uint32_t header_bytes = 0;
  std::uint64_t bulk_floats = 0;
};
constexpr std::size_t kPrefixBytes = 12;
static_assert(kPrefixBytes + kMaxHeaderBytes <= kMaxPayloadBytes);
static_assert(kBulkFrameBytes % sizeof(float) == 0 && kBulkFrameBytes <= kMaxPayloadBytes);

// More floats than any memory has.
constexpr std::uint64_t kMostFloats = std::uint64_t{1} << 48;

Prefix Read(std::span<const std::uint8_t> bytes) {
  Prefix prefix;
  std::memcpy(&prefix.header_bytes, bytes.data(), 4);
  std::memcpy(&prefix.bulk_floats, bytes.data() + 4, 8);
  return prefix;
}

}  // namespace

TcpPipe::~TcpPipe() { channel_->Shut(Unavailable("the pipe was given up")); }

Status TcpPipe::Send(std::span<const std::uint8_t> header, std::span<const float> bulk) {
  PASSEL_CHECK(!header.empty() && header.size() <= kMaxHeaderBytes, "a header has its limits");
  std::vector<std::uint8_t> message(kPrefixBytes + header.size());
  const auto header_bytes = static_cast<std::uint32_t>(header.size());
  const std::uint64_t bulk_floats = bulk.size();
  std::memcpy(message.data(), &header_bytes, 4);
  std::memcpy(message.data() + 4, &bulk_floats, 8);
  std::ranges::copy(header, message.begin() + kPrefixBytes);
  return channel_->SendMessage(
      message, {reinterpret_cast<const std::uint8_t*>(bulk.data()), bulk.size_bytes()});
}

// The next frame of the bulk is in rest_; false: not before the deadline.
Result<bool> TcpPipe::NextBulk(Deadline deadline) {
  for (;;) {
    const Result<Frame> frame = channel_->Receive(deadline);
    if (!frame.ok()) {
      if (frame.status().code() == Code::kDeadlineExceeded) return false;
      return frame.status();
    }
    if (frame->kind == FrameKind::kBeat) continue;
    const std::size_t bytes = frame->payload.size();
    if (frame->kind != FrameKind::kBulk || bytes == 0 || bytes % sizeof(float) != 0 ||
        bytes / sizeof(float) > unread_) {
      channel_->Shut(Unavailable("the other end sent something else than the rest of a message"));
      continue;
    }
    rest_ = frame->payload;
    return true;
  }
}

Result<Arrival> TcpPipe::Receive(Deadline deadline) {
  while (unread_ > 0) {
    if (rest_.empty()) {
      PASSEL_ASSIGN_OR_RETURN(const bool came, NextBulk(deadline));
      if (!came) return DeadlineExceeded("the rest of a message has not come");
    }
    unread_ -= rest_.size() / sizeof(float);
    rest_ = {};
  }
  for (;;) {
    PASSEL_ASSIGN_OR_RETURN(const Frame frame, channel_->Receive(deadline));
    if (frame.kind == FrameKind::kBeat) continue;
    if (frame.kind == FrameKind::kBye) {
      channel_->Shut(Unavailable("the other end has left"));
      continue;
    }
    const std::span<const std::uint8_t> payload = frame.payload;
    const Prefix prefix = frame.kind == FrameKind::kMessage && payload.size() > kPrefixBytes
                              ? Read(payload)
                              : Prefix{};
    if (prefix.header_bytes == 0 || prefix.header_bytes > kMaxHeaderBytes ||
        prefix.header_bytes != payload.size() - kPrefixBytes || prefix.bulk_floats > kMostFloats) {
      channel_->Shut(Unavailable("the other end sent what is no message"));
      continue;
    }
    Arrival arrival;
    arrival.header.assign(payload.begin() + kPrefixBytes, payload.end());
    arrival.bulk_floats = unread_ = prefix.bulk_floats;
    return arrival;
  }
}

Result<std::size_t> TcpPipe::ReadSome(std::span<float> into, Deadline deadline) {
  PASSEL_CHECK(into.size() <= unread_, "more than there is");
  std::size_t read = 0;
  while (read < into.size()) {
    if (rest_.empty()) {
      PASSEL_ASSIGN_OR_RETURN(const bool came, NextBulk(deadline));
      if (!came) break;
    }
    const std::size_t part = std::min(into.size() - read, rest_.size() / sizeof(float));
    std::memcpy(into.data() + read, rest_.data(), part * sizeof(float));
    rest_ = rest_.subspan(part * sizeof(float));
    read += part;
    unread_ -= part;
  }
  return read;
}

}  // namespace passel::fabric

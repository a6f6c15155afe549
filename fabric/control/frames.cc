#include "fabric/control/frames.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

namespace passel::fabric {
namespace {

constexpr std::size_t kLengthBytes = 4;
static_assert(kFrameOverhead == kLengthBytes + 1 + kSealBytes);

// A few bulk frames at once.
constexpr std::size_t kRoom = 8 * (kMaxFrameBytes + kFrameOverhead);

}  // namespace

void FrameSealer::Seal(FrameKind kind, std::span<const std::uint8_t> first,
                       std::span<const std::uint8_t> second, std::vector<std::uint8_t>* out) {
  const std::size_t payload = first.size() + second.size();
  PASSEL_CHECK(payload <= kMaxPayloadBytes, "a frame is too large");
  const std::size_t at = out->size();
  out->resize(at + payload + kFrameOverhead);
  const auto frame = std::span(*out).subspan(at);
  const auto length = static_cast<std::uint32_t>(1 + payload);
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    frame[i] = static_cast<std::uint8_t>(length >> (8 * i));
  }
  const auto said = static_cast<std::uint8_t>(kind);
  const std::array<std::span<const std::uint8_t>, 3> parts = {std::span(&said, 1), first, second};
  cipher_.Seal(number_++, frame.first(kLengthBytes), parts, frame.subspan(kLengthBytes));
}

std::span<std::uint8_t> FrameOpener::Room() {
  if (begin_ == end_) begin_ = end_ = 0;
  if (bytes_.size() < kRoom) bytes_.resize(kRoom);
  if (bytes_.size() - end_ < kMaxFrameBytes + kFrameOverhead) {
    std::copy(bytes_.begin() + static_cast<std::ptrdiff_t>(begin_),
              bytes_.begin() + static_cast<std::ptrdiff_t>(end_), bytes_.begin());
    end_ -= begin_;
    begin_ = 0;
  }
  return std::span(bytes_).subspan(end_);
}

Result<std::optional<Frame>> FrameOpener::Next() {
  if (broken_) return DataLoss("the connection is over");
  const std::size_t there = end_ - begin_;
  if (there < kLengthBytes) return std::optional<Frame>();
  std::uint8_t* const frame = bytes_.data() + begin_;
  std::uint32_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) length |= std::uint32_t{frame[i]} << (8 * i);
  if (length == 0 || length > kMaxFrameBytes) {
    broken_ = true;
    return DataLoss(fmt::format("a frame has 1 to {} bytes, this one {}", kMaxFrameBytes, length));
  }
  const std::size_t whole = kLengthBytes + length + kSealBytes;
  if (there < whole) return std::optional<Frame>();
  std::uint8_t* const sealed = frame + kLengthBytes;
  if (!cipher_.Open(number_++, {frame, kLengthBytes}, {sealed, length + kSealBytes})) {
    broken_ = true;
    return DataLoss("a frame was changed on its way");
  }
  const std::uint8_t kind = sealed[0];
  if (kind < static_cast<std::uint8_t>(FrameKind::kBeat) ||
      kind > static_cast<std::uint8_t>(FrameKind::kBye)) {
    broken_ = true;
    return DataLoss(fmt::format("a frame is of no known kind ({})", kind));
  }
  begin_ += whole;
  return std::optional<Frame>(
      Frame{static_cast<FrameKind>(kind), {sealed + 1, std::size_t{length} - 1}});
}

}  // namespace passel::fabric

#include "fabric/control/frames.h"

#include <fmt/core.h>
#include <sodium.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace passel::fabric {
namespace {

constexpr std::size_t kLengthBytes = 4;
constexpr std::size_t kSealBytes = crypto_aead_xchacha20poly1305_ietf_ABYTES;
static_assert(kFrameOverhead == kLengthBytes + 1 + kSealBytes);
static_assert(sizeof(KeyedHash) == crypto_aead_xchacha20poly1305_ietf_KEYBYTES);

// A few bulk frames at once.
constexpr std::size_t kRoom = 8 * (kMaxFrameBytes + kFrameOverhead);

using Nonce = std::array<std::uint8_t, crypto_aead_xchacha20poly1305_ietf_NPUBBYTES>;
Nonce NonceOf(std::uint64_t number) {
  Nonce nonce{};
  for (std::size_t i = 0; i < 8; ++i) nonce[i] = static_cast<std::uint8_t>(number >> (8 * i));
  return nonce;
}

void StartSodium() { PASSEL_CHECK(sodium_init() >= 0, "libsodium does not start"); }

}  // namespace

FrameSealer::FrameSealer(const KeyedHash& key) : key_(key) { StartSodium(); }
FrameSealer::~FrameSealer() { sodium_memzero(key_.data(), key_.size()); }

void FrameSealer::Seal(FrameKind kind, std::span<const std::uint8_t> first,
                       std::span<const std::uint8_t> second, std::vector<std::uint8_t>* out) {
  const std::size_t payload = first.size() + second.size();
  PASSEL_CHECK(payload <= kMaxPayloadBytes, "a frame is too large");
  plain_.resize(1 + payload);
  plain_[0] = static_cast<std::uint8_t>(kind);
  std::ranges::copy(first, plain_.begin() + 1);
  std::ranges::copy(second, plain_.begin() + 1 + static_cast<std::ptrdiff_t>(first.size()));
  const std::size_t at = out->size();
  out->resize(at + payload + kFrameOverhead);
  std::uint8_t* const frame = out->data() + at;
  const auto length = static_cast<std::uint32_t>(plain_.size());
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    frame[i] = static_cast<std::uint8_t>(length >> (8 * i));
  }
  const Nonce nonce = NonceOf(number_++);
  crypto_aead_xchacha20poly1305_ietf_encrypt(frame + kLengthBytes, nullptr, plain_.data(),
                                             plain_.size(), frame, kLengthBytes, nullptr,
                                             nonce.data(), key_.data());
}

FrameOpener::FrameOpener(const KeyedHash& key) : key_(key) { StartSodium(); }
FrameOpener::~FrameOpener() { sodium_memzero(key_.data(), key_.size()); }

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
  const Nonce nonce = NonceOf(number_++);
  std::uint8_t* const sealed = frame + kLengthBytes;
  // The seal is checked before the first byte is decrypted in place.
  if (crypto_aead_xchacha20poly1305_ietf_decrypt(sealed, nullptr, nullptr, sealed,
                                                 length + kSealBytes, frame, kLengthBytes,
                                                 nonce.data(), key_.data()) != 0) {
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

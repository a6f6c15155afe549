// frames.h - sealed frames: what goes over a connection after the handshake.
//
//   0  4  n, 1 to kMaxFrameBytes, little-endian       in clear, but covered by the seal
//   4  n  kind, then the payload                      encrypted
//   .. 16 the seal
//
// ChaCha20-Poly1305, each direction under its own key with the number of the frame as nonce
// (frame_cipher.h). So a frame that is changed, left out, repeated, moved, or of another connection
// does not open, and the connection is over.
//
// Nothing here waits or touches a socket. Thread safety: one thread at a time for each object.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "fabric/control/frame_cipher.h"

namespace passel::fabric {

enum class FrameKind : std::uint8_t {
  kBeat = 1,  ///< says that its sender lives
  kText,      ///< one JSON object
  kMessage,   ///< begins a message of a pipe
  kBulk,      ///< goes on with it
  kBye,       ///< the sender leaves; nothing follows
};

inline constexpr std::size_t kMaxPayloadBytes = 20'480;
inline constexpr std::size_t kMaxFrameBytes = kMaxPayloadBytes + 1;
inline constexpr std::size_t kFrameOverhead = 4 + 1 + 16;

class FrameSealer {
 public:
  explicit FrameSealer(const KeyedHash& key) : cipher_(key, FrameCipher::Use::kSeal) {}
  /// Appends a frame whose payload is `first`, then `second`. REQUIRES: at most kMaxPayloadBytes.
  void Seal(FrameKind kind, std::span<const std::uint8_t> first,
            std::span<const std::uint8_t> second, std::vector<std::uint8_t>* out);

 private:
  FrameCipher cipher_;
  std::uint64_t number_ = 0;  // of the next frame; never the same twice
};

struct Frame {
  FrameKind kind = FrameKind::kBeat;
  std::span<const std::uint8_t> payload;  ///< valid until the next call of Room() or Next()
};

class FrameOpener {
 public:
  explicit FrameOpener(const KeyedHash& key) : cipher_(key, FrameCipher::Use::kOpen) {}

  /// Where bytes that come belong; not empty while Next() finds no frame.
  std::span<std::uint8_t> Room();
  /// So many have come.
  void Filled(std::size_t bytes) { end_ += bytes; }
  /// The next frame, if it is whole. Errors: kDataLoss, for good.
  Result<std::optional<Frame>> Next();
  /// A part of a frame is there.
  bool partial() const { return end_ > begin_; }

 private:
  FrameCipher cipher_;
  std::uint64_t number_ = 0;
  std::vector<std::uint8_t> bytes_;
  std::size_t begin_ = 0, end_ = 0;
  bool broken_ = false;
};

}  // namespace passel::fabric

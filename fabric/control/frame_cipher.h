// frame_cipher.h - what seals a frame: ChaCha20-Poly1305 (RFC 8439) by OpenSSL.
//
// A nonce is the number of the frame in 8 bytes, little-endian, and 4 of 0. Two messages under one
// key and nonce would open both, so a key belongs to one direction of one connection, is fresh for
// each (tcp_handshake.h), and its frames are counted from 0, which 64 bits never exhaust.
//
// Thread safety: one thread at a time for each object.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "cluster/job_token.h"

struct evp_cipher_ctx_st;

namespace passel::fabric {

inline constexpr std::size_t kSealBytes = 16;

class FrameCipher {
 public:
  enum class Use { kSeal, kOpen };
  /// The key is kept in memory of OpenSSL, which wipes it.
  FrameCipher(const KeyedHash& key, Use use);
  FrameCipher(const FrameCipher&) = delete;
  FrameCipher& operator=(const FrameCipher&) = delete;

  /// Writes the parts, one behind the other and encrypted, to `out`, and the seal of both `clear`
  /// and them behind that. REQUIRES: `out` has their size and kSealBytes.
  void Seal(std::uint64_t number, std::span<const std::uint8_t> clear,
            std::span<const std::span<const std::uint8_t>> parts, std::span<std::uint8_t> out);
  /// Decrypts in place what Seal() wrote. False: it is something else, and what is there now means
  /// nothing.
  bool Open(std::uint64_t number, std::span<const std::uint8_t> clear,
            std::span<std::uint8_t> sealed);

 private:
  void Begin(std::uint64_t number, std::span<const std::uint8_t> clear);
  struct Free {
    void operator()(evp_cipher_ctx_st* context) const;
  };
  const std::unique_ptr<evp_cipher_ctx_st, Free> context_;
};

}  // namespace passel::fabric

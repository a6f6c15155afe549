// tcp_handshake.h - the first bytes of a connection between hosts: both ends prove that they know
// the job token, and agree on keys that nobody else knows.
//
//   client                                server
//   hello, 96 bytes                  -->
//                                    <--  answer, 72 bytes     proof("tcp-server", hello, answer)
//   proof, 32 bytes                  -->                       proof("tcp-client", hello, answer)
//   then sealed frames (frames.h) both ways
//
//   hello   0  4  "PSLC"                  answer  0  4  "PSLC"
//           4  2  version, 2                      4  2  version, 2
//           6  1  Role                            6  1  0: go on; 1: refused, what follows is 0
//           7  1  1: without a token              7  1  1: without a token
//           8  4  index                           8 32  public key (X25519), fresh
//          12  4  0                              40 32  proof, over all bytes before it
//          16 48  job id, 0 behind it
//          64 32  public key (X25519), fresh
//
// Numbers are little-endian. A proof is HMAC-SHA512-256 under the token and the job's id. The word
// before it stops reflection, fresh keys stop replay, and all that was said is in it, so that
// nothing can be changed on the way. The keys of the two directions are such hashes of the secret
// that the fresh keys give: who learns the token later cannot read what was recorded.
//
// Nothing here waits or touches a socket. Thread safety: none needed; one object per connection.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/status.h"
#include "cluster/handshake.h"
#include "cluster/job_token.h"

namespace passel::fabric {

inline constexpr std::uint16_t kControlVersion = 2;
inline constexpr std::size_t kHelloBytes = 96, kAnswerBytes = 72;
using HelloBytes = std::array<std::uint8_t, kHelloBytes>;
using AnswerBytes = std::array<std::uint8_t, kAnswerBytes>;

/// What opens a door.
struct DoorKey {
  JobToken token;
  /// Whoever comes is let in, and `token` is not used: the other end must want that too.
  bool insecure_no_auth = false;

  /// Errors: kInvalidArgument without a token that is needed.
  Status Check() const;
};

/// Who somebody says to be.
struct Claim {
  std::string job_id;
  Role role = Role::kWorker;
  int index = 0;
};

/// Of one end of a connection. Wiped.
struct StreamKeys {
  KeyedHash send{}, receive{};
  StreamKeys() = default;
  StreamKeys(const StreamKeys&) = default;
  StreamKeys& operator=(const StreamKeys&) = default;
  ~StreamKeys();
};

/// The secret half of a fresh key. Wiped.
class FreshKey {
 public:
  FreshKey();
  ~FreshKey();
  FreshKey(const FreshKey&) = delete;
  FreshKey& operator=(const FreshKey&) = delete;
  std::span<const std::uint8_t, 32> public_half() const { return public_; }
  /// False for a public half that is none.
  bool SecretWith(std::span<const std::uint8_t, 32> other, std::string* secret) const;

 private:
  std::array<std::uint8_t, 32> public_, secret_;
};

class TcpClientHandshake {
 public:
  /// REQUIRES: key.Check().ok(), and a job id of at most 48 bytes.
  TcpClientHandshake(DoorKey key, const Claim& me);
  const HelloBytes& hello() const { return hello_; }
  /// The proof to send, and the keys. Errors: kPermissionDenied: the server refuses, or cannot
  /// prove itself; kFailedPrecondition: it speaks another version.
  Result<KeyedHash> Prove(const AnswerBytes& answer, StreamKeys* keys) const;

 private:
  const DoorKey key_;
  const std::string job_id_;
  const FreshKey fresh_;
  HelloBytes hello_{};
};

class TcpServerHandshake {
 public:
  /// REQUIRES: key.Check().ok().
  TcpServerHandshake(DoorKey key, std::string job_id);
  /// What to send: a refusal where the status is not OK, which is for the own log alone.
  AnswerBytes Answer(const HelloBytes& hello, Status* status);
  /// After Answer(). Errors: kPermissionDenied.
  Status Check(const KeyedHash& proof, StreamKeys* keys) const;
  /// Who it says to be; proved once Check() is OK.
  const Claim& claim() const { return claim_; }

 private:
  Status Read(const HelloBytes& hello);

  const DoorKey key_;
  const std::string job_id_;
  std::optional<FreshKey> fresh_;  // made for a hello that is one
  Claim claim_;
  std::string said_;    // hello and answer
  std::string secret_;  // that the fresh keys give
};

}  // namespace passel::fabric

// job_token.h - the secret that says "this process belongs to the job", and its proof.
//
// 32 random bytes, handed to children by an inherited descriptor and to tasks started by hand by a
// file of mode 0400. It is never put on a command line or into the environment, and never sent:
// both sides prove that they know it by a keyed hash (libsodium crypto_auth, HMAC-SHA512-256) over
// fresh nonces and everything that was said before.
//
// In this process it lies in one page of its own (libsodium sodium_malloc): absent from core files,
// not written to swap where mlock is allowed, and wiped when the last copy of the object is gone.

#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/file_descriptor.h"
#include "base/status.h"

namespace passel {

class JobToken {
 public:
  static constexpr std::size_t kBytes = 32;

  static JobToken Generate();
  /// Never blocks. Follows links: a mounted secret is one.
  /// Errors: those of CheckFile(); kInvalidArgument when the file has not exactly 32 bytes.
  static Result<JobToken> Read(const std::string& path);
  /// Whether the open file may hold a token. Errors: kInvalidArgument when it is no regular file (a
  /// FIFO, say, where anybody may be at the other end), when it belongs to a user who is neither
  /// this one nor root, or when other users can use it.
  static Status CheckFile(int fd, const std::string& path);
  /// Reads the file, or makes it (mode 0400) if there is none: the first task of a job that is
  /// started by hand makes it, of several that try at once one wins.
  static Result<JobToken> ReadOrCreate(const std::string& path);

  struct NewFile;
  /// Makes the file, if there is none, with a new token; `locked`: under a shared lock (flock) from
  /// its first moment on. The file is complete when it gets its name. Without a descriptor in the
  /// result there was one already.
  static Result<NewFile> Create(const std::string& path, bool locked);

  /// Made by none of the above: it proves nothing.
  bool empty() const { return secret_ == nullptr; }
  /// Zeros in an object that was made by none of the above. Do not copy them.
  const std::array<std::uint8_t, kBytes>& bytes() const;

 private:
  struct Secret;
  static std::shared_ptr<Secret> NewSecret();
  std::shared_ptr<const Secret> secret_;
};

struct JobToken::NewFile {
  FileDescriptor fd;  ///< invalid: none was made
  JobToken token;
};

/// HMAC-SHA512-256.
using KeyedHash = std::array<std::uint8_t, 32>;
/// The hash of `text` under the token and the job's id. What is hashed for one purpose begins with
/// a word of its own.
KeyedHash HashWith(const JobToken& token, std::string_view job_id, std::string_view text);
/// Constant time.
bool CheckHash(const JobToken& token, std::string_view job_id, std::string_view text,
               const KeyedHash& hash);

/// Which side proves itself: a proof cannot be reflected to its sender.
enum class ProofSide { kServer, kClient };

/// Hexadecimal keyed hash of `transcript` under the token and the job's id.
std::string MakeProof(const JobToken& token, std::string_view job_id, ProofSide side,
                      std::string_view transcript);
/// Constant time.
bool CheckProof(const JobToken& token, std::string_view job_id, ProofSide side,
                std::string_view transcript, std::string_view proof);

/// 32 fresh random bytes in hexadecimal.
std::string MakeNonce();

}  // namespace passel

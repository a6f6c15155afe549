// handshake.h - how two tasks of a job find out who the other is, whatever carries their messages.
//
//   client                                   server
//   {"hello":3,"role",...,"nonce"}      -->                        whose clocks are the server's,
//                                                                  too, or it is refused
//                                       <--  {"nonce","proof"}     proof("srv", hello + nonce)
//   {"proof"}                           -->                        proof("wrk", hello + nonce)
//                                       <--  {"ok":true} or {"error":code,"message"}
//
// Each of these is one JSON object in one text. The carrier sends and receives them, vouches for
// what it knows of the peer (its user, its pid) and sets the time limit.
//
// Thread safety: values; const calls may run concurrently.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/process_identity.h"
#include "base/status.h"
#include "cluster/job_token.h"

namespace passel {

inline constexpr int kProtocolVersion = 3;

enum class Role { kWorker, kPs, kSupervisor, kControl, kEvaluator };
std::string_view RoleName(Role role);
std::optional<Role> ParseRole(std::string_view name);

/// What a task says of itself when it connects.
struct Introduction {
  std::string job_id;
  Role role = Role::kWorker;
  int index = 0;
  std::uint64_t cluster_hash = 0;
};

/// Who is at the other end, as far as it was checked.
struct Peer {
  Role role = Role::kControl;
  int index = 0;
  ProcessIdentity identity;      ///< in its own pid namespace, as it says
  pid_t pid = 0;                 ///< in ours, as the kernel says
  std::uint64_t connection = 0;  ///< no other has the same; of the carrier
};

/// "worker/1": by role and index.
std::string NameOf(const Peer& peer);

/// What both ends believe about the memory that they share: equal in all tasks of one build.
struct MemoryFormat {
  std::uint32_t layout = 0;
  std::uint64_t structure = 0;  ///< hash of sizes and offsets
};

class ClientHandshake {
 public:
  ClientHandshake(const Introduction& me, const MemoryFormat& format);

  /// What to send first.
  const std::string& hello() const { return hello_; }
  /// What to send after the server's `challenge`. `server` is what people call it. Errors:
  /// kPermissionDenied when it has another token; kDataLoss.
  Result<std::string> Answer(const std::string& challenge, const JobToken& token,
                             const std::string& server) const;

 private:
  std::string job_id_;
  std::string hello_;
};

/// The side of one task that listens, for all of its connections.
class ServerHandshake {
 public:
  ServerHandshake(const JobToken& token, const Introduction& me, const MemoryFormat& format);

  /// Fills in whom `hello` comes from; the carrier has set `peer->pid`. Returns the challenge to
  /// send, and keeps in `transcript` what the peer's proof is to be over. A peer of role "control"
  /// proves nothing: its challenge is {"ok":true}, and the carrier decides whether it may stay.
  /// Errors: kDataLoss; kPermissionDenied: it says that it is another process than it is;
  /// kFailedPrecondition: another build, cluster or time namespace.
  Result<std::string> Challenge(const std::string& hello, Peer* peer,
                                std::string* transcript) const;
  /// Errors: kPermissionDenied when the peer does not know the token. One sentence for every wrong
  /// proof: it helps no guesser.
  Status CheckAnswer(const std::string& answer, const std::string& transcript) const;

 private:
  Status CheckHello(const std::string& text, Peer* peer) const;

  const JobToken token_;
  const Introduction me_;
  const MemoryFormat format_;
  const std::string clocks_;  // ClockOffsets()
  const std::uint64_t pid_namespace_;
};

}  // namespace passel

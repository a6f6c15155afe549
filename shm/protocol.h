// protocol.h - what tasks of one host say to each other when they meet.
//
// Every message is one JSON object in one packet of a SOCK_SEQPACKET socket in the abstract name
// space, with descriptors beside it. The server checks the peer's uid before it reads anything.
//
//   client                                   server
//   {"hello":3,"role",...,"nonce"}      -->                        whose clocks are the server's,
//                                                                  too, or it is refused
//                                       <--  {"nonce","proof"}     proof("srv", hello + nonce)
//   {"proof"}                           -->                        proof("wrk", hello + nonce)
//                                       <--  {"ok":true} or {"error":code,"message"}
//
// Then requests {"ask":NAME, ...}, each answered in turn by {"ok":true, ...} or an error:
//
//   arena       "wait"      fd of the arena, of an evaluator read-only; or {"need_plan":true}; or
//                           nothing: there is none
//   plan        fd          fd of the arena that is made from it; of the chief
//   offer_data  "key", fd
//   get_data    "key"       fd, or nothing: nobody has offered it
//   tell_data   "about":{}  which data this worker trains on
//   here                    a ps: it listens now; {"data"}: what this worker trains on, or null
//   kept                    the supervisor holds the arena now
//   status                  fd of a JSON object; its "data" is what was told first (the chief's, if
//                           that told), with what else was told in its list "also"; null: nothing
//   snapshot    "values"    {"chief"}, and if there are values "snapshot":true, "global_step", ...,
//                           "data" as in a status, and, if asked for, fds of values and plan
//   set_mode    "mode"      {"number"}, see store/mode_change.h; of ps/0 alone
//   stop
//
// Who may ask what is said in rendezvous_server.cc. A connection of role "control" proves its uid
// alone, and may ask for the last four.
//
// The connection then stays open: its end is the sign that the client died or left.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/process_identity.h"
#include "base/status.h"
#include "base/unix_socket.h"
#include "store/shard_snapshot.h"

namespace passel::shm {

inline constexpr int kProtocolVersion = 3;

/// The most bytes of what tell_data tells.
inline constexpr std::size_t kMaxDataText = 10'000;

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
  ProcessIdentity identity;  ///< in its own pid namespace, as it says
  pid_t pid = 0;             ///< in ours, as the kernel says
};

/// "worker/1": by role and index.
std::string NameOf(const Peer& peer);

/// A ps's answer to snapshot: a copy of the values of its shard.
struct ShardSnapshot : ShardSnapshotInfo {
  bool there = false;         ///< else the first values are not written
  std::string chief;          ///< who writes them
  FileDescriptor values;      ///< float[floats of the shard], constant
  FileDescriptor plan;        ///< ToJson(StorePlan), constant
  std::string data = "null";  ///< JSON, as in a status; of ps/0
  /// Age of the values, where they are a shadow (StorePlan::on_device); of ps/0. The steps are
  /// then those of the shadow.
  std::optional<std::int64_t> shadow_age_ns;
};

/// "passel.<uid>.<job>.<role>.<index>", the abstract socket of one task of this user.
std::string EndpointName(const std::string& job_id, Role role, int index);

/// Whether the uid at the other end of a socket tells a process of this user from others, which is
/// all that a control connection proves. Errors: kPermissionDenied.
Status CheckUidIsEnough();

/// The listening socket of that endpoint. Errors: kAlreadyExists: a task of this user has it, named
/// with its pid; kPermissionDenied: another user's process has it. `task` is what people call it,
/// where that is not its role and index.
Result<FileDescriptor> Listen(const std::string& job_id, Role role, int index,
                              std::string task = {});

/// One task that listens, found in /proc/net/unix.
struct FoundEndpoint {
  std::string job_id;
  Role role;
  int index;
};
/// Of this user, in this network namespace. Errors: kInternal when /proc is not readable.
Result<std::vector<FoundEndpoint>> FindEndpoints();

}  // namespace passel::shm

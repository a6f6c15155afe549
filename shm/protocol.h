// protocol.h - what tasks of one host say to each other when they meet.
//
// Every message is one JSON object in one packet of a SOCK_SEQPACKET socket in the abstract name
// space, with descriptors beside it. The server checks the peer's uid before it reads anything.
//
//   client                                   server
//   {"hello":2,"role",...,"nonce"}      -->                        whose clocks are the server's,
//                                                                  too, or it is refused
//                                       <--  {"nonce","proof"}     proof("srv", hello + nonce)
//   {"proof"}                           -->                        proof("wrk", hello + nonce)
//                                       <--  {"ok":true} or {"error":code,"message"}
//   requests, each answered in turn:
//   {"get":"arena","wait":bool}         -->
//                                       <--  {"arena":true} + fd | {"need_plan":true} |
//                                       {"arena":false}; an evaluator's fd is read-only, and
//                                       this, data and what control may ask are all it may ask
//   {"plan":true} + fd                  -->
//                                       <--  {"arena":true} + fd | {"error",...}
//   {"offer":"data","key"} + fd         -->
//                                       <--  {"ok":true}
//   {"get":"data","key"}                -->
//                                       <--  {"data":true} + fd | {"data":false}
//   {"tell":"data","about":{...}}       -->  a worker: which data it trains on
//                                       <--  {"ok":true}
//   {"here":shard}                      -->  of that ps alone
//                                       <--  {"ok":true}
//   {"kept":true}                       -->  the supervisor holds the arena now
//                                       <--  {"ok":true}
//   {"get":"status"}                    -->  (also of role "control", which proves only its uid)
//                                       <--  {"status":true} + fd of a JSON object; its "data" is
//                                       what was told first (the chief's, if that told), with what
//                                       else was told in its list "also"; null: nothing was told
//   {"get":"snapshot","values":bool}    -->  (also of role "control")
//                                       <--  {"snapshot":true,"global_step",...} + fds of the
//                                       values and the plan, if asked for, and "data" as in a
//                                       status | {"snapshot":false}
//   {"set_mode":"replicas=3"}           -->  (also of role "control"; of ps/0 alone)
//                                       <--  {"number":n}, see store/mode_change.h
//   {"stop":true}                       -->
//                                       <--  {"ok":true}
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

namespace passel::shm {

inline constexpr int kProtocolVersion = 2;

/// The most bytes of {"tell":"data"}'s object.
inline constexpr std::size_t kMaxDataText = 10'000;

enum class Role { kWorker, kPs, kSupervisor, kControl, kEvaluator };
std::string_view RoleName(Role role);
std::optional<Role> ParseRole(std::string_view name);

/// Who is at the other end, as far as it was checked.
struct Peer {
  Role role = Role::kControl;
  int index = 0;
  ProcessIdentity identity;  ///< in its own pid namespace, as it says
  pid_t pid = 0;             ///< in ours, as the kernel says
};

/// A ps's answer to {"get":"snapshot"}.
struct ShardSnapshot {
  FileDescriptor values;                               ///< float[floats of the shard], constant
  FileDescriptor plan;                                 ///< ToJson(StorePlan), constant
  std::int64_t global_step = 0, last_global_step = 0;  ///< before and after the copy; of ps/0
  std::optional<std::uint64_t> exact_round;            ///< as in ShardCopy
  bool rounds = false;                                 ///< as in ShardCopy
  bool stopped = false;                                ///< of ps/0
  std::string data;                                    ///< JSON, as in a status; of ps/0
  /// Age of the values, where they are a shadow (StorePlan::on_device); of ps/0. The steps are
  /// then those of the shadow.
  std::optional<std::int64_t> shadow_age_ns;
};

/// "passel.<uid>.<job>.<role>.<index>", the abstract socket of one task of this user.
std::string EndpointName(const std::string& job_id, Role role, int index);

/// Whether the uid at the other end of a socket tells a process of this user from others, which is
/// all that a control connection proves. Errors: kPermissionDenied.
Status CheckUidIsEnough();

/// Why ListenAbstract() found the name of that endpoint taken, in one sentence. kAlreadyExists: a
/// task of this user has it, named with its pid; kPermissionDenied: another user's process has it.
/// `task` is what people call it, where that is not its role and index.
Status NameTaken(const std::string& job_id, Role role, int index, std::string task = {});

/// One task that listens, found in /proc/net/unix.
struct FoundEndpoint {
  std::string job_id;
  Role role;
  int index;
};
/// Of this user, in this network namespace. Errors: kInternal when /proc is not readable.
Result<std::vector<FoundEndpoint>> FindEndpoints();

}  // namespace passel::shm

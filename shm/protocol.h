// protocol.h - what tasks of one host say to each other when they meet.
//
// Every message is one JSON object in one packet of a SOCK_SEQPACKET socket in the abstract name
// space (cluster/endpoint.h), with descriptors beside it. The server checks the peer's uid before
// it reads anything; then comes the handshake (cluster/handshake.h).
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

#include "base/file_descriptor.h"
#include "store/shard_snapshot.h"

namespace passel::shm {

/// The most bytes of what tell_data tells.
inline constexpr std::size_t kMaxDataText = 10'000;

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

}  // namespace passel::shm

// remote_errand.h - what a worker on another host asks a ps about the job as a whole, before it has
// a store: over a pipe of its own (fabric Purpose::kErrand), one question after the other.
//
//   {"ask":"tell_data","about":{}}      -->      which data it trains on; of ps/0
//   {"ask":"plan"}                      -->      {"ok":true,"bytes":n} and the plan, or n = 0
//   {"ask":"propose","bytes":n}, plan   -->      of the chief: the ps makes its arena
//   {"ask":"sees","file":name}          -->      {"ok":true,"folder","sees":bool}: its
//                                                --checkpoint_dir, "": none, and whether that has
//                                                it
//   {"ask":"beginning"}                 -->      {"ok":true, ...}: ShardBeginning
//   (store/open_store.h)
//   {"ask":"renew","bytes":n}, plan     -->      of the chief: in place of the arena that there is
//   {"ask":"give_up","why":text}        -->      of the chief: the job cannot go on
//   {"ask":"begin","steps":n}           -->      of the chief, to ps/0: the target; 0: none
//   {"ask":"metrics","values":{name:text}} -->   to ps/0: numbers that the worker shows of itself
//   {"ask":"batch", ...}                -->      to ps/0: job/remote_batches.h
//
// And what ps/0 asks of the other ps, as it saves where they are on several hosts
// (job/shard_saver.h):
//
//   {"ask":"save_begin","how","cohort"} -->      as save_copy but for "live"
//   {"ask":"save_copy"}                 -->      {"ok":true,"claimed":bool,"round":n}, or no round
//   {"ask":"save_write","exact":bool,"bytes":n}, PartOrder  -->  {"ok":true,"bytes_written":n}
//   {"ask":"save_forget"}               -->
//   {"ask":"save_over"}                 -->      the job has ended, and they may go
//
// And what somebody asks who is no task (job/far_job.h): what shm/rendezvous_client.h has for
// control connections, in short
//
//   {"ask":"status"}                    -->      {"ok":true,"bytes":n} and the status
//   {"ask":"set_mode","mode":text}      -->      {"ok":true,"number":n}
//   {"ask":"scale","workers":n}         -->      the same
//   {"ask":"stop","failure":text}       -->      failure: of the task that ends the job, of which
//                                                kMostFailureBytes count; "": none
//   {"ask":"reserve","workers":[k,...]} -->      {"ok":true,"worker":k}: of ps/0, the first of
//                                                these places that nobody holds, for as long as the
//                                                control connection lives
//   {"ask":"save", ...}                 -->      of ps/0: job/save_wishes.h
//
// And what an evaluator asks (job/remote_observer.h):
//
//   {"ask":"read_plan"}                 -->      {"ok":true,"bytes":n} and the plan, or n = 0
//   {"ask":"read_data"}                 -->      the same with "data" of a status
//   {"ask":"watch"}                     -->      {"ok":true,"initialized","ended","done","stopped",
//                                                "global_step"}
//   {"ask":"tell_score","evaluator":k,"accuracy","global_step"} -->  as in shm/rendezvous_client.h
//   {"ask":"values"}                    -->      {"ok":true,"floats":n,"global_step",
//                                                "last_global_step"[,"round"]} and the values of
//                                                this ps; round: they are exactly of that
//
// Each is answered by {"ok":true, ...} or an error (cluster/json_message.h).

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/json.h"
#include "base/status.h"
#include "fabric/pipe.h"

namespace passel::job {

/// How much is heard of a failure on another host, which is shown on terminals.
inline constexpr std::size_t kMostFailureBytes = 1000;

struct Errand {
  Json json;
  std::string bytes;
  std::vector<float> floats = {};  ///< in place of bytes
};

/// Errors: those of Pipe::Send().
Status SendErrand(fabric::Pipe& pipe, Json json, std::string_view bytes = {});
Status SendErrand(fabric::Pipe& pipe, Errand errand);
/// Errors: those of Pipe::Receive(); kDataLoss for what is none, or has more than `most` bytes
/// beside its JSON.
Result<Errand> ReceiveErrand(fabric::Pipe& pipe, std::size_t most, Deadline deadline);

}  // namespace passel::job

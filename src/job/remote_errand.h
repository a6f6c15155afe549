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
//   {"ask":"begin","steps":n}           -->      of the chief, to ps/0: the target; 0: none
//   {"ask":"metrics","values":{name:text}} -->   to ps/0: numbers that the worker shows of itself
//   {"ask":"stop"}                      -->      to ps/0: all workers are to leave
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
// Each is answered by {"ok":true, ...} or an error (cluster/json_message.h).

#pragma once

#include <string>
#include <string_view>

#include "base/deadline.h"
#include "base/json.h"
#include "base/status.h"
#include "fabric/pipe.h"

namespace passel::job {

struct Errand {
  Json json;
  std::string bytes;
};

/// Errors: those of Pipe::Send().
Status SendErrand(fabric::Pipe& pipe, Json json, std::string_view bytes = {});
/// Errors: those of Pipe::Receive(); kDataLoss for what is none, or has more than `most` bytes.
Result<Errand> ReceiveErrand(fabric::Pipe& pipe, std::size_t most, Deadline deadline);

}  // namespace passel::job

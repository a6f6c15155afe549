// scale.h - the wish for more workers, or fewer, while a job trains.
//
// Whoever asks leaves a wish in the lead; the supervisor starts and ends workers, worker/0 up to
// worker/(K - 1) are to run, and says when it is done. The store itself knows only who is in:
// whoever joins is in the next round, whoever leaves holds up nobody (store/membership.h).

#pragma once

#include <cstdint>

#include "base/status.h"
#include "store/shard_memory.h"

namespace passel {

/// The last wish; number 0: there was none. Memory order: sequentially consistent.
ScaleWord WishedScale(const ShardMemory& lead);
/// The last one that was seen to. Memory order: sequentially consistent.
ScaleWord DoneScale(const ShardMemory& lead);

/// How many workers the job is to have: those of the last wish, else those it began with.
int WantedWorkers(const ShardMemory& lead);

/// Asks for `workers`. Returns the number of the wish, which may have stood before.
/// Errors: kInvalidArgument: none, or more than the job has places for; kFailedPrecondition when
/// the job is ending; kAlreadyExists while another wish is not seen to.
Result<std::uint32_t> WishForWorkers(const ShardMemory& lead, std::int64_t workers);

/// Of the supervisor: that wish is seen to.
void EndScaling(const ShardMemory& lead, const ScaleWord& wish);

}  // namespace passel

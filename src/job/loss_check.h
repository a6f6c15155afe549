// loss_check.h - whether the values of a job are worth a checkpoint, by what its workers have
// found.
//
// Values that give no finite loss may well be finite themselves: nobody can go on with them, and
// they must not take the place of good ones.

#pragma once

#include "base/status.h"
#include "cluster/worker_names.h"
#include "store/shard_memory.h"

namespace passel::job {

/// Errors: kDiverged, naming a worker whose loss or gradient was not finite at its last step,
/// unless the others have made 100 updates since. Memory order: acquire.
Status CheckLosses(const ShardMemory& lead, const WorkerNames& names);

}  // namespace passel::job

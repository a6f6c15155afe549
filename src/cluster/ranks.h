// ranks.h - what torchrun, and launchers like it, tell each process that they start.
//
//   RANK, WORLD_SIZE            of this process, and how many there are
//   LOCAL_RANK                  its number on this host; RANK if it is not set
//   LOCAL_WORLD_SIZE            how many there are on this host; WORLD_SIZE if it is not set
//   MASTER_ADDR, MASTER_PORT    where they meet
//
// Source of the names: https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables
//
// Thread safety: no state.

#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace passel {

struct Ranks {
  int rank = 0, world_size = 1, local_rank = 0;
  /// A cluster of one ps and a worker for each rank. The ps has the address where all meet, the
  /// workers the ports behind it: names of tasks, where nobody listens.
  std::string ps_hosts, worker_hosts;
};

/// Nothing unless RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are all there; where some of them
/// are, `missing` says which are not. Errors: kInvalidArgument: a value that is none, or processes
/// on several hosts.
Result<std::optional<Ranks>> ReadRanks(
    const std::function<std::optional<std::string>(const char* name)>& environment,
    std::string* missing);

}  // namespace passel

// ps_of_ranks.h - the ps that rank 0 starts where a launcher of ranks (torchrun) starts workers
// alone: a process of its own, which ends with this one.

#pragma once

#include "base/status.h"
#include "base/subprocess.h"
#include "cluster/resolve.h"

namespace passel::job {

class PsOfRanks {
 public:
  /// The same command line with the whole cluster in it, for ps/0 of `config`.
  /// REQUIRES: config.starts_ps, on the main thread. Errors: those of Subprocess::Spawn().
  static Result<PsOfRanks> Start(const ResolvedConfig& config);

  /// Waits until it has ended, which it does when no worker runs any more, and passes signals on.
  /// To be called when the worker of this process is done. `code` is its exit code: if that is not
  /// 0 the ps has a second left. Returns `code`, or how the ps failed.
  int AwaitEnd(int code);

 private:
  explicit PsOfRanks(Subprocess process) : process_(std::move(process)) {}
  Subprocess process_;
};

}  // namespace passel::job

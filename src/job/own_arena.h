// own_arena.h - the arena of a job that is one process, and what a ps would do for it, in a thread
// of that process: others find the job, watch it, copy its values and stop it as any other.

#pragma once

#include <memory>
#include <string>

#include "base/memory_file.h"
#include "base/status.h"
#include "store/shard_memory.h"
#include "store/store_plan.h"

namespace passel::job {

class OwnArena {
 public:
  /// Of a plan with one shard. `about_data`: ToJson(JobData), for those who ask the job; "":
  /// nothing is known. Errors: kAlreadyExists when the job id is in use; those of
  /// shm::Arena::Create().
  static Result<std::unique_ptr<OwnArena>> Make(const std::string& job_id, const StorePlan& plan,
                                                HugePages huge_pages,
                                                const std::string& about_data);
  /// Ends the thread.
  ~OwnArena();

  /// Of the one shard; valid as long as this object.
  const ShardMemory& memory() const { return memory_; }

 private:
  class Host;  // the thread
  OwnArena();

  std::unique_ptr<Host> host_;
  ShardMemory memory_;  // in the arena that host_ holds
};

}  // namespace passel::job

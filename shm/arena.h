// arena.h - one sealed memory file, mapped by every task of a shard.
//
// Each process maps the file at its own address, so nothing inside holds a pointer. The file has
// no name: it lives as long as one process holds its descriptor, and leaves nothing behind.
// The layout is drawn in shm/layout.h.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/file_descriptor.h"
#include "base/memory_file.h"
#include "base/status.h"
#include "store/shard_memory.h"
#include "store/store_plan.h"

namespace passel::shm {

struct ArenaOptions {
  std::string job_id;
  HugePages huge_pages = HugePages::kOff;
};

/// A mapping of one arena. Move-only. Const calls may run concurrently.
class Arena {
 public:
  /// Reserves every page before it returns, so that no later write can raise SIGBUS, and formats
  /// the shard. Errors: kResourceExhausted, naming the bytes needed, the bytes free and whose
  /// limit it is (machine or cgroup); kInvalidArgument for a plan that does not validate.
  static Result<Arena> Create(const StorePlan& plan, int shard, const ArenaOptions& options,
                              const MemoryBudget& budget);

  /// Maps an arena that a peer handed over. Checks seals, size, magic, layout version and hash, and
  /// the plan once; nothing is checked again later. Memory order: acquire, paired with the
  /// release in Publish(). Errors: kFailedPrecondition (built from another layout, named; not
  /// published); kDataLoss.
  /// With kRead nothing may be written through memory(): the kernel would end the process.
  enum class Access { kReadAndWrite, kRead };
  static Result<Arena> Adopt(FileDescriptor fd, Access access = Access::kReadAndWrite);
  /// The same of what `giver`, a task, handed over as the arena of that shard of the job. Errors:
  /// also kFailedPrecondition when it is another one.
  static Result<Arena> AdoptFrom(const std::string& giver, FileDescriptor fd,
                                 const std::string& job_id, int shard,
                                 Access access = Access::kReadAndWrite);

  Arena(Arena&&) noexcept;
  Arena& operator=(Arena&&) noexcept;
  ~Arena();

  /// Opens the arena to Adopt(). Call once, when everything is initialised.
  void Publish() noexcept;

  int fd() const;
  std::size_t bytes() const;
  const StorePlan& plan() const;
  int shard() const;
  const std::string& job_id() const;
  std::uint64_t nonce() const;
  const ShardMemory& memory() const;

  /// What became of the wish for huge pages, one sentence; empty if kOff.
  const std::string& huge_page_report() const;

 private:
  struct Mapping;  // keeps Boost.Interprocess out of this header
  explicit Arena(std::unique_ptr<Mapping> mapping);
  std::unique_ptr<Mapping> mapping_;
};

}  // namespace passel::shm

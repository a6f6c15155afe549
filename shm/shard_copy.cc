#include "shm/shard_copy.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

namespace passel::shm {

Result<ShardSnapshot> CopyShard(const Arena& arena, const MemoryBudget& budget) {
  const ShardMemory& memory = arena.memory();
  const std::size_t bytes = std::max<std::size_t>(memory.floats, 1) * sizeof(float);
  Result<MemoryFile> file = CreateMemoryFile("passel.snapshot", bytes, HugePages::kOff, budget,
                                             MemoryFileUse::kOneWriter);
  if (!file.ok()) return file.status().WithContext("cannot copy the values of the running job");
  void* base = ::mmap(nullptr, file->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                      file->fd.get(), 0);
  if (base == MAP_FAILED) return ErrnoStatus(errno, "cannot map memory for a copy of the values");
  ShardSnapshot copy;
  float* const values = static_cast<float*>(base);
  static_cast<ShardSnapshotInfo&>(copy) =
      TakeShardSnapshot(memory, arena.shard() == 0, {&values, 1});
  ::munmap(base, file->bytes);
  PASSEL_RETURN_IF_ERROR(SealAgainstWriting(file->fd.get()));
  copy.values = std::move(file->fd);
  return copy;
}

}  // namespace passel::shm

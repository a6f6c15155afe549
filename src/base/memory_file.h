// memory_file.h - memory without a name: memfd, reserved in full and sealed.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/file_descriptor.h"
#include "base/status.h"

namespace passel {

/// What this process may still allocate, and whose limit it is.
struct MemoryBudget {
  std::uint64_t available_bytes = 0;
  std::string limit;  ///< "the machine (MemAvailable)" or "the cgroup /x/y (memory.max)"
};

/// The smallest of MemAvailable and the headroom of every cgroup (v1 and v2) this process is in.
/// `root` is put before /proc and /sys, for tests.
Result<MemoryBudget> ReadMemoryBudget(const std::string& root = "");

enum class HugePages {
  kOff,
  kTransparent,  ///< madvise(MADV_HUGEPAGE): as the kernel's shmem_enabled allows
  kExplicit,     ///< MFD_HUGETLB: as vm.nr_hugepages allows
};

inline constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

struct MemoryFile {
  FileDescriptor fd;
  std::size_t bytes = 0;          ///< `bytes` asked for, rounded up to the page size
  std::string huge_page_problem;  ///< why kExplicit is not in effect; empty otherwise
};

enum class MemoryFileUse {
  kShared,     ///< everyone who gets the descriptor may write
  kOneWriter,  ///< the creator seals it against writing once it is filled
};

/// A memfd of at least `bytes` bytes, all of them reserved, so that no later write can fail; sealed
/// against growing and shrinking, and (kShared) against further seals. Zero-filled.
/// Errors: kResourceExhausted, naming the bytes needed, the bytes free and whose limit it is.
Result<MemoryFile> CreateMemoryFile(const std::string& name, std::size_t bytes,
                                    HugePages huge_pages, const MemoryBudget& budget,
                                    MemoryFileUse use = MemoryFileUse::kShared);

/// A memfd with exactly this content that nobody, its creator included, can change any more.
Result<FileDescriptor> CreateConstantFile(const std::string& name, const void* data,
                                          std::size_t bytes);

/// OK if `fd` is a memfd with the seals of CreateMemoryFile(), and all of its memory is reserved.
/// Sets `*bytes`.
/// Errors: kFailedPrecondition, naming what is missing.
Status CheckSeals(int fd, std::size_t* bytes);

/// The same, and sealed against writing: nobody can change it any more.
Status CheckConstant(int fd, std::size_t* bytes);

/// The content of a constant file of 1 to `max_bytes` bytes. Errors: those of CheckConstant();
/// kInvalidArgument for another size; kDataLoss.
Result<std::string> ReadConstantFile(int fd, std::size_t max_bytes);

/// Seals a kOneWriter file against writing for good. Mappings for writing must be gone.
Status SealAgainstWriting(int fd);

}  // namespace passel

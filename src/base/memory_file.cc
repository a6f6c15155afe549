#include "base/memory_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <optional>
#include <sstream>
#include <thread>

#include "base/deadline.h"
#include "base/file.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif
#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21U << 26)
#endif

namespace passel {
namespace {

constexpr std::uint64_t kUnlimited = std::uint64_t{1} << 60;

// Files in /proc and /sys report size 0, so base/file.h does not read them.
std::optional<std::string> ReadSmall(const std::string& path) {
  FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return std::nullopt;
  std::string text;
  char buffer[4096];
  for (;;) {
    const ssize_t got = ::read(fd.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got == 0 ? std::optional(text) : std::nullopt;
    text.append(buffer, static_cast<std::size_t>(got));
  }
}

// A number at the start of a file; "max" and what is no number mean unlimited.
std::uint64_t ReadLimit(const std::string& path) {
  const auto text = ReadSmall(path);
  if (!text || text->empty() || (*text)[0] < '0' || (*text)[0] > '9') return kUnlimited;
  return std::min<std::uint64_t>(kUnlimited, std::strtoull(text->c_str(), nullptr, 10));
}

// The groups from `path` up to the hierarchy's root: "/a/b" -> "/a/b", "/a", "".
template <typename Visit>
void ForEachAncestor(std::string path, Visit&& visit) {
  while (!path.empty() && path.back() == '/') path.pop_back();
  for (;;) {
    visit(path);
    if (path.empty()) return;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

void Consider(MemoryBudget& budget, const std::string& directory, const std::string& group,
              const char* limit_file, const char* usage_file) {
  const std::uint64_t limit = ReadLimit(directory + "/" + limit_file);
  if (limit >= kUnlimited) return;
  const std::uint64_t used = ReadLimit(directory + "/" + usage_file);
  // Page cache counts as used but is given back under pressure.
  std::uint64_t reclaimable = 0;
  if (const auto stat = ReadSmall(directory + "/memory.stat")) {
    std::istringstream lines(*stat);
    std::string key;
    std::uint64_t value = 0;
    while (lines >> key >> value) {
      if (key == "inactive_file" || key == "active_file") reclaimable += value;
    }
  }
  const std::uint64_t kept = used == kUnlimited ? 0 : used - std::min(used, reclaimable);
  const std::uint64_t free = limit - std::min(limit, kept);
  if (free < budget.available_bytes) {
    budget.available_bytes = free;
    budget.limit = fmt::format("the cgroup {} ({} = {} bytes)", group.empty() ? "/" : group,
                               limit_file, limit);
  }
}

std::size_t RoundUp(std::size_t bytes, std::size_t page) {
  return (bytes + page - 1) / page * page;
}

constexpr std::size_t kReserveStep = std::size_t{256} << 20;

// The kernel's answer to a reservation beyond what is free is not an error but its out-of-memory
// killer, and others may allocate while we do. So each step first looks at what is left, and leaves
// something.
bool RoomFor(std::size_t step) {
  const Result<MemoryBudget> left = ReadMemoryBudget();
  if (!left.ok()) return true;  // then fallocate decides
  const std::uint64_t kept = std::min<std::uint64_t>(kReserveStep, left->available_bytes / 16);
  return left->available_bytes >= step + kept;
}

// Asks for transparent huge pages while the pages are made: fallocate makes small ones, and pages
// that are there do not change. Best effort: Reserve() makes what is missing.
void PopulateWithHugePages(int fd, std::size_t bytes) {
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return;
  if (::madvise(base, bytes, MADV_HUGEPAGE) == 0) {
    for (std::size_t done = 0; done < bytes; done += kReserveStep) {
      const std::size_t step = std::min(kReserveStep, bytes - done);
      if (!RoomFor(step) ||
          ::madvise(static_cast<char*>(base) + done, step, MADV_POPULATE_WRITE) != 0) {
        break;
      }
    }
  }
  ::munmap(base, bytes);
}

// Every page, in steps. Returns 0 or an errno value.
int Reserve(int fd, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t step = std::min(kReserveStep, bytes - done);
    if (!RoomFor(step)) return ENOMEM;
    if (::fallocate(fd, 0, static_cast<off_t>(done), static_cast<off_t>(step)) == 0) {
      done += step;
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

// A kernel that is busy may still hold pages of what was just written (it waits for 150 ms itself).
constexpr std::chrono::seconds kPagesLimit{2};
constexpr std::chrono::milliseconds kLookForPages{10};

int AddSeals(int fd, int seals) {
  for (const Deadline deadline = Deadline::After(kPagesLimit);;) {
    const int failed = ::fcntl(fd, F_ADD_SEALS, seals);
    if (failed == 0 || errno != EBUSY || deadline.Expired()) return failed;
    std::this_thread::sleep_for(kLookForPages);
  }
}

}  // namespace

Result<MemoryBudget> ReadMemoryBudget(const std::string& root) {
  const auto meminfo = ReadSmall(root + "/proc/meminfo");
  if (!meminfo) return Internal(fmt::format("cannot read {}/proc/meminfo", root));
  const std::size_t at = meminfo->find("MemAvailable:");
  if (at == std::string::npos) {
    return Internal(fmt::format("{}/proc/meminfo has no MemAvailable line", root));
  }
  MemoryBudget budget;
  budget.available_bytes = std::strtoull(meminfo->c_str() + at + 13, nullptr, 10) * 1024;
  budget.limit = "the machine (MemAvailable)";
  const auto groups = ReadSmall(root + "/proc/self/cgroup");
  std::istringstream lines(groups.value_or(""));
  for (std::string line; std::getline(lines, line);) {
    // hierarchy:controllers:path, with no controllers named in v2
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      ForEachAncestor(path, [&](const std::string& group) {
        Consider(budget, root + "/sys/fs/cgroup" + group, group, "memory.max", "memory.current");
      });
    } else if (("," + controllers + ",").find(",memory,") != std::string::npos) {
      ForEachAncestor(path, [&](const std::string& group) {
        Consider(budget, root + "/sys/fs/cgroup/memory" + group, group, "memory.limit_in_bytes",
                 "memory.usage_in_bytes");
      });
    }
  }
  return budget;
}

Result<MemoryFile> CreateMemoryFile(const std::string& name, std::size_t bytes,
                                    HugePages huge_pages, const MemoryBudget& budget,
                                    MemoryFileUse use) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  if (bytes > std::numeric_limits<std::size_t>::max() / 4) {
    return ResourceExhausted(
        fmt::format("{} bytes of shared memory do not fit an address space: "
                    "use a smaller model or fewer workers",
                    bytes));
  }
  const auto too_little = [&](std::uint64_t needed, const char* why) {
    return ResourceExhausted(fmt::format(
        "the job needs {} bytes of shared memory, {} has {} bytes free{}: use a smaller "
        "model or fewer workers, or raise the limit (in a container, its memory limit)",
        needed, budget.limit, budget.available_bytes, why));
  };
  if (bytes > budget.available_bytes) return too_little(bytes, "");
  MemoryFile file;
  if (huge_pages == HugePages::kExplicit) {
    file.bytes = RoundUp(bytes, kHugePageBytes);
    file.fd.Reset(
        ::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB | MFD_HUGE_2MB));
    int error = file.fd.valid() ? 0 : errno;
    if (!error && ::ftruncate(file.fd.get(), static_cast<off_t>(file.bytes)) != 0) error = errno;
    if (!error) error = Reserve(file.fd.get(), file.bytes);
    if (error) {
      const auto free = ReadSmall("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
      file.huge_page_problem =
          fmt::format("{} huge pages of 2 MiB are needed and {} are free (vm.nr_hugepages)",
                      file.bytes / kHugePageBytes, std::atol(free.value_or("0").c_str()));
      file.fd.Reset();
    }
  }
  if (!file.fd.valid()) {
    file.bytes = RoundUp(bytes, page);
    file.fd.Reset(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!file.fd.valid()) return ErrnoStatus(errno, "cannot create a memory file");
    if (::ftruncate(file.fd.get(), static_cast<off_t>(file.bytes)) != 0) {
      return ErrnoStatus(errno, fmt::format("cannot size a memory file of {} bytes", file.bytes));
    }
    if (huge_pages == HugePages::kTransparent) {
      PopulateWithHugePages(file.fd.get(), file.bytes);
    }
    if (const int error = Reserve(file.fd.get(), file.bytes)) {
      if (error == ENOSPC || error == ENOMEM) {
        return too_little(file.bytes, " and ran short while they were reserved");
      }
      return ErrnoStatus(error, fmt::format("cannot reserve {} bytes of memory", file.bytes));
    }
  }
  if (::fcntl(file.fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return ErrnoStatus(errno, "cannot seal a memory file");
  }
  if (use == MemoryFileUse::kShared && ::fcntl(file.fd.get(), F_ADD_SEALS, F_SEAL_SEAL) != 0) {
    return ErrnoStatus(errno, "cannot seal the seals of a memory file");
  }
  return file;
}

Result<FileDescriptor> CreateConstantFile(const std::string& name, const void* data,
                                          std::size_t bytes) {
  FileDescriptor fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return ErrnoStatus(errno, "cannot create a memory file");
  if (const int error = FileOps::Real().Write(fd.get(), data, bytes)) {
    return ErrnoStatus(error, fmt::format("cannot write {} bytes to a memory file", bytes));
  }
  if (AddSeals(fd.get(), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) != 0) {
    return ErrnoStatus(errno, "cannot seal a memory file");
  }
  return fd;
}

Status CheckSeals(int fd, std::size_t* bytes) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0) {
    return FailedPrecondition("the descriptor that was handed over is not a memory file");
  }
  constexpr int kNeeded = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if ((seals & kNeeded) != kNeeded) {
    return FailedPrecondition(fmt::format(
        "the memory file that was handed over has seals {:#x}, {:#x} are needed: its giver could "
        "shrink it under us",
        seals, kNeeded));
  }
  struct stat info;
  if (::fstat(fd, &info) != 0) return ErrnoStatus(errno, "cannot stat a memory file");
  // A file with holes costs its giver nothing, and us all of its size, when it is mapped. Files of
  // huge pages do not count their blocks.
  const auto reserved = static_cast<std::uint64_t>(info.st_blocks) * 512;
  if (static_cast<std::size_t>(info.st_blksize) < kHugePageBytes &&
      reserved < static_cast<std::uint64_t>(info.st_size)) {
    return FailedPrecondition(fmt::format(
        "the memory file that was handed over has {} bytes, only {} of them are reserved",
        info.st_size, reserved));
  }
  *bytes = static_cast<std::size_t>(info.st_size);
  return {};
}

Status CheckConstant(int fd, std::size_t* bytes) {
  PASSEL_RETURN_IF_ERROR(CheckSeals(fd, bytes));
  if ((::fcntl(fd, F_GET_SEALS) & F_SEAL_WRITE) == 0) {
    return FailedPrecondition(
        "the memory file that was handed over is not sealed against writing: its giver could "
        "change it under us");
  }
  return {};
}

Result<std::string> ReadConstantFile(int fd, std::size_t max_bytes) {
  std::size_t bytes = 0;
  PASSEL_RETURN_IF_ERROR(CheckConstant(fd, &bytes));
  if (bytes == 0 || bytes > max_bytes) {
    return InvalidArgument(
        fmt::format("the memory file that was handed over may have 1 to {} bytes, but has {}",
                    max_bytes, bytes));
  }
  std::string text(bytes, '\0');
  if (::pread(fd, text.data(), bytes, 0) != static_cast<ssize_t>(bytes)) {
    return DataLoss("the memory file that was handed over could not be read whole");
  }
  return text;
}

Status SealAgainstWriting(int fd) {
  if (AddSeals(fd, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) != 0 ||
      ::fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL) != 0) {
    return ErrnoStatus(errno, "cannot seal a memory file against writing");
  }
  return {};
}

}  // namespace passel

#include "shm/arena.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/random.h>

#include <boost/interprocess/exceptions.hpp>
#include <boost/interprocess/mapped_region.hpp>
#include <boost/version.hpp>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string_view>

#include "base/failpoint.h"
#include "shm/layout.h"
#include "store/local_shard.h"

static_assert(BOOST_VERSION >= 107800,
              "older Boost.Interprocess is not safe enough: 1.81 is tested");

namespace passel::shm {
namespace {

namespace bip = boost::interprocess;

// What mapped_region wants of something it maps.
struct MappableFd {
  int fd;
  bip::mode_t mode;
  bip::mapping_handle_t get_mapping_handle() const { return {fd, false}; }
  bip::mode_t get_mode() const { return mode; }
};

Result<bip::mapped_region> MapFile(int fd, std::size_t bytes, bip::mode_t mode) {
  try {
    // MAP_POPULATE: page faults now, not in the first step.
    return bip::mapped_region(MappableFd{fd, mode}, mode, 0, bytes, nullptr, MAP_POPULATE);
  } catch (const bip::interprocess_exception& error) {
    return ResourceExhausted(
        fmt::format("cannot map an arena of {} bytes: {}", bytes, error.what()));
  }
}

// Bytes of the mapping at `address` that huge pages back, from /proc/self/smaps.
std::uint64_t HugeBytesAt(const void* address) {
  std::ifstream smaps("/proc/self/smaps");
  const std::string wanted = fmt::format("{:x}-", reinterpret_cast<std::uintptr_t>(address));
  constexpr std::string_view kHuge = "ShmemPmdMapped:";
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    inside = inside || line.starts_with(wanted);
    if (inside && line.starts_with(kHuge)) {
      return std::strtoull(line.c_str() + kHuge.size(), nullptr, 10) * 1024;
    }
  }
  return 0;
}

// What became of the wish, one sentence; empty if there was none.
std::string HugePageReport(HugePages wish, const MemoryFile& file, void* base) {
  if (wish == HugePages::kOff) return "";
  std::string problem = file.huge_page_problem;
  if (wish == HugePages::kExplicit) {
    if (problem.empty()) {
      return fmt::format("huge pages: {} pages of 2 MiB hold the arena",
                         file.bytes / kHugePageBytes);
    }
  } else {
    problem = ::madvise(base, file.bytes, MADV_HUGEPAGE) == 0
                  ? "the kernel gave none: see /sys/kernel/mm/transparent_hugepage/shmem_enabled"
                  : "madvise was refused";
    if (const std::uint64_t huge = HugeBytesAt(base); huge > 0) {
      return fmt::format("huge pages: transparent ones hold {} of {} bytes", huge, file.bytes);
    }
  }
  return fmt::format("huge pages: asked for, not in effect ({}); 4 KiB pages are used", problem);
}

}  // namespace

struct Arena::Mapping {
  MemoryFile file;
  bip::mapped_region region;
  CheckedHeader header;
  ShardMemory memory;
  std::string huge_page_report;

  ArenaHeader* raw_header() { return static_cast<ArenaHeader*>(region.get_address()); }
};

Arena::Arena(std::unique_ptr<Mapping> mapping) : mapping_(std::move(mapping)) {}
Arena::Arena(Arena&&) noexcept = default;
Arena& Arena::operator=(Arena&&) noexcept = default;
Arena::~Arena() = default;

Result<Arena> Arena::Create(const StorePlan& plan, int shard, const ArenaOptions& options,
                            const MemoryBudget& budget) {
  PASSEL_RETURN_IF_ERROR(plan.Validate());
  if (options.job_id.size() > kMaxJobIdBytes) {
    return InvalidArgument(fmt::format("a job id has at most {} bytes, \"{}\" has {}",
                                       kMaxJobIdBytes, options.job_id, options.job_id.size()));
  }
  PASSEL_ASSIGN_OR_RETURN(const std::uint64_t bytes, ArenaBytes(plan, shard));
  auto mapping = std::make_unique<Mapping>();
  PASSEL_ASSIGN_OR_RETURN(
      mapping->file, CreateMemoryFile(fmt::format("passel.{}.ps{}", options.job_id, shard), bytes,
                                      options.huge_pages, budget));
  Failpoint("arena.reserved");
  PASSEL_ASSIGN_OR_RETURN(mapping->region,
                          MapFile(mapping->file.fd.get(), mapping->file.bytes, bip::read_write));
  void* base = mapping->region.get_address();
  mapping->huge_page_report = HugePageReport(options.huge_pages, mapping->file, base);
  WriteHeader(plan, shard, options.job_id, mapping->file.bytes, base);
  auto* header = mapping->raw_header();
  if (::getrandom(&header->nonce, sizeof header->nonce, 0) != sizeof header->nonce) {
    return ErrnoStatus(errno, "there is no random number for the arena");
  }
  mapping->header = {plan, shard, options.job_id, header->nonce};
  mapping->memory = MapShard(plan, shard, base);
  FormatShard(mapping->memory, plan.mode);
  Failpoint("arena.before_publish");
  return Arena(std::move(mapping));
}

Result<Arena> Arena::Adopt(FileDescriptor fd, Access access) {
  auto mapping = std::make_unique<Mapping>();
  PASSEL_RETURN_IF_ERROR(CheckSeals(fd.get(), &mapping->file.bytes));
  if (mapping->file.bytes < kHeaderBytes) {
    return DataLoss(fmt::format("an arena has at least {} bytes, this file has {}", kHeaderBytes,
                                mapping->file.bytes));
  }
  mapping->file.fd = std::move(fd);
  PASSEL_ASSIGN_OR_RETURN(mapping->region,
                          MapFile(mapping->file.fd.get(), mapping->file.bytes,
                                  access == Access::kRead ? bip::read_only : bip::read_write));
  // Acquire, paired with Publish().
  const bool ready = mapping->raw_header()->ready.load(std::memory_order_acquire) == 1;
  void* base = mapping->region.get_address();
  // First of an arena that is not ready, too: it tells "another build" from "not finished".
  PASSEL_ASSIGN_OR_RETURN(mapping->header, ReadHeader(base, mapping->file.bytes));
  if (!ready) {
    return FailedPrecondition("the arena is not complete: its creator did not publish it");
  }
  mapping->memory = MapShard(mapping->header.plan, mapping->header.shard, base);
  return Arena(std::move(mapping));
}

Result<Arena> Arena::AdoptFrom(const std::string& giver, FileDescriptor fd,
                               const std::string& job_id, int shard, Access access) {
  PASSEL_ASSIGN_OR_RETURN(Arena arena, Adopt(std::move(fd), access));
  if (arena.job_id() == job_id && arena.shard() == shard) return arena;
  return FailedPrecondition(
      fmt::format("{} handed over the arena of shard {} of job {}, not of shard {} of job {}",
                  giver, arena.shard(), arena.job_id(), shard, job_id));
}

void Arena::Publish() noexcept {
  mapping_->raw_header()->ready.store(1, std::memory_order_release);
}

int Arena::fd() const { return mapping_->file.fd.get(); }
std::size_t Arena::bytes() const { return mapping_->file.bytes; }
const StorePlan& Arena::plan() const { return mapping_->header.plan; }
int Arena::shard() const { return mapping_->header.shard; }
const std::string& Arena::job_id() const { return mapping_->header.job_id; }
std::uint64_t Arena::nonce() const { return mapping_->header.nonce; }
const ShardMemory& Arena::memory() const { return mapping_->memory; }
const std::string& Arena::huge_page_report() const { return mapping_->huge_page_report; }

}  // namespace passel::shm

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
#include <optional>

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
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    const bool is_range =
        !line.empty() && line.find('-') != std::string::npos && line.find(':') > line.find('-');
    if (is_range && line.find(" ") != std::string::npos && line.find('-') < 17) {
      inside = line.rfind(wanted, 0) == 0;
    }
    if (inside && line.rfind("ShmemPmdMapped:", 0) == 0) {
      return std::strtoull(line.c_str() + 15, nullptr, 10) * 1024;
    }
  }
  return 0;
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
  PASSEL_ASSIGN_OR_RETURN(const Offsets offsets, ComputeOffsets(plan, shard));
  auto mapping = std::make_unique<Mapping>();
  PASSEL_ASSIGN_OR_RETURN(mapping->file,
                          CreateMemoryFile(fmt::format("passel.{}.ps{}", options.job_id, shard),
                                           offsets.end, options.huge_pages, budget));
  Failpoint("arena.reserved");
  PASSEL_ASSIGN_OR_RETURN(mapping->region,
                          MapFile(mapping->file.fd.get(), mapping->file.bytes, bip::read_write));
  void* base = mapping->region.get_address();
  if (options.huge_pages == HugePages::kTransparent) {
    const bool asked = ::madvise(base, mapping->file.bytes, MADV_HUGEPAGE) == 0;
    const std::uint64_t huge = HugeBytesAt(base);
    mapping->huge_page_report =
        huge > 0 ? fmt::format("huge pages: transparent ones hold {} of {} bytes", huge,
                               mapping->file.bytes)
                 : fmt::format("huge pages: asked for, not in effect ({}); 4 KiB pages are used",
                               asked ? "the kernel gave none: see "
                                       "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
                                     : "madvise was refused");
  } else if (options.huge_pages == HugePages::kExplicit) {
    mapping->huge_page_report =
        mapping->file.huge_page_problem.empty()
            ? fmt::format("huge pages: {} pages of 2 MiB hold the arena",
                          mapping->file.bytes / kHugePageBytes)
            : fmt::format("huge pages: asked for, not in effect ({}); 4 KiB pages are used",
                          mapping->file.huge_page_problem);
  }
  WriteHeader(plan, shard, offsets, options.job_id, options.cluster_hash, mapping->file.bytes,
              base);
  auto* header = mapping->raw_header();
  header->creator = SelfIdentity();
  if (::getrandom(&header->nonce, sizeof header->nonce, 0) != sizeof header->nonce) {
    return ErrnoStatus(errno, "there is no random number for the arena");
  }
  PASSEL_ASSIGN_OR_RETURN(mapping->header, ReadHeader(base, mapping->file.bytes));
  mapping->memory = MapShard(base, mapping->header);
  FormatShard(mapping->memory, plan.FirstMode());
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
  if (mapping->raw_header()->ready.load(std::memory_order_acquire) != 1) {
    // Tell "another build" from "not finished": the first words are written early.
    PASSEL_ASSIGN_OR_RETURN(const CheckedHeader checked,
                            ReadHeader(mapping->region.get_address(), mapping->file.bytes));
    return FailedPrecondition("the arena is not complete: its creator did not publish it");
  }
  PASSEL_ASSIGN_OR_RETURN(mapping->header,
                          ReadHeader(mapping->region.get_address(), mapping->file.bytes));
  mapping->memory = MapShard(mapping->region.get_address(), mapping->header);
  return Arena(std::move(mapping));
}

void Arena::Publish() noexcept {
  mapping_->raw_header()->ready.store(1, std::memory_order_release);
}

int Arena::fd() const { return mapping_->file.fd.get(); }
std::size_t Arena::bytes() const { return mapping_->file.bytes; }
const StorePlan& Arena::plan() const { return mapping_->header.plan; }
int Arena::shard() const { return mapping_->header.shard; }
const std::string& Arena::job_id() const { return mapping_->header.job_id; }
std::uint64_t Arena::cluster_hash() const { return mapping_->header.cluster_hash; }
std::uint64_t Arena::nonce() const { return mapping_->header.nonce; }
const ShardMemory& Arena::memory() const { return mapping_->memory; }
const std::string& Arena::huge_page_report() const { return mapping_->huge_page_report; }

}  // namespace passel::shm

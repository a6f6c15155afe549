// layout.h - where everything is in an arena: drawn once, computed once, checked once.
//
//   0        4096                                                                  size_bytes
//   +--------+-------+----------+--------+-----------+----------+-------+-------+-------+------+
//   | header | tasks | variable | values | slot      | gradient | undo  | shard | block | event|
//   |        |       | table    |        | variables | slots    |       | state | state | ring |
//   +--------+-------+----------+--------+-----------+----------+-------+-------+-------+------+
//
//   header     ArenaHeader; one page
//   tasks      TaskSlot[num_workers], each a multiple of 128 bytes
//   variables  VariableRecord[num_variables], of all shards
//   values     float[floats], each variable padded to 64 bytes
//   slots      float[num_slots][floats]
//   gradients  float[num_workers][gradient_slots][floats]
//   undo       float[num_workers][1 + num_slots][PieceFloats(block_floats)]
//   state      ShardState: version, global step, rounds, mode
//   blocks     BlockState[num_blocks]: claims
//   events     EventRing
//
// Parts start at multiples of 128 bytes, values, slots and gradients at multiples of 4096. Any
// change to these bytes, or to the structures of src/store/shard_memory.h, must raise
// kLayoutVersion; StructureHash() catches most that forget.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/process_identity.h"
#include "base/status.h"
#include "store/shard_memory.h"
#include "store/store_plan.h"

namespace passel::shm {

inline constexpr std::uint64_t kArenaMagic = 0x414c4553'53415031;  // "1PASSELA" in memory
inline constexpr std::uint32_t kLayoutVersion = 11;
inline constexpr std::size_t kHeaderBytes = 4096;
inline constexpr std::size_t kMaxJobIdBytes = 48;

/// Offsets in bytes from the start of the arena.
struct Offsets {
  std::uint64_t tasks, variables, values, slots, gradients, undo, state, blocks, events, end;
  bool operator==(const Offsets&) const = default;
};

/// One entry of the plan's schedule.
struct ScheduleRecord {
  std::int64_t step;
  std::uint32_t mode, replicas_to_aggregate, staleness_bound, unused;
};

struct ArenaHeader {
  std::uint64_t magic;
  std::uint32_t layout_version;
  std::uint32_t header_bytes;
  std::uint64_t structure_hash;  // StructureHash() of the build that created it
  std::uint64_t plan_hash;
  std::uint64_t cluster_hash;
  std::uint64_t size_bytes;
  std::uint64_t nonce;  // random: one arena is never taken for another
  char job_id[kMaxJobIdBytes + 16];
  ProcessIdentity creator;
  std::uint32_t shard;
  std::uint32_t num_shards;
  std::uint32_t mode;
  std::uint32_t num_workers;
  std::uint32_t gradient_slots;
  std::uint32_t num_variables;
  std::uint32_t replicas_to_aggregate;
  std::uint32_t staleness_bound;
  std::uint32_t num_scheduled;
  std::uint32_t on_device;  // StorePlan::on_device, 0 or 1
  ScheduleRecord schedule[kMaxScheduledModes];
  std::uint64_t block_floats;
  OptimizerConfig optimizer;
  Offsets offsets;
  alignas(128) std::atomic<std::uint32_t> ready;  // 1 once everything above and behind is written
};
static_assert(sizeof(ArenaHeader) <= kHeaderBytes && std::is_standard_layout_v<ArenaHeader>);
static_assert(offsetof(ArenaHeader, magic) == 0 && offsetof(ArenaHeader, layout_version) == 8 &&
                  offsetof(ArenaHeader, structure_hash) == 16,
              "every build can read these three");

struct VariableRecord {
  char name[kMaxNameBytes + 1];  // NUL-terminated
  char logical[kMaxNameBytes + 1];
  std::int64_t shape[kMaxRank];
  std::uint32_t rank;
  std::uint32_t shard;
  std::int64_t first_row;
};

/// Sizes and offsets of every structure in the arena, in this build.
std::uint64_t StructureHash();

/// Where the parts of shard `shard` of `plan` go. Errors: kResourceExhausted when they do not fit
/// 2^62 bytes.
Result<Offsets> ComputeOffsets(const StorePlan& plan, int shard);

/// Fills in everything but `ready`, `nonce` and `creator`. REQUIRES: `base` is mapped, zero, of at
/// least offsets.end bytes.
void WriteHeader(const StorePlan& plan, int shard, const Offsets& offsets,
                 const std::string& job_id, std::uint64_t cluster_hash, std::size_t size_bytes,
                 void* base);

/// Reads the plan back and checks everything once: magic, version, structure, every count, every
/// offset, the size. `size_bytes` is what the file has. Nothing is trusted that was not checked.
/// Errors: kFailedPrecondition (another build's layout, named); kDataLoss.
struct CheckedHeader {
  StorePlan plan;
  Offsets offsets{};
  int shard = 0;
  std::string job_id;
  std::uint64_t cluster_hash = 0;
  std::uint64_t nonce = 0;
};
Result<CheckedHeader> ReadHeader(const void* base, std::size_t size_bytes);

/// Pointers into a mapping at `base`, from checked offsets.
ShardMemory MapShard(void* base, const CheckedHeader& header);

}  // namespace passel::shm

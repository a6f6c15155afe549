// layout.h - where everything is in an arena: drawn once, computed once, checked once.
//
//   0        4096                                                                  size_bytes
//   +--------+------+-------+--------+-----------+----------+------+-------+-------+-------+
//   | header | plan | tasks | values | slot      | gradient | undo | shard | block | event |
//   |        |      |       |        | variables | slots    |      | state | state | ring  |
//   +--------+------+-------+--------+-----------+----------+------+-------+-------+-------+
//
//   header     ArenaHeader; one page
//   plan       ToJson(StorePlan): where everything behind it is follows from it
//   tasks      TaskSlot[num_workers], each a multiple of 128 bytes
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
#include <type_traits>

#include "base/status.h"
#include "store/shard_memory.h"
#include "store/store_plan.h"

namespace passel::shm {

inline constexpr std::uint64_t kArenaMagic = 0x414c4553'53415031;  // "1PASSELA" in memory
inline constexpr std::uint32_t kLayoutVersion = 19;
inline constexpr std::size_t kHeaderBytes = 4096;
inline constexpr std::size_t kMaxJobIdBytes = 48;
/// The limit of a plan, as text.
inline constexpr std::size_t kMaxPlanBytes = std::size_t{16} << 20;

struct ArenaHeader {
  std::uint64_t magic;
  std::uint32_t layout_version;
  std::uint32_t shard;
  std::uint64_t structure_hash;  // StructureHash() of the build that created it
  std::uint64_t size_bytes;
  std::uint64_t nonce;  // random: one arena is never taken for another
  std::uint64_t plan_bytes;
  std::uint64_t plan_hash;  // StorePlan::Hash()
  char job_id[kMaxJobIdBytes + 16];
  alignas(128) std::atomic<std::uint32_t> ready;  // 1 once everything above and behind is written
};
static_assert(sizeof(ArenaHeader) <= kHeaderBytes && std::is_standard_layout_v<ArenaHeader>);
static_assert(offsetof(ArenaHeader, magic) == 0 && offsetof(ArenaHeader, layout_version) == 8 &&
                  offsetof(ArenaHeader, structure_hash) == 16,
              "every build can read these three");

/// Sizes and offsets of every structure in the arena, in this build.
std::uint64_t StructureHash();

/// The bytes of shard `shard` of `plan`. Errors: kResourceExhausted when they do not fit 2^62.
Result<std::uint64_t> ArenaBytes(const StorePlan& plan, int shard);

/// The parts of that shard in a mapping at `base` of at least so many bytes.
ShardMemory MapShard(const StorePlan& plan, int shard, void* base);

/// Writes the plan and fills in everything but `ready` and `nonce`. REQUIRES: `base` is mapped,
/// zero, of at least ArenaBytes().
void WriteHeader(const StorePlan& plan, int shard, const std::string& job_id,
                 std::size_t size_bytes, void* base);

/// Reads the plan back and checks everything once: magic, version, structure, plan, the size.
/// `size_bytes` is what the file has, at least kHeaderBytes. Nothing is trusted that was not
/// checked. Errors: kFailedPrecondition (another build's layout, named); kDataLoss.
struct CheckedHeader {
  StorePlan plan;
  int shard = 0;
  std::string job_id;
  std::uint64_t nonce = 0;
};
Result<CheckedHeader> ReadHeader(const void* base, std::size_t size_bytes);

}  // namespace passel::shm

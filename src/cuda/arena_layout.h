// arena_layout.h - where everything lies in an arena in device memory (compute/device_arena.h), and
// the header that says which arena it is.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "compute/device_arena.h"

namespace passel::cuda {

inline constexpr std::size_t kArenaHeaderBytes = 4096;

/// The first bytes. Any change of the layout must change `kLayout`.
struct ArenaHeader {
  static constexpr char kMagic[8] = {'p', 's', 'l', '.', 'g', 'p', 'u', '\0'};
  static constexpr std::uint32_t kLayout = 2;
  char magic[8];
  std::uint32_t layout;
  std::uint32_t shards;
  std::uint64_t id;
  std::uint64_t plan_hash;
  std::uint64_t bytes;
  std::uint32_t several_gpus;  ///< 1: updates are at system scope, 0: at that of one GPU
  std::uint32_t unused;        ///< 0
};
static_assert(sizeof(ArenaHeader) <= kArenaHeaderBytes);

/// Where the parts of a shard begin, in bytes of the arena.
struct ArenaPlace {
  std::size_t blocks = 0;
  std::size_t claims = 0;
  std::vector<std::size_t> arrays;  ///< values, slot variables
};

/// [shard]. `*bytes`: of the arena.
std::vector<ArenaPlace> ArenaPlaces(const DeviceArenaShape& shape, std::size_t* bytes);

ArenaHeader HeaderOf(const DeviceArenaShape& shape, std::size_t bytes);

/// Errors: kDataLoss: what was found is no arena, another one, or one that is used otherwise.
Status CheckHeader(const ArenaHeader& found, const ArenaHeader& mine);

}  // namespace passel::cuda

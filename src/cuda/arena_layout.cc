#include "cuda/arena_layout.h"

#include <fmt/core.h>

#include <cstring>
#include <utility>

#include "base/check.h"
#include "cuda/kernels/claimed_update.h"

namespace passel::cuda {
namespace {

constexpr std::size_t kAlignment = 256;  // of arrays, in bytes

std::size_t Align(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

const char* GpusText(std::uint32_t several) { return several != 0 ? "several GPUs" : "one GPU"; }

}  // namespace

std::vector<ArenaPlace> ArenaPlaces(const DeviceArenaShape& shape, std::size_t* bytes) {
  std::vector<ArenaPlace> places;
  std::size_t next = kArenaHeaderBytes;
  for (const DeviceArenaShape::Shard& shard : shape.shards) {
    PASSEL_CHECK(shard.block_floats > 0 && shard.block_floats % 16 == 0,
                 "a block is a multiple of 16 floats");
    ArenaPlace place;
    place.blocks = (shard.floats + shard.block_floats - 1) / shard.block_floats;
    place.claims = next;
    next = Align(next + place.blocks * sizeof(BlockClaim));
    for (int array = 0; array <= shape.slots; ++array) {
      place.arrays.push_back(next);
      next = Align(next + shard.floats * sizeof(float));
    }
    places.push_back(std::move(place));
  }
  *bytes = next;
  return places;
}

ArenaHeader HeaderOf(const DeviceArenaShape& shape, std::size_t bytes) {
  ArenaHeader header{};
  std::memcpy(header.magic, ArenaHeader::kMagic, sizeof header.magic);
  header.layout = ArenaHeader::kLayout;
  header.shards = static_cast<std::uint32_t>(shape.shards.size());
  header.id = shape.id;
  header.plan_hash = shape.plan_hash;
  header.bytes = bytes;
  header.several_gpus = shape.several_gpus ? 1 : 0;
  return header;
}

Status CheckHeader(const ArenaHeader& found, const ArenaHeader& mine) {
  if (std::memcmp(found.magic, mine.magic, sizeof mine.magic) != 0) {
    return DataLoss("what was handed over as the arena on the GPU is none");
  }
  if (found.layout != mine.layout || found.plan_hash != mine.plan_hash ||
      found.shards != mine.shards || found.bytes != mine.bytes) {
    return DataLoss(fmt::format(
        "the arena on the GPU has layout {}, plan {:016x} and {} bytes, this task has layout {}, "
        "plan {:016x} and {} bytes: start all tasks with the same flags, from the same build",
        found.layout, found.plan_hash, found.bytes, mine.layout, mine.plan_hash, mine.bytes));
  }
  if (found.id != mine.id) {
    return DataLoss(fmt::format("the arena on the GPU is number {:016x}, the job's is {:016x}",
                                found.id, mine.id));
  }
  if (found.several_gpus != mine.several_gpus) {
    return DataLoss(
        fmt::format("the arena on the GPU was made for workers on {}, and this task was started "
                    "for workers on {}: start all tasks with the same --num_gpus",
                    GpusText(found.several_gpus), GpusText(mine.several_gpus)));
  }
  return {};
}

}  // namespace passel::cuda

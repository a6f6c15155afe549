// block_sweep.h - one sweep of an update over the blocks of a shard, where the values are with
// somebody else (a GPU): what the shard asks for (store/external_sweep.h), and what is done there
// (compute/device_arena.h).

#pragma once

#include <cstddef>
#include <cstdint>

namespace passel {

struct StepScalars;  // optim/update_formulas.h

struct BlockSweep {
  int gradient_slot = 0;
  const StepScalars* scalars = nullptr;
  /// false: each float by an atomic addition, for plain SGD; nothing is ever left.
  bool claims = true;
  std::uint64_t claim = 0;  ///< Claim::Pack() (store/shard_memory.h) of who pushes
  /// The claim of a life that is over, which is taken over unless AcceleratorInfo::mps; 0: none.
  std::uint64_t former = 0;
  std::size_t first_block = 0;
  bool goes_on = false;  ///< with what the last sweep of this shard left; else a new push
};

struct BlocksSwept {
  std::uint64_t left = 0;        ///< blocks that others held all the while: sweep again
  std::uint64_t taken_over = 0;  ///< blocks whose claim was `former`
  std::uint64_t holder = 0;      ///< the claim of one that was left
};

}  // namespace passel

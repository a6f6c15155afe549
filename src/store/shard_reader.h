// shard_reader.h - a copy of one block after the other while others train in them.
//
// The reader never claims a block, so nobody waits for it. A copy is exact if nobody was in the
// block while it was made, which three words beside the block tell:
//
//   claim         who writes under a claim has it
//   updates       raised by the holder before it lets go
//   overlapping   (per worker) the block that it writes without a claim, in hogwild and ssp; when
//   it overlaps      is done it raises the block's `overlaps`
//
//   reader   updates, overlaps ... copy ... claim, overlapping, updates, overlaps
//
// An exact copy is what stood in values and slot variables at one moment, and no update was half
// made then. What updates that met have lost before is lost in the copy too, and what a worker left
// half applied when it died belongs to the values as soon as somebody has taken its claim over.
//
// For values that are updated here (not StorePlan::on_device, see store/shadow.h).

#pragma once

#include <cstddef>
#include <span>

#include "base/deadline.h"
#include "base/status.h"
#include "store/shard_memory.h"

namespace passel {

class ShardReader {
 public:
  /// `memory` outlives it and is initialised.
  explicit ShardReader(const ShardMemory& memory) : memory_(memory) {}

  /// Copies the values of `block` into out[0] and slot variable k into out[1 + k], as far as `out`
  /// goes: BlockSize(block) floats each. True: an exact copy, all of one state. False: each float
  /// is one that was stored, and they may be of different updates.
  /// hogwild, ssp: a few tries, however late it is, then false. The other modes: until it is exact,
  /// or the life of its holder is over: what that may have left half done is false.
  /// Errors: kDeadlineExceeded (the other modes alone), with the holder; `out` has a copy then,
  /// too. Threads: any number. Memory order: acquire, of all updates that an exact copy has.
  Result<bool> ReadBlock(std::size_t block, std::span<float* const> out, Deadline deadline) const;

 private:
  bool CopyBlock(std::size_t block, std::span<float* const> out) const;
  bool IsOverlapped(std::size_t block) const;
  bool HolderIsGone(std::size_t block, bool ask_the_kernel) const;

  const ShardMemory memory_;
};

}  // namespace passel

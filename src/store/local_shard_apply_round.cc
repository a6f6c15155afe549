// Rounds: one update of every block, whoever dies on the way.
//
// A task that dies within a block leaves it half applied. So a block is applied in pieces, and the
// old contents of a piece are saved first, in the arena, under a tag that names round and piece:
// whoever takes the claim over puts them back and goes on with that piece. The result is the same
// to the last bit.

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "base/atomic_word.h"
#include "base/denormals.h"
#include "base/failpoint.h"
#include "base/histogram.h"
#include "base/nvtx.h"
#include "optim/update_kernels.h"
#include "store/block_claims.h"
#include "store/local_shard.h"
#include "store/membership.h"

namespace passel {
namespace {

// The reverse of CopyValues(): others may be reading.
void PutBack(float* values, const float* saved, std::size_t n) {
#if defined(PASSEL_ATOMIC_VALUES)
  for (std::size_t i = 0; i < n; ++i) {
    std::atomic_ref<float>(values[i]).store(saved[i], std::memory_order_relaxed);
  }
#else
  std::memcpy(values, saved, n * sizeof(float));
#endif
}

}  // namespace

// How far the last holder of `block` came in this round, by the tags of all workers: several may
// have died within it one after the other. The one that came farthest tells, of several at one
// piece `former`, who held the claim last: another's copy may have been made late, by one that was
// fenced off and went on. False: none has changed anything.
bool LocalShard::FindHalfAppliedPiece(std::uint64_t round, std::size_t block, int former,
                                      UndoTag* found, int* worker) const {
  bool any = false;
  for (int k = 0; k < memory_.num_workers; ++k) {
    // Acquire, paired with the release of the tag: the copy is whole.
    const std::uint64_t word = memory_.tasks[k].undo_tag.load(std::memory_order_acquire);
    if (word == 0) continue;
    const UndoTag tag = UndoTag::Unpack(word);
    if (!tag.IsOf(round) || tag.piece / memory_.PiecesPerBlock() != block) continue;
    if (any && tag.piece < found->piece) continue;
    if (any && tag.piece == found->piece && (!tag.saved || (found->saved && k != former))) continue;
    any = true;
    *found = tag;
    *worker = k;
  }
  return any;
}

void LocalShard::PutBackPiece(std::size_t piece, int worker) {
  const Span span = PieceSpan(piece);
  const float* saved = memory_.Undo(worker);
  PutBack(memory_.values + span.begin, saved, span.size);
  for (int s = 0; s < memory_.num_slots; ++s) {
    saved += memory_.PieceFloats();
    PutBack(memory_.slots[s] + span.begin, saved, span.size);
  }
}

void LocalShard::SavePiece(std::size_t piece) {
  const Span span = PieceSpan(piece);
  float* saved = memory_.Undo(worker_);
  CopyValues(saved, memory_.values + span.begin, span.size);
  for (int s = 0; s < memory_.num_slots; ++s) {
    saved += memory_.PieceFloats();
    CopyValues(saved, memory_.slots[s] + span.begin, span.size);
  }
}

LocalShard::Span LocalShard::PieceSpan(std::size_t piece) const {
  const std::size_t block = piece / memory_.PiecesPerBlock();
  const std::size_t in_block = piece % memory_.PiecesPerBlock() * memory_.PieceFloats();
  return {memory_.BlockBegin(block) + in_block,
          std::min(memory_.PieceFloats(), memory_.BlockSize(block) - in_block)};
}

Status LocalShard::ApplyRoundBlock(const Update& update, const RoundGrant& grant, std::size_t block,
                                   std::size_t first_piece, std::uint64_t round_before) {
  TaskSlot& me = memory_.tasks[worker_];
  const std::size_t end = memory_.BlockBegin(block) + memory_.BlockSize(block);
  if (update.weight > 1) {
    const Span first = PieceSpan(first_piece);
    ApplySpan(update, {first.begin, 0}, first.size);  // fetches it alone
  }
  for (std::size_t piece = first_piece;; ++piece) {
    const Span span = PieceSpan(piece);
    const std::size_t next = std::min(memory_.PieceFloats(), end - span.begin - span.size);
    UndoTag tag{grant.round, piece, /*saved=*/true};
    // Else a former life of ours has saved it, and it was put back from there.
    if (me.undo_tag.load(std::memory_order_relaxed) != tag.Pack()) {
      tag.saved = false;
      // Release: the pieces before this one are applied.
      me.undo_tag.store(tag.Pack(), std::memory_order_release);
      KeepStoresInOrder();
      SavePiece(piece);
      Failpoint("round.saving");
      tag.saved = true;
      me.undo_tag.store(tag.Pack(), std::memory_order_release);
      KeepStoresInOrder();
    }
    Failpoint("round.saved");
    // Again, as late as can be: from here to the end of the piece nobody can stop us.
    if (!Alive()) return CheckAlive();
    ApplySpan(update, span, next);
    if (next == 0) break;
    Failpoint(first_piece % memory_.PiecesPerBlock() == 0 ? "round.piece" : "round.resumed");
    if (!Alive()) return CheckAlive();  // before the tag says something about a block not ours
  }
  Failpoint("round.applied");
  if (!Alive()) return CheckAlive();  // who has the claim now may still be applying it
  // Release, paired with the acquire of who finds the block done. A compare-and-swap: if we were
  // fenced off and the rounds went on, this must not set the block back.
  memory_.blocks[block].round.compare_exchange_strong(
      round_before, grant.round, std::memory_order_release, std::memory_order_relaxed);
  return {};
}

Status LocalShard::ClaimAndApplyRoundBlock(const Update& update, const RoundGrant& grant,
                                           std::size_t b, bool take_over, bool* done) {
  BlockState& block = memory_.blocks[b];
  // Acquire: whoever sees the block done sees its new values.
  *done = block.round.load(std::memory_order_acquire) >= grant.round;
  if (*done) return {};
  std::size_t first_piece = b * memory_.PiecesPerBlock();
  Claim former;
  const bool free = TryClaim(block, MyClaim());
  if (!free) {
    if (!take_over || !TryTakeOver(lead_, block, MyClaim(), &former)) return {};
    Increment(counters().taken_over_blocks);
    nvtx::Mark(nvtx::Event::kBlockTakenOver, static_cast<std::int64_t>(b));
  }
  if (!Alive()) return CheckAlive();  // fenced off: the claim is void, others take it over
  const std::uint64_t round_before = block.round.load(std::memory_order_acquire);
  UndoTag tag;
  int whose = 0;
  const bool half_applied =
      !free && FindHalfAppliedPiece(round_before + 1, b, former.worker, &tag, &whose);
  if (round_before >= grant.round) {
    // We are one that rounds do not wait for, and slept since we looked. What is half applied is a
    // later round's: the claim goes back to the dead holder, for somebody of that round to take.
    ReleaseClaim(block, MyClaim(), half_applied ? former.Pack() : 0);
  } else {
    if (half_applied) {
      nvtx::Mark(nvtx::Event::kRoundTakenOver, static_cast<std::int64_t>(grant.round));
      first_piece = tag.piece;
      if (tag.saved) PutBackPiece(tag.piece, whose);
      Failpoint("round.restored");
    }
    PASSEL_RETURN_IF_ERROR(ApplyRoundBlock(update, grant, b, first_piece, round_before));
    ReleaseClaim(block, MyClaim());
  }
  *done = true;
  return {};
}

std::vector<Member> LocalShard::HoldersIn(std::uint64_t round) const {
  std::vector<bool> holds(static_cast<std::size_t>(memory_.num_workers));
  for (std::size_t b = 0; b < memory_.num_blocks; ++b) {
    const BlockState& block = memory_.blocks[b];
    const Claim holder = Claim::Unpack(block.claim.load(std::memory_order_relaxed));
    if (block.round.load(std::memory_order_relaxed) < round && HolderLives(lead_, holder)) {
      holds[static_cast<std::size_t>(holder.worker)] = true;
    }
  }
  std::vector<Member> holders = Membership(lead_);
  std::erase_if(holders,
                [&](const Member& m) { return !holds[static_cast<std::size_t>(m.worker)]; });
  return holders;
}

// One round of waiting for a block that `round` is not applied to.
Status LocalShard::AwaitBlock(ClaimPatience& patience, std::size_t block, std::uint64_t round,
                              Deadline deadline) {
  Heartbeat();  // others must not take us for stopped
  if (patience.Wait(memory_.blocks[block], deadline)) return watch_->failure();
  const std::vector<Member> holders = HoldersIn(round);
  return DeadlineExceeded(fmt::format(
      "round {} is not applied completely{}", round,
      holders.empty() ? "" : fmt::format(": {} holds a block", options_.names(holders[0].worker))));
}

// A former life of this worker may have died within a block of this round. Its old contents are in
// our own undo buffer, so that block must be done, by us or by others, before the buffer is used
// again.
Status LocalShard::ResolveOwnUndo(const Update& update, const RoundGrant& grant,
                                  Deadline deadline) {
  const std::uint64_t word = memory_.tasks[worker_].undo_tag.load(std::memory_order_acquire);
  if (word == 0) return {};
  const UndoTag tag = UndoTag::Unpack(word);
  const std::size_t block = tag.piece / memory_.PiecesPerBlock();
  if (!tag.IsOf(grant.round) || block >= memory_.num_blocks) return {};
  ClaimPatience patience(*watch_);
  for (;;) {
    bool done = false;
    PASSEL_RETURN_IF_ERROR(ClaimAndApplyRoundBlock(update, grant, block, true, &done));
    if (done) return {};
    PASSEL_RETURN_IF_ERROR(AwaitBlock(patience, block, grant.round, deadline));
  }
}

Status LocalShard::ApplyRound(const RoundGrant& grant, Deadline deadline) {
  if (grant.count == 0 ||
      memory_.state->completed_round.load(std::memory_order_acquire) >= grant.round) {
    return {};
  }
  const nvtx::Range range(nvtx::Event::kApply, static_cast<std::int64_t>(grant.round));
  const FlushDenormals flush;
  Heartbeat();
  int count = 0;
  int weight = 0;
  for (int k = 0; k < memory_.num_workers; ++k) {
    if (!grant.Counts(k)) continue;
    gradients_[static_cast<std::size_t>(count++)] = memory_.Gradient(k, 0);
    weight += rules_.Quota(k);
  }
  const Update update{PrepareGroups(grant.rates, static_cast<std::int64_t>(grant.round)),
                      memory_.groups.get(), gradients_.data(), count, weight};
  const std::size_t blocks = memory_.num_blocks;
  // Always the same part of the blocks first: its slot variables stay in this core's cache.
  const std::size_t start =
      blocks * static_cast<std::size_t>(worker_) / static_cast<std::size_t>(memory_.num_workers);
  std::size_t left = 0;
  for (std::size_t i = 0; i < blocks; ++i) {
    todo_[left++] = static_cast<std::uint32_t>((i + start) % blocks);
  }
  PASSEL_RETURN_IF_ERROR(ResolveOwnUndo(update, grant, deadline));
  ClaimPatience patience(*watch_);
  for (int pass = 1; left > 0; ++pass) {
    std::size_t busy = 0;
    for (std::size_t i = 0; i < left; ++i) {
      bool done = false;
      PASSEL_RETURN_IF_ERROR(ClaimAndApplyRoundBlock(update, grant, todo_[i], pass > 1, &done));
      if (!done) todo_[busy++] = todo_[i];
    }
    left = busy;
    if (left == 0) continue;
    PASSEL_RETURN_IF_ERROR(AwaitBlock(patience, todo_[0], grant.round, deadline));
  }
  RaiseTo(memory_.state->optimizer_step, static_cast<std::int64_t>(grant.round));
  RaiseTo(memory_.state->version, grant.round);
  return {};
}

}  // namespace passel

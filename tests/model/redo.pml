/* redo.pml - one update of every block in a round, whoever dies on the way.
 *
 * What it models is in src/store: each transition names its file and function. A process is a
 * worker life after life. A step is one access to a word that others may change, or several of
 * which only one can be seen by others. How it is read: docs/formal-model.md.
 *
 * A piece is two floats, a float is the number of updates that it has seen. Each of them is a step
 * of its own, so a piece can be half applied, half copied and half put back.
 */

#include "processes.pml"

#ifndef BLOCKS
#define BLOCKS 1
#endif
#ifndef PIECES  /* of a block */
#define PIECES 2
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif

#define JUNK 99  /* what former rounds left */

/* The arena (src/store/shard_memory.h). */
bool running[WORKERS];  /* TaskSlot::state: phase kRunning, with this epoch */
byte epoch[WORKERS];
byte tags[WORKERS];     /* TaskSlot::undo_tag, see TAG() */
byte undo[2 * WORKERS] = JUNK;
byte claims[BLOCKS];    /* BlockState::claim, see CLAIM() */
byte rounds[BLOCKS];    /* BlockState::round */
byte values[2 * PIECES * BLOCKS];
byte completed;         /* ShardState::completed_round */

#ifdef FENCE
/* Not in the arena: a life that was over has made a step that is excused. */
bool late;
#endif

#define PIECES_IN_ALL (PIECES * BLOCKS)
#define TAG(round, piece, saved) (((round) * PIECES_IN_ALL + (piece)) * 2 + (saved))
#define TAG_ROUND(tag) ((tag) / (2 * PIECES_IN_ALL))
#define TAG_PIECE(tag) (((tag) / 2) % PIECES_IN_ALL)
#define TAG_SAVED(tag) ((tag) % 2)

#define FREE 0
#define CLAIM(w, e) (1 + (w) + WORKERS * (e))
#define MINE CLAIM(w, epoch[w])
#define HOLDER(claim) (((claim) - 1) % WORKERS)
/* block_claims.cc HolderLives() */
#define HOLDER_LIVES(claim) \
  (running[HOLDER(claim)] && epoch[HOLDER(claim)] == ((claim) - 1) / WORKERS)

/* local_shard.h Alive() */
#define ALIVE running[w]

/* What a life that is over may still do to others: with FENCE these steps are excused, but for the
 * one that is BLAMED. */
#define PUT_BACK 1
#define TAGGED 2
#define APPLIED 3
#define MARKED 4
#ifndef BLAMED
#define BLAMED 0
#endif
#ifdef FENCE
#define NOTE_LATE(step) late = late || (!ALIVE && step != BLAMED)
#define UNLESS_LATE late ||
#else
#define NOTE_LATE(step) skip
#define UNLESS_LATE
#endif

hidden byte check;
inline ExpectExact(block, round) {
  check = 2 * PIECES * (block);
  do
  :: check < 2 * PIECES * ((block) + 1) ->
     assert(UNLESS_LATE values[check] == (round));
     check++
  :: else -> break
  od
}

proctype Worker(byte w) {
  byte r;       /* RoundGrant::round */
  byte b;       /* the block */
  byte p;       /* the piece */
  byte before;  /* round_before */
  byte former;  /* the claim that was taken over; FREE: none was */
  byte found;   /* the tag that came farthest; 0: none */
  byte whose;
  byte k;

Begin:
  {
    /* membership.cc Join(): ends the life before, if nobody has. It runs with the next epoch. */
    atomic { UP -> epoch[w]++; running[w] = true };

Next:
    /* sharded_store.cc PushToRound(), FinishInterruptedRound(). Whether the round is decided is not
     * looked at, so rounds in which only some are waited for are modelled as well. */
    atomic {
      UP -> r = completed + 1;
      if
      :: r > ROUNDS -> r = 0; goto Leave
      :: else
      fi
    };

Pass:
    /* local_shard_apply_round.cc ApplyRound(): blocks in whatever order, any number of passes.
     * ResolveOwnUndo(): but first the one that the own undo buffer is about. */
    atomic {
      UP;
      if
#ifndef MUTANT_OWN_UNDO
      :: TAG_ROUND(tags[w]) == r && rounds[TAG_PIECE(tags[w]) / PIECES] < r ->
         b = TAG_PIECE(tags[w]) / PIECES
      :: else ->
#else
      :: true ->
#endif
         /* ClaimAndApplyRoundBlock(): `*done`. */
         if
         :: rounds[0] < r -> b = 0
#if BLOCKS > 1
         :: rounds[1] < r -> b = 1
#endif
         :: else -> goto Finish
         fi
      fi
    };

    if
    /* block_claims.h TryClaim() */
    :: atomic { UP && claims[b] == FREE -> claims[b] = MINE }
    /* block_claims.cc TryTakeOver(): the three accesses are one step, for a life that is over stays
     * so, and the claim is compared when it is swapped. */
    :: atomic { UP && claims[b] != FREE && !HOLDER_LIVES(claims[b]) ->
         former = claims[b]; claims[b] = MINE }
    /* Somebody else was first, or another block may be free by now. */
    :: atomic { UP && rounds[b] >= r -> goto Pass }
#if BLOCKS > 1
    :: atomic { UP && rounds[1 - b] < r && claims[1 - b] == FREE -> goto Pass }
#endif
    /* watch.cc Watch::Look(): the kernel says that the holder is gone. membership.cc MarkDead() */
#ifndef MUTANT_MARK_EARLY
    :: atomic { UP && claims[b] != FREE && HOLDER_LIVES(claims[b]) &&
                life[HOLDER(claims[b])] == GONE ->
#else
    :: atomic { UP && claims[b] != FREE && HOLDER_LIVES(claims[b]) &&
                (life[HOLDER(claims[b])] == GONE || life[HOLDER(claims[b])] == DYING) ->
#endif
         running[HOLDER(claims[b])] = false; goto Pass }
#ifndef MUTANT_NO_EVICTION
    /* Watch::Stalled(): it has been silent for too long. membership.cc Evict(): it is killed, and
     * taken for dead when the kernel says so; or fenced off, where it cannot be killed. */
    :: atomic { UP && claims[b] != FREE && HOLDER_LIVES(claims[b]) &&
                life[HOLDER(claims[b])] == STOPPED ->
#ifdef FENCE
         running[HOLDER(claims[b])] = false; goto Pass }
#else
         life[HOLDER(claims[b])] = DYING; goto Pass }
#endif
#endif
    fi;

    /* local_shard_apply_round.cc ClaimAndApplyRoundBlock() */
#ifdef FENCE
    atomic { UP; if :: !ALIVE -> goto Over :: else fi };
#endif
    atomic {
      UP -> before = rounds[b];
      if
      :: former == FREE -> goto Scanned
      :: else -> k = 0
      fi
    };
    /* FindHalfAppliedPiece() */
    do
    :: atomic { UP && k < WORKERS ->
         if
         :: TAG_ROUND(tags[k]) == before + 1 && TAG_PIECE(tags[k]) / PIECES == b ->
            if
            :: found == 0 -> found = tags[k]; whose = k
            :: found != 0 && TAG_PIECE(tags[k]) > TAG_PIECE(found) -> found = tags[k]; whose = k
#ifdef MUTANT_TIE
            :: found != 0 && TAG_PIECE(tags[k]) == TAG_PIECE(found) && TAG_SAVED(tags[k]) ->
#else
            :: found != 0 && TAG_PIECE(tags[k]) == TAG_PIECE(found) && TAG_SAVED(tags[k]) &&
               (!TAG_SAVED(found) || k == HOLDER(former)) ->
#endif
               found = tags[k]; whose = k
            :: else
            fi
         :: else
         fi;
         k++ }
    :: atomic { k == WORKERS -> k = 0; break }
    od;

Scanned:
    if
#ifndef MUTANT_UNCHECKED
    /* One that rounds do not wait for slept since it looked: ReleaseClaim(), back to the dead holder or to nobody. */
    :: atomic { UP && before >= r ->
         if
         :: claims[b] == MINE ->
#ifndef MUTANT_HAND_BACK
            claims[b] = (found != 0 -> former : FREE);
#else
            claims[b] = FREE;
#endif
         :: else
         fi;
         former = FREE; found = 0; whose = 0; before = 0;
         goto Pass }
    :: atomic { UP && before < r ->
#else
    :: atomic { UP ->
#endif
         former = FREE;
         p = (found != 0 -> TAG_PIECE(found) : b * PIECES);
         if
         :: found != 0 && TAG_SAVED(found) -> skip
         :: else -> found = 0; whose = 0; goto Apply
         fi }
    fi;

    /* PutBackPiece() */
    atomic { UP -> values[2 * p] = undo[2 * whose]; NOTE_LATE(PUT_BACK) };
    atomic { UP -> values[2 * p + 1] = undo[2 * whose + 1]; NOTE_LATE(PUT_BACK);
      found = 0; whose = 0 };

Apply:
    /* ApplyRoundBlock() */
    atomic {
      UP;
      if
      :: tags[w] == TAG(r, p, 1) -> goto Saved
#ifndef MUTANT_SAVED_EARLY
      :: else -> tags[w] = TAG(r, p, 0); NOTE_LATE(TAGGED)
#else
      :: else -> tags[w] = TAG(r, p, 1)
#endif
      fi
    };
    /* SavePiece() */
    atomic { UP -> undo[2 * w] = values[2 * p] };
    atomic { UP -> undo[2 * w + 1] = values[2 * p + 1] };
    atomic { UP -> tags[w] = TAG(r, p, 1) };
Saved:
#ifdef FENCE
    atomic { UP; if :: !ALIVE -> goto Over :: else fi };
#endif
    /* local_shard.cc ApplySpan() */
    atomic { UP -> values[2 * p]++; NOTE_LATE(APPLIED) };
    atomic { UP -> values[2 * p + 1]++; NOTE_LATE(APPLIED) };
    atomic {
      UP;
      if
      :: p + 1 < (b + 1) * PIECES ->
#ifdef FENCE
         if :: !ALIVE -> goto Over :: else fi;
#endif
         p++; goto Apply
      :: else -> p = 0
      fi
    };
#ifdef MUTANT_RELEASE_EARLY
    atomic { UP; if :: claims[b] == MINE -> claims[b] = FREE :: else fi };
#endif
    /* ApplyRoundBlock(): the block has seen the round. */
    atomic {
      UP;
      if
      :: rounds[b] == before -> NOTE_LATE(MARKED); rounds[b] = r; ExpectExact(b, r)
      :: else
      fi;
      before = 0
    };
    /* block_claims.h ReleaseClaim() */
    atomic {
      UP;
      if
      :: claims[b] == MINE -> ExpectExact(b, rounds[b]); claims[b] = FREE
      :: else
      fi;
      goto Pass
    };

Finish:
    /* local_lead_rounds.cc FinishRound(). All shards' blocks are done. */
    atomic {
      UP;
      if
      :: completed < r ->
         ExpectExact(0, r);
#if BLOCKS > 1
         ExpectExact(1, r);
#endif
         completed = r
      :: else
      fi;
      b = 0;
      goto Next
    };

Leave:
    /* membership.cc Leave() */
    atomic { UP -> running[w] = false; goto End };
#ifdef FENCE
Over:
    /* It finds that it is fenced off, and ends (local_shard.cc CheckAlive()). What it has claimed
     * stays claimed. */
    atomic { doomed = w };
#endif
    false

  } unless {
    /* Its process is gone: the kernel, or base/failpoint.cc. */
    atomic { doomed == w ->
      ENDED;
      r = 0; b = 0; p = 0; before = 0; former = FREE; found = 0; whose = 0; k = 0 }
  };
end:
  atomic { RESTARTED; goto Begin };
End:
  skip
}

init { START_ALL }

#ifdef LIVENESS
ltl { SOMEBODY_RUNS_ON -> <> (completed == ROUNDS) }
#endif

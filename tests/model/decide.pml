/* decide.pml - who takes part in a round, and when the mode changes, while workers join and die.
 *
 * What it models is in src/store: each transition names its file and function. A step is one access
 * to a word that others may change. How blocks are applied is one step here: redo.pml has it in
 * full. How it is read: docs/formal-model.md.
 *
 * Modes take turns: in one kind rounds are decided, in the other every worker updates at will.
 * With -DMEETING there is one change, to the same kind of mode, at which all wait for a caller; with
 * -DTAKE_UP somebody else takes that meeting up again when it is over and nobody has gone on from it;
 * with -DOVER it is over before anybody else begins.
 */

#include "processes.pml"

#ifndef NEEDED  /* gradients that make a round: barrier, or fewer than WORKERS: replicas */
#define NEEDED WORKERS
#endif
#ifndef FIRST  /* 1: the first mode has rounds */
#define FIRST 1
#endif
#ifndef CHANGES  /* of the mode */
#define CHANGES 1
#endif
#ifndef STEPS  /* training ends there */
#define STEPS 2
#endif
#ifndef GIVE_UPS  /* workers that are not waited for any longer, though they come */
#define GIVE_UPS 0
#endif

#ifdef MEETING
#define HAS_ROUNDS(mode) (FIRST)
#else
#define HAS_ROUNDS(mode) (((mode) + FIRST) % 2)
#endif

/* The arena (src/store/shard_memory.h). */
mtype = { EXPECTED, JOINING, RUNNING, DONE, DEAD };
mtype phase[WORKERS] = EXPECTED;  /* TaskSlot::state */
byte epoch[WORKERS];
byte arrival[WORKERS];            /* TaskSlot::arrival, see SAID() */
byte change_arrival[WORKERS];
byte counted[WORKERS];            /* TaskSlot::counted_round */
byte proposal[2 * WORKERS];       /* TaskSlot::proposal: members, a bit each */
short decision;                   /* ShardState::decision, see DECISION() */
byte completed;                   /* ShardState::completed_round */
byte global_step;
byte block_round;                 /* BlockState::round of all blocks */
byte current;                     /* ModeState::current, see MODE() */
byte wish;                        /* ModeState::wish: its number */
byte hold;                        /* ModeState::hold: 1, 2: the first change is held back, by the
                                   * caller or by who takes the meeting up; 0: none is */
byte since[CHANGES + 1];          /* ModeStart::since, plus one; 0: nobody has said it yet */
byte slot[WORKERS];               /* the round that the gradient in the worker's slot is for */

/* Arrival: a later life is the larger number. */
#define SAID(epoch, number) ((epoch) * 16 + (number))
#define SAYS(word, epoch, number) ((word) / 16 == (epoch) && (word) % 16 >= (number))

#define DECISION(round, generation, worker, ends) \
  ((((round) * 16 + (generation)) * 4 + (worker)) * 4 + (ends))
#define ROUND(decision) ((decision) / 256)
#define GENERATION(decision) (((decision) / 16) % 16)
#define PROPOSER(decision) (((decision) / 4) % 4)
#define ENDS(decision) ((decision) % 4)
#define NEXT_GENERATION(decision) ((decision) + 16)
#define END_OF(mode) ((mode) + 1)

#define MODE(number, generation) ((number) * 16 + (generation))
#define NUMBER(mode) ((mode) / 16)

#define AWAITED(k) (phase[k] == EXPECTED || phase[k] == JOINING || phase[k] == RUNNING)
#define RAISE(word, value) word = ((value) > word -> (value) : word)

/* Not in the arena. */
byte members_of[STEPS + 1];  /* what was decided; 0: nothing yet */
bool known[WORKERS];         /* it runs, or will, and others must have seen it */
bool entered[WORKERS];       /* it has read the mode */
byte give_ups = GIVE_UPS;
bool met;                    /* the caller of a meeting copies the values, and its hold stands */
bool caller_gone;            /* its process */
bool copies;                 /* who has taken the meeting up copies the values */
bool changed;                /* and one of them changed meanwhile */
/* No round that counts the gradient of `w` may still read it. */
#define EXPECT_UNREAD \
  assert(!(ROUND(decision) > completed && (members_of[ROUND(decision)] >> w) & 1))

proctype Worker(byte w) {
  byte mode;     /* mode_number_ */
  byte r;        /* round_ */
  byte base;     /* the version that was pulled */
  byte members;
  byte k;
  byte least;    /* what an arrival must say */
  short seen;    /* the decision, or the mode, that was read */
  bool due;
  byte missing[WORKERS];
  byte x;

Begin:
  {
    /* membership.cc Join(): whoever it was before is dead. */
    atomic { UP -> epoch[w]++; phase[w] = JOINING };
#ifdef MUTANT_MODE_TOO_EARLY
    atomic { UP -> mode = NUMBER(current); entered[w] = true };
#endif
    atomic { UP -> known[w] = (phase[w] == JOINING);
#ifndef MUTANT_DECISION_GENERATION
      decision = NEXT_GENERATION(decision);
      assert(GENERATION(decision) > 0)
#endif
    };
#ifndef MUTANT_MODE_GENERATION
    atomic { UP -> current = current + 1 };
#endif
    atomic { UP ->
      if
      :: phase[w] == JOINING -> phase[w] = RUNNING
      :: else -> known[w] = false; goto Over  /* `lost` */
      fi };
    /* open_store.cc OpenStore(), local_lead_mode.cc EnterMode() */
#ifndef MUTANT_MODE_TOO_EARLY
    atomic { UP -> mode = NUMBER(current); entered[w] = true };
#endif
    /* sharded_store.cc WaitUntilInitialized() */
    if
    :: atomic { UP && HAS_ROUNDS(mode) -> goto Interrupted }
    :: atomic { UP && !HAS_ROUNDS(mode) }
    fi;

EndOfStep:
    /* sharded_store.cc ChangeMode(); Wait() */
    due = false;
    /* local_lead_mode.cc ChangeDue(). mode_change.h AModeIsWished() */
    atomic { UP -> x = wish };
    atomic { UP -> due = (x == NUMBER(current) + 1); x = 0 };
#ifndef MUTANT_NO_LAST_ROUND
    if
    :: atomic { UP && due && HAS_ROUNDS(mode) -> seen = decision };
       atomic { UP -> due = (ENDS(seen) == END_OF(mode) && completed >= ROUND(seen)); seen = 0 }
    :: atomic { UP && !(due && HAS_ROUNDS(mode)) }
    fi;
#endif
    atomic { UP ->
      if
      :: due || NUMBER(current) != mode -> due = false; goto Change
      :: !due && NUMBER(current) == mode && !HAS_ROUNDS(mode) -> goto AtWill
      :: else
      fi };

    /* worker_loop.cc: the stop rule. sharded_store.cc Pull() */
    atomic { UP ->
      if
      :: completed >= STEPS -> goto Leave
      :: else -> base = completed
      fi };
    /* The gradient is computed. */
    atomic { UP -> EXPECT_UNREAD; slot[w] = base + 1 };
    /* sharded_store.cc PushToRound() */
    atomic { UP -> r = completed + 1;
#if NEEDED < WORKERS
      if :: r != base + 1 -> base = 0; r = 0; goto Interrupted :: else fi;
#endif
      base = 0 };
    /* ChangeDue() */
    atomic { UP -> x = wish };
    atomic { UP -> due = (x == NUMBER(current) + 1); x = 0 };
    if
    :: atomic { UP && due -> seen = decision };
       atomic { UP -> due = (ENDS(seen) == END_OF(mode) && completed >= ROUND(seen)); seen = 0 }
    :: atomic { UP && !due }
    fi;
    atomic { UP ->
      if
      :: due || NUMBER(current) != mode -> due = false; r = 0; goto Interrupted
      :: else
      fi };
    /* local_lead_rounds.cc Arrive() */
    atomic { UP -> RAISE(arrival[w], SAID(epoch[w], r)) };

Decide:
    /* TryDecide() */
    atomic { UP -> seen = decision;
      if :: ROUND(seen) + 1 != r -> seen = 0; goto Decided :: else fi };
    do
    :: atomic { UP && k < WORKERS ->
         least = (AWAITED(k) -> 128 : 0) + SAID(epoch[k], r) };
       atomic { UP ->
         if
         :: SAYS(arrival[k], (least % 128) / 16, r) -> members = members | (1 << k); x++
         :: !SAYS(arrival[k], (least % 128) / 16, r) && least >= 128 -> x = x + 16
         :: else
         fi;
         least = 0; k++ }
    :: atomic { k == WORKERS -> k = 0; break }
    od;
    /* Those who arrived, and those who may come. */
    atomic { UP ->
      if
      :: x % 16 == 0 || (x % 16 < NEEDED && x / 16 > 0) ->
         x = 0; members = 0; seen = 0; goto Decided
      :: else -> x = 0
      fi };
    /* local_lead_mode.cc EndsWith() */
    atomic { UP -> x = wish };
    atomic { UP -> x = (x == NUMBER(current) + 1 -> END_OF(mode) : 0) };
    atomic { UP -> proposal[2 * w + (r & 1)] = members };
    atomic { UP ->
      if
      :: decision == seen ->
         decision = DECISION(r, GENERATION(seen), w, x);
         members_of[r] = members;
#if NEEDED == WORKERS
         /* Nobody whom the others could have seen is left out. */
         for (k in known) { assert(!known[k] || (members >> k) & 1) }
         k = 0;
#endif
      :: else
      fi;
      x = 0; members = 0; seen = 0 };

Decided:
    /* AwaitRound(): once more, until somebody has decided. Before that watch.cc Watch::Look(): who
     * is gone is dead, who is silent is killed (membership.cc Evict()), who does not come is given
     * up. */
    atomic { UP ->
      if
      :: ROUND(decision) >= r -> goto Grant
      :: else
      fi;
      for (k in phase) {
        if
        :: phase[k] == RUNNING && life[k] == GONE && !SAYS(arrival[k], epoch[k], r) ->
           phase[k] = DEAD
        :: (phase[k] == EXPECTED || phase[k] == JOINING) &&
           (life[k] == GONE || life[k] == STOPPED) -> phase[k] = DEAD; known[k] = false
        :: phase[k] == RUNNING && life[k] == STOPPED && !SAYS(arrival[k], epoch[k], r) ->
           life[k] = DYING
        :: (phase[k] == EXPECTED || phase[k] == JOINING) && life[k] == RUNS && give_ups > 0 ->
           if
           :: give_ups--; phase[k] = DEAD; known[k] = false
           :: true
           fi
        :: else
        fi
      }
      k = 0;
      goto Decide };

Grant:
    atomic { UP -> seen = decision };
    atomic { UP -> members = proposal[2 * PROPOSER(seen) + (r & 1)] };
#ifndef MUTANT_OLD_PROPOSAL
    atomic { UP ->
      if
      :: ROUND(decision) != ROUND(seen) || PROPOSER(decision) != PROPOSER(seen) ||
         ROUND(seen) != r ->
         /* A later round is decided, so this one is complete. counted_round tells the rest. */
         assert(completed >= r);
         assert((counted[w] == r) == ((members_of[r] >> w) & 1));
         members = 0; seen = 0; r = 0; goto EndOfStep
      :: else -> seen = 0
      fi };
#endif
    /* Whoever slept learns whether it was counted. */
    atomic { UP -> assert(((members >> w) & 1) == ((members_of[r] >> w) & 1)) };
    /* sharded_store.cc Complete(), local_shard_apply_round.cc ApplyRound(). One that was not
     * counted may help at any time. */
    atomic { UP ->
      if
      :: block_round < r ->
         assert(block_round == r - 1);
         assert(NUMBER(current) == mode);   /* nobody updates in a mode that is over */
         assert(!met);                      /* nor while all have met */
         assert(members == members_of[r]);  /* what was decided is what is applied */
         for (k in slot) { assert(!((members >> k) & 1) || slot[k] == r) }
         k = 0;
         changed = changed || copies;
         block_round = r
      :: else
      fi };
    /* local_lead_rounds.cc FinishRound() */
    atomic { UP ->
      if
      :: completed < r ->
         for (k in counted) {
           if :: (members >> k) & 1 -> RAISE(counted[k], r) :: else fi
         }
         k = 0
      :: else
      fi;
      members = 0 };
    atomic { UP -> RAISE(global_step, r) };
    atomic { UP -> RAISE(completed, r); r = 0; goto EndOfStep };

Interrupted:
    /* sharded_store.cc FinishInterruptedRound() */
    atomic { UP -> r = completed + 1 };
    atomic { UP ->
      if
      :: ROUND(decision) >= r -> goto Grant
      :: else -> r = 0; goto EndOfStep
      fi };

AtWill:
    /* sharded_store.cc Push() */
    atomic { UP ->
      if :: global_step >= STEPS -> goto Leave :: else fi };
    atomic { UP -> EXPECT_UNREAD; slot[w] = 0 };
    atomic { UP -> assert(NUMBER(current) == mode); assert(!met) };
    /* CountUpdate() */
    atomic { UP -> assert(NUMBER(current) == mode); assert(!met);
      changed = changed || copies;
      global_step++;
      goto EndOfStep };

Change:
    /* local_lead_mode.cc AwaitChange() */
    atomic { UP -> RAISE(change_arrival[w], SAID(epoch[w], mode + 1)) };

LookAround:
    /* AllHaveArrived() */
    atomic { UP -> seen = current;
      if :: NUMBER(seen) != mode -> seen = 0; goto Changed :: else fi };
    atomic { UP ->
      if :: wish != mode + 1 -> seen = 0; goto Changed :: else fi };
#if defined(MEETING) && !defined(MUTANT_NO_HOLD)
    /* meeting.cc IsHeldBack(). Time passes: the hold of a caller that is gone is out of date some
     * time, that of a slow one perhaps. */
    atomic { UP ->
      if
      :: hold != 0 && mode == 0 && !(hold == 1 && caller_gone) -> seen = 0; goto Changed
      :: hold == 1 && mode == 0 && caller_gone -> hold = 0; met = false
      :: hold == 0 || mode != 0
      fi };
#endif
#ifndef MUTANT_NO_LOOK
    /* mode_change.cc MissingAtChange(): first the members, then what they said. */
    do
    :: atomic { UP && k < WORKERS ->
         missing[k] = (phase[k] == RUNNING || phase[k] == JOINING ->
                       SAID(epoch[k], mode + 1) : 0);
         k++ }
    :: atomic { k == WORKERS -> k = 0; break }
    od;
    do
    :: atomic { UP && k < WORKERS ->
         if
         :: missing[k] != 0 && !SAYS(change_arrival[k], missing[k] / 16, mode + 1) -> x = 1
         :: else
         fi;
         missing[k] = 0; k++ }
    :: atomic { k == WORKERS -> k = 0; break }
    od;
    atomic { UP ->
      if :: x == 1 -> x = 0; seen = 0; goto Changed :: else fi };
#endif
    atomic { UP -> x = (HAS_ROUNDS(mode) -> completed : global_step) };
    /* AgreeOn() */
    atomic { UP ->
      if :: since[mode + 1] == 0 -> since[mode + 1] = x + 1 :: else -> x = since[mode + 1] - 1 fi };
#ifndef MUTANT_NOT_PREPARED
    /* PrepareChange() */
    atomic { UP -> RAISE(block_round, x) };
    atomic { UP -> RAISE(completed, x) };
    atomic { UP ->
      decision = NEXT_GENERATION(decision);
      if
      :: ROUND(decision) < x -> decision = DECISION(x, GENERATION(decision), 0, 0)
      :: ROUND(decision) == x && ENDS(decision) != END_OF(mode) ->
         decision = decision - ENDS(decision)
      :: else
      fi;
      x = 0 };
#endif
    atomic { UP ->
      if
      :: current == seen ->
         current = MODE(mode + 1, 0);
         for (k in entered) {
           assert(!entered[k] || SAYS(change_arrival[k], epoch[k], mode + 1))
         }
         k = 0;
         /* Between the same two updates for all. */
         assert(since[mode + 1] - 1 == global_step && block_round == global_step)
      :: else
      fi;
      x = 0; seen = 0 };

Changed:
    /* AwaitChange(), with the same looks */
    atomic { UP ->
      if
      :: NUMBER(current) != mode ->
         /* EnterMode() */
         mode = NUMBER(current); goto EndOfStep
      :: else
      fi;
      for (k in phase) {
        if
        :: phase[k] == RUNNING && life[k] == GONE && !SAYS(change_arrival[k], epoch[k], mode + 1) ->
           phase[k] = DEAD
        :: phase[k] == JOINING && (life[k] == GONE || life[k] == STOPPED) ->
           phase[k] = DEAD; known[k] = false
        :: phase[k] == RUNNING && life[k] == STOPPED && !SAYS(change_arrival[k], epoch[k], mode + 1)
           -> life[k] = DYING
        :: phase[k] == JOINING && life[k] == RUNS && give_ups > 0 ->
           if
           :: give_ups--; phase[k] = DEAD; known[k] = false
           :: true
           fi
        :: else
        fi
      }
      k = 0;
      goto LookAround };

Leave:
    /* membership.cc Leave() */
    atomic { UP -> phase[w] = DONE; known[w] = false; entered[w] = false; mode = 0; goto End };
Over:
    atomic { UP -> doomed = w };
    false

  } unless {
    atomic { doomed == w ->
      ENDED; known[w] = false; entered[w] = false;
      mode = 0; r = 0; base = 0; members = 0; k = 0; least = 0; seen = 0; due = false;
      x = 0; for (k in missing) { missing[k] = 0 } k = 0 }
  };
end:
  atomic { RESTARTED; goto Begin };
End:
  skip
}

#ifdef MEETING
/* meeting.cc. The first one can be killed between any two steps. */
#define CALLS (doomed == NOBODY)
/* AllAreHere() of who has put `me` into the hold: goes on behind it, or to Over. */
#define ALL_ARE_HERE(me) \
    atomic { CALLS -> \
      if :: hold != me -> goto Over :: else -> seen = decision fi }; \
    do \
    :: atomic { CALLS && k < WORKERS -> \
         missing[k] = (phase[k] == RUNNING || phase[k] == JOINING -> SAID(epoch[k], 1) : 0); \
         k++ } \
    :: atomic { k == WORKERS -> k = 0; break } \
    od; \
    do \
    :: atomic { CALLS && k < WORKERS -> \
         away = away || (missing[k] != 0 && !SAYS(change_arrival[k], missing[k] / 16, 1)); \
         missing[k] = 0; k++ } \
    :: atomic { k == WORKERS -> k = 0; break } \
    od; \
    if \
    :: atomic { CALLS && away -> away = false; seen = 0; \
         /* membership.cc MarkDeadByKernel() */ \
         for (k in phase) { \
           if :: phase[k] == RUNNING && life[k] == GONE -> phase[k] = DEAD :: else fi \
         } \
         k = 0; \
         goto LookAround } \
    :: atomic { CALLS && !away } \
    fi

proctype Caller() {
  byte k;
  byte missing[WORKERS];
  short seen;
  bool away;
  {
    /* Call(): the hold comes before the wish */
    atomic { CALLS -> hold = 1 };
    atomic { CALLS -> wish = 1 };

LookAround:
    ALL_ARE_HERE(1);
#if FIRST == 1
    atomic { CALLS ->
      if :: completed < ROUND(seen) -> seen = 0; goto LookAround :: else fi };
#ifndef MUTANT_NOBODY_RUNS
    atomic { CALLS ->
      if
      :: ENDS(seen) == END_OF(0)
      :: ENDS(seen) != END_OF(0) && decision == seen -> decision = decision + END_OF(0) - ENDS(seen)
      :: else -> seen = 0; goto LookAround
      fi };
#endif
#endif
    /* Await(), Renew() */
    atomic { CALLS -> seen = 0;
      if
      :: hold == 1 ->
         met = true;
         assert(NUMBER(current) == 0);
         assert(block_round == completed)  /* no round is half done */
      :: else -> goto Over
      fi };
    /* End() */
    atomic { CALLS -> if :: hold == 1 -> hold = 0; met = false :: else fi };
Over:
    skip
  } unless { atomic { caller_gone } }
}

#ifdef TAKE_UP
/* The same of somebody who finds a meeting that is over, and nobody who would go on from it. */
proctype TakesUp() {
  byte k;
  byte missing[WORKERS];
  short seen;
  bool away;
  /* Call() */
  atomic { CALLS && wish == 1 };
  atomic { CALLS -> if :: NUMBER(current) != 0 -> goto Over :: else fi };
  /* SomebodyRuns() */
  do
  :: atomic { CALLS && k < WORKERS ->
       away = away || phase[k] == RUNNING || phase[k] == JOINING;
       k++ }
  :: atomic { k == WORKERS -> k = 0; break }
  od;
  atomic { CALLS -> if :: away -> away = false; goto Over :: else -> seen = hold fi };
  atomic { CALLS ->
    if
    :: seen == hold && !(hold == 1 && !caller_gone) -> hold = 2; seen = 0
    :: else -> seen = 0; goto Over
    fi };

LookAround:
  ALL_ARE_HERE(2);
#if FIRST == 1
  atomic { CALLS ->
    if :: completed < ROUND(seen) -> seen = 0; goto LookAround :: else fi };
  atomic { CALLS ->
    if
    :: ENDS(seen) == END_OF(0)
    :: ENDS(seen) != END_OF(0) && decision == seen -> decision = decision + END_OF(0) - ENDS(seen)
    :: else -> seen = 0; goto LookAround
    fi };
#endif
  /* Await(): IsPublished(), Renew(). Who had seen the former hold end may publish the change. */
  atomic { CALLS -> seen = 0; if :: NUMBER(current) != 0 -> goto LetGo :: else fi };
  atomic { CALLS -> if :: hold == 2 -> copies = true :: else -> goto Over fi };
  /* End() */
  atomic { CALLS -> copies = false; seen = (NUMBER(current) != 0) };
LetGo:
  atomic { CALLS ->
    if
    :: hold == 2 -> hold = 0;
#ifdef MUTANT_NOT_ASKED_AGAIN
       assert(!changed)
#else
       assert(seen || !changed)  /* what was copied is of one step, or its caller knows */
#endif
    :: else
    fi;
    seen = 0 };
Over:
  skip
}
#endif

/* From the wish on: without one nobody looks at the hold. */
proctype EndOfCaller() {
  if
  :: atomic { wish == 1 && doomed == NOBODY -> caller_gone = true; met = false }
  :: atomic { wish == 1 && doomed == NOBODY }
  fi
}
#endif

/* mode_change.cc WishForMode(), WishForScheduledMode() */
proctype Wishes() {
end:
  do
  :: atomic { wish == NUMBER(current) && wish < CHANGES && doomed == NOBODY -> wish++ }
  od
}

init {
#ifdef MEETING
  atomic {
#ifdef OVER
    wish = 1; caller_gone = true;
#else
    run Caller(); run EndOfCaller();
#endif
#ifdef TAKE_UP
    run TakesUp();
#endif
    START_ALL }
#else
  atomic { run Wishes(); START_ALL }
#endif
}

#ifdef LIVENESS
ltl { SOMEBODY_RUNS_ON -> <> (global_step >= STEPS) }
#endif

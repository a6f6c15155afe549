/* processes.pml - processes that are killed, stopped, continued and started again. Included by the
 * models; each has a proctype Worker(byte w) whose steps are guarded by UP and which ends
 *
 *   } unless { atomic { doomed == w -> ENDED; ... forget everything ... } };
 */

#ifndef WORKERS
#define WORKERS 3
#endif
/* What may go wrong, in the whole run. Killing whoever is to be evicted comes on top. */
#ifndef KILLS
#define KILLS 1
#endif
#ifndef STOPS
#define STOPS 1
#endif
#ifndef RESTARTS
#define RESTARTS 0
#endif

#define NOBODY 255

/* As the kernel knows them. DYING: SIGKILL was sent, but it may still make steps. */
mtype = { RUNS, STOPPED, DYING, GONE };
mtype life[WORKERS] = RUNS;
byte doomed = NOBODY;  /* whose process ends, with all that it knew, before anything else happens */
byte restarts = RESTARTS;

/* Can it make a step? */
#define UP ((life[w] == RUNS || life[w] == DYING) && doomed == NOBODY)
#define ENDED life[w] = GONE; doomed = NOBODY
/* The supervisor starts another. */
#define RESTARTED restarts > 0 && doomed == NOBODY -> restarts--; life[w] = RUNS

/* Somebody kills, stops and continues processes, and leaves it at that sooner or later. */
#define FAULTS_OF(w) \
  :: atomic { kills > 0 && doomed == NOBODY && (life[w] == RUNS || life[w] == STOPPED) -> \
       kills--; doomed = w } \
  :: atomic { stops > 0 && doomed == NOBODY && life[w] == RUNS -> stops--; life[w] = STOPPED } \
  :: atomic { life[w] == STOPPED && doomed == NOBODY -> life[w] = RUNS }
proctype Faults() {
  byte kills = KILLS;
  byte stops = STOPS;
  do
  FAULTS_OF(0)
  FAULTS_OF(1)
#if WORKERS > 2
  FAULTS_OF(2)
#endif
  :: atomic { doomed == NOBODY -> kills = 0; stops = 0; break }
  od
}

/* The kernel ends whoever was sent SIGKILL, sooner or later. */
#define ENDING_OF(w) :: atomic { life[w] == DYING && doomed == NOBODY -> doomed = w }
proctype Kernel() {
end:
  do
  ENDING_OF(0)
  ENDING_OF(1)
#if WORKERS > 2
  ENDING_OF(2)
#endif
  od
}

#if WORKERS > 2
#define START_ALL atomic { run Worker(0); run Worker(1); run Worker(2); run Faults(); run Kernel() }
#else
#define START_ALL atomic { run Worker(0); run Worker(1); run Faults(); run Kernel() }
#endif

/* For liveness: some worker runs for ever from some time on. */
#define RUNS_ON(w) (<> [] (life[w] == RUNS))
#if WORKERS > 2
#define SOMEBODY_RUNS_ON (RUNS_ON(0) || RUNS_ON(1) || RUNS_ON(2))
#else
#define SOMEBODY_RUNS_ON (RUNS_ON(0) || RUNS_ON(1))
#endif

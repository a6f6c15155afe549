/* passel.h - passel for programs that keep their own model and their own loop, in C or C++.
 *
 *   passel_open          describe the variables; a job of this process alone, or one more worker of
 *                        a job whose ps is `passel task --job_name ps`
 *   passel_initialize    the chief writes the first values, everyone else waits for them
 *   each step:           passel_pull, passel_values   the values of now
 *                        passel_gradient              memory for dL/dw: fill it
 *                        passel_push, passel_wait     hand it in, see what became of it
 *                        passel_push_from             in place of the two: of memory of yours
 *   passel_sample        shares an epoch of data among the workers, each of which takes its batches
 *   passel_next_batch    one by one
 *   passel_leave         this worker is done
 *
 * A program that is no worker follows the values of a job:
 *
 *   passel_attach        any job of this user on this host, passel train's, too
 *   passel_wait_version  until it has made so many updates
 *   passel_read          copies the values, which passel_reader_values() gives
 *   passel_detach
 *
 * Errors. A function returns PASSEL_OK (0) or a code; passel_error() has a sentence that names the
 * limit, the actual value and the fix. Outputs are written on PASSEL_OK only, unless it says
 * otherwise. No C++ exception leaves the library, and no wrong argument named below ends the
 * process.
 *
 * Threads. One thread at a time per job, but passel_stop(), passel_stopped(), passel_global_step()
 * and passel_mode() may be called from any thread meanwhile. Nobody may be in any function of a job
 * while passel_leave() is. One thread at a time per reader, but any number of readers.
 * passel_error() is of the calling thread.
 *
 * Processes. One job per process at a time. A child of fork() may not use the job of its parent: it
 * gets PASSEL_FAILED_PRECONDITION. It has none of the parent's connections, so that the end of the
 * parent is noticed while it lives.
 *
 * Memory. Values and gradients are float32, row-major, 64-byte aligned, and stay the library's.
 *
 * Order. After PASSEL_OK of passel_wait() this thread sees the update (acquire). What was written
 * to a gradient before passel_push() is pushed.
 *
 * Waits. passel_open() waits for the tasks of the job as long as start_wait says, a setting.
 * What has an argument timeout_seconds waits that long at most: 0 to 1e8. passel_leave() waits for
 * the last checkpoint, ten minutes at most. What asks a ps on another host (passel_pull(),
 * passel_sample(), passel_next_batch(), ...) waits for one that is gone as long as ps_wait says.
 * Nothing else waits, and passel_check_waits() ends each.
 *
 * Signals. None is caught. A program that shall go on when nobody reads its standard error ignores
 * SIGPIPE: the library logs there, warnings and errors unless log_level says otherwise.
 *
 * Versions. Structs begin with their size: set struct_size to sizeof of it and the rest to 0
 * before filling it in. Later versions only add fields at the end and functions; 0 then means what
 * this version does. PASSEL_ABI_VERSION is the library's SONAME.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PASSEL_ABI_VERSION 1

#if defined(__GNUC__)
#define PASSEL_API __attribute__((visibility("default")))
#else
#define PASSEL_API
#endif

/* Numbers never change their meaning; a later version may return new ones. */
typedef int32_t passel_status;
enum {
  PASSEL_OK = 0,
  PASSEL_INVALID_ARGUMENT = 1, /* can never work: null, a size, a shape, a setting */
  PASSEL_NOT_FOUND = 2,
  PASSEL_ALREADY_EXISTS = 3,      /* this process has a job, or that worker is running */
  PASSEL_PERMISSION_DENIED = 4,   /* another user, or another job token */
  PASSEL_FAILED_PRECONDITION = 5, /* a call before the one that it needs, or after passel_leave() */
  PASSEL_RESOURCE_EXHAUSTED = 6,  /* memory or descriptors */
  PASSEL_DATA_LOSS = 7,
  PASSEL_ABORTED = 8,            /* this worker was evicted: leave, and open the job again */
  PASSEL_CANCELLED = 9,          /* somebody stopped the job: leave */
  PASSEL_UNAVAILABLE = 10,       /* a ps is gone: leave, and open the job again */
  PASSEL_DEADLINE_EXCEEDED = 11, /* not yet: what was begun goes on */
  PASSEL_INTERNAL = 12,
  PASSEL_DIVERGED = 13 /* a gradient with NaN or infinity: it was not pushed */
};

/* A job that this process has joined. A handle stays valid memory for ever: using it after
 * passel_leave() is an error with a sentence. */
typedef struct passel_job passel_job;

/* One variable. Its index in the array of passel_open() names it from then on. Every worker of a
 * job describes the same ones. */
typedef struct passel_variable {
  size_t struct_size;   /* of all of an array the same */
  const char* name;     /* 1 to 127 bytes, of each variable another */
  const int64_t* shape; /* [rank], each 1 or more; may be NULL with rank 0, a scalar */
  size_t rank;          /* at most 8 */
  int32_t group;        /* 0 to 15: of those with the same rates, see passel_set_rates() */
} passel_variable;

/* What may change of the optimizer while a job trains, of one group of variables. */
typedef struct passel_rates {
  size_t struct_size;   /* of all of an array the same */
  double learning_rate; /* 0 or more; ftrl: above 0 */
  double weight_decay;  /* adamw: 0 or more; the others have none: 0 */
} passel_rates;

/* What the job is. NULL stands for a job of this process alone with all defaults. */
typedef struct passel_options {
  size_t struct_size;
  /* [num_settings] "NAME=VALUE", the settings of `passel task` by their names there, as
   * "mode=barrier", "optimizer=sgd", "learning_rate=0.1", "job_id=mine", "ps_hosts=localhost:2222",
   * "worker_hosts=localhost:2223,localhost:2224", "task_index=1". Those of data and model have no
   * meaning here and are refused. "checkpoint_dir=FOLDER": the chief saves checkpoints there, at
   * its start and end and by save_secs and save_steps, and a job that is started goes on from the
   * newest, or from what "resume" says. A cluster may also be named by TF_CONFIG and
   * the other variables that `passel task` reads (but those of ranks); without one the job is this
   * process alone. */
  const char* const* settings;
  size_t num_settings;
} passel_options;

/* What a worker is told about itself. */
typedef struct passel_description {
  size_t struct_size;
  int32_t worker;     /* its index */
  int32_t workers;    /* places for workers in the job */
  int32_t is_chief;   /* 1: it writes the first values */
  int32_t is_alone;   /* 1: the job is this process */
  const char* job_id; /* for passel ctl; valid until passel_leave() */
} passel_description;

/* With what the values of a job began. */
typedef struct passel_first_values {
  size_t struct_size;
  /* random: another one each time that first values, or those of a checkpoint, become a job's */
  uint64_t number;
  /* where they were: of the checkpoint, or of passel_initialize_with(); else 0 */
  int64_t global_step;
  int32_t is_own;           /* 1: this process wrote them, and has not come back to them */
  int32_t is_of_checkpoint; /* with is_own. 1: they are those of a checkpoint */
} passel_first_values;

/* What the optimizer keeps beside the values. */
typedef struct passel_optimizer_state {
  size_t struct_size;
  int64_t step;     /* updates that it counts (of Adam's powers) */
  size_t num_slots; /* slot variables of each variable: adam 2, sgd 0 */
  /* [num_slots] "Adam", "Adam_1"; where it is given: NULL, or those of the optimizer in order */
  const char* const* names;
  /* [variables x num_slots] float32, as the variable; slot s of variable v is at
   * [v * num_slots + s] */
  const float* const* slots;
} passel_optimizer_state;

/* Data that the workers of a job share: the numbers 0 to examples - 1, in batches. */
typedef struct passel_sampling {
  size_t struct_size;
  int64_t examples;   /* 1 to 2^36 */
  int64_t batch_size; /* 1 to 2^24; the last batch of an epoch has what is left */
  int64_t epochs;     /* of the whole job, also before a checkpoint; 0: without an end */
  int64_t seed;       /* 0 to 2^62 - 1: of the order of an epoch, another one in each */
  int32_t in_order;   /* 1: each epoch is 0, 1, 2, ... */
} passel_sampling;

/* Some of them, for one worker. */
typedef struct passel_batch {
  size_t struct_size;
  const int64_t* examples; /* [count], valid until the next batch */
  size_t count;            /* 0: there is no more */
  int64_t epoch;           /* from 0 */
} passel_batch;

/* What became of one gradient. */
typedef struct passel_outcome {
  size_t struct_size;
  int32_t applied;   /* 0: it came too late for its round */
  int32_t gradients; /* so many of this worker share this fate; mode replicas alone: not always 1 */
  int64_t global_step; /* the number of this update, from 1 */
  uint64_t staleness;  /* updates between its pull and its apply */
} passel_outcome;

/* How passel_pull() shows values. */
enum {
  PASSEL_PULL_AUTO = 0, /* a view in the modes with rounds, a copy in the others */
  PASSEL_PULL_VIEW = 1, /* the shared values: no copy, but in the modes without rounds others change
                           them while you read */
  PASSEL_PULL_COPY = 2  /* a private copy, so that forward and backward pass see the same values */
};

/* PASSEL_ABI_VERSION of the library that runs. */
PASSEL_API int32_t passel_abi_version(void);

/* The sentence of the last call of this thread that returned a code; "" if it returned PASSEL_OK.
 * Valid until the next call of this thread. Never NULL. */
PASSEL_API const char* passel_error(void);

/* From now on the waits of this thread, in whatever function, ask is_over(argument) on this thread,
 * ten times a second at most: once it returns other than 0 the wait ends as at its timeout, also
 * where a function has none; passel_leave() gives up the last checkpoint then. For languages that
 * run handlers of signals only between their own instructions. It may call what is for any thread,
 * and no other function of a job. NULL: they ask nobody, as at first. */
typedef int32_t (*passel_check)(void* argument);
PASSEL_API void passel_check_waits(passel_check is_over, void* argument);

/* Joins the job, as the worker that the settings name. Waits for the ps, and unless this is the
 * chief (worker 0) for the chief's passel_open(). The first of all workers decides nothing: who
 * describes other variables, another mode or another optimizer than the chief is refused, and the
 * difference is named. So is a checkpoint of other variables or another optimizer.
 * Errors: PASSEL_INVALID_ARGUMENT; PASSEL_ALREADY_EXISTS; PASSEL_DEADLINE_EXCEEDED, naming who did
 * not come; PASSEL_PERMISSION_DENIED; PASSEL_RESOURCE_EXHAUSTED; PASSEL_DATA_LOSS: no checkpoint
 * is whole; PASSEL_INTERNAL: a ps has lost its values, and all tasks of the job end;
 * PASSEL_UNAVAILABLE. *job is NULL after an error. */
PASSEL_API passel_status passel_open(const passel_options* options,
                                     const passel_variable* variables, size_t num_variables,
                                     passel_job** job);

/* Reads what passel_open() found. */
PASSEL_API passel_status passel_describe(passel_job* job, passel_description* description);

/* The chief gives the first values: values[i] is float[elements of variable i], or NULL for zeros;
 * `values` may be NULL: all zeros. Others give what they like: it is not read. A job that has
 * values already (the chief died and came back) keeps them, and one that goes on from a checkpoint
 * takes that one's: passel_global_step() tells. Returns when there are values. Errors:
 * PASSEL_DEADLINE_EXCEEDED, naming the chief: call it again; PASSEL_DIVERGED: a value is NaN or
 * infinite, and nothing was written; PASSEL_CANCELLED; PASSEL_ABORTED. */
PASSEL_API passel_status passel_initialize(passel_job* job, const float* const* values,
                                           double timeout_seconds);

/* passel_initialize() with the state of an optimizer, as passel_read_optimizer_state() gave it or
 * another program computed it: the chief's job begins with it, at the global step `state->step`,
 * and its next update is number step + 1. NULL in `slots` stands for the first values of a slot,
 * and for all of them if `slots` is NULL. A job that has values keeps its state, too, and one that
 * goes on from a checkpoint takes that one's. Errors: those of passel_initialize();
 * PASSEL_INVALID_ARGUMENT: the optimizer keeps other slots, or the step is not 0 to 2^40 - 1. */
PASSEL_API passel_status passel_initialize_with(passel_job* job, const float* const* values,
                                                const passel_optimizer_state* state,
                                                double timeout_seconds);

/* How the values of the job began, the same for all workers but for is_own. For what a program
 * keeps of a job outside of it. Errors: PASSEL_FAILED_PRECONDITION before passel_initialize();
 * those of asking a ps on another host. */
PASSEL_API passel_status passel_beginning(passel_job* job, passel_first_values* first);

/* Copies the state of the optimizer. For any worker, between two steps. In mode barrier it is that
 * of the last round; in the others, where workers go on meanwhile, each float is of some time
 * during the copy. What `state` points to is the library's, 64-byte aligned, and stays until the
 * next call or passel_leave(). Errors: PASSEL_FAILED_PRECONDITION before passel_initialize(), while
 * a push is not waited for, or where a ps is on another host; PASSEL_RESOURCE_EXHAUSTED. */
PASSEL_API passel_status passel_read_optimizer_state(passel_job* job,
                                                     passel_optimizer_state* state);

/* Takes the values of now. What passel_values() gave before is void. `how`: PASSEL_PULL_*.
 * Errors: PASSEL_FAILED_PRECONDITION before passel_initialize(), or while a push is not waited for;
 * PASSEL_CANCELLED after passel_stop() of anyone; PASSEL_ABORTED; PASSEL_UNAVAILABLE when a ps has
 * been gone for longer than the setting ps_wait. */
PASSEL_API passel_status passel_pull(passel_job* job, int32_t how);

/* The values of the last pull, float[*elements]; valid until the next one. Modes with rounds: they
 * are those of one round until this worker pushes. `elements` may be NULL.
 * Errors: PASSEL_FAILED_PRECONDITION before passel_pull(). */
PASSEL_API passel_status passel_values(passel_job* job, size_t variable, const float** values,
                                       size_t* elements);

/* Memory for the next gradient of that variable, float[*elements]; valid until passel_push(). What
 * is in it is anything: overwrite all of every variable, do not add. `elements` may be NULL.
 * Errors: PASSEL_FAILED_PRECONDITION while a push is not waited for. */
PASSEL_API passel_status passel_gradient(passel_job* job, size_t variable, float** gradient,
                                         size_t* elements);

/* Hands in the gradients of all variables, dL/dw on the values of the last pull. passel_wait()
 * follows. Applied when this returns in the modes without rounds.
 * Errors: PASSEL_FAILED_PRECONDITION without a pull and a gradient since the last push;
 * PASSEL_DIVERGED, naming the variable: nothing was pushed, the gradient is still yours;
 * PASSEL_DEADLINE_EXCEEDED (mode locked): a worker held a block for so long, and what was not
 * applied is given up; PASSEL_CANCELLED; PASSEL_ABORTED. After the last three the step is over:
 * pull again, or leave. */
PASSEL_API passel_status passel_push(passel_job* job, double timeout_seconds);

/* passel_push() of gradients in memory of the caller: gradients[i] is float[elements of variable
 * i], not in what passel_gradient() gave, and is read until this has returned. Saves a copy in the
 * modes without rounds on one host; elsewhere they are copied. What passel_gradient() gave is void
 * after it. Errors: those of passel_push(). */
PASSEL_API passel_status passel_push_from(passel_job* job, const float* const* gradients,
                                          double timeout_seconds);

/* Waits until the push has its outcome: its round is complete (modes with rounds), the slowest
 * worker is near enough (ssp), the others have met for a change of the mode. `outcome` may be NULL.
 * Errors: PASSEL_DEADLINE_EXCEEDED, naming whom it waits for: the push stands, call it again;
 * PASSEL_FAILED_PRECONDITION without a push; PASSEL_CANCELLED; PASSEL_ABORTED; PASSEL_UNAVAILABLE.
 */
PASSEL_API passel_status passel_wait(passel_job* job, double timeout_seconds,
                                     passel_outcome* outcome);

/* From now on group g of the variables has rates[g], in place of the settings learning_rate and
 * weight_decay: for schedules, and for groups that differ. For the chief alone, between two steps;
 * `groups` is how many the variables have: one more than the highest. In force in every update that
 * begins after this has returned. In the modes with rounds a round has one set of rates for all of
 * its values, and the round of the chief's next push has these, but for mode replicas, where
 * others may have decided that round by then. They stay, whoever dies; checkpoints have them, and a
 * job that goes on from one has them after passel_initialize().
 * Errors: PASSEL_INVALID_ARGUMENT, and nothing is changed; PASSEL_FAILED_PRECONDITION on another
 * worker, before passel_initialize(), or while a push is not waited for; PASSEL_ABORTED;
 * PASSEL_UNAVAILABLE, after which the former ones or these are in force: call it again. */
PASSEL_API passel_status passel_set_rates(passel_job* job, const passel_rates* rates,
                                          size_t groups);

/* Shares data among the workers of the job, from where the job is: at its begin all of them, or
 * what is left after its checkpoint. All workers give the same; `epochs` may differ. A second call
 * is for other epochs: batches that are not done are given again. Before passel_next_batch(), after
 * passel_initialize(), and not while a push is not waited for.
 * Errors: PASSEL_INVALID_ARGUMENT, naming both, if the job, or the checkpoint that it goes on from,
 * shares other data; PASSEL_FAILED_PRECONDITION before passel_initialize(), or while a push is not
 * waited for; PASSEL_UNAVAILABLE, as passel_next_batch(). */
PASSEL_API passel_status passel_sample(passel_job* job, const passel_sampling* sampling);

/* The next batch of this worker: each example is in one batch of each epoch. It is done with the
 * push that follows, when that counts: applied, or too late for its round. So are all batches since
 * the push before, of which a worker holds eight: with more the first ones count as done. Those of
 * a worker that has died before go to its next life, or to others at the end of an epoch, and those
 * that were not done in a checkpoint are given first by who goes on from it: then an example comes
 * more than once. `count` is 0 when all epochs are given out or the job was stopped: leave soon,
 * since rounds wait for this worker until then. Before it says so in the modes hogwild and locked
 * it waits until the last batches of others are done, stall_limit at most for each of them: they
 * come back if their worker dies. Where ps/0 is on another host it is asked for each batch. Errors:
 * PASSEL_FAILED_PRECONDITION before passel_sample(), or while a push is not waited for;
 * PASSEL_ABORTED; PASSEL_UNAVAILABLE: ps/0 is on another host, and has been gone for ps_wait;
 * PASSEL_DEADLINE_EXCEEDED: passel_check_waits() has ended the wait. */
PASSEL_API passel_status passel_next_batch(passel_job* job, passel_batch* batch);

/* For a step without a push that takes long: in the modes with rounds others take a worker that is
 * silent beyond the setting stall_limit (ten minutes) for stopped, and kill it. */
PASSEL_API passel_status passel_say_alive(passel_job* job);

/* Shows a number of this worker under a name: the last value counts. Each worker has its own;
 * people see them in `passel ctl status` (with --json each worker's), and with the setting logs_dir
 * the chief writes them for TensorBoard (summary_secs, summary_steps): under the name the mean over
 * the workers that have it, and where there are several worker_0/NAME and so on. "loss" and
 * "accuracy" are also what passel calls so. Costs less than a microsecond. `name`: 1 to 63 bytes of
 * printable ASCII without spaces, at most 32 of them. `value` may be NaN. Errors:
 * PASSEL_INVALID_ARGUMENT; PASSEL_RESOURCE_EXHAUSTED: the 33rd name. */
PASSEL_API passel_status passel_metric(passel_job* job, const char* name, double value);

/* Updates applied to the job: one per gradient, or one per round. */
PASSEL_API passel_status passel_global_step(passel_job* job, int64_t* global_step);

/* The name of the mode in force, as "hogwild"; it stays valid. It changes in passel_initialize(),
 * passel_wait(), and where passel_save() and passel_next_batch() wait for others, only (passel ctl
 * set-mode, or the setting mode_schedule). */
PASSEL_API passel_status passel_mode(passel_job* job, const char** mode);

/* Asks every worker to leave after its step. Never undone. */
PASSEL_API passel_status passel_stop(passel_job* job);
/* *stopped is 1 if somebody has asked for that, else 0. */
PASSEL_API passel_status passel_stopped(passel_job* job, int32_t* stopped);

/* Saves a checkpoint now, and returns when it can be gone on from. For the chief alone, and between
 * two steps: what it has pulled and what it was lent is void. `global_step` gets the checkpoint's;
 * it may be NULL. Nothing is written if the newest one is of this step. In mode barrier the others
 * wait meanwhile; in the other modes they go on, unless checkpoint_consistent is set. Of a chief
 * that has a ps on another host ps/0 makes it. Errors: PASSEL_FAILED_PRECONDITION without the
 * setting checkpoint_dir, on another worker than the chief, or while a push is not waited for;
 * PASSEL_UNAVAILABLE and PASSEL_NOT_FOUND: ps/0 is on another host, and has been gone for ps_wait;
 * PASSEL_DEADLINE_EXCEEDED; PASSEL_RESOURCE_EXHAUSTED: no space; PASSEL_DIVERGED: a value is NaN or
 * infinite; PASSEL_INTERNAL and others of the disk. After each of these training may go on, and the
 * checkpoints of before are there. */
PASSEL_API passel_status passel_save(passel_job* job, double timeout_seconds, int64_t* global_step);

/* This worker is done: rounds no longer wait for it. A chief with the setting checkpoint_dir saves
 * the last checkpoint before; an error may be that of this. All that the job gave is void, and the
 * handle too, whatever is returned. A program that ends without it counts as a worker that died: it
 * may be started again, and goes on with the values of then. */
PASSEL_API passel_status passel_leave(passel_job* job);

/* A reader of a job. A handle stays valid memory for ever, as that of a job. */
typedef struct passel_reader passel_reader;

/* Of which step values are that were read. */
typedef struct passel_reading {
  size_t struct_size;
  int64_t global_step;      /* they have every update up to this one */
  int64_t last_global_step; /* and some up to this one */
  int32_t is_exact;         /* 1: exactly those of global_step */
} passel_reading;

/* What passel_read() copies. */
enum {
  PASSEL_READ_NOW = 0,     /* the values of now. In the modes with rounds those of one step, as a
                              rule; in the others updates under way may be half there */
  PASSEL_READ_ONE_STEP = 1 /* exactly those of one step, in any mode: the workers wait between two
                              steps while they are copied */
};

/* Attaches to the job of that name; NULL: to the only one of this user on this host. Waits until it
 * is there and has first values. A reader takes no part: nobody waits for it, and its end, be it by
 * kill, disturbs nobody. It needs no token, but the same user. Any number of them, also beside a
 * job of this process, and in a child of fork(), which cannot use one of its parent.
 * Errors: PASSEL_NOT_FOUND; PASSEL_INVALID_ARGUMENT: several jobs are there, and none was named;
 * PASSEL_DEADLINE_EXCEEDED: no values yet; PASSEL_PERMISSION_DENIED. *reader is NULL then. */
PASSEL_API passel_status passel_attach(const char* job_id, double timeout_seconds,
                                       passel_reader** reader);

/* How many variables the job has. One that is in parts, as `passel train` with several ps may have
 * them, counts with each of its parts. */
PASSEL_API passel_status passel_reader_count(passel_reader* reader, size_t* num_variables);
/* One of them, by its index in passel_open(). Name and shape are valid until passel_detach(). */
PASSEL_API passel_status passel_reader_variable(passel_reader* reader, size_t index,
                                                passel_variable* variable);

/* Copies all values, for passel_reader_values(); what that gave before is void. `how`:
 * PASSEL_READ_*; `reading` may be NULL. PASSEL_READ_ONE_STEP waits for the workers of the job: on a
 * thread that is one of them it waits for itself.
 * Errors: PASSEL_UNAVAILABLE or PASSEL_NOT_FOUND: the job has ended; PASSEL_FAILED_PRECONDITION: it
 * was begun anew with other variables, or its workers cannot meet; PASSEL_DEADLINE_EXCEEDED;
 * PASSEL_RESOURCE_EXHAUSTED. The copy of before stays valid then. */
PASSEL_API passel_status passel_read(passel_reader* reader, int32_t how, double timeout_seconds,
                                     passel_reading* reading);

/* The values of the last passel_read(), float[*elements], 64-byte aligned; valid until the next one
 * that succeeds. Private memory: who writes there changes nothing of the job. `elements` may be
 * NULL. Errors: PASSEL_FAILED_PRECONDITION before passel_read(). */
PASSEL_API passel_status passel_reader_values(passel_reader* reader, size_t variable,
                                              const float** values, size_t* elements);

/* Until the job has made `global_step` updates or more; *now, which may be NULL, is how many. The
 * job is asked every 10 ms at the latest.
 * Errors: PASSEL_DEADLINE_EXCEEDED, with the step of now; PASSEL_UNAVAILABLE: the job has ended. */
PASSEL_API passel_status passel_wait_version(passel_reader* reader, int64_t global_step,
                                             double timeout_seconds, int64_t* now);

/* The values are void, and the handle too. */
PASSEL_API passel_status passel_detach(passel_reader* reader);

#ifdef __cplusplus
}
#endif

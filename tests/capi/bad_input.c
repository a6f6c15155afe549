/* Every wrong use of passel.h that one process can make: the code, a part of the sentence, and that
 * the right call after it works. Exit codes: 0 all as it should be, 1 with a line for each that is
 * not. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capi/passel.h"
#include "capi_check.h"

static const int64_t kShape[9] = {2, 3, 1, 1, 1, 1, 1, 1, 1};

static passel_variable Variable(const char* name, size_t rank) {
  passel_variable variable;
  memset(&variable, 0, sizeof variable);
  variable.struct_size = sizeof variable;
  variable.name = name;
  variable.shape = kShape;
  variable.rank = rank;
  return variable;
}

static passel_status Open(const char* setting, passel_job** job) {
  const passel_variable variable = Variable("w", 2);
  passel_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.settings = &setting;
  options.num_settings = 1;
  return passel_open(&options, &variable, 1, job);
}

static void TryVariables(void) {
  passel_job* job = NULL;
  passel_variable v[2];
  v[0] = Variable("w", 2);
  v[1] = Variable("b", 1);
  BAD(passel_open(NULL, v, 2, NULL), PASSEL_INVALID_ARGUMENT, "where the job goes is NULL");
  BAD(passel_open(NULL, NULL, 1, &job), PASSEL_INVALID_ARGUMENT, "the array of variables is NULL");
  BAD(passel_open(NULL, v, 0, &job), PASSEL_INVALID_ARGUMENT, "1 to 4096 variables, not 0");
  BAD(passel_open(NULL, v, 5000, &job), PASSEL_INVALID_ARGUMENT, "1 to 4096 variables, not 5000");
  v[1].name = "w";
  BAD(passel_open(NULL, v, 2, &job), PASSEL_INVALID_ARGUMENT,
      "variables 0 and 1 are both named \"w\"");
  v[1].name = "";
  BAD(passel_open(NULL, v, 2, &job), PASSEL_INVALID_ARGUMENT,
      "the name of variable 1 has 1 to 127 bytes, not 0");
  v[1].name = NULL;
  BAD(passel_open(NULL, v, 2, &job), PASSEL_INVALID_ARGUMENT, "the name of a variable is NULL");
  v[1] = Variable("b", 9);
  BAD(passel_open(NULL, v, 2, &job), PASSEL_INVALID_ARGUMENT, "at most 8 dimensions");
  v[1] = Variable("b", 1);
  v[1].shape = NULL;
  BAD(passel_open(NULL, v, 2, &job), PASSEL_INVALID_ARGUMENT, "the shape of a variable is NULL");
  const int64_t empty[2] = {3, 0}, huge[3] = {INT64_C(1) << 40, INT64_C(1) << 40, 2};
  v[1].shape = empty;
  v[1].rank = 2;
  BAD(passel_open(NULL, v, 2, &job), PASSEL_INVALID_ARGUMENT,
      "variable \"b\" has the shape [3, 0], and every dimension is 1 or more");
  v[1].shape = huge;
  v[1].rank = 3;
  BAD(passel_open(NULL, v, 2, &job), PASSEL_INVALID_ARGUMENT, "b");
  v[1] = Variable("b", 1);
  v[0].struct_size = 0;
  BAD(passel_open(NULL, v, 2, &job), PASSEL_INVALID_ARGUMENT,
      "struct_size of passel_variable is 32 to 4096 bytes, not 0");
  v[0].struct_size = sizeof v[0];
  v[1].struct_size = 48;
  BAD(passel_open(NULL, v, 2, &job), PASSEL_INVALID_ARGUMENT, "struct_size of variable 1 is 48");
  TRUE(job == NULL);
}

/* Names that would be those of other tensors in a checkpoint. */
static void TryNames(void) {
  passel_job* job = NULL;
  const char* const settings[2] = {"checkpoint_dir=no-checkpoint-is-made", "optimizer=adam"};
  passel_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.settings = settings;
  options.num_settings = 2;
  passel_variable v[2];
  v[0] = Variable("w", 2);
  v[1] = Variable("global_step", 0);
  BAD(passel_open(&options, v, 2, &job), PASSEL_INVALID_ARGUMENT, "\"global_step\" has the name");
  v[1] = Variable("w/Adam_1", 2);
  BAD(passel_open(&options, v, 2, &job), PASSEL_INVALID_ARGUMENT, "a slot variable of \"w\"");
  TRUE(access("no-checkpoint-is-made", F_OK) != 0);
}

static void TrySettings(void) {
  passel_job* job = NULL;
  BAD(Open("mode=fast", &job), PASSEL_INVALID_ARGUMENT, "fast");
  BAD(Open("learning_rate=much", &job), PASSEL_INVALID_ARGUMENT,
      "learning_rate=much is not a value");
  BAD(Open("learning_rate=-1", &job), PASSEL_INVALID_ARGUMENT, "learning_rate");
  BAD(Open("batch_size=10", &job), PASSEL_INVALID_ARGUMENT, "batch_size means nothing");
  BAD(Open("no_such=1", &job), PASSEL_INVALID_ARGUMENT, "no_such is not known");
  BAD(Open("mode", &job), PASSEL_INVALID_ARGUMENT, "\"mode\" is not NAME=VALUE");
  BAD(Open("save_steps=5", &job), PASSEL_INVALID_ARGUMENT, " checkpoint_dir");
  BAD(Open("resume=/nowhere/model.ckpt-1", &job), PASSEL_INVALID_ARGUMENT, "no such checkpoint");
  BAD(Open("histogram_secs=1", &job), PASSEL_INVALID_ARGUMENT, "histogram_secs means nothing");
  BAD(Open("=1", &job), PASSEL_INVALID_ARGUMENT, "is not NAME=VALUE");
  BAD(Open(NULL, &job), PASSEL_INVALID_ARGUMENT, "a setting is NULL");
  BAD(Open("job_id=a b", &job), PASSEL_INVALID_ARGUMENT, "a b");
  BAD(Open("ps_hosts=localhost:2222", &job), PASSEL_INVALID_ARGUMENT, "`task_index`");
  const passel_variable variable = Variable("w", 2);
  const char* const twice[2] = {"mode=barrier", "mode=locked"};
  const char* const of_ps[4] = {"job_name=ps", "task_index=0", "ps_hosts=localhost:2222",
                                "worker_hosts=localhost:2223"};
  const char* const elsewhere[3] = {"task_index=0", "ps_hosts=192.0.2.1:2222",
                                    "worker_hosts=localhost:2223"};
  const char* const alone[5] = {"task_index=0", "ps_hosts=localhost:2222", "start_wait=0.2",
                                "worker_hosts=localhost:2223", "job_id=nobody-is-here"};
  passel_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.settings = twice;
  options.num_settings = 2;
  BAD(passel_open(&options, &variable, 1, &job), PASSEL_INVALID_ARGUMENT, "mode is given twice");
  options.settings = of_ps;
  options.num_settings = 4;
  BAD(passel_open(&options, &variable, 1, &job), PASSEL_INVALID_ARGUMENT, "ps/0 does not");
  options.settings = elsewhere;
  options.num_settings = 3;
  BAD(passel_open(&options, &variable, 1, &job), PASSEL_INVALID_ARGUMENT,
      "give each token_file FILE");
  options.settings = alone;
  options.num_settings = 5;
  BAD(passel_open(&options, &variable, 1, &job), PASSEL_DEADLINE_EXCEEDED,
      "ps/0 of job nobody-is-here did not start");
  options.settings = NULL;
  BAD(passel_open(&options, &variable, 1, &job), PASSEL_INVALID_ARGUMENT, "settings is NULL");
  options.struct_size = 8;
  BAD(passel_open(&options, &variable, 1, &job), PASSEL_INVALID_ARGUMENT,
      "struct_size of passel_options");
  struct {
    passel_options options;
    int64_t later;
  } newer;
  memset(&newer, 0, sizeof newer);
  newer.options.struct_size = sizeof newer;
  newer.later = 1;
  BAD(passel_open(&newer.options, &variable, 1, &job), PASSEL_INVALID_ARGUMENT,
      "a field that this library does not know");
  newer.later = 0;
  GOOD(passel_open(&newer.options, &variable, 1, &job));
  GOOD(passel_leave(job));
}

static void TryNull(void) {
  BAD(passel_describe(NULL, NULL), PASSEL_INVALID_ARGUMENT, "the job is NULL");
  BAD(passel_initialize(NULL, NULL, 1), PASSEL_INVALID_ARGUMENT, "the job is NULL");
  BAD(passel_pull(NULL, 0), PASSEL_INVALID_ARGUMENT, "the job is NULL");
  BAD(passel_values(NULL, 0, NULL, NULL), PASSEL_INVALID_ARGUMENT, "the job is NULL");
  BAD(passel_gradient(NULL, 0, NULL, NULL), PASSEL_INVALID_ARGUMENT, "the job is NULL");
  BAD(passel_push(NULL, 1), PASSEL_INVALID_ARGUMENT, "the job is NULL");
  BAD(passel_wait(NULL, 1, NULL), PASSEL_INVALID_ARGUMENT, "the job is NULL");
  BAD(passel_metric(NULL, "a", 1), PASSEL_INVALID_ARGUMENT, "the job is NULL");
  BAD(passel_say_alive(NULL), PASSEL_INVALID_ARGUMENT, "the job is NULL");
  BAD(passel_global_step(NULL, NULL), PASSEL_INVALID_ARGUMENT, "the job is NULL");
  BAD(passel_mode(NULL, NULL), PASSEL_INVALID_ARGUMENT, "the job is NULL");
  BAD(passel_stop(NULL), PASSEL_INVALID_ARGUMENT, "the job is NULL");
  BAD(passel_stopped(NULL, NULL), PASSEL_INVALID_ARGUMENT, "the job is NULL");
  BAD(passel_save(NULL, 1, NULL), PASSEL_INVALID_ARGUMENT, "the job is NULL");
  BAD(passel_leave(NULL), PASSEL_INVALID_ARGUMENT, "the job is NULL");
}

/* In a child by fork() the job is not to be used; the parent goes on. */
static void TryFork(passel_job* job) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    passel_job* other = NULL;
    failures = 0;
    BAD(passel_pull(job, PASSEL_PULL_AUTO), PASSEL_FAILED_PRECONDITION, "by fork()");
    BAD(passel_leave(job), PASSEL_FAILED_PRECONDITION, "by fork()");
    BAD(Open("mode=locked", &other), PASSEL_FAILED_PRECONDITION, "by fork()");
    fflush(stdout);
    _exit(failures == 0 ? 0 : 1);
  }
  int end = -1;
  TRUE(child > 0 && waitpid(child, &end, 0) == child && WIFEXITED(end) && WEXITSTATUS(end) == 0);
}

static void TryCalls(void) {
  passel_job *job = NULL, *other = NULL;
  const float* values = NULL;
  float* gradient = NULL;
  size_t elements = 0;
  GOOD(Open("mode=hogwild", &job));
  BAD(Open("mode=locked", &other), PASSEL_ALREADY_EXISTS, "in job job-");
  TRUE(other == NULL);
  passel_description me;
  memset(&me, 0, sizeof me);
  BAD(passel_describe(job, NULL), PASSEL_INVALID_ARGUMENT, "the description is NULL");
  BAD(passel_describe(job, &me), PASSEL_INVALID_ARGUMENT, "struct_size of passel_description");
  me.struct_size = sizeof me;
  GOOD(passel_describe(job, &me));
  TRUE(me.worker == 0 && me.workers == 1 && me.is_chief == 1 && me.is_alone == 1);

  BAD(passel_pull(job, PASSEL_PULL_AUTO), PASSEL_FAILED_PRECONDITION, "passel_initialize()");
  BAD(passel_gradient(job, 0, &gradient, NULL), PASSEL_FAILED_PRECONDITION, "passel_initialize()");
  BAD(passel_initialize(job, NULL, -1), PASSEL_INVALID_ARGUMENT, "timeout_seconds is 0 to");
  BAD(passel_initialize(job, NULL, NAN), PASSEL_INVALID_ARGUMENT, "timeout_seconds is 0 to");
  BAD(passel_initialize(job, NULL, 1e9), PASSEL_INVALID_ARGUMENT, "timeout_seconds is 0 to");
  const float bad_first[6] = {0, 1, 2, INFINITY, 4, 5}, first[6] = {0, 1, 2, 3, 4, 5};
  const float* first_values[1] = {bad_first};
  BAD(passel_initialize(job, first_values, 1), PASSEL_DIVERGED,
      "the first value 3 of variable \"w\" is inf");
  first_values[0] = first;
  BAD(passel_save(job, 1, NULL), PASSEL_FAILED_PRECONDITION, "passel_initialize()");
  GOOD(passel_initialize(job, first_values, 1));
  BAD(passel_save(job, 1, NULL), PASSEL_FAILED_PRECONDITION, "the setting checkpoint_dir");
  BAD(passel_save(job, -1, NULL), PASSEL_INVALID_ARGUMENT, "timeout_seconds is 0 to");

  BAD(passel_values(job, 0, &values, NULL), PASSEL_FAILED_PRECONDITION, "nothing was pulled");
  BAD(passel_push(job, 1), PASSEL_FAILED_PRECONDITION, "nothing was pulled");
  BAD(passel_wait(job, 1, NULL), PASSEL_FAILED_PRECONDITION, "nothing was pushed");
  BAD(passel_pull(job, 7), PASSEL_INVALID_ARGUMENT, "not 7");
  GOOD(passel_pull(job, PASSEL_PULL_COPY));
  BAD(passel_values(job, 1, &values, NULL), PASSEL_INVALID_ARGUMENT, "there is no variable 1");
  BAD(passel_values(job, 0, NULL, NULL), PASSEL_INVALID_ARGUMENT, "is NULL");
  GOOD(passel_values(job, 0, &values, &elements));
  TRUE(elements == 6 && values[5] == 5.0F && (uintptr_t)values % 64 == 0);
  BAD(passel_push(job, 1), PASSEL_FAILED_PRECONDITION, "no gradient was asked for");
  BAD(passel_gradient(job, (size_t)-1, &gradient, NULL), PASSEL_INVALID_ARGUMENT,
      "there is no variable");
  BAD(passel_gradient(job, 0, NULL, NULL), PASSEL_INVALID_ARGUMENT, "is NULL");
  GOOD(passel_gradient(job, 0, &gradient, &elements));
  TRUE(elements == 6 && (uintptr_t)gradient % 64 == 0);
  for (size_t i = 0; i < elements; ++i) gradient[i] = 1.0F;
  gradient[4] = NAN;
  BAD(passel_push(job, 1), PASSEL_DIVERGED, "the gradient of variable \"w\"");
  gradient[4] = 1.0F;
  TryFork(job);
  GOOD(passel_push(job, 1));
  BAD(passel_push(job, 1), PASSEL_FAILED_PRECONDITION, "call passel_wait()");
  BAD(passel_save(job, 1, NULL), PASSEL_FAILED_PRECONDITION, "call passel_wait()");
  BAD(passel_pull(job, PASSEL_PULL_AUTO), PASSEL_FAILED_PRECONDITION, "call passel_wait()");
  BAD(passel_gradient(job, 0, &gradient, NULL), PASSEL_FAILED_PRECONDITION, "call passel_wait()");
  passel_outcome outcome;
  memset(&outcome, 0, sizeof outcome);
  BAD(passel_wait(job, 1, &outcome), PASSEL_INVALID_ARGUMENT, "struct_size of passel_outcome");
  outcome.struct_size = sizeof outcome;
  BAD(passel_wait(job, -0.5, &outcome), PASSEL_INVALID_ARGUMENT, "timeout_seconds is 0 to");
  GOOD(passel_wait(job, 1, &outcome));
  TRUE(outcome.applied == 1 && outcome.gradients == 1 && outcome.global_step == 1);
  GOOD(passel_say_alive(job));
  char name[80];
  memset(name, 'a', sizeof name);
  name[64] = '\0';
  BAD(passel_metric(job, name, 1), PASSEL_INVALID_ARGUMENT, "1 to 63 bytes, not 64");
  name[63] = '\0';
  GOOD(passel_metric(job, name, 1));
  BAD(passel_metric(job, "", 1), PASSEL_INVALID_ARGUMENT, "1 to 63 bytes, not 0");
  BAD(passel_metric(job, "a b", 1), PASSEL_INVALID_ARGUMENT, "without spaces");
  BAD(passel_metric(job, NULL, 1), PASSEL_INVALID_ARGUMENT, "the name of the metric is NULL");
  for (int i = 1; i < 32; ++i) {
    snprintf(name, sizeof name, "m%d", i);
    GOOD(passel_metric(job, name, NAN));
  }
  GOOD(passel_metric(job, "m31", 2));
  BAD(passel_metric(job, "m32", 2), PASSEL_RESOURCE_EXHAUSTED, "at most 32 metrics, and \"m32\"");

  int32_t stopped = -1;
  GOOD(passel_stopped(job, &stopped));
  TRUE(stopped == 0);
  GOOD(passel_stop(job));
  GOOD(passel_stopped(job, &stopped));
  TRUE(stopped == 1);
  BAD(passel_pull(job, PASSEL_PULL_AUTO), PASSEL_CANCELLED, "stopped");
  GOOD(passel_leave(job));

  const char* mode = NULL;
  BAD(passel_pull(job, PASSEL_PULL_AUTO), PASSEL_FAILED_PRECONDITION, "has left the job");
  BAD(passel_mode(job, &mode), PASSEL_FAILED_PRECONDITION, "has left the job");
  BAD(passel_leave(job), PASSEL_FAILED_PRECONDITION, "has left the job");
  /* Another job, after the first. */
  GOOD(Open("mode=barrier", &other));
  GOOD(passel_mode(other, &mode));
  TRUE(other != job);
  BAD(passel_pull(job, PASSEL_PULL_AUTO), PASSEL_FAILED_PRECONDITION, "has left the job");
  GOOD(passel_leave(other));
}

static void TryBatches(void) {
  passel_job* job = NULL;
  passel_sampling all = {sizeof all, 10, 4, 2, 1, 0};
  passel_batch batch;
  memset(&batch, 0, sizeof batch);
  batch.struct_size = sizeof batch;
  BAD(passel_sample(NULL, &all), PASSEL_INVALID_ARGUMENT, "the job is NULL");
  GOOD(Open("mode=hogwild", &job));
  BAD(passel_sample(job, &all), PASSEL_FAILED_PRECONDITION, "call passel_initialize() before");
  GOOD(passel_initialize(job, NULL, 1));
  BAD(passel_next_batch(job, &batch), PASSEL_FAILED_PRECONDITION, "call passel_sample() before");
  BAD(passel_sample(job, NULL), PASSEL_INVALID_ARGUMENT, "description of the data is NULL");
  passel_sampling bad = all;
  bad.struct_size = 8;
  BAD(passel_sample(job, &bad), PASSEL_INVALID_ARGUMENT, "struct_size of passel_sampling");
  bad = all;
  bad.examples = 0;
  BAD(passel_sample(job, &bad), PASSEL_INVALID_ARGUMENT, "examples of a sampler is 1 to 68719476736");
  bad.examples = 10;
  bad.batch_size = -1;
  BAD(passel_sample(job, &bad), PASSEL_INVALID_ARGUMENT, "1 to 16777216, not -1");
  bad = all;
  bad.epochs = -1;
  BAD(passel_sample(job, &bad), PASSEL_INVALID_ARGUMENT, "epochs of a sampler is 0 to");
  bad = all;
  bad.seed = INT64_MAX;
  BAD(passel_sample(job, &bad), PASSEL_INVALID_ARGUMENT, "seed of a sampler is 0 to");
  GOOD(passel_sample(job, &all));
  bad = all;
  bad.seed = 2;
  BAD(passel_sample(job, &bad), PASSEL_INVALID_ARGUMENT,
      "shuffled with seed 2, and the job 10 examples in batches of 4, shuffled with seed 1");
  BAD(passel_next_batch(job, NULL), PASSEL_INVALID_ARGUMENT, "where the batch goes is NULL");
  batch.struct_size = 7;
  BAD(passel_next_batch(job, &batch), PASSEL_INVALID_ARGUMENT, "struct_size of passel_batch");
  batch.struct_size = sizeof batch;
  int64_t sum = 0;
  for (int i = 0; i < 6; ++i) {
    GOOD(passel_next_batch(job, &batch));
    TRUE(batch.count == (i % 3 == 2 ? 2 : 4) && batch.epoch == i / 3);
    for (size_t k = 0; k < batch.count; ++k) sum += batch.examples[k];
    float* gradient = NULL;
    GOOD(passel_pull(job, PASSEL_PULL_AUTO));
    GOOD(passel_gradient(job, 0, &gradient, NULL));
    memset(gradient, 0, 6 * sizeof *gradient);
    GOOD(passel_push(job, 1));
    BAD(passel_next_batch(job, &batch), PASSEL_FAILED_PRECONDITION, "passel_wait() before");
    BAD(passel_sample(job, &all), PASSEL_FAILED_PRECONDITION, "passel_wait() before");
    GOOD(passel_wait(job, 1, NULL));
  }
  TRUE(sum == 2 * 45);
  GOOD(passel_next_batch(job, &batch));
  TRUE(batch.count == 0);
  GOOD(passel_leave(job));
  BAD(passel_next_batch(job, &batch), PASSEL_FAILED_PRECONDITION, "has left the job");
}

static void TryReaders(void) {
  passel_reader *reader = NULL, *other = NULL;
  passel_job* job = NULL;
  const float* values = NULL;
  size_t count = 0;
  BAD(passel_attach("a", 1, NULL), PASSEL_INVALID_ARGUMENT, "where the reader goes is NULL");
  BAD(passel_attach("nobody-is-here", 0, &reader), PASSEL_NOT_FOUND, "no job nobody-is-here");
  BAD(passel_attach("a b", 1, &reader), PASSEL_INVALID_ARGUMENT, "a b");
  BAD(passel_attach("a", -1, &reader), PASSEL_INVALID_ARGUMENT, "timeout_seconds is 0 to");
  BAD(passel_reader_count(NULL, &count), PASSEL_INVALID_ARGUMENT, "the reader is NULL");
  BAD(passel_read(NULL, 0, 1, NULL), PASSEL_INVALID_ARGUMENT, "the reader is NULL");
  BAD(passel_detach(NULL), PASSEL_INVALID_ARGUMENT, "the reader is NULL");
  /* Of the job of this process. */
  GOOD(Open("mode=hogwild", &job));
  passel_description me;
  memset(&me, 0, sizeof me);
  me.struct_size = sizeof me;
  GOOD(passel_describe(job, &me));
  BAD(passel_attach(me.job_id, 0.1, &reader), PASSEL_DEADLINE_EXCEEDED, "has no values yet");
  TRUE(reader == NULL);
  const float first[6] = {0, 1, 2, 3, 4, 5};
  const float* const first_values[1] = {first};
  GOOD(passel_initialize(job, first_values, 1));
  GOOD(passel_attach(me.job_id, 5, &reader));
  GOOD(passel_attach(me.job_id, 5, &other));
  passel_variable variable;
  memset(&variable, 0, sizeof variable);
  BAD(passel_reader_variable(reader, 0, &variable), PASSEL_INVALID_ARGUMENT, "struct_size");
  variable.struct_size = sizeof variable;
  BAD(passel_reader_variable(reader, 1, &variable), PASSEL_INVALID_ARGUMENT, "no variable 1");
  BAD(passel_reader_variable(reader, 0, NULL), PASSEL_INVALID_ARGUMENT, "is NULL");
  GOOD(passel_reader_variable(reader, 0, &variable));
  TRUE(strcmp(variable.name, "w") == 0 && variable.rank == 2 && variable.shape[1] == 3);
  BAD(passel_reader_values(reader, 0, &values, NULL), PASSEL_FAILED_PRECONDITION,
      "nothing was read");
  BAD(passel_read(reader, 2, 1, NULL), PASSEL_INVALID_ARGUMENT, "not 2");
  passel_reading reading;
  memset(&reading, 0, sizeof reading);
  BAD(passel_read(reader, 0, 1, &reading), PASSEL_INVALID_ARGUMENT, "struct_size");
  reading.struct_size = sizeof reading;
  GOOD(passel_read(reader, PASSEL_READ_NOW, 5, &reading));
  TRUE(reading.global_step == 0 && reading.last_global_step == 0);
  BAD(passel_reader_values(reader, 1, &values, NULL), PASSEL_INVALID_ARGUMENT, "no variable 1");
  GOOD(passel_reader_values(reader, 0, &values, &count));
  TRUE(count == 6 && values[4] == 4.0F && (uintptr_t)values % 64 == 0);
  BAD(passel_wait_version(reader, 1, 0.1, NULL), PASSEL_DEADLINE_EXCEEDED, "at global step 0");
  GOOD(passel_leave(job));
  TRUE(values[5] == 5.0F);
  BAD(passel_wait_version(reader, 1, 5, NULL), PASSEL_UNAVAILABLE, "has ended");
  GOOD(passel_detach(reader));
  BAD(passel_reader_count(reader, &count), PASSEL_FAILED_PRECONDITION, "is detached");
  GOOD(passel_reader_count(other, &count));
  GOOD(passel_detach(other));
}

int main(void) {
  TRUE(passel_abi_version() == PASSEL_ABI_VERSION);
  TRUE(*passel_error() == '\0');
  TryNull();
  TryVariables();
  TrySettings();
  TryNames();
  TryCalls();
  TryBatches();
  TryReaders();
  printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}

/* What the optimizer keeps, read and given, and what is refused of it. Exit codes: 0 all as it
 * should be, 1 with a line for each that is not. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "capi/passel.h"
#include "capi_check.h"

static const int64_t kShape[1] = {20};
static const float kOnes[20] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

static passel_status Open(const char* optimizer, passel_job** job) {
  const char* const settings[3] = {optimizer, "learning_rate=1", "mode=barrier"};
  passel_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.settings = settings;
  options.num_settings = 3;
  passel_variable v[2];
  memset(v, 0, sizeof v);
  for (int i = 0; i < 2; ++i) {
    v[i].struct_size = sizeof v[i];
    v[i].name = i == 0 ? "w" : "b";
    v[i].shape = kShape;
    v[i].rank = 1;
  }
  return passel_open(&options, v, 2, job);
}

static passel_optimizer_state Empty(void) {
  passel_optimizer_state state;
  memset(&state, 0, sizeof state);
  state.struct_size = sizeof state;
  return state;
}

static passel_first_values First(void) {
  passel_first_values first;
  memset(&first, 0, sizeof first);
  first.struct_size = sizeof first;
  return first;
}

static void Push(passel_job* job) {
  GOOD(passel_pull(job, PASSEL_PULL_AUTO));
  for (size_t v = 0; v < 2; ++v) {
    float* gradient = NULL;
    GOOD(passel_gradient(job, v, &gradient, NULL));
    memcpy(gradient, kOnes, sizeof kOnes);
  }
  GOOD(passel_push(job, 10));
}

int main(void) {
  passel_job* job = NULL;
  passel_optimizer_state state = Empty();
  BAD(passel_read_optimizer_state(NULL, &state), PASSEL_INVALID_ARGUMENT, "the job is NULL");
  BAD(passel_initialize_with(NULL, NULL, &state, 1), PASSEL_INVALID_ARGUMENT, "the job is NULL");
  passel_first_values first = First(), second = First(), again = First();
  BAD(passel_beginning(NULL, &first), PASSEL_INVALID_ARGUMENT, "the job is NULL");
  GOOD(Open("optimizer=adagrad", &job));
  BAD(passel_beginning(job, &first), PASSEL_FAILED_PRECONDITION,
      "call passel_initialize() before passel_beginning()");
  BAD(passel_read_optimizer_state(job, &state), PASSEL_FAILED_PRECONDITION,
      "call passel_initialize() before passel_read_optimizer_state()");

  BAD(passel_initialize_with(job, NULL, NULL, 1), PASSEL_INVALID_ARGUMENT,
      "the state of the optimizer is NULL");
  state.struct_size = 8;
  BAD(passel_initialize_with(job, NULL, &state, 1), PASSEL_INVALID_ARGUMENT,
      "struct_size of passel_optimizer_state is 40 to 4096 bytes, not 8");
  state = Empty();
  BAD(passel_initialize_with(job, NULL, &state, 1), PASSEL_INVALID_ARGUMENT,
      "the state has 0 slot variables of each variable, and adagrad keeps 1 (Adagrad): give those");
  const char* name = "Momentum";
  state.num_slots = 1;
  state.names = &name;
  BAD(passel_initialize_with(job, NULL, &state, 1), PASSEL_INVALID_ARGUMENT,
      "slot variable 0 of the state is \"Momentum\", and of adagrad it is \"Adagrad\"");
  state.names = NULL;
  state.step = -1;
  BAD(passel_initialize_with(job, NULL, &state, 1), PASSEL_INVALID_ARGUMENT,
      "the step of the optimizer is 0 to 1099511627775, not -1");
  float bad[20] = {0};
  bad[7] = (float)NAN;
  const float* slots[2] = {NULL, bad};
  state.step = 8;
  state.slots = slots;
  BAD(passel_initialize_with(job, NULL, &state, 1), PASSEL_DIVERGED,
      "the first value 7 of slot variable \"b/Adagrad\" is nan, so nothing was written");

  /* Of "w" the first values, 0.1; of "b" ones. */
  slots[1] = kOnes;
  name = "Adagrad";
  state.names = &name;
  GOOD(passel_initialize_with(job, NULL, &state, 10));
  BAD(passel_beginning(job, NULL), PASSEL_INVALID_ARGUMENT, "where the first values go is NULL");
  first.struct_size = 8;
  BAD(passel_beginning(job, &first), PASSEL_INVALID_ARGUMENT,
      "struct_size of passel_first_values is 32 to 4096 bytes, not 8");
  first = First();
  GOOD(passel_beginning(job, &first));
  TRUE(first.global_step == 8 && first.is_own == 1 && first.is_of_checkpoint == 0);
  int64_t step = 0;
  GOOD(passel_global_step(job, &step));
  TRUE(step == 8);
  passel_optimizer_state read = Empty();
  read.struct_size = 8;
  BAD(passel_read_optimizer_state(job, &read), PASSEL_INVALID_ARGUMENT, "struct_size");
  BAD(passel_read_optimizer_state(job, NULL), PASSEL_INVALID_ARGUMENT,
      "where the state goes is NULL");
  read = Empty();
  GOOD(passel_read_optimizer_state(job, &read));
  TRUE(read.step == 8 && read.num_slots == 1 && strcmp(read.names[0], "Adagrad") == 0);
  TRUE(read.slots[0][19] == 0.1F && read.slots[1][19] == 1.0F);
  TRUE((uintptr_t)read.slots[0] % 64 == 0 && (uintptr_t)read.slots[1] % 64 == 0);
  Push(job);
  BAD(passel_read_optimizer_state(job, &read), PASSEL_FAILED_PRECONDITION,
      "call passel_wait() before passel_read_optimizer_state()");
  GOOD(passel_wait(job, 10, NULL));
  TRUE(read.step == 8 && read.slots[1][0] == 1.0F); /* a copy */
  GOOD(passel_read_optimizer_state(job, &read));
  GOOD(passel_beginning(job, &again));
  TRUE(first.number != 0 && again.number == first.number && again.global_step == 8);
  TRUE(read.step == 9 && read.slots[0][0] == 1.1F && read.slots[1][0] == 2.0F);
  GOOD(passel_leave(job));
  BAD(passel_read_optimizer_state(job, &read), PASSEL_FAILED_PRECONDITION, "has left the job");

  GOOD(Open("optimizer=sgd", &job));
  state = Empty();
  state.step = 3;
  GOOD(passel_initialize_with(job, NULL, &state, 10));
  GOOD(passel_beginning(job, &second));
  TRUE(second.number != first.number && second.global_step == 3);
  const float* from[2] = {kOnes, NULL};
  BAD(passel_push_from(job, from, 10), PASSEL_INVALID_ARGUMENT, "a gradient is NULL");
  BAD(passel_push_from(job, NULL, 10), PASSEL_INVALID_ARGUMENT, "the array of gradients is NULL");
  from[1] = bad;
  BAD(passel_push_from(job, from, 10), PASSEL_FAILED_PRECONDITION, "nothing was pulled");
  GOOD(passel_pull(job, PASSEL_PULL_AUTO));
  BAD(passel_push_from(job, from, 10), PASSEL_DIVERGED, "the gradient of variable \"b\" has a NaN");
  from[1] = kOnes;
  GOOD(passel_push_from(job, from, 10));
  GOOD(passel_wait(job, 10, NULL));
  GOOD(passel_read_optimizer_state(job, &read));
  TRUE(read.step == 4 && read.num_slots == 0);
  GOOD(passel_leave(job));
  printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}

/* A job of two workers in mode barrier, whose chief may be on another host than ps/0: it begins
 * with the state of an optimizer, and sets other rates before each of its steps. Exit codes: 0 all
 * as it should be, 1 with a line for each that is not. */
#include <stdio.h>
#include <string.h>

#include "capi/passel.h"
#include "capi_check.h"

enum { kElements = 3000, kSteps = 6, kFirstStep = 5 };

int main(void) {
  static float moments[kElements];
  const int64_t shape[1] = {kElements};
  passel_variable v[2];
  memset(v, 0, sizeof v);
  for (int i = 0; i < 2; ++i) {
    v[i].struct_size = sizeof v[i];
    v[i].name = i == 0 ? "w" : "b";
    v[i].shape = shape;
    v[i].rank = 1;
    v[i].group = i;
  }
  const char* const settings[4] = {"optimizer=momentum", "momentum=0.5", "learning_rate=64",
                                   "mode=barrier"};
  passel_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.settings = settings;
  options.num_settings = 4;
  passel_job* job = NULL;
  GOOD(passel_open(&options, v, 2, &job));
  if (job == NULL) return 1;
  passel_description me;
  memset(&me, 0, sizeof me);
  me.struct_size = sizeof me;
  GOOD(passel_describe(job, &me));

  for (int i = 0; i < kElements; ++i) moments[i] = 2;
  const float* const slots[2] = {moments, moments};
  passel_optimizer_state state;
  memset(&state, 0, sizeof state);
  state.struct_size = sizeof state;
  state.step = kFirstStep;
  state.num_slots = 1;
  state.slots = slots;
  GOOD(passel_initialize_with(job, NULL, &state, 30));
  int64_t step = 0;
  GOOD(passel_global_step(job, &step));
  TRUE(step == kFirstStep);
  passel_first_values first;
  memset(&first, 0, sizeof first);
  first.struct_size = sizeof first;
  GOOD(passel_beginning(job, &first));
  TRUE(first.global_step == kFirstStep);
  printf("beginning %llu\n", (unsigned long long)first.number);

  /* The moment stays 2 with gradients of 1. */
  float expected[2] = {0, 0};
  for (int number = 0; number < kSteps; ++number) {
    passel_rates rates[2];
    memset(rates, 0, sizeof rates);
    for (int g = 0; g < 2; ++g) {
      rates[g].struct_size = sizeof rates[g];
      rates[g].learning_rate = (double)(number + 1) * (g + 1);
      expected[g] -= 2 * (float)rates[g].learning_rate;
    }
    if (me.is_chief) {
      GOOD(passel_set_rates(job, rates, 2));
    } else {
      BAD(passel_set_rates(job, rates, 2), PASSEL_FAILED_PRECONDITION, "only worker 0, the chief");
    }
    GOOD(passel_pull(job, PASSEL_PULL_AUTO));
    for (size_t i = 0; i < 2; ++i) {
      float* gradient = NULL;
      GOOD(passel_gradient(job, i, &gradient, NULL));
      for (int k = 0; gradient != NULL && k < kElements; ++k) gradient[k] = 1;
    }
    GOOD(passel_push(job, 30));
    GOOD(passel_wait(job, 30, NULL));
    GOOD(passel_pull(job, PASSEL_PULL_AUTO));
    for (size_t i = 0; i < 2; ++i) {
      const float* values = NULL;
      GOOD(passel_values(job, i, &values, NULL));
      for (int k = 0; values != NULL && k < kElements; ++k) TRUE(values[k] == expected[i]);
    }
    if (failures > 0) break;
  }

  /* The chief is the one that is elsewhere, if anyone is. */
  memset(&state, 0, sizeof state);
  state.struct_size = sizeof state;
  const passel_status read = passel_read_optimizer_state(job, &state);
  if (read == PASSEL_FAILED_PRECONDITION) {
    printf("refused: %s\n", passel_error());
  } else {
    TRUE(read == PASSEL_OK && state.step == kFirstStep + kSteps && state.num_slots == 1);
    for (int k = 0; read == PASSEL_OK && k < kElements; ++k) {
      TRUE(state.slots[0][k] == 2 && state.slots[1][k] == 2);
    }
    printf("read: %s of step %d\n", state.names[0], (int)state.step);
  }
  fflush(stdout);
  GOOD(passel_leave(job));
  printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}

/* What a step costs through the C interface, for bench/python_step.py.
 *
 * usage: capi_step VARIABLES FLOATS STEPS [auto]
 * Prints the nanoseconds of a step: pull (a view, or with "auto" a copy), values and gradient of
 * each variable, push, wait. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "capi/passel.h"

static double Now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return 1e9 * (double)now.tv_sec + (double)now.tv_nsec;
}

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) return 2;
  const int32_t how = argc == 5 ? PASSEL_PULL_AUTO : PASSEL_PULL_VIEW;
  const size_t count = (size_t)atol(argv[1]);
  const int64_t shape[1] = {atol(argv[2])};
  const long steps = atol(argv[3]);
  passel_variable* const variables = calloc(count, sizeof *variables);
  char* const names = malloc(count * 16);
  if (variables == NULL || names == NULL) return 2;
  for (size_t i = 0; i < count; ++i) {
    snprintf(names + i * 16, 16, "v%u", (unsigned)i);
    variables[i] = (passel_variable){sizeof *variables, names + i * 16, shape, 1};
  }
  const char* const settings[] = {"optimizer=sgd", "mode=hogwild"};
  const passel_options options = {sizeof options, settings, 2};
  passel_job* job = NULL;
  if (passel_open(&options, variables, count, &job) != PASSEL_OK ||
      passel_initialize(job, NULL, 60) != PASSEL_OK) {
    fprintf(stderr, "%s\n", passel_error());
    return 1;
  }
  passel_status status = PASSEL_OK;
  double begin = 0;
  for (long step = -steps / 10; step < steps && status == PASSEL_OK; ++step) {
    if (step == 0) begin = Now();
    status = passel_pull(job, how);
    for (size_t i = 0; i < count && status == PASSEL_OK; ++i) {
      const float* values = NULL;
      float* gradient = NULL;
      status = passel_values(job, i, &values, NULL);
      if (status == PASSEL_OK) status = passel_gradient(job, i, &gradient, NULL);
      if (step < 0 && status == PASSEL_OK) {
        for (int64_t k = 0; k < shape[0]; ++k) gradient[k] = 0;
      }
    }
    if (status == PASSEL_OK) status = passel_push(job, 60);
    if (status == PASSEL_OK) status = passel_wait(job, 60, NULL);
  }
  if (status != PASSEL_OK) {
    fprintf(stderr, "%s\n", passel_error());
    return 1;
  }
  printf("%.0f\n", (Now() - begin) / (double)steps);
  passel_leave(job);
  free(variables);
  free(names);
  return 0;
}

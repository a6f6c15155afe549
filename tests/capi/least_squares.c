/* Fits y = X w + b by least squares with its own model and loop.
 *
 * usage: least_squares STEPS FEATURES OUT [NAME=VALUE ...]
 * Each of the workers takes the rows i with i % workers == its index. Writes its last values, the
 * global step and the mode to OUT. PATIENCE: seconds for each wait. SAVE_EVERY: the chief saves a
 * checkpoint after so many steps of its own, and writes its step to standard output. FAIL_AFTER:
 * worker 1 stops the job after so many steps, leaves it, and ends with 7. LOADER: a file; each
 * worker has a child by fork() that lives as long as that. Exit codes: 0 done or stopped, 2 an
 * error that it says. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "capi/passel.h"

enum { kRows = 64, kMostFeatures = 8 };

static passel_job* job;
static double patience = 60; /* seconds, for each wait */

static void Check(passel_status status, const char* what) {
  if (status == PASSEL_OK) return;
  fprintf(stderr, "%s: %d: %s\n", what, (int)status, passel_error());
  exit(2);
}

/* The same numbers as in capi_test.cc. */
static float Input(int row, int feature) {
  return (float)((row * 7 + feature * 13) % 11) / 5.5F - 1.0F;
}
static float Target(int row, int features) {
  float sum = 0.25F;
  for (int f = 0; f < features; ++f) sum += Input(row, f) * (0.5F * (float)f - 1.0F);
  return sum;
}

/* dL/dw of the mean of (error^2)/2 over the rows of this worker. */
static void Gradient(int features, int worker, int workers) {
  const float *w = NULL, *b = NULL;
  float *gw = NULL, *gb = NULL;
  Check(passel_values(job, 0, &w, NULL), "passel_values");
  Check(passel_values(job, 1, &b, NULL), "passel_values");
  Check(passel_gradient(job, 0, &gw, NULL), "passel_gradient");
  Check(passel_gradient(job, 1, &gb, NULL), "passel_gradient");
  double sum_w[kMostFeatures] = {0}, sum_b = 0;
  int rows = 0;
  for (int row = worker; row < kRows; row += workers, ++rows) {
    double error = *b - Target(row, features);
    for (int f = 0; f < features; ++f) error += (double)w[f] * Input(row, f);
    for (int f = 0; f < features; ++f) sum_w[f] += error * Input(row, f);
    sum_b += error;
  }
  for (int f = 0; f < features; ++f) gw[f] = (float)(sum_w[f] / rows);
  *gb = (float)(sum_b / rows);
}

int main(int argc, char** argv) {
  if (argc < 4) {
    fprintf(stderr, "usage: least_squares STEPS FEATURES OUT [NAME=VALUE ...]\n");
    return 2;
  }
  if (getenv("PATIENCE") != NULL) patience = atof(getenv("PATIENCE"));
  const long save_every = getenv("SAVE_EVERY") == NULL ? 0 : atol(getenv("SAVE_EVERY"));
  const long fail_after = getenv("FAIL_AFTER") == NULL ? 0 : atol(getenv("FAIL_AFTER"));
  const char* const loss = getenv("LOSS");
  const long steps = atol(argv[1]);
  const int features = atoi(argv[2]);
  const int64_t shape[1] = {features};
  passel_variable variables[2];
  memset(variables, 0, sizeof variables);
  for (int i = 0; i < 2; ++i) variables[i].struct_size = sizeof variables[i];
  variables[0].name = "w";
  variables[0].shape = shape;
  variables[0].rank = 1;
  variables[1].name = "b";
  passel_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.settings = (const char* const*)(argv + 4);
  options.num_settings = (size_t)(argc - 4);
  Check(passel_open(&options, variables, 2, &job), "passel_open");
  passel_description me;
  memset(&me, 0, sizeof me);
  me.struct_size = sizeof me;
  Check(passel_describe(job, &me), "passel_describe");

  const float first[kMostFeatures] = {0.5F, 0.5F, 0.5F, 0.5F, 0.5F, 0.5F, 0.5F, 0.5F};
  const float* const values[2] = {first, NULL};
  Check(passel_initialize(job, values, patience), "passel_initialize");
  const char* const loader = getenv("LOADER");
  if (loader != NULL && fork() == 0) {
    const struct timespec pause = {0, 10000000};
    while (access(loader, F_OK) == 0) nanosleep(&pause, NULL);
    _exit(0);
  }
  passel_status status = PASSEL_OK;
  for (long step = 0; step < steps && status == PASSEL_OK; ++step) {
    status = passel_pull(job, PASSEL_PULL_AUTO);
    if (status != PASSEL_OK) break;
    Gradient(features, me.worker, me.workers);
    status = passel_push(job, patience);
    if (status == PASSEL_OK) status = passel_wait(job, patience, NULL);
    if (status == PASSEL_OK) Check(passel_metric(job, "worker", me.worker), "passel_metric");
    if (status == PASSEL_OK) Check(passel_metric(job, "step", (double)step), "passel_metric");
    if (status == PASSEL_OK && loss != NULL) Check(passel_metric(job, "loss", atof(loss)), "loss");
    if (fail_after > 0 && me.worker == 1 && step + 1 == fail_after) {
      Check(passel_stop(job), "passel_stop");
      Check(passel_leave(job), "passel_leave");
      return 7;
    }
    if (status != PASSEL_OK || !me.is_chief || save_every == 0) continue;
    if ((step + 1) % save_every != 0) continue;
    int64_t saved = -1;
    Check(passel_save(job, patience, &saved), "passel_save");
    printf("saved %lld\n", (long long)saved);
  }
  if (status != PASSEL_CANCELLED) Check(status, "a step");

  FILE* const out = fopen(argv[3], "w");
  if (out == NULL) {
    fprintf(stderr, "%s: %s\n", argv[3], strerror(errno));
    return 2;
  }
  if (status == PASSEL_OK) {
    const float* w = NULL;
    Check(passel_pull(job, PASSEL_PULL_AUTO), "the last passel_pull");
    for (size_t id = 0; id < 2; ++id) {
      size_t elements = 0;
      Check(passel_values(job, id, &w, &elements), "passel_values");
      for (size_t i = 0; i < elements; ++i) fprintf(out, "%.9g ", (double)w[i]);
    }
  }
  int64_t global_step = 0;
  const char* mode = NULL;
  Check(passel_global_step(job, &global_step), "passel_global_step");
  Check(passel_mode(job, &mode), "passel_mode");
  fprintf(out, "%lld %s\n", (long long)global_step, mode);
  if (fclose(out) != 0) return 2;
  Check(passel_leave(job), "passel_leave");
  return 0;
}

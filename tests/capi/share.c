/* Takes its batches of epochs that the workers share, and counts in the values what was applied.
 *
 * usage: share EXAMPLES BATCH EPOCHS GATE OUT [NAME=VALUE ...]
 * With its fifth batch it says "waits" and does so until there is a file GATE. Writes to OUT how often it was
 * given each example, and then each value, which is how often its example was applied: let
 * learning_rate be 0.1. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "capi/passel.h"

enum { kMost = 1000, kPerRate = 10 };

static void Check(passel_status status, const char* what) {
  if (status == PASSEL_OK) return;
  fprintf(stderr, "%s: %d: %s\n", what, (int)status, passel_error());
  exit(2);
}

int main(int argc, char** argv) {
  if (argc < 6) return 2;
  passel_sampling all;
  memset(&all, 0, sizeof all);
  all.struct_size = sizeof all;
  all.examples = atol(argv[1]);
  all.batch_size = atol(argv[2]);
  all.epochs = atol(argv[3]);
  if (all.examples > kMost) return 2;
  passel_variable seen;
  memset(&seen, 0, sizeof seen);
  seen.struct_size = sizeof seen;
  seen.name = "seen";
  seen.shape = &all.examples;
  seen.rank = 1;
  passel_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.settings = (const char* const*)(argv + 6);
  options.num_settings = (size_t)(argc - 6);
  passel_job* job = NULL;
  Check(passel_open(&options, &seen, 1, &job), "passel_open");
  Check(passel_initialize(job, NULL, 60), "passel_initialize");
  Check(passel_sample(job, &all), "passel_sample");
  long given[kMost] = {0};
  passel_batch batch;
  memset(&batch, 0, sizeof batch);
  batch.struct_size = sizeof batch;
  for (int number = 1;; ++number) {
    Check(passel_next_batch(job, &batch), "passel_next_batch");
    if (batch.count == 0) break;
    if (number == 5) puts("waits");
    fflush(stdout);
    const struct timespec pause = {0, 10000000};
    while (number == 5 && access(argv[4], F_OK) != 0) nanosleep(&pause, NULL);
    float* gradient = NULL;
    Check(passel_pull(job, PASSEL_PULL_AUTO), "passel_pull");
    Check(passel_gradient(job, 0, &gradient, NULL), "passel_gradient");
    memset(gradient, 0, sizeof *gradient * (size_t)all.examples);
    for (size_t i = 0; i < batch.count; ++i) gradient[batch.examples[i]] = -kPerRate;
    for (size_t i = 0; i < batch.count; ++i) ++given[batch.examples[i]];
    Check(passel_push(job, 60), "passel_push");
    Check(passel_wait(job, 60, NULL), "passel_wait");
  }
  const float* values = NULL;
  Check(passel_pull(job, PASSEL_PULL_COPY), "the last passel_pull");
  Check(passel_values(job, 0, &values, NULL), "passel_values");
  FILE* const out = fopen(argv[5], "w");
  if (out == NULL) return 2;
  for (int64_t i = 0; i < all.examples; ++i) fprintf(out, "%ld ", given[i]);
  for (int64_t i = 0; i < all.examples; ++i) fprintf(out, "%.0f ", (double)values[i]);
  if (fclose(out) != 0) return 2;
  Check(passel_leave(job), "passel_leave");
  return 0;
}

/* Fits y = 2x - 1 with a model and a loop of its own; alone, or as one worker of several:
 *   ./least_squares [NAME=VALUE ...]    settings, as "mode=barrier" or "checkpoint_dir=train" */
#include <math.h>
#include <passel.h>
#include <stdio.h>
#include <stdlib.h>

static void Check(passel_status status) {
  if (status == PASSEL_OK) return;
  fprintf(stderr, "%s\n", passel_error());
  exit(2);
}

int main(int argc, char** argv) {
  const passel_variable variables[2] = {{sizeof(passel_variable), "w", NULL, 0, 0},
                                        {sizeof(passel_variable), "b", NULL, 0, 0}};
  const passel_options options = {sizeof options, (const char* const*)(argv + 1),
                                  (size_t)(argc - 1)};
  passel_job* job = NULL;
  Check(passel_open(&options, variables, 2, &job));
  passel_description me = {sizeof me, 0, 0, 0, 0, NULL};
  Check(passel_describe(job, &me));
  Check(passel_initialize(job, NULL, 60)); /* zeros, or what a checkpoint has */
  const float *w = NULL, *b = NULL;
  float *gradient_w = NULL, *gradient_b = NULL;
  passel_status status = PASSEL_OK;
  for (int step = 0; step < 10000 && status == PASSEL_OK; ++step) {
    if ((status = passel_pull(job, PASSEL_PULL_AUTO)) != PASSEL_OK) break;
    Check(passel_values(job, 0, &w, NULL));
    Check(passel_values(job, 1, &b, NULL));
    Check(passel_gradient(job, 0, &gradient_w, NULL));
    Check(passel_gradient(job, 1, &gradient_b, NULL));
    float loss = 0;
    *gradient_w = *gradient_b = 0;
    for (int i = me.worker; i < 16; i += me.workers) { /* this worker's examples */
      const float x = (float)i / 8 - 1, error = *w * x + *b - (2 * x - 1);
      *gradient_w += error * x / 16;
      *gradient_b += error / 16;
      loss += error * error / 2;
    }
    Check(passel_metric(job, "loss", loss));
    if ((status = passel_push(job, 60)) == PASSEL_OK) status = passel_wait(job, 60, NULL);
  }
  if (status != PASSEL_CANCELLED) Check(status); /* else somebody has stopped the job */
  if (status == PASSEL_OK) {
    Check(passel_pull(job, PASSEL_PULL_COPY));
    Check(passel_values(job, 0, &w, NULL));
    Check(passel_values(job, 1, &b, NULL));
    printf("y = %.2f x + %.2f\n", (double)*w, (double)*b);
  }
  Check(passel_leave(job));
  return 0;
}

/* Writes what a program that was compiled before relies on: sizes, offsets and numbers. */
#include <stdio.h>

#include "capi/passel.h"

#define SIZE(type) printf("%s %zu\n", #type, sizeof(type))
#define FIELD(type, field) printf("%s.%s %zu\n", #type, #field, offsetof(type, field))
#define NUMBER(name) printf("%s %d\n", #name, (int)name)

int main(void) {
  SIZE(passel_status);
  SIZE(passel_variable);
  FIELD(passel_variable, struct_size);
  FIELD(passel_variable, name);
  FIELD(passel_variable, shape);
  FIELD(passel_variable, rank);
  FIELD(passel_variable, group);
  SIZE(passel_options);
  FIELD(passel_options, struct_size);
  FIELD(passel_options, settings);
  FIELD(passel_options, num_settings);
  SIZE(passel_description);
  FIELD(passel_description, struct_size);
  FIELD(passel_description, worker);
  FIELD(passel_description, workers);
  FIELD(passel_description, is_chief);
  FIELD(passel_description, is_alone);
  FIELD(passel_description, job_id);
  SIZE(passel_outcome);
  FIELD(passel_outcome, struct_size);
  FIELD(passel_outcome, applied);
  FIELD(passel_outcome, gradients);
  FIELD(passel_outcome, global_step);
  FIELD(passel_outcome, staleness);
  SIZE(passel_reading);
  FIELD(passel_reading, struct_size);
  FIELD(passel_reading, global_step);
  FIELD(passel_reading, last_global_step);
  FIELD(passel_reading, is_exact);
  SIZE(passel_sampling);
  FIELD(passel_sampling, struct_size);
  FIELD(passel_sampling, examples);
  FIELD(passel_sampling, batch_size);
  FIELD(passel_sampling, epochs);
  FIELD(passel_sampling, seed);
  FIELD(passel_sampling, in_order);
  SIZE(passel_batch);
  FIELD(passel_batch, struct_size);
  FIELD(passel_batch, examples);
  FIELD(passel_batch, count);
  FIELD(passel_batch, epoch);
  SIZE(passel_rates);
  FIELD(passel_rates, struct_size);
  FIELD(passel_rates, learning_rate);
  FIELD(passel_rates, weight_decay);
  SIZE(passel_optimizer_state);
  FIELD(passel_optimizer_state, struct_size);
  FIELD(passel_optimizer_state, step);
  FIELD(passel_optimizer_state, num_slots);
  FIELD(passel_optimizer_state, names);
  FIELD(passel_optimizer_state, slots);
  SIZE(passel_first_values);
  FIELD(passel_first_values, struct_size);
  FIELD(passel_first_values, number);
  FIELD(passel_first_values, global_step);
  FIELD(passel_first_values, is_own);
  FIELD(passel_first_values, is_of_checkpoint);
  NUMBER(PASSEL_ABI_VERSION);
  NUMBER(PASSEL_OK);
  NUMBER(PASSEL_INVALID_ARGUMENT);
  NUMBER(PASSEL_NOT_FOUND);
  NUMBER(PASSEL_ALREADY_EXISTS);
  NUMBER(PASSEL_PERMISSION_DENIED);
  NUMBER(PASSEL_FAILED_PRECONDITION);
  NUMBER(PASSEL_RESOURCE_EXHAUSTED);
  NUMBER(PASSEL_DATA_LOSS);
  NUMBER(PASSEL_ABORTED);
  NUMBER(PASSEL_CANCELLED);
  NUMBER(PASSEL_UNAVAILABLE);
  NUMBER(PASSEL_DEADLINE_EXCEEDED);
  NUMBER(PASSEL_INTERNAL);
  NUMBER(PASSEL_DIVERGED);
  NUMBER(PASSEL_PULL_AUTO);
  NUMBER(PASSEL_PULL_VIEW);
  NUMBER(PASSEL_PULL_COPY);
  NUMBER(PASSEL_READ_NOW);
  NUMBER(PASSEL_READ_ONE_STEP);
  return 0;
}

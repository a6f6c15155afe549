/* Groups of variables, rates that change, and what is refused of both. Exit codes: 0 all as it should
 * be, 1 with a line for each that is not. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "capi/passel.h"
#include "capi_check.h"

static const int64_t kShape[1] = {20};

/* The struct of programs that were compiled before there were groups. */
typedef struct old_variable {
  size_t struct_size;
  const char* name;
  const int64_t* shape;
  size_t rank;
} old_variable;

static passel_variable Variable(const char* name, int32_t group) {
  passel_variable variable;
  memset(&variable, 0, sizeof variable);
  variable.struct_size = sizeof variable;
  variable.name = name;
  variable.shape = kShape;
  variable.rank = 1;
  variable.group = group;
  return variable;
}

static passel_status Open(const char* mode, const passel_variable* variables, size_t count,
                          passel_job** job) {
  const char* const settings[3] = {"optimizer=sgd", "learning_rate=1", mode};
  passel_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.settings = settings;
  options.num_settings = 3;
  return passel_open(&options, variables, count, job);
}

static passel_rates Rates(double learning_rate, double weight_decay) {
  passel_rates rates;
  memset(&rates, 0, sizeof rates);
  rates.struct_size = sizeof rates;
  rates.learning_rate = learning_rate;
  rates.weight_decay = weight_decay;
  return rates;
}

/* One step with a gradient of ones; the values must be these afterwards. */
static void Step(passel_job* job, float first, float second) {
  const float* values = NULL;
  size_t elements = 0;
  GOOD(passel_pull(job, PASSEL_PULL_AUTO));
  for (size_t v = 0; v < 2; ++v) {
    float* gradient = NULL;
    GOOD(passel_gradient(job, v, &gradient, &elements));
    for (size_t i = 0; i < elements; ++i) gradient[i] = 1;
  }
  GOOD(passel_push(job, 10));
  GOOD(passel_wait(job, 10, NULL));
  GOOD(passel_pull(job, PASSEL_PULL_AUTO));
  for (size_t v = 0; v < 2; ++v) {
    GOOD(passel_values(job, v, &values, &elements));
    for (size_t i = 0; i < elements; ++i) TRUE(values[i] == (v == 0 ? first : second));
  }
}

static void TryRates(const char* mode) {
  passel_job* job = NULL;
  passel_variable v[2];
  v[0] = Variable("w", 0);
  v[1] = Variable("b", 1);
  passel_rates rates[2];
  rates[0] = Rates(0.5, 0);
  rates[1] = Rates(0.25, 0);
  GOOD(Open(mode, v, 2, &job));
  BAD(passel_set_rates(job, rates, 2), PASSEL_FAILED_PRECONDITION,
      "call passel_initialize() before passel_set_rates()");
  GOOD(passel_initialize(job, NULL, 10));
  Step(job, -1, -1);
  GOOD(passel_set_rates(job, rates, 2));
  Step(job, -1.5F, -1.25F);
  rates[0].learning_rate = 0;
  rates[1].learning_rate = 2;
  GOOD(passel_set_rates(job, rates, 2));
  rates[1].learning_rate = 100; /* it was copied */
  Step(job, -1.5F, -3.25F);

  BAD(passel_set_rates(NULL, rates, 2), PASSEL_INVALID_ARGUMENT, "the job is NULL");
  BAD(passel_set_rates(job, NULL, 2), PASSEL_INVALID_ARGUMENT, "the array of rates is NULL");
  BAD(passel_set_rates(job, NULL, 0), PASSEL_INVALID_ARGUMENT, "have 2 groups, and rates of 0");
  BAD(passel_set_rates(job, rates, 1), PASSEL_INVALID_ARGUMENT, "have 2 groups, and rates of 1");
  BAD(passel_set_rates(job, rates, 17), PASSEL_INVALID_ARGUMENT, "1 to 16 groups");
  rates[1] = Rates(-0.5, 0);
  BAD(passel_set_rates(job, rates, 2), PASSEL_INVALID_ARGUMENT,
      "the learning rate of group 1 must be 0 or more");
  rates[1] = Rates((double)NAN, 0);
  BAD(passel_set_rates(job, rates, 2), PASSEL_INVALID_ARGUMENT, "learning rate of group 1");
  rates[1] = Rates(1, 0.5);
  BAD(passel_set_rates(job, rates, 2), PASSEL_INVALID_ARGUMENT,
      "the weight decay of group 1 is 0.5, and sgd has none");
  rates[1] = Rates(1, 0);
  rates[1].struct_size = 32;
  BAD(passel_set_rates(job, rates, 2), PASSEL_INVALID_ARGUMENT,
      "struct_size of the rates of group 1 is 32");
  rates[0].struct_size = 8;
  BAD(passel_set_rates(job, rates, 2), PASSEL_INVALID_ARGUMENT,
      "struct_size of passel_rates is 24 to 4096 bytes, not 8");
  Step(job, -1.5F, -5.25F); /* nothing of that is in force */
  GOOD(passel_leave(job));
  BAD(passel_set_rates(job, rates, 2), PASSEL_FAILED_PRECONDITION, "has left the job");
}

static void TryGroups(void) {
  passel_job* job = NULL;
  passel_variable v[2];
  v[0] = Variable("w", 16);
  v[1] = Variable("b", 0);
  BAD(Open("mode=locked", v, 2, &job), PASSEL_INVALID_ARGUMENT,
      "variable \"w\" is in group 16, and the groups are 0 to 15: join some groups");
  v[0].group = -1;
  BAD(Open("mode=locked", v, 2, &job), PASSEL_INVALID_ARGUMENT, "is in group -1");
}

static void TryFormerStructs(void) {
  passel_job* job = NULL;
  const old_variable v[2] = {{sizeof(old_variable), "w", kShape, 1},
                             {sizeof(old_variable), "b", kShape, 1}};
  GOOD(Open("mode=locked", (const passel_variable*)(const void*)v, 2, &job));
  GOOD(passel_initialize(job, NULL, 10));
  const passel_rates rates = Rates(0.5, 0);
  GOOD(passel_set_rates(job, &rates, 1));
  Step(job, -0.5F, -0.5F);
  GOOD(passel_leave(job));
}

int main(void) {
  TryRates("mode=hogwild");
  TryRates("mode=locked");
  TryRates("mode=barrier");
  TryRates("mode=replicas");
  TryRates("mode=ssp");
  TryGroups();
  TryFormerStructs();
  printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}

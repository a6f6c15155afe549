/* Reads a job while it trains.
 *
 * usage: follow JOB READINGS HOW [LAST]
 * Waits READINGS times for a later version, then copies the values by HOW (0, 1), and writes a
 * line: the step, the last step, whether it is exact, and the values. Writes to each copy, which
 * changes nothing. LAST: then it waits for that version, which never comes. Exit codes: 0; 2 an
 * error that it says. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capi/passel.h"

static void Check(passel_status status, const char* what) {
  if (status == PASSEL_OK) return;
  fprintf(stderr, "%s: %d: %s\n", what, (int)status, passel_error());
  exit(2);
}

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  passel_reader* reader = NULL;
  Check(passel_attach(argv[1], 20, &reader), "passel_attach");
  size_t count = 0;
  Check(passel_reader_count(reader, &count), "passel_reader_count");
  for (size_t i = 0; i < count; ++i) {
    passel_variable variable;
    memset(&variable, 0, sizeof variable);
    variable.struct_size = sizeof variable;
    Check(passel_reader_variable(reader, i, &variable), "passel_reader_variable");
    printf("%s %zu%s", variable.name, variable.rank, i + 1 < count ? " " : "\n");
  }
  int64_t version = 0;
  for (long i = 0; i < atol(argv[2]); ++i) {
    Check(passel_wait_version(reader, version + 1, 20, &version), "passel_wait_version");
    passel_reading reading;
    memset(&reading, 0, sizeof reading);
    reading.struct_size = sizeof reading;
    Check(passel_read(reader, atoi(argv[3]), 20, &reading), "passel_read");
    if (reading.global_step < version) return 3;
    version = reading.last_global_step;
    printf("%lld %lld %d", (long long)reading.global_step, (long long)reading.last_global_step,
           (int)reading.is_exact);
    for (size_t v = 0; v < count; ++v) {
      const float* values = NULL;
      size_t elements = 0;
      Check(passel_reader_values(reader, v, &values, &elements), "passel_reader_values");
      for (size_t e = 0; e < elements; ++e) {
        printf(" %.9g", (double)values[e]);
        ((float*)values)[e] = 1e30F;
      }
    }
    printf("\n");
    fflush(stdout);
  }
  if (argc > 4) Check(passel_wait_version(reader, atoll(argv[4]), 20, NULL), "passel_wait_version");
  Check(passel_detach(reader), "passel_detach");
  return 0;
}

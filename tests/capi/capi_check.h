/* capi_check.h - for programs in C that call passel.h, rightly and wrongly: a line for each call
 * that does not return what it should. */
#pragma once

#include <stdio.h>
#include <string.h>

#include "capi/passel.h"

static int failures;

static void Expect(int line, passel_status status, passel_status wanted, const char* sentence) {
  const char* const said = passel_error();
  if (status == wanted && (wanted == PASSEL_OK ? *said == '\0' : strstr(said, sentence) != NULL)) {
    return;
  }
  ++failures;
  printf("line %d: %d rather than %d, \"%s\" rather than \"%s\"\n", line, (int)status, (int)wanted,
         said, sentence);
}
#define BAD(call, code, sentence) Expect(__LINE__, (call), (code), (sentence))
#define GOOD(call) Expect(__LINE__, (call), PASSEL_OK, "")
#define TRUE(condition)                                  \
  do {                                                   \
    if (!(condition)) {                                  \
      ++failures;                                        \
      printf("line %d: not %s\n", __LINE__, #condition); \
    }                                                    \
  } while (0)

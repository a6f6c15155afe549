#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace passel::internal {

void CheckFailed(const char* condition, const char* file, int line, const char* message) {
  std::fprintf(stderr, "%s:%d: check failed: %s (%s)\n", file, line, condition, message);
  std::abort();
}

}  // namespace passel::internal

// check.h - stop the program when only a bug can have brought it here.

#pragma once

namespace passel::internal {
[[noreturn]] void CheckFailed(const char* condition, const char* file, int line,
                              const char* message);
}  // namespace passel::internal

/// Aborts with the place and `message` (a C string) unless `condition` holds. Never for conditions
/// that a user, a peer or a file can cause: those are a Status.
#define PASSEL_CHECK(condition, message)                                        \
  do {                                                                          \
    if (!(condition)) [[unlikely]]                                              \
      ::passel::internal::CheckFailed(#condition, __FILE__, __LINE__, message); \
  } while (false)

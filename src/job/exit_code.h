// exit_code.h - what the program's exit code says. Scripts and schedulers decide by it: 1 to 127
// is final, from 128 on the task may be started again.

#pragma once

#include "base/status.h"

namespace passel::job {

inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;         ///< training failed for good
inline constexpr int kExitUsage = 2;          ///< wrong usage, configuration, data or machine
inline constexpr int kExitInterrupted = 130;  ///< stopped by Ctrl-C or on request, results saved
inline constexpr int kExitRestartMe = 143;    ///< peer lost, evicted or preempted

inline int ExitCodeFor(const Status& status) {
  switch (status.code()) {
    case Code::kOk:
      return kExitDone;
    case Code::kAborted:
    case Code::kUnavailable:
    case Code::kDeadlineExceeded:
      return kExitRestartMe;
    case Code::kCancelled:
      return kExitInterrupted;
    case Code::kInternal:
    case Code::kDiverged:
      return kExitFailed;
    default:
      return kExitUsage;
  }
}

}  // namespace passel::job

// failpoint.h - named places at which a test can kill, stop or delay the process.
//
// Armed by the environment variable PASSEL_FAILPOINT="name:hits:action[:marker]", read once: at the
// `hits`-th passage of `name` (counted from 1) the action is taken: `kill` (SIGKILL), `stop`
// (SIGSTOP), `sleepMS` or `exitCODE`. Unarmed, a failpoint costs one predictable branch.
//
// Children inherit the variable, and so do the later lives of a child that is started again. With
// `marker`, the path of a file that is not there yet, the action is taken once in all of them: by
// whoever creates the file.

#pragma once

namespace passel {

namespace internal {
extern const bool g_failpoints_armed;
void ReachFailpoint(const char* name);
}  // namespace internal

inline void Failpoint(const char* name) {
  if (internal::g_failpoints_armed) [[unlikely]]
    internal::ReachFailpoint(name);
}

}  // namespace passel

// processor_time.h - a limit of processor time (ulimit -t) ends the process with a sentence.

#pragma once

namespace passel {

/// From now on, when the limit is reached, this process writes one sentence to `fd` and exits with
/// kExitUsage. Does nothing where there is no limit. One per process; may be called again with
/// another descriptor.
void WatchProcessorTime(int fd);

}  // namespace passel

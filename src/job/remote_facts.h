// remote_facts.h - what a task says of itself on another host, and of how things travel there.

#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "fabric/control/liveness.h"
#include "fabric/control/task_facts.h"
#include "fabric/control/tcp_handshake.h"
#include "job/task.h"

namespace passel::job {

/// What a task says of itself to tasks of other hosts, and the key to their doors.
fabric::TaskFacts FactsOf(const Task& task, Role role, int index);
fabric::DoorKey DoorKeyOf(const Task& task);
fabric::LeaseOptions LeaseOf(const Task& task);
/// What follows from the lease, in options of either end of a control connection.
template <typename Options>
void TakeLease(const Task& task, Options* options) {
  options->lease = LeaseOf(task);
  options->stall_limit = options->lease.stall_limit();
}
/// How long a worker's pipes poll before they sleep; nothing: as they do by themselves, which a ps
/// always leaves to them.
std::optional<std::chrono::nanoseconds> WorkerSpin(const Task& task);
/// "by TCP, sealed", or that it is not.
std::string HowItTravels(const Task& task);
/// The same of what is asked about the job: never by libfabric.
std::string HowErrandsTravel(const Task& task);
/// Says once what that means, where it travels in clear text.
void WarnOfClearText(const Task& task);

}  // namespace passel::job

// enter_host.h - a thread goes to another host of support/two_hosts.h.

#pragma once

#include <fcntl.h>
#include <sched.h>

#include <string>

#include "base/file_descriptor.h"

namespace passel::testing {

/// This thread is on that host (TwoHosts::other_host()) from now on; false if it may not be.
inline bool EnterHost(const std::string& host) {
  const FileDescriptor network(::open(host.c_str(), O_RDONLY | O_CLOEXEC));
  return network.valid() && ::setns(network.get(), CLONE_NEWNET) == 0;
}

}  // namespace passel::testing

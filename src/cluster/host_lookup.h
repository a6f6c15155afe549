// host_lookup.h - the addresses behind a host's name, within a time.
//
// The C library cannot be told to give a question up, so each is asked by a thread of its own, and
// left to itself when the time is over. At most kMaxLookups are under way in a process.
//
// Thread safety: no state that callers see.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "base/tcp_socket.h"
#include "cluster/cluster_spec.h"

namespace passel {

inline constexpr int kMaxLookups = 16;

/// Asks the system, or who else knows; may take for ever.
using HostResolver = std::function<Result<std::vector<TcpAddress>>(const HostPort&)>;
/// getaddrinfo(). Errors: kUnavailable, naming the host.
Result<std::vector<TcpAddress>> ResolveBySystem(const HostPort& host);

/// At least one address, in the order in which they are to be tried. What is written in numbers is
/// asked of nobody. Errors: those of `resolver`; kDeadlineExceeded; kResourceExhausted.
Result<std::vector<TcpAddress>> LookUp(const HostPort& host, Deadline deadline,
                                       const HostResolver& resolver = ResolveBySystem);

}  // namespace passel

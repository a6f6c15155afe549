// endpoint.h - where the tasks of a job listen on one host: abstract Unix sockets, named after the
// user, the job and the task.
//
// Nobody else's process is trusted on either side: the kernel says whose it is (SO_PEERCRED).
//
// Thread safety: no state.

#pragma once

#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/status.h"
#include "cluster/handshake.h"

namespace passel {

/// "passel.<uid>.<job>.<role>.<index>", the abstract socket of one task of this user.
std::string EndpointName(const std::string& job_id, Role role, int index);

/// Whether the uid at the other end of a socket tells a process of this user from others, which is
/// all that a control connection proves. Errors: kPermissionDenied.
Status CheckUidIsEnough();

/// The listening socket of that endpoint. Errors: kAlreadyExists: a task of this user has it, named
/// with its pid; kPermissionDenied: another user's process has it. `task` is what people call it,
/// where that is not its role and index.
Result<FileDescriptor> Listen(const std::string& job_id, Role role, int index,
                              std::string task = {});

/// A connection to that endpoint.
struct EndpointConnection {
  FileDescriptor socket;
  pid_t pid = 0;  ///< of the server, in our pid namespace, as the kernel says
};
/// Errors: kNotFound when nobody listens; kPermissionDenied: another user's process holds the name
/// (with its pid and uid); kDeadlineExceeded.
Result<EndpointConnection> ConnectToEndpoint(const std::string& job_id, Role role, int index,
                                             Deadline deadline);

/// One task that listens, found in /proc/net/unix.
struct FoundEndpoint {
  std::string job_id;
  Role role;
  int index;
};
/// Those of this user, in this network namespace. Errors: kInternal when /proc is not readable.
Result<std::vector<FoundEndpoint>> FindEndpoints();
/// Whether that task listens, or it cannot be known.
bool MayListen(const std::string& job_id, Role role, int index);

/// A worker's place, for as long as what it returns lives: who asks for it meanwhile, on this host,
/// gets kAlreadyExists. Other errors: those of ListenAbstract().
Result<FileDescriptor> ReservePlace(const std::string& job_id, int worker);

}  // namespace passel

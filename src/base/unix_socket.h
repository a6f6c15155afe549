// unix_socket.h - abstract Unix sockets: they leave no file behind, and their name is free again
// when the last holder of the socket is gone.
//
// SOCK_SEQPACKET: a message is received whole or not at all, with the descriptors it carries.

#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/status.h"

namespace passel {

/// Who is at the other end, said by the kernel: as it was at connect() or listen().
struct PeerCredentials {
  pid_t pid = 0;  ///< in our pid namespace; 0 if it is not visible from here
  uid_t uid = 0;
  gid_t gid = 0;
};

/// The largest message, in bytes. Larger things travel as memory files.
inline constexpr std::size_t kMaxMessageBytes = 60'000;
inline constexpr std::size_t kMaxMessageFds = 4;

/// Binds and listens. Binding is the election: of several processes one wins.
/// Errors: kAlreadyExists when the name is taken; kInvalidArgument for a name above 107 bytes.
Result<FileDescriptor> ListenAbstract(const std::string& name);

/// Errors: kNotFound when nobody listens under that name; kDeadlineExceeded while its queue of
/// waiting connections is full.
Result<FileDescriptor> ConnectAbstract(const std::string& name, Deadline deadline);

/// The next connection, non-blocking: kNotFound if there is none.
Result<FileDescriptor> AcceptConnection(int listening_fd);

Result<PeerCredentials> GetPeerCredentials(int fd);

struct Message {
  std::vector<std::uint8_t> bytes;
  std::vector<FileDescriptor> fds;
};

/// Errors: kUnavailable when the peer is gone; kDeadlineExceeded.
Status SendMessage(int fd, std::span<const std::uint8_t> bytes, std::span<const int> fds,
                   Deadline deadline);
/// Errors: kUnavailable when the peer closed or died; kDeadlineExceeded; kDataLoss for a message
/// above the limits.
Result<Message> ReceiveMessage(int fd, Deadline deadline);

}  // namespace passel

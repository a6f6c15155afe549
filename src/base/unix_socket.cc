#include "base/unix_socket.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/fork_children.h"
#include "base/tcp_socket.h"
#include "base/wait_check.h"

namespace passel {
namespace {

Result<socklen_t> MakeAddress(const std::string& name, sockaddr_un* address) {
  // A leading NUL makes it abstract; the name is not terminated.
  if (name.empty() || name.size() > sizeof address->sun_path - 1) {
    return InvalidArgument(fmt::format("a socket name has 1 to {} bytes, \"{}\" has {}",
                                       sizeof address->sun_path - 1, name, name.size()));
  }
  *address = {};
  address->sun_family = AF_UNIX;
  std::memcpy(address->sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

FileDescriptor NewSocket() {
  FileDescriptor fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  KeepFromChildren(fd.get());
  return fd;
}

// AwaitReady(), but this thread can be called out of it.
bool WaitReady(int fd, short events, Deadline deadline) {
  if (!WaitsAreChecked()) return AwaitReady(fd, events, deadline);
  while (!AwaitReady(fd, events, deadline.Sooner(kWaitCheckPause))) {
    if (deadline.Expired() || WaitIsOver()) return false;
  }
  return true;
}

Status PeerGone() { return Unavailable("the other end of the socket is gone"); }

}  // namespace

Result<FileDescriptor> ListenAbstract(const std::string& name) {
  sockaddr_un address;
  PASSEL_ASSIGN_OR_RETURN(const socklen_t length, MakeAddress(name, &address));
  FileDescriptor fd = NewSocket();
  if (!fd.valid()) return ErrnoStatus(errno, "cannot create a socket");
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    return ErrnoStatus(errno, fmt::format("cannot bind the socket @{}", name));
  }
  if (::listen(fd.get(), 512) != 0) return ErrnoStatus(errno, "cannot listen on a socket");
  return fd;
}

Result<FileDescriptor> ConnectAbstract(const std::string& name, Deadline deadline) {
  sockaddr_un address;
  PASSEL_ASSIGN_OR_RETURN(const socklen_t length, MakeAddress(name, &address));
  FileDescriptor fd = NewSocket();
  if (!fd.valid()) return ErrnoStatus(errno, "cannot create a socket");
  for (;;) {
    if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), length) == 0) return fd;
    if (errno == EINTR) continue;
    if (errno == ECONNREFUSED) return NotFound(fmt::format("nobody listens on @{}", name));
    if (errno != EAGAIN) return ErrnoStatus(errno, fmt::format("cannot connect to @{}", name));
    // EAGAIN: the listener's queue is full. No event tells when it has room again.
    if (deadline.Expired()) {
      return DeadlineExceeded(fmt::format("@{} does not accept connections", name));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

Result<FileDescriptor> AcceptConnection(int listening_fd) {
  FileDescriptor fd(::accept4(listening_fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  KeepFromChildren(fd.get());
  if (fd.valid()) return fd;
  if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return NotFound("no connection");
  return ErrnoStatus(errno, "cannot accept a connection");
}

Result<PeerCredentials> GetPeerCredentials(int fd) {
  ucred credentials;
  socklen_t length = sizeof credentials;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
    return ErrnoStatus(errno, "cannot learn who is at the other end of a socket");
  }
  return PeerCredentials{credentials.pid, credentials.uid, credentials.gid};
}

Status SendMessage(int fd, std::span<const std::uint8_t> bytes, std::span<const int> fds,
                   Deadline deadline) {
  PASSEL_CHECK(bytes.size() <= kMaxMessageBytes && fds.size() <= kMaxMessageFds,
               "message above the limits");
  iovec piece{const_cast<std::uint8_t*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxMessageFds)] = {};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  if (!fds.empty()) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
    cmsghdr* c = CMSG_FIRSTHDR(&header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(c), fds.data(), sizeof(int) * fds.size());
  }
  for (;;) {
    if (::sendmsg(fd, &header, MSG_NOSIGNAL) >= 0) return {};
    if (errno == EINTR) continue;
    if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN) return PeerGone();
    if (errno != EAGAIN) return ErrnoStatus(errno, "cannot send a message");
    if (!WaitReady(fd, POLLOUT, deadline)) {
      return DeadlineExceeded("the other end of the socket does not read");
    }
  }
}

Result<Message> ReceiveMessage(int fd, Deadline deadline) {
  Message message;
  message.bytes.resize(kMaxMessageBytes);
  iovec piece{message.bytes.data(), message.bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxMessageFds)] = {};
  msghdr header{};
  for (;;) {
    header = {};
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    const ssize_t got = ::recvmsg(fd, &header, MSG_CMSG_CLOEXEC);
    if (got >= 0) {
      // Own every descriptor before any check can return.
      for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; ++i) {
          int received;
          std::memcpy(&received, CMSG_DATA(c) + i * sizeof(int), sizeof received);
          message.fds.emplace_back(received);
        }
      }
      if (got == 0) return PeerGone();  // we never send empty messages
      if (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
        return DataLoss(fmt::format("a message is larger than {} bytes and {} descriptors",
                                    kMaxMessageBytes, kMaxMessageFds));
      }
      message.bytes.resize(static_cast<std::size_t>(got));
      return message;
    }
    if (errno == EINTR) continue;
    if (errno == ECONNRESET || errno == ENOTCONN) return PeerGone();
    if (errno != EAGAIN) return ErrnoStatus(errno, "cannot receive a message");
    if (!WaitReady(fd, POLLIN, deadline)) return DeadlineExceeded("no message came");
  }
}

}  // namespace passel

// tcp_socket.h - TCP sockets that never block: addresses, listening, connecting, waiting.
//
// Sockets are close-on-exec, send small messages at once (TCP_NODELAY), and have the kernel look
// after a silent peer. That is a help only: whoever needs to know in time sends something itself.
//
// Thread safety: no state.

#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/status.h"

namespace passel {

/// An IPv4 or IPv6 address with its port.
class TcpAddress {
 public:
  TcpAddress() = default;
  /// REQUIRES: length <= sizeof(sockaddr_storage).
  TcpAddress(const sockaddr* address, socklen_t length);
  /// 127.0.0.1 or ::1. Port 0: one that is free.
  static TcpAddress Loopback(std::uint16_t port, bool ipv6 = false);
  /// An address in numbers, IPv6 without brackets. Errors: kInvalidArgument.
  static Result<TcpAddress> FromNumbers(const std::string& host, std::uint16_t port);

  const sockaddr* data() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t length() const { return length_; }
  int family() const { return storage_.ss_family; }
  std::uint16_t port() const;
  bool loopback() const;
  /// Without the port, IPv6 without brackets.
  std::string Numbers() const;
  /// "10.0.0.1:2222" or "[fe80::1]:2222".
  std::string ToString() const;
  /// Without the port; of IPv6 the first 64 bits, which one host may have all of.
  std::string Network() const;

 private:
  sockaddr_storage storage_{};
  socklen_t length_ = 0;
};

/// Binds and listens; IPv6 alone on an IPv6 address. Errors: kAlreadyExists when the port is taken;
/// kInvalidArgument for an address that this host has not.
Result<FileDescriptor> ListenTcp(const TcpAddress& address);
/// Where a socket is bound. Errors: kInternal.
Result<TcpAddress> LocalAddress(int fd);

/// Errors: kUnavailable when nobody listens or there is no way; kDeadlineExceeded.
Result<FileDescriptor> ConnectTcp(const TcpAddress& address, Deadline deadline);
/// Each in turn, with an equal part of the time that is left, until one is reached. Errors: that of
/// the last, with the address.
Result<FileDescriptor> ConnectTcp(std::span<const TcpAddress> addresses, Deadline deadline);

/// How long the other end's kernel may be silent, when it is asked or has not acknowledged what was
/// sent, before it counts as gone. At first 15 s.
void SetSilenceLimit(int fd, std::chrono::nanoseconds limit);

struct AcceptedTcp {
  FileDescriptor socket;
  TcpAddress peer;
};
/// The next connection. Errors: kNotFound if there is none; kInternal when descriptors are short.
Result<AcceptedTcp> AcceptTcp(int listening_fd);

/// Until `fd` is ready for `events` (poll); false at the deadline.
bool AwaitReady(int fd, short events, Deadline deadline);

/// What the kernel has now, at most so many bytes; 0: nothing yet. Errors: kUnavailable when the
/// other end has closed, or is gone.
Result<std::size_t> ReceiveNow(int fd, std::span<std::uint8_t> into);
/// As many bytes as the kernel takes now. Errors: kUnavailable.
Result<std::size_t> SendNow(int fd, std::span<const std::uint8_t> bytes);

}  // namespace passel

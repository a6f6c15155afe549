#include "base/tcp_socket.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/fork_children.h"

namespace passel {
namespace {

// Until SetSilenceLimit() says another one.
constexpr std::chrono::seconds kSilenceLimit{15};
constexpr int kProbes = 2;

void Set(int fd, int level, int option, int value) {
  // Best effort: a kernel that knows no such option serves without.
  (void)::setsockopt(fd, level, option, &value, sizeof value);
}

void KeepAlive(int fd) {
  Set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  Set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  Set(fd, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  SetSilenceLimit(fd, kSilenceLimit);
}

FileDescriptor NewTcpSocket(int family) {
  FileDescriptor fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  KeepFromChildren(fd.get());
  return fd;
}

Status NotReached(int error, const TcpAddress& address) {
  return Unavailable(fmt::format("cannot reach {}: {}", address.ToString(), ::strerror(error)));
}

bool IsPause(int error) { return error == EAGAIN || error == EINTR; }

}  // namespace

void SetSilenceLimit(int fd, std::chrono::nanoseconds limit) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(limit).count();
  const int part = std::max(1, static_cast<int>(ms / 1000) / (kProbes + 1));  // seconds
  Set(fd, IPPROTO_TCP, TCP_KEEPIDLE, part);
  Set(fd, IPPROTO_TCP, TCP_KEEPINTVL, part);
  Set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(ms));
}

TcpAddress::TcpAddress(const sockaddr* address, socklen_t length) : length_(length) {
  PASSEL_CHECK(length <= sizeof storage_, "an address is too long");
  std::memcpy(&storage_, address, length);
}

TcpAddress TcpAddress::Loopback(std::uint16_t port, bool ipv6) {
  return *FromNumbers(ipv6 ? "::1" : "127.0.0.1", port);
}

Result<TcpAddress> TcpAddress::FromNumbers(const std::string& host, std::uint16_t port) {
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  if (::inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
    return TcpAddress(reinterpret_cast<const sockaddr*>(&v4), sizeof v4);
  }
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  if (::inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1) {
    return TcpAddress(reinterpret_cast<const sockaddr*>(&v6), sizeof v6);
  }
  return InvalidArgument(fmt::format("\"{}\" is no address in numbers", host));
}

std::uint16_t TcpAddress::port() const {
  if (family() == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port);
  if (family() == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_port);
  }
  return 0;
}

bool TcpAddress::loopback() const {
  if (family() == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&storage_);
    return (ntohl(v4->sin_addr.s_addr) >> 24) == 127;
  }
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&storage_);
  return family() == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

std::string TcpAddress::Numbers() const {
  char text[INET6_ADDRSTRLEN] = "?";
  if (family() == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&storage_);
    ::inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
  } else if (family() == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&storage_);
    ::inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
  }
  return text;
}

std::string TcpAddress::ToString() const {
  if (family() == AF_INET6) return fmt::format("[{}]:{}", Numbers(), port());
  return fmt::format("{}:{}", Numbers(), port());
}

std::string TcpAddress::Network() const {
  if (family() != AF_INET6) return Numbers();
  TcpAddress network = *this;
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&network.storage_);
  std::memset(v6->sin6_addr.s6_addr + 8, 0, 8);
  return network.Numbers() + "/64";
}

Result<FileDescriptor> ListenTcp(const TcpAddress& address) {
  FileDescriptor fd = NewTcpSocket(address.family());
  if (!fd.valid()) return ErrnoStatus(errno, "cannot create a TCP socket");
  // A port whose last connections are being forgotten is free.
  Set(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.family() == AF_INET6) Set(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
  if (::bind(fd.get(), address.data(), address.length()) != 0) {
    if (errno == EADDRINUSE) {
      return AlreadyExists(
          fmt::format("another process listens on {} already: end it, or use another port",
                      address.ToString()));
    }
    if (errno == EADDRNOTAVAIL) {
      return InvalidArgument(fmt::format("{} is no address of this host", address.ToString()));
    }
    return ErrnoStatus(errno, fmt::format("cannot bind {}", address.ToString()));
  }
  if (::listen(fd.get(), 512) != 0) {
    if (errno == EADDRINUSE) {
      return AlreadyExists(
          fmt::format("another process listens on {} already", address.ToString()));
    }
    return ErrnoStatus(errno, fmt::format("cannot listen on {}", address.ToString()));
  }
  return fd;
}

Result<TcpAddress> LocalAddress(int fd) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) {
    return ErrnoStatus(errno, "cannot learn where a socket is bound");
  }
  return TcpAddress(reinterpret_cast<const sockaddr*>(&storage), length);
}

Result<FileDescriptor> ConnectTcp(const TcpAddress& address, Deadline deadline) {
  FileDescriptor fd = NewTcpSocket(address.family());
  if (!fd.valid()) return ErrnoStatus(errno, "cannot create a TCP socket");
  KeepAlive(fd.get());
  if (::connect(fd.get(), address.data(), address.length()) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return NotReached(errno, address);
    if (!AwaitReady(fd.get(), POLLOUT, deadline)) {
      return DeadlineExceeded(fmt::format("{} does not answer", address.ToString()));
    }
    int error = 0;
    socklen_t length = sizeof error;
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return NotReached(error, address);
  }
  return fd;
}

Result<FileDescriptor> ConnectTcp(std::span<const TcpAddress> addresses, Deadline deadline) {
  Status last = InvalidArgument("there is no address to connect to");
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const auto left = static_cast<std::int64_t>(addresses.size() - i);
    Result<FileDescriptor> socket =
        ConnectTcp(addresses[i], deadline.Sooner(deadline.Remaining() / left));
    if (socket.ok()) return socket;
    last = socket.status();
  }
  return last;
}

Result<AcceptedTcp> AcceptTcp(int listening_fd) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  FileDescriptor fd(::accept4(listening_fd, reinterpret_cast<sockaddr*>(&storage), &length,
                              SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (fd.valid()) {
    KeepFromChildren(fd.get());
    KeepAlive(fd.get());
    return AcceptedTcp{std::move(fd),
                       TcpAddress(reinterpret_cast<const sockaddr*>(&storage), length)};
  }
  switch (errno) {
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
      return ErrnoStatus(errno, "cannot accept a connection");
    default:  // nobody is there, or who was has gone again
      return NotFound("no connection");
  }
}

bool AwaitReady(int fd, short events, Deadline deadline) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, deadline.PollTimeoutMs());
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return true;  // let the call itself report it
    if (deadline.Expired()) return false;
  }
}

Result<std::size_t> ReceiveNow(int fd, std::span<std::uint8_t> into) {
  const ssize_t got = ::recv(fd, into.data(), into.size(), MSG_DONTWAIT);
  if (got > 0) return static_cast<std::size_t>(got);
  if (got == 0) return Unavailable("the other end has closed the connection");
  if (IsPause(errno)) return std::size_t{0};
  return Unavailable(fmt::format("the connection is gone: {}", ::strerror(errno)));
}

Result<std::size_t> SendNow(int fd, std::span<const std::uint8_t> bytes) {
  const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent >= 0) return static_cast<std::size_t>(sent);
  if (IsPause(errno)) return std::size_t{0};
  return Unavailable(fmt::format("the connection is gone: {}", ::strerror(errno)));
}

}  // namespace passel

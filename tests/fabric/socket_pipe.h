// socket_pipe.h - a pipe over a stream socket: frames of a prefix, the header, the bulk.

#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <vector>

#include "base/file_descriptor.h"
#include "fabric/pipe.h"

namespace passel::testing {

class SocketPipe final : public fabric::Pipe {
 public:
  explicit SocketPipe(FileDescriptor socket,
                      std::chrono::nanoseconds stall_limit = std::chrono::seconds(5))
      : socket_(std::move(socket)), stall_limit_(stall_limit) {}

  std::chrono::nanoseconds stall_limit() const override { return stall_limit_; }

  Status Send(std::span<const std::uint8_t> header, std::span<const float> bulk) override {
    const std::lock_guard lock(sending_);
    if (broken_) return Unavailable("the connection is broken");
    Prefix prefix{header.size(), bulk.size()};
    std::array<iovec, 3> parts = {iovec{&prefix, sizeof prefix},
                                  iovec{const_cast<std::uint8_t*>(header.data()), header.size()},
                                  iovec{const_cast<float*>(bulk.data()), bulk.size_bytes()}};
    for (std::size_t first = 0; first < parts.size();) {
      msghdr message{};
      message.msg_iov = &parts[first];
      message.msg_iovlen = parts.size() - first;
      const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno == EAGAIN) {
        if (Poll(POLLOUT, Deadline::After(stall_limit_))) continue;
        return Break();
      }
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0) return Break();
      auto left = static_cast<std::size_t>(sent);
      while (first < parts.size() && left >= parts[first].iov_len) left -= parts[first++].iov_len;
      if (first == parts.size()) break;
      parts[first].iov_base = static_cast<char*>(parts[first].iov_base) + left;
      parts[first].iov_len -= left;
    }
    return {};
  }

  Result<fabric::Arrival> Receive(Deadline deadline) override {
    if (broken_) return Unavailable("the connection is broken");
    std::vector<float> skipped(std::min<std::size_t>(unread_, 1 << 16));
    while (unread_ > 0) {
      const std::size_t part = std::min(unread_, skipped.size());
      PASSEL_ASSIGN_OR_RETURN(const std::size_t came, ReadSome({skipped.data(), part}, deadline));
      if (came == 0) return DeadlineExceeded("the rest of a message has not come");
    }
    if (!Poll(POLLIN, deadline)) return DeadlineExceeded("no message");
    Prefix prefix{};
    const Deadline rest = Deadline::After(stall_limit_);
    PASSEL_RETURN_IF_ERROR(Read(&prefix, sizeof prefix, rest));
    if (prefix.header_bytes == 0 || prefix.header_bytes > fabric::kMaxHeaderBytes) return Break();
    fabric::Arrival arrival;
    arrival.header.resize(prefix.header_bytes);
    arrival.bulk_floats = unread_ = prefix.bulk_floats;
    PASSEL_RETURN_IF_ERROR(Read(arrival.header.data(), arrival.header.size(), rest));
    return arrival;
  }

  Result<std::size_t> ReadSome(std::span<float> into, Deadline deadline) override {
    PASSEL_CHECK(into.size() <= unread_, "more than there is");
    auto* const first = reinterpret_cast<char*>(into.data());
    std::memcpy(first, odd_.data(), odd_bytes_);
    std::size_t bytes = odd_bytes_;
    while (bytes < into.size_bytes()) {
      const ssize_t got =
          ::recv(socket_.get(), first + bytes, into.size_bytes() - bytes, MSG_DONTWAIT);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EAGAIN) {
        if (Poll(POLLIN, deadline)) continue;
        break;
      }
      if (got <= 0) return Break();
      bytes += static_cast<std::size_t>(got);
    }
    odd_bytes_ = bytes % sizeof(float);
    std::memcpy(odd_.data(), first + bytes - odd_bytes_, odd_bytes_);
    unread_ -= bytes / sizeof(float);
    return bytes / sizeof(float);
  }

 private:
  struct Prefix {
    std::uint64_t header_bytes, bulk_floats;
  };

  Status Break() {
    broken_ = true;
    ::shutdown(socket_.get(), SHUT_RDWR);
    return Unavailable("the connection is broken");
  }
  bool Poll(short events, Deadline deadline) {
    pollfd waited{socket_.get(), events, 0};
    return ::poll(&waited, 1, deadline.PollTimeoutMs()) > 0;
  }
  Status Read(void* into, std::size_t bytes, Deadline deadline) {
    for (auto* next = static_cast<char*>(into); bytes > 0;) {
      const ssize_t got = ::recv(socket_.get(), next, bytes, MSG_DONTWAIT);
      if (got < 0 && errno == EAGAIN && Poll(POLLIN, deadline)) continue;
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return Break();
      next += got;
      bytes -= static_cast<std::size_t>(got);
    }
    return {};
  }

  const FileDescriptor socket_;
  const std::chrono::nanoseconds stall_limit_;
  std::mutex sending_;
  std::atomic<bool> broken_{false};
  std::size_t unread_ = 0;                 // floats of the bulk of the last message
  std::array<char, sizeof(float)> odd_{};  // what has come of the next one
  std::size_t odd_bytes_ = 0;
};

}  // namespace passel::testing

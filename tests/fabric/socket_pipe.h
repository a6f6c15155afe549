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
  explicit SocketPipe(FileDescriptor socket) : socket_(std::move(socket)) {}

  Status Send(std::span<const std::uint8_t> header, std::span<const float> bulk,
              Deadline deadline) override {
    const std::lock_guard lock(sending_);
    if (broken_) return Unavailable("the connection is broken");
    Prefix prefix{header.size(), bulk.size()};
    std::array<iovec, 3> parts = {iovec{&prefix, sizeof prefix},
                                  iovec{const_cast<std::uint8_t*>(header.data()), header.size()},
                                  iovec{const_cast<float*>(bulk.data()), bulk.size_bytes()}};
    bool begun = false;
    for (std::size_t first = 0; first < parts.size();) {
      msghdr message{};
      message.msg_iov = &parts[first];
      message.msg_iovlen = parts.size() - first;
      const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno == EAGAIN) {
        if (Poll(POLLOUT, deadline)) continue;
        if (!begun) return DeadlineExceeded("the other side does not read");
        return Break();
      }
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0) return Break();
      begun = true;
      auto left = static_cast<std::size_t>(sent);
      while (first < parts.size() && left >= parts[first].iov_len) left -= parts[first++].iov_len;
      if (first == parts.size()) break;
      parts[first].iov_base = static_cast<char*>(parts[first].iov_base) + left;
      parts[first].iov_len -= left;
    }
    return {};
  }

  Result<fabric::Arrival> Receive(Deadline deadline) override {
    std::vector<float> skipped(std::min<std::size_t>(unread_, 1 << 16));
    while (unread_ > 0) {
      const std::size_t part = std::min(unread_, skipped.size());
      PASSEL_RETURN_IF_ERROR(ReadBulk({skipped.data(), part}, Deadline::After(kRest)));
    }
    if (broken_) return Unavailable("the connection is broken");
    if (!Poll(POLLIN, deadline)) return DeadlineExceeded("no message");
    Prefix prefix{};
    const Deadline rest = Deadline::After(kRest);
    PASSEL_RETURN_IF_ERROR(Read(&prefix, sizeof prefix, rest));
    if (prefix.header_bytes == 0 || prefix.header_bytes > fabric::kMaxHeaderBytes) return Break();
    fabric::Arrival arrival;
    arrival.header.resize(prefix.header_bytes);
    arrival.bulk_floats = unread_ = prefix.bulk_floats;
    PASSEL_RETURN_IF_ERROR(Read(arrival.header.data(), arrival.header.size(), rest));
    return arrival;
  }

  Status ReadBulk(std::span<float> into, Deadline deadline) override {
    PASSEL_CHECK(into.size() <= unread_, "more than there is");
    PASSEL_RETURN_IF_ERROR(Read(into.data(), into.size_bytes(), deadline));
    unread_ -= into.size();
    return {};
  }

 private:
  struct Prefix {
    std::uint64_t header_bytes, bulk_floats;
  };
  static constexpr std::chrono::seconds kRest{5};  // for the rest of a message that has begun

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
      if (got <= 0) {
        unread_ = 0;
        return Break();
      }
      next += got;
      bytes -= static_cast<std::size_t>(got);
    }
    return {};
  }

  const FileDescriptor socket_;
  std::mutex sending_;
  std::atomic<bool> broken_{false};
  std::size_t unread_ = 0;  // floats of the bulk of the last message
};

}  // namespace passel::testing

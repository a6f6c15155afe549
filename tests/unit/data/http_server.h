// http_server.h - a tiny HTTP server on 127.0.0.1 that misbehaves on request.

#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/file_descriptor.h"
#include "tests/unit/data/test_files.h"

namespace passel::test {

/// A socket that listens on a free port of 127.0.0.1, whose address goes to `address`.
inline FileDescriptor Listen(int backlog, sockaddr_in* address) {
  FileDescriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  *address = {};
  address->sin_family = AF_INET;
  address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(*address);
  auto* const raw = reinterpret_cast<sockaddr*>(address);
  if (::bind(listener.get(), raw, size) != 0 || ::listen(listener.get(), backlog) != 0 ||
      ::getsockname(listener.get(), raw, &size) != 0) {
    std::abort();
  }
  return listener;
}

class HttpServer {
 public:
  struct Answer {
    int status = 200;
    Bytes body = {};
    /// Send only so many bytes of the body, though Content-Length announces all, and then ...
    std::size_t send = SIZE_MAX;
    /// ... keep the connection open in silence (true) or close it (false).
    bool stall = false;
    /// Say nothing at all, not even a header.
    bool mute = false;
    std::string location = {};  ///< of a redirect
  };

  HttpServer() : stop_(::eventfd(0, EFD_CLOEXEC)) {
    sockaddr_in address;
    listener_ = Listen(16, &address);
    port_ = ntohs(address.sin_port);
    acceptor_ = std::jthread([this] { Accept(); });
  }
  ~HttpServer() { Stop(); }

  /// Ends every connection and closes the port: further connections are refused.
  void Stop() {
    if (!acceptor_.joinable()) return;
    const std::uint64_t one = 1;
    if (::write(stop_.get(), &one, sizeof(one)) != sizeof(one)) std::abort();
    acceptor_.join();
    connections_.clear();
    listener_.Reset();
  }

  void Put(const std::string& path, Answer answer) {
    const std::lock_guard lock(mutex_);
    answers_[path] = std::move(answer);
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_) + "/mnist/"; }
  int requests() const { return requests_; }

 private:
  // True when `fd` can be read; false when the server is stopped.
  bool WaitReadable(int fd) {
    pollfd fds[2] = {{fd, POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    while (::poll(fds, 2, -1) < 0) {
    }
    return fds[1].revents == 0;
  }
  void Accept() {
    while (WaitReadable(listener_.get())) {
      FileDescriptor fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      connections_.emplace_back([this, fd = std::move(fd)] { Serve(fd.get()); });
    }
  }
  void Serve(int fd) {
    std::string request;
    while (request.find("\r\n\r\n") == std::string::npos) {
      char buffer[2048];
      if (!WaitReadable(fd)) return;
      const ssize_t got = ::recv(fd, buffer, sizeof(buffer), 0);
      if (got <= 0) return;
      request.append(buffer, static_cast<std::size_t>(got));
    }
    ++requests_;
    const std::size_t begin = request.find(' ') + 1;
    const std::string path = request.substr(begin, request.find(' ', begin) - begin);
    Answer answer{.status = 404};
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = answers_.find(path); found != answers_.end()) answer = found->second;
    }
    if (!answer.mute) {
      std::string head = "HTTP/1.1 " + std::to_string(answer.status) +
                         " X\r\nContent-Length: " + std::to_string(answer.body.size()) +
                         "\r\nConnection: close\r\n";
      if (!answer.location.empty()) head += "Location: " + answer.location + "\r\n";
      head += "\r\n";
      SendAll(fd, head.data(), head.size());
      SendAll(fd, answer.body.data(), std::min(answer.send, answer.body.size()));
    }
    // A silent peer: until the client gives up or the server stops.
    if (answer.stall || answer.mute) WaitReadable(fd);
  }
  static void SendAll(int fd, const void* data, std::size_t size) {
    const char* at = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t put = ::send(fd, at, size, MSG_NOSIGNAL);
      if (put <= 0) return;
      at += put;
      size -= static_cast<std::size_t>(put);
    }
  }

  FileDescriptor stop_;
  FileDescriptor listener_;
  int port_ = 0;
  std::atomic<int> requests_ = 0;
  std::mutex mutex_;
  std::map<std::string, Answer> answers_;
  std::vector<std::jthread> connections_;  // touched by the acceptor, and after it ended
  std::jthread acceptor_;
};

}  // namespace passel::test

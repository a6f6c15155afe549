// tcp_peer - push and pull over one loopback TCP connection: a server process that owns the values
// and adds what it receives. --variant blocking sleeps in recv, polling never does.
//
// A request is one byte (push, pull, both, quit), then for push and both the gradient. The server
// subtracts each piece as it arrives, then answers one byte, or the values for pull and both.

#include <netinet/tcp.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include <cerrno>

#include "bench/peers/peer.h"

namespace peers {
namespace {

constexpr const char* kMe = "tcp_peer";
constexpr char kPush = 'p', kPull = 'g', kBoth = 'b', kQuit = 'q';

bool polling = false;

// At most `bytes`, at least one; ends the program when the other side is gone or silent for 10 s.
std::size_t ReceiveSome(int fd, void* to, std::size_t bytes) {
  for (;;) {
    const ssize_t got = ::recv(fd, to, bytes, polling ? MSG_DONTWAIT : 0);
    if (got > 0) return static_cast<std::size_t>(got);
    if (got == 0) Fail(kMe, "the other side closed the connection");
    if (errno == EINTR || (polling && errno == EAGAIN)) continue;
    Fail(kMe, std::string("recv: ") + std::strerror(errno));
  }
}

void Receive(int fd, void* to, std::size_t bytes) {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    const std::size_t got = ReceiveSome(fd, at, bytes);
    at += got;
    bytes -= got;
  }
}

void Send(int fd, const char* head, const void* body, std::size_t body_bytes) {
  iovec parts[2] = {{const_cast<char*>(head), head != nullptr ? 1U : 0U},
                    {const_cast<void*>(body), body_bytes}};
  msghdr message = {};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  while (parts[0].iov_len + parts[1].iov_len > 0) {
    ssize_t sent = ::sendmsg(fd, &message, MSG_NOSIGNAL | (polling ? MSG_DONTWAIT : 0));
    if (sent < 0) {
      if (errno == EINTR || (polling && errno == EAGAIN)) continue;
      Fail(kMe, std::string("send: ") + std::strerror(errno));
    }
    for (iovec& part : parts) {
      const std::size_t taken = std::min(part.iov_len, static_cast<std::size_t>(sent));
      part.iov_base = static_cast<char*>(part.iov_base) + taken;
      part.iov_len -= taken;
      sent -= static_cast<ssize_t>(taken);
    }
  }
}

void Prepare(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const timeval limit = {10, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

// Never returns.
void Serve(int listener, std::size_t elements) {
  std::vector<float> values = InitialValues(elements);
  // Pieces stay in the first-level cache or near it between recv and the subtraction.
  std::vector<char> piece(std::size_t{128} << 10);
  const int fd = ::accept(listener, nullptr, nullptr);
  if (fd < 0) Fail(kMe, std::string("accept: ") + std::strerror(errno));
  Prepare(fd);
  const std::size_t bytes = elements * sizeof(float);
  for (;;) {
    char request = 0;
    Receive(fd, &request, 1);
    if (request == kQuit) std::_Exit(0);
    if (request == kPush || request == kBoth) {
      std::size_t done = 0;  // elements
      std::size_t held = 0;  // bytes of the piece
      while (done < elements) {
        const std::size_t left = bytes - done * sizeof(float) - held;
        held += ReceiveSome(fd, piece.data() + held, std::min(piece.size() - held, left));
        const std::size_t whole = held / sizeof(float);
        const auto* gradient = reinterpret_cast<const float*>(piece.data());
        float* to = values.data() + done;
        for (std::size_t i = 0; i < whole; ++i) to[i] -= gradient[i];
        done += whole;
        held -= whole * sizeof(float);
        std::memmove(piece.data(), piece.data() + whole * sizeof(float), held);
      }
    }
    if (request == kPush) {
      Send(fd, &request, nullptr, 0);
    } else {
      Send(fd, nullptr, values.data(), bytes);
    }
  }
}

int Main(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  if (options.variant != "blocking" && options.variant != "polling")
    Fail(kMe, "--variant must be blocking or polling", 2);
  polling = options.variant == "polling";
  sockaddr_in address;
  const int listener = ListenOnLoopback(kMe, &address);
  const pid_t server = ForkOn(kMe, options.second_cpu);
  if (server == 0) Serve(listener, options.elements);
  Pin(kMe, options.first_cpu);
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  Prepare(fd);
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    Fail(kMe, std::string("cannot connect: ") + std::strerror(errno));

  const std::vector<float> gradient = Gradient(options.elements);
  std::vector<float> values(options.elements);
  const std::size_t bytes = options.elements * sizeof(float);
  const auto push = [&] {
    char answer = 0;
    Send(fd, &kPush, gradient.data(), bytes);
    Receive(fd, &answer, 1);
  };
  const auto pull = [&] {
    Send(fd, &kPull, nullptr, 0);
    Receive(fd, values.data(), bytes);
  };
  const auto both = [&] {
    Send(fd, &kBoth, gradient.data(), bytes);
    Receive(fd, values.data(), bytes);
  };
  MeasureClient(kMe, options, push, pull, both, [&] { return values.data(); });
  Send(fd, &kQuit, nullptr, 0);
  int status = 0;
  ::waitpid(server, &status, 0);  // bounded by the alarm
  if (status != 0) Fail(kMe, "the server ended with an error");
  return 0;
}

}  // namespace
}  // namespace peers

int main(int argc, char** argv) { return peers::Main(argc, argv); }
